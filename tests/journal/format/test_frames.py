from __future__ import annotations

import struct
import zlib
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.format import frames
from fyrehose_twisted.journal.format.frames import (
    DENSE,
    FRAME_BYTES,
    HEADER,
    MAX_BODY,
    MAX_GAP,
    MAX_RECORDS,
    BadFrame,
    FrameHeader,
    FrameKind,
    FramePosition,
    block_frame,
    check_body,
    frame_boundaries,
    lost_frame,
    read_header,
    read_pairs,
    read_positions,
    read_records,
    records_frame,
    start_frame,
)

STREAM = "fyrehose://test"
PLACE = FramePosition(3, 64, 0xCAFE)

Rows = list[tuple[int, int, bytes]]

gaps = st.one_of(st.just(1), st.integers(1, MAX_GAP))
rows = st.tuples(
    st.integers(0, 2**63),
    st.lists(st.tuples(gaps, st.integers(0, 2**63 - 1), st.binary(max_size=20)), min_size=1, max_size=30),
).map(lambda found: numbered(*found))


def numbered(base: int, found: list[tuple[int, int, bytes]]) -> Rows:
    result: Rows = []
    position = base
    for step, time, payload in found:
        result.append((position, time, payload))
        position += step
    return result


def frame_of(given_rows: Rows) -> tuple[FrameHeader, bytes]:
    positions, times, payloads = zip(*given_rows, strict=True)
    return records_frame(PLACE, 9, positions, times, payloads)


def read_again(data: bytes) -> tuple[FrameHeader, memoryview]:
    header = read_header(data)
    body = memoryview(data)[HEADER.size :]
    check_body(header, body)
    return header, body


def rows_of(data: bytes) -> Rows:
    block = read_records(*read_again(data), STREAM)
    return list(zip(block.positions.tolist(), block.times.tolist(), block.payloads(), strict=True))


def packed(
    *, version: int = 1, kind: int = 1, count: int = 1, body: bytes = bytes(16), length: int | None = None
) -> bytes:
    """Return a frame of arbitrary content with valid checksums."""
    fields = (version, kind, DENSE, count, len(body) if length is None else length, 5, 9, 0, *PLACE[:2], 0, PLACE.tag)
    head = HEADER.pack(frames.MAGIC, *fields, zlib.crc32(body))[:-4]
    return head + struct.pack("<I", zlib.crc32(head)) + body


class TestRoundTrip:
    @given(rows)
    def test_a_frame_of_records_round_trips(self, given_rows: Rows) -> None:
        header, data = frame_of(given_rows)
        assert rows_of(data) == given_rows
        assert read_header(data) == header
        assert header.size == len(data)
        assert len(data) % 8 == 0
        assert (header.base, header.last) == (given_rows[0][0], given_rows[-1][0])
        assert header.newest == max(time for _, time, _ in given_rows)
        assert bool(header.flags & DENSE) == (header.span == header.entries - 1)
        assert (header.kind, header.epoch) == (FrameKind.RECORDS, 9)
        assert FramePosition(header.segment, header.offset, header.tag) == PLACE

    @given(rows)
    def test_a_decoded_block_encodes_to_the_same_frame(self, given_rows: Rows) -> None:
        header, data = frame_of(given_rows)
        block = read_records(*read_again(data), STREAM)
        assert block_frame(PLACE, block) == (header, data)
        if len(block) > 2:
            part = block_frame(PLACE, block.rows(1, len(block) - 1))
            assert part == frame_of(given_rows[1:-1])

    def test_contiguous_numbers_need_no_position_column(self) -> None:
        dense, _ = frame_of([(number, 0, b"") for number in range(10, 18)])
        gap, _ = frame_of([(number, 0, b"") for number in [*range(10, 17), 18]])
        assert (dense.flags, gap.flags) == (DENSE, 0)
        assert gap.body - dense.body == 4 * 8
        assert read_positions(dense, b"").tolist() == list(range(10, 18))

    def test_a_large_payload_round_trips_in_a_frame(self) -> None:
        given_rows = [(1, 5, bytes(range(256)) * 16_384), (2, 6, b""), (3, 7, b"end")]
        assert rows_of(frame_of(given_rows)[1]) == given_rows

    def test_positions_beyond_the_wrap_round_trip_in_a_frame(self) -> None:
        given_rows = [(2**63 - 1, 0, b""), (2**63, 0, b"a"), (2**63 + 4, 0, b"b")]
        header, data = frame_of(given_rows)
        block = read_records(*read_again(data), STREAM, 2**63)
        assert block.sequences.tolist() == [2**63 - 1, 0, 4]
        assert header.last == 2**63 + 4

    def test_frames_of_losses_and_starts_round_trip(self) -> None:
        pairs = [(1, 5), (7, 2**64 - 1)]
        lost, data = lost_frame(PLACE, 4, pairs, 99)
        assert read_pairs(*read_again(data)) == pairs
        assert (lost.kind, lost.epoch, lost.base, lost.newest) == (FrameKind.LOST, 4, 1, 99)
        start, data = start_frame(PLACE, [])
        assert read_pairs(*read_again(data)) == []
        assert (start.kind, start.size) == (FrameKind.START, HEADER.size)


