"""Offsets and micro-batches of the stream reader, without Spark."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StructField, StructType
from suite.journals import WriteJournal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError, NotInJournal
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.watermark import read_position
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record
from fyrehose_twisted.spark.source import streaming
from fyrehose_twisted.spark.source.data_source import FyrehoseDataSource, schema_columns
from fyrehose_twisted.spark.source.options import read_options
from fyrehose_twisted.spark.source.streaming import FyrehoseStreamReader, UnknownJournal

STREAM = "fyrehose://test"
ALL = ReadAllAvailable()


def reader(path: Path | str, **given: str) -> FyrehoseStreamReader:
    options = {"path": str(path), "startingOffsets": "earliest", **given}
    return FyrehoseStreamReader(read_options(options, streaming=True), RECORD)


def offset(path: Path, next: int, epoch: int = 0, stream: str = STREAM) -> dict[str, Any]:
    key = tag_of(path)
    return {"journals": {key: {stream: {str(epoch): next}}}, "tags": {key: {stream: key}}}


def tag_of(path: Path) -> str:
    mark = read_position(LocalDirectory(path))
    assert mark is not None
    return f"{mark.tag:08x}"


def rows(stream: FyrehoseStreamReader, start: Any, end: Any) -> list[tuple[int, str]]:
    # Spark pickles reader and partitions and stores offsets as JSON.
    stream = pickle.loads(pickle.dumps(stream))  # noqa: S301
    start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
    parts = pickle.loads(pickle.dumps(stream.partitions(start, end)))  # noqa: S301
    return [
        (row["sequence"], row["status"]) for part in parts for batch in stream.read(part) for row in batch.to_pylist()
    ]


def test_the_stream_reader_reads_the_columns_of_its_schema() -> None:
    source = FyrehoseDataSource({"path": "/somewhere"})
    schema = StructType([StructField("sequence", LongType()), StructField("payload", BinaryType())])
    stream = source.streamReader(schema)
    assert isinstance(stream, FyrehoseStreamReader)
    assert schema_columns(schema) == ("sequence", "payload")
    assert stream.getDefaultReadLimit() == ALL
    for field, words in (
        (StructField("sequence", BinaryType()), "the schema has sequence BINARY; the source has "),
        (StructField("sequence", LongType(), False), "the schema has sequence BIGINT NOT NULL; the source has "),
        (StructField("size", LongType()), "the schema has size BIGINT; the source has "),
    ):
        with pytest.raises(ConfigurationError, match=words):
            source.streamReader(StructType([field]))


def test_a_restarted_streaming_query_continues_at_its_offset(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 11))
    stream = reader(path)
    start = stream.initialOffset()
    assert start == offset(path, 1)
    middle = stream.latestOffset(start, ALL)
    assert middle == offset(path, 11)
    assert rows(stream, start, middle) == [(n, "ok") for n in range(1, 11)]
    assert stream.latestOffset(middle, ALL) == middle
    write_journal(range(11, 21), path=path)
    end = stream.latestOffset(middle, ALL)
    assert rows(stream, middle, end) == [(n, "ok") for n in range(11, 21)]
    assert rows(reader(path), start, middle) == [(n, "ok") for n in range(1, 11)]
    assert stream.reportLatestOffset() == end


@pytest.mark.parametrize(("start", "first"), [("earliest", 1), ("latest", 11), ("5", 5)])
def test_a_streaming_query_begins_at_its_starting_offset(write_journal: WriteJournal, start: str, first: int) -> None:
    path = write_journal(range(1, 11))
    assert reader(path, startingOffsets=start).initialOffset() == offset(path, first)


def test_a_streaming_query_may_begin_at_a_time(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 101))
    options = {"path": str(path), "startingTimestamp": "2023-11-14T22:13:20.050Z"}
    stream = FyrehoseStreamReader(read_options(options, streaming=True), RECORD)
    assert stream.initialOffset() == offset(path, 50)


def test_the_rows_of_a_batch_are_limited(write_journal: WriteJournal) -> None:
    path = write_journal([n for n in range(1, 101) if n % 10], lost=[(n, n) for n in range(10, 101, 10)])
    stream = reader(path, maxOffsetsPerTrigger="30")
    assert stream.getDefaultReadLimit() == ReadMaxRows(30)
    at, sizes = stream.initialOffset(), []
    while True:
        end = stream.latestOffset(at, stream.getDefaultReadLimit())
        if end == at:
            break
        sizes.append(len(rows(stream, at, end)))
        at = end
    assert sizes == [30, 30, 30, 10]


def test_the_row_limit_is_shared_among_journals(tmp_path: Path, write_journal: WriteJournal) -> None:
    small, large = write_journal(range(1, 6)), write_journal(range(1, 1_001))
    stream = reader(tmp_path / "journal-*")
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(100))
    assert end["journals"] == {tag_of(small): {STREAM: {"0": 6}}, tag_of(large): {STREAM: {"0": 96}}}


def test_equally_long_journals_share_a_batch_equally(tmp_path: Path, write_journal: WriteJournal) -> None:
    paths = [write_journal(range(1, 1_001)) for _ in range(4)]
    stream = reader(tmp_path / "journal-*")
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(100))
    assert {name: streams[STREAM]["0"] for name, streams in end["journals"].items()} == {
        tag_of(one): 26 for one in paths
    }


def test_a_large_gap_does_not_use_up_the_row_limit(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2, 2**47, 2**47 + 1], lost=[(3, 2**47 - 1)])
    stream = reader(path)
    end = stream.latestOffset(stream.initialOffset(), ReadMaxRows(5))
    assert end == offset(path, 2**47 + 1)
    assert len(rows(stream, stream.initialOffset(), end)) == 5


def test_the_bytes_of_a_batch_are_limited_approximately(write_journal: WriteJournal) -> None:
    path = write_journal([(n, b"x" * 100) for n in range(1, 1_001)])
    stream = reader(path, maxBytesPerTrigger="10000")
    assert stream.getDefaultReadLimit() == ReadMaxBytes(10_000)
    assert stream.latestOffset(stream.initialOffset(), ReadMaxBytes(10_000)) == offset(path, 101)
    assert stream.latestOffset(stream.initialOffset(), ReadMaxBytes(1)) == offset(path, 2)


def test_a_batch_waits_for_the_minimum_rows_up_to_a_delay(
    write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(streaming.time, "monotonic", lambda: now)
    path = write_journal(range(1, 11))
    stream = reader(path, minOffsetsPerTrigger="11", maxTriggerDelay="20s")
    start = stream.initialOffset()
    assert stream.latestOffset(start, ALL) == start
    now += 19.0
    assert stream.latestOffset(start, ALL) == start
    now += 1.0
    end = stream.latestOffset(start, ALL)
    assert end == offset(path, 11)
    write_journal(range(11, 22), path=path)
    assert stream.latestOffset(end, ALL) == offset(path, 22)


def test_available_now_ends_at_the_ends_at_its_start(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 11))
    stream = reader(path, minOffsetsPerTrigger="1000")
    start = stream.initialOffset()
    stream.prepareForTriggerAvailableNow()
    write_journal(range(11, 21), path=path)
    end = stream.latestOffset(start, ALL)
    assert end == offset(path, 11)
    assert stream.latestOffset(end, ALL) == end


def test_an_older_epoch_may_grow_after_a_newer_one_has_begun(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2, 4], epoch=1)
    write_journal([1, 2], epoch=2, path=path, begin=1)
    stream = reader(path)
    middle = stream.latestOffset(stream.initialOffset(), ALL)
    assert middle["journals"] == {tag_of(path): {STREAM: {"1": 3, "2": 3}}}
    write_journal([3], epoch=1, path=path)
    end = stream.latestOffset(middle, ALL)
    assert rows(stream, middle, end) == [(3, "ok"), (4, "ok")]


def test_a_stream_added_later_is_read_from_its_beginning(tmp_path: Path, write_journal: WriteJournal) -> None:
    write_journal([1, 2])
    stream = reader(tmp_path / "journal-*")
    middle = stream.latestOffset(stream.initialOffset(), ALL)
    other = write_journal([5, 6], stream="hydra://net", begin=5)
    end = stream.latestOffset(middle, ALL)
    assert end["journals"][tag_of(other)] == {"hydra://net": {"0": 7}}
    assert rows(stream, middle, end) == [(5, "ok"), (6, "ok")]


def _append(journal: Journal, first: int, end: int, epoch: int = 0) -> None:
    for low in range(first, end, 20):
        journal.append([Record(STREAM, epoch, n, 1, b"%100d" % n) for n in range(low, low + 20)])
        journal.commit()
        journal.trim()


def _trimmed(path: Path, first: int = 1, epoch: int = 0) -> int:
    config = JournalConfig(segment_bytes=4_096, retention=Retention(size=16_384))
    journal = Journal(LocalDirectory(path), STREAM, config=config)
    _append(journal, first, first + 400, epoch)
    bounds = journal.bounds(epoch)
    journal.close()
    assert bounds is not None
    return bounds.first


def test_records_dropped_before_they_were_read_are_raised_or_lost(tmp_path: Path) -> None:
    kept = _trimmed(tmp_path)
    assert kept > 100
    start, end = offset(tmp_path, 90), offset(tmp_path, 401)
    with pytest.raises(NotInJournal, match=f"begins at {kept} of epoch 0 .* numbers from 90 on"):
        reader(tmp_path).partitions(start, end)
    given = rows(reader(tmp_path, failOnDataLoss="false"), start, end)
    assert given == [(n, "lost" if n < kept else "ok") for n in range(90, 401)]


def test_a_removed_journal_is_raised_or_skipped(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2])
    start = {"journals": {"/elsewhere": {STREAM: {"0": 5}}} | offset(path, 1)["journals"]}
    end = {"journals": {"/elsewhere": {STREAM: {"0": 9}}} | offset(path, 3)["journals"]}
    words = f"journal /elsewhere of fyrehose://test, which is no longer among the sources: {path} "
    with pytest.raises(UnknownJournal, match=words):
        reader(path).partitions(start, end)
    assert rows(reader(path, failOnDataLoss="false"), start, end) == [(1, "ok"), (2, "ok")]


def test_a_journal_that_ends_before_its_offset_is_an_error(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2])
    with pytest.raises(JournalError, match="now ends at 2; `fyrehose journal check`"):
        reader(path).partitions(offset(path, 1), offset(path, 50))


def test_a_streaming_offset_of_another_source_is_refused(write_journal: WriteJournal) -> None:
    path = write_journal([1])
    with pytest.raises(JournalError, match="which this source did not write"):
        reader(path).partitions({"logOffset": 3}, offset(path, 2))


def test_an_empty_batch_has_one_empty_partition(write_journal: WriteJournal) -> None:
    path = write_journal([1])
    assert rows(reader(path), offset(path, 2), offset(path, 2)) == []


def test_a_replayed_first_batch_begins_at_the_same_number(tmp_path: Path) -> None:
    """Even if retention has dropped records, since a replay must not return fewer rows silently."""
    stream = reader(tmp_path)
    journal = Journal(LocalDirectory(tmp_path), STREAM, config=JournalConfig(segment_bytes=4_096))
    _append(journal, 1, 201)
    end = stream.latestOffset({"journals": {}}, ALL)
    journal.close()
    _trimmed(tmp_path, 201)
    with pytest.raises(NotInJournal, match="numbers from 1 on"):
        stream.partitions({"journals": {}}, end)
    given = rows(reader(tmp_path, failOnDataLoss="false"), {"journals": {}}, end)
    assert [number for number, _ in given] == list(range(1, 201))
    following = stream.latestOffset(end, ALL)
    assert following == offset(tmp_path, 601)


def test_an_epoch_dropped_before_it_was_read_is_raised_or_lost(tmp_path: Path) -> None:
    journal = Journal(LocalDirectory(tmp_path), STREAM, config=JournalConfig(segment_bytes=4_096))
    _append(journal, 1, 201)
    journal.begin(1, 1)
    journal.close()
    _trimmed(tmp_path, 1, 1)
    with pytest.raises(NotInJournal, match=r"begins at 201 of epoch 0 .* numbers from 50 on"):
        reader(tmp_path).latestOffset(offset(tmp_path, 50), ALL)
    reader(tmp_path, failOnDataLoss="false").latestOffset(offset(tmp_path, 50), ALL)
    reader(tmp_path).latestOffset(offset(tmp_path, 201), ALL)


def test_damage_fails_a_query_after_all_records_before_it(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 61), group=20)
    write_journal([70], path=path)
    file = next(path.glob("*.log"))
    data = bytearray(file.read_bytes())
    data[data.find(b"message 25")] ^= 1
    file.write_bytes(data)
    stream = reader(path)
    end = stream.latestOffset(stream.initialOffset(), ALL)
    assert end == offset(path, 21)
    with pytest.raises(JournalDamaged, match="numbers 21 to 40"):
        stream.latestOffset(end, ALL)
    assert reader(path, failOnDataLoss="false").latestOffset(end, ALL) == end


def test_gaps_outside_of_a_batch_are_not_checked(write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_journal([n for n in range(1, 1_001) if n % 2], lost=[(n, n) for n in range(2, 1_000, 2)])
    stream = reader(path, minOffsetsPerTrigger="5")
    start, seen = stream.initialOffset(), 0
    held = JournalReader.held

    def counted(*what: Any) -> Any:
        nonlocal seen
        for part in held(*what):
            seen += 1
            yield part

    monkeypatch.setattr(JournalReader, "held", counted)
    assert stream.latestOffset(start, ReadMaxRows(10)) == offset(path, 11)
    assert seen < 50


def test_an_epoch_read_to_its_end_may_be_dropped(tmp_path: Path) -> None:
    kept = _trimmed(tmp_path)
    assert rows(reader(tmp_path), offset(tmp_path, kept - 5), offset(tmp_path, kept - 5)) == []


def test_the_maximum_delay_restarts_after_each_batch(
    write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(streaming.time, "monotonic", lambda: now)
    path = write_journal(range(1, 11))
    stream = reader(path, minOffsetsPerTrigger="11", maxTriggerDelay="20s")
    start = stream.initialOffset()
    stream.latestOffset(start, ALL)
    now += 20.0
    end = stream.latestOffset(start, ALL)
    write_journal([11], path=path)
    assert stream.latestOffset(end, ALL) == end


def test_available_now_leaves_out_journals_added_later(tmp_path: Path, write_journal: WriteJournal) -> None:
    write_journal([1, 2])
    stream = reader(tmp_path / "journal-*")
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(stream.initialOffset(), ALL)
    write_journal([1, 2])
    assert stream.latestOffset(end, ALL) == end
