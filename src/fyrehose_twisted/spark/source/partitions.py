"""Partitions of a read: the ranges of numbers that one task of Spark reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from fyrehose_twisted.spark.source.options import ReadOptions
from fyrehose_twisted.spark.source.planning import Lane, Range, packed, ranges


class Part(InputPartition):
    """Ranges that one task reads; none where there is nothing to read, since Spark wants a task all the same."""

    def __init__(self, value: tuple[Range, ...]) -> None:
        super().__init__(value)


def parts_of(lanes: Iterable[Lane], options: ReadOptions) -> list[Part]:
    """Return what tasks read, one at least."""
    size = options.rows_per_partition
    found = [one for lane in lanes for one in ranges(lane, size)]
    return [Part(some) for some in packed(found, size)] or [Part(())]


def read_part(partition: InputPartition, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
    """Yield the record batches of a partition; none for an empty one."""
    from fyrehose_twisted.spark.source.task_batches import batches_of

    return batches_of(partition.value, columns, fail_on_data_loss=options.fail_on_data_loss)
