"""Findings of `check` in the files of a journal."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.frames import HEADER, FramePosition, lost_frame, records_frame
from fyrehose_twisted.journal.format.index_file import encode
from fyrehose_twisted.journal.format.segment_header import SegmentHeader
from fyrehose_twisted.journal.format.segment_header import encode as encode_header
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.upkeep.check import check
from fyrehose_twisted.journal.upkeep.check_report import CheckReport, find_missing_ranges, format_ranges
from fyrehose_twisted.record import Record
from fyrehose_twisted.wording import pluralize

STREAM = "fyrehose://test"
TAG = 0x1234_5678


def records(sequences: Iterable[int], epoch: int = 0) -> list[Record]:
    return [Record(STREAM, epoch, sequence, 1_000 + sequence % 1_000, b"%08d" % sequence) for sequence in sequences]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal: 1 to 200 in two compacted segments of two frames each, 201 to 250 in the open one."""
    path = tmp_path / "journal"
    path.mkdir()
    journal = Journal(LocalDirectory(path), STREAM, tag=TAG)
    journal.config = type(journal.config)(frame_records=50)
    for low in (1, 101):
        journal.append(records(range(low, low + 100)))
        journal.commit()
        journal.roll()
    journal.compact()
    journal.append(records(range(201, 251)))
    journal.close()
    return path


def look(path: Path, **options: Any) -> CheckReport:
    return check(LocalDirectory(path), **options)


def gone(first: int, last: int) -> str:
    return f"durable, numbers {first} to {last} of epoch 0: once durable, but no segment holds them now"


def damages(checked: CheckReport) -> list[str]:
    return [finding.text for finding in checked.findings if finding.damage]


def others(checked: CheckReport) -> list[str]:
    return [finding.text for finding in checked.findings if not finding.damage]


def flip(file: Path, offset: int) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= 0x10
    file.write_bytes(data)


def frames_of(path: Path, number: int) -> list[Any]:
    reader = JournalReader(LocalDirectory(path))
    segment = next(one for one in reader.segments if one.number == number)
    headers = list(segment.frame_indexes[0])
    reader.close()
    return headers


def append(file: Path, data: bytes) -> None:
    with open(file, "ab") as output:
        output.write(data)


def test_a_good_journal_has_no_findings(path: Path) -> None:
    read: list[int] = []
    checked = look(path, progress=read.append)
    assert checked.findings == []
    segments = sum(file.stat().st_size for file in path.iterdir() if file.suffix in {".seg", ".log"})
    assert checked.size == segments
    assert segments - 3 * 100 < sum(read) <= segments  # All but the file headers.
    assert checked.summary() == (
        f"{STREAM}: 3 segments, {segments:,} bytes; epoch 0 from 1 to 250, 250 records; nothing is damaged"
    )


def test_check_does_not_change_a_journal(path: Path) -> None:
    append(path / "0000000003.log", b"torn")
    (path / "0000000009.seg.tmp").write_bytes(b"x")
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    look(path)
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "offset", "finding"),
    [
        ("0000000001.seg", 3, "0000000001.seg, bytes 0 to 64: it does not start with the magic of a journal segment"),
        ("0000000001.seg", 40, "0000000001.seg, bytes 0 to 64: the checksum of its header is wrong"),
        ("0000000003.log", 40, "0000000003.log, bytes 0 to 64: the checksum of its header is wrong"),
    ],
)
def test_check_reports_a_damaged_header(path: Path, name: str, offset: int, finding: str) -> None:
    flip(path / name, offset)
    checked = look(path)
    assert damages(checked) == [finding]
    assert checked.catalog.held[0].count == 250


