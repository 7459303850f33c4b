"""Comparing journals with Spark: each task reads the same range of all journals, so no record is shuffled."""

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
    """Compares journals as far as they go when this is made.

    What it finds is computed once, when it is first wanted, and kept by Spark until :meth:`close`. The healed stream
    and the quarantine are computed each time: to read the journals again costs less than to keep their payloads.

    :param origins: the journals; those of one stream are compared with each other.
    :param tolerance: seconds by which time may go back.
    :param rows_per_partition: numbers that a task compares.
    :ivar extents: how far the streams go, in each epoch.
    :ivar tasks: into how many ranges the numbers are cut.
    :ivar rows: numbers to compare, about: of a stretch that nobody holds, only as many as of another range.
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
            raise ConfigurationError(f"a tolerance of {tolerance} s: it has to be 0 or more")
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
        """How many numbers are compared, also those that nobody has."""
        return sum(extent.next - extent.first for extent in self.extents)

    def runs(self) -> DataFrame:
        """Return what the tasks find: the columns of :meth:`findings`, runs cut where ranges are."""
        told = self._all_findings()
        return told.where(told.kind != tables.EDGE).drop("first_time", "last_time")

    def edges(self) -> DataFrame:
        """Return how the records of each journal begin and end in each range, and how many they are."""
        told = self._all_findings()
        return told.where(told.kind == tables.EDGE).drop("kind", "reason", "detail")

    def findings(self) -> DataFrame:
        """Return what is found: stream, epoch, kind, reason, journal, first, last, count and detail."""
        if self._findings is None:
            from pyspark import StorageLevel

            found = merge_runs(self.runs().unionByName(self._clock_regressions_between_ranges()))
            self._findings = found.persist(StorageLevel.MEMORY_AND_DISK)
        return self._findings

    def healed(self) -> DataFrame:
        """Return each number once, in order within a partition: see :data:`~.tables.HEALED`."""
        return self._map_parts(tables.healed_batches, tables.HEALED_SCHEMA)

    def quarantine(self) -> DataFrame:
        """Return every version of the numbers on which there is no agreement: see :data:`~.tables.QUARANTINE`."""
        return self._map_parts(tables.quarantine_batches, tables.QUARANTINE_SCHEMA)

    def close(self) -> None:
        """Let Spark forget what was found."""
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
        """Return what is made of each part, by a task of its own."""
        parts = self._parts
        numbers = self.spark.range(0, len(parts), 1, max(1, len(parts)))
        return numbers.mapInArrow(partial(_compare, parts, self.tolerance, make_batches), ddl)

    def _clock_regressions_between_ranges(self) -> DataFrame:
        """Return where time goes back from the last record of a range to the first of one that follows."""
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
    """Return runs, those put together that lie next to each other and say the same."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    ordered = Window.partitionBy(*GROUP_KEYS).orderBy("first", "last")
    earlier = ordered.rowsBetween(Window.unboundedPreceding, -1)
    # The first of a key has nothing before it, and begins run 0.
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
