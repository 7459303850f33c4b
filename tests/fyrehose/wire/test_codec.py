from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address, Datagram
from fyrehose_twisted.errors import LocalError, MalformedPacket, MessageTooLarge, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAX_DATA,
    MAX_DELIVERABLE,
    MAX_SEQUENCE,
    Deliver,
    Dialect,
    Flags,
    Forward,
    Keepalive,
    KeepaliveAck,
    Packet,
    Push,
    Request,
)

Vector = dict[str, Any]

KEEPALIVE_DRAWN_IN_V1 = bytes.fromhex("02 7f000001 0913")
"""KEEPALIVE example of document 001, which has the type byte of a PUSH."""

HERE: Address = ("192.0.2.7", 2323)
TOKEN = bytes(range(16))
WITH_MACS = 0x81, 0xC1, 0xA0, 0x88, 0xC8
TYPE_BYTES = [0x01, 0x02, 0x82, 0x04, 0x08, 0x10, 0x20]

data = st.binary(max_size=40)
sequences = st.integers(0, MAX_SEQUENCE)
ranges = st.tuples(sequences, sequences).map(sorted)
addresses = st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))
tokens = st.binary(min_size=16, max_size=16)
packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(Deliver, sequences, data),
    st.builds(Push, data, st.sampled_from(Dialect), st.booleans(), st.booleans()),
    st.builds(Push, data, st.just(Dialect.V2), st.booleans(), st.booleans(), st.integers(1, 255)),
    st.builds(lambda address, limits: Request(address, *limits), addresses, ranges),
    st.builds(lambda address, limits: Forward(address, *limits), addresses, ranges),
    st.builds(Keepalive, addresses, st.integers(0, 2**48 - 1), tokens),
    st.builds(lambda address: Keepalive(address, token=b"", dialect=Dialect.V1), addresses),
    st.builds(KeepaliveAck, tokens | st.just(b"")),
)
datagrams = st.binary(max_size=40) | st.builds(
    lambda kind, rest: bytes([kind]) + rest, st.sampled_from(TYPE_BYTES), st.binary(max_size=40)
)


def named(fields: dict[str, Any], dialect: str) -> Packet:
    """Return the packet with the fields of a vector."""
    match fields:
        case {"type": "DELIVER", "sequence": sequence}:
            return Deliver(sequence, named_data(fields))
        case {"type": "PUSH"}:
            return Push(named_data(fields), Dialect[dialect.upper()], fields.get("confirm", False))
        case {"type": "REQUEST", "addr": host, "port": port, "from_seq": first, "to_seq": last}:
            return Request((host, port), first, last)
        case {"type": "KEEPALIVE", "addr": host, "port": port, "flags": flags, "token_hex": token}:
            return Keepalive((host, port), flags, bytes.fromhex(token))
        case {"type": "KEEPALIVE", "addr": host, "port": port}:
            return Keepalive((host, port), token=b"", dialect=Dialect.V1)
        case {"type": "KEEPALIVE-ACK"}:
            return KeepaliveAck(b"")
    raise AssertionError(f"no packet has the fields {fields}")


def named_data(fields: dict[str, Any]) -> bytes:
    if "data_hex" in fields:
        return bytes.fromhex(fields["data_hex"])
    text: str = fields["data"]  # such as "256 x 'a'"
    count, _, letter = text.split()
    return letter.strip("'").encode() * int(count)


def reason(datagram: Datagram, *, truncated: bool = False) -> str:
    """Return the reason why ``datagram`` is malformed."""
    with pytest.raises(MalformedPacket) as caught:
        decode(datagram, truncated=truncated)
    assert str(caught.value)
    return caught.value.reason


