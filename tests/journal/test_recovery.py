"""Opening of journals after crashes and disk damage."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage, JournalError, JournalInUse
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.disk_reserve import RESERVE_NAME
from fyrehose_twisted.journal.format.watermark import (
    MAX_EPOCHS,
    POSITION_NAME,
    DurablePosition,
    latest_epochs,
    open_position_file,
    read_position,
    write_position,
)
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.upkeep.check import check
from fyrehose_twisted.record import Record
from fyrehose_twisted.wording import pluralize

STREAM = "fyrehose://test"
LOG = "0000000001.log"

NewPath = Callable[[], Path]


def cut(size: int) -> str:
    return f"cut off {pluralize(size, 'byte')} that were incomplete after the last stop"


def gone(number: int) -> str:
    return f"durable, numbers {number} to {number} of epoch 0: once durable, but no segment holds them now"


def record(sequence: int, size: int = 9) -> Record:
    return Record(STREAM, 0, sequence, 7, b"%d" % sequence * size)


def start(path: Path, stream: str = STREAM, tag: int = 5, **config: Any) -> Journal:
    return Journal(LocalDirectory(path), stream, tag=tag, config=JournalConfig(**config), clock=lambda: 9.0)


def kept(journal: Any) -> list[int]:
    bounds = journal.bounds(0)
    if bounds is None:
        return []
    return [position for block in journal.read(0, bounds.first, 2**63) for position in block.positions.tolist()]


def fill(path: Path, numbers: range, **config: Any) -> list[int]:
    """Commit each number separately; return the ends of the frames."""
    journal = start(path, **config)
    journal.begin(0, 0)
    journal.commit()
    ends = [journal.catalog.segments[1].end]
    for number in numbers:
        journal.append([record(number)])
        journal.commit()
        ends.append(list(journal.catalog.segments.values())[-1].end)
    journal.close()
    return ends


def without_mark(path: Path) -> None:
    (path / POSITION_NAME).unlink()


def files(path: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in path.iterdir() if one.name != "lock"}


class TestTornEnd:
    def test_a_segment_truncated_anywhere_keeps_all_complete_frames(self, tmp_path: Path) -> None:
        ends = fill(tmp_path, range(4))
        restore_mark(tmp_path, ends[0])
        whole = (tmp_path / LOG).read_bytes()
        assert ends[-1] == len(whole)
        for length in range(ends[0], len(whole)):
            (tmp_path / LOG).write_bytes(whole[:length])
            complete = sum(end <= length for end in ends) - 1
            journal = start(tmp_path)
            assert kept(journal) == list(range(complete))
            rest = length - ends[complete]
            assert journal.recovery.messages() == ([cut(rest)] if rest else [])
            assert (tmp_path / LOG).stat().st_size >= ends[complete]
            journal.append([record(complete), record(complete + 1)])
            journal.close()
            again = start(tmp_path)
            assert kept(again) == list(range(complete + 2))
            assert again.recovery.messages() == []
            again.close()
            restore_mark(tmp_path, ends[0])

    @pytest.mark.parametrize("mark", [None, 6])
    def test_without_a_durable_position_unreadable_bytes_are_kept(self, tmp_path: Path, mark: int | None) -> None:
        """Without a durable position the damaged bytes may have been durable."""
        ends = fill(tmp_path, range(4))
        if mark is None:
            without_mark(tmp_path)
        else:
            restore_mark(tmp_path, 64, tag=mark)
        hurt = damaged(tmp_path / LOG, ends[-1] - 1)
        journal = start(tmp_path)
        assert kept(journal) == [0, 1, 2]
        assert [damage for damage in journal.recovery.damages if damage.name == LOG] == [
            Damage(LOG, ends[3], ends[4] - ends[3], "the checksum of the body is wrong", 0, 3, 3)
        ]
        assert journal.recovery.truncated_bytes == 0
        journal.append([record(4)])
        journal.close()
        assert (tmp_path / LOG).read_bytes() == hurt

    def test_without_a_readable_frame_a_segment_is_kept(self, tmp_path: Path) -> None:
        ends = fill(tmp_path, range(4))
        without_mark(tmp_path)
        (tmp_path / LOG).write_bytes((tmp_path / LOG).read_bytes()[:64].ljust(ends[-1], b"x"))
        hurt = (tmp_path / LOG).read_bytes()
        checked = check(LocalDirectory(tmp_path))
        assert (checked.torn, checked.damaged) == (None, 1)
        journal = start(tmp_path)
        assert [(damage.name, damage.offset) for damage in journal.recovery.damages] == [(LOG, 64)]
        journal.append([record(9)])
        journal.close()
        assert (tmp_path / LOG).read_bytes() == hurt

    def test_a_first_segment_without_a_complete_header_is_recreated(self, tmp_path: Path) -> None:
        start(tmp_path).close()
        whole = (tmp_path / LOG).read_bytes()
        for length in range(len(whole)):
            for path in list(tmp_path.iterdir()):
                path.unlink()
            (tmp_path / LOG).write_bytes(whole[:length])
            journal = start(tmp_path)
            journal.append([record(1)])
            journal.commit()
            assert kept(journal) == [1]
            assert journal.recovery.damages == []
            journal.close()

    @pytest.mark.parametrize("left", [b"", b"\xf7FYR", bytes(200)])
    def test_a_later_segment_without_a_complete_header_is_removed(self, tmp_path: Path, left: bytes) -> None:
        fill(tmp_path, range(4))
        (tmp_path / "0000000002.log").write_bytes(left)
        journal = start(tmp_path)
        assert kept(journal) == [0, 1, 2, 3]
        assert journal.recovery.damages == []
        assert journal.recovery.truncated_bytes == len(left)
        journal.close()
        assert sorted(files(tmp_path)) == [LOG, "0000000003.log", POSITION_NAME, RESERVE_NAME]

    def test_missing_durable_bytes_are_damage(self, tmp_path: Path) -> None:
        ends = fill(tmp_path, range(4))
        with (tmp_path / LOG).open("r+b") as file:
            file.truncate(ends[3] + 5)
        journal = start(tmp_path)
        assert kept(journal) == [0, 1, 2]
        assert journal.recovery.messages() == [
            f"{LOG}, bytes {ends[3]:,} to {ends[3] + 5:,}: 5 bytes are too few for a frame header",
            f"{LOG}, bytes {ends[3] + 5:,} to {ends[4]:,}: the file was truncated below its durable length",
            gone(3),
        ]
        journal.close()
        assert (tmp_path / LOG).stat().st_size == ends[3] + 5
        again = start(tmp_path)
        assert again.recovery.messages() == [
            f"{LOG}, bytes {ends[3]:,} to {ends[3] + 5:,}: 5 bytes are too few for a frame header",
            gone(3),
        ]
        again.close()

    def test_missing_durable_bytes_after_a_header_are_damage(self, tmp_path: Path) -> None:
        fill(tmp_path, range(4), segment_bytes=400)
        last = more(tmp_path)[-1]
        with (tmp_path / last).open("r+b") as file:
            file.truncate(30)
        journal = start(tmp_path)
        assert [damage.name for damage in journal.recovery.damages] == [last, POSITION_NAME]
        journal.close()
        assert (tmp_path / last).stat().st_size == 30

    def test_several_frames_without_bodies_are_a_torn_end(self, tmp_path: Path) -> None:
        """The headers reached the disk, but the pages with the bodies did not."""
        ends = fill(tmp_path, range(4))
        restore_mark(tmp_path, ends[2])
        data = bytearray((tmp_path / LOG).read_bytes())
        for begin, end in ((ends[2], ends[3]), (ends[3], ends[4])):
            data[begin + 72 : end] = bytes(end - begin - 72)
        (tmp_path / LOG).write_bytes(data)
        journal = start(tmp_path)
        assert kept(journal) == [0, 1]
        assert journal.recovery.messages() == [cut(ends[4] - ends[2])]
        journal.close()


def more(path: Path) -> list[str]:
    """Return the names of the segments after the first."""
    return sorted(name for name in files(path) if name.endswith((".log", ".seg")) and name != LOG)


class TestDamage:
    def test_a_flipped_bit_damages_only_its_frame_of_a_journal(self, tmp_path: Path) -> None:
        ends = fill(tmp_path, range(4))
        whole = (tmp_path / LOG).read_bytes()
        for index in range(ends[0], len(whole)):
            (tmp_path / LOG).write_bytes(whole[:index] + bytes([whole[index] ^ 4]) + whole[index + 1 :])
            hurt = sum(end <= index for end in ends) - 1
            journal = start(tmp_path)
            assert kept(journal) == [number for number in range(4) if number != hurt]
            damage = journal.recovery.damages[0]
            assert (damage.name, damage.offset, damage.length) == (LOG, ends[hurt], ends[hurt + 1] - ends[hurt])
            assert [str(one) for one in journal.recovery.damages[1:]] == ([] if damage.epoch == 0 else [gone(hurt)])
            assert journal.recovery.truncated_bytes == 0
            journal.close()
            for name in more(tmp_path):
                (tmp_path / name).unlink()
            restore_mark(tmp_path, len(whole), watermarks=((0, 4),))

    def test_a_damaged_header_is_reported_and_its_frames_are_kept(self, tmp_path: Path) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        whole = (tmp_path / LOG).read_bytes()
        for index in range(64):
            (tmp_path / LOG).write_bytes(whole[:index] + bytes([whole[index] ^ 4]) + whole[index + 1 :])
            journal = start(tmp_path, segment_bytes=400)
            assert kept(journal) == list(range(9))
            assert [(one.name, one.offset, one.length) for one in journal.recovery.damages] == [(LOG, 0, 64)]
            journal.close()

    def test_a_journal_without_an_intact_header_is_refused(self, tmp_path: Path) -> None:
        fill(tmp_path, range(3))
        before = damaged(tmp_path / LOG, 20)
        with pytest.raises(JournalError, match="header of segment 1 is damaged, and no other names the stream"):
            start(tmp_path)
        assert (tmp_path / LOG).read_bytes() == before

    def test_a_segment_with_a_damaged_header_is_not_compacted(self, tmp_path: Path) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        hurt = damaged(tmp_path / LOG, 20)
        journal = start(tmp_path, segment_bytes=400)
        journal.compact()
        journal.close()
        assert (tmp_path / LOG).read_bytes() == hurt
        again = start(tmp_path)
        assert kept(again) == list(range(9))
        assert len(again.recovery.messages()) == 1
        again.close()

    def test_a_segment_of_garbage_is_kept(self, tmp_path: Path) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        (tmp_path / LOG).write_bytes(b"garbage!" * 500)
        journal = start(tmp_path, segment_bytes=400)
        assert [damage.reason for damage in journal.recovery.damages] == [
            "it does not start with the magic of a journal segment",
            "once durable, but no segment holds them now",
        ]
        assert (tmp_path / LOG).read_bytes() == b"garbage!" * 500
        journal.close()

    def test_a_truncated_full_segment_is_reported(self, tmp_path: Path) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        size = (tmp_path / LOG).stat().st_size
        with (tmp_path / LOG).open("r+b") as file:
            file.truncate(size - 3)
        journal = start(tmp_path, segment_bytes=400)
        damage = journal.recovery.damages[0]
        assert (damage.name, damage.reason) == (LOG, "the body is truncated to 29 of 32 bytes")
        assert (tmp_path / LOG).stat().st_size == size - 3
        journal.close()

    def test_a_segment_renamed_to_another_number_is_damage(self, tmp_path: Path) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        shutil.copy(tmp_path / LOG, tmp_path / "0000000009.seg")
        journal = start(tmp_path, segment_bytes=400)
        assert [damage.reason for damage in journal.recovery.damages] == ["its header belongs to segment 1"]
        assert kept(journal) == list(range(9))
        journal.close()


def damaged(path: Path, index: int) -> bytes:
    data = bytearray(path.read_bytes())
    data[index] ^= 1
    path.write_bytes(data)
    return bytes(data)


def restore_mark(
    path: Path, offset: int, segment: int = 1, tag: int = 5, watermarks: tuple[tuple[int, int], ...] = ()
) -> None:
    file = open_position_file(LocalDirectory(path))
    write_position(file, DurablePosition(segment, offset, tag, watermarks))
    file.close()


class TestDurablePosition:
    def test_the_durable_position_round_trips(self, tmp_path: Path) -> None:
        watermarks = tuple((2**63 - 9 + index, 2**64 - index - 1) for index in range(MAX_EPOCHS))
        restore_mark(tmp_path, 2**40, 77, 2**32 - 1, watermarks)
        assert read_position(LocalDirectory(tmp_path)) == DurablePosition(77, 2**40, 2**32 - 1, watermarks)

    def test_the_durable_position_keeps_the_latest_epochs(self) -> None:
        assert latest_epochs((epoch, epoch * 10) for epoch in range(99)) == tuple(
            (epoch, epoch * 10) for epoch in range(91, 99)
        )

    def test_every_damage_of_the_durable_position_is_detected(self, tmp_path: Path) -> None:
        restore_mark(tmp_path, 1_000, watermarks=((3, 7),))
        data = (tmp_path / POSITION_NAME).read_bytes()
        for bit in range(8 * len(data)):
            hurt = bytearray(data)
            hurt[bit // 8] ^= 1 << bit % 8
            (tmp_path / POSITION_NAME).write_bytes(hurt)
            found: list[Damage] = []
            assert read_position(LocalDirectory(tmp_path), found) == (
                DurablePosition(1, 1_000, 5) if bit >= 8 * 32 else None
            )
            assert len(found) == 1

    def test_a_shortened_durable_position_has_no_watermarks(self, tmp_path: Path) -> None:
        """Like the first one after a crash, or one of earlier releases."""
        restore_mark(tmp_path, 1_000, watermarks=((3, 7),))
        data = (tmp_path / POSITION_NAME).read_bytes()
        for length in range(len(data)):
            (tmp_path / POSITION_NAME).write_bytes(data[:length])
            found: list[Damage] = []
            assert read_position(LocalDirectory(tmp_path), found) == (
                DurablePosition(1, 1_000, 5) if length >= 32 else None
            )
            assert not found

    def test_a_durable_position_written_by_an_earlier_release_is_read(self, tmp_path: Path) -> None:
        """It updates the offset and keeps older watermarks, which stay valid."""
        restore_mark(tmp_path, 2_000)
        theirs = (tmp_path / POSITION_NAME).read_bytes()[:32]
        restore_mark(tmp_path, 1_000, watermarks=((3, 7),))
        (tmp_path / POSITION_NAME).write_bytes(theirs + (tmp_path / POSITION_NAME).read_bytes()[32:])
        found: list[Damage] = []
        assert read_position(LocalDirectory(tmp_path), found) == DurablePosition(1, 2_000, 5, ((3, 7),))
        assert not found

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (None, []),
            (b"", []),
            (bytes(40), []),
            (b"x" * 40, ["durable, bytes 0 to 40: it is not a valid durable position"]),
            ("older", []),
            ("of another journal", ["durable, bytes 0 to 180: it belongs to another journal"]),
        ],
    )
    def test_an_older_durable_position_loses_no_records(
        self, tmp_path: Path, content: bytes | str | None, told: list[str]
    ) -> None:
        ends = fill(tmp_path, range(4))
        if isinstance(content, bytes):
            (tmp_path / POSITION_NAME).write_bytes(content)
        elif content is None:
            without_mark(tmp_path)
        else:
            restore_mark(tmp_path, *((ends[1],) if content == "older" else (10**6, 1, 6)))
        journal = start(tmp_path)
        assert kept(journal) == [0, 1, 2, 3]
        assert journal.bounds(0) == Bounds(0, 4, 3)
        assert journal.recovery.messages() == told
        assert read_position(journal.directory) == DurablePosition(1, ends[-1], 5, ((0, 4),))
        journal.close()

    def test_a_durable_position_beyond_the_end_is_damage(self, tmp_path: Path) -> None:
        ends = fill(tmp_path, range(4))
        restore_mark(tmp_path, ends[-1] + 80)
        journal = start(tmp_path)
        (damage,) = journal.recovery.damages
        assert (damage.offset, damage.length) == (ends[-1], 80)
        assert kept(journal) == [0, 1, 2, 3]
        journal.close()

    def test_a_durable_position_in_a_missing_file_is_damage(self, tmp_path: Path) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        last = more(tmp_path)[-1]
        offset = (tmp_path / last).stat().st_size
        (tmp_path / last).unlink()
        journal = start(tmp_path, segment_bytes=400)
        assert journal.recovery.messages() == [
            f"{last}, bytes 0 to {offset}: what was durable there is gone with the file",
            gone(8),
        ]
        assert journal.recovery.next_number == int(last[:10]) + 1
        journal.close()


class TestLeftovers:
    def test_unfinished_files_are_removed_at_opening(self, tmp_path: Path) -> None:
        fill(tmp_path, range(4))
        for name in ("0000000001.seg.tmp", "0000000001.idx.tmp", "0000000007.idx"):
            (tmp_path / name).write_bytes(b"x")
        start(tmp_path).close()
        assert sorted(files(tmp_path)) == [LOG, POSITION_NAME, RESERVE_NAME]

    def test_a_compacted_segment_replaces_its_original(self, tmp_path: Path) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        old = (tmp_path / LOG).read_bytes()
        journal = start(tmp_path, segment_bytes=400)
        journal.compact()
        journal.close()
        (tmp_path / LOG).write_bytes(old)
        (tmp_path / "0000000001.idx").unlink()
        reader = JournalReader(LocalDirectory(tmp_path))
        assert next(one.name for one in reader.segments) == "0000000001.seg"
        assert kept(reader) == list(range(9))
        reader.close()
        journal = start(tmp_path, segment_bytes=400)
        assert kept(journal) == list(range(9))
        assert journal.recovery.messages() == []
        journal.close()
        assert LOG not in files(tmp_path)
        assert "0000000001.idx" in files(tmp_path)

    def test_unrelated_files_are_kept(self, tmp_path: Path) -> None:
        fill(tmp_path, range(2))
        (tmp_path / "README").write_bytes(b"mine")
        (tmp_path / "1.log").write_bytes(b"mine too")
        start(tmp_path).close()
        assert sorted(files(tmp_path)) == [LOG, "1.log", "README", POSITION_NAME, RESERVE_NAME]


class TestRefusal:
    """Refusals, which do not change the files."""

    def refusal_reason(self, path: Path, stream: str = STREAM) -> str:
        (path / "0000000001.seg.tmp").write_bytes(b"somebody's")
        before = files(path)
        with pytest.raises(JournalError) as raised:
            start(path, stream)
        assert files(path) == before
        return str(raised.value)

    def test_opening_a_journal_of_another_stream_is_refused(self, tmp_path: Path) -> None:
        fill(tmp_path, range(2))
        (tmp_path / "0000000002.log").write_bytes(b"")
        reason = self.refusal_reason(tmp_path, "fyrehose://other")
        assert reason == f"{tmp_path} is the journal of fyrehose://test, not of fyrehose://other"

    @pytest.mark.parametrize("name", [LOG, "last"])
    def test_opening_a_journal_of_another_version_is_refused(self, tmp_path: Path, name: str) -> None:
        fill(tmp_path, range(9), segment_bytes=400)
        path = tmp_path / (more(tmp_path)[-1] if name == "last" else name)
        data = bytearray(path.read_bytes())
        data[8] = 2
        data[60:64] = struct.pack("<I", zlib.crc32(data[:60]))
        path.write_bytes(data)
        assert "unsupported format version 2; expected 1" in self.refusal_reason(tmp_path)
        with pytest.raises(JournalError, match="version 2"):
            JournalReader(LocalDirectory(tmp_path))

    @pytest.mark.parametrize("theirs", [{"tag": 6}, {"stream": "fyrehose://other"}])
    def test_opening_a_journal_with_a_segment_of_another_is_refused(
        self, tmp_path: Path, new_path: NewPath, theirs: dict[str, Any]
    ) -> None:
        fill(tmp_path, range(2))
        other = new_path()
        journal = start(other, **theirs)
        journal.roll()
        journal.close()
        shutil.copy(other / "0000000002.log", tmp_path)
        assert "segment 2 belongs to another journal" in self.refusal_reason(tmp_path)

    def test_opening_a_journal_locked_by_another_process_is_refused(self, tmp_path: Path) -> None:
        fill(tmp_path, range(2))
        script = (
            "import sys; from pathlib import Path; from fyrehose_twisted.journal.format.disk import LocalDirectory;"
            "lock = LocalDirectory(Path(sys.argv[1])).lock(); print('locked', flush=True); sys.stdin.read()"
        )
        with subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "locked\n"
            assert "is in use by another process that writes to it" in self.refusal_reason(tmp_path)
            with pytest.raises(JournalInUse):
                start(tmp_path)
            reader = JournalReader(LocalDirectory(tmp_path))
            assert kept(reader) == [0, 1]
            reader.close()
            process.kill()
        start(tmp_path).close()


def test_a_reader_sees_no_frames_after_the_durable_position(tmp_path: Path) -> None:
    ends = fill(tmp_path, range(4))
    for count, end in enumerate(ends):
        for offset in {end, end + 1, min(end + 130, ends[-1])}:
            restore_mark(tmp_path, offset)
            reader = JournalReader(LocalDirectory(tmp_path))
            complete = sum(other <= offset for other in ends) - 1
            assert kept(reader) == list(range(complete)), (count, offset)
            reader.close()
