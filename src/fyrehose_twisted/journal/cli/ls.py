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

_RIGHT_ALIGNED = ("epoch", "first", "next", "last", "records", "lost", "missing", "segments", "bytes")


def epoch_rows(reader: JournalReader, path: Path) -> list[dict[str, Any]]:
    """Return what a journal, whose files lie in ``path``, holds: a row for each epoch."""
    size = sum(entry.stat().st_size for entry in os.scandir(path) if entry.is_file())
    about = {"segments": len(reader.segments), "bytes": size, "writer": has_writer(path)}
    return [_epoch_row(reader, epoch) | about for epoch in reader.epochs()]


def _epoch_row(reader: JournalReader, epoch: int) -> dict[str, Any]:
    bounds = reader.bounds(epoch)
    assert bounds is not None, epoch
    held, lost = reader.known_ranges(epoch)
    shelves = [segment.frame_indexes[epoch] for segment in reader.segments if epoch in segment.frame_indexes]
    newest = max((frame.newest for shelf in shelves for frame in shelf), default=None)
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


def format_journals(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of a table of what :func:`epoch_rows` returned."""
    order = ("stream", *_RIGHT_ALIGNED, "oldest", "newest", "writer")
    lines = [[name.upper() for name in order]]
    for row in found:
        shown = row | {name: _time(row[name]) for name in ("oldest", "newest")}
        lines.append([_cell(shown[name]) for name in order])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(order, line, widths, strict=True)
        aligned = (cell.rjust(width) if name in _RIGHT_ALIGNED else cell.ljust(width) for name, cell, width in cells)
        yield "  ".join(aligned).rstrip()


def _cell(value: object) -> str:
    return "-" if value is None else "yes" if value is True else "no" if value is False else str(value)


def _time(microseconds: int | None) -> str | None:
    if microseconds is None:
        return None
    return datetime.fromtimestamp(microseconds // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
