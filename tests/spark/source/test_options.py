from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.parquet import export
from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.errors import JournalError, NotInJournal
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.remote.client import RemoteJournal
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, locations_in_path, parse_server_address
from fyrehose_twisted.spark.source.options import ReadBound, offset_at, parse_timestamp, read_options, reader_options
from fyrehose_twisted.spark.source.parquet_union import read_with_parquet
from fyrehose_twisted.spark.source.planning import epoch_ranges


def options(streaming: bool | None = None, **given: str) -> Any:
    return read_options({"path": "/somewhere", **given}, streaming=streaming)


def test_a_batch_starts_at_the_earliest_and_a_stream_at_the_latest_offset() -> None:
    assert options().start == ReadBound("earliest")
    assert options(streaming=True).start == ReadBound("latest")
    assert options().columns == RECORD


def test_source_options_are_case_insensitive() -> None:
    assert options(MAXOFFSETSPERTRIGGER="7").max_rows == 7
    assert options(failondataloss="FALSE").fail_on_data_loss is False


@pytest.mark.parametrize(
    ("streaming", "name", "value"),
    [
        (True, "endingOffsets", "latest"),
        (True, "endingTimestamp", "2026-01-31"),
        (False, "maxOffsetsPerTrigger", "5"),
        (False, "maxBytesPerTrigger", "5"),
        (False, "minOffsetsPerTrigger", "5"),
        (False, "maxTriggerDelay", "5s"),
    ],
)
def test_inapplicable_options_are_refused_for_batch_and_stream(streaming: bool, name: str, value: str) -> None:
    kind = "a stream, only to a batch" if streaming else "a batch, only to a stream"
    with pytest.raises(ConfigurationError, match=f"{name} does not apply to {kind}"):
        options(streaming=streaming, **{name: value})
    options(streaming=None, **{name: value})
    options(streaming=not streaming, **{name: value})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"columns": "sequence,foo"}, "no column 'foo'"),
        ({"columns": "sequence,sequence"}, "give at least one column, and each only once"),
        ({"columns": ""}, "no column ''"),
        ({"rowsPerPartition": "0"}, "rowsPerPartition '0' is not a whole number above 0"),
        ({"rowsPerPartition": "1e6"}, "rowsPerPartition '1e6'"),
        ({"maxOffsetsPerTrigger": "5", "maxBytesPerTrigger": "5"}, "exclude each other"),
        ({"startingOffsets": "first"}, "startingOffsets 'first' is not earliest"),
        ({"startingOffsets": "[1]"}, "startingOffsets"),
        ({"startingOffsets": "-1"}, "offset -1 is not a whole number of at least 0"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "startingTimestamp is later than endingTimestamp"),
        ({"startingOffsets": '{"fyrehose://a": "x"}'}, "is not a whole number of at least 0"),
        ({"startingOffsets": '{"journals": {"here": 5}}'}, "is not an offset of a query"),
        ({"startingOffsets": "1", "startingTimestamp": "1"}, "exclude each other"),
        ({"endingTimestamp": "yesterday"}, "'yesterday' is not a time"),
        ({"failOnDataLoss": "maybe"}, "neither true nor false"),
        ({"pushdown": "true"}, "pushdown 'true' is neither false nor once"),
        ({"maxTriggerDelay": "1 parsec"}, "not a duration above 0"),
        ({"maxTriggerDelay": "0s"}, "not a duration above 0"),
        ({"journal": "host:1"}, "not both"),
        ({"path": ""}, "specify the journals"),
        ({"colums": "sequence"}, "there is no option 'colums'; there are"),
        ({"secretFile": "/nowhere/secret"}, "secret file /nowhere/secret cannot be read"),
    ],
)
def test_invalid_source_options_are_reported(given: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words.replace("(", r"\(")):
        options(**given)


def test_starting_offsets_may_be_one_number_or_per_stream_and_epoch() -> None:
    stream, other = "fyrehose://a", "hydra://b"
    at = options(startingOffsets="17").start
    assert offset_at(at, ["here"], stream, 0) == offset_at(at, ["there"], other, 3) == 17
    at = options(startingOffsets=json.dumps({stream: 5, other: {"3": 9}})).start
    assert [offset_at(at, ["here"], *what) for what in ((stream, 0), (other, 3), (other, 4))] == [
        5,
        9,
        None,
    ]
    at = options(startingOffsets=json.dumps({"journals": {"here": {stream: {"0": 8}}}})).start
    assert [offset_at(at, names, stream, 0) for names in (["x", "here"], ["there"])] == [8, None]


def test_timestamp_options_are_parsed() -> None:
    assert parse_timestamp("1970-01-01T00:00:01Z") == 1_000_000
    assert parse_timestamp("1970-01-01T01:00:01.5+01:00") == 1_500_000
    assert parse_timestamp("1970-01-01 00:00:01") == 1_000_000
    assert parse_timestamp("2500") == 2_500_000
    assert parse_timestamp("-1") == -1_000


def test_duration_options_are_parsed() -> None:
    given = {"500ms": 0.5, "2s": 2.0, "15m": 900.0, "1h": 3600.0, "7": 7.0}
    assert {text: options(maxTriggerDelay=text).max_delay for text in given} == given


