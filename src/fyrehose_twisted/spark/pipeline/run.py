"""The pipeline: a query that writes bronze, and beside it what brings silver and gold up to date."""

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
"""Seconds between two looks whether the query has ended, or has to."""

MAX_ROWS = 5_000_000
"""Rows of a batch, unless the user says otherwise: a backlog is read in several."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be run.

    :ivar out: the directory that everything is written to: a path, or a URI of a file system that Spark has.
    :ivar once: end when all that was there at the start is done.
    :ivar trigger: seconds between two batches of bronze.
    :ivar refresh: seconds between two times that silver and gold are brought up to date.
    :ivar max_rows: rows that a batch may have.
    :ivar fail_on_data_loss: end if something was dropped before it was read, or is damaged; else it is lost.
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
    requested: RequestedSettings = field(default_factory=RequestedSettings)
    queries: Mapping[str, str] = field(default_factory=dict)


class PipelineSummary(NamedTuple):
    """What is in the tables at the end, and what this run did."""

    out: str
    batches: int
    new_batches: int
    bronze_rows: int
    numbers: int
    lost: int
    quarantined: int
    tables: dict[str, int]
    """Rows of each table of gold."""
    reads_json: bool


class Pipeline:
    """Runs until all is done, or until it is told to stop.

    :raises StateFileError: if the directory belongs to something else.
    :raises ConfigurationError: if what is wanted is not possible.
    """

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self._spark, self._plan = spark, plan
        self._files = Files(spark, plan.out)
        self._bronze = Bronze(spark, self._files, (origin.stream for origin in plan.locations))
        self._bronze.check()
        self._refresh = Refresh(spark, self._files, self._bronze, plan.requested, plan.queries)
        self._stop = threading.Event()

    def stop(self) -> None:
        """Let :meth:`run` come to its end in order. May be called from a signal handler or another thread."""
        self._stop.set()

    def run(self) -> PipelineSummary:
        """Run, and return what was achieved.

        Raises what Spark raises if the query fails; what was finished by then is in silver and gold all the same.
        """
        before = self._bronze.finished()
        query = self._start()
        try:
            self._watch(query)
        finally:
            query.stop()
            # Also if the query failed, and will each time until somebody mends a journal: what is finished is shown.
            self._refresh.run()
        self._refresh.run_queries()
        return self._summary(before)

    def _start(self) -> StreamingQuery:
        plan = self._plan
        rows: DataFrame = (
            self._spark.readStream.format("fyrehose")
            .options(**reader_options(plan.locations, plan.secret_file))
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
        """Wait for the query's end, or until told to stop; bring silver and gold up to date meanwhile."""
        due = time.monotonic() + self._plan.refresh
        # An exception of the query is raised by awaitTermination.
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
    """Let SIGINT and SIGTERM stop a pipeline in order, and a second one end the process at once."""

    def handle(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, at_once)
        pipeline.stop()

    def at_once(number: int, frame: FrameType | None) -> None:
        # Java ends when the pipe that we hold is closed; to wait for it is what the user does not want any more.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if threading.current_thread() is not threading.main_thread():
        yield  # Only the main thread may set handlers; whoever runs us elsewhere stops us otherwise.
        return
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