class TestVectors:
    def test_a_golden_datagram_decodes_to_its_listed_fields(self, golden: Vector) -> None:
        assert decode(golden["datagram"]) == named(golden["fields"], golden["dialect"])

    def test_listed_fields_encode_to_the_golden_datagram(self, golden: Vector) -> None:
        assert encode(named(golden["fields"], golden["dialect"])) == golden["datagram"]

    def test_a_malformed_datagram_is_refused_with_its_reason(self, malformed: Vector) -> None:
        assert (
            reason(malformed["datagram"])
            == {
                "keepalive_example_as_printed_v1": "length",
                "zero_length_datagram": "empty",
                "unknown_type_0x03": "unknown_type",
                "unknown_type_0x05": "unknown_type",
                "unknown_type_0x06": "unknown_type",
                "unknown_type_0x18": "unknown_type",
                "unknown_type_0x40": "unknown_type",
                "unknown_type_0xff": "unknown_type",
                "truncated_deliver_1_of_9": "size",
                "truncated_deliver_8_of_9": "size",
                "truncated_push_v2_1_of_9": "size",
                "truncated_push_v2_8_of_9": "length",
                "truncated_forward_1_of_19": "size",
                "truncated_keepalive_v2_28_of_29": "size",
                "truncated_keepalive_v1_6_of_7": "size",
                "truncated_keepalive_v2_8_bytes": "size",
                "keepalive_v2_30_bytes": "size",
                "request_20_bytes": "size",
                "keepalive_ack_18_bytes": "size",
                "deliver_length_zero_with_data": "length",
                "deliver_length_is_whole_packet": "length",
                "deliver_length_over_document_maximum": "length",
                "request_from_greater_than_to": "range",
            }[malformed["name"]]
        )

    def test_a_valid_edge_case_decodes_without_error(self, edge: Vector) -> None:
        assert (
            decode(edge["datagram"])
            == {
                "push_65504_v1_not_deliverable": Push(b"a" * 65_504, Dialect.V1),
                "push_v1_read_as_v2": Push(b"abcdefghi", Dialect.V1),
                "push_v2_cut_to_a_valid_v1": Push(bytes(5), Dialect.V1),
                "request_addr_zero": Request(ANY_ADDRESS, 1, 2),
                "request_addr_is_a_third_party": Request(("203.0.113.7", 53), 0, MAX_SEQUENCE),
                "deliver_duplicate_sequence_b": Deliver(5, b"b"),
                "push_at_client": Push(b"a"),
            }[edge["name"]]
        )

    def test_a_keepalive_is_encoded_with_type_4_and_not_that_of_the_documents_example(
        self, vectors: dict[str, Vector]
    ) -> None:
        printed = vectors["keepalive_example_as_printed_v1"]["datagram"]
        sent = encode(Keepalive(("127.0.0.1", 2323), token=b"", dialect=Dialect.V1))
        assert sent == b"\x10" + printed[1:]


class TestRoundTrip:
    @given(packets)
    def test_decoding_an_encoded_packet_returns_it(self, packet: Packet) -> None:
        assert decode(encode(packet)) == packet

    @pytest.mark.parametrize(
        "packet",
        [
            Deliver(0, b""),
            Deliver(1, bytes(255)),
            Deliver(2**32 - 1, bytes(256)),
            Deliver(2**32, bytes(MAX_DELIVERABLE)),
            Deliver(MAX_SEQUENCE, bytes(MAX_DATA)),
            Push(b"", Dialect.V1),
            Push(b"", Dialect.V2),
            Push(bytes(MAX_DATA), Dialect.V1, confirm=True),
            Push(bytes(MAX_DATA), Dialect.V2, confirm=True),
            Request(ANY_ADDRESS, 0, 0),
            Request(("255.255.255.255", 65_535), MAX_SEQUENCE, MAX_SEQUENCE),
            Forward(ANY_ADDRESS, 0, MAX_SEQUENCE),
            Forward(HERE, 2**32 - 1, 2**32),
            Keepalive(),
            Keepalive(HERE, Flags.NOSUBSCRIBE | Flags.NOJOURNAL, b"\xff" * 16),
            Keepalive(HERE, 2**48 - 1, TOKEN),
            Keepalive(HERE, token=b"", dialect=Dialect.V1),
            KeepaliveAck(TOKEN),
            KeepaliveAck(b""),
        ],
        ids=lambda packet: repr(packet)[:60],
    )
    def test_packets_with_fields_at_their_limits_round_trip(self, packet: Packet) -> None:
        assert decode(encode(packet)) == packet

    def test_a_v1_keepalive_leaves_out_an_unset_token(self) -> None:
        datagram = encode(Keepalive(HERE, dialect=Dialect.V1))
        assert decode(datagram) == Keepalive(HERE, token=b"", dialect=Dialect.V1)

    def test_the_unused_bytes_of_a_v2_push_are_sent_as_zero(self) -> None:
        assert encode(Push(b"hi"))[3:9] == bytes(6)

    @given(st.binary(min_size=6, max_size=6))
    def test_the_unused_bytes_of_a_v2_push_are_ignored(self, unused: bytes) -> None:
        assert decode(b"\x02\x00\x02" + unused + b"hi") == Push(b"hi")


