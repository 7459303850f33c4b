"""Results of a comparison as Arrow record batches, without per-record objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fyrehose_twisted.journal.block import Numbers
from fyrehose_twisted.spark.verify.compare import Comparison, ConflictingRows, MergedRows
from fyrehose_twisted.spark.verify.parts import ComparisonRange
from fyrehose_twisted.spark.verify.payload_comparison import Bytes, Indices, Mask, PayloadRows
from fyrehose_twisted.spark.verify.runs import FindingRun, ShareEdge

FINDINGS_SCHEMA = (
    "stream string, epoch bigint, kind string, reason string, journal string, first bigint, last bigint, count bigint,"
    " detail string, first_time bigint, last_time bigint"
)
"""Columns of runs and edges. Edges have ``kind`` :data:`EDGE`; only they have times, in UTC µs since 1970."""

HEALED_SCHEMA = (
    "stream string, epoch bigint, sequence bigint, received_at timestamp, payload binary, status string, journal string"
)
QUARANTINE_SCHEMA = (
    "stream string, epoch bigint, sequence bigint, journal string, segment string, received_at timestamp,"
    " payload binary"
)

EDGE = "edge"

OK, LOST, QUARANTINED = "ok", "lost", "quarantined"
"""Values of ``status`` in the healed stream."""

BATCH_BYTES = 32 * 2**20
"""Approximate limit of payload bytes in a batch."""


def arrow_schema(ddl: str) -> Any:
    """Convert DDL columns to a :class:`pyarrow.Schema`."""
    import pyarrow

    types = {
        "string": pyarrow.string(),
        "bigint": pyarrow.int64(),
        "timestamp": pyarrow.timestamp("us", "UTC"),
        "binary": pyarrow.binary(),
    }
    columns = (column.split() for column in ddl.split(","))
    return pyarrow.schema([pyarrow.field(name, types[kind]) for name, kind in columns])


def findings_batches(comparison: Comparison) -> Iterator[Any]:
    """Yield the runs and edges of a range as batches with the columns :data:`FINDINGS_SCHEMA`."""
    import pyarrow

    schema = arrow_schema(FINDINGS_SCHEMA)
    for runs in comparison.runs():
        if runs:
            rows = [_finding_row(comparison.part, one) for one in runs]
            columns = [
                pyarrow.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)
            ]
            yield pyarrow.RecordBatch.from_arrays(columns, schema=schema)


def healed_batches(comparison: Comparison) -> Iterator[Any]:
    """Yield the healed stream of a range as batches with the columns :data:`HEALED_SCHEMA`."""
    for rows in comparison.healed():
        for low, high in _batch_bounds(rows):
            yield _healed(comparison.part, rows, low, high)


def quarantine_batches(comparison: Comparison) -> Iterator[Any]:
    """Yield the versions of a range's disputed numbers as batches with the columns :data:`QUARANTINE_SCHEMA`."""
    for versions in comparison.quarantine():
        yield from _quarantined(comparison.part, versions)


def _finding_row(part: ComparisonRange, one: FindingRun | ShareEdge) -> tuple[Any, ...]:
    if isinstance(one, FindingRun):
        return part.stream, part.epoch, *one, None, None
    begin, end = one.first_time, one.last_time
    return part.stream, part.epoch, EDGE, "", one.journal, one.first, one.last, one.records, None, begin, end


def _batch_bounds(rows: MergedRows) -> Iterator[tuple[int, int]]:
    """Split rows into batches of limited size; yield each batch's first row and end (exclusive)."""
    if rows.merged is None:
        yield 0, len(rows.positions)
        return
    sizes = np.zeros(len(rows.positions), np.int64)
    sizes[rows.owners >= 0] = rows.merged.rows.ends - rows.merged.rows.starts
    yield from _size_bounds(sizes * rows.agreed)


def _size_bounds(sizes: Indices) -> Iterator[tuple[int, int]]:
    ends = np.cumsum(sizes)
    low = 0
    while low < len(sizes):
        limit = int(ends[low] - sizes[low]) + BATCH_BYTES
        high = max(low + 1, int(ends.searchsorted(limit, side="right")))
        yield low, high
        low = high


def _healed(part: ComparisonRange, rows: MergedRows, low: int, high: int) -> Any:
    owners, agreed = rows.owners[low:high], rows.agreed[low:high]
    kept = owners >= 0
    count = high - low
    times = np.zeros(count, np.int64)
    starts, ends = np.zeros(count, np.int64), np.zeros(count, np.int64)
    buffers: list[Bytes] = []
    if rows.merged is not None:
        begin = int(np.count_nonzero(rows.owners[:low] >= 0))
        there = slice(begin, begin + int(np.count_nonzero(kept)))
        source = rows.merged.rows.take(there)
        times[kept] = rows.merged.times[there]
        starts[kept], ends[kept] = source.starts, source.ends
        buffers = source.buffers
    ends = np.where(agreed, ends, starts)
    names = [share.location.journal for share in part.shares]
    status = np.where(agreed, 0, np.where(kept, 2, 1)).astype(np.int8)
    return _batch(
        HEALED_SCHEMA,
        part,
        count,
        {
            "sequence": _sequences(part, rows.positions[low:high]),
            "received_at": (times, kept),
            "payload": (PayloadRows(buffers, np.maximum(owners, 0), starts, ends), agreed),
            "status": (status, [OK, LOST, QUARANTINED]),
            "journal": (np.maximum(owners, 0).astype(np.int8), names, agreed),
        },
    )


