"""Command ``fyrehose pub``: publish lines of standard input or a file as messages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from twisted.internet.defer import CancelledError
from twisted.python.failure import Failure

from fyrehose_twisted.errors import MessageNotKept, MessageTooLarge, StateFileError
from fyrehose_twisted.fyrehose.cli.keys import KeyReload, keys_from_options, mac_from_options
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.node.client.publishing.linger import QUIET_TIME
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.protocol.publisher_file import PublisherState, chain_checksum
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.process.line_publisher import LinePublisher
from fyrehose_twisted.process.terminal import open_input, print_error, print_hint, secret_from_options
from fyrehose_twisted.wording import pluralize

BATCH_LINES = 256
"""Maximum number of lines that are published at once; far fewer than half of the send queue."""

LEAVE_HINT_DELAY = QUIET_TIME + 0.5
"""Seconds after which a publisher that is still leaving prints a hint."""


class MessagePublisher(LinePublisher):
    """Publisher of input lines."""

    def __init__(self, publisher: PublisherProtocol, kept: int) -> None:
        super().__init__(publisher.max_message, "messages", BATCH_LINES)
        self._publisher = publisher
        self._kept = kept

    async def when_room(self) -> None:
        await self._publisher.when_room()

    def publish_lines(self, lines: Sequence[bytes], first: int) -> None:
        self._publisher.publish_each(
            lines,
            lambda index, sequence: self.line_published(first + index, sequence),
            lambda index, error: self.line_failed(first + index, error),
            kept=self._kept,
        )


class ResumingPublisher(MessagePublisher):
    """Publisher with a state file. It skips lines that are published already, and stops at the first failure.

    :ivar has_partial_line: whether the input ended within a line, which is not published because it may grow.
    """

    def __init__(self, publisher: PublisherProtocol, kept: int, state: PublisherState) -> None:
        super().__init__(publisher, kept)
        self.has_partial_line = False
        self._state = state
        self._lines_to_skip, self._expected_checksum = state.position, state.checksum
        self._checksum = 0

    def publish_lines(self, lines: Sequence[bytes], first: int) -> None:
        skipped = min(self._lines_to_skip, len(lines))
        for line in lines[:skipped]:
            self._checksum = chain_checksum(self._checksum, line)
        self._lines_to_skip -= skipped
        if skipped and not self._lines_to_skip and self._checksum != self._expected_checksum:
            self._in_flight -= len(lines)
            self._refuse(f"the first {pluralize(first + skipped - 1, 'line')} are not those that were published")
            return
        for number in range(first, first + skipped):
            self.line_published(number, 0)
        if skipped < len(lines):
            super().publish_lines(lines[skipped:], first + skipped)

    def failed(self, line: int, error: BaseException | None) -> None:
        super().failed(line, error)
        self.end(error)

    def connectionLost(self, reason: Failure | None = None) -> None:
        """See :meth:`~fyrehose_twisted.process.line_publisher.LinePublisher.connectionLost`."""
        self.has_partial_line = bool(self._rest or self._oversized_bytes)
        self._rest, self._oversized_bytes = b"", 0
        super().connectionLost(reason)

    def _publish(self, batch: MessageTooLarge | Sequence[bytes]) -> None:
        super()._publish(batch)
        if self.problem is not None:
            self.end(self.problem)

    def _finish(self) -> None:
        if self._lines_to_skip and self.problem is None:
            published = pluralize(self._state.position, "line")
            self._refuse(f"the input has {pluralize(self.lines_read, 'line')}, and {published} of it were published")
        super()._finish()

    def _refuse(self, reason: str) -> None:
        self.end(
            StateFileError(
                f"state file {self._state.path} does not fit the input: {reason}; start again with the same input,"
                " which may have grown"
            )
        )


async def publish(options: argparse.Namespace, reactor: Any) -> int:
    """Run the command and return its exit status."""
    descriptor = open_input(options.file)
    config = ClientConfig(
        outbox=OutboxConfig(raw=options.raw, timeout=options.timeout),
        secret=secret_from_options(options),
        mac=mac_from_options(options),
    )
    keys = keys_from_options(options)
    path = options.publisher_state
    state = None if path is None else PublisherState(Path(path), options.backbone)
    with nullcontext() if state is None else closing(state), KeyReload(keys, reactor):
        protocol = PublisherProtocol(config, state=state)
        protocol.sealer = None if keys is None else keys.sealer
        publisher = await join(reactor, protocol, options.backbone, timeout=options.connect_timeout)
        lines = (
            MessagePublisher(publisher, options.kept)
            if state is None
            else ResumingPublisher(publisher, options.kept, state)
        )
        publisher.stopped.addErrback(lambda failure: lines.stop(failure.value))
        interrupted = False
        try:
            await lines.read(descriptor, reactor)
        except CancelledError:
            interrupted = True
            lines.stop("interrupted")
        missing = lines.lines_read - lines.published
        await _leave(publisher, reactor, at_once=interrupted)
    if isinstance(lines.problem, StateFileError):
        return print_error(lines.problem)
    if lines.problem is not None:
        outcome = "not kept" if isinstance(lines.problem, MessageNotKept) else "not published"
        return print_error(f"{missing:,} of {pluralize(lines.lines_read, 'message')} {outcome}: {lines.problem}")
    if isinstance(lines, ResumingPublisher) and lines.has_partial_line:
        print_error("the input ends in an incomplete line, which was not published")
    return 0


async def _leave(publisher: PublisherProtocol, reactor: Any, *, at_once: bool) -> None:
    """Leave after answering repair requests, or at once if interrupted."""
    hint = reactor.callLater(LEAVE_HINT_DELAY, print_hint, "still answering repairs; interrupt to leave")
    try:
        await publisher.leave(at_once=at_once)
    except CancelledError:
        await publisher.leave(at_once=True)
    finally:
        if hint.active():
            hint.cancel()
