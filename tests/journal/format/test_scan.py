from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format import scan as scanning
from fyrehose_twisted.journal.format.frames import MAGIC, FramePosition, lost_frame, records_frame
from fyrehose_twisted.journal.format.scan import ScannedFrame, scan

TAG, NUMBER, START = 77, 4, 64
PADDING = b"four"
INNER = START + 72 + 8 * 2 + 4 * 3 + len(PADDING)
"""Offset of the bytes after the padding in the payload of a frame at START."""


class Bytes:
    """A read-only file in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return self.data[offset : offset + length]


def frame(offset: int, number: int, payload: bytes = b"x", /, **place: int) -> bytes:
    where = FramePosition(**({"segment": NUMBER, "offset": offset, "tag": TAG} | place))
    return records_frame(where, 0, [number, number + 1], [1, 2], [payload, b""])[1]


def segment(count: int, payload: bytes = b"x") -> tuple[bytes, list[int]]:
    """Return ``count`` frames behind a zeroed header, and their offsets."""
    data, offsets = bytes(START), []
    for index in range(count):
        offsets.append(len(data))
        data += frame(len(data), 10 * index, payload)
    return data, offsets


def scanned(data: bytes, **options: Any) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the frames found and the damage between them."""
    options = {"number": NUMBER, "tag": TAG, "start": START, "end": len(data)} | options
    found = list(scan(Bytes(data), "name", **options))  # type: ignore[arg-type]
    assert [end(what) for what in found[:-1]] == [begin(what) for what in found[1:]]
    if found:
        assert (begin(found[0]), end(found[-1])) == (options["start"], options["end"])
    frames = [what.header.offset for what in found if isinstance(what, ScannedFrame)]
    return frames, [(what.offset, what.length) for what in found if isinstance(what, Damage)]


def begin(what: ScannedFrame | Damage) -> int:
    return what.header.offset if isinstance(what, ScannedFrame) else what.offset


def end(what: ScannedFrame | Damage) -> int:
    return begin(what) + (what.header.size if isinstance(what, ScannedFrame) else what.length)


def test_scan_finds_consecutive_frames() -> None:
    data, offsets = segment(5)
    assert scanned(data) == (offsets, [])
    assert scanned(data, start=offsets[2]) == (offsets[2:], [])
    assert scanned(data, end=offsets[2]) == (offsets[:2], [])
    assert scanned(data, end=START) == ([], [])


def test_flipped_bit_damages_only_its_frame() -> None:
    data, offsets = segment(3)
    bounds = [*offsets, len(data)]
    for index in range(START, len(data)):
        hurt = bytearray(data)
        hurt[index] ^= 0x10
        row = max(row for row, offset in enumerate(offsets) if offset <= index)
        frames, damages = scanned(bytes(hurt))
        assert frames == offsets[:row] + offsets[row + 1 :], index
        assert damages == [(bounds[row], bounds[row + 1] - bounds[row])], index


def test_removed_bytes_damage_only_their_frame() -> None:
    data, offsets = segment(3)
    bounds = [*offsets, len(data)]
    for length in range(START, len(data)):
        complete = [offset for offset, after in zip(offsets, bounds[1:], strict=True) if after <= length]
        rest = bounds[len(complete)]
        assert scanned(data[:length]) == (complete, [(rest, length - rest)] if rest < length else [])


@given(st.integers(0, 60).map(lambda words: 8 * words), st.integers(0, 255), st.integers(0, 2))
def test_scan_skips_garbage_between_frames(length: int, byte: int, after: int) -> None:
    data, offsets = segment(after)
    junk = bytes([byte]) * length
    behind = frame(len(data) + length, 99)
    damage = [(len(data), length)] if length else []
    assert scanned(data + junk + behind) == ([*offsets, len(data) + length], damage)


@pytest.mark.parametrize("length", [1, 7, 8, 71, 72, 4_096, 100_001])
def test_trailing_zeros_are_one_damage(length: int) -> None:
    data, offsets = segment(2)
    assert scanned(data + bytes(length)) == (offsets, [(len(data), length)])


