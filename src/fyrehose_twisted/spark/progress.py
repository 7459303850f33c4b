"""One line on standard error that says how far a job is, and at its end what was done."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from fyrehose_twisted.spark.session import QUIET
from fyrehose_twisted.wording import pluralize

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_INTERVAL = 0.5
"""Seconds between two looks at a job."""

_numbers = count(1)


class SparkProgress(NamedTuple):
    """What Spark has done so far.

    :ivar rows: rows that were read from where they are stored.
    :ivar finished_tasks: tasks that were finished, of all jobs so far.
    :ivar tasks: tasks that those jobs have.
    """

    rows: int
    finished_tasks: int
    tasks: int


class ProgressLine:
    """A line that is rewritten in place on a terminal. Elsewhere it appears once, when the work is done.

    :param what: what it begins with.
    :param total: rows there will be, 0 if nobody knows.
    """

    def __init__(self, label: str, total: int = 0, file: TextIO | None = None) -> None:
        self._label = label
        self._total = total
        self._file = sys.stderr if file is None else file
        self._in_place = self._file.isatty()
        self._began = time.monotonic()
        self._width = 0

    def update(self, work: SparkProgress) -> None:
        """Show how far it is."""
        if self._in_place:
            self._write(self.text(work, time.monotonic() - self._began), end="")

    def finish(self, work: SparkProgress) -> None:
        """Show what was done, and end the line."""
        seconds = time.monotonic() - self._began
        rows = max(work.rows, self._total)
        done = f"{pluralize(rows, 'row')} in {seconds:,.1f} s, {_rate(rows, seconds)} rows/s"
        self._write(f"{self._label}: {done}", end="\n")

    def clear(self) -> None:
        """Take away what stands on a terminal, so that something else can be written there."""
        if self._in_place and self._width:
            self._write("", end="")
            self._file.write("\r")
            self._file.flush()

    def text(self, work: SparkProgress, seconds: float) -> str:
        """Return what to show after so many seconds."""
        parts = [pluralize(work.rows, "row"), f"{_rate(work.rows, seconds)} rows/s"]
        if self._total:
            parts.append(f"{min(100, 100 * work.rows // self._total)} %")
        if work.rows >= self._total and work.tasks:
            parts.append(f"task {work.finished_tasks:,} of {work.tasks:,}")
        return f"{self._label}: {', '.join(parts)}"

    def _write(self, text: str, end: str) -> None:
        if self._in_place:
            text, self._width = f"\r{text.ljust(self._width)}", len(text)
        # Whoever reads standard error may have gone; that is no reason to end a job.
        with suppress(OSError, ValueError):
            self._file.write(text + end)
            self._file.flush()


@contextmanager
def show_progress(spark: SparkSession, label: str, total_rows: int = 0) -> Iterator[None]:
    """Show how far the jobs are that this thread starts meanwhile, unless the session was opened with ``--quiet``.

    :param label: what is being done, in a word or two.
    :param total_rows: rows that will be read, 0 if nobody knows.
    """
    if spark.conf.get(QUIET, "false") == "true":
        yield
        return
    context = spark.sparkContext
    before = {key: context.getLocalProperty(key) for key in ("spark.jobGroup.id", "spark.job.description")}
    group = f"fyrehose-{next(_numbers)}"
    context.setJobGroup(group, label)
    line, over = ProgressLine(label, total_rows), threading.Event()

    def watch() -> None:
        # The session may be stopped while we look; what ended it is told by others.
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
    """Return what the jobs of a group have done, as far as Spark still remembers them.

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
        if seen is None:  # It was not begun yet, or was left out because its result was there.
            continue
        done += seen.numCompletedTasks
        tasks += seen.numTasks
        with suppress(Exception):  # The tracker does not say what was read, and the store may have forgotten.
            rows += store.lastStageAttempt(stage).inputRecords()
    return SparkProgress(rows, done, tasks)


def _rate(rows: int, seconds: float) -> str:
    return f"{rows / seconds:,.0f}" if seconds > 0 else "0"
