"""Zero-copy Arrow arrays over the memory of blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow

from fyrehose_twisted.journal.block import Block


def arrow_column(kind: Any, count: int, values: Any) -> Any:
    """Return numbers as an array of type ``kind`` that shares their memory."""
    return pyarrow.Array.from_buffers(kind, count, [None, pyarrow.py_buffer(np.ascontiguousarray(values))])


def arrow_times(count: int, block: Block | None) -> Any:
    """Return the receive times of a block, or nulls for ``None``."""
    kind = pyarrow.timestamp("us", "UTC")
    return pyarrow.nulls(count, kind) if block is None else arrow_column(kind, count, block.times)


def arrow_payloads(count: int, block: Block | None) -> Any:
    """Return the payloads of a block, sharing its memory, or nulls for ``None``."""
    if block is None:
        return pyarrow.nulls(count, pyarrow.binary())
    first, last = int(block.offsets[0]), int(block.offsets[-1])
    offsets = (block.offsets - np.uint32(first) if first else block.offsets).view(np.int32)
    buffers = [None, pyarrow.py_buffer(np.ascontiguousarray(offsets)), pyarrow.py_buffer(block.payload[first:last])]
    return pyarrow.Array.from_buffers(pyarrow.binary(), count, buffers)
