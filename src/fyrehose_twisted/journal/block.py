"""Columnar blocks of records, the form in which journals return them."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, repeat

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.journal.record_columns import RecordColumns
from fyrehose_twisted.record import Record

Numbers = NDArray[np.uint64]
Times = NDArray[np.int64]
Offsets = NDArray[np.uint32]

VECTOR_MINIMUM = 64
"""Number of integers from which on numpy is faster than Python."""

_record: Callable[[tuple[str, int, int, int, bytes]], Record] = partial(tuple.__new__, Record)
"""Creates a record from a tuple in less than half the time of its constructor."""


class Block:
    """Records of one stream and epoch, with strictly ascending positions.

    :ivar positions: position of each record, uint64. A position is the sequence number without its wrap-around.
    :ivar times: receive time of each record, int64, UTC microseconds since 1970.
    :ivar offsets: uint32, one more than records: payload ``i`` is ``payload[offsets[i] : offsets[i + 1]]``.
    :ivar payload: payload bytes of the records, possibly with bytes of other records around them.
    :ivar wrap: modulus of the sequence numbers; 0 if they do not wrap.
    """

    __slots__ = ("epoch", "offsets", "payload", "positions", "stream", "times", "wrap")

    def __init__(
        self,
        stream: str,
        epoch: int,
        positions: Numbers,
        times: Times,
        offsets: Offsets,
        payload: memoryview,
        wrap: int = 0,
    ) -> None:
        self.stream = stream
        self.epoch = epoch
        self.positions = positions
        self.times = times
        self.offsets = offsets
        self.payload = payload
        self.wrap = wrap

    @property
    def first(self) -> int:
        """Position of the first record."""
        return int(self.positions[0])

    @property
    def last(self) -> int:
        """Position of the last record."""
        return int(self.positions[-1])

    @property
    def sequences(self) -> Numbers:
        """Sequence number of each record, uint64."""
        return self.positions % np.uint64(self.wrap) if self.wrap else self.positions

    def payloads(self) -> list[bytes]:
        """Return the payload of each record."""
        if not len(self.positions):
            return []
        first = self.offsets[0]
        bounds = (self.offsets - first if first else self.offsets).tolist()
        data = self.payload[first : self.offsets[-1]].tobytes()  # Slicing bytes is cheaper than slicing a memoryview.
        return [data[start:end] for start, end in pairwise(bounds)]

    def records(self) -> Iterator[Record]:
        """Return an iterator over the records."""
        columns = self.sequences.tolist(), self.times.tolist(), self.payloads()
        return map(_record, zip(repeat(self.stream), repeat(self.epoch), *columns, strict=False))

    def record_columns(self) -> RecordColumns:
        """Return the records as columns of Python objects."""
        columns = self.sequences.tolist(), self.times.tolist(), self.payloads()
        return RecordColumns(self.stream, self.epoch, *columns)

    def within(self, first: int, last: int) -> Block:
        """Return the records at ``first`` to ``last``, inclusive. Payload bytes are shared."""
        lowest, highest, count = self.first, self.last, len(self.positions)
        if lowest >= first and highest <= last:
            return self
        if highest - lowest == count - 1:
            return self.rows(min(max(0, first - lowest), count), min(max(0, last + 1 - lowest), count))
        low, high = self.positions.searchsorted(np.array((first, last + 1), np.uint64)).tolist()
        return self.rows(low, high)

    def rows(self, low: int, high: int) -> Block:
        """Return rows ``low`` to ``high``, exclusive. Payload bytes are shared."""
        return Block(
            self.stream,
            self.epoch,
            self.positions[low:high],
            self.times[low:high],
            self.offsets[low : high + 1],
            self.payload,
            self.wrap,
        )

    def row_of(self, position: int) -> int | None:
        """Return the row of a position, or ``None`` if it is not in the block."""
        row = int(self.positions.searchsorted(np.uint64(position)))
        return row if row < len(self.positions) and int(self.positions[row]) == position else None

    def __len__(self) -> int:
        return len(self.positions)


def merge_blocks(blocks: list[Block]) -> Block:
    """Merge blocks of one stream and epoch by position. At equal positions the record of the latest block wins."""
    positions = np.concatenate([block.positions for block in blocks])
    order = positions.argsort(kind="stable")
    ordered = positions[order]
    kept = np.append(ordered[:-1] != ordered[1:], True)
    order = order[kept]
    starts = np.concatenate([block.offsets[:-1] for block in blocks])[order]
    ends = np.concatenate([block.offsets[1:] for block in blocks])[order]
    offsets = np.zeros(len(order) + 1, np.uint64)
    np.cumsum(ends - starts, dtype=np.uint64, out=offsets[1:])
    # Most records keep their neighbours, so bytes are copied in runs rather than one record at a time.
    # A run does not extend past the end of its block.
    first_rows = np.cumsum([0, *(len(block) for block in blocks)])
    cuts = np.flatnonzero((np.diff(order) != 1) | np.isin(order[1:], first_rows)) + 1
    begins, stops = np.append(0, cuts), np.append(cuts, len(order)) - 1
    which = np.searchsorted(first_rows, order[begins], side="right") - 1
    pieces = [
        blocks[block].payload[start:end]
        for block, start, end in zip(which.tolist(), starts[begins].tolist(), ends[stops].tolist(), strict=True)
    ]
    times = np.concatenate([block.times for block in blocks])[order]
    model = blocks[0]
    payload = memoryview(b"".join(pieces))
    return Block(model.stream, model.epoch, ordered[kept], times, offsets.astype(np.uint32), payload, model.wrap)


def join_blocks(blocks: Sequence[Block], *, payload: bool = True) -> Block:
    """Concatenate consecutive blocks of one stream and epoch.

    :param payload: whether to include the payloads.
    """
    if len(blocks) == 1:
        return blocks[0]
    model = blocks[0]
    positions = np.concatenate([block.positions for block in blocks])
    times = np.concatenate([block.times for block in blocks])
    if not payload:
        empty = np.zeros(len(positions) + 1, np.uint32)
        return Block(model.stream, model.epoch, positions, times, empty, memoryview(b""), model.wrap)
    starts = [int(block.offsets[0]) for block in blocks]
    ends = [int(block.offsets[-1]) for block in blocks]
    offsets = np.empty(len(positions) + 1, np.uint32)
    offsets[0] = row = size = 0
    for block, start, end in zip(blocks, starts, ends, strict=True):
        np.add(block.offsets[1:], np.uint32(size - start & 0xFFFFFFFF), out=offsets[row + 1 : row + 1 + len(block)])
        row, size = row + len(block), size + end - start
    data = b"".join([block.payload[start:end] for block, start, end in zip(blocks, starts, ends, strict=True)])
    return Block(model.stream, model.epoch, positions, times, offsets, memoryview(data), model.wrap)


def position_ranges(positions: Numbers) -> list[tuple[int, int]]:
    """Return ascending positions as inclusive ranges."""
    ends = np.flatnonzero(np.diff(positions) != 1)
    firsts = positions[np.append(0, ends + 1)].tolist()
    lasts = positions[np.append(ends, len(positions) - 1)].tolist()
    return list(zip(firsts, lasts, strict=True))


def integer_ranges(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending positions, possibly none, as inclusive ranges."""
    if not positions:
        return []
    if positions[-1] - positions[0] == len(positions) - 1:
        return [(positions[0], positions[-1])]
    return position_ranges(np.array(positions, np.uint64))


def integer_limits(numbers: Sequence[int]) -> tuple[int, int]:
    """Return the lowest and the highest of one or more numbers. A range has to ascend."""
    if isinstance(numbers, range):
        return numbers[0], numbers[-1]
    if isinstance(numbers, array) and len(numbers) >= VECTOR_MINIMUM:
        values = np.frombuffer(numbers, np.int64)
        return int(values.min()), int(values.max())
    return min(numbers), max(numbers)
