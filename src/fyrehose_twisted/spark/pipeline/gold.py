"""Gold tables: traffic and latency per time window, and gaps in all journals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.pipeline.json_payloads import parse_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TABLES = {
    "traffic": "stream STRING, window_start TIMESTAMP, window_end TIMESTAMP, messages BIGINT, bytes BIGINT,"
    " publishers BIGINT, lost BIGINT, gaps BIGINT, repairs BIGINT, repeats BIGINT, hour STRING",
    "latency": "stream STRING, window_start TIMESTAMP, window_end TIMESTAMP, copies BIGINT, p50_us BIGINT,"
    " p95_us BIGINT, p99_us BIGINT, max_us BIGINT, hour STRING",
    "gaps": "stream STRING, epoch BIGINT, first_missing BIGINT, last_missing BIGINT, length BIGINT,"
    " closed_at TIMESTAMP, hour STRING",
}
"""Tables and their columns. ``hour`` is the hour in which a window begins; files are partitioned by it."""

UNKNOWN_HOUR = "1970-01-01-00"
"""Hour of a gap without a known time, in an epoch that holds only lost numbers."""

PERCENTILES = {"p50_us": 50, "p95_us": 95, "p99_us": 99}

_DURATION = re.compile(r"[1-9][0-9]{0,5} (second|minute|hour|day|week)s?")


def check_window(text: str) -> str:
    """Check a window length and return it. :raises ConfigurationError: if ``text`` is not a duration."""
    if not _DURATION.fullmatch(text):
        raise ConfigurationError(
            f"--window {text!r} is not a duration: use '1 minute', '30 seconds', '2 hours' or '1 day'"
        )
    return text


def hour_of(at: Column, window: str) -> Column:
    """Return the gold partition of a time."""
    from pyspark.sql import functions as fn

    return fn.date_format(fn.timestamp_micros(_start(at, window)), "yyyy-MM-dd-HH")


def traffic(silver: DataFrame, gaps: DataFrame, window: str) -> DataFrame:
    """Aggregate the traffic of each stream and window.

    :param gaps: gaps from :func:`gaps`; a gap and its lost numbers count in the window in which the gap ends.
    """
    from pyspark.sql import functions as fn

    came = _windowed(silver.where("status <> 'lost'"), "received_at", window).select(
        *_WINDOW,
        fn.lit(1).alias("messages"),
        fn.coalesce(fn.length("payload"), fn.lit(0)).alias("bytes"),
        "publisher",
        fn.lit(0).alias("lost"),
        fn.lit(0).alias("gaps"),
        fn.col("late_copies").alias("repairs"),
        fn.col("repeat").cast("int").alias("repeats"),
    )
    missing = _windowed(gaps.withColumn("_at", _placed_time()), "_at", window).select(
        *_WINDOW, fn.col("length").alias("lost"), fn.lit(1).alias("gaps")
    )
    both = came.unionByName(missing, allowMissingColumns=True)

    def total(name: str) -> Column:
        return fn.coalesce(fn.sum(name), fn.lit(0)).cast("bigint").alias(name)

    counted = both.groupBy(*_WINDOW).agg(
        total("messages"),
        total("bytes"),
        fn.count_distinct("publisher").alias("publishers"),
        total("lost"),
        total("gaps"),
        total("repairs"),
        total("repeats"),
    )
    return _with_hour(counted, "traffic")


def latency(silver: DataFrame, window: str) -> DataFrame:
    """Aggregate the latency of each stream and window: silver's ``latency_us``, that of each message's latest copy.

    Percentiles are exact (the lowest value that the given percentage of values does not exceed) and are computed
    without holding all values of a window in memory. ``copies`` counts the copies of those messages.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    rows = _windowed(silver.where("latency_us is not null"), "received_at", window)
    values = rows.groupBy(*_WINDOW, "latency_us").agg(fn.count("*").alias("n"), fn.sum("copies").alias("copies"))
    ascending = Window.partitionBy(*_WINDOW).orderBy("latency_us")
    ranked = values.withColumn("rank", fn.sum("n").over(ascending))
    totals = values.groupBy(*_WINDOW).agg(fn.sum("n").alias("total"))
    ranked = ranked.join(totals, list(_WINDOW))
    found = ranked.groupBy(*_WINDOW).agg(
        fn.sum("copies").cast("bigint").alias("copies"),
        *(
            fn.min(fn.when(fn.col("rank") * 100 >= fn.col("total") * percent, fn.col("latency_us"))).alias(name)
            for name, percent in PERCENTILES.items()
        ),
        fn.max("latency_us").alias("max_us"),
    )
    return _with_hour(found, "latency")