class TestDecoding:
    @given(datagrams)
    def test_decoding_arbitrary_bytes_raises_only_malformed_packet(self, datagram: bytes) -> None:
        with suppress(MalformedPacket):
            decode(datagram)

    @given(datagrams)
    def test_a_decodable_datagram_has_one_encoding(self, datagram: bytes) -> None:
        with suppress(MalformedPacket):
            packet = decode(datagram)
            if isinstance(packet, Push) and packet.dialect is Dialect.V2:
                datagram = datagram[:3] + bytes(6) + datagram[9:]
            assert encode(packet) == datagram

    @given(packets)
    def test_decode_accepts_any_bytes_like_object(self, packet: Packet) -> None:
        datagram = encode(packet)
        inside = memoryview(b"<" + datagram + b">")[1:-1]
        assert decode(bytearray(datagram)) == decode(memoryview(datagram)) == decode(inside) == packet

    @pytest.mark.parametrize("push", [Push(b"x", hops=-1), Push(b"x", hops=256), Push(b"x", Dialect.V1, hops=1)])
    def test_a_push_has_room_for_255_hops_in_version_2_only(self, push: Push) -> None:
        with pytest.raises(UnencodableMessage, match="relays have passed on"):
            encode(push)

    @pytest.mark.parametrize("packet", [Deliver(1, b"data"), Push(b"data"), Keepalive(), KeepaliveAck(TOKEN)])
    def test_a_decoded_packet_does_not_alias_its_buffer(self, packet: Packet) -> None:
        buffer = bytearray(encode(packet))
        decoded = decode(memoryview(buffer))
        buffer[:] = b"\xff" * len(buffer)
        assert decoded == packet
        hash(decoded)

    @pytest.mark.parametrize("size", [1, 3, 7, 9, 17, 19, 29])
    def test_every_unassigned_type_byte_is_unknown(self, size: int) -> None:
        for kind in set(range(256)) - set(TYPE_BYTES) - {0x42, 0xC2, 0x41, 0x44, 0x48, 0x50, *WITH_MACS}:
            assert reason(bytes([kind]) + bytes(size - 1)) == "unknown_type"

    @pytest.mark.parametrize("kind", [0x01, 0x02, 0x41, 0x42, 0x82, 0xC2])
    @pytest.mark.parametrize("length", [MAX_DATA + 1, 65_535])
    def test_data_over_the_maximum_is_malformed(self, kind: int, length: int) -> None:
        assert reason(bytes([kind]) + length.to_bytes(2, "big") + bytes(6 + length)) == "length"

    def test_data_over_the_maximum_is_malformed_in_a_v1_push(self) -> None:
        assert reason(b"\x02\xff\xf7" + bytes(MAX_DATA + 1)) == "length"

    @pytest.mark.parametrize("kind", [0x04, 0x08])
    def test_a_range_that_ends_one_before_it_begins_is_malformed(self, kind: int) -> None:
        begins, ends = (2**32).to_bytes(6, "big"), (2**32 - 1).to_bytes(6, "big")
        assert reason(bytes([kind]) + bytes(6) + begins + ends) == "range"


class TestCutDatagrams:
    @given(packets)
    def test_a_shortened_packet_is_malformed_unless_it_equals_another_valid_packet(self, packet: Packet) -> None:
        lookalikes: dict[int, Packet] = {}
        match packet:
            case Push(data, Dialect.V2, confirm, again):
                lookalikes[3 + len(data)] = Push((encode(packet)[3:9] + data)[: len(data)], Dialect.V1, confirm, again)
            case Keepalive(address, dialect=Dialect.V2):
                lookalikes[7] = Keepalive(address, token=b"", dialect=Dialect.V1)
            case KeepaliveAck(token) if token:
                lookalikes[1] = KeepaliveAck(b"")
        datagram = encode(packet)
        found = {}
        for size in range(len(datagram)):
            with suppress(MalformedPacket):
                found[size] = decode(datagram[:size])
        assert found == lookalikes

    @given(packets, st.binary(min_size=1, max_size=5))
    def test_trailing_bytes_make_a_packet_malformed(self, packet: Packet, rest: bytes) -> None:
        assert reason(encode(packet) + rest) in {"size", "length"}

    @given(packets)
    def test_a_datagram_flagged_truncated_is_malformed_even_if_it_parses(self, packet: Packet) -> None:
        assert reason(encode(packet), truncated=True) == "truncated"

    def test_an_empty_datagram_flagged_truncated_is_malformed(self) -> None:
        assert reason(b"", truncated=True) == "truncated"


