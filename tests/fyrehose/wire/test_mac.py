"""MACs in DELIVERs, and runs of them."""

from __future__ import annotations

import hmac
import json
from hashlib import blake2s, sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.effects import Address, Burst
from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, decode, encode, encode_deliver
from fyrehose_twisted.fyrehose.wire.mac import MAX_WITH_MAC, MacKey, make_stream_id
from fyrehose_twisted.fyrehose.wire.packets import (
    MAC_SIZE,
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    WITH_MAC,
    Deliver,
    Forward,
    KeepaliveAck,
    Packet,
    PacketType,
    Push,
)
from fyrehose_twisted.fyrehose.wire.run_codec import encode_delivers, split_delivers

PEER: Address = ("192.0.2.7", 2323)
SECRET = b"sixteen bytes and a few"
PRICES, ORDERS = make_stream_id("fyrehose://prices"), make_stream_id("fyrehose://orders")
KEY = MacKey(SECRET, PRICES)
VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "vectors" / "fyrehose-mac.json").read_text(encoding="utf-8")
)
VECTOR_KEY = MacKey(VECTORS[0]["secret"].encode(), bytes.fromhex(VECTORS[0]["stream_id_hex"]))

sequences = st.integers(0, MAX_SEQUENCE - 300)
data = st.binary(max_size=40)


def pack(*datagrams: bytes) -> Batch:
    return Batch.pack([(datagram, PEER) for datagram in datagrams])


def only_run(batch: Batch) -> DatagramRun:
    (run,) = batch.runs
    return run


def with_mac(deliver: Deliver, key: MacKey = KEY) -> Deliver:
    return Deliver(deliver.sequence, deliver.data, deliver.fetched, key.deliver_mac(deliver.sequence, deliver.data))


def flipped(datagram: bytes, bit: int) -> bytes:
    changed = bytearray(datagram)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


class TestPackets:
    @given(sequences, data, st.booleans())
    def test_deliver_with_mac_survives_encoding(self, sequence: int, data: bytes, fetched: bool) -> None:
        packet = with_mac(Deliver(sequence, data, fetched))
        assert decode(encode(packet)) == packet
        assert encode(packet)[0] == (0xC1 if fetched else 0x81)

    @pytest.mark.parametrize("address", [PEER, ("2001:db8::1", 2323)])
    def test_forward_that_asks_for_macs_survives_encoding(self, address: Address) -> None:
        plain, marked = Forward(address, 1, 2), Forward(address, 1, 2, mac=True)
        assert decode(encode(marked)) == marked
        assert encode(marked) == flipped(encode(plain), 7)

    def test_ack_with_mac_survives_encoding(self) -> None:
        ack = KeepaliveAck(bytes(range(16)), PRICES, KEY.ack_mac(bytes(range(16))))
        assert decode(encode(ack)) == ack
        assert (encode(ack)[0], len(encode(ack))) == (0xA0, 49)

    @pytest.mark.parametrize(
        "packet",
        [with_mac(Deliver(7, b"abc")), KeepaliveAck(bytes(16), PRICES, bytes(16)), Forward(PEER, 1, 2, mac=True)],
        ids=lambda packet: type(packet).__name__,
    )
    def test_every_truncation_is_an_error(self, packet: Deliver | KeepaliveAck | Forward) -> None:
        whole = encode(packet)
        for size in range(len(whole)):
            with pytest.raises(MalformedPacket):
                decode(whole[:size])

    @pytest.mark.parametrize(
        "packet",
        [
            Deliver(1, b"", mac=bytes(15)),
            KeepaliveAck(bytes(16), b"", bytes(16)),
            KeepaliveAck(bytes(16), bytes(16), b""),
            KeepaliveAck(b"", bytes(16), bytes(16)),
        ],
    )
    def test_fields_of_another_size_cannot_be_encoded(self, packet: Deliver | KeepaliveAck) -> None:
        with pytest.raises(UnencodableMessage):
            encode(packet)

    def test_request_has_no_type_with_a_mac(self) -> None:
        for kind in (PacketType.REQUEST, PacketType.REQUEST6, PacketType.EXTENSION):
            with pytest.raises(MalformedPacket, match="type byte"):
                decode(bytes([kind | WITH_MAC]) + bytes(60))


