"""The last seconds of a publisher, in which it answers repairs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from fyrehose_twisted.fyrehose.node.client.publishing.linger import LONGEST_STAY


class Stay:
    """One stay, which begins at once.

    :param leaves_at: called for the time at which the publisher may leave, if nothing happens until then.
    :param leave: leaves.
    """

    def __init__(self, reactor: Any, leaves_at: Callable[[], float], leave: Callable[[], Deferred[None]]) -> None:
        self._reactor = reactor
        self._leaves_at = leaves_at
        self._leave = leave
        self._is_over = False
        self._waiting: list[Deferred[None]] = []
        self._left = False
        self._look_again: Any = None
        # A timer of its own: the wall clock, by which leaves_at goes, may be set back meanwhile.
        self._longest = reactor.callLater(LONGEST_STAY, self.end)
        self._look()

    def when_over(self) -> Deferred[None]:
        """Return a Deferred that fires when the publisher has left."""
        if self._left:
            return succeed(None)
        self._waiting.append(Deferred())
        return self._waiting[-1]

    def end(self) -> None:
        """Leave now."""
        if not self._is_over:
            self._cancel()
            self._leave().addCallback(lambda _: self._tell())

    def stopped(self) -> None:
        """The publisher has stopped for another reason, or has left."""
        if not self._is_over:
            self._cancel()
            self._tell()

    def _look(self) -> None:
        self._look_again = None
        wait = self._leaves_at() - self._reactor.seconds()
        if wait <= 0:
            self.end()
        else:
            self._look_again = self._reactor.callLater(min(wait, LONGEST_STAY), self._look)

    def _cancel(self) -> None:
        self._is_over = True
        for call in (self._longest, self._look_again):
            if call is not None and call.active():
                call.cancel()

    def _tell(self) -> None:
        self._left = True
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            one.callback(None)
