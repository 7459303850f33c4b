"""Standard input of control commands, sent to a node line by line."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import CancelledError, Deferred

from fyrehose_twisted.process.line_publisher import LinePublisher
from fyrehose_twisted.process.terminal import open_input, print_error
from fyrehose_twisted.wording import pluralize

MAX_IN_FLIGHT = 100
"""Maximum number of lines in flight."""


class LineSender(LinePublisher):
    """Sender of the lines of standard input to a node.

    :param send: sends a line and returns its number.
    :param window: maximum number of lines in flight.
    """

    def __init__(
        self, limit: int, unit: str, send: Callable[[bytes], Coroutine[Any, Any, int]], window: int = MAX_IN_FLIGHT
    ) -> None:
        super().__init__(limit, unit)
        self._send = send
        self._window = window
        self._sends_in_flight = 0
        self._window_open: Deferred[None] | None = None

    async def when_room(self) -> None:
        """See :class:`~fyrehose_twisted.process.line_publisher.LinePublisher`."""
        if self._sends_in_flight >= self._window:
            self._window_open = Deferred()
            await self._window_open

    def publish(self, line: bytes) -> Deferred[int]:
        """See :class:`~fyrehose_twisted.process.line_publisher.LinePublisher`."""
        self._sends_in_flight += 1
        return Deferred.fromCoroutine(self._send_line(line))

    def failed(self, line: int, error: BaseException | None) -> None:
        """See :class:`~fyrehose_twisted.process.line_publisher.LinePublisher`."""
        self.problem = self.problem or f"line {line:,}: {error}"

    async def _send_line(self, line: bytes) -> int:
        try:
            return await self._send(line)
        finally:
            self._sends_in_flight -= 1
            if self._window_open is not None:
                window_open, self._window_open = self._window_open, None
                window_open.callback(None)


async def send_standard_input(sender: LineSender, reactor: Any, outcome: str) -> int:
    """Send all lines, report failures, and return the exit status.

    :param outcome: what happened to lines that failed, such as ``not sent``.
    """
    try:
        await sender.read(open_input(None), reactor)
    except CancelledError:
        sender.stop("interrupted")
        raise
    if sender.problem is None:
        return 0
    missing = sender.lines_read - sender.published
    return print_error(f"{missing:,} of {pluralize(sender.lines_read, 'line')} {outcome}: {sender.problem}")
