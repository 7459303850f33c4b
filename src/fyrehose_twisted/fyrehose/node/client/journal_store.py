"""Message store in a durable journal, with the messages that are not written yet."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from zope.interface import classImplements

from fyrehose_twisted.interfaces import IJournal, IMessageStore
from fyrehose_twisted.journal.block import integer_ranges
from fyrehose_twisted.journal.errors import Damage, TierError
from fyrehose_twisted.journal.record_columns import RecordBuffer, RecordColumns
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

EPOCH = 0
"""The only epoch: numbers of a backbone never restart."""

READ_AHEAD = 1_024
"""Numbers that are read at once: the answer to one FORWARD."""

READ_RECORDS, READ_BYTES = 8_192, 16 * 2**20
"""Limits of the read cache in records and bytes."""


class PendingWrites(NamedTuple):
    """Changes to persist before other outputs are performed."""

    first_sequence: int | None
    """First number of a journal that has not begun, else ``None``."""
    records: Sequence[Record]
    lost_ranges: list[tuple[int, int]]

    def save(self, journal: IJournal, *, sync: bool = True) -> None:
        """Commit the changes to ``journal``. With ``sync=False``, a later commit makes them durable.

        :raises JournalError: if the journal cannot be written.
        """
        if self.first_sequence is not None:
            journal.begin(EPOCH, self.first_sequence)
        journal.append(self.records, authoritative=True)
        for first, last in self.lost_ranges:
            journal.lose(EPOCH, first, last)
        journal.commit(sync)


class JournalStore:
    """Message store that reads from a journal and collects the changes to write.

    :ivar reached: number up to which the store is complete, counted from the number passed to :meth:`track_after`;
        ``None`` before that.
    :ivar damage_count: number of damaged records found. They are requested again like missing messages.
    """

    def __init__(self, journal: IJournal) -> None:
        self.journal = journal
        self.damage_count = 0
        self.reached: int | None = None
        self._pending = RecordBuffer()
        self._lost: list[tuple[int, int]] = []
        self._first_sequence: int | None = None
        self._damaged = RangeSet()
        self._arrived = RangeSet()
        self._read_cache: dict[int, tuple[int, bytes]] = {}
        self._read_cache_bytes = 0
        bounds = journal.bounds(EPOCH)
        self._highest = -1 if bounds is None else bounds.last  # A quick answer for new numbers.

    def track_after(self, last: int) -> None:
        """Start to track completeness above ``last``; 0 does not start it yet."""
        if last:
            self.reached = last
            self._arrived = RangeSet()

    def begin(self, sequence: int) -> None:
        """Set the first number of the journal if it has not begun."""
        if self.journal.bounds(EPOCH) is None:
            self._first_sequence = sequence

    def lose(self, first: int, last: int) -> None:
        """Record that ``first`` to ``last`` are lost."""
        self._lost.append((first, last))
        self._advance_reached(first, last)

    def take_pending(self) -> PendingWrites | None:
        """Return the changes to persist, or ``None``. They count as saved from now on."""
        if not (self._pending or self._lost or self._first_sequence is not None):
            return None
        if self._read_cache:
            for sequence in self._read_cache.keys() & self._pending.positions:
                del self._read_cache[sequence]  # The pending record replaces it.
        records = RecordColumns(self.journal.stream, EPOCH, *self._pending.columns())
        writes = PendingWrites(self._first_sequence, records, self._lost)
        self._pending, self._lost, self._first_sequence = RecordBuffer(), [], None
        return writes

    def put(self, first: int, messages: Sequence[bytes], received_at: int = 0) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.put`. Records below the watermark do not change."""
        numbers = range(first, first + len(messages))
        self._pending.put(numbers, array("q", (received_at,)) * len(messages), messages)
        self._highest = max(self._highest, numbers[-1])
        self._advance_reached(first, numbers[-1])
        if self._damaged:
            self._damaged.discard(first, numbers[-1])

    def get(self, sequence: int) -> bytes | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.get`."""
        kept = self._find(sequence)
        return None if kept is None else kept[1]

    def received_at(self, sequence: int) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.received_at`."""
        kept = self._find(sequence)
        return None if kept is None else kept[0]

    def lowest(self, first: int, last: int, limit: int) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.lowest`."""
        saved = (
            number
            for start, end in self.journal.held(EPOCH, first, last)
            for whole in self._damaged.gaps(start, end)
            for number in range(whole[0], whole[1] + 1)
        )
        pending = [number for number in self._pending.positions if first <= number <= last]
        numbers = list(islice(saved, limit))
        return sorted({*numbers, *pending})[:limit] if pending else numbers

    def _advance_reached(self, first: int, last: int) -> None:
        reached, arrived = self.reached, self._arrived
        if reached is None or last <= reached:
            return
        if first > reached + 1:
            arrived.add(first, last)
            return
        reached = last
        while arrived and arrived.first <= reached + 1:
            start, end = next(iter(arrived))
            arrived.discard(start, end)
            reached = max(reached, end)
        self.reached = reached

    def _find(self, sequence: int) -> tuple[int, bytes] | None:
        """Return the time of receipt and the data of a message, or ``None``."""
        kept = self._pending.find(sequence) or self._read_cache.get(sequence)
        if kept is None and self._is_held(sequence):
            self._read_ahead(sequence)
            kept = self._read_cache.get(sequence)
        return kept

    def _is_held(self, sequence: int) -> bool:
        if sequence > self._highest:
            return False
        return sequence not in self._damaged and any(self.journal.held(EPOCH, sequence, sequence))

    def _read_ahead(self, first: int) -> None:
        """Read records from ``first`` on into the cache, because following reads are mostly for the next messages."""
        if len(self._read_cache) > READ_RECORDS or self._read_cache_bytes > READ_BYTES:
            self._read_cache, self._read_cache_bytes = {}, 0
        last = first + READ_AHEAD - 1

        def found_damage(damage: Damage) -> None:
            # Only numbers in the range that was read: another frame may hold the others.
            self._record_damage(damage, first, last)

        with suppress(TierError):  # It is being fetched from object storage, or cannot be: requesters ask again.
            self._read_blocks(first, last, found_damage)

    def _read_blocks(self, first: int, last: int, found_damage: Callable[[Damage], None]) -> None:
        for block in self.journal.read(EPOCH, first, last, found_damage):
            sequences, payloads = block.sequences.tolist(), block.payloads()
            self._read_cache.update(zip(sequences, zip(block.times.tolist(), payloads, strict=True), strict=True))
            self._read_cache_bytes += sum(map(len, payloads))
            if self._damaged:
                for start, end in integer_ranges(sequences):  # These were received again after a frame was damaged.
                    self._damaged.discard(start, end)
            if self._read_cache_bytes > READ_BYTES:
                return

    def _record_damage(self, damage: Damage, first: int, last: int) -> None:
        self.damage_count += 1
        if damage.first is not None and damage.last is not None:
            self._damaged.add(max(first, damage.first), min(last, damage.last))


classImplements(JournalStore, IMessageStore)
