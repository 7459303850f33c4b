"""The memory of blocks as Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow

from fyrehose_twisted.journal.block import Block


def united(blocks: list[Block], with_payload: bool) -> Block:
    """Return the records of blocks that follow one another, without what they hold if that is not wanted."""
    if len(blocks) == 1:
        return blocks[0]
    one = blocks[0]
    positions = np.concatenate([block.positions for block in blocks])
    times = np.concatenate([block.times for block in blocks])
    if not with_payload:
        none = np.zeros(len(positions) + 1, np.uint32)
        return Block(one.stream, one.epoch, positions, times, none, memoryview(b""), one.wrap)
    starts = [int(block.offsets[0]) for block in blocks]
    ends = [int(block.offsets[-1]) for block in blocks]
    offsets = np.empty(len(positions) + 1, np.uint32)
    offsets[0] = row = size = 0
    for block, start, end in zip(blocks, starts, ends, strict=True):
        np.add(block.offsets[1:], np.uint32(size - start & 0xFFFFFFFF), out=offsets[row + 1 : row + 1 + len(block)])
        row, size = row + len(block), size + end - start
    payload = b"".join([block.payload[start:end] for block, start, end in zip(blocks, starts, ends, strict=True)])
    return Block(one.stream, one.epoch, positions, times, offsets, memoryview(payload), one.wrap)


def column(kind: Any, count: int, values: Any) -> Any:
    """Return numbers as an array of that type, which shares their memory."""
    return pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(np.ascontiguousarray(values))])


def times(count: int, block: Block | None) -> Any:
    """Return when the records of a block were received; nulls for ``None``."""
    kind = pyarrow.timestamp("us", "UTC")
    return pyarrow.nulls(count, kind) if block is None else column(kind, count, block.times)


def payloads(count: int, block: Block | None) -> Any:
    """Return what the records of a block hold, which shares their memory; nulls for ``None``."""
    if block is None:
        return pyarrow.nulls(count, pyarrow.binary())
    first, last = int(block.offsets[0]), int(block.offsets[-1])
    offsets = (block.offsets - np.uint32(first) if first else block.offsets).view(np.int32)
    buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(offsets)), pyarrow.py_buffer(block.payload[first:last])]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)
