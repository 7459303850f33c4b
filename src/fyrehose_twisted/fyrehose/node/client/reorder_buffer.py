"""Reorder buffer of a subscriber: buffered messages, gaps, and messages ready for delivery."""

from __future__ import annotations

from bisect import bisect_left
from enum import Enum
from typing import NamedTuple

from fyrehose_twisted.fyrehose.config import DEFAULT_BUFFER_BYTES
from fyrehose_twisted.fyrehose.events import MessagesLost, NumbersSkipped
from fyrehose_twisted.ranges import RangeSet

MESSAGE_OVERHEAD = 128
"""Bytes of memory per buffered message in addition to its data."""
MAX_GAPS = 65_536


class ArrivalOutcome(Enum):
    """Outcome of adding a message."""

    NEW = "added"
    DUPLICATE = "already buffered, delivered or lost"
    OVERFLOW = "buffer full; the message counts as missing"


class MessageRun(NamedTuple):
    """Messages with consecutive numbers."""

    first: int
    messages: list[bytes]
    """DATA of each message."""
    times: list[int]
    """Times of receipt, in UTC microseconds since 1970."""

    @property
    def end(self) -> int:
        """Number after the last one."""
        return self.first + len(self.messages)


Deliverable = MessageRun | MessagesLost | NumbersSkipped


class ReorderBuffer:
    """Reorder buffer of a stream that starts with number ``start``.

    :ivar next: number to deliver next.
    :ivar highest: highest number that is known to exist.
    :ivar missing: numbers up to :attr:`highest` that were not received and are not lost yet.
    :ivar new_gaps: gaps found since this list was last cleared, in order.
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
        self._skipped = RangeSet()
        self._runs: list[MessageRun] = []  # In order. Runs save memory, because there may be very many messages.
        self._overflowed = False

    def has_room(self, size: int) -> bool:
        """Return whether a message of ``size`` bytes fits the buffer."""
        return self.size + size + MESSAGE_OVERHEAD <= self._limit

    def overflow_from(self, *, paused: bool) -> int | None:
        """Return the number from which on messages did not fit since the last delivery, or ``None``.

        Messages below it displace higher ones, which is useless while delivery is ``paused``.
        """
        if not (self._overflowed and self._runs):
            return None
        return self.next if paused else self._runs[-1].end

    def add(self, sequence: int, data: bytes, received_at: int) -> ArrivalOutcome:
        """Add a message."""
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
        """Pass consecutive messages through if they are the next to deliver and the buffer is empty.

        :return: the messages to deliver; ``None`` if they have to be added, in which case nothing has changed.
        """
        if not first == self.next == self.highest + 1:
            return None
        self.highest += len(data)
        self.next += len(data)
        self._overflowed = False
        return MessageRun(first, data, [received_at] * len(data))

    def add_run(self, first: int, data: list[bytes], received_at: int) -> bool:
        """Add consecutive messages if all are missing, or all above :attr:`highest`, and all fit the buffer.

        :return: whether they were added. If not, nothing has changed; use :meth:`add` for each.
        """
        size, last = sum(map(len, data)) + len(data) * MESSAGE_OVERHEAD, first + len(data) - 1
        if self.size + size > self._limit:
            return False
        if first <= self.highest:
            gap = self.missing.range_of(first)
            if gap is None or gap[1] < last:
                return False
            self.missing.discard(first, last)
        else:
            if first > self.highest + 1:
                if len(self.missing) >= self._max_gaps:
                    return False
                self._add_gap(self.highest + 1, first - 1)
            self.highest = last
        self._insert(first, data, received_at)
        self.size += size
        return True

    def uniform_count(self, first: int, count: int) -> int:
        """Return how many of ``count`` numbers from ``first`` on are all missing, all known, or all unknown."""
        if first > self.highest:
            return count
        start, last = next(self.missing.intersection(first, first + count - 1), (self.highest + 1, self.highest))
        return min(count, (start if start > first else last + 1) - first)

    def extend_to(self, sequence: int) -> None:
        """Mark all numbers above :attr:`highest` up to ``sequence`` as missing, unless there are too many gaps."""
        if sequence > self.highest and len(self.missing) < self._max_gaps:
            self._add_gap(self.highest + 1, sequence)
            self.highest = sequence

    def replace(self, sequence: int, data: bytes, received_at: int) -> bool:
        """Replace the buffered message of the same number. Return whether the buffer changed."""
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
        """Mark the missing numbers of ``first`` to ``last`` as lost."""
        for start, end in list(self.missing.intersection(first, last)):
            self.missing.discard(start, end)
            self._lost.add(start, end)

    def skip(self, first: int, last: int) -> None:
        """Mark ``first`` to ``last`` as not part of the stream, except for those that were received or are lost."""
        known = self.highest
        if last > known and first <= last:
            if first > known + 1:
                self._add_gap(known + 1, first - 1)
            self._skipped.add(max(first, known + 1), last)
            self.highest = last
        for start, end in list(self.missing.intersection(first, min(last, known))):
            self.missing.discard(start, end)
            self._skipped.add(start, end)

    def take_ready(self) -> list[Deliverable]:
        """Remove and return what to deliver now, in order."""
        ready: list[Deliverable] = []
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
            absent = self._take_absent()
            if absent is None:
                break
            self.next = absent.last + 1
            ready.append(absent)
        del self._runs[:runs]
        return ready

    def _take_absent(self) -> MessagesLost | NumbersSkipped | None:
        """Remove and return the lost or skipped numbers that are next; ``None`` if the next message may still come."""
        lost = self._lost.range_of(self.next) if self._lost else None
        if lost is not None:
            self._lost.discard(*lost)
            return MessagesLost(*lost)
        skipped = self._skipped.range_of(self.next) if self._skipped else None
        if skipped is not None:
            self._skipped.discard(*skipped)
            return NumbersSkipped(*skipped)
        return None

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
        """Return the number of buffered runs that begin at or before ``sequence``."""
        runs = self._runs
        if runs and runs[-1].first <= sequence:
            return len(runs)
        return bisect_left(runs, (sequence + 1,))  # Faster than with a key.

    def _add_gap(self, first: int, last: int) -> None:
        self.missing.add(first, last)
        self.new_gaps.append((first, last))

    def _make_room(self, sequence: int, cost: int) -> bool:
        """Drop messages with higher numbers, which are delivered later, until ``cost`` bytes are free."""
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
