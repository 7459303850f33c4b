"""Progress line of a job on standard error, with a summary at its end."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from fyrehose_twisted.spark.connect import is_connect
from fyrehose_twisted.spark.session import QUIET
from fyrehose_twisted.wording import pluralize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_INTERVAL = 0.5
"""Seconds between polls of a job."""

_numbers = count(1)


class SparkProgress(NamedTuple):
    """Progress of Spark's jobs.

    :ivar rows: rows read from storage.
    :ivar finished_tasks: finished tasks of all jobs so far.
    :ivar tasks: tasks of all jobs so far.
    """

    rows: int
    finished_tasks: int
    tasks: int


class ProgressLine:
    """Progress line, rewritten in place on a terminal. Elsewhere it is printed once, when the work is done.

    :param label: text at the beginning of the line.
    :param total: expected number of rows; 0 if unknown.
    """

    def __init__(self, label: str, total: int = 0, file: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._file = sys.stderr if file is None else file
        self._in_place = self._file.isatty()
        self._began = time.monotonic()
        self._width = 0

    def update(self, work: SparkProgress) -> None:
        """Show the current progress."""
        if self._in_place:
            self._write(self.text(work, time.monotonic() - self._began), end="")

    def finish(self, work: SparkProgress) -> None:
        """Show the summary and end the line."""
        seconds = time.monotonic() - self._began
        rows = max(work.rows, self._total)
        done = f"{pluralize(rows, 'row')} in {seconds:,.1f} s, {_rate(rows, seconds)} rows/s"
        self._write(f"{self._label}: {done}", end="\n")

    def clear(self) -> None:
        """Erase the line from a terminal, so that other output can follow."""
        if self._in_place and self._width:
            self._write("", end="")
            self._file.write("\r")
            self._file.flush()

    def text(self, work: SparkProgress, seconds: float) -> str:
        """Format the progress after ``seconds``."""
        parts = [pluralize(work.rows, "row"), f"{_rate(work.rows, seconds)} rows/s"]
        if self._total:
            parts.append(f"{min(100, 100 * work.rows // self._total)} %")
        if work.rows >= self._total and work.tasks:
            parts.append(f"task {work.finished_tasks:,} of {work.tasks:,}")
        return f"{self._label}: {', '.join(parts)}"

    def _write(self, text: str, end: str) -> None:
        if self._in_place:
            text, self._width = f"\r{text.ljust(self._width)}", len(text)
        # A closed standard error must not end a job.
        with suppress(OSError, ValueError):
            self._file.write(text + end)
            self._file.flush()


@contextmanager
def show_progress(spark: SparkSession, label: str, total_rows: int = 0) -> Iterator[None]:
    """Show the progress of jobs that this thread starts in the block, unless the session was opened with ``--quiet``.

    A session of Spark Connect does not give the progress of its server, so nothing is shown.

    :param label: one or two words for the activity.
    :param total_rows: expected number of rows; 0 if unknown.
    """
    if is_connect(spark) or spark.conf.get(QUIET, "false") == "true":
        yield
        return
    context = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in ("spark.jobGroup.id", "spark.job.description")}
    group = f"fyrehose-{next(_numbers)}"
    context.setJobGroup(group, label)
    line, over = ProgressLine(label, total_rows), threading.Event()

    def watch() -> None:
        # The session may be stopped meanwhile; the cause is reported elsewhere.
        with suppress(Exception):
            while not over.wait(POLL_INTERVAL):
                line.update(group_progress(context, group))

    watching = threading.Thread(target=watch, name=f"progress of {label}", daemon=True)
    watching.start()
    try:
        yield
    except BaseException:
        over.set()
        watching.join()
        line.clear()
        raise
    else:
        over.set()
        watching.join()
        line.finish(group_progress(context, group))
    finally:
        with suppress(Exception):
            for key, value in before.items():
                context.setLocalProperty(key, value)  # type: ignore[arg-type]  # None takes it away.


def group_progress(context: Any, group: str) -> SparkProgress:
    """Return the progress of a group's jobs, as far as Spark has retained them.

    :param context: the :class:`pyspark.SparkContext`.
    """
    tracker = context.statusTracker()
    store = context._jsc.sc().statusStore()
    stages: set[int] = set()
    for job in tracker.getJobIdsForGroup(group):
        info = tracker.getJobInfo(job)
        stages.update(info.stageIds if info is not None else ())
    rows = done = tasks = 0
    for stage in stages:
        seen = tracker.getStageInfo(stage)
        if seen is None:  # Not started yet, or skipped because its result exists.
            continue
        done += seen.numCompletedTasks
        tasks += seen.numTasks
        with suppress(Exception):  # The tracker does not count rows, and the store may have dropped the stage.
            rows += store.lastStageAttempt(stage).inputRecords()
    return SparkProgress(rows, done, tasks)


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds:,.0f}" if seconds > 0 else "0"
