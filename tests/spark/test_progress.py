from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.spark.listener import format_progress, offset_lag, stream_progress
from fyrehose_twisted.spark.progress import ProgressLine, SparkProgress, group_progress, show_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a mutable fake time."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def offset(next: int, epoch: int = 0) -> str:
    return json.dumps({"journals": {"left": {"fyrehose://a": {str(epoch): next}}}})


def test_a_progress_line_has_rows_rate_and_percent() -> None:
    line = ProgressLine("verify", 4_000, io.StringIO())
    assert line.text(SparkProgress(1_000, 1, 4), 2.0) == "verify: 1,000 rows, 500 rows/s, 25 %"


def test_a_progress_line_has_tasks_once_all_rows_are_read() -> None:
    line = ProgressLine("verify", 4_000, io.StringIO())
    assert line.text(SparkProgress(4_100, 5, 12), 2.0) == "verify: 4,100 rows, 2,050 rows/s, 100 %, task 5 of 12"


def test_a_progress_line_without_a_total_has_no_percent() -> None:
    assert (
        ProgressLine("sql", 0, io.StringIO()).text(SparkProgress(10, 1, 2), 1.0)
        == "sql: 10 rows, 10 rows/s, task 1 of 2"
    )


def test_progress_on_a_terminal_is_one_line(clock: list[float]) -> None:
    file = Terminal()
    line = ProgressLine("run", 0, file)
    clock[0] += 1
    line.update(SparkProgress(1_000_000, 0, 0))
    clock[0] += 1_999
    line.update(SparkProgress(1_000_001, 0, 0))
    line.finish(SparkProgress(2_000_000, 0, 0))
    texts = file.getvalue().split("\r")
    assert [text.rstrip() for text in texts[1:]] == [
        "run: 1,000,000 rows, 1,000,000 rows/s",
        "run: 1,000,001 rows, 500 rows/s",
        "run: 2,000,000 rows in 2,000.0 s, 1,000 rows/s",
    ]
    # A longer previous line is overwritten.
    assert len(texts[2]) >= len(texts[1])
    assert file.getvalue().count("\n") == 1


def test_progress_in_a_file_is_only_the_final_line(clock: list[float]) -> None:
    file = io.StringIO()
    line = ProgressLine("run", 0, file)
    for _ in range(10):
        clock[0] += 5
        line.update(SparkProgress(1, 0, 0))
    assert file.getvalue() == ""
    line.finish(SparkProgress(1, 0, 0))
    assert file.getvalue() == "run: 1 row in 50.0 s, 0 rows/s\n"


def test_spark_progress_works_with_a_closed_standard_error() -> None:
    file = io.StringIO()
    line = ProgressLine("run", 0, file)
    file.close()
    line._in_place = True
    line.update(SparkProgress(1, 0, 0))
    line.finish(SparkProgress(1, 0, 0))


def test_rows_read_by_spark_jobs_are_counted(
    spark: SparkSession, write_journal: WriteJournal, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = write_journal(range(1, 1_001))
    context = spark.sparkContext
    context.setLocalProperty("spark.jobGroup.id", "theirs")
    with show_progress(spark, "count", 1_000):
        group = context.getLocalProperty("spark.jobGroup.id")
        assert spark.read.format("fyrehose").load(str(journal)).count() == 1_000
    done = group_progress(context, group)
    assert done.rows == 1_000
    assert 0 < done.finished_tasks <= done.tasks
    assert context.getLocalProperty("spark.jobGroup.id") == "theirs"
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("count: 1,000 rows in ")


def test_a_quiet_session_shows_no_progress(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    spark.conf.set("spark.fyrehose.quiet", "true")
    try:
        with show_progress(spark, "count", 3):
            spark.range(3).count()
    finally:
        spark.conf.unset("spark.fyrehose.quiet")
    assert capsys.readouterr().err == ""


def test_a_failed_job_ends_its_progress_line(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), show_progress(spark, "count", 3):
        raise KeyError("x")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("end", "latest", "numbers"),
    [
        (offset(11), offset(15), 4),
        (offset(15), offset(15), 0),
        # A batch may end after the last known end of the journals.
        (offset(15), offset(11), 0),
        (json.loads(offset(1)), json.loads(offset(2)), 1),
        (None, offset(1), None),
        ("{}", offset(1), None),
        ("nonsense", offset(1), None),
    ],
)
def test_the_lag_of_a_query_is_counted_in_numbers(end: Any, latest: Any, numbers: int | None) -> None:
    assert offset_lag(end, latest) == numbers


def test_the_progress_of_a_batch_is_one_line() -> None:
    report = {
        "batchId": 3,
        "numInputRows": 1_000,
        "durationMs": {"triggerExecution": 500},
        "sources": [{"endOffset": offset(1_001), "latestOffset": offset(5_001)}],
    }
    assert format_progress(report) == "3: 1,000 rows, 2,000 rows/s, 4,000 numbers behind (2.0 s)"
    assert format_progress({"batchId": 4, "sources": [{"endOffset": "7"}]}) == "4: 0 rows, 0 rows/s"


def test_each_batch_of_a_query_shows_its_progress(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = write_journal(range(1, 301))
    read = spark.readStream.format("fyrehose").option("startingOffsets", "earliest")
    rows = read.option("maxOffsetsPerTrigger", "200").load(str(journal))
    write = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with stream_progress(spark):
        write.trigger(availableNow=True).start().awaitTermination()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" rows,")[0] for line in lines[:2]] == ["batch 0: 200", "batch 1: 100"]
    assert ", 100 numbers behind (" in lines[0]
    assert lines[1].endswith(", 0 numbers behind")
