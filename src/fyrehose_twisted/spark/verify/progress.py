"""Showing how far a comparison is. Spark does not count the records that our tasks read, only the tasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from fyrehose_twisted.spark.progress import POLL_INTERVAL, ProgressLine, Work, work_of
from fyrehose_twisted.spark.session import QUIET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fyrehose_twisted.spark.verify.verification import Verification

_numbers = count(1)


@contextmanager
def watching(spark: SparkSession, what: str, verification: Verification) -> Iterator[None]:
    """Show how far the tasks are that are begun meanwhile, unless the session was opened with ``--quiet``.

    :param what: what is being done, in a word.
    """
    if spark.conf.get(QUIET, "false") == "true":
        yield
        return
    context = spark.sparkContext
    group = f"fyrehose-verify-{next(_numbers)}"
    context.setJobGroup(group, what)
    line, over = ProgressLine(what, verification.rows), threading.Event()

    def watch() -> None:
        with suppress(Exception):  # The session may be stopped while we look.
            while not over.wait(POLL_INTERVAL):
                line.update(progress_of(work_of(context, group), verification))

    thread = threading.Thread(target=watch, name=f"progress of {what}", daemon=True)
    thread.start()
    finished = False
    try:
        yield
        finished = True
    finally:
        over.set()
        thread.join()
        with suppress(Exception):
            context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]  # None takes it away.
        if finished:
            line.finish(Work(verification.rows, verification.tasks, verification.tasks))
        else:
            line.clear()


def progress_of(work: Work, verification: Verification) -> Work:
    """Return what tasks have done in numbers compared; those that put together what was found are not counted."""
    done = min(work.done, verification.tasks)
    return Work(verification.rows * done // max(1, verification.tasks), done, verification.tasks)
