from __future__ import annotations

import json
import socket
import zlib
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.address import can_be_packed, pack_address, unpack_ipv6_host
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.extension import ExtensionKind
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_MEMBERS,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Forward,
    Keepalive,
    Leader,
    Packet,
    PacketType,
    Request,
)
from fyrehose_twisted.fyrehose.wire.run_codec import encode_ranges, split_delivers, split_types
from fyrehose_twisted.fyrehose.wire.token import make_token, token_is_valid

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "fyrehose-ipv6.json").read_text(encoding="utf-8")
)
GOLDEN = [one for one in VECTORS if one["kind"] == "golden"]
MALFORMED = [one for one in VECTORS if one["kind"] == "malformed"]
HERE: Address = ("2001:db8::7", 2323)
SIZES = {PacketType.REQUEST6: 31, PacketType.FORWARD6: 31, PacketType.KEEPALIVE6: 41}

hosts = st.ip_addresses(v=6).map(str).filter(lambda host: can_be_packed((host, 0)) and host != "::")
addresses = st.tuples(hosts, st.integers(0, 65_535)).filter(lambda one: len(pack_address(one)[0]) == 16)
sequences = st.integers(0, MAX_SEQUENCE)
ranges = st.tuples(sequences, sequences).map(sorted)
tokens = st.binary(min_size=16, max_size=16)
packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(lambda address, limits: Request(address, *limits), addresses, ranges),
    st.builds(lambda address, limits: Forward(address, *limits), addresses, ranges),
    st.builds(Keepalive, addresses, st.integers(0, 2**48 - 1), tokens),
)


def named(fields: dict[str, Any]) -> Packet:
    match fields:
        case {"type": "REQUEST" | "FORWARD" as kind, "addr": host, "port": port, "from_seq": first, "to_seq": last}:
            return (Request if kind == "REQUEST" else Forward)((host, port), first, last)
        case {"type": "KEEPALIVE", "addr": host, "port": port, "flags": flags, "token_hex": token}:
            return Keepalive((host, port), flags, bytes.fromhex(token))
        case {"type": "DELIVER", "sequence": sequence, "data_hex": data, "fetched": fetched}:
            return Deliver(sequence, bytes.fromhex(data), fetched)
    raise AssertionError(f"no packet has the fields {fields}")


@pytest.mark.parametrize("vector", GOLDEN, ids=lambda one: one["name"])
def test_a_golden_datagram_and_its_fields_are_converted_into_each_other(vector: dict[str, Any]) -> None:
    datagram = bytes.fromhex(vector["hex"])
    assert (len(datagram), sha256(datagram).hexdigest()) == (vector["size"], vector["sha256"])
    assert decode(datagram) == named(vector["fields"])
    assert encode(named(vector["fields"])) == datagram


@pytest.mark.parametrize("vector", MALFORMED, ids=lambda one: one["name"])
def test_a_malformed_datagram_is_refused_with_its_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedPacket) as caught:
        decode(bytes.fromhex(vector["hex"]))
    assert caught.value.reason == vector["reason"]


@given(packets)
def test_a_packet_with_an_ipv6_address_round_trips_in_its_own_form(packet: Packet) -> None:
    datagram = encode(packet)
    assert decode(datagram) == packet
    assert len(datagram) == SIZES[PacketType(datagram[0])]


@given(packets, st.data())
def test_every_cut_of_a_packet_with_an_ipv6_address_is_malformed(packet: Packet, data: st.DataObject) -> None:
    datagram = encode(packet)
    with pytest.raises(MalformedPacket):
        decode(datagram[: data.draw(st.integers(0, len(datagram) - 1))])
    with pytest.raises(MalformedPacket):
        decode(datagram, truncated=True)


@given(sequences, st.binary(max_size=40))
def test_a_fetched_deliver_differs_from_a_deliver_in_one_bit(sequence: int, data: bytes) -> None:
    fetched = encode(Deliver(sequence, data, fetched=True))
    assert decode(fetched) == Deliver(sequence, data, fetched=True)
    assert fetched[0] == 0x41
    assert b"\x01" + fetched[1:] == encode(Deliver(sequence, data))


@given(st.binary(min_size=16, max_size=16))
def test_every_accepted_addr_has_one_encoding(packed: bytes) -> None:
    try:
        host = unpack_ipv6_host(packed)
    except MalformedPacket:
        reject()
    assert pack_address((host, 1)) == (packed, 1)