def _quarantined(part: ComparisonRange, versions: Sequence[ConflictingRows]) -> Iterator[Any]:
    blocks = [version.block for version in versions]
    which = np.repeat(np.arange(len(versions)), [len(version.rows) for version in versions])
    rows = np.concatenate([version.rows for version in versions])
    positions = np.concatenate([version.block.positions[version.rows] for version in versions])
    order = np.lexsort((which, positions))
    which, rows, positions = which[order], rows[order], positions[order]
    own = [PayloadRows.of(block) for block in blocks]
    starts, ends = _pick([one.starts for one in own], which, rows), _pick([one.ends for one in own], which, rows)
    times = _pick([block.times for block in blocks], which, rows)
    shares = np.array([version.share_index for version in versions], np.int8)
    names = [share.location.journal for share in part.shares]
    segments = sorted({version.segment for version in versions})
    places = np.array([segments.index(version.segment) for version in versions], np.int32)
    known = np.array([version.segment != "" for version in versions])
    buffers = [one.buffers[0] for one in own]
    for low, high in _size_bounds(ends - starts):
        here = which[low:high]
        yield _batch(
            QUARANTINE_SCHEMA,
            part,
            high - low,
            {
                "sequence": _sequences(part, positions[low:high]),
                "journal": (shares[here], names),
                "segment": (places[here], segments, known[here]),
                "received_at": (times[low:high], np.ones(high - low, bool)),
                "payload": (PayloadRows(buffers, here, starts[low:high], ends[low:high]), np.ones(high - low, bool)),
            },
        )


def _pick(columns: Sequence[Any], which: Indices, rows: Indices) -> Any:
    """Return, for each row, the value of the column with index ``which``."""
    firsts = np.cumsum([0, *map(len, columns)])[:-1]
    return np.concatenate(columns)[firsts[which] + rows]


def _sequences(part: ComparisonRange, positions: Numbers) -> Numbers:
    return positions % np.uint64(part.wrap) if part.wrap else positions


def _batch(ddl: str, part: ComparisonRange, count: int, columns: dict[str, Any]) -> Any:
    import pyarrow

    schema = arrow_schema(ddl)
    arrays = []
    for field in schema:
        if field.name == "stream":
            array = pyarrow.DictionaryArray.from_arrays(np.zeros(count, np.int8), [part.stream]).dictionary_decode()
        elif field.name == "epoch":
            array = pyarrow.array(np.full(count, part.epoch, np.int64))
        elif field.name == "sequence":
            array = pyarrow.array(columns["sequence"].astype(np.int64))
        elif field.name == "received_at":
            times, valid = columns["received_at"]
            array = pyarrow.array(times, pyarrow.int64(), mask=None if valid.all() else ~valid).cast(field.type)
        elif field.name == "payload":
            array = _binary(*columns["payload"])
        else:
            codes, values, *given = columns[field.name]
            mask = None if not given or given[0].all() else ~given[0]
            array = pyarrow.DictionaryArray.from_arrays(pyarrow.array(codes, mask=mask), values).dictionary_decode()
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _binary(rows: PayloadRows, valid: Mask) -> Any:
    """Return payloads as an array; invalid ones are null and empty."""
    import pyarrow

    count = len(rows.starts)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(rows.ends - rows.starts, out=offsets[1:])
    bits = None if valid.all() else pyarrow.py_buffer(np.packbits(valid, bitorder="little"))
    return pyarrow.Array.from_buffers(
        pyarrow.binary(), count, [bits, pyarrow.py_buffer(offsets), pyarrow.py_buffer(concat_payloads(rows))]
    )


def concat_payloads(rows: PayloadRows) -> Any:
    """Concatenate the bytes of all rows. Adjacent rows are copied as one piece; a single piece is not copied."""
    filled = np.flatnonzero(rows.ends > rows.starts)
    if not len(filled):
        return b""
    starts, ends = rows.starts[filled], rows.ends[filled]
    which = np.zeros(len(filled), np.int64) if rows.buffer_indices is None else rows.buffer_indices[filled]
    cuts = np.flatnonzero((starts[1:] != ends[:-1]) | (which[1:] != which[:-1])) + 1
    lows, highs = np.append(0, cuts), np.append(cuts, len(filled)) - 1
    columns = (which[lows], starts[lows], ends[highs])
    pieces = [
        rows.buffers[buffer][start:end]
        for buffer, start, end in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return pieces[0] if len(pieces) == 1 else b"".join([piece.data for piece in pieces])
