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
"""The example of a KEEPALIVE in document 001, whose type byte is that of a PUSH."""

HERE: Address = ("192.0.2.7", 2323)
TOKEN = bytes(range(16))
TYPE_BYTES = [0x01, 0x02, 0x82, 0x04, 0x08, 0x10, 0x20]

data = st.binary(max_size=40)
sequences = st.integers(0, MAX_SEQUENCE)
ranges = st.tuples(sequences, sequences).map(sorted)
addresses = st.tuples(st.ip_addresses(v=4).map(str), st.integers(0, 65_535))
tokens = st.binary(min_size=16, max_size=16)
packets: st.SearchStrategy[Packet] = st.one_of(
    st.builds(Deliver, sequences, data),
    st.builds(Push, data, st.sampled_from(Dialect), st.booleans(), st.booleans()),
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
    """The packet whose fields a vector names."""
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
    """Why ``datagram`` is malformed."""
    with pytest.raises(MalformedPacket) as caught:
        decode(datagram, truncated=truncated)
    assert str(caught.value)
    return caught.value.reason


class TestVectors:
    def test_a_golden_datagram_decodes_to_the_fields_it_names(self, golden: Vector) -> None:
        assert decode(golden["datagram"]) == named(golden["fields"], golden["dialect"])

    def test_those_fields_encode_to_the_golden_datagram(self, golden: Vector) -> None:
        assert encode(named(golden["fields"], golden["dialect"])) == golden["datagram"]

    def test_a_malformed_datagram_is_refused_for_its_reason(self, malformed: Vector) -> None:
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

    def test_an_edge_case_decodes_and_is_left_to_the_nodes(self, edge: Vector) -> None:
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

    def test_a_keepalive_is_sent_with_the_type_of_the_heading_not_of_the_example(
        self, vectors: dict[str, Vector]
    ) -> None:
        printed = vectors["keepalive_example_as_printed_v1"]["datagram"]
        sent = encode(Keepalive(("127.0.0.1", 2323), token=b"", dialect=Dialect.V1))
        assert sent == b"\x10" + printed[1:]


class TestRoundTrip:
    @given(packets)
    def test_decode_undoes_encode(self, packet: Packet) -> None:
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
    def test_every_field_reaches_its_limits(self, packet: Packet) -> None:
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
    def test_arbitrary_bytes_raise_nothing_but_malformed_packet(self, datagram: bytes) -> None:
        with suppress(MalformedPacket):
            decode(datagram)

    @given(datagrams)
    def test_what_decodes_has_one_form_on_the_wire(self, datagram: bytes) -> None:
        with suppress(MalformedPacket):
            packet = decode(datagram)
            if isinstance(packet, Push) and packet.dialect is Dialect.V2:
                datagram = datagram[:3] + bytes(6) + datagram[9:]
            assert encode(packet) == datagram

    @given(packets)
    def test_any_bytes_like_object_will_do(self, packet: Packet) -> None:
        datagram = encode(packet)
        inside = memoryview(b"<" + datagram + b">")[1:-1]
        assert decode(bytearray(datagram)) == decode(memoryview(datagram)) == decode(inside) == packet

    @pytest.mark.parametrize("packet", [Deliver(1, b"data"), Push(b"data"), Keepalive(), KeepaliveAck(TOKEN)])
    def test_a_packet_keeps_nothing_of_the_buffer_it_came_from(self, packet: Packet) -> None:
        buffer = bytearray(encode(packet))
        decoded = decode(memoryview(buffer))
        buffer[:] = b"\xff" * len(buffer)
        assert decoded == packet
        hash(decoded)

    @pytest.mark.parametrize("size", [1, 3, 7, 9, 17, 19, 29])
    def test_every_other_type_byte_is_unknown(self, size: int) -> None:
        for kind in set(range(256)) - set(TYPE_BYTES) - {0x42, 0xC2}:
            assert reason(bytes([kind]) + bytes(size - 1)) == "unknown_type"

    @pytest.mark.parametrize("kind", [0x01, 0x02, 0x42, 0x82, 0xC2])
    @pytest.mark.parametrize("length", [MAX_DATA + 1, 65_535])
    def test_data_over_the_documents_maximum_is_malformed(self, kind: int, length: int) -> None:
        assert reason(bytes([kind]) + length.to_bytes(2, "big") + bytes(6 + length)) == "length"

    def test_data_over_the_documents_maximum_is_malformed_in_a_v1_push_too(self) -> None:
        assert reason(b"\x02\xff\xf7" + bytes(MAX_DATA + 1)) == "length"

    @pytest.mark.parametrize("kind", [0x04, 0x08])
    def test_a_range_that_ends_one_before_it_begins_is_malformed(self, kind: int) -> None:
        begins, ends = (2**32).to_bytes(6, "big"), (2**32 - 1).to_bytes(6, "big")
        assert reason(bytes([kind]) + bytes(6) + begins + ends) == "range"


class TestCutDatagrams:
    @given(packets)
    def test_a_cut_packet_is_malformed_but_for_the_known_lookalikes(self, packet: Packet) -> None:
        lookalikes: dict[int, Packet] = {}
        match packet:
            case Push(data, Dialect.V2, confirm, again):
                lookalikes[3 + len(data)] = Push((bytes(6) + data)[: len(data)], Dialect.V1, confirm, again)
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
    def test_bytes_behind_a_packet_make_it_malformed(self, packet: Packet, rest: bytes) -> None:
        assert reason(encode(packet) + rest) in {"size", "length"}

    @given(packets)
    def test_what_the_receive_call_cut_is_malformed_however_whole_it_looks(self, packet: Packet) -> None:
        assert reason(encode(packet), truncated=True) == "truncated"

    def test_nothing_at_all_can_have_been_cut_too(self) -> None:
        assert reason(b"", truncated=True) == "truncated"


class TestEncodeErrors:
    @pytest.mark.parametrize(
        "packet",
        [Deliver(1, bytes(MAX_DATA + 1))]
        + [Push(bytes(MAX_DATA + 1), dialect, confirm) for dialect in Dialect for confirm in (False, True)],
        ids=["deliver", "push_v1", "push_v1_confirm", "push_v2", "push_v2_confirm"],
    )
    def test_too_much_data_is_refused_with_its_size_and_the_limit(self, packet: Packet) -> None:
        with pytest.raises(MessageTooLarge, match=r"65,527 bytes is over the limit of 65,526") as caught:
            encode(packet)
        assert (caught.value.size, caught.value.limit) == (MAX_DATA + 1, MAX_DATA)

    @pytest.mark.parametrize("sequence", [-1, MAX_SEQUENCE + 1])
    def test_a_sequence_has_48_bits(self, sequence: int) -> None:
        with pytest.raises(UnencodableMessage, match="sequence"):
            encode(Deliver(sequence, b""))

    @pytest.mark.parametrize("packet", [Request(HERE, 1, 1), Forward(HERE, 1, 1)])
    @pytest.mark.parametrize(("first", "last"), [(-1, 1), (2, 1), (1, MAX_SEQUENCE + 1), (-2, -1)])
    def test_a_range_is_not_empty_and_its_ends_have_48_bits(
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
            ("::1", 1),
            ("1.2.3.256", 1),
        ],
    )
    def test_an_address_is_four_decimal_bytes_and_a_port(
        self, packet: Request | Forward | Keepalive, address: Address
    ) -> None:
        with pytest.raises(UnencodableMessage, match=r"port|IPv4"):
            encode(replace(packet, address=address))

    @pytest.mark.parametrize("flags", [-1, 2**48])
    def test_flags_have_48_bits(self, flags: int) -> None:
        with pytest.raises(UnencodableMessage, match="flags"):
            encode(Keepalive(flags=flags))

    @pytest.mark.parametrize("size", [0, 1, 15, 17])
    def test_the_token_of_a_keepalive_has_16_bytes(self, size: int) -> None:
        with pytest.raises(UnencodableMessage, match="token"):
            encode(Keepalive(token=bytes(size)))

    @pytest.mark.parametrize("size", [1, 15, 17])
    def test_the_token_of_an_ack_has_16_bytes_or_none(self, size: int) -> None:
        with pytest.raises(UnencodableMessage, match="token"):
            encode(KeepaliveAck(bytes(size)))

    @pytest.mark.parametrize("packet", [Keepalive(flags=Flags.NOJOURNAL), Keepalive(token=TOKEN)])
    def test_a_v1_keepalive_has_neither_flags_nor_a_token(self, packet: Keepalive) -> None:
        with pytest.raises(UnencodableMessage, match="version 1"):
            encode(replace(packet, dialect=Dialect.V1))

    @pytest.mark.parametrize("error", [UnencodableMessage, MessageTooLarge])
    def test_both_errors_are_the_callers_fault_and_value_errors(self, error: type[Exception]) -> None:
        assert issubclass(error, LocalError)
        assert issubclass(error, ValueError)


def test_the_keepalive_that_document_001_draws_is_no_packet_and_is_one_with_the_type_of_its_heading() -> None:
    with pytest.raises(MalformedPacket) as refused:
        decode(KEEPALIVE_DRAWN_IN_V1)
    assert refused.value.reason == "length"
    headed = b"\x10" + KEEPALIVE_DRAWN_IN_V1[1:]
    assert decode(headed) == Keepalive(("127.0.0.1", 2323), token=b"", dialect=Dialect.V1)