def test_server_addresses_are_parsed() -> None:
    assert parse_server_address("host:2324") == ("host", 2324)
    assert parse_server_address("[::1]:2324") == ("::1", 2324)
    for text in ("host", "host:", ":5", "host:0", "host:65536", "/a/path:5", "host:x"):
        assert parse_server_address(text) is None


def test_the_repr_of_options_hides_the_secret(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush hush hush hush\n")
    secret.chmod(0o600)
    made = options(secretFile=str(secret))
    assert made.secret == b"hush hush hush hush"
    assert "hush" not in repr(made)


def test_a_path_without_a_journal_is_reported(tmp_path: Path, write_journal: WriteJournal) -> None:
    with pytest.raises(JournalError, match="no such directory"):
        locations_in_path(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(JournalError, match="holds no journal"):
        locations_in_path(str(tmp_path / "empty"))
    path = write_journal([1])
    with pytest.raises(JournalError, match="is not a directory"):
        locations_in_path(str(next(path.iterdir())))
    with pytest.raises(JournalError, match=r"no journal is of stream fyrehose://x; there is fyrehose://test"):
        read_options({"path": str(path), "stream": "fyrehose://x"}, streaming=False).locations()


def test_a_journal_may_not_be_given_twice(write_journal: WriteJournal) -> None:
    path = write_journal([1])
    with pytest.raises(ConfigurationError, match="given twice"):
        read_options({"paths": json.dumps([str(path), str(path)])}, streaming=False).locations()


def test_a_path_pattern_selects_several_journals(tmp_path: Path, write_journal: WriteJournal) -> None:
    paths = [write_journal([1]), write_journal([1]), write_journal([1], stream="hydra://net")]
    found = read_options({"path": str(tmp_path / "journal-*")}, streaming=False).locations()
    assert sorted(origin.journal for origin in found) == sorted(map(str, paths))
    one = read_options({"path": str(tmp_path / "journal-*"), "stream": "hydra:*"}, streaming=False).locations()
    assert [origin.stream for origin in one] == ["hydra://net"]
    again = read_options(reader_options(found), streaming=False).locations()
    assert again == found


def test_a_path_pattern_skips_directories_without_a_journal(tmp_path: Path, write_journal: WriteJournal) -> None:
    """A directory created while a query runs does not fail it."""
    path = write_journal([1])
    (tmp_path / "journal-new" / "fyrehose-test").mkdir(parents=True)
    (tmp_path / "journal-notes.txt").write_text("no journal")
    assert [origin.journal for origin in locations_in_path(str(tmp_path / "journal-*"))] == [str(path)]
    with pytest.raises(JournalError, match=r"nothing at .*journal-n.* holds a journal"):
        locations_in_path(str(tmp_path / "journal-n*"))


def test_reader_options_select_only_the_given_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server may have more streams than those selected."""
    served = [JournalLocation("host:1", f"hydra://{name}", None, ("host", 1)) for name in "abc"]
    monkeypatch.setattr("fyrehose_twisted.spark.source.options.locations_on_server", lambda *_: served)
    for chosen in (served[:1], served[:2], served):
        assert read_options(reader_options(chosen), streaming=False).locations() == chosen


def test_streams_of_a_server_share_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server accepts few connections per host."""
    readers: list[tuple[Any, str]] = []
    monkeypatch.setattr(RemoteJournal, "reader", lambda remote, stream: readers.append((remote, stream)))
    monkeypatch.setattr("fyrehose_twisted.spark.source.journal_locations._remotes", {})
    for stream, port in (("hydra://a", 1), ("hydra://b", 1), ("hydra://a", 2)):
        JournalLocation("one", stream, None, ("host", port)).open()
    (first, _), (second, _), (third, _) = readers
    assert first is second
    assert (second.port, third.port) == (1, 2)
    assert [stream for _, stream in readers] == ["hydra://a", "hydra://b", "hydra://a"]


def test_an_offset_of_a_stream_that_is_not_read_is_refused(write_journal: WriteJournal) -> None:
    path = write_journal([1])
    given = {"path": str(path), "endingOffsets": '{"fyrehose://typo": 5}'}
    with pytest.raises(ConfigurationError, match="offset for stream fyrehose://typo, which is not read; there is"):
        epoch_ranges(read_options(given, streaming=False))


def test_a_missing_exported_file_is_reported(tmp_path: Path, write_journal: WriteJournal) -> None:
    path = write_journal([1, *range(41, 51), *range(91, 101)], lost=[(2, 40), (51, 90)])
    out = tmp_path / "out"
    with closing(open_reader(path)) as reader:
        written = export(reader, out, numbers=10, on_message=lambda text: None)
    assert len(written) == 3
    spark: Any = _NoSession()
    with pytest.raises(_NoSession):  # Lost numbers need no files.
        read_with_parquet(spark, {"path": str(path)}, str(out))
    Path(written[1].name).unlink()
    with pytest.raises(_NoSession):
        read_with_parquet(spark, {"path": str(path), "failOnDataLoss": "false"}, str(out))
    with pytest.raises(NotInJournal, match="of epoch 0 of fyrehose://test are in no Parquet file"):
        read_with_parquet(spark, {"path": str(path)}, str(out))


class _NoSession(Exception):
    """Raised instead of using a Spark session."""

    @property
    def read(self) -> Any:
        raise self
