"""Pipeline: a streaming query that writes bronze, with periodic refresh of silver and gold."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from fyrehose_twisted.journal.arrow.schema import COLUMNS
from fyrehose_twisted.spark.pipeline.bronze import CHECKPOINT, Bronze
from fyrehose_twisted.spark.pipeline.files import Files
from fyrehose_twisted.spark.pipeline.gold import TABLES
from fyrehose_twisted.spark.pipeline.refresh import Refresh
from fyrehose_twisted.spark.pipeline.settings import RequestedSettings
from fyrehose_twisted.spark.source.journal_locations import JournalLocation
from fyrehose_twisted.spark.source.options import reader_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_INTERVAL = 0.2
"""Seconds between checks for the end of the query or a stop request."""

MAX_ROWS = 5_000_000
"""Default limit of rows per batch; a larger backlog is read in several batches."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Configuration of a pipeline run.

    :ivar out: output directory: a path, or a URI of a file system that Spark supports.
    :ivar once: stop after the records present at the start.
    :ivar trigger: interval between bronze batches, in seconds.
    :ivar refresh: interval between refreshes of silver and gold, in seconds.
    :ivar max_rows: limit of rows per batch.
    :ivar fail_on_data_loss: fail on dropped or damaged records; otherwise count them as lost.
    :ivar seal_key_files: files with the keys of sealed streams.
    :ivar queries: SQL of the user's own tables, by name.
    """

    locations: Sequence[JournalLocation]
    out: str
    once: bool = False
    trigger: float = 10.0
    refresh: float = 60.0
    max_rows: int = MAX_ROWS
    fail_on_data_loss: bool = True
    secret_file: str | None = None
    seal_key_files: Sequence[str] = ()
    requested: RequestedSettings = field(default_factory=RequestedSettings)
    queries: Mapping[str, str] = field(default_factory=dict)


class PipelineSummary(NamedTuple):
    """Totals of the tables after a run, with the number of new batches."""

    out: str
    batches: int
    new_batches: int
    bronze_rows: int
    numbers: int
    lost: int
    quarantined: int
    tables: dict[str, int]
    """Rows of each gold table."""
    reads_json: bool


class Pipeline:
    """Pipeline that runs until its work is done or :meth:`stop` is called.

    :raises StateFileError: if another query wrote the output directory.
    :raises ConfigurationError: if a setting is invalid, or the session is one of Spark Connect.
    """

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark, self._plan = spark, plan
        self._files = Files(spark, plan.out)
        self._bronze = Bronze(spark, self._files, (origin.stream for origin in plan.locations))
        self._bronze.check()
        self._refresh = Refresh(spark, self._files, self._bronze, plan.requested, plan.queries)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Request an orderly end of :meth:`run`. Safe to call from a signal handler or another thread."""
        self._stop.set()

    def run(self) -> PipelineSummary:
        """Run the pipeline and return its summary.

        If the query fails, its error propagates after silver and gold have been refreshed from the finished batches.
        """
        before = self._bronze.finished()
        query = self._start()
        try:
            self._watch(query)
        finally:
            query.stop()
            # Refresh even if the query failed: it may keep failing until a journal is repaired.
            self._refresh.run()
        self._refresh.run_queries()
        return self._summary(before)

    def _start(self) -> StreamingQuery:
        plan = self._plan
        rows: DataFrame = (
            self._spark.readStream.format("fyrehose")
            .options(**reader_options(plan.locations, plan.secret_file, plan.seal_key_files))
            .option("columns", ",".join(COLUMNS))
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(plan.max_rows))
            .option("failOnDataLoss", str(plan.fail_on_data_loss).lower())
            .load()
        )
        writer = rows.writeStream.foreachBatch(self._bronze.write)
        writer = writer.option("checkpointLocation", self._files.path(CHECKPOINT))
        if plan.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{round(plan.trigger * 1_000)} milliseconds").start()

    def _watch(self, query: StreamingQuery) -> None:
        """Refresh silver and gold periodically until the query ends or a stop is requested."""
        due = time.monotonic() + self._plan.refresh
        # awaitTermination raises the query's exception.
        while not self._stop.is_set() and not query.awaitTermination(POLL_INTERVAL):  # type: ignore[arg-type]
            if not self._plan.once and time.monotonic() >= due:
                if self._refresh.run():
                    self._refresh.run_queries()
                due = time.monotonic() + self._plan.refresh

    def _summary(self, before: int) -> PipelineSummary:
        from pyspark.sql import functions as fn

        last = self._bronze.finished()
        edges = self._refresh.edges()
        totals = edges.agg(
            *(fn.coalesce(fn.sum(name), fn.lit(0)) for name in ("numbers", "lost", "quarantined"))
        ).first()
        assert totals is not None
        numbers, lost, quarantined = totals
        tables = {name: self._refresh.gold(name).count() for name in TABLES}
        for name in self._plan.queries:
            if self._files.exists(f"gold/{name}"):
                tables[name] = self._spark.read.parquet(self._files.path(f"gold/{name}")).count()
        return PipelineSummary(
            self._files.path(),
            last + 1,
            last - before,
            self._bronze.read(range(last + 1)).count(),
            numbers,
            lost,
            quarantined,
            tables,
            self._refresh.settings.schema is not None,
        )


@contextmanager
def stop_on_signals(pipeline: Pipeline) -> Iterator[None]:
    """Stop a pipeline in order on SIGINT or SIGTERM; terminate the process at once on a second signal."""

    def handle(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, at_once)
        pipeline.stop()

    def at_once(number: int, frame: FrameType | None) -> None:
        # Java exits once our end of its pipe closes, so do not wait for it.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread can set signal handlers; in another thread, the caller uses Pipeline.stop().
        return
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