class TestKeys:
    def test_mac_is_blake2s_over_length_sequence_and_data(self) -> None:
        key = hmac.digest(SECRET, b"fyrehose MAC of DELIVER\0" + sha256(b"fyrehose://prices").digest()[:16], "sha256")
        body = b"\0\5" + b"\0\0\0\0\1\0" + b"hello"
        assert KEY.deliver_mac(256, b"hello") == blake2s(body, key=key, digest_size=16, person=b"DELIVER").digest()
        assert KEY.ack_mac(bytes(16)) == blake2s(bytes(16), key=key, digest_size=16, person=b"ACK").digest()

    def test_repairs_have_the_mac_of_the_backbone(self) -> None:
        assert MacKey(SECRET, PRICES).is_valid(with_mac(Deliver(7, b"a", fetched=True)))

    @pytest.mark.parametrize("key", [MacKey(SECRET, ORDERS), MacKey(b"another secret of enough bytes", PRICES)])
    def test_macs_of_other_streams_and_secrets_are_wrong(self, key: MacKey) -> None:
        assert not KEY.is_valid(with_mac(Deliver(7, b"a"), key))
        assert not KEY.is_valid_ack(KeepaliveAck(bytes(16), PRICES, key.ack_mac(bytes(16))))

    def test_ack_is_not_taken_for_a_deliver(self) -> None:
        body = encode_deliver(1, b"1234567")[1:]
        assert len(body) == 15
        assert KEY.ack_mac(body) != KEY.deliver_mac(1, b"1234567")

    @given(sequences, data, st.data())
    def test_every_changed_bit_is_noticed(self, sequence: int, data: bytes, draw: st.DataObject) -> None:
        datagram = encode(with_mac(Deliver(sequence, data)))
        changed = flipped(datagram, draw.draw(st.integers(8, 8 * len(datagram) - 1)))
        try:
            packet = decode(changed)
        except MalformedPacket:
            return  # Another LENGTH.
        assert isinstance(packet, Deliver)
        assert not KEY.is_valid(packet)
        assert KEY.split_run(bytearray(changed), only_run(pack(changed))) is None


class TestAddingMacs:
    @given(sequences, st.integers(1, 300), st.integers(0, 30))
    def test_burst_equals_its_datagrams(self, first: int, count: int, size: int) -> None:
        (burst,) = encode_delivers(first, [number.to_bytes(4)[-size:].rjust(size) for number in range(count)])
        (made,) = KEY.add_macs([burst])
        assert isinstance(made, Burst)
        singly = KEY.add_macs(list(burst.iter_datagrams()))
        assert [bytes(one) for one in made.iter_datagrams()] == singly
        for plain, changed in zip(burst.iter_datagrams(), made.iter_datagrams(), strict=True):
            packet = decode(plain)
            assert isinstance(packet, Deliver)
            assert decode(changed) == with_mac(packet)

    def test_fetched_keeps_its_type(self) -> None:
        made = KEY.add_macs([encode_deliver(3, b"a", fetched=True)])
        assert made == [encode(with_mac(Deliver(3, b"a", fetched=True)))]

    def test_other_packets_stay_as_they_are(self) -> None:
        others = [encode(Forward(PEER, 1, 2)), encode(KeepaliveAck(bytes(16))), encode(with_mac(Deliver(1, b"a")))]
        burst = Burst(encode(Push(b"abc")) * 3, len(encode(Push(b"abc"))))
        assert KEY.add_macs([*others, burst]) == [*others, burst]

    def test_what_gets_too_large_for_udp_is_left_out(self) -> None:
        fits, too_large = bytes(MAX_WITH_MAC), bytes(MAX_WITH_MAC + 1)
        (made,) = KEY.add_macs([encode_deliver(1, too_large), encode_deliver(2, fits)])
        assert isinstance(made, bytes)
        assert len(made) == DATA_HEADER.size + MAX_DELIVERABLE == 65_507
        assert KEY.add_macs(encode_delivers(1, [too_large] * 2)) == []


