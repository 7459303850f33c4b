from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from zope.interface.verify import verifyObject

from fyrehose_twisted.interfaces import IJournalReader
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import JournalError, NotInJournal
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.watermark import POSITION_NAME
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"


def record(sequence: int, payload: bytes | None = None) -> Record:
    return Record(STREAM, 0, sequence, 7, b"%d" % sequence if payload is None else payload)


def start(path: Path, **config: Any) -> Journal:
    return Journal(LocalDirectory(path), STREAM, tag=5, config=JournalConfig(**config), clock=lambda: 9.0)


def write(journal: Journal, *numbers: int) -> None:
    for number in numbers:
        journal.append([record(number)])
        journal.commit()


def kept(reader: JournalReader, first: int = 0) -> list[int]:
    return positions(reader.read(0, first, 2**63))


def positions(blocks: Iterator[Any]) -> list[int]:
    return [position for block in blocks for position in block.positions.tolist()]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    journal = start(tmp_path, segment_bytes=300)
    yield journal
    journal.close()


@pytest.fixture
def reader(journal: Journal, tmp_path: Path) -> Iterator[JournalReader]:
    reader = open_reader(tmp_path)
    yield reader
    reader.close()


def test_reader_implements_the_interface(reader: JournalReader) -> None:
    assert verifyObject(IJournalReader, reader)
    assert (reader.stream, reader.wrap) == (STREAM, 0)


def test_reader_follows_a_growing_journal(journal: Journal, reader: JournalReader) -> None:
    assert reader.epochs() == []
    for number in range(12):
        assert not reader.refresh()
        write(journal, number)
        assert positions(reader.read(0, 0, 99)) == list(range(number)) or number == 0
        assert reader.refresh()
        assert reader.bounds(0) == Bounds(0, number + 1, number)
        assert kept(reader) == list(range(number + 1))
        assert reader.get(0, number) == record(number)


def test_reader_returns_nothing_beyond_the_watermark(journal: Journal, reader: JournalReader) -> None:
    write(journal, 0, 1, 3)
    journal.lose(0, 5, 6)
    journal.commit()
    reader.refresh()
    assert kept(reader) == [0, 1]
    assert reader.get(0, 3) is None
    assert reader.losses(0, 0, 99) == []
    assert list(reader.held(0, 0, 99)) == [(0, 1)]
    write(journal, 2, 4)
    reader.refresh()
    assert kept(reader) == [0, 1, 2, 3, 4]
    assert reader.losses(0, 0, 99) == [(5, 6)]
    assert reader.get(0, 3) == record(3)


def test_reader_returns_nothing_that_is_not_durable(journal: Journal, reader: JournalReader) -> None:
    write(journal, 0)
    journal.append([record(1)])
    journal.commit(sync=False)
    reader.refresh()
    assert kept(reader) == [0]
    journal.sync()
    reader.refresh()
    assert kept(reader) == [0, 1]


def test_reader_continues_while_segments_are_compacted(journal: Journal, reader: JournalReader) -> None:
    write(journal, *range(9))
    reader.refresh()
    before = list(reader.read(0, 0, 99))
    blocks = reader.read(0, 0, 99)
    found = next(blocks).positions.tolist()
    journal.compact()
    found += positions(blocks)
    assert found == list(range(9))
    # Python 3.12.1 takes the function record() for the variable of a comprehension of the same name.
    after = [kept_record for block in reader.read(0, 0, 99) for kept_record in block.records()]
    assert after == [kept_record for block in before for kept_record in block.records()]
    assert [reader.get(0, number) for number in range(9)] == [record(number) for number in range(9)]


def test_reader_with_closed_files_opens_compacted_segments(journal: Journal, reader: JournalReader) -> None:
    write(journal, *range(9))
    reader.refresh()
    reader.close()
    journal.compact()
    assert reader.get(0, 0) == record(0)
    reader.close()
    assert kept(reader) == list(range(9))
    assert [one.ordered for one in reader.segments][:2] == [True, True]


