"""A client's memory of the stream in a durable journal: what waits to be made durable, and what is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, repeat
from typing import NamedTuple

from zope.interface import implementer

from fyrehose_twisted.interfaces import IJournal, IMessageStore
from fyrehose_twisted.journal.block import runs_of_integers
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

EPOCH = 0
"""Nothing restarts the numbers of a backbone."""

READ_AHEAD = 1_024
"""Numbers that are read at once: what one FORWARD is answered with."""

READ_RECORDS, READ_BYTES = 8_192, 16 * 2**20
"""What was read is kept until it is more than this."""


class Unsaved(NamedTuple):
    """What has to be durable before anything else happens."""

    begins: int | None
    """The first number of the journal, if it has none yet."""
    records: list[Record]
    lost: list[tuple[int, int]]

    def save(self, journal: IJournal, *, sync: bool = True) -> None:
        """Commit it to ``journal``; with ``sync=False``, leave it to a later commit to make it durable.

        :raises JournalError: if that failed.
        """
        if self.begins is not None:
            journal.begin(EPOCH, self.begins)
        journal.append(self.records, again=True)
        for first, last in self.lost:
            journal.lose(EPOCH, first, last)
        journal.commit(sync)


@implementer(IMessageStore)
class JournalStore:
    """Answers from a journal, and collects what belongs there.

    :ivar reached: it has everything from the number given to :meth:`follow` up to this one; ``None`` before that.
    :ivar damages: how often something in the journal was found damaged; it is asked for again like all that is missing.
    """

    def __init__(self, journal: IJournal) -> None:
        self.journal = journal
        self.damages = 0
        self.reached: int | None = None
        self._waiting: dict[int, tuple[int, bytes]] = {}
        self._lost: list[tuple[int, int]] = []
        self._begins: int | None = None
        self._damaged = RangeSet()
        self._came = RangeSet()
        self._read: dict[int, tuple[int, bytes]] = {}
        self._read_bytes = 0
        bounds = journal.bounds(EPOCH)
        self._highest = -1 if bounds is None else bounds.last  # Most questions are for what is new.

    def follow(self, last: int) -> None:
        """Look from now on how far all is here that has a number above ``last``; not yet, if that is 0."""
        if last:
            self.reached = last
            self._came = RangeSet()

    def begin(self, sequence: int) -> None:
        """The journal is to begin with ``sequence``, if it has not begun."""
        if self.journal.bounds(EPOCH) is None:
            self._begins = sequence

    def lose(self, first: int, last: int) -> None:
        """``first`` to ``last`` cannot be had."""
        self._lost.append((first, last))
        self._reach(first, last)

    def take(self) -> Unsaved | None:
        """Return what is to be made durable now, ``None`` for nothing. It counts as saved from here on."""
        if not (self._waiting or self._lost or self._begins is not None):
            return None
        for sequence in self._read.keys() & self._waiting.keys():  # Read ahead since, and out of date in a moment.
            del self._read[sequence]
        stream = self.journal.stream
        records = [Record(stream, EPOCH, sequence, *kept) for sequence, kept in self._waiting.items()]
        unsaved = Unsaved(self._begins, records, self._lost)
        self._waiting, self._lost, self._begins = {}, [], None
        return unsaved

    def put(self, first: int, messages: Sequence[bytes], received_at: int = 0) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.put`; what is below the watermark stays as it is."""
        numbers = range(first, first + len(messages))
        self._waiting.update(zip(numbers, zip(repeat(received_at), messages), strict=False))
        self._highest = max(self._highest, numbers[-1])
        self._reach(first, numbers[-1])
        if self._damaged:
            self._damaged.discard(first, numbers[-1])

    def get(self, sequence: int) -> bytes | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.get`."""
        kept = self._kept(sequence)
        return None if kept is None else kept[1]

    def received_at(self, sequence: int) -> int | None:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.received_at`."""
        kept = self._kept(sequence)
        return None if kept is None else kept[0]

    def lowest(self, first: int, last: int, limit: int) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IMessageStore.lowest`."""
        saved = (
            number
            for start, end in self.journal.held(EPOCH, first, last)
            for whole in self._damaged.gaps(start, end)
            for number in range(whole[0], whole[1] + 1)
        )
        waiting = [number for number in self._waiting if first <= number <= last]
        numbers = list(islice(saved, limit))
        return sorted({*numbers, *waiting})[:limit] if waiting else numbers

    def _reach(self, first: int, last: int) -> None:
        reached, came = self.reached, self._came
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

    def _kept(self, sequence: int) -> tuple[int, bytes] | None:
        """Return when a message was received, and the message."""
        kept = self._waiting.get(sequence) or self._read.get(sequence)
        if kept is None and self._is_held(sequence):
            self._read_on(sequence)
            kept = self._read.get(sequence)
        return kept

    def _is_held(self, sequence: int) -> bool:
        if sequence > self._highest:
            return False
        return sequence not in self._damaged and any(self.journal.held(EPOCH, sequence, sequence))

    def _read_on(self, first: int) -> None:
        """Read what is held from ``first`` on: whoever wants one message mostly wants those after it as well."""
        if len(self._read) > READ_RECORDS or self._read_bytes > READ_BYTES:
            self._read, self._read_bytes = {}, 0
        last = first + READ_AHEAD - 1

        def found_damage(damage: Damage) -> None:
            # Of what lies elsewhere nothing is known: another frame may have it.
            self._found_damage(damage, first, last)

        for block in self.journal.read(EPOCH, first, last, found_damage):
            sequences, payloads = block.sequences.tolist(), block.payloads()
            self._read.update(zip(sequences, zip(block.times.tolist(), payloads, strict=True), strict=True))
            self._read_bytes += sum(map(len, payloads))
            if self._damaged:
                for start, end in runs_of_integers(sequences):  # A frame is damaged, but these came again since.
                    self._damaged.discard(start, end)
            if self._read_bytes > READ_BYTES:
                return

    def _found_damage(self, damage: Damage, first: int, last: int) -> None:
        self.damages += 1
        if damage.first is not None and damage.last is not None:
            self._damaged.add(max(first, damage.first), min(last, damage.last))
