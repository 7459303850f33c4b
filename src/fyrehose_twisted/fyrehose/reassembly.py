"""Putting a stream in order: what can be handed over, what waits for it, what is missing."""

from __future__ import annotations

from enum import Enum
from itertools import repeat
from typing import NamedTuple

from fyrehose_twisted.ranges import RangeSet

DEFAULT_BUFFER = 32 * 2**20
MESSAGE_OVERHEAD = 128
"""Bytes that a waiting message costs beside its data, so that the limit means memory."""
MAX_GAPS = 65_536


class Arrival(Enum):
    """What became of a message."""

    NEW = "kept"
    DUPLICATE = "already here, handed over or given up"
    OVERFLOW = "no room; it counts as missing"


Waiting = tuple[bytes, int]
"""A message that is here: DATA, and when it was received."""


class Run(NamedTuple):
    """Consecutive messages, ready to be handed over."""

    first: int
    messages: list[bytes]
    """DATA of each."""
    times: list[int]
    """When each was received, in UTC microseconds since 1970."""


class Lost(NamedTuple):
    """Event: numbers ``first`` to ``last`` were given up."""

    first: int
    last: int


class Reassembly:
    """Messages from ``start`` on.

    :ivar next: the number to be handed over next.
    :ivar highest: the highest number that is known to exist.
    :ivar missing: the numbers between the two that are neither here nor given up.
    :ivar fresh_gaps: what came to be missing since this was last cleared, in order.
    """

    def __init__(self, start: int, *, limit: int = DEFAULT_BUFFER, max_gaps: int = MAX_GAPS) -> None:
        self.next = start
        self.highest = start - 1
        self.missing = RangeSet()
        self.fresh_gaps: list[tuple[int, int]] = []
        self.size = 0
        self._limit = limit
        self._max_gaps = max_gaps
        self._lost = RangeSet()
        self._waiting: dict[int, Waiting] = {}
        self._full = False

    def has_room(self, size: int) -> bool:
        """Say whether a message of ``size`` bytes finds room beside those that wait."""
        return self.size + size + MESSAGE_OVERHEAD <= self._limit

    def no_room_from(self, *, paused: bool) -> int | None:
        """Return the number from which on messages found no room, since some were handed over last; or ``None``.

        Those below it push out higher ones, which is no use while the application takes none (``paused``).
        """
        if not (self._full and self._waiting):
            return None
        return self.next if paused else (self._highest_waiting() or self.next) + 1

    def add(self, sequence: int, data: bytes, received_at: int) -> Arrival:
        """Take a message in."""
        cost = len(data) + MESSAGE_OVERHEAD
        if sequence > self.highest:
            if sequence > self.highest + 1:
                if len(self.missing) >= self._max_gaps:
                    return Arrival.OVERFLOW
                self._miss(self.highest + 1, sequence - 1)
            self.highest = sequence
            if self.size + cost > self._limit and sequence != self.next:
                self._full = True
                self._miss(sequence, sequence)
                return Arrival.OVERFLOW
        elif sequence in self.missing:
            if sequence != self.next and not self._make_room(sequence, cost):
                return Arrival.OVERFLOW
            self.missing.discard(sequence)
        else:
            return Arrival.DUPLICATE
        self._waiting[sequence] = data, received_at
        self.size += cost
        return Arrival.NEW

    def pass_on(self, first: int, data: list[bytes], received_at: int) -> Run | None:
        """Take in messages from ``first`` on and return what can be handed over: just them, if nothing else is awaited.

        :return: ``None`` if there is; then nothing has changed.
        """
        if not first == self.next == self.highest + 1:
            return None
        self.highest += len(data)
        self.next += len(data)
        self._full = False
        return Run(first, data, [received_at] * len(data))

    def add_run(self, first: int, data: list[bytes], received_at: int) -> bool:
        """Take in messages from ``first`` on if all are new, none is missing yet, and there is room for all.

        :return: whether they were taken; if not, nothing has changed, and :meth:`add` takes what it can.
        """
        size = sum(map(len, data)) + len(data) * MESSAGE_OVERHEAD
        if first <= self.highest or self.size + size > self._limit:
            return False
        if first > self.highest + 1:
            if len(self.missing) >= self._max_gaps:
                return False
            self._miss(self.highest + 1, first - 1)
        self.highest = first + len(data) - 1
        self._waiting.update(zip(range(first, first + len(data)), zip(data, repeat(received_at)), strict=False))
        self.size += size
        return True

    def exists(self, sequence: int) -> None:
        """Miss everything up to ``sequence`` that is not here."""
        if sequence > self.highest:
            self._miss(self.highest + 1, sequence)
            self.highest = sequence

    def correct(self, sequence: int, data: bytes, received_at: int) -> bool:
        """Let a message take the place of another that waits under its number; say whether it did."""
        waiting = self._waiting.get(sequence)
        if waiting is None or waiting[0] == data or self.size + len(data) - len(waiting[0]) > self._limit:
            return False
        self.size += len(data) - len(waiting[0])
        self._waiting[sequence] = data, received_at
        return True

    def give_up(self, first: int, last: int) -> None:
        """Stop waiting for those of ``first`` to ``last`` that are missing."""
        for start, end in list(self.missing.intersection(first, last)):
            self.missing.discard(start, end)
            self._lost.add(start, end)

    def take(self) -> list[Run | Lost]:
        """Return whatever can be handed over now, in order."""
        ready: list[Run | Lost] = []
        while self.next <= self.highest:
            first = self.next
            # Whatever is neither missing nor given up is here.
            ends = [here.first - 1 for here in (self.missing, self._lost) if here]
            last = min(self.highest, *ends) if ends else self.highest
            if last >= first:
                waiting = list(map(self._waiting.pop, range(first, last + 1)))
                messages = [data for data, _ in waiting]
                self.size -= sum(map(len, messages)) + len(messages) * MESSAGE_OVERHEAD
                self.next = last + 1
                self._full = False
                ready.append(Run(first, messages, [received_at for _, received_at in waiting]))
            lost = self._lost.range_of(self.next) if self._lost else None
            if lost is None:
                return ready
            self._lost.discard(*lost)
            self.next = lost[1] + 1
            ready.append(Lost(*lost))
        return ready

    def _miss(self, first: int, last: int) -> None:
        self.missing.add(first, last)
        self.fresh_gaps.append((first, last))

    def _make_room(self, sequence: int, cost: int) -> bool:
        """Let go of higher numbers, which are needed later, until ``cost`` bytes are free."""
        while self.size + cost > self._limit:
            self._full = True
            highest = self._highest_waiting()
            if highest is None or highest <= sequence:
                return False
            self.size -= len(self._waiting.pop(highest)[0]) + MESSAGE_OVERHEAD
            self._miss(highest, highest)
        return True

    def _highest_waiting(self) -> int | None:
        number = self.highest
        while number >= self.next:
            gap = self.missing.range_of(number) or self._lost.range_of(number)
            if gap is None:
                return number
            number = gap[0] - 1
        return None
