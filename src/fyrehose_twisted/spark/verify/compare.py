"""Merge of a stream's journals over a range of numbers, in memory that does not grow with the range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from fyrehose_twisted.journal.block import Block, Numbers
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.spark.verify.parts import ComparisonRange, Share
from fyrehose_twisted.spark.verify.payload_comparison import Indices, Mask, MergedBlocks, equal_blocks, merge_blocks
from fyrehose_twisted.spark.verify.planning import LONGEST_LISTED
from fyrehose_twisted.spark.verify.replica import share_reader
from fyrehose_twisted.spark.verify.runs import (
    DIVERGENCE,
    MISSING,
    NOBODY,
    PAYLOAD,
    FindingRun,
    FindingRunMerger,
    ShareEdge,
)
from fyrehose_twisted.spark.verify.share_reader import ShareReader, StoredRecords

RUNS_PER_BATCH = 10_000
"""Runs returned per batch."""

LISTED_AT_ONCE = 65_536


class MergedRows(NamedTuple):
    """Rows of the healed stream in ascending order of distinct numbers."""

    positions: Numbers
    owners: Indices
    """Index of each row's journal in the part's shares; -1 if the number is lost."""
    agreed: Mask
    """True for rows with a payload; false for lost numbers and for numbers on which journals disagree."""
    merged: MergedBlocks | None
    """Times and payloads of the rows that are not lost, in order; ``None`` if all are lost."""


class ConflictingRows(NamedTuple):
    """One journal's versions of disputed numbers."""

    share_index: int
    segment: str
    block: Block
    rows: Indices


class ComparisonWindow(NamedTuple):
    """Records of the journals up to number ``last``, by journal; ``None`` for a journal without records."""

    last: int
    records: list[StoredRecords | None]