def gaps(silver: DataFrame, edges: DataFrame, window: str) -> DataFrame:
    """Return the gaps in all journals between the lowest and the highest number in bronze.

    :param silver: rows of whole buckets, for gaps within buckets.
    :param edges: edges of all buckets, for gaps between buckets; see
        :mod:`~fyrehose_twisted.spark.pipeline.buckets`.
    :return: ``closed_at`` is the receive time of the number after the gap; null if there is none yet.
    """
    inside = _gaps_within_buckets(silver)
    found = inside.unionByName(_gaps_between_buckets(edges))
    return _gap_rows(found, window)


def _gaps_within_buckets(silver: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    ascending = Window.partitionBy("stream", "epoch", "bucket").orderBy("sequence")
    rows = silver.where("status <> 'lost'").select("stream", "epoch", "bucket", "sequence", "received_at")
    rows = rows.withColumn("previous", fn.lag("sequence").over(ascending))
    return rows.where("sequence > previous + 1").select(
        "stream",
        "epoch",
        (fn.col("previous") + 1).alias("first_missing"),
        (fn.col("sequence") - 1).alias("last_missing"),
        fn.col("received_at").alias("closed_at"),
        fn.col("received_at").alias("placed_at"),
    )


def _gaps_between_buckets(edges: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    ordered = Window.partitionBy("stream", "epoch").orderBy("bucket")
    whole = Window.partitionBy("stream", "epoch")
    so_far = ordered.rowsBetween(Window.unboundedPreceding, -1)
    rows = edges.withColumns(
        {
            "before": fn.last("last_present", ignorenulls=True).over(so_far),
            "begin": fn.min("lowest").over(whole),
            "end": fn.max("highest").over(whole),
            "final": fn.max("last_present").over(whole),
            "top": fn.max("bucket").over(whole),
            "final_at": fn.last("last_at", ignorenulls=True).over(
                ordered.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
            ),
        }
    )
    closed = rows.where("first_present > coalesce(before + 1, begin)").select(
        "stream",
        "epoch",
        fn.coalesce(fn.col("before") + 1, fn.col("begin")).alias("first_missing"),
        (fn.col("first_present") - 1).alias("last_missing"),
        fn.col("first_at").alias("closed_at"),
        fn.col("first_at").alias("placed_at"),
    )
    still_open = rows.where("bucket = top and end >= coalesce(final + 1, begin)").select(
        "stream",
        "epoch",
        fn.coalesce(fn.col("final") + 1, fn.col("begin")).alias("first_missing"),
        fn.col("end").alias("last_missing"),
        fn.lit(None).cast("timestamp").alias("closed_at"),
        fn.col("final_at").alias("placed_at"),
    )
    return closed.unionByName(still_open)


def _gap_rows(found: DataFrame, window: str) -> DataFrame:
    from pyspark.sql import functions as fn

    length = fn.col("last_missing") - fn.col("first_missing") + 1
    hour = hour_of(_placed_time(), window)
    return found.select(
        "stream",
        "epoch",
        "first_missing",
        "last_missing",
        length.alias("length"),
        "closed_at",
        "placed_at",
        hour.alias("hour"),
    )


_WINDOW = ("stream", "window_start", "window_end")


def _placed_time() -> Column:
    from pyspark.sql import functions as fn

    return fn.coalesce(fn.col("placed_at"), fn.timestamp_micros(fn.lit(0)))


def _start(at: Column, window: str) -> Column:
    """Return the start of a time's window in microseconds; windows are aligned to 1970."""
    from pyspark.sql import functions as fn

    length = fn.lit(duration_us(window))
    return fn.unix_micros(at) - fn.pmod(fn.unix_micros(at), length)


def duration_us(window: str) -> int:
    """Return the length of a window in microseconds."""
    count, unit = window.split()
    seconds = {"second": 1, "minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800}[unit.removesuffix("s")]
    return int(count) * seconds * 1_000_000


def _windowed(rows: DataFrame, at: str, window: str) -> DataFrame:
    from pyspark.sql import functions as fn

    start = _start(fn.col(at), window)
    return rows.withColumns(
        {
            "window_start": fn.timestamp_micros(start),
            "window_end": fn.timestamp_micros(start + duration_us(window)),
        }
    )


def _with_hour(rows: DataFrame, table: str) -> DataFrame:
    from pyspark.sql import functions as fn

    rows = rows.withColumn("hour", fn.date_format("window_start", "yyyy-MM-dd-HH"))
    return rows.select(*parse_schema(TABLES[table]).fieldNames())
