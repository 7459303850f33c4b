"""Size limits of micro-batches."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import NamedTuple, TypeVar

from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.arrow.gaps import GAP_ROWS
from fyrehose_twisted.journal.coverage import Bounds

Key = TypeVar("Key", bound=Hashable)
SAMPLE_RECORDS = 64
"""Number of records sampled to estimate the record size."""


class PendingRange(NamedTuple):
    """Unread numbers of an epoch, from ``first`` to ``next`` (exclusive)."""

    reader: IJournalReader
    epoch: int
    first: int
    next: int


def limit_batches(backlogs: Mapping[Key, PendingRange], rows: int) -> dict[Key, int]:
    """Divide a batch of at most ``rows`` rows among backlogs and return each backlog's end.

    Shares are equal; rows that a short backlog leaves unused go to the others. At least one row is assigned.
    """
    ends = {key: backlog.first for key, backlog in backlogs.items()}
    # Count no further than needed: there may be millions of gaps, and every batch scans them.
    waiting = {key: cut_after(backlog, rows)[1] for key, backlog in backlogs.items()}
    left = max(rows, 1)
    for number, key in enumerate(sorted(waiting, key=lambda key: waiting[key])):
        share = -(-left // (len(waiting) - number))
        ends[key], taken = cut_after(backlogs[key], share)
        left = max(0, left - taken)
        if not left:
            break
    return ends


def count_rows(backlog: PendingRange) -> int:
    """Count the rows of a backlog; a long gap has two."""
    return cut_after(backlog, 2**63)[1]


def cut_after(backlog: PendingRange, rows: int) -> tuple[int, int]:
    """Return the end that limits a backlog to ``rows`` rows, and the number of rows before that end.

    A gap is never split: it belongs to the batch in which it begins, which may exceed ``rows`` by the gap's rows.
    """
    reader, epoch, at, next = backlog
    bounds: Bounds | None = reader.bounds(epoch)
    assert bounds is not None, backlog
    taken = 0
    for first, last in reader.held(epoch, max(at, bounds.first), next - 1):
        taken += _count_gap_rows(first - at)
        at = first
        if taken >= rows:
            return at, taken
        some = min(last - first + 1, rows - taken)
        at, taken = first + some, taken + some
        if taken >= rows:
            return at, taken
    return next, taken + _count_gap_rows(next - at)


def estimate_bytes(backlog: PendingRange) -> int:
    """Estimate the payload bytes of a backlog from the record size at its beginning."""
    reader, epoch, first, next = backlog
    bounds: Bounds | None = reader.bounds(epoch)
    assert bounds is not None, backlog
    for low, high in reader.held(epoch, max(first, bounds.first), next - 1):
        for block in reader.read(epoch, low, min(high, low + SAMPLE_RECORDS - 1), lambda damage: None):
            size = int(block.offsets[-1]) - int(block.offsets[0])
            return count_rows(backlog) * size // len(block)
    return 0


def _count_gap_rows(numbers: int) -> int:
    return numbers if numbers <= GAP_ROWS else 2
