"""Journal in memory, with the interface of :class:`~fyrehose_twisted.journal.store.Journal`."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from zope.interface import implementer

from fyrehose_twisted.interfaces import IJournal
from fyrehose_twisted.journal.arrow.tabular import Tabular
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.commit_group import AppendCounters, CommitGroup
from fyrehose_twisted.journal.coverage import Bounds, Coverage
from fyrehose_twisted.journal.errors import Damage, JournalError
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.record import Record

RECORD_OVERHEAD = 200
"""Bytes counted for each record in addition to its payload, so that a size limit approximates memory."""

BLOCK_RECORDS = 4_096


class _MemoryRecords(Coverage):
    """Records by epoch and position."""

    def __init__(self, stream: str, wrap: int) -> None:
        super().__init__(stream, wrap)
        self.records: dict[int, dict[int, tuple[int, bytes]]] = {}

    def get(self, epoch: int, position: int) -> Record | None:
        """See :meth:`~fyrehose_twisted.journal.coverage.Coverage.get`."""
        found = self.records.get(epoch, {}).get(position)
        if found is None:
            return None
        return Record(self.stream, epoch, position % self.wrap if self.wrap else position, *found)


@implementer(IJournal)
class MemoryJournal(Tabular):
    """Journal in memory; see :class:`~fyrehose_twisted.interfaces.IJournal`. Its contents end with the process.

    :param wrap: modulus of the sequence numbers; 0 if they do not wrap.
    :param clock: returns UTC seconds since 1970.
    :ivar tag: random tag of the journal.
    :ivar damages: always empty.
    :ivar counters: outcomes of the appended records.
    """

    def __init__(
        self,
        stream: str,
        *,
        wrap: int = 0,
        retention: Retention | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.stream = stream
        self.wrap = wrap
        self._records = _MemoryRecords(stream, wrap)
        self._group = CommitGroup(self._records)
        self._retention = Retention() if retention is None else retention
        self._clock = clock
        self._closed = False
        self.tag = secrets.randbits(32)
        self.damages: list[Damage] = []
        self.counters: AppendCounters = self._group.counters

    def begin(self, epoch: int, sequence: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.begin`."""
        self._check()
        self._group.begin(epoch, sequence)

    def append(self, records: Sequence[Record], *, authoritative: bool = False) -> int:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.append`. Records never go missing here."""
        self._check()
        return self._group.add(records)

    def lose(self, epoch: int, first: int, last: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.lose`."""
        self._check()
        self._group.lose(epoch, first, last)

    def commit(self, sync: bool = True) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.commit`."""
        self._check()
        for epoch, positions, times, payloads in self._group.columns():
            records = zip(times, payloads, strict=True)
            self._records.records.setdefault(epoch, {}).update(zip(positions, records, strict=True))
        self._group.mark_written()
        if sync:
            self._records.advance_watermarks()

    def trim(self) -> int:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.trim`."""
        self._check()
        self.commit()
        now = self._clock() * 1_000_000
        seconds, limit = self._retention.seconds, self._retention.size
        size, freed = self._size(), 0
        for epoch in self.epochs():
            records = self._records.records.get(epoch, {})
            for position in sorted(records):
                received_at, payload = records[position]
                old = seconds is not None and received_at < now - seconds * 1_000_000
                if not (old or (limit is not None and size - freed > limit)):
                    return freed
                del records[position]
                freed += len(payload) + RECORD_OVERHEAD
                self._begin_at(epoch, position + 1)
        return freed

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.close`."""
        if not self._closed:
            self.commit()
            self._closed = True

    def epochs(self) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.epochs`."""
        return self._records.epochs()

    def bounds(self, epoch: int) -> Bounds | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.bounds`."""
        return self._records.bounds(epoch)

    def read(
        self, epoch: int, first: int, last: int, on_damage: Callable[..., object] | None = None
    ) -> Iterator[Block]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.read`."""
        self._records.check_start(epoch, first)
        return self._read(epoch, first, last)

    def get(self, epoch: int, position: int) -> Record | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.get`."""
        return self._records.get(epoch, position)

    def held(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.held`."""
        return self._records.held_ranges(epoch, first, last)

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.losses`."""
        return self._records.losses(epoch, first, last)

    def _read(self, epoch: int, first: int, last: int) -> Iterator[Block]:
        held, records = self._records.held.get(epoch), self._records.records.get(epoch, {})
        ranges = [] if held is None else list(held.intersection(first, last))
        for start, end in ranges:
            for low in range(start, end + 1, BLOCK_RECORDS):
                positions = range(low, min(low + BLOCK_RECORDS, end + 1))
                self._records.check_start(epoch, low)
                times, payloads = zip(*(records[position] for position in positions), strict=True)
                offsets = np.cumsum([0, *map(len, payloads)], dtype=np.uint32)
                columns = np.array(positions, np.uint64), np.array(times, np.int64), offsets
                yield Block(self.stream, epoch, *columns, memoryview(b"".join(payloads)), self._records.wrap)

    def _begin_at(self, epoch: int, position: int) -> None:
        memory = self._records
        for old in [old for old in memory.starts if old < epoch]:
            bounds = memory.bounds(old)
            assert bounds is not None
            memory.expired_epochs[old] = bounds.last + 1
            memory.drop_epoch(old)
            memory.records.pop(old, None)
        memory.starts[epoch] = position
        for ranges in (memory.held.get(epoch), memory.lost.get(epoch)):
            if ranges:
                ranges.discard(0, position - 1)
        memory.watermarks[epoch] = memory.next_missing(epoch, max(position, memory.watermarks[epoch]))

    def _size(self) -> int:
        return sum(
            len(payload) + RECORD_OVERHEAD
            for records in self._records.records.values()
            for _, payload in records.values()
        )

    def _check(self) -> None:
        if self._closed:
            raise JournalError(f"the journal of {self.stream} in memory is closed")