@pytest.mark.parametrize("where", ["header", "body"])
@pytest.mark.parametrize("number", [1, 3])
def test_check_reports_a_damaged_frame_and_its_numbers(path: Path, where: str, number: int) -> None:
    name = "0000000001.seg" if number == 1 else "0000000003.log"
    if number == 3:  # A good frame must follow.
        with_more(path)
    frame = frames_of(path, number)[0]
    flip(path / name, frame.offset + (20 if where == "header" else HEADER.size + 30))
    checked = look(path)
    first = 1 if number == 1 else 201
    numbers = f", numbers {first} to {first + 49} of epoch 0" if where == "body" or number == 1 else ""
    place = f"{name}, bytes {frame.offset:,} to {frame.offset + frame.size:,}"
    told = [f"{place}{numbers}: the checksum of the {where} is wrong"]
    if not numbers:
        told.append(gone(first, first + 49))
    assert damages(checked) == told
    assert others(checked) == [f"missing in epoch 0: {first} to {first + 49}"]
    assert find_missing_ranges(checked.catalog, 0) == [(first, first + 49)]
    assert checked.summary().endswith(f"50 missing; damage in {pluralize(len(told), 'place')}")


def with_more(path: Path) -> None:
    journal = Journal(LocalDirectory(path), STREAM)
    journal.append(records(range(251, 261)))
    journal.close()


def test_check_detects_every_bit_flip_of_a_segment(path: Path) -> None:
    name = path / "0000000002.seg"
    good = name.read_bytes()
    for offset in range(0, len(good), 7):
        flip(name, offset)
        assert look(path).damaged, offset
        name.write_bytes(good)


class TestIndex:
    def test_check_reports_a_damaged_index_file(self, path: Path) -> None:
        flip(path / "0000000002.idx", 30)
        assert damages(look(path)) == ["0000000002.idx: its checksum is wrong, or it belongs to another journal"]

    def test_check_reports_an_index_file_that_contradicts_its_segment(self, path: Path) -> None:
        checked = look(path)
        liar = checked.segments[1]
        liar.frame_indexes[0].held.discard(40, 42)
        (path / "0000000001.idx").write_bytes(encode(liar))
        assert damages(look(path)) == ["0000000001.idx: it does not match 0000000001.seg"]

    def test_check_reports_a_missing_index_file(self, path: Path) -> None:
        (path / "0000000001.idx").unlink()
        checked = look(path)
        assert damages(checked) == []
        assert others(checked) == ["0000000001.idx is missing; the next start writes it"]


