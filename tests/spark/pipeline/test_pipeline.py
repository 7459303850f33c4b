"""Whole runs of the pipeline, with restarts and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from suite.journals import WriteJournal
from suite.sealing import ring, seal_one, sealer

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, wrap
from fyrehose_twisted.record import Record
from fyrehose_twisted.sealing.key_file import create_key_ring
from fyrehose_twisted.spark.pipeline import buckets, refresh
from fyrehose_twisted.spark.pipeline.command import format_summary
from fyrehose_twisted.spark.pipeline.run import Pipeline, PipelineSummary, Plan
from fyrehose_twisted.spark.pipeline.settings import RequestedSettings
from fyrehose_twisted.spark.source.journal_locations import locations_in_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "fyrehose://test"
START = 1_700_000_000_000_000
REPEATED = {203: 198}
"""Numbers whose message was published again, in the next of the small buckets."""


def record(number: int, late: int = 0, payload: bytes | None = None) -> Record:
    if payload is None:
        payload = b'{"n": %d}' % number if number % 10 else b"no json \xff"
    # Twenty seconds apart, so that hours, windows and buckets end at different numbers.
    return Record(
        STREAM, 0, number, START + number * 20_000_000 + late, wrap(b"someone!", REPEATED.get(number, number), payload)
    )


def run(spark: SparkSession, out: Path, *journals: Path, **more: Any) -> PipelineSummary:
    origins = [origin for path in journals for origin in locations_in_path(str(path), path.parent.name)]
    return Pipeline(spark, Plan(origins, str(out), once=True, **more)).run()


def contents(spark: SparkSession, out: Path, name: str) -> list[Any]:
    table = spark.read.parquet(str(out / name))
    names = sorted(set(table.columns) - {"batch"})
    return sorted((tuple(row) for row in table.select(*names).collect()), key=repr)


@pytest.fixture
def small_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buckets, "NUMBERS", 100)


@pytest.mark.soak(seconds=120)
@pytest.mark.usefixtures("small_buckets")
def test_incremental_runs_give_the_same_tables_as_one_run(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = [(40, 41), (95, 130), (299, 299)]
    mine = [n for n in range(1, 320) if not any(low <= n <= high for low, high in lost)]
    a = write_journal([record(n) for n in mine], lost=lost, begin=1)
    # The other begins later, lags, holds losses of the first, and differs at one number.
    b = write_journal([record(n, 500) for n in range(120, 180)], begin=120)
    sql = {"busiest": "SELECT stream, max(messages) AS most FROM traffic GROUP BY stream"}
    first = run(spark, tmp_path / "out", a, b, queries=sql, max_rows=150)
    assert first.new_batches > 1
    assert first.quarantined == 0
    assert first.reads_json
    nothing = run(spark, tmp_path / "out", a, b, queries=sql)
    assert (nothing.new_batches, nothing.bronze_rows) == (0, first.bronze_rows)

    write_journal([record(n) for n in range(320, 345)], path=a)
    later = [record(n, 90_000_000 if n == 299 else 0, b"forged" if n == 250 else None) for n in range(180, 360)]
    write_journal([one for one in later if one.sequence != 352], lost=[(352, 352)], path=b)
    summary = run(spark, tmp_path / "out", a, b, queries=sql)
    assert summary.new_batches == 1
    assert (summary.quarantined, summary.numbers) == (1, 359)
    assert "  quarantine  1 number on which journals disagree" in format_summary(summary)

    # Two buckets together, instead of all.
    monkeypatch.setattr(refresh, "ROWS_AT_ONCE", 400)
    monkeypatch.setattr(refresh, "ROWS_PER_CORE", 0)
    run(spark, tmp_path / "again", a, b, queries=sql)
    again = spark.read.parquet(str(tmp_path / "again/silver")).where("repeat").select("sequence").collect()
    assert [row.sequence for row in again] == list(REPEATED)
    for name in ("bronze", "silver", "quarantine", "gold/traffic", "gold/latency", "gold/gaps", "gold/busiest"):
        assert contents(spark, tmp_path / "out", name) == contents(spark, tmp_path / "again", name), name
    missing = spark.read.parquet(str(tmp_path / "out/gold/gaps")).select("first_missing", "last_missing").collect()
    assert sorted(map(tuple, missing)) == [(40, 41), (95, 119), (352, 352)]
    _read_alike(spark, tmp_path / "out")


def _read_alike(spark: SparkSession, out: Path) -> None:
    """Check that DuckDB and pandas read the same from the files as Spark."""
    import duckdb
    import pandas

    for name, key in (("silver", "sequence"), ("gold/traffic", "window_start"), ("gold/gaps", "first_missing")):
        ours = spark.read.parquet(str(out / name))
        names = [one for one in ours.columns if one != "message"]
        wanted = [tuple(map(_plain, row)) for row in ours.select(names).orderBy(key).collect()]
        assert wanted
        files = f"read_parquet('{out / name}/**/*.parquet', hive_partitioning = true)"
        duck = duckdb.sql(f"SET TimeZone = 'UTC'; SELECT {', '.join(names)} FROM {files} ORDER BY {key}").fetchall()
        assert [tuple(map(_plain, row)) for row in duck] == wanted, name
        bear = pandas.read_parquet(out / name)[names].sort_values(key)
        assert [tuple(map(_plain, row)) for row in bear.itertuples(index=False)] == wanted, name
    query = "SELECT sequence, message.n FROM {} ORDER BY sequence"
    silver = f"read_parquet('{out}/silver/**/*.parquet', hive_partitioning = true)"
    spark.read.parquet(str(out / "silver")).createOrReplaceTempView("silver_here")
    by_spark = [tuple(row) for row in spark.sql(query.format("silver_here")).collect()]
    spark.catalog.dropTempView("silver_here")
    assert duckdb.sql(query.format(silver)).fetchall() == by_spark


def _plain(value: Any) -> Any:
    """Normalise a value: pandas has floats in nullable columns, and time zones differ."""
    if value is None or value != value:
        return None
    if hasattr(value, "timestamp"):
        value = value if value.tzinfo else value.replace(tzinfo=UTC)
        return round(value.timestamp() * 1_000_000)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    return value if isinstance(value, str) else int(value)


@pytest.mark.soak(seconds=120)
@pytest.mark.usefixtures("small_buckets")
def test_changed_settings_rebuild_all_tables(spark: SparkSession, write_journal: WriteJournal, tmp_path: Path) -> None:
    journal = write_journal([record(n) for n in range(1, 150)])
    out = tmp_path / "out"
    run(spark, out, journal, requested=RequestedSettings(schema="n BIGINT, other STRING"))
    assert "message" in spark.read.parquet(str(out / "silver")).columns
    run(spark, out, journal, requested=RequestedSettings(no_json=True, window="1 day"))
    silver = spark.read.parquet(str(out / "silver"))
    assert "message" not in silver.columns
    assert silver.count() == 149
    assert spark.read.parquet(str(out / "gold/traffic")).count() == 1


@pytest.mark.extended
def test_tables_of_a_sealed_stream_hold_what_was_published(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    made, records = sealer(ring(stream=STREAM)), []
    for number in range(1, 21):
        plain = record(number)
        envelope, payload = plain.payload[:ENVELOPE_SIZE], plain.payload[ENVELOPE_SIZE:]
        sealed = seal_one(made, payload, envelope) if number != 7 else plain.payload
        records.append(plain._replace(payload=sealed))
    create_key_ring(tmp_path / "keys", ring(stream=STREAM))
    journal = write_journal(records, begin=1)
    summary = run(spark, tmp_path / "out", journal, seal_key_files=[str(tmp_path / "keys")])
    assert (summary.numbers, summary.lost, summary.quarantined) == (20, 1, 0)
    assert summary.reads_json
    silver = spark.read.parquet(str(tmp_path / "out" / "silver"))
    found = {row.sequence: (row.status, row.message and row.message.n, row.publisher) for row in silver.collect()}
    publisher = b"someone!".hex()
    assert found == {
        number: ("lost", None, None) if number == 7 else ("ok", number if number % 10 else None, publisher)
        for number in range(1, 21)
    }


@pytest.mark.soak(seconds=120)
def test_the_pipeline_follows_until_it_is_stopped(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    journal = write_journal([record(n) for n in range(1, 50)])
    origins = locations_in_path(str(journal))
    pipeline = Pipeline(spark, Plan(origins, str(tmp_path / "out"), trigger=0.2, refresh=0.5))
    done: list[PipelineSummary] = []
    running = threading.Thread(target=lambda: done.append(pipeline.run()))
    running.start()
    wait_for(lambda: (tmp_path / "out/gold/traffic").exists(), running.join)
    write_journal([record(n) for n in range(50, 90)], path=journal)
    wait_for(lambda: (tmp_path / "out/checkpoint/commits/1").exists(), running.join)
    pipeline.stop()
    running.join(120)
    [summary] = done
    assert (summary.bronze_rows, summary.numbers, summary.tables["traffic"] > 0) == (89, 89, True)


def wait_for(condition: Callable[[], bool], pause: Callable[[float], object], seconds: float = 200.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        pause(0.001)


def _appeared(out: Path, pattern: str, process: subprocess.Popen[bytes]) -> bool:
    return bool(list(out.glob(pattern))) or process.poll() is not None


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


STAGES = ("bronze/batch=1/_temporary", "silver/.spark-staging*", "gold/traffic/.spark-staging*")
"""Paths that appear while a batch, silver and gold are written."""


@pytest.mark.soak(seconds=300)
def test_repeated_kills_lose_and_duplicate_no_rows(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    _kill_at(STAGES, spark, write_journal, tmp_path)
    run(spark, tmp_path / "again", tmp_path / "journal-1" / "fyrehose-test")
    for name in ("gold/traffic", "gold/latency", "gold/gaps"):
        assert contents(spark, tmp_path / "out", name) == contents(spark, tmp_path / "again", name), name


@pytest.mark.soak(seconds=120)
def test_kills_within_a_batch_lose_and_duplicate_no_rows(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    _kill_at(STAGES[:1], spark, write_journal, tmp_path)


def _kill_at(stages: Sequence[str], spark: SparkSession, write_journal: WriteJournal, tmp_path: Path) -> None:
    lost = [(1_000, 1_009)]
    numbers = [n for n in range(1, 4_001) if not 1_000 <= n < 1_010]
    journal = write_journal([record(n, payload=bytes(n % 700)) for n in numbers], lost=lost)
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from fyrehose_twisted.spark.cli import main; main()", "run", "--quiet"]
    command += [f"a={journal}", "--out", str(out), "--once", "--max-rows-per-batch", "1500"]
    command += ["--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=2"]
    for stage in stages:
        process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE)
        try:
            there = partial(_appeared, out, stage, process)
            wait_for(there, partial(_wait, process))
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            _, said = process.communicate()
        assert process.returncode == -signal.SIGKILL, (stage, said[-2_000:])
    origins = locations_in_path(str(journal), "a")
    summary = Pipeline(spark, Plan(origins, str(out), once=True)).run()
    assert (summary.bronze_rows, summary.numbers, summary.lost) == (4_000, 4_000, 10)
    source = spark.read.format("fyrehose").option("columns", "sequence,received_at,payload,status").load(str(journal))
    bronze = spark.read.parquet(str(out / "bronze")).select(source.columns)
    assert [tuple(row) for row in bronze.orderBy("sequence").collect()] == [
        tuple(row) for row in source.orderBy("sequence").collect()
    ]
    silver = spark.read.parquet(str(out / "silver")).select("sequence", "payload", "status")
    held = set(numbers)
    assert {row[0]: (None if row[1] is None else bytes(row[1]), row[2]) for row in silver.collect()} == {
        number: (bytes(number % 700), "ok") if number in held else (None, "lost") for number in range(1, 4_001)
    }
    assert silver.count() == 4_000
    assert not list(out.rglob(".spark-staging*/**/*.parquet"))
