"""The last seconds of a publisher, in which it answers repairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from fyrehose_twisted.fyrehose.node.client.publishing.linger import MAX_LINGER_TIME


class Linger:
    """One stay, which begins at once.

    :param leaves_at: called for the time at which the publisher may leave, if nothing happens until then.
    :param leave: leaves.
    """

    def __init__(self, reactor: Any, may_leave_at: Callable[[], float], leave: Callable[[], Deferred[None]]) -> None:
        self._reactor = reactor
        self._may_leave_at = may_leave_at
        self._leave = leave
        self._is_ending = False
        self._waiters: list[Deferred[None]] = []
        self._has_left = False
        self._check_call: Any = None
        # A timer of its own: the wall clock, by which leaves_at goes, may be set back meanwhile.
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
        """The publisher has stopped for another reason, or has left."""
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
        for one in waiting:
            one.callback(None)