class TestDurablePosition:
    def test_check_reports_a_damaged_durable_position(self, path: Path) -> None:
        flip(path / "durable", 20)
        assert damages(look(path)) == [
            "durable, bytes 0 to 180: it is not a valid durable position; the next start writes it"
        ]

    def test_check_reports_a_missing_durable_position(self, path: Path) -> None:
        (path / "durable").unlink()
        checked = look(path)
        assert damages(checked) == []
        assert others(checked) == ["durable is missing, as after a power failure; the next start writes it"]

    def test_check_reports_a_durable_position_of_another_journal(self, path: Path, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        Journal(LocalDirectory(other), STREAM).close()
        shutil.copy(other / "durable", path)
        assert damages(look(path)) == ["durable, bytes 0 to 180: it belongs to another journal"]

    def test_check_reports_missing_durable_bytes(self, path: Path) -> None:
        log = path / "0000000003.log"
        frame = frames_of(path, 3)[0]
        with open(log, "r+b") as file:
            file.truncate(frame.offset)
        end = frame.offset + frame.size
        assert damages(look(path)) == [
            f"0000000003.log, bytes {frame.offset:,} to {end:,}: the file was truncated below its durable length",
            gone(201, 250),
        ]
        log.unlink()
        assert damages(look(path)) == [
            f"0000000003.log, bytes 0 to {end:,}: what was durable there is gone with the file",
            gone(201, 250),
        ]

    def test_a_damaged_end_below_the_durable_position_is_damage(self, path: Path) -> None:
        frame = frames_of(path, 3)[0]
        flip(path / "0000000003.log", frame.offset + HEADER.size)
        checked = look(path)
        assert checked.torn is None
        assert len(damages(checked)) == 1


class TestTornEnd:
    def test_a_torn_end_is_no_damage(self, path: Path) -> None:
        log = path / "0000000003.log"
        end = log.stat().st_size
        _, frame = records_frame(FramePosition(3, end, TAG), 0, [251], [1], [b"x" * 100])
        append(log, frame[:-8])
        checked = look(path)
        assert damages(checked) == []
        assert others(checked) == [
            f"0000000003.log, bytes {end:,} to {end + len(frame) - 8:,}, numbers 251 to 251 of epoch 0:"
            " the body is truncated to 112 of 120 bytes; incomplete after a crash; the next start cuts it off"
        ]
        assert "torn end of 184 bytes; nothing is damaged" in checked.summary()

    def test_a_torn_end_may_have_several_frames(self, path: Path) -> None:
        log = path / "0000000003.log"
        end = log.stat().st_size
        for number in (251, 252):
            _, frame = records_frame(FramePosition(3, log.stat().st_size, TAG), 0, [number], [1], [b"x" * 100])
            append(log, frame[:-8] + bytes(8))
        checked = look(path)
        assert damages(checked) == []
        assert checked.torn is not None
        assert (checked.torn.offset, checked.torn.length) == (end, log.stat().st_size - end)

    def test_check_reports_an_incomplete_segment_after_a_crash(self, path: Path) -> None:
        (path / "0000000004.log").write_bytes(bytes(10))
        checked = look(path)
        assert damages(checked) == []
        assert others(checked) == ["0000000004.log: incomplete after a crash; the next start removes it"]

    def test_check_lists_leftover_files(self, path: Path) -> None:
        for name in ("0000000001.log", "0000000002.seg.tmp", "0000000009.idx"):
            shutil.copy(path / "0000000001.seg", path / name)
        checked = look(path)
        assert damages(checked) == []
        assert checked.leftovers == ["0000000001.log", "0000000002.seg.tmp", "0000000009.idx"]

    @pytest.mark.parametrize("number", [1, 2])
    def test_an_incomplete_end_of_a_full_segment_is_damage(self, path: Path, number: int) -> None:
        append(path / f"000000000{number}.seg", bytes(16))
        assert len(damages(look(path))) == 1


class TestWrongDirectories:
    def test_check_refuses_an_empty_directory(self, tmp_path: Path) -> None:
        with pytest.raises(JournalError, match=r"holds no journal: there is no 0000000001.log"):
            look(tmp_path)

    def test_check_reports_a_segment_of_another_journal(self, path: Path) -> None:
        (path / "0000000004.log").write_bytes(encode_header(SegmentHeader(4, "fyrehose://other", 0, 0, 1)))
        found = damages(look(path))
        assert len(found) == 1
        assert "segment 4 belongs to another journal (fyrehose://other, tag 00000001) than segment 1" in found[0]

    def test_check_refuses_a_journal_of_another_version(self, path: Path) -> None:
        file = path / "0000000001.seg"
        data = bytearray(file.read_bytes())
        length = struct.unpack_from("<I", data, 12)[0]
        data[8:12] = struct.pack("<I", 2)
        data[length - 4 : length] = struct.pack("<I", zlib.crc32(data[: length - 4]))
        file.write_bytes(data)
        with pytest.raises(JournalError, match=r"0000000001.seg cannot be read: unsupported format version 2"):
            look(path)

    def test_check_reports_an_unreadable_segment_and_its_missing_numbers(self, path: Path) -> None:
        (path / "0000000002.seg").write_bytes(bytes(5_000))
        checked = look(path)
        assert [damage.name for damage in checked.unreadable] == ["0000000002.seg"]
        assert find_missing_ranges(checked.catalog, 0) == [(101, 200)]


class TestContents:
    def test_check_reports_unordered_compacted_segments(self, path: Path) -> None:
        file = path / "0000000002.seg"
        for number in (300, 299):
            _, frame = records_frame(FramePosition(2, file.stat().st_size, TAG), 0, [number], [1], [b"x"])
            append(file, frame)
        checked = look(path)
        assert checked.unordered == {2}
        assert any("number 299 of epoch 0 follows 300" in text for text in damages(checked))

    def test_check_reports_records_outside_of_their_frames_range(self, path: Path) -> None:
        log = path / "0000000003.log"
        _, frame = records_frame(FramePosition(3, log.stat().st_size, TAG), 0, [251, 252], [1, 1], [b"x", b"y"])
        body = bytearray(frame[HEADER.size :])
        body[24:28] = struct.pack("<I", 1_000)
        header = bytearray(frame[: HEADER.size])
        header[60:64] = struct.pack("<I", zlib.crc32(body))
        header[-4:] = struct.pack("<I", zlib.crc32(header[:-4]))
        append(log, bytes(header + body))
        assert [text.partition(": ")[2] for text in damages(look(path))] == ["its records extend beyond it"]

    def test_check_reports_numbers_both_held_and_lost(self, path: Path) -> None:
        log = path / "0000000003.log"
        _, frame = records_frame(FramePosition(3, log.stat().st_size, TAG), 0, [249, 250, 253], [1] * 3, [b""] * 3)
        append(log, frame)
        append(log, lost_frame(FramePosition(3, log.stat().st_size, TAG), 0, [(250, 251)], 1)[1])
        checked = look(path)
        assert damages(checked) == ["both held and declared lost in epoch 0: 250"]
        assert others(checked) == [
            "stored twice in epoch 0, the later counts: 249 to 250",
            "declared lost in epoch 0: 250 to 251",
            "missing in epoch 0: 252",
        ]

    def test_check_summarises_epochs_of_wrapping_numbers(self, tmp_path: Path) -> None:
        wrap = 2**63
        journal = Journal(LocalDirectory(tmp_path), STREAM, wrap=wrap)
        journal.append(records([wrap - 2, wrap - 1, 0, 1], epoch=3))
        journal.append(records([wrap - 1, 1], epoch=4))
        journal.lose(4, wrap - 1, 3)
        journal.commit()
        journal.roll()
        journal.compact()
        journal.append(records([2, 4], epoch=3))
        journal.close()
        checked = look(tmp_path)
        assert damages(checked) == []
        assert find_missing_ranges(checked.catalog, 3) == [(wrap + 3, wrap + 3)]
        assert f"epoch 3 from {wrap - 2} to {wrap + 4}, 6 records, 1 missing" in checked.summary()
        assert f"epoch 4 from {wrap - 1} to {wrap + 3}, 2 records, 3 lost" in checked.summary()

    def test_a_long_list_of_ranges_is_abbreviated(self) -> None:
        assert format_ranges((number, number) for number in range(0, 24, 2)).endswith("16, 18 and 2 more ranges")


class TestBesideAWriter:
    def test_check_beside_a_writer_counts_only_durable_records(self, path: Path) -> None:
        journal = Journal(LocalDirectory(path), STREAM)
        journal.append(records(range(251, 261)))
        journal.commit(sync=False)
        append(path / "0000000003.log", b"half")
        checked = look(path, writing=True)
        assert checked.findings == []
        assert checked.catalog.held[0].last == 250
        journal._writer._file.truncate((path / "0000000003.log").stat().st_size - 4)
        journal.commit()
        assert look(path, writing=True).catalog.held[0].last == 260
        journal.close()

    def test_check_beside_a_writer_reports_damage_below_the_durable_position(self, path: Path) -> None:
        frame = frames_of(path, 3)[0]
        flip(path / "0000000003.log", frame.offset + HEADER.size)
        assert look(path, writing=True).damaged == 1

    def test_check_continues_when_a_segment_is_compacted(self, path: Path) -> None:
        journal = Journal(LocalDirectory(path), STREAM)
        journal.roll()

        class Late(LocalDirectory):
            def names(self) -> list[str]:
                names = super().names()
                journal.compact()
                return names

        checked = check(Late(path), writing=True)
        assert damages(checked) == []
        assert checked.catalog.held[0].count == 250
        journal.close()

    def test_check_continues_when_retention_removes_a_segment(self, path: Path) -> None:
        class Late(LocalDirectory):
            def names(self) -> list[str]:
                names = super().names()
                (path / "0000000001.seg").unlink(missing_ok=True)
                return names

        assert sorted(check(Late(path), writing=True).segments) == [2, 3]
