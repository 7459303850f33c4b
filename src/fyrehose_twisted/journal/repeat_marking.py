"""Finding the repeats among the records of a journal, wherever a reader begins."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.errors import Damage, NotInJournal
from fyrehose_twisted.journal.format.segment import Projection
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.repeats import WINDOW, Envelopes, RepeatDetector

FindEnvelopes = Callable[[Block], Envelopes]
"""Returns the envelopes of a block's records; records without one are left out."""

Marks = NDArray[np.bool_]

MAX_CURSORS = 4
"""Places of one epoch from which marking can go on without reading what precedes them."""

STEP_RECORDS = 4_096
"""Records that are looked at in one step."""

READ_ON = 4
"""Blocks that have to follow one another before what precedes them is remembered for the next ones."""

LARGE = 2
"""Where so few frames have all of a step, more is read at once."""

MAX_ENDS = 64
"""Ends of blocks that are remembered, to see which blocks follow one another."""

MAX_RANGES = 65_536
"""Separate ranges of marked numbers that are remembered of one epoch."""


class RepeatMarker:
    """Tells which records of a journal are repeats, by the rule of :mod:`fyrehose_twisted.repeats`.

    It reads the numbers that precede a block, as many as the rule needs, unless it has just read them; and it remembers
    what it found. What retention has dropped, or is damaged, makes no record a repeat.

    :param envelopes: of the journal's protocol; ``None`` if its records have none: then none is a repeat.
    """

    def __init__(self, reader: JournalReader, envelopes: FindEnvelopes | None) -> None:
        self._reader = reader
        self._envelopes = envelopes
        self._epochs: dict[int, _EpochRepeats] = {}

    @property
    def can_mark(self) -> bool:
        """Whether a record may be a repeat at all."""
        return self._envelopes is not None

    def marks(self, block: Block) -> Generator[None, None, Marks | None]:
        """Return which records of a block are repeats; yield after each step of reading what precedes them.

        :return: ``None`` if none is.
        :raises OSError: if the journal cannot be read.
        """
        if self._envelopes is None or not len(block):
            return None
        epoch = self._epochs.setdefault(block.epoch, _EpochRepeats())
        epoch.forget()
        first, last = block.first, block.last
        while (gap := next(epoch.known.gaps(first, last), None)) is not None:
            yield from self._find(epoch, block, *gap)
        found = list(epoch.repeats.intersection(first, last))
        if not found:
            return None
        marks = np.zeros(len(block), bool)
        for low, high in found:
            start, stop = block.positions.searchsorted(np.array((low, high + 1), np.uint64)).tolist()
            marks[start:stop] = True
        return marks

    def is_ready(self, epoch: int, position: int) -> bool:
        """Return whether a block that begins at ``position`` can be marked without reading what precedes it."""
        if self._envelopes is None:
            return True
        return epoch in self._epochs and any(one.next == position for one in self._epochs[epoch].cursors)

    def _find(self, epoch: _EpochRepeats, block: Block, first: int, last: int) -> Generator[None, None, None]:
        """Mark ``first`` to ``last`` of a block."""
        bounds = self._reader.bounds(block.epoch)
        beginning = first if bounds is None else bounds.first
        lowest = max(first - WINDOW, beginning)
        part = block.within(first, last)
        if not len(part):
            epoch.known.add(first, last)
            return
        cursor = epoch.take(lowest, first)
        follows = epoch.consecutive_blocks(first, last)
        if cursor is None and follows < READ_ON and first - lowest > STEP_RECORDS:
            yield from self._find_alone(epoch, part, lowest)
            return
        if cursor is None:
            cursor = _Cursor(lowest, beginning if lowest == beginning else first)
        for before in self._preceding_blocks(block.epoch, cursor.next, first):
            self._take(epoch, cursor, before, is_known=cursor.whole_from <= before.first)
            yield
        self._take(epoch, cursor, part, is_known=True)
        epoch.known.add(first, last)
        cursor.next = last + 1
        epoch.keep(cursor)

    def _find_alone(self, epoch: _EpochRepeats, part: Block, lowest: int) -> Generator[None, None, None]:
        """Mark a block after which nobody may read on: of what precedes it, remember only what it repeats."""
        assert self._envelopes is not None
        keys = np.sort(self._envelopes(part).keys())
        cursor = _Cursor(lowest, part.first)
        if len(keys):
            for before in self._preceding_blocks(part.epoch, lowest, part.first):
                for run in self._envelopes(before).with_keys(keys).runs():
                    cursor.memory.add(run)
                yield
        self._take(epoch, cursor, part, is_known=True)

    def _preceding_blocks(self, epoch: int, first: int, end: int) -> Iterator[Block]:
        """Yield what is held from ``first`` to before ``end``, a moment's work of it at a time."""
        width = STEP_RECORDS
        while first < end:
            last = min(first + width, end) - 1
            read = 0
            try:
                for block in self._reader.read(epoch, first, last, _ignore_damage, projection=Projection.HEADS):
                    read += 1
                    for low in range(0, len(block), STEP_RECORDS):
                        yield block.rows(low, min(low + STEP_RECORDS, len(block)))
            except NotInJournal:
                pass  # Retention has dropped some of it meanwhile.
            first = last + 1
            if read <= LARGE:  # Part of a frame may be left, which has to be read again.
                width *= 4

    def _take(self, epoch: _EpochRepeats, cursor: _Cursor, block: Block, *, is_known: bool) -> None:
        assert self._envelopes is not None
        for run in self._envelopes(block).runs():
            for begin, end in cursor.memory.add(run):
                if is_known:
                    epoch.repeats.add(run.number + begin, run.number + end - 1)
        if is_known:
            epoch.known.add(block.first, block.last)


