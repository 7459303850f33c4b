"""Columnar conversion of journal blocks to Arrow record batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IJournalReader, ISegmentReader
from fyrehose_twisted.journal.arrow.columns import arrow_column, arrow_payloads, arrow_times
from fyrehose_twisted.journal.arrow.gaps import is_long, long_gaps
from fyrehose_twisted.journal.arrow.parquet import split_block
from fyrehose_twisted.journal.arrow.schema import LOST, OK, arrow_schema, check_columns
from fyrehose_twisted.journal.block import Block, Numbers, join_blocks
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.endings import blocking_damage, lost_epoch
from fyrehose_twisted.journal.errors import Damage, JournalDamaged, JournalError, NotInJournal
from fyrehose_twisted.journal.format.segment import Projection

BATCH_ROWS, BATCH_BYTES = 65_536, 16 * 2**20
"""Rows, or bytes of payload, after which a batch is yielded. One batch per frame would cost several times as much."""

PIECE_BYTES = 2**28
"""Bytes of payload in one array, so that concatenated arrays stay below the 2**31 bytes of Arrow offsets."""

_locks: WeakKeyDictionary[IJournalReader, Lock] = WeakKeyDictionary()
"""Lock of each journal, held while one of its tables is read."""


class RecordRange(NamedTuple):
    """Numbers ``first`` to ``last`` of an epoch of a journal, both inclusive."""

    reader: IJournalReader
    epoch: int
    first: int
    last: int
    next: int
    """End of the whole read, up to which gaps are examined, so that rows do not depend on later losses."""
    journal: str = ""
    """Value of the column ``journal``."""
    release: bool = False
    """Whether to close the files of the reader after the range."""


def to_arrow(
    reader: IJournalReader,
    columns: Sequence[str],
    epoch: int | None,
    ends: tuple[int | None, int | None],
    *,
    fail_on_data_loss: bool,
) -> Any:
    """Return the records below the watermarks of a journal.

    See :meth:`~fyrehose_twisted.journal.arrow.tabular.Tabular.to_arrow`.
    """
    names, (first, last) = check_columns(columns), ends
    epochs = reader.epochs() if epoch is None else [epoch]
    if epoch is None and len(epochs) > 1 and ends != (None, None):
        raise ConfigurationError(f"{reader.stream} has epochs {', '.join(map(str, epochs))}; select one with epoch=")
    if fail_on_data_loss and last is None:
        for damage in [*map(partial(blocking_damage, reader), epochs), lost_epoch(reader)]:
            if damage is not None:
                raise JournalDamaged(damage)
    spans = []
    for current in epochs:
        bounds: Bounds | None = reader.bounds(current)
        if bounds is None:
            continue
        low = bounds.first if first is None else first
        high = bounds.next - 1 if last is None else min(last, bounds.next - 1)
        if low <= high:
            spans.append(RecordRange(reader, current, low, high, bounds.next))
    found = (batch for span in spans for batch in batches(span, names, fail_on_data_loss=fail_on_data_loss))
    return pyarrow.RecordBatchReader.from_batches(arrow_schema(names), _serialize(found, _lock_of(reader)))


def _lock_of(reader: IJournalReader) -> Lock:
    found: Lock = _locks.setdefault(reader, Lock())
    return found


def _serialize(found: Iterator[Any], lock: Lock) -> Iterator[Any]:
    """Yield the batches, holding the lock for each one. A database may read two tables in two threads."""
    while True:
        with lock:
            batch = next(found, None)
        if batch is None:
            return
        yield batch


def batches(span: RecordRange, columns: Sequence[str], *, fail_on_data_loss: bool = True) -> Iterator[Any]:
    """Yield the rows of a range as record batches, in order, with one row for each number.

    Numbers without a record have ``status`` ``lost``. A gap of more than
    :data:`~fyrehose_twisted.journal.arrow.gaps.GAP_ROWS` numbers gets rows only for its first and last number. With the
    column ``segment``, rows are as stored: a number that is stored twice has two rows, and overlapping rows are not in
    order. Without the column ``payload``, payloads are not read, so damage in them is not detected.

    :param fail_on_data_loss: whether to raise errors for damage and for records removed by retention. Otherwise they
        are returned as lost.
    :raises JournalDamaged: if a part cannot be read.
    :raises NotInJournal: if retention has removed part of the range.
    :raises JournalError: if files of the journal have disappeared.
    """
    rows = _RangeRows(span, columns, fail_on_data_loss)
    waiting: list[_RangePiece] = []
    count = size = 0
    try:
        for piece in rows.run():
            waiting.append(piece)
            count, size = count + len(piece.block or piece.batch), size + piece.size
            if count >= BATCH_ROWS or size >= BATCH_BYTES:
                yield rows.batches.joined(waiting)
                waiting, count, size = [], 0, 0
        if waiting:
            yield rows.batches.joined(waiting)
    finally:
        rows.close()


class _RangePiece(NamedTuple):
    """Rows of a range: either a block to be combined with others, or a finished batch."""

    block: Block | None = None
    segment: str = ""
    batch: Any = None

    @property
    def size(self) -> int:
        """Bytes of payload."""
        return int(self.block.offsets[-1]) - int(self.block.offsets[0]) if self.block else self.batch.nbytes


class RecordBatchBuilder:
    """Builder of record batches from the records of one journal.

    :param columns: names of :data:`~fyrehose_twisted.journal.arrow.schema.COLUMNS`.
    """

    def __init__(self, part: RecordRange, columns: Sequence[str]) -> None:
        self.schema = arrow_schema(columns)
        self._columns = columns
        self._stream, self._journal = part.reader.stream, part.journal
        self._epoch, self._wrap = part.epoch, part.reader.wrap
        self._constants: dict[object, Any] = {}

    def joined(self, parts: list[_RangePiece]) -> Any:
        """Combine all rows into one batch. Constant columns are not copied."""
        combined = []
        for segment, same in groupby(parts, key=lambda part: part.segment if part.block is not None else None):
            if segment is None:
                combined += [part.batch for part in same]
            else:
                blocks = [part.block for part in same if part.block is not None]
                combined.append(self.held(join_blocks(blocks, payload="payload" in self._columns), segment))
        return combined[0] if len(combined) == 1 else pyarrow.concat_batches(combined)

    def held(self, block: Block, segment: str = "") -> Any:
        """Return a batch of the records of a block, sharing its memory."""
        return self._batch(len(block), block.sequences, segment, OK, block)

    def lost(self, positions: Numbers) -> Any:
        """Return a batch with a row for each lost number."""
        sequences = positions % np.uint64(self._wrap) if self._wrap else positions
        return self._batch(len(positions), sequences, "", LOST, None)

    def _batch(self, count: int, sequences: Numbers, segment: str, status: str, block: Block | None) -> Any:
        arrays = []
        for name in self._columns:
            match name:
                case "stream":
                    arrays.append(self._text(self._stream, count))
                case "epoch":
                    arrays.append(self._constant(pyarrow.scalar(self._epoch, pyarrow.int64()), count))
                case "sequence":
                    arrays.append(arrow_column(pyarrow.int64(), count, sequences.view(np.int64)))
                case "received_at":
                    arrays.append(arrow_times(count, block))
                case "payload":
                    arrays.append(arrow_payloads(count, block))
                case "status":
                    arrays.append(self._text(status, count))
                case "journal":
                    arrays.append(self._text(self._journal, count))
                case _:
                    arrays.append(self._text(segment or None, count))
        return pyarrow.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _text(self, value: str | None, count: int) -> Any:
        return self._constant(pyarrow.scalar(value, pyarrow.string()), count)

    def _constant(self, value: Any, count: int) -> Any:
        known = self._constants.get(value)
        if known is None or len(known) < count:
            known = self._constants[value] = pyarrow.repeat(value, max(count, BATCH_ROWS))
        return known.slice(0, count)


class _RangeRows:
    """Generator of the rows of one range, in pieces."""

    def __init__(self, part: RecordRange, columns: Sequence[str], fail_on_data_loss: bool) -> None:
        self._part, self._fail = part, fail_on_data_loss
        self._reader = part.reader
        self._name = part.journal or part.reader.stream
        self.batches = RecordBatchBuilder(part, columns)
        self._raw = "segment" in columns
        self._take = (
            Projection.ALL
            if "payload" in columns
            else Projection.TIMES
            if "received_at" in columns
            else Projection.NUMBERS
        )
        self._long = long_gaps(self._reader, *part[1:5])
        self._held = 0

    def run(self) -> Iterator[_RangePiece]:
        """Yield the pieces."""
        at, last = self._part.first, self._part.last
        on_damage = None if self._fail else _ignore_damage
        while at <= last:
            first = self._first_retained(at)
            yield from self._dropped(at, min(first - 1, last))
            at = first
            try:
                for rows, end in self._windows(at, on_damage):
                    yield from rows
                    at = end + 1
                break
            except NotInJournal:
                if self._fail:
                    raise
                if hasattr(self._reader, "refresh"):
                    self._reader.refresh()  # Retention has removed some of the range.
        yield from self._lost(at, last)
        self._check_lost()

    def close(self) -> None:
        """Close files if requested, as a worker that reads many journals cannot keep all files open."""
        if self._part.release and ISegmentReader.providedBy(self._reader):
            ISegmentReader(self._reader).close()

    def _first_retained(self, first: int) -> int:
        bounds = self._reader.bounds(self._part.epoch)
        kept = self._part.last + 1 if bounds is None else bounds.first
        if first < kept and self._fail:
            raise NotInJournal(f"{first} of epoch {self._part.epoch} is no longer kept by {self._name}")
        return max(first, kept)

    def _check_lost(self) -> None:
        """Check that all rows returned as lost are declared lost. Otherwise files have disappeared."""
        part, bounds = self._part, self._reader.bounds(self._part.epoch)
        missing = part.last - part.first + 1 - self._held
        if not (self._fail and missing) or bounds is None or bounds.first > part.first:
            return
        losses = self._reader.losses(part.epoch, part.first, part.last)
        missing -= sum(high - low + 1 for low, high in losses)
        if missing > 0:
            raise JournalError(
                f"{self._name} now lacks {missing} of the records {part.first} to {part.last} of epoch {part.epoch} of"
                f" {self._reader.stream}, which it held before; run `fyrehose journal check`, or continue with"
                " failOnDataLoss=false (or fail_on_data_loss=False), which returns them with status lost"
            )

    def _windows(
        self, at: int, on_damage: Callable[[Damage], object] | None
    ) -> Iterator[tuple[list[_RangePiece], int]]:
        """Yield the rows of each window, including lost numbers, and the last position of the window."""
        part = self._part
        if self._raw:
            for window in self._reader.stored(part.epoch, at, part.last, on_damage, projection=self._take):
                held = np.unique(np.concatenate([stored.block.positions for stored in window]))
                self._held += len(held)
                rows = [
                    _RangePiece(block, stored.segment)
                    for stored in window
                    for block in split_block(stored.block, PIECE_BYTES)
                ]
                inside = self._lost_inside(held)
                if len(inside):
                    rows.append(_RangePiece(batch=self.batches.lost(inside)))
                yield [*self._lost(at, int(held[0]) - 1), *rows], int(held[-1])
                at = int(held[-1]) + 1
            return
        for block in self._read(at, on_damage):
            self._held += len(block)
            rows = [_RangePiece(piece) for piece in split_block(block, PIECE_BYTES)]
            inside = self._lost_inside(block.positions)
            if len(inside):
                batch = self.batches.joined([*rows, _RangePiece(batch=self.batches.lost(inside))])
                # Sort by position, as sequence numbers may wrap.
                order = np.concatenate([block.positions, inside]).argsort(kind="stable")
                rows = [_RangePiece(batch=batch.take(pyarrow.array(order)))]
            yield [*self._lost(at, block.first - 1), *rows], block.last
            at = block.last + 1

    def _read(self, at: int, on_damage: Callable[[Damage], object] | None) -> Iterator[Block]:
        part, reader = self._part, self._reader
        found: Iterator[Block]
        if ISegmentReader.providedBy(reader):
            found = ISegmentReader(reader).read(part.epoch, at, part.last, on_damage, projection=self._take)
        else:
            found = reader.read(part.epoch, at, part.last, on_damage)  # A remote reader has no projections.
        return found

    def _lost_inside(self, positions: Numbers) -> Numbers:
        """Return the lost numbers between ``positions`` that get a row, unordered."""
        if int(positions[-1]) - int(positions[0]) == len(positions) - 1:
            return _NONE
        jumps = np.flatnonzero(np.diff(positions) != 1)
        lows, highs = positions[jumps] + np.uint64(1), positions[jumps + 1] - np.uint64(1)
        is_long = np.zeros(len(jumps), bool)
        for low, high in self._long:
            is_long |= (lows <= high) & (highs >= low)
        found = [
            numbers
            for low, high in zip(lows[is_long].tolist(), highs[is_long].tolist(), strict=True)
            for numbers in self._listed(low, high)
        ]
        return np.concatenate([_numbers(lows[~is_long], highs[~is_long]), *found])

    def _dropped(self, first: int, last: int) -> Iterator[_RangePiece]:
        """Yield rows for numbers that retention has removed."""
        if is_long(first, last):
            yield _RangePiece(batch=self.batches.lost(np.array([first, last], np.uint64)))
        else:
            yield from self._lost(first, last)

    def _lost(self, first: int, last: int) -> Iterator[_RangePiece]:
        """Yield rows for the lost numbers from ``first`` to ``last``."""
        for numbers in self._listed(first, last):
            yield _RangePiece(batch=self.batches.lost(numbers))

    def _listed(self, first: int, last: int) -> Iterator[Numbers]:
        """Yield the numbers from ``first`` to ``last`` that get a row, in chunks."""
        for low, high in self._long:
            if first <= high and last >= low:
                yield from _chunks(first, min(last, low - 1))
                ends = sorted({end for end in (low, high) if first <= end <= last})
                if ends:
                    yield np.array(ends, np.uint64)
                first = high + 1
        yield from _chunks(first, last)


_NONE: Numbers = np.array([], np.uint64)


def _chunks(first: int, last: int) -> Iterator[Numbers]:
    for low in range(first, last + 1, BATCH_ROWS):
        yield np.arange(low, min(low + BATCH_ROWS, last + 1), dtype=np.uint64)


def _numbers(lows: Numbers, highs: Numbers) -> Numbers:
    """Return all numbers of the ranges from ``lows`` to ``highs``, inclusive."""
    counts = (highs - lows + np.uint64(1)).astype(np.int64)
    begins = lows - (np.cumsum(counts) - counts).astype(np.uint64)  # Adding the row index gives the number.
    return np.add(np.repeat(begins, counts), np.arange(counts.sum(), dtype=np.uint64), dtype=np.uint64)


def _ignore_damage(damage: Damage) -> None:
    """Ignore damage. The records are then returned as lost."""
