"""Journals whose records are in Parquet files and segments, here and in object storage, read as one table."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.parquet import export
from fyrehose_twisted.journal.errors import TierError
from fyrehose_twisted.journal.format.disk import TIER_LOCK_NAME, LocalDirectory
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.tier.entry import entry_numbers, read_entry
from fyrehose_twisted.journal.tier.location import object_path
from fyrehose_twisted.journal.tier.locks import lock_work
from fyrehose_twisted.journal.tier.mover import SegmentMover
from fyrehose_twisted.journal.tier.objects import ArrowObjects
from fyrehose_twisted.spark import read_journal
from fyrehose_twisted.spark.source import journal_locations
from fyrehose_twisted.spark.source.object_paths import hadoop_options, spark_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "fyrehose://test"
START = 1_700_000_000_000_000
"""Receive time of number 0, in microseconds since 1970."""


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in frame.orderBy("sequence").collect()]


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


def test_records_in_files_in_moved_segments_and_here_make_one_table(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 501), lost=[(501, 503)], group=20, segment_bytes=1_000)
    whole = rows(read_journal(spark, str(path)))
    lake, bucket = f"file://{tmp_path}/a%20lake", f"file://{tmp_path}/bucket"
    with closing(open_reader(path)) as reader:
        export(reader, lake, numbers=200, on_message=print)
    directory = LocalDirectory(path)
    kept = JournalConfig(segment_bytes=1_000, retention=Retention(seconds=1.0))
    with closing(Journal(directory, STREAM, config=kept, clock=lambda: START / 1e6 + 1.1)) as journal:
        journal.compact()
        assert journal.trim()
        bounds = journal.bounds(0)
    with lock_work(path, TIER_LOCK_NAME):
        SegmentMover(directory, ArrowObjects(), bucket).run(limit=9)
    moved = {number: read_entry(directory, number, ".tier") for number in entry_numbers(directory.names(), ".tier")}
    exported = [entry for entry in moved.values() if entry.ranges[0][1] <= 400]
    assert bounds is not None
    assert 1 < bounds.first < 200  # Some records are in files only, others in files and moved segments, ...
    assert 0 < len(exported) < len(moved)  # ... or in moved segments only, or only here.
    assert any(name.endswith(".seg") for name in directory.names())
    frame = read_journal(spark, str(path), parquet=lake)
    assert rows(frame) == whole
    assert [(row[2], row[5]) for row in whole][-4:] == [(500, "ok"), (501, "lost"), (502, "lost"), (503, "lost")]
    # Spark scans the files itself, and the source reads nothing of what is in them.
    assert plan(frame).count("FileScan parquet") == plan(frame).count("BatchScan") == 1
    for entry in exported:
        Path(object_path(entry.url)).unlink()
    while journal_locations._readers:  # They keep blocks in memory.
        journal_locations._readers.popitem()[1].close()
    assert rows(read_journal(spark, str(path), parquet=lake)) == whole
    with closing(open_reader(path)) as reader, pytest.raises(TierError, match=r"object file:///\S+ is missing"):
        reader.to_arrow().read_all()


def test_a_url_without_files_reads_all_from_the_journal(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 11))
    frame = read_journal(spark, str(path), parquet=f"file://{tmp_path}/nothing")
    assert "FileScan" not in plan(frame)
    assert [row.sequence for row in frame.orderBy("sequence").collect()] == list(range(1, 11))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (
            "s3://bucket/lake",
            r"no file system for s3a://.* spark\.jars\.packages=org\.apache\.hadoop:hadoop-aws:\d+\.\d+\.\d+;",
        ),
        ("abfss://box@account.dfs.core.windows.net/lake", r"spark\.jars\.packages=org\.apache\.hadoop:hadoop-azure:\d"),
        ("gs://bucket/lake", "add the package with Hadoop's file system for gs:// to spark.jars.packages"),
        ("fsspec+sftp://host/lake", r"Spark cannot read fsspec\+sftp://host/lake by itself"),
        ("s3://key:hush@bucket/lake", "has credentials"),
    ],
)
def test_a_missing_file_system_is_named_with_its_remedy(
    spark: SparkSession, write_journal: WriteJournal, url: str, message: str
) -> None:
    path = write_journal([1])
    with pytest.raises(ConfigurationError, match=message) as raised:
        read_journal(spark, str(path), parquet=url)
    if "bucket/lake" in url and "key" not in url:
        assert "read without parquet=" in str(raised.value)
    assert "hush" not in str(raised.value)


def test_objects_get_the_names_and_settings_of_hadoop() -> None:
    url = "s3://b/lake/fyrehose-a%2520b/0-1-9.parquet?endpoint_override=10.0.0.9:9000&scheme=http&region=eu-west-1"
    assert spark_path(url) == "s3a://b/lake/fyrehose-a%20b/0-1-9.parquet"
    assert hadoop_options(url) == {
        "fs.s3a.bucket.b.endpoint": "http://10.0.0.9:9000",
        "fs.s3a.bucket.b.path.style.access": "true",
        "fs.s3a.bucket.b.endpoint.region": "eu-west-1",
        "fs.s3a.bucket.b.connection.ssl.enabled": "false",
    }
    assert hadoop_options("s3://b/lake") == hadoop_options("file:///lake") == {}
