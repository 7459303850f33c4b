"""Virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count


class Scheduler:
    """Calls things in order of their time; those of equal time in the order in which they were scheduled."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._order = count()
        self._calls: list[tuple[float, int, Callable[[], None]]] = []

    def call_at(self, when: float, call: Callable[[], None]) -> None:
        """Call ``call`` at ``when``, or as the next thing if that has passed."""
        heapq.heappush(self._calls, (max(when, self.now), next(self._order), call))

    def run_until(self, when: float) -> None:
        """Let time pass up to ``when``."""
        while self._calls and self._calls[0][0] <= when:
            self.now, _, call = heapq.heappop(self._calls)
            call()
        self.now = max(self.now, when)