@pytest.mark.parametrize("files", ["open", "closed"])
def test_retention_ends_a_read_that_it_overtakes(tmp_path: Path, files: str) -> None:
    journal = start(tmp_path, segment_bytes=300, retention=Retention(size=900))
    write(journal, *range(20))
    reader = open_reader(tmp_path)
    behind, ahead = reader.read(0, 0, 99), reader.read(0, 18, 99)
    assert next(behind).first == 0
    assert next(ahead).first == 18
    if files == "closed":
        reader.close()
    journal.trim()
    reader.refresh()
    with pytest.raises(NotInJournal):
        list(behind)
    assert positions(ahead) == [19]
    assert reader.bounds(0) == journal.bounds(0)
    with pytest.raises(NotInJournal):
        reader.read(0, 0, 99)
    assert reader.get(0, 0) is None
    reader.close()
    journal.close()


def test_retention_ends_a_read_without_a_refresh(tmp_path: Path) -> None:
    journal = start(tmp_path, segment_bytes=300, retention=Retention(size=900))
    write(journal, *range(20))
    reader = open_reader(tmp_path)
    reader.close()
    journal.trim()
    with pytest.raises(NotInJournal):
        kept(reader)
    reader.close()
    journal.close()


def test_reader_ignores_a_segment_under_construction(journal: Journal, tmp_path: Path) -> None:
    write(journal, 0)
    number = max(journal.catalog.segments) + 1
    (tmp_path / f"{number:010d}.log").write_bytes(b"\xf7FYR")
    reader = open_reader(tmp_path)
    assert kept(reader) == [0]
    assert reader.damages == []
    reader.close()


def test_reader_ignores_the_last_segment_without_a_durable_position(tmp_path: Path) -> None:
    journal = start(tmp_path, segment_bytes=300)
    write(journal, *range(5))
    active = journal.catalog.segments[max(journal.catalog.segments)].frame_indexes[0].first
    (tmp_path / POSITION_NAME).rename(tmp_path / "away")
    reader = open_reader(tmp_path)
    assert kept(reader) == list(range(active))
    reader.close()
    journal.close()


def test_reader_reports_damage(journal: Journal, tmp_path: Path) -> None:
    write(journal, *range(5))
    data = bytearray((tmp_path / "0000000001.log").read_bytes())
    data[-1] ^= 1
    (tmp_path / "0000000001.log").write_bytes(data)
    reader = open_reader(tmp_path)
    assert [damage.name for damage in reader.damages] == ["0000000001.log"]
    reader.close()


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_reader_rejects_a_directory_without_a_valid_header(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "0000000001.seg").write_bytes(content)
    with pytest.raises(JournalError, match="holds no readable journal"):
        open_reader(tmp_path)


def test_reader_rejects_a_directory_without_segments(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"holds no journal: there is no 0000000001\.log"):
        open_reader(tmp_path)
    with pytest.raises(JournalError, match="nowhere does not exist; give the directory of a journal"):
        open_reader(tmp_path / "nowhere")


def test_reader_rejects_a_missing_directory(tmp_path: Path) -> None:
    with pytest.raises(JournalError):
        open_reader(tmp_path / "nowhere")


def test_reader_writes_nothing(journal: Journal, tmp_path: Path) -> None:
    write(journal, *range(9))
    journal.compact()
    (tmp_path / "0000000001.idx").unlink()
    before = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    reader = open_reader(tmp_path)
    assert kept(reader) == list(range(9))
    reader.close()
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == before


def test_stored_includes_replaced_records(journal: Journal, reader: JournalReader) -> None:
    journal.append([record(1), record(3, b"old")])
    journal.commit()
    journal.append([record(3, b"new"), record(2)])
    journal.commit()
    reader.refresh()
    (window,) = reader.stored(0, 1, 99)
    assert [list(one.block.records()) for one in window] == [
        [record(1), record(3, b"old")],
        [record(2), record(3, b"new")],
    ]
    assert {one.segment for one in window} == {segment.name for segment in reader.segments}
    assert [found.payload for block in reader.read(0, 1, 99) for found in block.records()] == [b"1", b"2", b"new"]


def test_stored_is_limited_to_range_and_watermark(journal: Journal, reader: JournalReader) -> None:
    write(journal, *range(1, 50), 60)
    reader.refresh()
    parts = [one for window in reader.stored(0, 5, 99) for one in window]
    assert positions(one.block for one in parts) == list(range(5, 50))
    assert len({one.segment for one in parts}) > 3
    with pytest.raises(NotInJournal):
        reader.stored(0, 0, 9)
