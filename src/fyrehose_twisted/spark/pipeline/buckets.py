"""Buckets, the units in which silver is rewritten: a million numbers of one epoch each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import groupby
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBERS = 1_000_000
"""Numbers per bucket."""

EDGES = (
    "stream STRING, epoch BIGINT, bucket BIGINT, lowest BIGINT, highest BIGINT, first_present BIGINT,"
    " first_at TIMESTAMP, last_present BIGINT, last_at TIMESTAMP, hours ARRAY<STRING>, first_batch BIGINT,"
    " last_batch BIGINT, numbers BIGINT, lost BIGINT, quarantined BIGINT"
)
"""Columns of the bucket index, which avoids reading adjacent buckets. They give the range of the bucket's numbers; the
range of the numbers that some journal has, with their times; the gold partitions it contributes to; the bronze batches
it derives from; and its counts of numbers."""

PARTITIONS = ("stream", "epoch", "bucket")


class Bucket(NamedTuple):
    """Bucket number ``bucket`` of an epoch: a million numbers from ``bucket`` million on."""

    stream: str
    epoch: int
    bucket: int


def with_bucket(rows: DataFrame) -> DataFrame:
    """Add the column ``bucket``, derived from ``sequence``."""
    from pyspark.sql import functions as fn

    return rows.withColumn("bucket", fn.expr(f"sequence div {NUMBERS}"))


def among_last(count: int) -> Column:
    """Build the condition that a row has one of the last ``count`` numbers of its bucket."""
    from pyspark.sql import functions as fn

    return fn.col("sequence") >= (fn.col("bucket") + 1) * NUMBERS - count


def in_buckets(buckets: Iterable[Bucket], *, by_sequence: bool = False) -> Column:
    """Build the condition that a row is in one of ``buckets``.

    :param by_sequence: use ranges of ``sequence``, for rows without a column ``bucket``. Spark skips Parquet files by
        such ranges.
    """
    from pyspark.sql import functions as fn

    conditions = [fn.lit(False)]
    for (stream, epoch), group in groupby(sorted(set(buckets)), lambda bucket: bucket[:2]):
        numbers = [one.bucket for one in group]
        where = (fn.col("stream") == stream) & (fn.col("epoch") == epoch)
        if by_sequence:
            sequence = fn.col("sequence")
            inside = [(sequence >= low * NUMBERS) & (sequence < (high + 1) * NUMBERS) for low, high in _runs(numbers)]
            conditions.append(where & _any(inside))
        else:
            conditions.append(where & fn.col("bucket").isin(numbers))
    return _any(conditions)


def bucket_edges(silver: DataFrame, window: str) -> DataFrame:
    """Compute the columns :data:`EDGES` of each bucket, except for the batches.

    :param window: length of a gold window.
    """
    from pyspark.sql import functions as fn

    from fyrehose_twisted.spark.pipeline.gold import hour_of

    present = fn.col("status") != "lost"
    number, at = fn.when(present, fn.col("sequence")), fn.col("received_at")
    hour = hour_of(at, window)
    return silver.groupBy(*PARTITIONS).agg(
        fn.min("sequence").alias("lowest"),
        fn.max("sequence").alias("highest"),
        fn.min(number).alias("first_present"),
        fn.min_by(at, number).alias("first_at"),
        fn.max(number).alias("last_present"),
        fn.max_by(at, number).alias("last_at"),
        fn.sort_array(fn.collect_set(hour)).alias("hours"),
        fn.count("*").alias("numbers"),
        fn.count_if(fn.col("status") == "lost").alias("lost"),
        fn.count_if(fn.col("status") == "quarantined").alias("quarantined"),
    )


def _runs(numbers: list[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return runs


def _any(conditions: list[Column]) -> Column:
    return reduce(or_, conditions)
