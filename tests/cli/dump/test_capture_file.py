from __future__ import annotations

import struct
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.captures import (
    ETHERNET,
    RAW_IP,
    SECOND,
    START,
    block,
    interface,
    packet_block,
    pcap,
    pcapng,
    section,
)

from fyrehose_twisted.cli.dump.capture_file import MAX_FRAME, CapturedFrame, InvalidCapture, read_capture

FRAMES = [b"one", b"", b"three!"]


def read(data: bytes) -> list[CapturedFrame]:
    return list(read_capture(BytesIO(data)))


def read_until_damage(data: bytes) -> tuple[list[CapturedFrame], str]:
    found: list[CapturedFrame] = []
    with pytest.raises(InvalidCapture) as raised:
        found.extend(read_capture(BytesIO(data)))
    return found, str(raised.value)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["micro", "nano", "ng"])
def test_frames_are_read_in_either_byte_order_with_their_times(order: str, form: str) -> None:
    data = pcapng(FRAMES, order=order) if form == "ng" else pcap(FRAMES, order=order, nano=form == "nano")
    expected = [
        CapturedFrame(START + number * 1_000_000, ETHERNET, frame, len(frame)) for number, frame in enumerate(FRAMES)
    ]
    assert read(data) == expected


def test_checksum_bits_beside_the_link_type_are_ignored() -> None:
    data = bytearray(pcap([b"x"]))
    data[20:24] = struct.pack("<L", 0x54000000 | RAW_IP)
    assert read(bytes(data))[0].link_type == RAW_IP


def test_each_section_of_a_merged_file_has_interfaces_of_its_own() -> None:
    data = pcapng([b"a"]) + section(">") + interface(RAW_IP, order=">") + packet_block(b"b", 0, order=">")
    assert [(frame.link_type, frame.data) for frame in read(data)] == [(ETHERNET, b"a"), (RAW_IP, b"b")]


def test_interfaces_have_their_own_link_types_resolutions_and_offsets() -> None:
    nanoseconds = struct.pack("<HHBxxx", 9, 1, 9) + struct.pack("<HHq", 14, 8, 100) + struct.pack("<HH", 0, 0)
    power_of_two = struct.pack("<HHBxxx", 9, 1, 0x80 | 10)
    data = section() + interface(ETHERNET, nanoseconds) + interface(RAW_IP, power_of_two)
    data += packet_block(b"a", 7, 0) + packet_block(b"b", 1_536, 1)
    assert [(frame.link_type, frame.time) for frame in read(data)] == [
        (ETHERNET, 100 * SECOND + 7),
        (RAW_IP, 1_500_000_000),
    ]


def test_blocks_of_other_kinds_are_skipped_and_simple_packets_are_read() -> None:
    data = section() + interface() + block(0x0BAD, b"12345") + block(3, struct.pack("<L", 5) + b"12345")
    assert read(data) == [CapturedFrame(0, ETHERNET, b"12345", 5)]


@pytest.mark.parametrize("data", [pcap(FRAMES), pcapng(FRAMES)], ids=["pcap", "pcapng"])
def test_a_cut_file_yields_the_frames_before_the_cut(data: bytes) -> None:
    whole = read(data)
    sizes = []
    for size in range(len(data)):
        try:
            found = read(data[:size])
        except InvalidCapture:
            found, _ = read_until_damage(data[:size])
        assert found == whole[: len(found)]
        sizes.append(len(found))
    assert sizes == sorted(sizes)
    assert sizes[-1] == 2


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither pcap nor pcapng: the file begins with nothing"),
        (b"GET / HTTP/1.1", "neither pcap nor pcapng: the file begins with 47 45 54 20"),
        (b"\x1f\x8b\x08\x00", "the capture is compressed; unpack it with gunzip"),
        (pcap([])[:-1], "the capture is cut within a header"),
        (pcap([]) + struct.pack("<LLLL", 0, 0, MAX_FRAME + 1, 0), "a packet of 262,145 bytes is over 262,144"),
        (section() + packet_block(b"x", 0), "the interface 0, which is not described"),
        (section() + struct.pack("<LL", 1, 8), "a block has 8 bytes"),
        (section() + struct.pack("<LL", 1, 2**31), "a block has 2,147,483,648 bytes"),
        (section() + interface() + block(6, bytes(19)[:16]), "a packet has a block of 16 bytes"),
        (section() + interface() + block(6, struct.pack("<LLLLL", 0, 0, 0, 9, 9) + b"1234"), "9 bytes in a block of"),
        (section() + block(1, b"1234"), "the description of an interface is too short"),
        (b"\x0a\x0d\x0d\x0a" + bytes(24), "a section has the byte order 00 00 00 00"),
    ],
)
def test_damage_is_reported_in_words(data: bytes, why: str) -> None:
    assert why in read_until_damage(data)[1]


@given(
    st.binary(max_size=200), st.sampled_from([b"", pcap([]), pcap([], nano=True), section(), section() + interface()])
)
def test_arbitrary_bytes_are_read_or_refused(data: bytes, start: bytes) -> None:
    try:
        frames = read(start + data)
    except InvalidCapture:
        return
    assert all(len(frame.data) <= len(data) for frame in frames)