class Comparison:
    """Comparison of a range. Each method reads the journals again.

    :param tolerance: allowed clock regression in microseconds.
    :param open: function that returns the reader of a share.
    """

    def __init__(self, part: ComparisonRange, tolerance: int, open: Callable[[Share, int], Any] = share_reader) -> None:
        self.part = part
        self._tolerance = tolerance
        self._open = open
        self._readers: list[Any] = []

    def close(self) -> None:
        """Close the journals' files; a worker compares many ranges and must not accumulate open files."""
        for reader in self._readers:
            if isinstance(reader, JournalReader):
                reader.close()
        self._readers = []

    def runs(self) -> Iterator[list[FindingRun | ShareEdge]]:
        """Yield batches of findings, and finally the edges of each journal's records.

        :raises JournalError: if a journal cannot be read up to its planned end. Other reader errors also propagate.
        """
        runs = FindingRunMerger()
        readings = self._share_readers(runs)
        reached = self.part.first
        for window in windows([reading.records() for reading in readings]):
            one = _single_version(window)
            union = None if one is not None else merge_blocks(_blocks(window))
            positions = one.block.positions if one is not None else union.positions  # type: ignore[union-attr]
            for first, last in gaps(positions, reached):
                runs.add(MISSING, NOBODY, None, first, last)
            reached = int(positions[-1]) + 1
            if union is not None:
                self._add_divergences(runs, window, union)
            if len(runs) >= RUNS_PER_BATCH:
                yield list(runs.take())
        if reached <= self.part.last:
            runs.add(MISSING, NOBODY, None, reached, self.part.last)
        yield [*runs.close(), *(reading.edge for reading in readings if reading.edge is not None)]

    def healed(self) -> Iterator[MergedRows]:
        """Yield each number once, from the first journal that holds it if all holders agree.

        Of a gap in all journals of more than :data:`~fyrehose_twisted.spark.verify.planning.LONGEST_LISTED` numbers,
        only the first and the last number are yielded.
        """
        readings = self._share_readers(FindingRunMerger())
        reached = self.part.first
        for window in windows([reading.records() for reading in readings]):
            one = _single_version(window)
            if one is not None:
                index = next(index for index, held in enumerate(window.records) if held is not None)
                union = merge_blocks([None] * index + [one.block])
                disputed = np.zeros(len(one.block), bool)
            else:
                union = merge_blocks(_blocks(window))
                disputed = (union.differ | _conflict_bits(window, union)) != 0
            yield from self._interleave_lost(readings, union, disputed, reached)
            reached = int(union.positions[-1]) + 1
        for numbers in self._lost_numbers(readings, reached, self.part.last):
            yield _lost_rows(numbers)

    def quarantine(self) -> Iterator[list[ConflictingRows]]:
        """Yield batches of all versions of disputed numbers."""
        for window in windows([reading.records() for reading in self._share_readers(FindingRunMerger())]):
            if _single_version(window) is not None:
                continue
            union = merge_blocks(_blocks(window))
            disputed = union.positions[(union.differ | _conflict_bits(window, union)) != 0]
            if not len(disputed):
                continue
            versions = []
            for share, held in enumerate(window.records):
                for segment, block in () if held is None else held.stored:
                    rows = np.flatnonzero(np.isin(block.positions, disputed))
                    if len(rows):
                        versions.append(ConflictingRows(share, segment, block, rows))
            yield versions

    def _share_readers(self, runs: FindingRunMerger) -> list[ShareReader]:
        part = self.part
        self._readers = [self._open(share, part.epoch) for share in part.shares]
        pairs = zip(self._readers, part.shares, strict=True)
        return [ShareReader(reader, part, share, self._tolerance, runs) for reader, share in pairs]

    def _add_divergences(self, runs: FindingRunMerger, window: ComparisonWindow, union: MergedBlocks) -> None:
        changed = _conflict_bits(window, union)
        rows = np.flatnonzero(union.differ | changed)
        if not len(rows):
            return
        keys = union.owners[rows], union.differ[rows], changed[rows]
        cut = np.diff(union.positions[rows]) != 1
        for key in keys:
            cut |= key[1:] != key[:-1]
        lows = np.append(0, np.flatnonzero(cut) + 1)
        highs = np.append(lows[1:], len(rows)) - 1
        for low, high in zip(lows.tolist(), highs.tolist(), strict=True):
            detail = self._describe_differences(*(int(key[low]) for key in keys))
            first, last = (int(union.positions[rows[at]]) for at in (low, high))
            runs.add(DIVERGENCE, PAYLOAD, None, first, last, detail)

    def _describe_differences(self, owner: int, differ: int, changed: int) -> str:
        names = [share.location.journal for share in self.part.shares]
        told = []
        if differ:
            verb = "differs" if differ.bit_count() == 1 else "differ"
            told.append(f"{_join_names(names, differ)} {verb} from {names[owner]}")
        if changed:
            verb = "stores" if changed.bit_count() == 1 else "store"
            told.append(f"{_join_names(names, changed)} {verb} more than one payload")
        return "; ".join(told)

    def _interleave_lost(
        self, readings: Sequence[ShareReader], union: MergedBlocks, disputed: Mask, reached: int
    ) -> Iterator[MergedRows]:
        """Yield the rows of a window, interleaved with rows of lost numbers."""
        waiting: list[Numbers] = []
        size = low = 0
        positions = union.positions
        for first, last in gaps(positions, reached):
            for numbers in self._lost_numbers(readings, first, last):
                waiting.append(numbers)
                size += len(numbers)
                if size >= LISTED_AT_ONCE:
                    high = int(positions.searchsorted(numbers[-1]))
                    yield _insert_lost(union, disputed, low, high, waiting)
                    waiting, size, low = [], 0, high
        yield _insert_lost(union, disputed, low, len(positions), waiting)

    def _lost_numbers(self, readings: Sequence[ShareReader], first: int, last: int) -> Iterator[Numbers]:
        """Yield the numbers that get a row among ``first`` to ``last``, which no journal has."""
        if first > last:
            return
        if last - first < LONGEST_LISTED:
            yield from _chunks(first, last)
            return
        claimed = RangeSet()
        for reading in readings:
            for part in reading.claimed(first, last):
                claimed.add(*part)
        parts = [(*part, True) for part in claimed] + [(*part, False) for part in claimed.gaps(first, last)]
        for low, high, each in sorted(parts):
            if each or high - low < LONGEST_LISTED:
                yield from _chunks(low, high)
            else:
                yield np.array([low, high], np.uint64)


