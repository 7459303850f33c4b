"""Delayed departure of a publisher that may still have to answer repair requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from fyrehose_twisted.fyrehose.node.client.publishing.linger import MAX_LINGER_TIME


class Linger:
    """Delayed departure of one publisher, starting now.

    :param may_leave_at: returns the time at which the publisher may leave if it receives nothing until then.
    :param leave: makes the publisher leave.
    """

    def __init__(self, reactor: Any, may_leave_at: Callable[[], float], leave: Callable[[], Deferred[None]]) -> None:
        self._reactor = reactor
        self._may_leave_at = may_leave_at
        self._leave = leave
        self._is_ending = False
        self._waiters: list[Deferred[None]] = []
        self._has_left = False
        self._check_call: Any = None
        # A separate timer, because may_leave_at() follows the wall clock, which may be set back.
        self._deadline_call = reactor.callLater(MAX_LINGER_TIME, self.end)
        self._check()

    def when_left(self) -> Deferred[None]:
        """Return a Deferred that fires when the publisher has left."""
        if self._has_left:
            return succeed(None)
        self._waiters.append(Deferred())
        return self._waiters[-1]

    def end(self) -> None:
        """Leave now."""
        if not self._is_ending:
            self._cancel()
            self._leave().addCallback(lambda _: self._notify())

    def protocol_stopped(self) -> None:
        """Handle the end of the protocol, whatever its cause."""
        if not self._is_ending:
            self._cancel()
            self._notify()

    def _check(self) -> None:
        self._check_call = None
        wait = self._may_leave_at() - self._reactor.seconds()
        if wait <= 0:
            self.end()
        else:
            self._check_call = self._reactor.callLater(min(wait, MAX_LINGER_TIME), self._check)

    def _cancel(self) -> None:
        self._is_ending = True
        for call in (self._deadline_call, self._check_call):
            if call is not None and call.active():
                call.cancel()

    def _notify(self) -> None:
        self._has_left = True
        waiting, self._waiters = self._waiters, []
        for waiter in waiting:
            waiter.callback(None)
