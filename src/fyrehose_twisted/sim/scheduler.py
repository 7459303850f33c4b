"""Virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

CALLS_AT_ONE_MOMENT = 1_000_000
"""More that were scheduled during that moment, and time will never pass: something calls itself again and again."""


class Scheduler:
    """Calls things in order of their time; those of equal time in the order in which they were scheduled.

    :ivar now: virtual time in seconds.
    :ivar calls: how many calls were made since the start.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.calls = 0
        self._scheduled = 0
        self._heap: list[tuple[float, int, Callable[[], object]]] = []
        self._cancelled: set[int] = set()

    def __len__(self) -> int:
        return len(self._heap) - len(self._cancelled)

    def call_at(self, when: float, call: Callable[[], object]) -> int:
        """Call ``call`` at ``when``, or as the next thing if that has passed. Returns what :meth:`cancel` takes."""
        number = self._scheduled
        self._scheduled = number + 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, number, call))
        return number

    def cancel(self, number: int) -> None:
        """Do not make a call that was scheduled and not made yet."""
        self._cancelled.add(number)
        # Memory stays in proportion to what is still to be called, however often somebody changes their mind.
        if 2 * len(self._cancelled) > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[1] not in self._cancelled]
            heapq.heapify(self._heap)
            self._cancelled.clear()

    def run_until(self, when: float) -> None:
        """Let time pass up to ``when``.

        :raises RuntimeError: if it does not, because something calls itself at one moment without end.
        """
        heap, cancelled, pop = self._heap, self._cancelled, heapq.heappop
        calls, first = 0, self._scheduled  # how many were made that were scheduled at this moment, and their first
        while heap and heap[0][0] <= when:
            moment, number, call = pop(heap)
            if number in cancelled:
                cancelled.remove(number)
                continue
            if moment != self.now:
                self.now = moment
                calls, first = 0, self._scheduled
            elif number >= first:
                calls += 1
                if calls > CALLS_AT_ONE_MOMENT:
                    name = getattr(call, "__qualname__", type(call).__name__)
                    raise RuntimeError(f"{CALLS_AT_ONE_MOMENT:,} calls at {moment}, and no end; the last was {name}")
            self.calls += 1
            call()
        if when > self.now:
            self.now = when
