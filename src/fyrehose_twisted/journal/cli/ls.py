"""Table of the streams, epochs and number ranges that journals hold."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fyrehose_twisted.journal.errors import JournalDamaged
from fyrehose_twisted.journal.format.disk import has_writer
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.tier.directory import tiered_bytes

_RIGHT_ALIGNED = ("epoch", "first", "next", "last", "records", "lost", "missing", "segments", "bytes")


def epoch_rows(reader: JournalReader, path: Path) -> list[dict[str, Any]]:
    """Return one row for each epoch of the journal in directory ``path``.

    Bytes are those of its files; segments in object storage are counted as ``tiered``.
    """
    size = sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    common = {
        "segments": len(reader.segments),
        "bytes": size,
        "tiered": tiered_bytes(path),
        "writer": has_writer(path),
    }
    return [_epoch_row(reader, epoch) | common for epoch in reader.epochs()]


def _epoch_row(reader: JournalReader, epoch: int) -> dict[str, Any]:
    bounds = reader.bounds(epoch)
    assert bounds is not None, epoch
    held, lost = reader.known_ranges(epoch)
    indexes = [segment.frame_indexes[epoch] for segment in reader.segments if epoch in segment.frame_indexes]
    newest = max((frame.newest for index in indexes for frame in index), default=None)
    oldest = None
    if held:
        try:
            record = reader.get(epoch, held.first)
            oldest = None if record is None else record.received_at
        except JournalDamaged:
            pass
    known = bounds.last - bounds.first + 1
    return {
        "stream": reader.stream,
        "epoch": epoch,
        **bounds._asdict(),
        "records": held.count,
        "lost": lost.count,
        "missing": known - held.count - lost.count,
        "oldest": oldest,
        "newest": newest,
    }


def format_journals(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of rows from :func:`epoch_rows`."""
    right_aligned = (*_RIGHT_ALIGNED, *(["tiered"] if any(row["tiered"] for row in rows) else []))
    order = ("stream", *right_aligned, "oldest", "newest", "writer")
    lines = [[name.upper() for name in order]]
    for row in rows:
        shown = row | {name: _format_time(row[name]) for name in ("oldest", "newest")}
        lines.append([_format_cell(shown[name]) for name in order])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(order, line, widths, strict=True)
        aligned = (cell.rjust(width) if name in right_aligned else cell.ljust(width) for name, cell, width in cells)
        yield "  ".join(aligned).rstrip()


def _format_cell(value: object) -> str:
    return "-" if value is None else "yes" if value is True else "no" if value is False else str(value)


def _format_time(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
