from __future__ import annotations

from contextlib import suppress
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.extension import ExtensionKind
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_HOLDINGS,
    MAX_MEMBERS,
    MAX_SEQUENCE,
    Asked,
    Beacon,
    Depth,
    Extension,
    Group,
    Head,
    Holding,
    Holds,
    Leader,
    PacketType,
    Status,
)

TOKEN = bytes(range(16))

numbers = st.integers(0, MAX_SEQUENCE + 1)
tokens = st.binary(min_size=16, max_size=16)
terms = st.integers(0, 2**64 - 1)
addresses = st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))
holdings = st.builds(Holding, numbers, numbers)
extensions: st.SearchStrategy[Extension] = st.one_of(
    st.builds(Holds, tokens, numbers, holdings, numbers),
    st.builds(Status, tokens, numbers, numbers, st.lists(holdings, max_size=MAX_HOLDINGS).map(tuple)),
    st.tuples(numbers, numbers).flatmap(
        lambda pair: st.builds(Asked, tokens, st.just(min(pair)), st.just(max(pair)), st.integers(0, 2**32 - 1))
    ),
    st.builds(Leader, tokens, terms, addresses, st.booleans(), st.lists(addresses, max_size=MAX_MEMBERS).map(tuple)),
    st.builds(Head, tokens, terms, numbers),
    st.builds(Depth, tokens, st.integers(1, 255)),
    st.builds(
        Group,
        tokens,
        st.tuples(st.ip_addresses(network="224.0.0.0/4").map(str), st.integers(1, 65_535)),
    ),
    st.builds(Beacon, st.integers(0, 2**32 - 1)),
)


def reason(datagram: bytes) -> str:
    with pytest.raises(MalformedPacket) as caught:
        decode(datagram)
    return caught.value.reason


@given(extensions)
def test_an_extension_packet_round_trips(packet: Extension) -> None:
    assert decode(encode(packet)) == packet


@given(extensions, st.data())
def test_a_shortened_extension_packet_is_malformed(packet: Extension, data: st.DataObject) -> None:
    datagram = encode(packet)
    assert reason(datagram[: data.draw(st.integers(1, len(datagram) - 1))]) in ("checksum", "unknown_type")


@given(extensions, st.data())
def test_an_extension_packet_with_a_flipped_bit_is_malformed(packet: Extension, data: st.DataObject) -> None:
    datagram = bytearray(encode(packet))
    bit = data.draw(st.integers(8, 8 * len(datagram) - 1))
    datagram[bit // 8] ^= 1 << bit % 8
    assert reason(bytes(datagram)) in ("checksum", "unknown_type")


@given(st.sampled_from(ExtensionKind), st.binary(max_size=300))
def test_decoding_an_arbitrary_extension_body_raises_only_malformed_packet(kind: ExtensionKind, noise: bytes) -> None:
    body = bytes((PacketType.EXTENSION, kind)) + noise
    with suppress(MalformedPacket):
        decode(body + crc32(body).to_bytes(4, "big"))


def test_an_asked_packet_with_an_empty_range_is_malformed() -> None:
    datagram = encode(Asked(TOKEN, 4, 5, 1))
    body = datagram[:18] + datagram[26:34] + datagram[18:26] + datagram[34:-4]
    assert reason(body + crc32(body).to_bytes(4, "big")) == "range"


@pytest.mark.parametrize("address", [bytes(4) + b"\x09\x14", b"\xdf\xff\xff\xff\x09\x14", b"\xef\x01\x01\x01\x00\x00"])
def test_a_group_packet_without_a_multicast_group_is_malformed(address: bytes) -> None:
    body = bytes((PacketType.EXTENSION, ExtensionKind.GROUP)) + TOKEN + address
    assert reason(body + crc32(body).to_bytes(4, "big")) == "address"


def test_the_bytes_of_the_packets_of_multicast() -> None:
    assert encode(Group(TOKEN, ("239.1.1.1", 2324)))[:-4].hex() == "4007" + TOKEN.hex() + "ef010101" + "0914"
    assert encode(Beacon(200))[:-4].hex() == "4009" + "000000c8"


def test_unknown_flags_of_a_leader_packet_are_ignored() -> None:
    leader = Leader(TOKEN, 7, ("127.0.0.1", 2323), True, (("127.0.0.1", 2325),))
    body = bytearray(encode(leader)[:-4])
    assert body[32] == 1
    body[32] = 0xFE
    changed = decode(bytes(body) + crc32(body).to_bytes(4, "big"))
    assert changed == Leader(TOKEN, 7, leader.leader, False, leader.members)


@pytest.mark.parametrize(
    "packet",
    [
        Holds(b"short", 1, Holding(1, 1)),
        Holds(TOKEN, MAX_SEQUENCE + 2, Holding(1, 1)),
        Status(TOKEN, 1, -1),
        Status(TOKEN, 1, 1, (Holding(1, 1),) * (MAX_HOLDINGS + 1)),
        Leader(TOKEN, 2**64),
        Leader(TOKEN, 1, ("localhost", 2323)),
        Leader(TOKEN, 1, members=(("127.0.0.1", 70_000),)),
        Leader(TOKEN, 1, members=(("127.0.0.1", 2323),) * (MAX_MEMBERS + 1)),
        Depth(TOKEN, 0),
        Depth(TOKEN, 256),
        Group(b"short", ("239.1.1.1", 2324)),
        Group(TOKEN, ("240.1.1.1", 2324)),
        Group(TOKEN, ("223.255.255.255", 2324)),
        Group(TOKEN, ("239.1.1.1", 0)),
        Group(TOKEN, ("2001:db8::1", 2324)),
        Head(TOKEN, -1, 1),
        Head(TOKEN, 1, MAX_SEQUENCE + 2),
    ],
)
def test_encoding_an_extension_field_out_of_range_is_refused(packet: Extension) -> None:
    with pytest.raises(UnencodableMessage):
        encode(packet)
