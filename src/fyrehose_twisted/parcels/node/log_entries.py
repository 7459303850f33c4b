"""Log entries of parcels: their events, and their size in memory."""

from __future__ import annotations

from typing import cast

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry
from fyrehose_twisted.parcels.wire.messages import PublisherRun

ENTRY_OVERHEAD = 400
"""Bytes that an entry counts for in addition to its events."""
EVENT_OVERHEAD = 60
"""Bytes that an event counts for in addition to its data."""


def entry_runs(entry: LogEntry) -> tuple[PublisherRun, ...]:
    """Return the runs of events in an entry; none for other kinds of entries."""
    return cast("tuple[PublisherRun, ...]", entry.content) if entry.kind is EntryKind.DATA else ()


def entry_size(entry: LogEntry) -> int:
    """Return the bytes of memory that an entry counts for."""
    return ENTRY_OVERHEAD + sum(
        sum(map(len, run.events)) + EVENT_OVERHEAD * len(run.events) for run in entry_runs(entry)
    )
