"""Group commit: the records that the next commit makes durable together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt

from fyrehose_twisted.errors import LocalError
from fyrehose_twisted.journal.block import integer_limits, integer_ranges
from fyrehose_twisted.journal.coverage import Coverage
from fyrehose_twisted.journal.errors import JournalDamaged
from fyrehose_twisted.journal.format.frames import MAX_PAYLOAD
from fyrehose_twisted.journal.record_columns import RecordBuffer, RecordColumns
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

GROUP_BYTES = 32 * 2**20
"""Payload bytes after which a group is written without waiting for a commit."""

MAX_SEQUENCE = 2**63 - 1
"""Highest sequence number and latest time that a journal can store."""


class RejectedRecord(LocalError, ValueError):
    """A record cannot be stored: it belongs to another stream, or one of its fields is out of range."""


@dataclass(slots=True)
class AppendCounters:
    """Outcomes of the records appended to a journal.

    :ivar taken: stored.
    :ivar duplicates: already held with the same payload.
    :ivar replaced: stored in place of a different record with the same number, above the watermark.
    :ivar conflicts: refused, as a different payload is held under the number below the watermark.
    :ivar late: refused, as the number is declared lost or precedes the start of the journal.
    :ivar spent: refused, as the number is below the watermark and its record has gone missing.
    """

    taken: int = 0
    duplicates: int = 0
    replaced: int = 0
    conflicts: int = 0
    late: int = 0
    spent: int = 0


class CommitGroup:
    """Records, losses and epoch starts that wait to be written.

    :param coverage: coverage of what has been written.
    """

    def __init__(self, coverage: Coverage) -> None:
        self.counters = AppendCounters()
        self.starts: dict[int, int] = {}
        self.lost: dict[int, RangeSet] = {}
        self._coverage = coverage
        self._records: dict[int, RecordBuffer] = {}
        self._highest: dict[int, int] = {}
        self._replacing: dict[int, set[int]] = {}
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._records or self.lost or self.starts)

    @property
    def is_full(self) -> bool:
        """Whether the group should be written now, before the next commit."""
        return self._size > GROUP_BYTES

    def begin(self, epoch: int, sequence: int) -> None:
        """Start an epoch at ``sequence``, unless it has started."""
        self._check_numbers((epoch,), (sequence,))
        if epoch not in self._coverage.starts:
            self.start_at(epoch, self._coverage.expired_epochs.get(epoch, sequence))

    def start_at(self, epoch: int, position: int) -> None:
        """Set the first position of an epoch."""
        self._coverage.starts[epoch] = self.starts[epoch] = position
        self._coverage.watermarks.setdefault(epoch, position)

    def add(self, records: Sequence[Record], *, authoritative: bool = False) -> int:
        """Add records; return how many of them will be stored.

        :param authoritative: whether the records are known to be the original ones, so that they may restore numbers
            that went missing below the watermark.
        """
        if not records:
            return 0
        if isinstance(records, RecordColumns):
            columns = records.sequences, records.times, records.payloads
            self._check({records.stream}, {records.epoch}, *columns)
            return self._add(records.epoch, *columns, authoritative)
        streams, epochs, sequences, times, payloads = zip(*records, strict=True)
        distinct = set(epochs)
        self._check(streams, distinct, sequences, times, payloads)
        if len(distinct) == 1:
            return self._add(epochs[0], sequences, times, payloads, authoritative)
        taken = 0
        for epoch in sorted(distinct):
            of_epoch = [record[2:] for record in records if record.epoch == epoch]
            some_sequences, some_times, some_payloads = zip(*of_epoch, strict=True)
            taken += self._add(epoch, some_sequences, some_times, some_payloads, authoritative)
        return taken

    def lose(self, epoch: int, first: int, last: int) -> None:
        """Declare lost the positions within ``first`` to ``last`` that are neither held nor waiting in the group."""
        self._check_numbers((epoch,), (first, last))
        length = self._unwrap((last,), first)[0] - first
        if length < 0:
            raise RejectedRecord(f"a lost range from {first} to {last} is empty")
        self.begin(epoch, first)
        low = self._positions(epoch, (first,))[0]
        high = low + length
        low = max(low, self._coverage.starts[epoch])
        held, waiting = self._coverage.held.get(epoch) or RangeSet(), self._by_position(epoch)
        requested = range(low, high + 1)
        few, many = (requested, waiting) if high - low < len(waiting) else (waiting, requested)
        here = RangeSet(integer_ranges(sorted(position for position in few if position in many)))
        known = self._coverage.lost.get(epoch) or RangeSet()
        for start, end in list(held.gaps(low, high)):
            for begin, stop in list(here.gaps(start, end)):
                for lost in known.gaps(begin, stop):
                    self.lost.setdefault(epoch, RangeSet()).add(*lost)

    def drop_before(self, epoch: int, position: int) -> None:
        """Drop waiting records before ``position``, the new start of the epoch."""
        waiting = self._by_position(epoch)
        passed = [number for number in waiting if number < position]
        for number in passed:
            del waiting[number]
        self.counters.taken -= len(passed)
        self.counters.late += len(passed)
        self._replacing.get(epoch, set()).difference_update(passed)
        if passed and not waiting:
            del self._records[epoch]

    def drop_settled(self) -> None:
        """Drop replacements of records that the watermark has passed in the meantime."""
        for epoch, positions in list(self._replacing.items()):
            passed = {position for position in positions if position < self._coverage.watermarks[epoch]}
            positions -= passed
            for position in passed:
                del self._records[epoch].by_position[position]
            self.counters.replaced -= len(passed)
            self.counters.taken -= len(passed)
            self.counters.conflicts += len(passed)
            if not self._records[epoch]:
                del self._records[epoch]
                del self._replacing[epoch]

    def columns(self) -> Iterator[tuple[int, Sequence[int], Sequence[int], Sequence[bytes]]]:
        """Yield epoch, ascending positions, times and payloads of the waiting records."""
        for epoch, records in sorted(self._records.items()):
            yield epoch, *records.sorted_columns()

    def mark_written(self) -> None:
        """Add the group to the coverage and clear it, once it has been written."""
        for epoch, records in self._records.items():
            held = self._coverage.held.setdefault(epoch, RangeSet())
            for first, last in integer_ranges(records.sorted_columns()[0]):
                held.add(first, last)
        for epoch, ranges in self.lost.items():
            known = self._coverage.lost.setdefault(epoch, RangeSet())
            for first, last in ranges:
                known.add(first, last)
        self._records, self.lost, self.starts, self._size = {}, {}, {}, 0
        self._highest.clear()
        self._replacing.clear()

    def _check(
        self,
        streams: Collection[str],
        epochs: Collection[int],
        sequences: Sequence[int],
        times: Sequence[int],
        payloads: Sequence[bytes],
    ) -> None:
        stream = self._coverage.stream
        foreign = set(streams) - {stream}
        if foreign:
            raise RejectedRecord(f"a record of {min(foreign)} cannot be stored in the journal of {stream}")
        self._check_numbers((*epochs, *integer_limits(times)), sequences)
        largest = max(map(len, payloads))
        if largest > MAX_PAYLOAD:
            raise RejectedRecord(f"a payload of {largest:,} bytes is over the limit of {MAX_PAYLOAD:,}")

    def _check_numbers(self, epochs_and_times: Sequence[int], sequences: Sequence[int]) -> None:
        limit = self._coverage.wrap or MAX_SEQUENCE + 1
        lowest, highest = integer_limits(sequences)
        if lowest < 0 or highest >= limit:
            raise RejectedRecord(
                f"sequence numbers {lowest} to {highest} are out of range; the range is 0 to {limit - 1}"
            )
        if min(epochs_and_times) < 0 or max(epochs_and_times) > MAX_SEQUENCE:
            raise RejectedRecord("an epoch or a time is below 0 or above 2**63 - 1")

    def _add(
        self, epoch: int, sequences: Sequence[int], times: Sequence[int], payloads: Sequence[bytes], authoritative: bool
    ) -> int:
        contents = self._coverage
        if epoch not in contents.starts:
            first = min(self._unwrap(sequences, sequences[0]))
            self.begin(epoch, first % contents.wrap if contents.wrap else first)
        positions = self._positions(epoch, sequences)
        waiting = self._records.setdefault(epoch, RecordBuffer())
        taken = len(positions)
        highest = positions[-1]
        if positions[0] > self._last(epoch) and _is_ascending(positions):
            if highest - positions[0] == taken - 1:
                positions = range(positions[0], highest + 1)
            waiting.extend(positions, times, payloads)
            self._size += sum(map(len, payloads))
        else:
            highest = max(positions)
            try:
                rows = zip(positions, times, payloads, strict=True)
                taken = sum(self._add_record(epoch, *row, authoritative) for row in rows)
            finally:
                if not waiting:
                    del self._records[epoch]
        self.counters.taken += taken
        self._highest[epoch] = max(self._highest.get(epoch, 0), highest)
        return taken

    def _add_record(self, epoch: int, position: int, received_at: int, payload: bytes, authoritative: bool) -> bool:
        contents, counters, waiting = self._coverage, self.counters, self._records[epoch].by_position
        lost = contents.lost.get(epoch), self.lost.get(epoch)
        if position < contents.starts[epoch] or any(ranges and position in ranges for ranges in lost):
            counters.late += 1
            return False
        settled = position < max(contents.watermarks[epoch], contents.published_watermarks.get(epoch, 0))
        before = waiting.get(position, (0, None))[1]
        if before is None:
            before = self._held(epoch, position)
        if before is not None:
            if before == payload:
                counters.duplicates += 1
                return False
            if settled:
                counters.conflicts += 1
                return False
            counters.replaced += 1
            self._replacing.setdefault(epoch, set()).add(position)
        elif settled and not authoritative:
            counters.spent += 1
            return False
        waiting[position] = received_at, payload
        self._size += len(payload)
        return True

    def _by_position(self, epoch: int) -> dict[int, tuple[int, bytes]]:
        waiting = self._records.get(epoch)
        return {} if waiting is None else waiting.by_position

    def _held(self, epoch: int, position: int) -> bytes | None:
        try:
            held = self._coverage.get(epoch, position)
        except JournalDamaged:
            return None  # A damaged record may be appended again.
        return None if held is None else held.payload

    def _last(self, epoch: int) -> int:
        contents = self._coverage
        here = [
            ranges.last
            for ranges in (contents.held.get(epoch), contents.lost.get(epoch), self.lost.get(epoch))
            if ranges
        ]
        floor = contents.published_watermarks.get(epoch, 0)
        return max([contents.starts[epoch] - 1, floor - 1, *here, self._highest.get(epoch, 0)])

    def _positions(self, epoch: int, sequences: Sequence[int]) -> Sequence[int]:
        return self._unwrap(sequences, self._last(epoch) + 1) if self._coverage.wrap else sequences

    def _unwrap(self, sequences: Sequence[int], near: int) -> Sequence[int]:
        """Return the positions of ``sequences``, each the candidate closest to ``near``."""
        wrap = self._coverage.wrap
        if not wrap:
            return sequences
        half = wrap // 2
        return [near + (sequence - near + half) % wrap - half for sequence in sequences]


def _is_ascending(positions: Sequence[int]) -> bool:
    return isinstance(positions, range) or all(map(lt, positions, islice(positions, 1, None)))
