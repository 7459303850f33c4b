"""What a task of Spark reads, as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fyrehose_twisted.journal.arrow import batches as arrow
from fyrehose_twisted.journal.arrow.batches import Span
from fyrehose_twisted.spark.source.journal_locations import reader_up_to
from fyrehose_twisted.spark.source.planning import Range


def batches_of(parts: Iterable[Range], columns: Sequence[str], *, fail_on_data_loss: bool = True) -> Iterator[Any]:
    """Yield what :func:`batches` does of several ranges, one after another."""
    for part in parts:
        yield from batches(part, columns, fail_on_data_loss=fail_on_data_loss)


def batches(part: Range, columns: Sequence[str], *, fail_on_data_loss: bool = True) -> Iterator[Any]:
    """Yield the rows of a range: see :func:`fyrehose_twisted.journal.arrow.batches.batches`.

    :raises JournalError: also if the journal does not reach as far as the range.
    """
    reader = reader_up_to(part.origin, part.epoch, part.last + 1)
    span = Span(reader, part.epoch, part.first, part.last, part.next, part.origin.journal, release=True)
    return arrow.batches(span, columns, fail_on_data_loss=fail_on_data_loss)
