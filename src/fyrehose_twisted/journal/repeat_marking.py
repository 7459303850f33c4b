"""Detection of repeated messages in a journal, from any starting position."""

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
"""Returns the envelopes of the records in a block. Records without an envelope are left out."""

Marks = NDArray[np.bool_]

MAX_CURSORS = 4
"""Cursors of one epoch, from which marking continues without reading the preceding records."""

STEP_RECORDS = 4_096
"""Records processed in one step."""

READ_ON = 4
"""Number of consecutive blocks after which a cursor is kept for the following ones."""

LARGE = 2
"""If at most this many frames hold a whole step, the next step is larger."""

MAX_ENDS = 64
"""Remembered ends of blocks, by which consecutive blocks are recognized."""

MAX_RANGES = 65_536
"""Separate ranges of results that are remembered for one epoch."""


class RepeatMarker:
    """Marks repeated records of one journal by the rule of :mod:`fyrehose_twisted.repeats`.

    Records that no publisher published are marked too. The marker reads the records that precede a block, as far as
    the rule requires, unless it has just read them. Results are remembered. Records that are damaged or removed by
    retention are not taken into account.

    :param envelopes: finds the envelopes of the protocol; ``None`` if records have none, and so none is a repeat.
    """

    def __init__(self, reader: JournalReader, envelopes: FindEnvelopes | None) -> None:
        self._reader = reader
        self._envelopes = envelopes
        self._epochs: dict[int, _EpochRepeats] = {}

    @property
    def can_mark(self) -> bool:
        """Whether the protocol of the journal has repeats."""
        return self._envelopes is not None

    def marks(self, block: Block) -> Generator[None, None, Marks | None]:
        """Compute which records of a block are repeats; yield after each step of reading preceding records.

        :return: a mask of the repeats, or ``None`` if there is none.
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
        """Return whether a block at ``position`` can be marked without reading preceding records."""
        if self._envelopes is None:
            return True
        return epoch in self._epochs and any(cursor.next == position for cursor in self._epochs[epoch].cursors)

    def _find(self, epoch: _EpochRepeats, block: Block, first: int, last: int) -> Generator[None, None, None]:
        """Mark positions ``first`` to ``last`` of a block."""
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
        """Mark a single block. Of the preceding records, remember only those that it may repeat."""
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
        """Yield the held records from ``first`` up to ``end``, exclusive, in small blocks."""
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
                pass  # Retention has removed some of the range.
            first = last + 1
            if read <= LARGE:  # Frames are large, and would be read again for the next step.
                width *= 4

    def _take(self, epoch: _EpochRepeats, cursor: _Cursor, block: Block, *, is_known: bool) -> None:
        assert self._envelopes is not None
        envelopes = self._envelopes(block)
        for run in envelopes.runs():
            for begin, end in cursor.memory.add(run):
                if is_known:
                    epoch.repeats.add(run.number + begin, run.number + end - 1)
        if is_known:
            for number in envelopes.unpublished.tolist():
                epoch.repeats.add(number)
            epoch.known.add(block.first, block.last)


def run_to_end(steps: Generator[None, None, Marks | None]) -> Marks | None:
    """Run :meth:`RepeatMarker.marks` to its end and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            marks: Marks | None = ended.value
            return marks


class _Cursor:
    """State of one sequential pass over a journal.

    :ivar next: next position to read.
    :ivar whole_from: position from which results are valid, as all preceding records that matter have been read.
    """

    def __init__(self, first: int, whole_from: int) -> None:
        self.memory = RepeatDetector()
        self.next = first
        self.whole_from = whole_from


class _EpochRepeats:
    """Results for one epoch.

    :ivar known: positions that have been processed.
    :ivar repeats: positions of repeats.
    :ivar cursors: cursors, the most recently used one last.
    """

    def __init__(self) -> None:
        self.known = RangeSet()
        self.repeats = RangeSet()
        self.cursors: list[_Cursor] = []
        self._ends: dict[int, int] = {}

    def take(self, lowest: int, first: int) -> _Cursor | None:
        """Remove and return the furthest cursor from ``lowest`` to ``first``; call :meth:`keep` after using it."""
        usable = [cursor for cursor in self.cursors if lowest <= cursor.next <= first]
        if not usable:
            return None
        cursor = max(usable, key=_by_next)
        self.cursors.remove(cursor)
        return cursor

    def consecutive_blocks(self, first: int, last: int) -> int:
        """Return the number of consecutive blocks that precede the one from ``first`` to ``last``."""
        count = self._ends.pop(first, 0)
        self._ends[last + 1] = count + 1
        if len(self._ends) > MAX_ENDS:
            del self._ends[next(iter(self._ends))]
        return count

    def keep(self, cursor: _Cursor) -> None:
        """Keep a cursor. If there are too many, drop the oldest one that is not the furthest."""
        self.cursors.append(cursor)
        if len(self.cursors) > MAX_CURSORS:
            newest = max(self.cursors, key=_by_next)
            self.cursors.remove(next(candidate for candidate in self.cursors if candidate is not newest))

    def forget(self) -> None:
        """Drop the results if they have too many ranges."""
        if len(self.repeats) > MAX_RANGES or len(self.known) > MAX_RANGES:
            self.repeats.clear()
            self.known.clear()


def _by_next(cursor: _Cursor) -> int:
    return cursor.next


def _ignore_damage(damage: Damage) -> None:
    """Ignore damage in preceding records. It is reported when these are read themselves."""