class TestEncodeErrors:
    @pytest.mark.parametrize(
        "packet",
        [Deliver(1, bytes(MAX_DATA + 1))]
        + [Push(bytes(MAX_DATA + 1), dialect, confirm) for dialect in Dialect for confirm in (False, True)],
        ids=["deliver", "push_v1", "push_v1_confirm", "push_v2", "push_v2_confirm"],
    )
    def test_encoding_too_much_data_is_refused_with_size_and_limit(self, packet: Packet) -> None:
        with pytest.raises(MessageTooLarge, match=r"65,527 bytes is over the limit of 65,526") as caught:
            encode(packet)
        assert (caught.value.size, caught.value.limit) == (MAX_DATA + 1, MAX_DATA)

    @pytest.mark.parametrize("sequence", [-1, MAX_SEQUENCE + 1])
    def test_encoding_a_sequence_number_over_48_bits_is_refused(self, sequence: int) -> None:
        with pytest.raises(UnencodableMessage, match="sequence"):
            encode(Deliver(sequence, b""))

    @pytest.mark.parametrize("packet", [Request(HERE, 1, 1), Forward(HERE, 1, 1)])
    @pytest.mark.parametrize(("first", "last"), [(-1, 1), (2, 1), (1, MAX_SEQUENCE + 1), (-2, -1)])
    def test_encoding_an_empty_range_or_one_over_48_bits_is_refused(
        self, packet: Request | Forward, first: int, last: int
    ) -> None:
        with pytest.raises(UnencodableMessage, match="range"):
            encode(replace(packet, first=first, last=last))

    @pytest.mark.parametrize(
        "packet", [Request(HERE, 1, 1), Forward(HERE, 1, 1), Keepalive(), Keepalive(dialect=Dialect.V1)]
    )
    @pytest.mark.parametrize(
        "address",
        [
            ("10.0.0.1", -1),
            ("10.0.0.1", 65_536),
            ("", 1),
            ("127.1", 1),
            ("localhost", 1),
            (":::1", 1),
            ("1.2.3.256", 1),
        ],
    )
    def test_encoding_an_invalid_ipv4_address_or_port_is_refused(
        self, packet: Request | Forward | Keepalive, address: Address
    ) -> None:
        with pytest.raises(UnencodableMessage, match=r"port|IPv[46]"):
            encode(replace(packet, address=address))

    @pytest.mark.parametrize("flags", [-1, 2**48])
    def test_encoding_flags_over_48_bits_is_refused(self, flags: int) -> None:
        with pytest.raises(UnencodableMessage, match="flags"):
            encode(Keepalive(flags=flags))

    @pytest.mark.parametrize("size", [0, 1, 15, 17])
    def test_encoding_a_keepalive_token_of_other_than_16_bytes_is_refused(self, size: int) -> None:
        with pytest.raises(UnencodableMessage, match="token"):
            encode(Keepalive(token=bytes(size)))

    @pytest.mark.parametrize("size", [1, 15, 17])
    def test_encoding_an_ack_token_of_other_than_16_or_0_bytes_is_refused(self, size: int) -> None:
        with pytest.raises(UnencodableMessage, match="token"):
            encode(KeepaliveAck(bytes(size)))

    @pytest.mark.parametrize("packet", [Keepalive(flags=Flags.NOJOURNAL), Keepalive(token=TOKEN)])
    def test_encoding_a_v1_keepalive_with_flags_or_a_token_is_refused(self, packet: Keepalive) -> None:
        with pytest.raises(UnencodableMessage, match="version 1"):
            encode(replace(packet, dialect=Dialect.V1))

    @pytest.mark.parametrize("error", [UnencodableMessage, MessageTooLarge])
    def test_encoding_errors_are_value_errors(self, error: type[Exception]) -> None:
        assert issubclass(error, LocalError)
        assert issubclass(error, ValueError)


def test_the_keepalive_drawn_in_document_001_decodes_only_with_the_type_of_its_heading() -> None:
    with pytest.raises(MalformedPacket) as refused:
        decode(KEEPALIVE_DRAWN_IN_V1)
    assert refused.value.reason == "length"
    headed = b"\x10" + KEEPALIVE_DRAWN_IN_V1[1:]
    assert decode(headed) == Keepalive(("127.0.0.1", 2323), token=b"", dialect=Dialect.V1)
