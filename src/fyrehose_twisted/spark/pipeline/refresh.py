"""Incremental refresh of silver and gold from bronze: only buckets and hours affected by new batches are rewritten."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from fyrehose_twisted.spark.pipeline import gold, silver
from fyrehose_twisted.spark.pipeline.bronze import Bronze
from fyrehose_twisted.spark.pipeline.buckets import EDGES, PARTITIONS, Bucket, bucket_edges, in_buckets, with_bucket
from fyrehose_twisted.spark.pipeline.envelopes import unwrapped
from fyrehose_twisted.spark.pipeline.files import Files
from fyrehose_twisted.spark.pipeline.json_payloads import inferred_schema
from fyrehose_twisted.spark.pipeline.queries import write_queries
from fyrehose_twisted.spark.pipeline.settings import (
    RequestedSettings,
    Settings,
    load_settings,
    resolve_settings,
    save_settings,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STATE_FILE, PENDING_FILE = "_fyrehose/silver.json", "_fyrehose/refresh.json"
EDGES_TABLE = "_fyrehose/edges"


ROWS_AT_ONCE, ROWS_PER_CORE = 16_000_000, 4_000_000
"""Rows of bronze, in all or for each core if that is more, that are refreshed together. More would take more memory and
space for temporary files, fewer would start more jobs."""


class _BatchSpan(NamedTuple):
    """First and last batch with rows of a bucket, and about how many rows it has."""

    first: int
    last: int
    rows: int


class Refresh:
    """Refresh of silver and gold.

    State files on disk determine the pending work, so an interrupted refresh is repeated by the next one.
    :data:`STATE_FILE` holds the last refreshed batch. :data:`PENDING_FILE` holds the gold hours that an interrupted
    refresh may have left inconsistent.
    """

    def __init__(
        self,
        spark: SparkSession,
        files: Files,
        bronze: Bronze,
        requested: RequestedSettings,
        queries: Mapping[str, str] | None = None,
    ) -> None:
        self._spark, self._files, self._bronze = spark, files, bronze
        self._requested, self._queries = requested, queries or {}
        self._settings = self._apply_settings()

    def run(self) -> bool:
        """Refresh up to the last finished batch and return whether there were new batches."""
        last = self._bronze.finished()
        done = self._refreshed_batch()
        if last <= done:
            return False
        spans = self._dirty_buckets(range(done + 1, last + 1))
        if spans:
            self._write(spans)
        self._files.write_json(STATE_FILE, {"batch": last})
        self._files.delete(PENDING_FILE)
        return True

    def run_queries(self) -> list[str]:
        """Write the tables of the user's queries and return their names; do nothing before silver exists."""
        if not self._queries or self._refreshed_batch() < 0:
            return []
        batches = range(self._refreshed_batch() + 1)
        tables = {name: self.gold(name) for name in gold.TABLES}
        tables |= {"silver": self.silver(), "quarantine": self.quarantine(), "bronze": self._bronze.read(batches)}
        return write_queries(self._spark, self._queries, tables, self._files.path("gold"))

    def silver(self) -> DataFrame:
        """Return the current silver table."""
        return self._table("silver", silver.silver_schema(self._settings.schema))

    def quarantine(self) -> DataFrame:
        """Return the current quarantine table."""
        return self._table("quarantine", silver.QUARANTINE)

    def gold(self, name: str) -> DataFrame:
        """Return the current state of one of :data:`~fyrehose_twisted.spark.pipeline.gold.TABLES`."""
        return self._table(f"gold/{name}", gold.TABLES[name])

    def edges(self) -> DataFrame:
        """Return the bucket index; see :data:`~fyrehose_twisted.spark.pipeline.buckets.EDGES`."""
        return self._table(EDGES_TABLE, EDGES)

    @property
    def settings(self) -> Settings:
        """Current settings."""
        return self._settings

    def _apply_settings(self) -> Settings:
        kept = load_settings(self._files)
        now = resolve_settings(self._spark, kept, self._requested)
        for name in ("silver", "quarantine", EDGES_TABLE, *(f"gold/{table}" for table in gold.TABLES)):
            # Temporary output of a killed run.
            for leftover in self._files.list(name):
                if leftover.startswith((".spark-staging", "_temporary")):
                    self._files.delete(f"{name}/{leftover}")
        if kept is not None and kept != now:
            # The state file is deleted first, so that an interruption here still leads to a full rewrite.
            self._files.delete(STATE_FILE)
            for name in ("silver", "quarantine", "gold", EDGES_TABLE, PENDING_FILE):
                self._files.delete(name)
        if kept != now:
            save_settings(self._files, now)
        return now

    def _refreshed_batch(self) -> int:
        return int((self._files.read_json(STATE_FILE) or {}).get("batch", -1))

    def _dirty_buckets(self, batches: Sequence[int]) -> dict[Bucket, _BatchSpan]:
        """Return the buckets that batches affect, including the following ones, where repeats may now appear."""
        from pyspark.sql import functions as fn

        rows = with_bucket(self._bronze.read(batches)).groupBy(*PARTITIONS)
        found = rows.agg(fn.min("batch"), fn.max("batch"), fn.count("*")).collect()
        spans = {Bucket(*row[:3]): _BatchSpan(*row[3:]) for row in found}
        near = {bucket._replace(bucket=bucket.bucket + more) for bucket in spans for more in (0, 1)}
        edges = self.edges().where(in_buckets(near)).select(*PARTITIONS, "first_batch", "last_batch", "numbers")
        for row in edges.collect():
            bucket, span = Bucket(*row[:3]), _BatchSpan(*row[3:])
            new = spans.get(bucket, span._replace(rows=0))
            spans[bucket] = _BatchSpan(min(span.first, new.first), max(span.last, new.last), span.rows + new.rows)
        return spans

    def _write(self, spans: Mapping[Bucket, _BatchSpan]) -> None:
        pending = self._files.read_json(PENDING_FILE) or {}
        hours = set(pending.get("hours", [])) | {gold.UNKNOWN_HOUR}
        most = max(ROWS_AT_ONCE, ROWS_PER_CORE * self._spark.sparkContext.defaultParallelism)
        for some in groups(spans, most):
            hours |= self._hours(some)
            self._files.write_json(PENDING_FILE, {"hours": sorted(hours)})
            self._write_buckets(some)
            hours |= self._hours(some)
        self._write_gold(hours)

    def _write_buckets(self, spans: Mapping[Bucket, _BatchSpan]) -> None:
        """Replace buckets in silver, the quarantine and the bucket index."""
        batches = sorted({batch for span in spans.values() for batch in range(span.first, span.last + 1)})
        rows = self._bronze.read(batches).where(in_buckets(spans, by_sequence=True))
        self._infer(rows)
        before = {bucket._replace(bucket=bucket.bucket - 1) for bucket in spans} - spans.keys()
        made = silver.silver(
            rows,
            schema=self._settings.schema,
            sent_at=self._settings.sent_at,
            earlier=self.silver().where(in_buckets(before)),
        )
        self._overwrite_partitions(made, "silver", PARTITIONS, ["sequence"])
        self._write_edges(spans)
        disputed = self.edges().where(in_buckets(spans)).where("quarantined > 0").select(*PARTITIONS).collect()
        if disputed:
            chosen = [Bucket(*row) for row in disputed]
            versions = silver.quarantine(rows.where(in_buckets(chosen, by_sequence=True)))
            self._overwrite_partitions(versions, "quarantine", PARTITIONS, ["sequence", "journal"])

    def _infer(self, rows: DataFrame) -> None:
        if self._settings.is_json is not None:
            return
        payloads = unwrapped(rows.where("payload is not null"))
        if payloads.isEmpty():
            return
        schema = inferred_schema(payloads, self._requested.sample)
        fields = None if schema is None else schema.json()
        self._settings = replace(self._settings, is_json=schema is not None, fields=fields)
        save_settings(self._files, self._settings)

    def _write_edges(self, spans: Mapping[Bucket, _BatchSpan]) -> None:
        known = [(*bucket, span.first, span.last) for bucket, span in spans.items()]
        batches = self._spark.createDataFrame(
            known, "stream STRING, epoch BIGINT, bucket BIGINT, first_batch BIGINT, last_batch BIGINT"
        )
        found = bucket_edges(self.silver().where(in_buckets(spans)), self._settings.window)
        self._overwrite_partitions(found.join(batches, list(PARTITIONS)), EDGES_TABLE, PARTITIONS, [])

    def _hours(self, buckets: Mapping[Bucket, object]) -> set[str]:
        """Return the gold hours of buckets and of the gaps between them and adjacent buckets."""
        from pyspark.sql import Window
        from pyspark.sql import functions as fn

        ordered = Window.partitionBy("stream", "epoch").orderBy("bucket")
        window = self._settings.window
        last, first = gold.hour_of(fn.col("last_at"), window), gold.hour_of(fn.col("first_at"), window)
        before = fn.last(last, ignorenulls=True).over(ordered.rowsBetween(Window.unboundedPreceding, -1))
        after = fn.first(first, ignorenulls=True).over(ordered.rowsBetween(1, Window.unboundedFollowing))
        near = self.edges().withColumns({"before": before, "after": after}).where(in_buckets(buckets))
        every = fn.explode(fn.concat("hours", fn.array("before", "after")))
        return {row[0] for row in near.select(every).distinct().collect() if row[0] is not None}

    def _write_gold(self, hours: set[str]) -> None:
        from pyspark.sql import functions as fn

        window, wanted = self._settings.window, sorted(hours)
        edges_now = self.edges()
        inside = fn.arrays_overlap("hours", fn.array(*map(fn.lit, wanted)))
        buckets = [Bucket(*row) for row in edges_now.where(inside).select(*PARTITIONS).collect()]
        rows = self.silver().where(in_buckets(buckets))
        gaps = gold.gaps(rows, edges_now, window).where(fn.col("hour").isin(wanted)).persist()
        tables = {
            "traffic": gold.traffic(rows, gaps, window),
            "latency": gold.latency(rows, window),
            "gaps": gaps.drop("placed_at"),
        }
        try:
            for name, table in tables.items():
                self._overwrite_hours(name, table.where(fn.col("hour").isin(wanted)), hours)
        finally:
            gaps.unpersist()

    def _overwrite_hours(self, name: str, table: DataFrame, hours: set[str]) -> None:
        """Write hours of a table and delete the hours that no longer have rows."""
        there = [f"gold/{name}/{hour}" for hour in self._files.list(f"gold/{name}") if hour[len("hour=") :] in hours]
        before = {hour: self._files.list(hour) for hour in there}
        order = ["first_missing"] if name == "gaps" else ["window_start"]
        self._overwrite_partitions(table, f"gold/{name}", ("hour",), ["stream", *order])
        for hour, names in before.items():
            # Every write creates new file names, so unchanged names mean that the hour got no rows.
            if self._files.list(hour) == names:
                self._files.delete(hour)

    def _overwrite_partitions(
        self, rows: DataFrame, name: str, partitions: Sequence[str], order: Sequence[str]
    ) -> None:
        """Replace the partitions that occur in ``rows``; keep the others."""
        writer = rows.repartition(*partitions).sortWithinPartitions(*partitions, *order).write.mode("overwrite")
        writer = writer.option("partitionOverwriteMode", "dynamic").partitionBy(*partitions)
        writer.parquet(self._files.path(name))

    def _table(self, name: str, schema: str | StructType) -> DataFrame:
        if not self._files.exists(name):
            return self._spark.createDataFrame([], schema)
        return self._spark.read.schema(schema).parquet(self._files.path(name))


def groups(spans: Mapping[Bucket, _BatchSpan], most: int) -> Iterator[dict[Bucket, _BatchSpan]]:
    """Yield the buckets in order, together as many as have at most ``most`` rows, or one that has more.

    In order, because repeats in a bucket depend on the one before.
    """
    some: dict[Bucket, _BatchSpan] = {}
    rows = 0
    for bucket in sorted(spans):
        if some and rows + spans[bucket].rows > most:
            yield some
            some, rows = {}, 0
        some[bucket] = spans[bucket]
        rows += spans[bucket].rows
    if some:
        yield some