@given(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))
def test_an_ipv4_mapped_address_is_sent_as_the_ipv4_address(host: str, port: int) -> None:
    assert encode(Request((f"::ffff:{host}", port), 1, 2)) == encode(Request((host, port), 1, 2))
    assert encode(Keepalive((f"::ffff:{host}", port))) == encode(Keepalive((host, port)))


def test_the_unspecified_ipv6_address_is_sent_as_that_of_the_documents() -> None:
    assert encode(Keepalive(("::", 0))) == encode(Keepalive(ANY_ADDRESS))
    assert encode(Request(("::", 0), 1, 2)) == encode(Request(ANY_ADDRESS, 1, 2))


@pytest.mark.parametrize("host", ["fe80::1", "fe80::1%eth0", "ff02::1", "2001:db8::1%1", "2001:db8:::1", "::1.2.3", ""])
def test_an_address_that_other_hosts_cannot_use_is_not_encoded(host: str) -> None:
    with pytest.raises(UnencodableMessage):
        encode(Forward((host, 1), 1, 1))


def test_version_1_has_no_form_with_an_ipv6_address() -> None:
    with pytest.raises(UnencodableMessage, match="version 1 cannot carry"):
        encode(Keepalive(HERE, token=b"", dialect=Dialect.V1))


either = addresses | st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))


@given(either, st.lists(either, max_size=MAX_MEMBERS).map(tuple), st.booleans())
def test_a_leader_with_an_ipv6_address_has_a_form_of_its_own(
    leader: Address, members: tuple[Address, ...], asks_head: bool
) -> None:
    packet = Leader(bytes(range(16)), 7, leader, asks_head, members)
    datagram = encode(packet)
    assert decode(datagram) == packet
    has_ipv6 = any(":" in host for host, _ in (leader, *members))
    assert datagram[1] == (ExtensionKind.LEADER6 if has_ipv6 else ExtensionKind.LEADER)


@pytest.mark.parametrize(
    "hosts",
    [["::ffff:192.0.2.7"], ["ff02::1"], ["2001:db8::7", "fe80::1"], ["::"], ["::ffff:0.0.0.0", "::ffff:1.2.3.4"]],
)
def test_a_leader6_without_a_usable_ipv6_address_is_malformed(hosts: list[str]) -> None:
    valid = encode(Leader(bytes(16), 1, HERE, members=(HERE,) * (len(hosts) - 1)))
    body = bytearray(valid[:-4])
    for number, host in enumerate(hosts):
        start = 26 if number == 0 else 45 + 18 * (number - 1)
        assert body[start : start + 16] == socket.inet_pton(socket.AF_INET6, HERE[0])
        body[start : start + 16] = socket.inet_pton(socket.AF_INET6, host)
    with pytest.raises(MalformedPacket) as caught:
        decode(bytes(body) + zlib.crc32(body).to_bytes(4, "big"))
    assert caught.value.reason == "address"


@given(addresses, st.lists(ranges, min_size=1, max_size=5), st.sampled_from([PacketType.REQUEST, PacketType.FORWARD]))
def test_a_burst_of_ranges_equals_the_single_packets(
    address: Address, pairs: list[list[int]], kind: PacketType
) -> None:
    make = Request if kind is PacketType.REQUEST else Forward
    burst = encode_ranges(kind, address, [(first, last) for first, last in pairs])
    assert burst.data == b"".join(encode(make(address, first, last)) for first, last in pairs)
    assert burst.size == 31


def test_a_fetched_deliver_is_not_taken_for_part_of_a_run_of_delivers() -> None:
    fetched, plain = encode(Deliver(2, b"ab", fetched=True)), encode(Deliver(1, b"ab"))
    batch = Batch.pack([(plain, HERE), (fetched, HERE)])
    parts = split_types(batch.buffer, batch.runs[0])
    assert [split_delivers(batch.buffer, part) for part in parts] == [[(1, [b"ab"])], None]


@given(addresses, addresses, st.integers(0, 2**48 - 1))
def test_a_token_is_bound_to_all_of_an_ipv6_address(address: Address, other: Address, flags: int) -> None:
    assume(address != other)
    secret = b"s" * 32
    token = make_token(secret, address, flags, 1_000.0)
    assert token_is_valid(secret, Keepalive(address, flags, token), 1_000.0)
    assert not token_is_valid(secret, Keepalive(other, flags, token), 1_000.0)
