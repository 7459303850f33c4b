"""Progress display of a comparison. Spark counts only tasks, not the records that our tasks read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from fyrehose_twisted.spark.connect import is_connect
from fyrehose_twisted.spark.progress import POLL_INTERVAL, ProgressLine, SparkProgress, group_progress
from fyrehose_twisted.spark.session import QUIET

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from fyrehose_twisted.spark.verify.verification import Verification

_numbers = count(1)


@contextmanager
def show_verify_progress(spark: SparkSession, label: str, verification: Verification) -> Iterator[None]:
    """Show the progress of tasks started in the block, unless the session was opened with ``--quiet``.

    As in :func:`~fyrehose_twisted.spark.progress.show_progress`, nothing is shown in a session of Spark Connect.

    :param label: one word for the activity.
    """
    if is_connect(spark) or spark.conf.get(QUIET, "false") == "true":
        yield
        return
    context = spark.sparkContext
    group = f"fyrehose-verify-{next(_numbers)}"
    context.setJobGroup(group, label)
    line, over = ProgressLine(label, verification.rows), threading.Event()

    def watch() -> None:
        with suppress(Exception):  # The session may be stopped meanwhile.
            while not over.wait(POLL_INTERVAL):
                line.update(scale_progress(group_progress(context, group), verification))

    thread = threading.Thread(target=watch, name=f"progress of {label}", daemon=True)
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
            line.finish(SparkProgress(verification.rows, verification.tasks, verification.tasks))
        else:
            line.clear()


def scale_progress(work: SparkProgress, verification: Verification) -> SparkProgress:
    """Convert finished tasks to compared numbers; tasks that only merge findings are not counted."""
    done = min(work.finished_tasks, verification.tasks)
    return SparkProgress(verification.rows * done // max(1, verification.tasks), done, verification.tasks)
