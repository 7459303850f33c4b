"""Silver table: each number once, in order, merged from all journals, with disputed numbers quarantined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fyrehose_twisted.journal.arrow.schema import LOST, OK
from fyrehose_twisted.repeats import WINDOW
from fyrehose_twisted.spark.pipeline.buckets import PARTITIONS, among_last, with_bucket
from fyrehose_twisted.spark.pipeline.envelopes import unwrapped, with_repeats
from fyrehose_twisted.spark.pipeline.json_payloads import parse_schema, with_messages
from fyrehose_twisted.spark.pipeline.json_payloads import sent_time_micros as sent_micros

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

QUARANTINED = "quarantined"

SILVER = (
    "stream STRING, epoch BIGINT, bucket BIGINT, sequence BIGINT, received_at TIMESTAMP, payload BINARY,"
    " status STRING, publisher STRING, counter BIGINT, copies INT, late_copies INT, latency_us BIGINT,"
    " `repeat` BOOLEAN, bad_json STRING"
)
"""Columns. If payloads are parsed as JSON, ``message`` precedes ``bad_json``."""

QUARANTINE = (
    "stream STRING, epoch BIGINT, bucket BIGINT, sequence BIGINT, journal STRING, segment STRING,"
    " received_at TIMESTAMP, payload BINARY"
)

JUMP_US = 3_600_000_000
NEIGHBOURS = 16
"""A record received more than an hour before each of the :data:`NEIGHBOURS` numbers before it had a wrong clock.
It never makes another record count as late."""


def silver(
    bronze: DataFrame,
    *,
    schema: StructType | None = None,
    sent_at: str | None = None,
    earlier: DataFrame | None = None,
) -> DataFrame:
    """Return a row for each number in bronze; ``bronze`` must hold whole buckets.

    Payloads are compared. A number is ``lost`` if no journal has it. It is ``quarantined``, without a payload, if
    journals disagree.

    A copy is late, that is, repaired, if its journal received a higher number of the bucket earlier. Its delay counts
    from that time, or from the first receipt of the number by any journal, whichever is earlier. With several journals,
    this requires synchronized clocks.

    :param schema: schema of JSON messages; without it there is no column ``message``.
    :param sent_at: JSON field with the send time, from which latency is then measured.
    :param earlier: silver rows of the buckets before those of ``bronze``, whose messages may be repeated here.
    """
    numbers = unwrapped(_numbers(bronze))
    if sent_at is not None:
        from pyspark.sql import functions as fn

        numbers = numbers.withColumn("latency_us", fn.col("_last_at") - sent_micros(sent_at))
    rows = with_messages(_with_repeats(numbers.drop("_last_at"), earlier), schema)
    return rows.select(*columns(schema))


def columns(schema: StructType | None) -> list[str]:
    """Return the column names in order."""
    names = parse_schema(SILVER).fieldNames()
    return names if schema is None else [*names[:-1], "message", names[-1]]


def silver_schema(schema: StructType | None) -> StructType:
    """Return the schema of silver; ``schema`` is that of messages."""
    from pyspark.sql.types import StructField, StructType

    fields = {field.name: field for field in parse_schema(SILVER).fields}
    if schema is not None:
        fields["message"] = StructField("message", schema)
    return StructType([fields[name] for name in columns(schema)])


def quarantine(bronze: DataFrame) -> DataFrame:
    """Return all versions of the numbers whose payloads differ between journals."""
    from pyspark.sql import functions as fn

    rows = with_bucket(bronze.where(fn.col("status") == OK))
    disputed = (
        rows.groupBy(*PARTITIONS, "sequence")
        .agg(fn.min("payload").alias("least"), fn.max("payload").alias("greatest"))
        .where("least <> greatest")
        .drop("least", "greatest")
    )
    chosen = rows.join(disputed, [*PARTITIONS, "sequence"], "left_semi")
    return chosen.select(*PARTITIONS, "sequence", "journal", "segment", "received_at", "payload")


def _copies(bronze: DataFrame) -> DataFrame:
    """Return the rows of bronze with ``at``, the receive time in microseconds, and ``earliest_higher``.

    ``earliest_higher`` is the time at which the same journal first received a higher number.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    rows = with_bucket(bronze).select(
        *PARTITIONS, "sequence", "journal", "status", "payload", fn.unix_micros("received_at").alias("at")
    )
    # One exchange serves this window and the grouping by number. The order is descending because Spark evaluates a
    # frame that grows from the first row in linear time, but not one that shrinks.
    descending = Window.partitionBy(*PARTITIONS, "journal").orderBy(fn.desc("sequence"))
    before = fn.min("at").over(descending.rowsBetween(1, NEIGHBOURS))
    # A number stored twice in one journal, which the source never returns, must not count as two copies.
    again = fn.lag("sequence").over(descending) == fn.col("sequence")
    higher = descending.rowsBetween(Window.unboundedPreceding, -1)
    return (
        rows.repartition(*PARTITIONS)
        .withColumn("is_jump", fn.coalesce(fn.col("at") < before - JUMP_US, fn.lit(False)))
        .withColumn("is_again", fn.coalesce(again, fn.lit(False)))
        .withColumn("earliest_higher", fn.min(fn.when(~fn.col("is_jump"), fn.col("at"))).over(higher))
    )


def _numbers(bronze: DataFrame) -> DataFrame:
    from pyspark.sql import functions as fn

    held = fn.col("status") == OK
    late = fn.col("at") > fn.col("earliest_higher")
    grouped = (
        _copies(bronze)
        .groupBy(*PARTITIONS, "sequence")
        .agg(
            fn.count_if(held & ~fn.col("is_again")).cast("int").alias("copies"),
            fn.count_if(fn.coalesce(held & late & ~fn.col("is_again"), fn.lit(False))).cast("int").alias("late_copies"),
            fn.min(fn.when(held, fn.col("payload"))).alias("least"),
            fn.max(fn.when(held, fn.col("payload"))).alias("greatest"),
            fn.min("at").alias("first_at"),
            fn.max("at").alias("_last_at"),
            fn.max(fn.col("at") - fn.col("earliest_higher")).alias("behind"),
        )
    )
    agreed = fn.col("least") == fn.col("greatest")
    status = fn.when(fn.col("copies") == 0, LOST).when(agreed, OK).otherwise(QUARANTINED)
    return grouped.select(
        *PARTITIONS,
        "sequence",
        fn.timestamp_micros("first_at").alias("received_at"),
        fn.when(agreed, fn.col("least")).alias("payload"),
        status.alias("status"),
        "copies",
        "late_copies",
        fn.greatest(fn.col("_last_at") - fn.col("first_at"), fn.col("behind")).alias("latency_us"),
        "_last_at",
    )


def _with_repeats(rows: DataFrame, earlier: DataFrame | None) -> DataFrame:
    from pyspark.sql import functions as fn

    if earlier is None:
        return with_repeats(rows)
    rows = rows.withColumn("_earlier", fn.lit(False))
    keys = earlier.where(fn.col("publisher").isNotNull() & among_last(WINDOW))
    keys = keys.select(*PARTITIONS, "sequence", "publisher", "counter").withColumn("_earlier", fn.lit(True))
    return with_repeats(rows.unionByName(keys, allowMissingColumns=True)).where("not _earlier").drop("_earlier")