def windows(sources: Sequence[Iterator[StoredRecords]]) -> Iterator[ComparisonWindow]:
    """Align the sources' records: each window ends where the current records of one source end."""
    current = [next(source, None) for source in sources]
    while True:
        ends = [held.block.last for held in current if held is not None]
        if not ends:
            return
        end = min(ends)
        parts: list[StoredRecords | None] = []
        for index, held in enumerate(current):
            if held is None or held.block.first > end:
                parts.append(None)
            elif held.block.last <= end:
                parts.append(held)
                current[index] = None
            else:
                cut = int(held.block.positions.searchsorted(np.uint64(end), side="right"))
                parts.append(held._replace(block=held.block.rows(0, cut)))
                current[index] = held._replace(block=held.block.rows(cut, len(held.block)))
        taken = [index for index, held in enumerate(current) if held is None and parts[index] is not None]
        yield ComparisonWindow(end, parts)
        for index in taken:
            current[index] = next(sources[index], None)


def gaps(positions: Numbers, reached: int) -> Iterator[tuple[int, int]]:
    """Yield the ranges of numbers from ``reached`` on that are missing in ``positions``."""
    first, last = int(positions[0]), int(positions[-1])
    if first > reached:
        yield reached, first - 1
    if last - first >= len(positions):
        before = np.flatnonzero(positions[1:] - positions[:-1] != np.uint64(1))
        lows, highs = positions[before] + np.uint64(1), positions[before + 1] - np.uint64(1)
        yield from zip(lows.tolist(), highs.tolist(), strict=True)


def _single_version(window: ComparisonWindow) -> StoredRecords | None:
    """Return the records that all journals of the window share; ``None`` if journals differ."""
    one: StoredRecords | None = None
    for held in window.records:
        if held is None:
            continue
        if len(held.conflicting) or (one is not None and not equal_blocks(one.block, held.block)):
            return None
        one = one or held
    return one


def _blocks(window: ComparisonWindow) -> list[Block | None]:
    return [None if held is None else held.block for held in window.records]


def _conflict_bits(window: ComparisonWindow, union: MergedBlocks) -> Numbers:
    """Return, for each number, a bit per journal that stores more than one payload under the number."""
    bits = np.zeros(len(union.positions), np.uint64)
    for index, held in enumerate(window.records):
        if held is not None and len(held.conflicting):
            bits[np.isin(union.positions, held.conflicting)] |= np.uint64(1 << index)
    return bits


def _insert_lost(union: MergedBlocks, disputed: Mask, low: int, high: int, lost: list[Numbers]) -> MergedRows:
    owners, agreed = union.owners[low:high], ~disputed[low:high]
    part = MergedBlocks(
        union.positions[low:high],
        owners,
        union.rows.take(slice(low, high)),
        union.times[low:high],
        union.differ[low:high],
    )
    if not lost:
        return MergedRows(part.positions, owners, agreed, part)
    numbers = np.concatenate(lost)
    places = part.positions.searchsorted(numbers)
    return MergedRows(
        np.insert(part.positions, places, numbers),
        np.insert(owners, places, -1),
        np.insert(agreed, places, False),
        part,
    )


def _lost_rows(numbers: Numbers) -> MergedRows:
    return MergedRows(numbers, np.full(len(numbers), -1), np.zeros(len(numbers), bool), None)


def _chunks(first: int, last: int) -> Iterator[Numbers]:
    for low in range(first, last + 1, LISTED_AT_ONCE):
        yield np.arange(low, min(low + LISTED_AT_ONCE, last + 1), dtype=np.uint64)


def _join_names(names: Sequence[str], bits: int) -> str:
    return ", ".join(name for index, name in enumerate(names) if bits >> index & 1)
