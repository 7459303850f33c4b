"""Periodic calls that continue after exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

REPORT_INTERVAL = 60.0
"""Minimum seconds between two log entries about a failing call."""


class PeriodicCall:
    """Periodic call. A failure is logged, and the next call runs when it is due.

    :param description: name of the call in the log.
    :param call: function that may return a Deferred; the next call waits for it.
    :param reactor: reactor that provides the clock.
    """

    log = Logger()

    def __init__(self, description: str, call: Callable[[], object], reactor: Any) -> None:
        self._description = description
        self._call = call
        self._reactor = reactor
        self._reported_at: float | None = None
        self._loop = LoopingCall(self._turn)
        self._loop.clock = reactor

    @property
    def running(self) -> bool:
        """Whether the call is active."""
        return self._loop.running

    def start(self, interval: float, *, now: bool = True) -> None:
        """Start to call every ``interval`` seconds.

        :param now: make the first call at once instead of after one interval.
        """
        self._loop.start(interval, now)

    def stop(self) -> None:
        """Stop. A call in progress is not cancelled."""
        if self._loop.running:
            self._loop.stop()

    def _turn(self) -> Deferred[Any]:
        return maybeDeferred(self._call).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        now = self._reactor.seconds()
        # A negative difference means that the clock was set back.
        if self._reported_at is None or not 0 <= now - self._reported_at < REPORT_INTERVAL:
            self._reported_at = now
            self.log.failure("{what} failed; the next call is made when it is due", failure, what=self._description)
