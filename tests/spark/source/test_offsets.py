"""Offsets in checkpoints: the identity of journals and their positions."""

from __future__ import annotations

import json
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from suite.journals import WriteJournal

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError, JournalReplaced
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.watermark import read_position
from fyrehose_twisted.journal.reader import open_reader
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.spark.source.data_source import FyrehoseReader
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader, locations_in_path
from fyrehose_twisted.spark.source.offsets import UnknownJournal, journal_key, make_offset, parse_offset, resolve_offset
from fyrehose_twisted.spark.source.options import read_options
from fyrehose_twisted.spark.source.planning import epoch_ranges
from fyrehose_twisted.spark.source.streaming import FyrehoseStreamReader

STREAM = "fyrehose://test"
ALL = ReadAllAvailable()


def reader(path: Path | str, **given: str) -> FyrehoseStreamReader:
    options = {"path": str(path), "startingOffsets": "earliest", **given}
    return FyrehoseStreamReader(read_options(options, streaming=True), RECORD)


def tag_of(path: Path) -> str:
    mark = read_position(LocalDirectory(path))
    assert mark is not None
    return f"{mark.tag:08x}"


def numbers(stream: FyrehoseStreamReader, start: Any, end: Any) -> list[int]:
    parts = stream.partitions(start, end)
    return [row["sequence"] for part in parts for batch in stream.read(part) for row in batch.to_pylist()]


def read_all(path: Path | str, **given: str) -> Any:
    """Return the offset of a query that has read everything."""
    stream = reader(path, **given)
    return stream.latestOffset(stream.initialOffset(), ALL)


def made_anew(path: Path, write_journal: WriteJournal, numbers: Any) -> None:
    """Replace the journal in ``path`` by another."""
    for file in path.iterdir():
        file.unlink()
    write_journal(numbers, path=path)


