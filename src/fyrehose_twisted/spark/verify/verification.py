"""Comparison of journals on Spark, without a shuffle of records: each task reads one range of all journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.spark.source.journal_locations import JournalLocation
from fyrehose_twisted.spark.verify import tables
from fyrehose_twisted.spark.verify.compare import Comparison
from fyrehose_twisted.spark.verify.parts import ComparisonRange
from fyrehose_twisted.spark.verify.planning import find_extents, plan_ranges
from fyrehose_twisted.spark.verify.runs import BACKWARDS, CLOCK, CLOCK_REGRESSION_FORMAT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOLERANCE = 60.0
ROWS_PER_PARTITION = 1_000_000

GROUP_KEYS = "stream", "epoch", "kind", "reason", "journal"


class Verification:
    """Comparison of journals up to their extents at construction.

    Findings are computed on first use and cached by Spark until :meth:`close`. The healed stream and the quarantine
    are computed on each call, because reading the journals again costs less than caching their payloads.

    :param origins: journals; those of the same stream are compared with each other.
    :param tolerance: allowed clock regression in seconds.
    :param rows_per_partition: numbers per task.
    :ivar extents: extents of the streams' epochs.
    :ivar tasks: number of ranges to compare.
    :ivar rows: approximate count of numbers to compare; a gap in all journals counts at most ``rows_per_partition``.
    :raises ConfigurationError: if a journal is given twice, or an argument is out of range.
    :raises JournalError: if a journal cannot be read.
    """

    def __init__(
        self,
        spark: SparkSession,
        origins: Sequence[JournalLocation],
        *,
        tolerance: float = TOLERANCE,
        rows_per_partition: int = ROWS_PER_PARTITION,
    ) -> None:
        if not 0 <= tolerance < 2**40:
            raise ConfigurationError(f"a tolerance of {tolerance} s: give at least 0 and less than 2**40")
        self.spark = spark
        self.origins = list(origins)
        self.tolerance = round(tolerance * 1_000_000)
        self.extents = find_extents(origins)
        self._parts = tuple(plan_ranges(self.extents, rows_per_partition))
        self.tasks = len(self._parts)
        self.rows = sum(min(part.last - part.first + 1, rows_per_partition) for part in self._parts)
        self._raw_findings: DataFrame | None = None
        self._findings: DataFrame | None = None

    def __enter__(self) -> Verification:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def numbers(self) -> int:
        """Count of numbers compared, including those in no journal."""
        return sum(extent.next - extent.first for extent in self.extents)

    def runs(self) -> DataFrame:
        """Return the tasks' runs with the columns of :meth:`findings`; runs are split at range boundaries."""
        told = self._all_findings()
        return told.where(told.kind != tables.EDGE).drop("first_time", "last_time")

    def edges(self) -> DataFrame:
        """Return the first and last record and the record count of each journal in each range."""
        told = self._all_findings()
        return told.where(told.kind == tables.EDGE).drop("kind", "reason", "detail")

    def findings(self) -> DataFrame:
        """Return the findings with stream, epoch, kind, reason, journal, first, last, count and detail."""
        if self._findings is None:
            from pyspark import StorageLevel

            found = merge_runs(self.runs().unionByName(self._clock_regressions_between_ranges()))
            self._findings = found.persist(StorageLevel.MEMORY_AND_DISK)
        return self._findings

    def healed(self) -> DataFrame:
        """Return each number once, sorted within a partition, with the columns of :data:`~.tables.HEALED_SCHEMA`."""
        return self._map_parts(tables.healed_batches, tables.HEALED_SCHEMA)

    def quarantine(self) -> DataFrame:
        """Return all versions of disputed numbers with the columns of :data:`~.tables.QUARANTINE_SCHEMA`."""
        return self._map_parts(tables.quarantine_batches, tables.QUARANTINE_SCHEMA)

    def close(self) -> None:
        """Drop the cached findings from Spark."""
        for frame in (self._findings, self._raw_findings):
            if frame is not None:
                frame.unpersist()
        self._findings = self._raw_findings = None

    def _all_findings(self) -> DataFrame:
        if self._raw_findings is None:
            from pyspark import StorageLevel

            self._raw_findings = self._map_parts(tables.findings_batches, tables.FINDINGS_SCHEMA).persist(
                StorageLevel.MEMORY_AND_DISK
            )
        return self._raw_findings

    def _map_parts(self, make_batches: Callable[[Comparison], Iterator[Any]], ddl: str) -> DataFrame:
        """Return the batches that ``make_batches`` produces for each range, with one task per range."""
        parts = self._parts
        numbers = self.spark.range(0, len(parts), 1, max(1, len(parts)))
        return numbers.mapInArrow(partial(_compare, parts, self.tolerance, make_batches), ddl)

    def _clock_regressions_between_ranges(self) -> DataFrame:
        """Return clock regressions from the last record of a range to the first record of a later range."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        edges = self.edges()
        before = F.lag("last_time").over(Window.partitionBy("stream", "epoch", "journal").orderBy("first"))
        fallen = edges.withColumn("fall", before - F.col("first_time")).where(F.col("fall") > self.tolerance)
        return fallen.select(
            "stream",
            "epoch",
            F.lit(CLOCK).alias("kind"),
            F.lit(BACKWARDS).alias("reason"),
            "journal",
            "first",
            F.col("first").alias("last"),
            F.lit(1).cast("bigint").alias("count"),
            F.format_string(CLOCK_REGRESSION_FORMAT, F.col("fall") / F.lit(1_000_000.0)).alias("detail"),
        )


def merge_runs(runs: DataFrame) -> DataFrame:
    """Merge adjacent runs with the same finding."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = Window.partitionBy(*GROUP_KEYS).orderBy("first", "last")
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)
    # The first row of a key has no predecessor, so it always begins a run.
    begins = (F.col("first") > F.max("last").over(earlier) + 1) | ~F.col("detail").eqNullSafe(
        F.lag("detail").over(ordered)
    )
    numbered = runs.withColumn("begins", F.coalesce(begins, F.lit(True)).cast("bigint")).withColumn(
        "run", F.sum("begins").over(ordered.rowsBetween(Window.unboundedPreceding, 0))
    )
    whole = numbered.groupBy(*GROUP_KEYS, "run").agg(
        F.min("first").alias("first"),
        F.max("last").alias("last"),
        F.sum("count").alias("count"),
        F.first("detail").alias("detail"),
    )
    return whole.drop("run")


def _compare(
    parts: Sequence[ComparisonRange],
    tolerance: int,
    make_batches: Callable[[Comparison], Iterator[Any]],
    batches: Iterator[Any],
) -> Iterator[Any]:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with closing(Comparison(parts[number], tolerance)) as comparison:
                yield from make_batches(comparison)
