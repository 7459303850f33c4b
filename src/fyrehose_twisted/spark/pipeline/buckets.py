"""Buckets: the parts in which silver is written anew, a million numbers of one epoch each."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import groupby
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NUMBERS = 1_000_000
"""Numbers of a bucket."""

EDGES = (
    "stream STRING, epoch BIGINT, bucket BIGINT, lowest BIGINT, highest BIGINT, first_present BIGINT,"
    " first_at TIMESTAMP, last_present BIGINT, last_at TIMESTAMP, hours ARRAY<STRING>, first_batch BIGINT,"
    " last_batch BIGINT, numbers BIGINT, lost BIGINT, quarantined BIGINT"
)
"""What is remembered of each bucket, so that its neighbours need not be read: the range of its numbers, and of those
that some journal has, with their times; the partitions of gold that it goes into; the batches of bronze it came from;
and how many numbers it has."""

PARTITIONS = ("stream", "epoch", "bucket")


class Bucket(NamedTuple):
    """Numbers from ``bucket`` million on, a million of them, of one epoch."""

    stream: str
    epoch: int
    bucket: int


def with_bucket(rows: DataFrame) -> DataFrame:
    """Return ``rows`` with the column ``bucket``, which is that of their ``sequence``."""
    from pyspark.sql import functions as fn

    return rows.withColumn("bucket", fn.expr(f"sequence div {NUMBERS}"))


def among_last(count: int) -> Column:
    """Return the condition that a row has one of the last ``count`` numbers of its bucket."""
    from pyspark.sql import functions as fn

    return fn.col("sequence") >= (fn.col("bucket") + 1) * NUMBERS - count


def in_buckets(buckets: Iterable[Bucket], *, by_sequence: bool = False) -> Column:
    """Return the condition that a row is in one of these.

    :param by_sequence: for rows that have no column ``bucket``; with ranges of ``sequence``, which Parquet files can be
        skipped by.
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
    """Return what :data:`EDGES` says of each bucket, but for the batches.

    :param window: how long a window of gold is.
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
