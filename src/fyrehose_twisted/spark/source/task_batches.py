"""Arrow record batches of a Spark task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from fyrehose_twisted.journal.arrow import batches as arrow
from fyrehose_twisted.journal.arrow.batches import RecordRange
from fyrehose_twisted.sealing.opener import PayloadOpener
from fyrehose_twisted.spark.source.journal_locations import reader_reaching
from fyrehose_twisted.spark.source.key_column import KEY, stored_columns, with_keys
from fyrehose_twisted.spark.source.opened_batches import open_batches
from fyrehose_twisted.spark.source.planning import TaskRange


def read_ranges(
    task_ranges: Iterable[TaskRange],
    columns: Sequence[str],
    *,
    fail_on_data_loss: bool = True,
    openers: Mapping[str, PayloadOpener] = MappingProxyType({}),
) -> Iterator[Any]:
    """Yield the rows of several ranges in turn; see :func:`read_range`.

    :param openers: openers of the sealed streams.
    """
    for part in task_ranges:
        rows = read_range(part, stored_columns(columns), fail_on_data_loss=fail_on_data_loss)
        opener = openers.get(part.location.stream)
        if opener is not None:
            rows = open_batches(rows, opener)
        yield from rows if KEY not in columns else with_keys(rows, columns, part.location.stream)


def read_range(task_range: TaskRange, columns: Sequence[str], *, fail_on_data_loss: bool = True) -> Iterator[Any]:
    """Yield the rows of a range: see :func:`fyrehose_twisted.journal.arrow.batches.batches`.

    :raises JournalError: also if the journal ends before the range does.
    """
    reader = reader_reaching(task_range.location, task_range.epoch, task_range.last + 1)
    span = RecordRange(
        reader,
        task_range.epoch,
        task_range.first,
        task_range.last,
        task_range.next,
        task_range.location.journal,
        release=True,
    )
    return arrow.batches(span, columns, fail_on_data_loss=fail_on_data_loss)
