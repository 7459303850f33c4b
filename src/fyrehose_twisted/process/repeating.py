"""Periodic calls that continue after exceptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

REPORT_INTERVAL = 60.0
"""Minimum seconds between two log entries about a failing call."""


class PeriodicCall:
    """Periodic call. A failure is logged, and the next call runs when it is due.

    Twisted's ``LoopingCall`` would import the global reactor, which is not there if asyncio runs the process.

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
        self._interval = 0.0
        self._began_at = 0.0
        self._running = False
        self._next_call: Any = None

    @property
    def running(self) -> bool:
        """Whether the call is active."""
        return self._running

    def start(self, interval: float, *, now: bool = True) -> None:
        """Start to call every ``interval`` seconds.

        :param now: make the first call at once instead of after one interval.
        """
        self._interval, self._running = interval, True
        self._began_at = self._reactor.seconds()
        if now:
            self._turn()
        else:
            self._schedule()

    def stop(self) -> None:
        """Stop. A call in progress is not cancelled."""
        self._running = False
        if self._next_call is not None:
            self._next_call.cancel()
            self._next_call = None

    def _turn(self) -> None:
        self._next_call = None
        done: Deferred[Any] = maybeDeferred(self._call)
        done.addErrback(self._failed).addCallback(lambda _: self._schedule())

    def _schedule(self) -> None:
        # A call that was stopped and started again meanwhile is scheduled already.
        if self._running and self._next_call is None:
            # Calls that were missed are left out.
            passed = (self._reactor.seconds() - self._began_at) % self._interval
            self._next_call = self._reactor.callLater(self._interval - passed, self._turn)

    def _failed(self, failure: Failure) -> None:
        now = self._reactor.seconds()
        # A negative difference means that the clock was set back.
        if self._reported_at is None or not 0 <= now - self._reported_at < REPORT_INTERVAL:
            self._reported_at = now
            self.log.failure("{what} failed; the next call is made when it is due", failure, what=self._description)
