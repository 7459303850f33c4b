"""Data source in a Spark session."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException
from suite.journals import WriteJournal

from fyrehose_twisted.journal.arrow.parquet import export
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.upkeep.seal import seal
from fyrehose_twisted.spark import read_journal, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "fyrehose://test"
SERVE = """
import sys
from pathlib import Path
from twisted.internet import reactor
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.remote.server import JournalServerFactory
reader = open_reader(Path(sys.argv[1]))
secret = sys.argv[2].encode() or None
port = reactor.listenTCP(0, JournalServerFactory(lambda: {reader.stream: reader}, secret), interface="127.0.0.1")
print(port.getHost().port, flush=True)
reactor.run()
"""

Serve = Callable[..., str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return a function that serves a journal in a subprocess and returns host and port."""
    processes = []

    def start(path: Path, secret: str = "") -> str:
        command = [sys.executable, "-c", SERVE, str(path), secret]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        processes.append(process)
        assert process.stdout is not None
        return f"127.0.0.1:{int(process.stdout.readline())}"

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def pairs(frame: DataFrame) -> list[tuple[Any, ...]]:
    return [(row.sequence, row.status) for row in frame.select("sequence", "status").orderBy("sequence").collect()]


def test_a_journal_is_read_as_a_table(spark: SparkSession, write_journal: WriteJournal) -> None:
    path = write_journal([n for n in range(1, 101) if n != 50], lost=[(50, 50)])
    frame = read_journal(spark, str(path), rowsPerPartition="30")
    assert frame.rdd.getNumPartitions() == 4
    assert pairs(frame) == [(n, "lost" if n == 50 else "ok") for n in range(1, 101)]
    row = frame.where("sequence = 7").first()
    assert (row.stream, row.epoch, row.payload) == (STREAM, 0, b"message 7")  # type: ignore[union-attr]
    assert frame.where("sequence = 7").selectExpr("unix_micros(received_at)").first()[0] == 1_700_000_000_007_000  # type: ignore[index]


def test_a_schema_selects_columns_of_the_source(spark: SparkSession, write_journal: WriteJournal) -> None:
    path = write_journal([1, 2, 3])
    frame = spark.read.format("fyrehose").schema("sequence BIGINT, journal STRING").load(str(path))
    assert frame.collect() == [(1, str(path)), (2, str(path)), (3, str(path))]
    with pytest.raises(PySparkException, match="the schema has sequence INT; the source has stream STRING"):
        spark.read.format("fyrehose").schema("sequence INT").load(str(path)).collect()


@pytest.mark.parametrize(
    ("condition", "wanted", "partitions"),
    [
        ("sequence between 30 and 39", range(30, 40), 1),
        ("sequence > 95", range(96, 101), 1),
        ("sequence < 3 and stream = 'fyrehose://test'", range(1, 3), 1),
        ("sequence = 12", [12], 1),
        ("stream = 'fyrehose://other'", [], 1),
        ("epoch = 1", [], 1),
        ("sequence >= 11 or payload is null", range(11, 101), 10),
    ],
)
def test_pushed_filters_limit_partitions(
    spark: SparkSession, write_journal: WriteJournal, condition: str, wanted: Any, partitions: int
) -> None:
    path = write_journal(range(1, 101))
    frame = read_journal(spark, str(path), pushdown="once", rowsPerPartition="10").where(condition)
    assert frame.rdd.getNumPartitions() == partitions
    assert pairs(frame) == [(n, "ok") for n in wanted]


def test_offsets_and_times_limit_a_batch(spark: SparkSession, write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 101))
    frame = read_journal(spark, str(path), startingOffsets="20", endingOffsets=json.dumps({STREAM: 30}))
    assert pairs(frame) == [(n, "ok") for n in range(20, 30)]
    times = {"startingTimestamp": "2023-11-14T22:13:20.040Z", "endingTimestamp": "2023-11-14T22:13:20.050Z"}
    assert pairs(read_journal(spark, str(path), **times)) == [(n, "ok") for n in range(40, 50)]


def test_a_remote_journal_is_read_without_local_files(
    spark: SparkSession, write_journal: WriteJournal, serve: Serve, tmp_path: Path
) -> None:
    path = write_journal([n for n in range(1, 101) if n != 50], lost=[(50, 50)])
    secret = tmp_path / "secret"
    secret.write_text("a secret of some length\n")
    secret.chmod(0o600)
    address = serve(path, "a secret of some length")
    frame = read_journal(spark, journal=address, secretFile=str(secret), rowsPerPartition="40")
    assert pairs(frame) == [(n, "lost" if n == 50 else "ok") for n in range(1, 101)]
    assert pairs(frame) == pairs(read_journal(spark, str(path)))
    with pytest.raises(PySparkException, match="SecretRejected"):
        read_journal(spark, journal=address).collect()


def test_source_errors_are_raised_with_their_names(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="ConfigurationError: there is no column 'foo'"):
        read_journal(spark, str(tmp_path), columns=["foo"]).collect()
    with pytest.raises(PySparkException, match=r"JournalError: .* holds no journal"):
        read_journal(spark, str(tmp_path)).collect()
    with pytest.raises(PySparkException, match=r"NotConnected: the journal server 127.0.0.1:1 cannot be reached"):
        read_journal(spark, journal="127.0.0.1:1").collect()


def test_an_empty_range_is_read_as_an_empty_table(spark: SparkSession, write_journal: WriteJournal) -> None:
    path = write_journal([1, 2])
    assert read_journal(spark, str(path), startingOffsets="latest").collect() == []


