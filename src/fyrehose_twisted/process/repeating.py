"""Periodic calls that an exception does not end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

REPORT_INTERVAL = 60.0
"""Seconds between two reports of a call that fails each time."""


class PeriodicCall:
    """One call that is made again and again. A failure is logged, and the next call is made when it is due.

    :param what: the call, as the log names it.
    :param call: may return a Deferred; the next call waits until it has fired.
    :param reactor: whose clock counts.
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
        """Whether more calls will be made."""
        return self._loop.running

    def start(self, interval: float, *, now: bool = True) -> None:
        """Make a call each ``interval`` seconds.

        :param now: make the first one at once, and not after one interval.
        """
        self._loop.start(interval, now)

    def stop(self) -> None:
        """Make no more calls. One that is under way is not cancelled."""
        if self._loop.running:
            self._loop.stop()

    def _turn(self) -> Deferred[Any]:
        return maybeDeferred(self._call).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        now = self._reactor.seconds()
        # Below 0 the clock was set back.
        if self._reported_at is None or not 0 <= now - self._reported_at < REPORT_INTERVAL:
            self._reported_at = now
            self.log.failure("{what} failed; the next call is made when it is due", failure, what=self._description)
