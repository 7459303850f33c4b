"""Regression tests for mutants that the tests of the parts let pass."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fyrehose_twisted.journal import catalog as catalog_module
from fyrehose_twisted.journal import compaction as reorder_module
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.compaction import compact, repack
from fyrehose_twisted.journal.errors import Damage, JournalError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.frames import (
    FRAME_BYTES,
    FrameHeader,
    FrameKind,
    FramePosition,
    frame_boundaries,
    lost_frame,
    records_frame,
)
from fyrehose_twisted.journal.format.index_file import write_index
from fyrehose_twisted.journal.format.scan import READ_CHUNK, scan
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import SegmentHeader
from fyrehose_twisted.journal.format.watermark import (
    POSITION_NAME,
    DurablePosition,
    open_position_file,
    read_position,
    write_position,
)
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.retention import Retention, expired_segments
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"
PLACE = FramePosition(4, 64, 77)

MakeJournal = Callable[..., Any]


def record(sequence: int, *, epoch: int = 0, at: int = 7) -> Record:
    return Record(STREAM, epoch, sequence, at, b"%d" % sequence * 9)


def start(path: Path, **config: Any) -> Journal:
    return Journal(LocalDirectory(path), STREAM, tag=5, config=JournalConfig(**config), clock=lambda: 9.0)


def fill(journal: Journal, numbers: range) -> list[int]:
    """Commit each number separately; return the ends of the frames."""
    ends: list[int] = []
    for number in numbers:
        journal.append([record(number)])
        journal.commit()
        ends.append(list(journal.catalog.segments.values())[-1].end)
    return ends


def kept(journal: Any) -> list[int]:
    return [position for block in journal.read(0, 0, 2**63) for position in block.positions.tolist()]


def put_mark(path: Path, mark: DurablePosition) -> None:
    file = open_position_file(LocalDirectory(path))
    write_position(file, mark)
    file.close()


def block(position: int, size: int) -> Block:
    offsets = np.array([0, size], np.uint32)
    return Block(STREAM, 0, np.array([position], np.uint64), np.zeros(1, np.int64), offsets, memoryview(bytes(size)))


class File:
    """A read-only file that changes at each read, until its last version."""

    def __init__(self, *contents: bytes) -> None:
        self._contents = list(contents)

    def read(self, offset: int, length: int) -> bytes:
        data = self._contents[0] if len(self._contents) == 1 else self._contents.pop(0)
        return data[offset : offset + length]

    def close(self) -> None:
        pass


class TestCompaction:
    def test_compaction_keeps_more_lost_ranges_than_one_frame_holds(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = start(tmp_path)
        journal.begin(0, 0)
        for number in range(0, 70, 10):
            journal.lose(0, number, number + 3)
        journal.close()
        monkeypatch.setattr(reorder_module, "MAX_RECORDS", 3)
        old = journal.catalog.segments[1]
        new = compact(LocalDirectory(tmp_path), old)
        assert list(new.lost[0]) == list(old.lost[0]) == [(number, number + 3) for number in range(0, 70, 10)]

    def test_compaction_does_not_split_frames_after_a_large_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reorder_module, "FRAME_BYTES", 1_000)
        found = repack([block(1, 1_000), block(2, 1), block(3, 1)], 100)
        assert [one.positions.tolist() for one in found] == [[1], [2, 3]]


class TestFrames:
    def test_frame_boundaries_do_not_split_records_after_a_large_one(self) -> None:
        assert frame_boundaries([1, 2, 3, 4], [FRAME_BYTES, 5, 5, 5]) == [1, 4]


def test_within_returns_no_records_before_a_block() -> None:
    offsets = np.arange(5, dtype=np.uint32)
    one = Block(STREAM, 0, np.arange(3, 7, dtype=np.uint64), np.zeros(4, np.int64), offsets, memoryview(b"data"))
    assert [len(one.within(0, last)) for last in range(5)] == [0, 0, 0, 1, 2]


class TestScan:
    @staticmethod
    def damage(data: bytes) -> Damage:
        data = bytes(PLACE.offset) + data
        (found,) = scan(File(data), "name", number=4, tag=77, start=PLACE.offset, end=len(data))  # type: ignore[arg-type]
        assert isinstance(found, Damage)
        return found

    def test_damage_of_a_frame_larger_than_the_scan_buffer_names_its_numbers(self) -> None:
        _, data = records_frame(PLACE, 3, [5, 6], [1, 2], [b"", bytes(2 * READ_CHUNK)])
        damage = self.damage(data[:-8] + b"\1" + data[-7:])
        assert (damage.epoch, damage.first, damage.last) == (3, 5, 6)

    def test_damage_of_a_frame_of_losses_names_no_numbers(self) -> None:
        _, data = lost_frame(PLACE, 3, [(5, 6)], 0)
        damage = self.damage(data[:-1] + b"\1")
        assert (damage.epoch, damage.first, damage.last) == (None, None, None)


class TestSegment:
    @pytest.fixture
    def segment(self) -> Segment:
        return Segment(None, SegmentHeader(1, STREAM, 0, 50_000_000, 0, 64), ".seg")  # type: ignore[arg-type]

    def test_the_last_epoch_of_a_segment_may_have_only_losses(self, segment: Segment) -> None:
        segment.add_records(FrameHeader(FrameKind.RECORDS, 1, 1, 24, 900, 0, 0, 1, 64, 0, 0, 0), None)
        segment.lost[1] = RangeSet([(3, 4)])
        assert segment.last == (1, 4)

    def test_the_newest_record_of_a_segment_need_not_be_in_its_last_frame(self, segment: Segment) -> None:
        for newest in (90, 10):
            segment.add_records(FrameHeader(FrameKind.RECORDS, 1, 1, 24, 5, 0, 0, 1, segment.end, newest, 0, 0), None)
        assert segment.newest == 90

    def test_a_segment_without_records_expires_by_its_creation_time(self, segment: Segment) -> None:
        segment.lost[0] = RangeSet([(3, 4)])
        active = Segment(None, segment.header._replace(number=2, created_at=10**18), ".log")  # type: ignore[arg-type]
        assert expired_segments([segment], active, Retention(10.0), 60_000_000) == []
        assert expired_segments([segment], active, Retention(10.0), 60_000_001) == [segment]


def test_an_index_file_is_written_despite_an_unfinished_one(tmp_path: Path) -> None:
    journal = start(tmp_path)
    fill(journal, range(3))
    journal.roll()
    journal.compact()
    path = tmp_path / "0000000001.idx"
    right = path.read_bytes()
    path.unlink()
    (tmp_path / "0000000001.idx.tmp").write_bytes(right + b"more")
    write_index(journal.directory, journal.catalog.segments[1])
    assert path.read_bytes() == right
    journal.close()


class TestDurablePosition:
    def packed(self, tmp_path: Path, mark: DurablePosition) -> bytes:
        put_mark(tmp_path, mark)
        return (tmp_path / POSITION_NAME).read_bytes()

    def test_a_durable_position_read_during_a_write_is_read_again(self, tmp_path: Path) -> None:
        old, new = self.packed(tmp_path, DurablePosition(1, 2**20, 5)), self.packed(tmp_path, DurablePosition(2, 64, 5))

        class Directory:
            def open(self, name: str) -> File:
                return File(new[:12] + old[12:], new[:20] + old[20:], new)

        assert read_position(Directory()) == DurablePosition(2, 64, 5)  # type: ignore[arg-type]

    def test_a_durable_position_of_another_version_is_ignored(self, tmp_path: Path) -> None:
        packed = self.packed(tmp_path, DurablePosition(1, 64, 5))
        other = packed[:7] + b"\2" + packed[8:-4]
        (tmp_path / POSITION_NAME).write_bytes(other + struct.pack("<I", zlib.crc32(other)))
        assert read_position(LocalDirectory(tmp_path)) is None


class TestRetention:
    def test_retention_drops_pending_records_below_dropped_ones(self) -> None:
        journal = MemoryJournal(STREAM, retention=Retention(10.0), clock=lambda: 100.0)
        journal.begin(0, 0)
        journal.append([record(5)])
        journal.commit()
        journal.append([record(3)])
        journal.trim()
        journal.commit()
        assert list(journal.held(0, 0, 99)) == []
        assert journal.get(0, 3) is None

    def test_a_dropped_epoch_does_not_begin_again_with_its_old_records(self, make_journal: MakeJournal) -> None:
        journal = make_journal(retention=Retention(10.0), segment_bytes=150, clock=lambda: 100.0)
        journal.append([record(1), record(2)])
        journal.commit()
        for number, at in ((1, 7), (2, 99_000_000)):
            journal.append([record(number, epoch=1, at=at)])
            journal.commit()
        journal.trim()
        assert journal.epochs() == [1]
        assert journal.append([record(2)]) == 0
        assert journal.append([record(3)]) == 1


class TestRecovery:
    def test_an_earlier_epoch_with_one_record_is_kept_at_opening(self, tmp_path: Path) -> None:
        journal = start(tmp_path)
        journal.append([record(5), record(1, epoch=1)])
        journal.close()
        again = start(tmp_path)
        assert again.epochs() == [0, 1]
        assert again.get(0, 5) == record(5)
        again.close()

    def test_a_segment_of_another_journal_with_a_damaged_header_is_refused(self, tmp_path: Path) -> None:
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        for path, tag in ((ours, 5), (theirs, 6)):
            path.mkdir()
            journal = Journal(LocalDirectory(path), STREAM, tag=tag)
            fill(journal, range(2))
            journal.roll()
            fill(journal, range(2, 4))
            journal.close()
        data = (theirs / "0000000002.log").read_bytes()
        (ours / "0000000002.log").write_bytes(b"x" + data[1:])
        with pytest.raises(JournalError, match="header of segment 2 is damaged, and no other names the stream"):
            start(ours)

    def test_segments_with_different_wraps_are_refused(self, tmp_path: Path) -> None:
        for name, wrap in (("ours", 0), ("theirs", 2**40)):
            (tmp_path / name).mkdir()
            journal = Journal(LocalDirectory(tmp_path / name), STREAM, tag=5, wrap=wrap)
            journal.roll()
            journal.close()
        (tmp_path / "theirs" / "0000000002.log").rename(tmp_path / "ours" / "0000000002.log")
        with pytest.raises(JournalError, match="segment 2 belongs to another journal"):
            start(tmp_path / "ours")

    def test_a_segment_longer_than_a_header_is_never_removed(self, tmp_path: Path) -> None:
        journal = start(tmp_path)
        fill(journal, range(3))
        journal.close()
        (tmp_path / "0000000002.log").write_bytes(b"x" * 3_000)
        again = start(tmp_path)
        assert [damage.name for damage in again.recovery.damages] == ["0000000002.log"]
        assert (again.recovery.truncated_bytes, kept(again)) == (0, [0, 1, 2])
        assert (tmp_path / "0000000002.log").read_bytes() == b"x" * 3_000
        again.close()

    def test_a_truncated_segment_before_the_last_is_damage(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=400)
        ends = fill(journal, range(9))
        journal.close()
        path = tmp_path / "0000000001.log"
        size = path.stat().st_size
        put_mark(tmp_path, DurablePosition(1, size, 5))
        os.truncate(path, ends[0])
        again = start(tmp_path, segment_bytes=400)
        (damage,) = again.recovery.damages
        assert (damage.name, damage.offset, damage.length) == (path.name, ends[0], size - ends[0])
        again.close()


class TestCatalog:
    def test_a_record_in_a_wide_segment_before_narrow_ones_is_found(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=1)
        for numbers in ((0, 100), (1, 2), (3, 4), (5, 6), (7, 8)):
            journal.append([record(number) for number in numbers])
            journal.commit()
        assert journal.get(0, 100) == record(100)
        assert [one.first for one in journal.read(0, 50, 200)] == [100]
        journal.close()

    def test_the_catalog_counts_its_cached_bytes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalog_module, "CACHED_FRAMES", 3)
        journal = start(tmp_path)
        fill(journal, range(9))
        for number in range(9):
            journal.get(0, number)
        blocks = journal.catalog._blocks.values()
        assert len(blocks) == 3
        assert journal.catalog._cached == sum(len(one.payload) for one in blocks)
        journal.close()


class TestReader:
    @pytest.mark.parametrize("groups", [[(0, 1), (2, 3), (4, 5)], [(0, 2), (1, 3), (4, 5)]], ids=["apart", "mixed"])
    def test_a_refresh_that_finds_files_removed_misses_no_records(
        self, tmp_path: Path, groups: list[tuple[int, int]]
    ) -> None:
        journal = start(tmp_path)
        journal.begin(0, 0)
        for group in groups:
            journal.append([record(number) for number in group])
            journal.commit()
        reader = open_reader(tmp_path)
        reader.close()
        journal.roll()
        journal.compact()
        assert kept(reader) == [0, 1, 2, 3, 4, 5]
        reader.close()
        journal.close()

    def test_records_written_during_a_refresh_are_seen_by_the_next(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=1)
        fill(journal, range(2))

        class Busy(LocalDirectory):
            """A directory that gets another segment right after its listing."""

            def names(self) -> list[str]:
                names: list[str] = super().names()
                if kept(journal) == [0, 1]:
                    fill(journal, range(2, 3))
                return names

        reader = JournalReader(Busy(tmp_path))
        reader.refresh()
        assert kept(reader) == [0, 1, 2]
        reader.close()
        journal.close()

    def test_a_reader_ignores_the_durable_position_of_another_journal(self, tmp_path: Path) -> None:
        journal = start(tmp_path)
        ends = fill(journal, range(3))
        put_mark(tmp_path, DurablePosition(1, ends[-1], 6))
        reader = open_reader(tmp_path)
        assert reader.epochs() == []
        assert list(map(str, reader.damages)) == [
            "durable, bytes 0 to 180: it belongs to another journal",
            "0000000001.log: nothing says what of it is durable, so all of it is left out",
        ]
        reader.close()
        journal.close()

    def test_a_reader_closes_files_replaced_by_the_writer(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=300)
        fill(journal, range(9))
        reader = open_reader(tmp_path)
        before = kept(reader)
        assert reader.get(0, 0) == record(0)
        journal.compact()
        fill(journal, range(9, 10))
        reader.refresh()
        assert kept(reader) == [*before, 9]
        names = {one.name for one in reader.segments}
        assert {*reader._catalog._files} == names
        assert {name for name, _ in reader._catalog._blocks} <= names
        reader.close()
        journal.close()

    def test_a_durable_position_in_a_since_compacted_segment_hides_no_records(self, tmp_path: Path) -> None:
        journal = start(tmp_path)
        fill(journal, range(3))
        end = journal.catalog.segments[1].end
        journal.roll()
        journal.compact()
        journal.close()
        put_mark(tmp_path, DurablePosition(1, end, 5))  # A state that a power failure may leave.
        reader = open_reader(tmp_path)
        assert kept(reader) == [0, 1, 2]
        reader.close()
