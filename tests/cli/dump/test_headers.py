from __future__ import annotations

import itertools
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.captures import COOKED, COOKED_V2, ETHERNET, NULL, RAW_IP, fragments, ip, link, tcp, udp

from fyrehose_twisted.cli.dump.fragments import MAX_PACKETS, MAX_SIZE, Fragment
from fyrehose_twisted.cli.dump.headers import TCP, UDP, HeaderParser, Transport, UnreadableFrame

ALICE, BOB = ("192.0.2.1", 4000), ("192.0.2.2", 2323)
ALICE6, BOB6 = ("2001:db8::1", 4000), ("2001:db8::2", 2323)
LINKS = [ETHERNET, RAW_IP, COOKED, COOKED_V2, NULL]


def parse(frame: bytes, kind: int = ETHERNET) -> Transport | None:
    return HeaderParser().parse(kind, frame)


@pytest.mark.parametrize("kind", LINKS)
@pytest.mark.parametrize(("source", "destination"), [(ALICE, BOB), (ALICE6, BOB6)], ids=["IPv4", "IPv6"])
def test_datagrams_and_segments_are_found_on_each_link(
    kind: int, source: tuple[str, int], destination: tuple[str, int]
) -> None:
    assert parse(link(udp(source, destination, b"x"), kind), kind) == Transport(UDP, source, destination, b"x")
    segment = link(tcp(source, destination, 7, b"yz"), kind)
    assert parse(segment, kind) == Transport(TCP, source, destination, b"yz", sequence=7, flags=16)


@pytest.mark.parametrize("kind", [ETHERNET, COOKED, COOKED_V2])
def test_a_vlan_tag_is_skipped(kind: int) -> None:
    assert parse(link(udp(ALICE, BOB, b"x"), kind, vlan=True), kind) == Transport(UDP, ALICE, BOB, b"x")


def test_padding_of_short_ethernet_frames_is_not_payload() -> None:
    assert parse(link(udp(ALICE, BOB, b"x")) + bytes(17)) == Transport(UDP, ALICE, BOB, b"x")


def test_other_traffic_is_no_error() -> None:
    assert parse(bytes(12) + b"\x08\x06" + bytes(28)) is None
    assert parse(link(ip("192.0.2.1", "192.0.2.2", 1, bytes(8)))) is None
    assert parse(link(ip("2001:db8::1", "2001:db8::2", 58, bytes(8)))) is None


def test_bytes_that_the_capture_cut_off_are_counted() -> None:
    found = parse(link(udp(ALICE, BOB, bytes(100)))[:-40])
    assert found is not None
    assert (len(found.payload), found.missing) == (60, 40)
    segment = parse(link(tcp(ALICE, BOB, 1, bytes(100)))[:-40])
    assert segment is not None
    assert (len(segment.payload), segment.missing) == (60, 40)


def test_a_packet_of_the_kernel_that_is_yet_to_be_segmented_has_no_size() -> None:
    packet = bytearray(tcp(ALICE, BOB, 1, bytes(60_000)))
    packet[2:4] = b"\0\0"
    found = parse(link(bytes(packet)))
    assert found is not None
    assert (len(found.payload), found.missing) == (60_000, 0)


def test_extension_headers_of_ipv6_are_skipped() -> None:
    inner = udp(ALICE6, BOB6, b"x")[40:]
    options = bytes((17, 0)) + bytes(6) + inner
    assert parse(link(ip(ALICE6[0], BOB6[0], 0, options))) == Transport(UDP, ALICE6, BOB6, b"x")


@pytest.mark.parametrize("packet", [udp(ALICE, BOB, bytes(range(100))), udp(ALICE6, BOB6, bytes(range(100)))])
def test_fragments_are_joined_in_any_order(packet: bytes) -> None:
    whole = parse(link(packet))
    parts = fragments(packet, 40)
    assert len(parts) == 3
    for order in itertools.permutations(parts):
        parser = HeaderParser()
        *others, last = [parser.parse(ETHERNET, link(part)) for part in order]
        assert others == [None, None]
        assert last == whole


def test_incomplete_packets_are_evicted_and_overlaps_refused() -> None:
    parser = HeaderParser()
    for identifier in range(MAX_PACKETS + 5):
        assert parser.parse(ETHERNET, link(fragments(udp(ALICE, BOB, bytes(100)), 40, identifier)[0])) is None
    assert parser.fragments.evicted == 5
    first, *_ = fragments(udp(ALICE, BOB, bytes(100)), 56)
    _, second, third = fragments(udp(ALICE, BOB, bytes(100)), 40)
    parser = HeaderParser()
    assert [parser.parse(ETHERNET, link(part)) for part in (first, second, third)] == [None, None, None]
    assert parser.fragments.evicted == 1


def test_fragments_of_one_packet_hold_no_more_than_its_largest_size() -> None:
    parser = HeaderParser()
    for offset in range(8_000):
        fragment = Fragment((b"", b"", UDP, 1), offset, has_more=True)
        assert parser.fragments.add(fragment, bytes(1_480)) is None
    assert parser.fragments.evicted >= 8_000 * 1_480 // (MAX_SIZE + 1_480)


@pytest.mark.parametrize(
    ("frame", "kind", "why"),
    [
        (link(udp(ALICE, BOB, b""))[:30], ETHERNET, "a frame of 30 bytes ends within its headers"),
        (b"x", 147, "link type 147"),
        (b"\x50" + bytes(40), RAW_IP, "IP version 5"),
        (bytes([0x41]) + udp(ALICE, BOB, b"")[1:], RAW_IP, "an IPv4 header of 4 bytes"),
        (ip("::1", "::1", 0, bytes(8 * 17)), RAW_IP, "over 16 extension headers"),
        (ip("192.0.2.1", "192.0.2.2", 17, b"\0\1\0\1\0\5\0\0"), RAW_IP, "a UDP datagram of 5 bytes"),
        (ip("192.0.2.1", "192.0.2.2", 6, bytes(20)), RAW_IP, "a TCP header of 0 bytes"),
    ],
)
def test_unreadable_frames_say_why(frame: bytes, kind: int, why: str) -> None:
    with pytest.raises(UnreadableFrame, match=why):
        parse(frame, kind)


@given(
    st.sampled_from([*LINKS, 147]),
    st.lists(
        st.binary(max_size=80)
        | st.builds(
            lambda start, rest: start + rest,
            st.sampled_from([link(udp(ALICE, BOB, b""))[:n] for n in (14, 15, 24, 30, 34, 42)] + [b"\x45", b"\x60"]),
            st.binary(max_size=60),
        ),
        max_size=5,
    ),
)
def test_arbitrary_frames_are_read_or_refused(kind: int, frames: list[bytes]) -> None:
    parser = HeaderParser()
    for frame in frames:
        with suppress(UnreadableFrame):
            parser.parse(kind, frame)
