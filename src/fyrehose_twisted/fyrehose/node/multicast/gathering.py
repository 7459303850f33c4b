"""Repairs for many clients at once: what several clients of a multicast group miss is sent to the group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fyrehose_twisted.ranges import RangeSet

GATHERING_TIME = 0.1
"""Seconds in which REQUESTs for a number add up, as those of several clients; up to twice as many. Clients spread their
REQUESTs over at most half of this time."""

LISTENERS_PER_REQUEST, MAX_REQUESTS = 50, 8
"""Clients that hear the group for each REQUEST beyond the second that makes a loss count as shared, and the maximum.
Many clients lose the same message now and then without sharing a loss, and an answer to the group costs all of them."""

ANSWER_TIME = 0.01
"""Seconds for which REQUESTs are ignored after an answer to the group; up to twice as many. The shortest time after
which a client repeats a REQUEST."""

GROUP_PAUSE = 1.0
"""Seconds before a number is sent to the group again; up to twice as many. Meanwhile each that asks is sent its own."""

MAX_RANGES = 16_384
"""Ranges that are remembered for each purpose. Beyond it, clients are answered one by one."""


class Gathered(NamedTuple):
    """What to do with a REQUEST: ranges for the client alone, ranges for the group, and the count of numbers that are
    on their way already."""

    alone: list[tuple[int, int]]
    group: list[tuple[int, int]]
    ignored: int


class _Recent:
    """Numbers of the last ``seconds``, up to twice as many."""

    def __init__(self, seconds: float, now: float) -> None:
        self._seconds = seconds
        self._current, self._former = RangeSet(), RangeSet()
        self._until = now + seconds

    def add(self, ranges: Iterable[tuple[int, int]], now: float) -> None:
        self._forget(now)
        for first, last in ranges:
            if len(self._current) < MAX_RANGES:
                self._current.add(first, last)

    def split(
        self, ranges: Iterable[tuple[int, int]], now: float
    ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return the parts of ``ranges`` that are among the numbers, and the others."""
        self._forget(now)
        within, others = list[tuple[int, int]](), list(ranges)
        for numbers in (self._current, self._former):
            if numbers:
                within += [part for first, last in others for part in numbers.intersection(first, last)]
                others = [gap for first, last in others for gap in numbers.gaps(first, last)]
        return sorted(within), others

    def _forget(self, now: float) -> None:
        if now >= self._until or now < self._until - self._seconds:
            is_old = now >= self._until + self._seconds
            self._former = RangeSet() if is_old else self._current
            self._current, self._until = RangeSet(), now + self._seconds


def shared_from(listeners: int) -> int:
    """Return the number of REQUESTs from which on a loss counts as shared, if so many clients hear the group."""
    return min(2 + listeners // LISTENERS_PER_REQUEST, MAX_REQUESTS)


class RepairGatherer:
    """Decides which repairs go to the multicast group.

    The first clients that ask for a number are answered alone and at once. If more ask for it, the loss is shared, and
    all are answered: once, however many there are.
    """

    def __init__(self, now: float) -> None:
        self._asked = [_Recent(GATHERING_TIME, now) for _ in range(MAX_REQUESTS - 1)]
        self._answered = _Recent(ANSWER_TIME, now)
        self._repaired = _Recent(GROUP_PAUSE, now)

    def requested(self, first: int, last: int, listeners: int, now: float) -> Gathered:
        """Handle a REQUEST of one of ``listeners`` clients that hear the group."""
        answered, rest = self._answered.split(((first, last),), now)
        again, rest = self._repaired.split(rest, now)
        shared, alone = rest, list[tuple[int, int]]()
        for asked in self._asked[: shared_from(listeners) - 1]:
            shared, others = asked.split(shared, now)
            asked.add(others, now)
            alone += others
        self._answered.add(shared, now)
        self._repaired.add(shared, now)
        return Gathered(sorted(again + alone), shared, sum(end - start + 1 for start, end in answered))
