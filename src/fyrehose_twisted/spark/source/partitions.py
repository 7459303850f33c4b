"""Read partitions: the number ranges of one Spark task."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from pyspark.sql.datasource import InputPartition

from fyrehose_twisted.spark.source.options import ReadOptions
from fyrehose_twisted.spark.source.planning import EpochRange, TaskRange, pack_ranges, task_ranges


class TaskPartition(InputPartition):
    """Ranges read by one task. The ranges are empty if there is nothing to read, since Spark requires a task."""

    def __init__(self, value: tuple[TaskRange, ...]) -> None:
        super().__init__(value)


def make_partitions(lanes: Iterable[EpochRange], options: ReadOptions) -> list[TaskPartition]:
    """Return at least one partition."""
    size = options.rows_per_partition
    found = [one for lane in lanes for one in task_ranges(lane, size)]
    return [TaskPartition(some) for some in pack_ranges(found, size)] or [TaskPartition(())]


def read_partition(partition: InputPartition, columns: Sequence[str], options: ReadOptions) -> Iterator[Any]:
    """Yield the record batches of a partition; none for an empty one."""
    from fyrehose_twisted.spark.source.task_batches import read_ranges

    return read_ranges(partition.value, columns, fail_on_data_loss=options.fail_on_data_loss, openers=options.openers())


@cache
def freeze_modules() -> None:
    """Exempt what is in memory now, mostly imported modules, from garbage collection in this worker of Spark.

    Spark collects garbage after each task of a worker, which takes longer than many a task if it visits all modules.
    """
    gc.freeze()
