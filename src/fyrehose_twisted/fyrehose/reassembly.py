"""Putting a stream in order: what can be handed over, what waits for it, what is missing."""

from __future__ import annotations

from enum import Enum
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


class Waiting(NamedTuple):
    """A message that is here."""

    data: bytes
    received_at: int


class Run(NamedTuple):
    """Consecutive messages, ready to be handed over."""

    first: int
    messages: list[Waiting]


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
        self._waiting[sequence] = Waiting(data, received_at)
        self.size += cost
        return Arrival.NEW

    def exists(self, sequence: int) -> None:
        """Miss everything up to ``sequence`` that is not here."""
        if sequence > self.highest:
            self._miss(self.highest + 1, sequence)
            self.highest = sequence

    def correct(self, sequence: int, data: bytes, received_at: int) -> bool:
        """Let a message take the place of another that waits under its number; say whether it did."""
        waiting = self._waiting.get(sequence)
        if waiting is None or waiting.data == data or self.size + len(data) - len(waiting.data) > self._limit:
            return False
        self.size += len(data) - len(waiting.data)
        self._waiting[sequence] = Waiting(data, received_at)
        return True

    def give_up(self, first: int, last: int) -> None:
        """Stop waiting for those of ``first`` to ``last`` that are missing."""
        for start, end in list(self.missing.intersection(first, last)):
            self.missing.discard(start, end)
            self._lost.add(start, end)

    def take(self) -> list[Run | Lost]:
        """Return whatever can be handed over now, in order."""
        ready: list[Run | Lost] = []
        waiting = self._waiting
        while True:
            first = self.next
            messages: list[Waiting] = []
            message = waiting.pop(first, None)
            while message is not None:
                messages.append(message)
                self.size -= len(message.data) + MESSAGE_OVERHEAD
                message = waiting.pop(first + len(messages), None)
            self.next = first + len(messages)
            if messages:
                self._full = False
                ready.append(Run(first, messages))
            lost = self._lost.range_of(self.next) if self._lost else None
            if lost is None:
                return ready
            self._lost.discard(*lost)
            self.next = lost[1] + 1
            ready.append(Lost(*lost))

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
            self.size -= len(self._waiting.pop(highest).data) + MESSAGE_OVERHEAD
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