def test_exported_parquet_and_journal_tail_make_one_table(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal([n for n in range(1, 101) if n != 50], lost=[(50, 50)])
    seal(LocalDirectory(path), STREAM, 0)
    reader = open_reader(path)
    export(reader, tmp_path / "cold", on_message=print)
    reader.close()
    write_journal(range(101, 121), path=path)
    frame = read_journal(spark, str(path), parquet=str(tmp_path / "cold"))
    assert pairs(frame) == [(n, "lost" if n == 50 else "ok") for n in range(1, 121)]
    plain = read_journal(spark, str(path))
    assert frame.exceptAll(plain).count() == plain.exceptAll(frame).count() == 0
    # Numbers in files are not read from the journal.
    (file,) = tmp_path.glob("cold/*/*.parquet")
    file.unlink()
    spark.catalog.clearCache()
    assert pairs(read_journal(spark, str(path), parquet=str(tmp_path / "cold"))) == pairs(plain)


def test_a_stopped_and_replayed_stream_reads_each_row_once(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 501))
    seen = tmp_path / "seen"

    def run() -> list[Any]:
        frame = spark.readStream.format("fyrehose").options(startingOffsets="earliest", maxOffsetsPerTrigger="200")
        writer = frame.load(str(path)).writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))

        def keep(batch: DataFrame, number: int) -> None:
            batch.write.mode("overwrite").parquet(str(seen / f"batch={number}"))

        query = writer.foreachBatch(keep).trigger(availableNow=True).start()
        query.awaitTermination()
        return list(query.recentProgress)

    progress = run()
    assert [one["numInputRows"] for one in progress] == [200, 200, 100]
    latest = json.loads(progress[0]["sources"][0]["latestOffset"])
    assert list(latest["journals"].values()) == [{STREAM: {"0": 501}}]
    # As after a crash between writing and committing the last batch.
    for commit in (tmp_path / "checkpoint" / "commits").glob("*2*"):
        commit.unlink()
    write_journal(range(501, 601), path=path)
    run()
    frame = spark.read.parquet(str(seen))
    assert pairs(frame) == [(n, "ok") for n in range(1, 601)]


class Query:
    """A streaming query that writes to a directory and resumes at its checkpoint."""

    def __init__(self, spark: SparkSession, tmp_path: Path) -> None:
        self._spark = spark
        self._root = tmp_path

    def run(self, path: Path | str, **given: str) -> list[int]:
        """Read available records; return all numbers read so far."""
        frame = self._spark.readStream.format("fyrehose").options(startingOffsets="earliest", **given).load(str(path))
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(self._root / "checkpoint"))
        query = writer.trigger(availableNow=True).start(str(self._root / "seen"))
        query.awaitTermination()
        rows = self._spark.read.parquet(str(self._root / "seen")).select("sequence").collect()
        return sorted(row.sequence for row in rows)


def test_a_checkpoint_identifies_a_journal_under_another_path(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 11))
    query = Query(spark, tmp_path)
    assert query.run(path) == list(range(1, 11))
    (tmp_path / "link").symlink_to(path)
    write_journal([11, 12], path=path)
    assert query.run(tmp_path / "link") == list(range(1, 13))
    write_journal([13], path=path)
    assert query.run(path.parent, name="mine") == list(range(1, 14))


def test_a_checkpoint_of_an_earlier_release_is_continued(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 11))
    query = Query(spark, tmp_path)
    query.run(path)
    for file in (tmp_path / "checkpoint" / "offsets").glob("[0-9]*"):
        lines = file.read_text().splitlines()
        lines[-1] = json.dumps({"journals": {str(path): {STREAM: {"0": 11}}}})
        file.write_text("\n".join(lines))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    write_journal([11, 12], path=path)
    assert query.run(path) == list(range(1, 13))


def test_a_checkpoint_refuses_another_journal_under_its_path(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 11))
    query = Query(spark, tmp_path)
    query.run(path)
    for file in path.iterdir():
        file.unlink()
    write_journal(range(1, 21), path=path)
    with pytest.raises(PySparkException, match="which is no longer among the sources:"):
        query.run(path)


def test_inapplicable_source_options_are_refused_by_name(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 11))
    with pytest.raises(PySparkException, match="endingOffsets does not apply to a stream, only to a batch"):
        Query(spark, tmp_path).run(path, endingOffsets="5")
    with pytest.raises(PySparkException, match="maxOffsetsPerTrigger does not apply to a batch"):
        read_journal(spark, str(path), maxOffsetsPerTrigger="5").collect()
    with pytest.raises(PySparkException, match="startingOffsets 12 lies beyond the end"):
        read_journal(spark, str(path), startingOffsets="12").collect()


def test_a_relative_path_is_relative_to_the_python_process(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_journal(range(1, 4))
    monkeypatch.chdir(tmp_path)  # Spark's workers have another working directory.
    relative = str(path.relative_to(tmp_path))
    assert pairs(read_journal(spark, relative)) == [(1, "ok"), (2, "ok"), (3, "ok")]
    register(spark)
    assert spark.read.format("fyrehose").load(relative).count() == 3


def test_records_missing_at_the_end_of_the_open_segment_fail_a_read(
    spark: SparkSession, write_journal: WriteJournal
) -> None:
    path = write_journal(range(1, 5_001))
    (file,) = path.glob("*.log")
    data = bytearray(file.read_bytes())
    data[-500] ^= 4
    file.write_bytes(data)
    words = "numbers 4001 to 5000 of epoch 0: the checksum of the body is wrong"
    with pytest.raises(PySparkException, match=words):
        read_journal(spark, str(path)).count()
    assert read_journal(spark, str(path), failOnDataLoss="false").count() == 4_000
