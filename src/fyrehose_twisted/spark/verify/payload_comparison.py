"""Vectorized byte-for-byte comparison of payloads."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fyrehose_twisted.journal.block import Block, Numbers

Bytes = NDArray[np.uint8]
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]

CHUNK_BYTES = 2**18
"""Bytes compared at a time; intermediate results fit the CPU cache."""


class PayloadRows(NamedTuple):
    """Payloads in several buffers."""

    buffers: list[Bytes]
    buffer_indices: Indices | None
    """Index of each payload's buffer; ``None`` if there is one buffer."""
    starts: Indices
    ends: Indices

    @classmethod
    def of(cls, block: Block) -> PayloadRows:
        """Return the payloads of a block."""
        offsets = block.offsets.astype(np.int64)
        return cls([np.frombuffer(block.payload, np.uint8)], None, offsets[:-1], offsets[1:])

    def take(self, rows: Any) -> PayloadRows:
        """Return the payloads of the given rows."""
        which = None if self.buffer_indices is None else self.buffer_indices[rows]
        return PayloadRows(self.buffers, which, self.starts[rows], self.ends[rows])


def equal_blocks(one: Block, other: Block) -> bool:
    """Return whether two blocks have the same numbers and payloads."""
    if len(one) != len(other) or one.first != other.first or one.last != other.last:
        return False
    dense = one.last - one.first == len(one) - 1
    if not dense and not np.array_equal(one.positions, other.positions):
        return False
    low, start = int(one.offsets[0]), int(other.offsets[0])
    size = int(one.offsets[-1]) - low
    if size != int(other.offsets[-1]) - start:
        return False
    if low == start:
        if not np.array_equal(one.offsets, other.offsets):
            return False
    elif not np.array_equal(one.offsets - one.offsets[0], other.offsets - other.offsets[0]):
        return False
    payloads = (np.frombuffer(block.payload, np.uint8) for block in (one, other))
    here, there = (payload[begin : begin + size] for payload, begin in zip(payloads, (low, start), strict=True))
    return equal_bytes(here, there)


def equal_bytes(one: Bytes, other: Bytes) -> bool:
    """Return whether two arrays of equal length are equal."""
    size = len(one)
    if size <= CHUNK_BYTES:
        return bool((one == other).all())
    return all(
        bool((one[low : low + CHUNK_BYTES] == other[low : low + CHUNK_BYTES]).all())
        for low in range(0, size, CHUNK_BYTES)
    )


def differing_rows(one: PayloadRows, other: PayloadRows) -> Mask:
    """Return a mask of the rows whose payloads differ."""
    lengths = one.ends - one.starts
    bad: Mask = lengths != other.ends - other.starts
    if not len(bad):
        return bad
    # Rows that are adjacent in both are compared as one stretch.
    cut = (one.starts[1:] != one.ends[:-1]) | (other.starts[1:] != other.ends[:-1]) | bad[1:] | bad[:-1]
    for rows in (one, other):
        if rows.buffer_indices is not None:
            cut |= rows.buffer_indices[1:] != rows.buffer_indices[:-1]
    cuts = np.flatnonzero(cut) + 1
    lows, highs = np.append(0, cuts), np.append(cuts, len(bad)) - 1
    columns = [one.starts[lows], one.ends[highs], other.starts[lows], other.ends[highs]]
    columns += [
        rows.buffer_indices[lows] if rows.buffer_indices is not None else np.zeros_like(lows) for rows in (one, other)
    ]
    for low, high, start, end, begin, stop, here, there in zip(
        *(column.tolist() for column in (lows, highs, *columns)), strict=True
    ):
        if bad[low]:
            continue
        x, y = one.buffers[here][start:end], other.buffers[there][begin:stop]
        if low == high:
            bad[low] = not equal_bytes(x, y)
        elif not equal_bytes(x, y):
            filled = low + np.flatnonzero(lengths[low : high + 1])
            bad[filled] = np.logical_or.reduceat(x != y, one.starts[filled] - start)
    return bad


class MergedBlocks(NamedTuple):
    """Union of several journals' numbers, with the journals that differ.

    A number's reference is the version of the first journal that holds it.
    """

    positions: Numbers
    owners: Indices
    """Index of the block that holds each reference."""
    rows: PayloadRows
    """Payloads of the references; its ``buffer_indices`` are ``owners``."""
    times: NDArray[np.int64]
    differ: Numbers
    """A bit per block whose payload differs from the reference's."""


def merge_blocks(blocks: list[Block | None]) -> MergedBlocks:
    """Merge blocks; ``None`` stands for an empty block. At least one block must not be empty."""
    buffers = [_EMPTY if block is None else np.frombuffer(block.payload, np.uint8) for block in blocks]
    union: MergedBlocks | None = None
    for index, block in enumerate(blocks):
        if block is None:
            continue
        own = PayloadRows.of(block)
        if union is None:
            owners = np.full(len(block), index)
            rows = PayloadRows(buffers, owners, own.starts, own.ends)
            union = MergedBlocks(block.positions, owners, rows, block.times, np.zeros(len(block), np.uint64))
        else:
            union = _merge_block(union, index, block, own)
    assert union is not None
    return union


_EMPTY = np.zeros(0, np.uint8)


def _merge_block(union: MergedBlocks, index: int, block: Block, own: PayloadRows) -> MergedBlocks:
    positions, owners, rows, times, differ = union
    at = positions.searchsorted(block.positions)
    found = positions[np.minimum(at, len(positions) - 1)] == block.positions
    bad = differing_rows(rows.take(at[found]), own.take(found))
    if bad.any():
        differ[at[found][bad]] |= np.uint64(1 << index)
    if found.all():
        return union
    new = np.flatnonzero(~found)
    places = at[new]
    owners = np.insert(owners, places, index)
    starts, ends = np.insert(rows.starts, places, own.starts[new]), np.insert(rows.ends, places, own.ends[new])
    return MergedBlocks(
        np.insert(positions, places, block.positions[new]),
        owners,
        PayloadRows(rows.buffers, owners, starts, ends),
        np.insert(times, places, block.times[new]),
        np.insert(differ, places, np.uint64(0)),
    )
