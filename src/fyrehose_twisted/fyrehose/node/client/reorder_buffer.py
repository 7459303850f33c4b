"""Putting a stream in order: what can be handed over, what waits for it, what is missing."""

from __future__ import annotations

from bisect import bisect_right
from enum import Enum
from typing import NamedTuple

from fyrehose_twisted.fyrehose.config import DEFAULT_BUFFER_BYTES
from fyrehose_twisted.fyrehose.events import MessagesLost
from fyrehose_twisted.ranges import RangeSet

MESSAGE_OVERHEAD = 128
"""Bytes that a waiting message costs beside its data, so that the limit means memory."""
MAX_GAPS = 65_536


class ArrivalOutcome(Enum):
    """What became of a message."""

    NEW = "kept"
    DUPLICATE = "already here, handed over or given up"
    OVERFLOW = "no room; it counts as missing"


class MessageRun(NamedTuple):
    """Consecutive messages."""

    first: int
    messages: list[bytes]
    """DATA of each."""
    times: list[int]
    """When each was received, in UTC microseconds since 1970."""

    @property
    def end(self) -> int:
        """The number after the last."""
        return self.first + len(self.messages)


class ReorderBuffer:
    """Messages from ``start`` on.

    :ivar next: the number to be handed over next.
    :ivar highest: the highest number that is known to exist.
    :ivar missing: the numbers between the two that are neither here nor given up.
    :ivar new_gaps: what came to be missing since this was last cleared, in order.
    """

    def __init__(self, start: int, *, limit: int = DEFAULT_BUFFER_BYTES, max_gaps: int = MAX_GAPS) -> None:
        self.next = start
        self.highest = start - 1
        self.missing = RangeSet()
        self.new_gaps: list[tuple[int, int]] = []
        self.size = 0
        self._limit = limit
        self._max_gaps = max_gaps
        self._lost = RangeSet()
        self._runs: list[MessageRun] = []  # In order. One message has no object of its own: there may be very many.
        self._overflowed = False

    def has_room(self, size: int) -> bool:
        """Say whether a message of ``size`` bytes finds room beside those that wait."""
        return self.size + size + MESSAGE_OVERHEAD <= self._limit

    def overflow_from(self, *, paused: bool) -> int | None:
        """Return the number from which on messages found no room, since some were handed over last; or ``None``.

        Those below it push out higher ones, which is no use while the application takes none (``paused``).
        """
        if not (self._overflowed and self._runs):
            return None
        return self.next if paused else self._runs[-1].end

    def add(self, sequence: int, data: bytes, received_at: int) -> ArrivalOutcome:
        """Take a message in."""
        cost = len(data) + MESSAGE_OVERHEAD
        if sequence > self.highest:
            if sequence > self.highest + 1:
                if len(self.missing) >= self._max_gaps:
                    return ArrivalOutcome.OVERFLOW
                self._add_gap(self.highest + 1, sequence - 1)
            self.highest = sequence
            if self.size + cost > self._limit and sequence != self.next:
                self._overflowed = True
                self._add_gap(sequence, sequence)
                return ArrivalOutcome.OVERFLOW
        elif sequence in self.missing:
            if sequence != self.next and not self._make_room(sequence, cost):
                return ArrivalOutcome.OVERFLOW
            self.missing.discard(sequence)
        else:
            return ArrivalOutcome.DUPLICATE
        self._insert(sequence, [data], received_at)
        self.size += cost
        return ArrivalOutcome.NEW

    def deliver_directly(self, first: int, data: list[bytes], received_at: int) -> MessageRun | None:
        """Take in messages from ``first`` on and return what can be handed over: just them, if nothing else is awaited.

        :return: ``None`` if there is; then nothing has changed.
        """
        if not first == self.next == self.highest + 1:
            return None
        self.highest += len(data)
        self.next += len(data)
        self._overflowed = False
        return MessageRun(first, data, [received_at] * len(data))

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
            self._add_gap(self.highest + 1, first - 1)
        self.highest = first + len(data) - 1
        self._insert(first, data, received_at)
        self.size += size
        return True

    def extend_to(self, sequence: int) -> None:
        """Miss everything up to ``sequence`` that is not here, unless there are too many gaps already."""
        if sequence > self.highest and len(self.missing) < self._max_gaps:
            self._add_gap(self.highest + 1, sequence)
            self.highest = sequence

    def replace(self, sequence: int, data: bytes, received_at: int) -> bool:
        """Let a message take the place of another that waits under its number; say whether it did."""
        position = self._position(sequence)
        run = self._runs[position - 1] if position else None
        if run is None or run.end <= sequence:
            return False
        row = sequence - run.first
        more = len(data) - len(run.messages[row])
        if run.messages[row] == data or self.size + more > self._limit:
            return False
        self.size += more
        run.messages[row], run.times[row] = data, received_at
        return True

    def give_up(self, first: int, last: int) -> None:
        """Stop waiting for those of ``first`` to ``last`` that are missing."""
        for start, end in list(self.missing.intersection(first, last)):
            self.missing.discard(start, end)
            self._lost.add(start, end)

    def take_ready(self) -> list[MessageRun | MessagesLost]:
        """Return whatever can be handed over now, in order."""
        ready: list[MessageRun | MessagesLost] = []
        runs = 0
        while self.next <= self.highest:
            run = None
            while runs < len(self._runs) and self._runs[runs].first == self.next:
                more = self._runs[runs]
                runs += 1
                self.next = more.end
                if run is None:
                    run = more
                else:
                    run.messages.extend(more.messages)
                    run.times.extend(more.times)
            if run is not None:
                self.size -= sum(map(len, run.messages)) + len(run.messages) * MESSAGE_OVERHEAD
                self._overflowed = False
                ready.append(run)
            lost = self._lost.range_of(self.next) if self._lost else None
            if lost is None:
                break
            self._lost.discard(*lost)
            self.next = lost[1] + 1
            ready.append(MessagesLost(*lost))
        del self._runs[:runs]
        return ready

    def _insert(self, first: int, data: list[bytes], received_at: int) -> None:
        position = self._position(first)
        before = self._runs[position - 1] if position else None
        times = [received_at] * len(data)
        if before is not None and before.end == first:
            before.messages.extend(data)
            before.times.extend(times)
        else:
            self._runs.insert(position, MessageRun(first, list(data), times))

    def _position(self, sequence: int) -> int:
        """Return how many of the runs that wait begin at ``sequence`` or before it."""
        waiting = self._runs
        if waiting and waiting[-1].first <= sequence:
            return len(waiting)
        return bisect_right(waiting, sequence, key=lambda run: run.first)

    def _add_gap(self, first: int, last: int) -> None:
        self.missing.add(first, last)
        self.new_gaps.append((first, last))

    def _make_room(self, sequence: int, cost: int) -> bool:
        """Let go of higher numbers, which are needed later, until ``cost`` bytes are free."""
        while self.size + cost > self._limit:
            self._overflowed = True
            run = self._runs[-1] if self._runs else None
            if run is None or run.end <= sequence:
                return False
            self.size -= len(run.messages.pop()) + MESSAGE_OVERHEAD
            run.times.pop()
            if not run.messages:
                self._runs.pop()
            self._add_gap(run.end, run.end)
        return True
