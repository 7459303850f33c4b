"""Long gaps in a stream, which get rows only for their first and last number."""

from __future__ import annotations

from fyrehose_twisted.interfaces import IJournalReader

GAP_ROWS = 1_000_000
"""A gap of more numbers is a jump in the numbering, and gets rows only for its first and last number."""


def is_long(first: int, last: int) -> bool:
    """Return whether a gap gets rows only for its first and last number."""
    return last - first >= GAP_ROWS


def long_gaps(reader: IJournalReader, epoch: int, first: int, last: int, next: int) -> list[tuple[int, int]]:
    """Return the gaps of more than :data:`GAP_ROWS` numbers that overlap ``first`` to ``last``.

    A gap that extends further than that beyond the range is truncated.

    :param next: position at which the search ends, even if a gap continues.
    """
    bounds = reader.bounds(epoch)
    assert bounds is not None, epoch
    low, high = max(bounds.first, first - GAP_ROWS - 1), min(next - 1, last + GAP_ROWS + 1)
    if high - low < GAP_ROWS:
        return []
    gaps = reader.losses(epoch, low, high)
    return [(begin, end) for begin, end in gaps if is_long(begin, end) and begin <= last and end >= first]
