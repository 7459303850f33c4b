"""Scheduler of virtual time."""

from __future__ import annotations

import heapq
from collections.abc import Callable

CALLS_AT_ONE_MOMENT = 1_000_000
"""Calls scheduled within one moment above which an endless loop is assumed."""


class Scheduler:
    """Event queue that runs calls in order of time, and calls of equal time in order of scheduling.

    :ivar now: virtual time in seconds.
    :ivar calls: number of calls made since the start.
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
        """Schedule ``call`` at ``when``, or now if that has passed; return a number for :meth:`cancel`."""
        number = self._scheduled
        self._scheduled = number + 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, number, call))
        return number

    def cancel(self, number: int) -> None:
        """Cancel a pending call."""
        self._cancelled.add(number)
        # Keeps memory proportional to the number of pending calls.
        if 2 * len(self._cancelled) > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[1] not in self._cancelled]
            heapq.heapify(self._heap)
            self._cancelled.clear()

    def run_until(self, when: float) -> None:
        """Advance time to ``when``, running the calls that are due.

        :raises RuntimeError: if calls of one moment schedule further calls endlessly.
        """
        heap, cancelled, pop = self._heap, self._cancelled, heapq.heappop
        calls, first = 0, self._scheduled  # calls made that were scheduled at this moment, and the number of the first
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
                    raise RuntimeError(f"{CALLS_AT_ONE_MOMENT:,} calls at {moment}, without end; the last was {name}")
            self.calls += 1
            call()
        if when > self.now:
            self.now = when
