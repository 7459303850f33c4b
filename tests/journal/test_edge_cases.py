"""Edge cases of the journal found by review."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.journal.commit_group import CommitGroup
from fyrehose_twisted.journal.compaction import compact
from fyrehose_twisted.journal.errors import JournalBroken, JournalFull
from fyrehose_twisted.journal.format import watermark
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk

STREAM = "fyrehose://second"


def record(number: int, payload: bytes = b"payload") -> Record:
    return Record(STREAM, 0, number, number, payload)


def start(directory: Any, **config: Any) -> Journal:
    return Journal(directory, STREAM, config=JournalConfig(**config), tag=7)


def fill(journal: Journal, *numbers: int) -> None:
    for number in numbers:
        journal.append([record(number)])
        journal.commit()


def numbers_of(journal: Any) -> list[int]:
    bounds = journal.bounds(0)
    return [one.sequence for block in journal.read(0, bounds.first, bounds.last) for one in block.records()]


class Forgetful(LocalDirectory):
    """A directory whose next listing lacks a file that is being renamed."""

    hidden: str | None = None

    def names(self) -> list[str]:
        hidden, self.hidden = self.hidden, None
        return [name for name in super().names() if name != hidden]


def test_a_directory_listing_without_a_segment_leaves_no_gap(tmp_path: Path) -> None:
    journal = start(LocalDirectory(tmp_path), segment_bytes=1)
    fill(journal, *range(1, 8))
    directory = Forgetful(tmp_path)
    reader = JournalReader(directory)
    fill(journal, 8)
    directory.hidden = "0000000003.log"
    reader.refresh()
    assert numbers_of(reader) == list(range(1, 9))
    reader.close()
    journal.close()


def test_a_reader_follows_the_compaction_of_many_segments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = start(LocalDirectory(tmp_path), segment_bytes=1)
    fill(journal, *range(1, 40))
    waiting = {segment.name: segment for segment in journal.sealed_segments()}

    class Busy(LocalDirectory):
        def open(self, name: str, **how: Any) -> Any:
            if name in waiting:
                journal.install_compacted(compact(journal.directory, waiting.pop(name)))
            return super().open(name, **how)

    reader = JournalReader(Busy(tmp_path))
    assert not waiting
    assert numbers_of(reader) == list(range(1, 40))
    reader.close()
    journal.close()


def test_a_failed_compaction_leaves_no_file() -> None:
    disk = Disk(Random(1))
    journal = start(disk, segment_bytes=500)
    fill(journal, *range(20))
    before = disk.names()
    disk.fill()
    with pytest.raises(OSError, match="full"):
        compact(disk, journal.sealed_segments()[0])
    assert disk.names() == before
    disk.clear_impairment()
    journal.close()


def test_retention_frees_space_for_a_pending_group() -> None:
    disk = Disk(Random(1), capacity=100_000)
    journal = start(disk, segment_bytes=5_000, retention=Retention(size=20_000))
    fill(journal, *range(300))
    journal.append([record(300, bytes(90_000))])
    with pytest.raises(JournalFull):
        journal.commit()
    assert journal.trim() > 0
    journal.append([record(301)])
    bounds = journal.bounds(0)
    assert bounds is not None
    assert (bounds.first > 0, bounds.next) == (True, 300)


def test_an_interrupt_during_a_write_breaks_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = start(LocalDirectory(tmp_path))
    fill(journal, 1)
    journal.append([record(2)])

    def interrupted(self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(CommitGroup, "mark_written", interrupted)
        with pytest.raises(KeyboardInterrupt):
            journal.commit()
    with pytest.raises(JournalBroken):
        journal.commit()
    journal.close()
    again = start(LocalDirectory(tmp_path))
    assert numbers_of(again) == [1, 2]
    again.close()


def test_a_failed_append_leaves_the_journal_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = start(LocalDirectory(tmp_path))
    fill(journal, 1, 3)

    def failing(*what: object) -> None:
        raise OSError("too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(journal.catalog, "get", failing)
        with pytest.raises(OSError, match="too many"):
            journal.append([record(3, b"another")])
    journal.commit()
    fill(journal, 2)
    assert numbers_of(journal) == [1, 2, 3]
    journal.close()


def test_a_record_within_the_span_of_a_damaged_frame_is_found(tmp_path: Path) -> None:
    journal = start(LocalDirectory(tmp_path))
    fill(journal, 5)
    offset = (tmp_path / "0000000001.log").stat().st_size
    journal.append([record(1), record(9)])
    journal.commit()
    journal.close()
    with (tmp_path / "0000000001.log").open("r+b") as file:
        file.seek(offset + 80)
        file.write(b"\xff")
    journal = start(LocalDirectory(tmp_path))
    journal.catalog.segments[1].frame_indexes[0].held.add(1)
    journal.catalog.segments[1].frame_indexes[0].held.add(9)
    assert journal.get(0, 5) == record(5)
    journal.close()


def test_a_segment_with_a_torn_first_frame_is_restarted() -> None:
    disk = Disk(Random(1))
    journal = start(disk, segment_bytes=200)
    for epoch in range(40):
        journal.begin(epoch, 100)
    fill(journal, 101)
    journal.roll()
    journal.close()
    last = disk.names()[-3]
    file = disk.open(last, writable=True)
    file.truncate(file.size() - 300)
    mark = disk.open("durable", writable=True)
    watermark.write_position(mark, watermark.DurablePosition(1, 0, 7))
    journal = start(disk)
    assert journal.recovery.truncated_bytes > 0
    assert all(segment.starts for segment in journal.catalog.segments.values())
    assert sorted([*journal.epochs(), *journal.catalog.expired_epochs]) == list(range(40))
    journal.close()


@pytest.mark.parametrize("number", [0, 2**32, 9_999_999_999])
def test_a_file_with_an_invalid_segment_name_is_ignored(tmp_path: Path, number: int) -> None:
    (tmp_path / f"{number:010d}.log").write_bytes(b"mine")
    journal = start(LocalDirectory(tmp_path))
    fill(journal, 1)
    journal.close()
    assert (tmp_path / f"{number:010d}.log").read_bytes() == b"mine"


def test_the_whole_range_of_numbers_can_be_declared_lost(tmp_path: Path) -> None:
    journal = start(LocalDirectory(tmp_path))
    fill(journal, 5)
    journal.begin(1, 0)
    journal.lose(1, 0, 2**63 - 1)
    journal.commit()
    assert journal.losses(1, 0, 2**63 - 1) == [(0, 2**63 - 1)]
    journal.close()
