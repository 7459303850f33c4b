"""Ordered reading of one journal's share of a range, with the journal's own findings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from fyrehose_twisted.journal.block import Block, Numbers, join_blocks, merge_blocks, position_ranges
from fyrehose_twisted.journal.catalog import StoredBlock
from fyrehose_twisted.journal.errors import Damage, NotInJournal
from fyrehose_twisted.journal.segment_loader import NUMBERS_MISSING
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.spark.verify.parts import ComparisonRange, Share
from fyrehose_twisted.spark.verify.payload_comparison import PayloadRows, differing_rows
from fyrehose_twisted.spark.verify.runs import (
    AFTER,
    BACKWARDS,
    BEFORE,
    CLOCK,
    DAMAGED,
    DECLARED,
    DUPLICATE,
    EPOCH,
    MISSING,
    ORDER,
    SEGMENT,
    TWICE,
    FindingRunMerger,
    ShareEdge,
    clock_regression,
)

GATHERED_ROWS, GATHERED_BYTES = 16_384, 4 * 2**20
"""Target size for merging small frames, since comparing few records at a time is slower."""

LARGE_ROWS, LARGE_BYTES = 2_048, 2**20
"""Size from which frames are not merged."""

_NO_NUMBERS: Numbers = np.array([], np.uint64)


class StoredRecords(NamedTuple):
    """Consecutive records of a journal, possibly with gaps."""

    block: Block
    """Records as read, one per number."""
    stored: list[StoredBlock]
    """Records as stored in the segments; of several versions of a record, the oldest is first."""
    conflicting: Numbers
    """Numbers stored with different payloads."""


class ShareReader:
    """Single-pass reader of one journal's share that also records the findings within that journal.

    :ivar edge: first and last record; set once :meth:`records` is exhausted, ``None`` if there are none.
    """

    def __init__(
        self, reader: Any, part: ComparisonRange, share: Share, tolerance: int, runs: FindingRunMerger
    ) -> None:
        self._reader = reader
        self._part = part
        self._name = share.location.journal
        self._tolerance = tolerance
        self._runs = runs
        self._later_epoch_start = share.later_epoch_start
        self._begin, self._next = share.bounds.first, share.bounds.next
        self._first, self._last = max(part.first, self._begin), min(part.last, self._next - 1)
        self._reached = part.first
        self._damages: dict[Damage, None] = dict.fromkeys(getattr(reader, "damages", ()))
        self._lost = RangeSet()
        self.edge: ShareEdge | None = None

    def records(self) -> Iterator[StoredRecords]:
        """Yield the journal's records in ascending order."""
        if self._first <= self._last:
            self._lost = RangeSet(self._reader.losses(self._part.epoch, self._first, self._last))
            self._check_segments()
            for held in coalesce(map(self._merge, self._windows())):
                self._check_block(held.block)
                yield held
        self._add_missing(self._part.last + 1)

    def claimed(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Return the ranges in ``first`` to ``last`` that the journal claims to hold, readable or not."""
        first, last = max(first, self._first), min(last, self._last)
        return iter(self._reader.held(self._part.epoch, first, last)) if first <= last else iter(())

    def _windows(self) -> Iterator[list[StoredBlock]]:
        first = self._first
        while first <= self._last:
            try:
                for window in self._reader.stored(self._part.epoch, first, self._last, self._record_damage):
                    first = max(one.block.last for one in window) + 1
                    yield window
                return
            except NotInJournal:  # Retention has dropped records since planning.
                self._reader.refresh()
                bounds = self._reader.bounds(self._part.epoch)
                self._begin = self._next if bounds is None else bounds.first
                first = max(first, self._begin)

    def _record_damage(self, damage: Damage) -> None:
        self._damages[damage] = None

    def _merge(self, window: list[StoredBlock]) -> StoredRecords:
        blocks = [self._in_order(one) for one in window]
        block = blocks[0] if len(blocks) == 1 else merge_blocks(blocks)
        if len(block) == sum(map(len, blocks)):
            return StoredRecords(block, window, _NO_NUMBERS)
        return StoredRecords(block, window, self._find_repeats(blocks, block))

    def _in_order(self, one: StoredBlock) -> Block:
        block = one.block
        if len(block) == 1 or bool(np.all(block.positions[1:] > block.positions[:-1])):
            return block
        low, high = int(block.positions.min()), int(block.positions.max())
        self._runs.add(ORDER, SEGMENT, self._name, low, high, f"{one.segment}: within a frame")
        return merge_blocks([block])

    def _find_repeats(self, blocks: list[Block], block: Block) -> Numbers:
        """Record numbers stored more than once; return those with different payloads."""
        every = np.sort(np.concatenate([one.positions for one in blocks]))
        twice = np.unique(every[1:][every[1:] == every[:-1]])
        bad = np.zeros(len(twice), bool)
        rows = PayloadRows.of(block).take(np.searchsorted(block.positions, twice))
        for one in blocks:
            here = np.flatnonzero(np.isin(one.positions, twice))
            at = np.searchsorted(twice, one.positions[here])
            bad[at] |= differing_rows(rows.take(at), PayloadRows.of(one).take(here))
        if not bad.all():
            for first, last in position_ranges(twice[~bad]):
                self._runs.add(DUPLICATE, TWICE, self._name, first, last)
        return twice[bad]

    def _check_block(self, block: Block) -> None:
        positions, times, first, last = block.positions, block.times, block.first, block.last
        self._add_missing(first)
        if last - first >= len(block):
            for row in np.flatnonzero(positions[1:] - positions[:-1] != np.uint64(1)).tolist():
                self._reached = int(positions[row]) + 1
                self._add_missing(int(positions[row + 1]))
        self._reached = last + 1
        before = self.edge
        if before is not None:
            self._check_clock(before.last_time - int(times[0]), first)
        falls = times[:-1] - times[1:]
        if len(falls) and int(falls.max()) > self._tolerance:
            for row in np.flatnonzero(falls > self._tolerance).tolist():
                self._check_clock(int(falls[row]), int(positions[row + 1]))
        if self._later_epoch_start is not None and int(times.max()) > self._later_epoch_start + self._tolerance:
            for low, high in position_ranges(positions[times > self._later_epoch_start + self._tolerance]):
                self._runs.add(ORDER, EPOCH, self._name, low, high, "received after a later epoch had begun")
        count, last_time = len(block), int(times[-1])
        if before is None:
            self.edge = ShareEdge(self._name, first, last, count, int(times[0]), last_time)
        else:
            self.edge = before._replace(last=last, records=before.records + count, last_time=last_time)

    def _check_clock(self, microseconds: int, number: int) -> None:
        if microseconds > self._tolerance:
            self._runs.add(CLOCK, BACKWARDS, self._name, number, number, clock_regression(microseconds))

    def _add_missing(self, end: int) -> None:
        """Record why the journal has no records from the read position to ``end`` (exclusive)."""
        first, self._reached = self._reached, end
        if first >= end:
            return
        if first < self._begin:
            self._runs.add(MISSING, BEFORE, self._name, first, min(self._begin, end) - 1)
            first = self._begin
        last = min(end, self._next) - 1
        if first <= last:
            for part in self._lost.intersection(first, last):
                self._runs.add(MISSING, DECLARED, self._name, *part)
            for part in self._lost.gaps(first, last):
                self._add_damaged(*part)
        first = max(first, self._next)
        if first < end:
            self._runs.add(MISSING, AFTER, self._name, first, end - 1)

    def _add_damaged(self, first: int, last: int) -> None:
        # NUMBERS_MISSING gives no cause, so damage with a cause takes precedence.
        known = sorted((one for one in self._damages if one.reason != NUMBERS_MISSING), key=lambda damage: damage[:4])
        left = RangeSet([(first, last)])
        parts: list[tuple[int, int, str]] = []
        for damage in known:
            if damage.epoch == self._part.epoch and damage.first is not None and damage.last is not None:
                for part in list(left.intersection(damage.first, damage.last)):
                    parts.append((*part, str(damage)))
                    left.discard(*part)
        elsewhere = [str(damage) for damage in known if damage.first is None]
        more = f" and {len(elsewhere) - 2} more" if len(elsewhere) > 2 else ""
        reason = "; ".join(elsewhere[:2]) + more if elsewhere else "neither held nor declared lost"
        parts += [(*part, reason) for part in left]
        for low, high, detail in sorted(parts):
            self._runs.add(MISSING, DAMAGED, self._name, low, high, detail)

    def _check_segments(self) -> None:
        """Check the frame order of ordered segments whose first record is in the range."""
        epoch = self._part.epoch
        for segment in getattr(self._reader, "segments", ()):
            shelf = segment.frame_indexes.get(epoch) if segment.ordered else None
            if shelf is None or not self._first <= shelf.first <= self._last:
                continue
            reached = -1
            for header in sorted(shelf, key=lambda header: int(header.offset)):
                if header.base <= reached:
                    detail = f"{segment.name}: after {reached}"
                    self._runs.add(ORDER, SEGMENT, self._name, header.base, header.last, detail)
                reached = max(reached, header.last)


def coalesce(pieces: Iterator[StoredRecords]) -> Iterator[StoredRecords]:
    """Merge small pieces and yield the result."""
    waiting: list[StoredRecords] = []
    rows = size = 0
    for piece in pieces:
        block = piece.block
        count, length = len(block), int(block.offsets[-1]) - int(block.offsets[0])
        large = count >= LARGE_ROWS or length >= LARGE_BYTES
        if waiting and (large or rows + count > GATHERED_ROWS or size + length > GATHERED_BYTES):
            yield _join_pieces(waiting)
            waiting, rows, size = [], 0, 0
        if large:
            yield piece
            continue
        waiting.append(piece)
        rows, size = rows + count, size + length
    if waiting:
        yield _join_pieces(waiting)


def _join_pieces(pieces: list[StoredRecords]) -> StoredRecords:
    if len(pieces) == 1:
        return pieces[0]
    changed = [piece.conflicting for piece in pieces if len(piece.conflicting)]
    stored = list(chain.from_iterable(piece.stored for piece in pieces))
    return StoredRecords(
        join_blocks([piece.block for piece in pieces]), stored, np.concatenate(changed) if changed else _NO_NUMBERS
    )