class TestRuns:
    @given(sequences, st.lists(data, min_size=1, max_size=1) | st.just([b"same"] * 12) | st.just([b"s"] * 200))
    def test_run_gives_what_it_gives_without_macs(self, first: int, messages: list[bytes]) -> None:
        (burst,) = encode_delivers(first, messages)
        plain = pack(*map(bytes, burst.iter_datagrams()))
        (made,) = KEY.add_macs([burst])
        assert isinstance(made, Burst)
        batch = pack(*map(bytes, made.iter_datagrams()))
        assert KEY.split_run(batch.buffer, only_run(batch)) == split_delivers(plain.buffer, only_run(plain))

    @given(st.lists(st.integers(0, MAX_SEQUENCE), min_size=2, max_size=300, unique=True))
    def test_numbers_may_have_gaps(self, numbers: list[int]) -> None:
        batch = pack(*[encode(with_mac(Deliver(number, b"same"))) for number in numbers])
        found = KEY.split_run(batch.buffer, only_run(batch))
        assert found is not None
        assert [first + row for first, rows in found for row in range(len(rows))] == numbers

    @pytest.mark.parametrize("count", [1, 2, 12, 200])
    def test_one_wrong_mac_leaves_the_run_to_be_decoded_singly(self, count: int) -> None:
        datagrams = [encode(with_mac(Deliver(number, b"same"))) for number in range(1, count + 1)]
        for place in (0, count // 2, count - 1):
            forged = [*datagrams[:place], flipped(datagrams[place], 8 * len(datagrams[0]) - 1), *datagrams[place + 1 :]]
            batch = pack(*forged)
            assert KEY.split_run(batch.buffer, only_run(batch)) is None

    @pytest.mark.parametrize("other", [0x01, 0x41, 0xC1, 0x02])
    def test_run_of_another_type_is_no_run_with_macs(self, other: int) -> None:
        datagrams = [encode(with_mac(Deliver(number, b"same"))) for number in range(1, 13)]
        for changed in ([0], [11], range(12)):
            rows = [bytes([other]) + one[1:] if row in changed else one for row, one in enumerate(datagrams)]
            batch = pack(*rows)
            assert KEY.split_run(batch.buffer, only_run(batch)) is None

    @pytest.mark.parametrize("size", range(1, DATA_HEADER.size + MAC_SIZE))
    def test_short_datagrams_are_no_run(self, size: int) -> None:
        batch = pack(bytes([0x81]) + bytes(size - 1))
        assert KEY.split_run(batch.buffer, only_run(batch)) is None


class TestVectors:
    @pytest.mark.parametrize("vector", [one for one in VECTORS if one["kind"] == "golden"], ids=lambda one: one["name"])
    def test_golden_datagram_and_its_fields_are_converted_into_each_other(self, vector: dict[str, Any]) -> None:
        datagram, packet = bytes.fromhex(vector["hex"]), named(vector["fields"])
        assert (len(datagram), sha256(datagram).hexdigest()) == (vector["size"], vector["sha256"])
        assert (decode(datagram), encode(packet)) == (packet, datagram)
        if isinstance(packet, Deliver):
            assert VECTOR_KEY.is_valid(packet)
        elif isinstance(packet, KeepaliveAck):
            assert VECTOR_KEY.is_valid_ack(packet)

    @pytest.mark.parametrize("vector", [one for one in VECTORS if one["kind"] == "forged"], ids=lambda one: one["name"])
    def test_forged_datagram_has_a_wrong_mac(self, vector: dict[str, Any]) -> None:
        packet = decode(bytes.fromhex(vector["hex"]))
        assert isinstance(packet, Deliver)
        assert not VECTOR_KEY.is_valid(packet)

    @pytest.mark.parametrize(
        "vector", [one for one in VECTORS if one["kind"] == "malformed"], ids=lambda one: one["name"]
    )
    def test_malformed_datagram_is_refused_with_its_reason(self, vector: dict[str, Any]) -> None:
        with pytest.raises(MalformedPacket) as caught:
            decode(bytes.fromhex(vector["hex"]))
        assert caught.value.reason == vector["reason"]


def named(fields: dict[str, Any]) -> Packet:
    match fields:
        case {"type": "DELIVER", "sequence": sequence, "data_hex": data, "fetched": fetched, "mac_hex": mac}:
            return Deliver(sequence, bytes.fromhex(data), fetched, bytes.fromhex(mac))
        case {"type": "KEEPALIVE-ACK", "token_hex": token, "stream_id_hex": stream_id, "mac_hex": mac}:
            return KeepaliveAck(*map(bytes.fromhex, (token, stream_id, mac)))
        case {"type": "FORWARD", "addr": host, "port": port, "from_seq": first, "to_seq": last, "mac": True}:
            return Forward((host, port), first, last, mac=True)
    raise AssertionError(f"no packet has the fields {fields}")
