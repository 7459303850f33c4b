"""A client's memory of the stream in a durable journal: what waits to be made durable, and what is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, repeat
from typing import NamedTuple

from zope.interface import implementer

from fyrehose_twisted.interfaces import IJournal, IMessageStore
from fyrehose_twisted.journal.block import integer_ranges
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

EPOCH = 0
"""Nothing restarts the numbers of a backbone."""

READ_AHEAD = 1_024
"""Numbers that are read at once: what one FORWARD is answered with."""

READ_RECORDS, READ_BYTES = 8_192, 16 * 2**20
"""What was read is kept until it is more than this."""


class PendingWrites(NamedTuple):
    """What has to be durable before anything else happens."""

    first_sequence: int | None
    """The first number of the journal, if it has none yet."""
    records: list[Record]
    lost_ranges: list[tuple[int, int]]

    def save(self, journal: IJournal, *, sync: bool = True) -> None:
        """Commit it to ``journal``; with ``sync=False``, leave it to a later commit to make it durable.

        :raises JournalError: if that failed.
        """
        if self.first_sequence is not None:
            journal.begin(EPOCH, self.first_sequence)
        journal.append(self.records, authoritative=True)
        for first, last in self.lost_ranges:
            journal.lose(EPOCH, first, last)
        journal.commit(sync)


@implementer(IMessageStore)
class JournalStore:
    """Answers from a journal, and collects what belongs there.

    :ivar reached: it has everything from the number given to :meth:`track_after` up to this one; ``None`` before that.
    :ivar damage_count: how often something in the journal was found damaged; it is asked for again like all that is
        missing.
    """

    def __init__(self, journal: IJournal) -> None:
        self.journal = journal
        self.damage_count = 0
        self.reached: int | None = None
        self._pending: dict[int, tuple[int, bytes]] = {}
        self._lost: list[tuple[int, int]] = []
        self._first_sequence: int | None = None
        self._damaged = RangeSet()
        self._arrived = RangeSet()
        self._read_cache: dict[int, tuple[int, bytes]] = {}
        self._read_cache_bytes = 0
        bounds = journal.bounds(EPOCH)
        self._highest = -1 if bounds is None else bounds.last  # Most questions are for what is new.

    def track_after(self, last: int) -> None:
        """Look from now on how far all is here that has a number above ``last``; not yet, if that is 0."""
        if last:
            self.reached = last
            self._arrived = RangeSet()

    def begin(self, sequence: int) -> None:
        """The journal is to begin with ``sequence``, if it has not begun."""
        if self.journal.bounds(EPOCH) is None:
            self._first_sequence = sequence

    def lose(self, first: int, last: int) -> None:
        """``first`` to ``last`` cannot be had."""
        self._lost.append((first, last))
        self._advance_reached(first, last)

    def take_pending(self) -> PendingWrites | None:
        """Return what is to be made durable now, ``None`` for nothing. It counts as saved from here on."""
        if not (self._pending or self._lost or self._first_sequence is not None):
            return None
        for sequence in (
            self._read_cache.keys() & self._pending.keys()
        ):  # Read ahead since, and out of date in a moment.
            del self._read_cache[sequence]
        stream = self.journal.stream
        records = [Record(stream, EPOCH, sequence, *kept) for sequence, kept in self._pending.items()]
        unsaved = PendingWrites(self._first_sequence, records, self._lost)
        self._pending, self._lost, self._first_sequence = {}, [], None
        return unsaved

    def put(self, first: int, messages: Sequence[bytes], received_at: int = 0) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.put`; what is below the watermark stays as it is."""
        numbers = range(first, first + len(messages))
        self._pending.update(zip(numbers, zip(repeat(received_at), messages), strict=False))
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
        waiting = [number for number in self._pending if first <= number <= last]
        numbers = list(islice(saved, limit))
        return sorted({*numbers, *waiting})[:limit] if waiting else numbers

    def _advance_reached(self, first: int, last: int) -> None:
        reached, came = self.reached, self._arrived
        if reached is None or last <= reached:
            return
        if first > reached + 1:
            came.add(first, last)
            return
        reached = last
        while came and came.first <= reached + 1:
            start, end = next(iter(came))
            came.discard(start, end)
            reached = max(reached, end)
        self.reached = reached

    def _find(self, sequence: int) -> tuple[int, bytes] | None:
        """Return when a message was received, and the message."""
        kept = self._pending.get(sequence) or self._read_cache.get(sequence)
        if kept is None and self._is_held(sequence):
            self._read_ahead(sequence)
            kept = self._read_cache.get(sequence)
        return kept

    def _is_held(self, sequence: int) -> bool:
        if sequence > self._highest:
            return False
        return sequence not in self._damaged and any(self.journal.held(EPOCH, sequence, sequence))

    def _read_ahead(self, first: int) -> None:
        """Read what is held from ``first`` on: whoever wants one message mostly wants those after it as well."""
        if len(self._read_cache) > READ_RECORDS or self._read_cache_bytes > READ_BYTES:
            self._read_cache, self._read_cache_bytes = {}, 0
        last = first + READ_AHEAD - 1

        def found_damage(damage: Damage) -> None:
            # Of what lies elsewhere nothing is known: another frame may have it.
            self._record_damage(damage, first, last)

        for block in self.journal.read(EPOCH, first, last, found_damage):
            sequences, payloads = block.sequences.tolist(), block.payloads()
            self._read_cache.update(zip(sequences, zip(block.times.tolist(), payloads, strict=True), strict=True))
            self._read_cache_bytes += sum(map(len, payloads))
            if self._damaged:
                for start, end in integer_ranges(sequences):  # A frame is damaged, but these came again since.
                    self._damaged.discard(start, end)
            if self._read_cache_bytes > READ_BYTES:
                return

    def _record_damage(self, damage: Damage, first: int, last: int) -> None:
        self.damage_count += 1
        if damage.first is not None and damage.last is not None:
            self._damaged.add(max(first, damage.first), min(last, damage.last))
