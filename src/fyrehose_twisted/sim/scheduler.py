"""Virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

CALLS_AT_ONE_MOMENT = 1_000_000
"""More, and time will never pass: something calls itself again and again."""


class Scheduler:
    """Calls things in order of their time; those of equal time in the order in which they were scheduled."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._order = count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []
        self._calls_now = 0

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Call ``call`` at ``when``, or as the next thing if that has passed."""
        heapq.heappush(self._calls, (max(when, self.now), next(self._order), call))

    def run_until(self, when: float) -> None:
        """Let time pass up to ``when``.

        :raises RuntimeError: if it does not.
        """
        while self._calls and self._calls[0][0] <= when:
            moment, _, call = heapq.heappop(self._calls)
            self._calls_now = self._calls_now + 1 if moment == self.now else 1
            if self._calls_now > CALLS_AT_ONE_MOMENT:
                raise RuntimeError(f"{CALLS_AT_ONE_MOMENT:,} calls at {moment}, and no end; the last was {call!r}")
            self.now = moment
            call()
        self.now = max(self.now, when)