class TestDamage:
    SMALL = frame_of([(5, 1, b"five"), (6, 2, b""), (9, 3, b"nine!")])[1]

    def test_every_truncation_of_a_frame_is_detected(self) -> None:
        for length in range(len(self.SMALL)):
            with pytest.raises(BadFrame):
                read_again(self.SMALL[:length])

    def test_every_flipped_bit_of_a_frame_is_detected(self) -> None:
        for bit in range(8 * len(self.SMALL)):
            data = bytearray(self.SMALL)
            data[bit // 8] ^= 1 << bit % 8
            with pytest.raises(BadFrame):
                read_again(bytes(data))

    def test_every_zeroed_byte_of_a_frame_is_detected(self) -> None:
        for index, byte in enumerate(self.SMALL):
            if byte:
                with pytest.raises(BadFrame):
                    read_again(self.SMALL[:index] + b"\0" + self.SMALL[index + 1 :])

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (packed(version=2), "unsupported frame version 2; expected 1"),
            (packed(kind=4), "unknown frame kind 4"),
            (packed(kind=0), "unknown frame kind 0"),
            (packed(length=MAX_BODY + 8), "invalid body length of 1,073,741,832 bytes"),
            (packed(body=bytes(17)), "invalid body length of 17 bytes"),
            (packed(count=2), "2 entries do not fit a body of 16 bytes"),
            (packed(count=0), "0 entries do not fit"),
            (packed(kind=2, count=2), "2 entries do not fit"),
            (packed(kind=3, count=0), "0 entries do not fit"),
            (packed()[:-1], "the body is truncated to 15 of 16 bytes"),
            (packed()[:71], "71 bytes are too few"),
            (bytes(72), "no frame begins here"),
        ],
    )
    def test_an_invalid_frame_is_reported_with_its_reason(self, data: bytes, reason: str) -> None:
        with pytest.raises(BadFrame, match=reason):
            read_again(data)

    def test_a_frame_header_is_read_at_an_offset(self) -> None:
        data = b"12345678" + self.SMALL
        assert read_header(data, 8) == read_header(self.SMALL)
        with pytest.raises(BadFrame):
            read_header(data, 16)


def rows_apart(positions: list[int], sizes: list[int]) -> list[tuple[list[int], int]]:
    """Return positions and size of each frame."""
    found = []
    low = 0
    for high in frame_boundaries(positions, sizes):
        found.append((positions[low:high], sum(sizes[low:high])))
        low = high
    return found


class TestCuts:
    @given(st.lists(st.tuples(st.integers(1, 3 * MAX_GAP), st.integers(0, FRAME_BYTES)), min_size=1, max_size=40))
    def test_frame_boundaries_limit_size_and_gaps(self, steps: list[tuple[int, int]]) -> None:
        positions = [sum(step for step, _ in steps[: index + 1]) for index in range(len(steps))]
        found = rows_apart(positions, [size for _, size in steps])
        assert [position for some, _ in found for position in some] == positions
        for some, size in found:
            assert some
            assert size <= FRAME_BYTES or len(some) == 1
            assert all(after - before <= MAX_GAP for before, after in pairwise(some))

    def test_frame_boundaries_limit_the_number_of_records(self) -> None:
        positions = list(range(2 * MAX_RECORDS + 5))
        assert frame_boundaries(positions, [0] * len(positions)) == [MAX_RECORDS, 2 * MAX_RECORDS, 2 * MAX_RECORDS + 5]
        assert frame_boundaries(positions[:MAX_RECORDS], [0] * MAX_RECORDS) == [MAX_RECORDS]

    def test_frame_boundaries_limit_the_number_of_records_across_a_gap(self) -> None:
        positions = [*range(MAX_RECORDS + 3), MAX_RECORDS + 10_000]
        assert frame_boundaries(positions, [0] * len(positions)) == [MAX_RECORDS, MAX_RECORDS + 3, MAX_RECORDS + 4]

    def test_a_large_gap_begins_another_frame(self) -> None:
        assert frame_boundaries([1, 1 + MAX_GAP], [0, 0]) == [2]
        assert frame_boundaries([1, 2 + MAX_GAP], [0, 0]) == [2]
        assert frame_boundaries([1, 2 + MAX_GAP, 3 + MAX_GAP], [0, FRAME_BYTES, 0]) == [1, 3]

    def test_an_oversized_record_has_its_own_frame(self) -> None:
        assert frame_boundaries([1, 2, 3], [FRAME_BYTES, FRAME_BYTES + 1, 5]) == [1, 2, 3]
