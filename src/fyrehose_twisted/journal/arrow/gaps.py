"""Gaps in a stream that are so long that not each of their numbers gets a row."""

from __future__ import annotations

from fyrehose_twisted.interfaces import IJournalReader

GAP_ROWS = 1_000_000
"""A gap of more numbers is a jump of the numbering: it gets rows for its first and its last number only."""


def is_long(first: int, last: int) -> bool:
    """Say whether a gap is so long that it has a row for its first and its last number only."""
    return last - first >= GAP_ROWS


def long_gaps(reader: IJournalReader, epoch: int, first: int, last: int, next: int) -> list[tuple[int, int]]:
    """Return those gaps that reach into ``first`` to ``last`` and have more than :data:`GAP_ROWS` numbers.

    One that reaches further than that beyond the range is given as far as it was looked at.

    :param next: where to end looking, though a gap may go on.
    """
    bounds = reader.bounds(epoch)
    assert bounds is not None, epoch
    low, high = max(bounds.first, first - GAP_ROWS - 1), min(next - 1, last + GAP_ROWS + 1)
    if high - low < GAP_ROWS:
        return []
    gaps = reader.losses(epoch, low, high)
    return [(begin, end) for begin, end in gaps if is_long(begin, end) and begin <= last and end >= first]