def run_to_end(steps: Generator[None, None, Marks | None]) -> Marks | None:
    """Return what :meth:`RepeatMarker.marks` returns, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            marks: Marks | None = ended.value
            return marks


class _Cursor:
    """A place up to which a journal was read.

    :ivar next: the next number.
    :ivar whole_from: from here on it has read all that the rule needs.
    """

    def __init__(self, first: int, whole_from: int) -> None:
        self.memory = RepeatDetector()
        self.next = first
        self.whole_from = whole_from


class _EpochRepeats:
    """What is known of the repeats of one epoch.

    :ivar known: numbers of which it is known whether they are repeats.
    :ivar repeats: those that are.
    :ivar cursors: the one used last comes last.
    """

    def __init__(self) -> None:
        self.known = RangeSet()
        self.repeats = RangeSet()
        self.cursors: list[_Cursor] = []
        self._ends: dict[int, int] = {}

    def take(self, lowest: int, first: int) -> _Cursor | None:
        """Return the furthest cursor between two places, which is to be kept again when it was moved."""
        usable = [one for one in self.cursors if lowest <= one.next <= first]
        if not usable:
            return None
        cursor = max(usable, key=_by_next)
        self.cursors.remove(cursor)
        return cursor

    def consecutive_blocks(self, first: int, last: int) -> int:
        """Return how many blocks have come one after the other before the one from ``first`` to ``last``."""
        count = self._ends.pop(first, 0)
        self._ends[last + 1] = count + 1
        if len(self._ends) > MAX_ENDS:
            del self._ends[next(iter(self._ends))]
        return count

    def keep(self, cursor: _Cursor) -> None:
        """Keep a cursor, and drop one if there are too many, but not that which has read furthest."""
        self.cursors.append(cursor)
        if len(self.cursors) > MAX_CURSORS:
            newest = max(self.cursors, key=_by_next)
            self.cursors.remove(next(one for one in self.cursors if one is not newest))

    def forget(self) -> None:
        """Forget what was found if it is too much."""
        if len(self.repeats) > MAX_RANGES or len(self.known) > MAX_RANGES:
            self.repeats.clear()
            self.known.clear()


def _by_next(cursor: _Cursor) -> int:
    return cursor.next


def _ignore_damage(damage: Damage) -> None:
    """What is damaged is reported when it is read for itself."""
