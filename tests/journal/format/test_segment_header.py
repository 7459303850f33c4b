from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.format.segment_header import (
    MAX_HEADER,
    MAX_URI,
    BadHeader,
    SegmentHeader,
    UnsupportedVersion,
    decode,
    encode,
    segment_name,
    segment_number,
)

HEADER = SegmentHeader(7, "fyrehose://test", 2**63, 1_700_000_000_000_000, 0xCAFEBABE)
u32 = st.integers(0, 2**32 - 1)


@given(u32, st.text(max_size=MAX_URI // 4), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1), u32)
def test_a_segment_header_round_trips(number: int, stream: str, wrap: int, created_at: int, tag: int) -> None:
    header = SegmentHeader(number, stream, wrap, created_at, tag)
    data = encode(header)
    assert decode(data + b"whatever follows") == header._replace(length=len(data))
    assert len(data) % 8 == 0


def test_the_longest_segment_header_is_within_the_limit() -> None:
    assert len(encode(HEADER._replace(stream="x" * MAX_URI))) <= MAX_HEADER


def test_every_truncation_of_a_segment_header_is_detected() -> None:
    data = encode(HEADER)
    for length in range(len(data)):
        with pytest.raises(BadHeader):
            decode(data[:length])


def test_every_flipped_bit_of_a_segment_header_is_detected() -> None:
    data = encode(HEADER)
    for bit in range(8 * len(data)):
        hurt = bytearray(data)
        hurt[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadHeader):
            decode(bytes(hurt))


def checked(data: bytes) -> bytes:
    """Return ``data`` with a valid checksum."""
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


def test_decode_rejects_a_uri_longer_than_the_header() -> None:
    data = bytearray(encode(HEADER))
    size = data.index(b"fyrehose") - 4 - 2  # The segment number precedes it.
    assert struct.unpack_from("<H", data, size)[0] == len(HEADER.stream)
    for more in (10, 1_000, 2**16 - 1 - len(HEADER.stream)):
        struct.pack_into("<H", data, size, len(HEADER.stream) + more)
        with pytest.raises(BadHeader, match="is too short for a URI"):
            decode(checked(data) + 2_000 * b"x")


def test_decode_rejects_a_uri_that_is_not_utf8() -> None:
    with pytest.raises(BadHeader, match="not UTF-8"):
        decode(checked(encode(HEADER).replace(b"test", b"te\xfft")))


def test_decode_accepts_a_header_with_extra_padding() -> None:
    data = encode(HEADER)
    longer = data[:-4] + bytes(8 + 4)
    longer = longer.replace(struct.pack("<H", len(data)), struct.pack("<H", len(longer)), 1)
    assert decode(checked(longer)) == HEADER._replace(length=len(longer))


def test_decode_reports_an_unsupported_version_separately() -> None:
    data = bytearray(encode(HEADER))
    data[8] = 2
    data[-4:] = struct.pack("<I", zlib.crc32(data[:-4]))
    with pytest.raises(UnsupportedVersion, match="unsupported format version 2; expected 1"):
        decode(bytes(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "does not start with the magic"),
        (bytes(100), "does not start with the magic"),
        (encode(HEADER)[:-1], "is truncated or damaged: length 64, 63 bytes available"),
        (encode(HEADER)[:20] + b"X" + encode(HEADER)[21:], "checksum"),
    ],
)
def test_decode_gives_the_reason_for_an_invalid_header(data: bytes, reason: str) -> None:
    with pytest.raises(BadHeader, match=reason):
        decode(data)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("0000000001.log", 1),
        ("4294967295.seg", 2**32 - 1),
        ("0000000001.idx", None),
        ("0000000001.seg.tmp", None),
        ("000000001.log", None),
        ("00000000001.log", None),
        ("x0000000001.log", None),
        ("durable", None),
        ("", None),
    ],
)
def test_segment_numbers_are_parsed_from_file_names(name: str, number: int | None) -> None:
    assert segment_number(name) == number


def test_segment_file_names_are_formatted_from_numbers() -> None:
    assert segment_name(12, ".log") == "0000000012.log"
    assert segment_number(segment_name(2**32 - 1, ".seg")) == 2**32 - 1