class TestSpelling:
    @pytest.mark.parametrize("spelled", ["symlink", "relative", "dotted", "root", "moved"])
    def test_an_offset_does_not_depend_on_the_spelling_of_the_path(
        self, tmp_path: Path, write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch, spelled: str
    ) -> None:
        path = write_journal(range(1, 11))
        end = read_all(path)
        monkeypatch.chdir(tmp_path)
        if spelled == "symlink":
            (tmp_path / "link").symlink_to(path)
        elif spelled == "moved":
            path.rename(tmp_path / "moved")
        other = {
            "symlink": "link",
            "relative": str(path.relative_to(tmp_path)),
            "dotted": f"{path.parent}/../{path.parent.name}/{path.name}",
            "root": str(path.parent),
            "moved": str(tmp_path / "moved"),
        }[spelled]
        assert reader(other).latestOffset(end, ALL) == end

    def test_an_offset_stays_valid_after_a_journal_was_named(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        end = read_all(path)
        named = reader(path, name="mine")
        assert named.latestOffset(end, ALL) == end
        write_journal([11], path=path)
        later = named.latestOffset(end, ALL)
        assert later == {"journals": {"mine": {STREAM: {"0": 12}}}, "tags": {"mine": {STREAM: tag_of(path)}}}
        assert numbers(named, end, later) == [11]
        assert reader(path).latestOffset(later, ALL) == later

    def test_an_offset_does_not_depend_on_the_spelling_of_the_server(self) -> None:
        served = JournalLocation("127.0.0.1:7", STREAM, None, ("127.0.0.1", 7), tag=5)
        old = {"journals": {"localhost:7": {STREAM: {"0": 9}}}}
        assert resolve_offset(old, [served], fail_on_data_loss=True).ends == {("00000005", STREAM, 0): 9}
        for other in ("localhost:8", "elsewhere:7"):
            with pytest.raises(UnknownJournal):
                resolve_offset({"journals": {other: {STREAM: {"0": 9}}}}, [served], fail_on_data_loss=True)

    def test_a_journal_without_a_known_tag_is_identified_by_location(self) -> None:
        served = JournalLocation("127.0.0.1:7", STREAM, None, ("127.0.0.1", 7))
        offset = make_offset({(journal_key(served), STREAM, 0): 9}, [served])
        assert offset == {"journals": {"127.0.0.1:7": {STREAM: {"0": 9}}}, "tags": {}}
        assert resolve_offset(offset, [served], fail_on_data_loss=True).ends == {("127.0.0.1:7", STREAM, 0): 9}


class TestEarlierReleases:
    @pytest.mark.parametrize("spelled", ["as it was", "by a symlink"])
    def test_a_query_continues_from_an_offset_of_an_earlier_release(
        self, tmp_path: Path, write_journal: WriteJournal, spelled: str
    ) -> None:
        path = write_journal(range(1, 11))
        if spelled == "by a symlink":
            (tmp_path / "link").symlink_to(path)
        place = path if spelled == "as it was" else tmp_path / "link"
        old = {"journals": {str(path): {STREAM: {"0": 6}}}, "begins": {str(path): {STREAM: {"0": 1}}}}
        stream = reader(place)
        new = stream.latestOffset(old, ALL)
        assert new == {"journals": {tag_of(path): {STREAM: {"0": 11}}}, "tags": {tag_of(path): {STREAM: tag_of(path)}}}
        assert numbers(stream, old, new) == [6, 7, 8, 9, 10]
        assert numbers(stream, {"journals": {}}, old) == [1, 2, 3, 4, 5]

    def test_an_earlier_offset_is_unchanged_without_new_records(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        old = {"journals": {str(path): {STREAM: {"0": 11}}}}
        assert reader(path).latestOffset(old, ALL) == old


class TestGone:
    def test_a_journal_missing_from_the_sources_of_a_checkpoint_is_reported(
        self, tmp_path: Path, write_journal: WriteJournal
    ) -> None:
        """The journal is required even if all of it was read."""
        one, other = write_journal(range(1, 11)), write_journal(range(1, 5))
        end = read_all(tmp_path / "journal-*")
        missing = f"journal {tag_of(other)} of {STREAM}, which is no longer among the sources: {one} "
        with pytest.raises(UnknownJournal, match=missing):
            reader(one).latestOffset(end, ALL)
        with pytest.raises(UnknownJournal, match=missing):
            reader(one).partitions(end, end)
        without = reader(one, failOnDataLoss="false")
        assert without.latestOffset(end, ALL) == end
        write_journal([11], path=one)
        later = without.latestOffset(end, ALL)
        assert later["journals"][tag_of(other)] == {STREAM: {"0": 5}}
        assert later["tags"] == end["tags"]
        assert numbers(without, end, later) == [11]

    def test_two_copies_of_one_journal_are_refused(self, tmp_path: Path, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        shutil.copytree(path, tmp_path / "journal-9" / path.name)
        with pytest.raises(ConfigurationError, match=f"{path} and .* are copies of one journal of {STREAM}"):
            reader(tmp_path / "journal-*").initialOffset()
        assert len(epoch_ranges(read_options({"path": str(tmp_path / "journal-*")}, streaming=False))) == 2


class TestMadeAnew:
    @pytest.mark.parametrize("given", [{}, {"name": "mine"}])
    @pytest.mark.parametrize("length", [3, 30])
    def test_a_replaced_journal_is_reported_with_advice(
        self, write_journal: WriteJournal, length: int, given: dict[str, str]
    ) -> None:
        path = write_journal(range(1, 11))
        living = reader(path, **given)
        end = living.latestOffset(living.initialOffset(), ALL)
        made_anew(path, write_journal, range(1, length + 1))
        for stream in (living, reader(path, **given)):
            with pytest.raises(UnknownJournal, match=f"{path}|mine") as found:
                stream.latestOffset(end, ALL)
            text = str(found.value)
            assert "use a new checkpointLocation, and, if the same numbers" in text
            said = text[text.index("{") : text.rindex("}") + 1]
            assert json.loads(said) == {STREAM: {"0": 11}}
        stream = reader(path, failOnDataLoss="false", **given)
        new = stream.latestOffset(end, ALL)
        assert numbers(stream, end, new) == list(range(1, length + 1))
        if length > 10:
            goes_on = reader(path, startingOffsets=said).initialOffset()
            assert goes_on["journals"] == {tag_of(path): {STREAM: {"0": 11}}}

    def test_a_task_planned_for_a_replaced_journal_fails(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        batch = FyrehoseReader(read_options({"path": str(path)}, streaming=False), RECORD)
        (part,) = batch.partitions()
        made_anew(path, write_journal, [(n, b"other") for n in range(1, 11)])
        cached_reader(locations_in_path(str(path))[0])  # Another query of this process has refreshed the reader.
        with pytest.raises(JournalReplaced, match=f"{path} holds another journal now"):
            list(batch.read(part))

    def test_a_new_batch_reads_the_replacing_journal(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        options = read_options({"path": str(path)}, streaming=False)
        assert [lane.next for lane in epoch_ranges(options)] == [11]
        made_anew(path, write_journal, range(1, 4))
        assert [lane.next for lane in epoch_ranges(options)] == [4]


def test_parsing_an_offset_of_another_source_is_refused() -> None:
    for wrong in (
        {},
        {"journals": 1},
        {"journals": {"a": {"b": {"c": 1}}}},
        {"journals": {}, "tags": {"a": {"b": "zz"}}},
    ):
        with pytest.raises(JournalError, match="which this source did not write"):
            parse_offset(wrong)


@pytest.mark.parametrize(
    ("paths", "name"), [("ab", "one"), ("ab", "one,one"), ("ab", "one,"), ("a", "one,two"), ("ab", "a,a,b")]
)
def test_journal_names_must_be_distinct(paths: str, name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"must give each of the \d locations a distinct name"):
        read_options({"paths": json.dumps(list(paths)), "name": name}, streaming=True)


class TestBeyondTheEnd:
    @pytest.mark.parametrize("start", ["12", json.dumps({STREAM: 12}), json.dumps({STREAM: {"0": 12}})])
    def test_a_start_beyond_the_end_is_refused(self, write_journal: WriteJournal, start: str) -> None:
        path = write_journal(range(1, 11))
        words = f"startingOffsets 12 lies beyond the end of {STREAM}: its epoch 0 ends at 10 in {path}"
        with pytest.raises(ConfigurationError, match=words):
            epoch_ranges(read_options({"path": str(path), "startingOffsets": start}, streaming=False))
        with pytest.raises(ConfigurationError, match=words):
            reader(path, startingOffsets=start).initialOffset()

    def test_a_start_beyond_the_end_within_missing_records_is_damage(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11), group=5)
        data = (path / "0000000001.log").read_bytes()
        (path / "0000000001.log").write_bytes(data.replace(b"message 8", b"massage 8"))
        options = {"path": str(path), "startingOffsets": "9"}
        with pytest.raises(JournalDamaged, match="numbers 6 to 10 of epoch 0"):
            epoch_ranges(read_options(options, streaming=False))
        assert epoch_ranges(read_options({**options, "failOnDataLoss": "false"}, streaming=False)) == []

    def test_starting_at_the_next_number_reads_nothing(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        assert epoch_ranges(read_options({"path": str(path), "startingOffsets": "11"}, streaming=False)) == []
        assert parse_offset(reader(path, startingOffsets="11").initialOffset()).ends == {(tag_of(path), STREAM, 0): 11}

    def test_a_common_start_must_be_within_at_least_one_journal(
        self, tmp_path: Path, write_journal: WriteJournal
    ) -> None:
        write_journal(range(1, 11))
        write_journal(range(1, 101), stream="hydra://net")
        options = {"path": str(tmp_path / "journal-*"), "startingOffsets": "50"}
        assert [lane.location.stream for lane in epoch_ranges(read_options(options, streaming=False))] == [
            "hydra://net"
        ]
        with pytest.raises(ConfigurationError, match="lies beyond the end"):
            epoch_ranges(read_options({**options, "startingOffsets": "102"}, streaming=False))

    def test_a_start_beyond_the_ending_offset_is_refused(self, write_journal: WriteJournal) -> None:
        options = {"path": str(write_journal(range(1, 11))), "startingOffsets": "8", "endingOffsets": "5"}
        with pytest.raises(ConfigurationError, match="startingOffsets 8 lies beyond endingOffsets 5 for epoch 0"):
            epoch_ranges(read_options(options, streaming=False))


def test_relative_paths_are_relative_to_the_registering_process(
    tmp_path: Path, write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_journal(range(1, 4))
    monkeypatch.chdir("/")
    relative = str(path.relative_to(tmp_path))
    for spelled, label in ((relative, relative), ("journal-*", relative), (str(path), str(path))):
        options = read_options({"path": spelled}, streaming=False, directory=str(tmp_path))
        assert [(one.journal, one.path) for one in options.locations()] == [(label, str(path))]
    options = read_options({"path": path.name, "directory": str(path.parent)}, streaming=False, directory="/nowhere")
    assert [one.journal for one in options.locations()] == [path.name]
    with pytest.raises(JournalError, match="there is no journal at"):
        read_options({"path": relative}, streaming=False).locations()


class TestEndsThatNobodyKnows:
    """Batches and streams fail if rows are missing, even if their numbers are unknown."""

    def refusals(self, path: Path, *, rows: bool = True) -> set[str]:
        said = set()
        for look in (
            lambda: epoch_ranges(read_options({"path": str(path)}, streaming=False)),
            lambda: reader(path).latestOffset(read_all(path, failOnDataLoss="false"), ALL),
            lambda: open_reader(path).to_arrow(),
        ):
            with pytest.raises(JournalDamaged) as raised:
                look()
            said.add(str(raised.value.damage).rpartition("/")[2])
        found = epoch_ranges(read_options({"path": str(path), "failOnDataLoss": "false"}, streaming=False))
        assert bool(found) == rows
        return said

    def test_a_missing_durable_position_is_reported(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        with closing(Journal(LocalDirectory(path), STREAM)) as journal:
            journal.roll()
        (path / "durable").unlink()
        assert self.refusals(path) == {"0000000002.log: nothing says what of it is durable, so all of it is left out"}

    def test_a_damaged_header_of_a_frame_without_watermarks_is_reported(self, write_journal: WriteJournal) -> None:
        """The durable position of an earlier release has no watermarks."""
        path = write_journal(range(1, 11), group=5)
        with closing(open_reader(path)) as reader:
            last = list(reader.segments[0].frame_indexes[0])[-1]
        with (path / "0000000001.log").open("r+b") as file:
            file.seek(last.offset + 20)
            file.write(b"x")
        os.truncate(path / "durable", 32)
        (said,) = self.refusals(path)
        assert said.endswith("the checksum of the header is wrong")

    def test_a_journal_without_its_segments_is_reported(self, write_journal: WriteJournal) -> None:
        path = write_journal(range(1, 11))
        with closing(open_reader(path)) as journal:
            end = journal.segments[0].header.length
        data = bytearray((path / "0000000001.log").read_bytes())
        data[end:] = bytes(len(data) - end)
        (path / "0000000001.log").write_bytes(data)
        assert self.refusals(path, rows=False) == {
            "durable, numbers 0 to 10 of epoch 0: once durable, but no segment holds them now"
        }