def test_magic_without_a_header_is_not_a_frame() -> None:
    data, offsets = segment(1)
    assert scanned(data + MAGIC * 40) == (offsets, [(len(data), 160)])


def test_frames_inside_a_valid_payload_are_ignored() -> None:
    inner = frame(INNER, 50)
    data = bytes(START) + frame(START, 1, PADDING + inner)
    assert data[INNER:].startswith(inner)
    assert scanned(data) == ([START], [])


@pytest.mark.parametrize(
    "place", [{"offset": 8}, {"segment": NUMBER + 1}, {"tag": TAG + 1}], ids=["offset", "segment", "journal"]
)
def test_misplaced_frame_inside_a_damaged_one_is_ignored(place: dict[str, int]) -> None:
    payload = b"".join(frame(INNER + shift, 50, **place) for shift in range(0, 300, 104))
    data = bytearray(bytes(START) + frame(START, 1, PADDING + payload))
    behind = len(data)
    data += frame(behind, 2)
    data[START + 80] ^= 1
    assert scanned(bytes(data)) == ([behind], [(START, behind - START)])


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ({"offset": 8}, "the frame belongs to segment 4, offset 8"),
        ({"segment": 5}, "the frame belongs to segment 5, offset 64"),
        ({"tag": 78}, "the frame belongs to another journal"),
    ],
)
def test_moved_frame_is_rejected(place: dict[str, int], reason: str) -> None:
    data = bytes(START) + frame(START, 1, **place)
    (damage,) = scan(Bytes(data), "name", number=NUMBER, tag=TAG, start=START, end=len(data))  # type: ignore[arg-type]
    assert isinstance(damage, Damage)
    assert damage == Damage("name", START, len(data) - START, reason)


def test_scan_without_a_tag_accepts_the_first_one() -> None:
    data = bytes(START) + frame(START, 1, tag=5)
    second = len(data)
    data += frame(second, 2, tag=6)
    assert scanned(data, tag=None) == ([START], [(second, len(data) - second)])


def test_damage_includes_the_affected_numbers() -> None:
    data = bytearray(segment(2)[0])
    data[START + 75] ^= 1
    damage = next(scan(Bytes(bytes(data)), "name", number=NUMBER, tag=TAG, start=START, end=len(data)))  # type: ignore[arg-type]
    assert isinstance(damage, Damage)
    assert (damage.epoch, damage.first, damage.last) == (0, 0, 1)
    assert str(damage) == "name, bytes 64 to 168, numbers 0 to 1 of epoch 0: the checksum of the body is wrong"


def test_scan_finds_frames_of_every_kind() -> None:
    place = FramePosition(NUMBER, START, TAG)
    data = bytes(START) + lost_frame(place, 0, [(1, 2)], 0)[1]
    assert scanned(data) == ([START], [])


def test_progress_sums_to_the_size() -> None:
    data = bytearray(segment(4)[0])
    data[START + 75] ^= 1
    seen: list[int] = []
    scanned(bytes(data) + bytes(9), progress=seen.append)
    assert sum(seen) == len(data) + 9 - START
    assert len(seen) == 5


class TestSmallWindow:
    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Shrink the read window, so that frames cross its boundaries."""
        monkeypatch.setattr(scanning, "READ_CHUNK", 80)

    def test_scan_finds_frames_larger_than_its_buffer(self) -> None:
        data, offsets = segment(5, bytes(300))
        assert scanned(data) == (offsets, [])

    @pytest.mark.parametrize("length", range(0, 400, 8))
    def test_scan_skips_arbitrary_garbage(self, length: int) -> None:
        data, offsets = segment(2)
        behind = frame(len(data) + length, 99)
        damage = [(len(data), length)] if length else []
        assert scanned(data + b"\xf7" * length + behind) == ([*offsets, len(data) + length], damage)
        assert scanned(data + b"\xf7" * length + behind + b"\xf7" * 3)[0] == [*offsets, len(data) + length]

    def test_scan_reports_a_torn_end(self) -> None:
        data, offsets = segment(3, bytes(200))
        for length in range(offsets[2], len(data)):
            assert scanned(data[:length])[0] == offsets[:2]
