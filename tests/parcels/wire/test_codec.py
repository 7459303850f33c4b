from __future__ import annotations

import json
import time
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Membership,
    RequestVote,
    RequestVoteReply,
    StartElection,
)
from fyrehose_twisted.errors import RemoteError, UnencodableMessage
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder
from fyrehose_twisted.parcels.wire.codec import MAX_PARCEL, BadParcel, ParcelCodec, ParcelDecoder
from fyrehose_twisted.parcels.wire.messages import (
    MAX_DATA,
    MAX_EVENT,
    MAX_SEQUENCE,
    Dismissal,
    Extension,
    FetchEvents,
    FetchEventsReply,
    FetchState,
    FetchStateReply,
    Heartbeat,
    Hello,
    Message,
    Mode,
    NodeInfo,
    Parcel,
    ParcelType,
    Proof,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
    node_id,
)
from fyrehose_twisted.parcels.wire.payload import WIRE_NAMES

Vector = dict[str, Any]

VECTORS: list[Vector] = json.loads((Path(__file__).parents[2] / "vectors" / "parcels.json").read_text(encoding="utf-8"))

ACCEPTED_BY_US_ALONE = {"decode: seq_number 256"}
"""Vectors with sequence numbers over one byte, which only this codec accepts (document 004 has eight bytes)."""

REASONS = {
    "missing key is_response": "missing-field",
    "missing key parcel_type": "missing-field",
    "missing key id": "missing-field",
    "missing key size": "missing-field",
    "f814": "bad-cbor",
    "invalid UTF-8": "bad-cbor",
    "trailing break": "trailing-bytes",
    "second parcel": "trailing-bytes",
    "says 4 entries": "trailing-bytes",
    "empty input": "bad-cbor",
    "truncated": "bad-cbor",
    "reserved initial byte": "bad-cbor",
    "huge declared": "bad-cbor",
    "deep nesting": "too-deep",
}
"""Rejection reasons other than a bad value, by a part of the vector's name."""


def of_kind(kind: str) -> list[Any]:
    found = [pytest.param(vector, id=vector["name"]) for vector in VECTORS if vector["kind"] == kind]
    assert found
    return found


def info(fields: dict[str, Any]) -> NodeInfo:
    ((_, (octets, port)),) = fields["host"].items()
    return NodeInfo(fields["id"], Mode(fields["mode"]), fields["name"], (str(ip_address(bytes(octets))), port))


def named(fields: dict[str, Any]) -> Parcel:
    """Return the parcel that a vector describes, with zeros as application data."""
    body: Any
    match fields["body"]:
        case "Empty":
            body = None
        case {"DscReq": {"identity": identity}}:
            body = info(identity)
        case {"DscRes": {"neighbours": neighbours}}:
            body = tuple(map(info, neighbours))
        case {"SeqRes": {"seq_number": body}}:
            pass
        case unknown:
            raise AssertionError(f"no body has the fields {unknown}")
    kind = ParcelType(fields["parcel_type"])
    return Parcel(fields["is_response"], kind, fields["id"], body, bytes(fields["size"]))


def encode(message: Message) -> bytes:
    return ParcelCodec(60_396).encode(message)


def decode(data: bytes) -> list[Message]:
    decoder = ParcelDecoder()
    found = decoder.feed(data)
    decoder.feed(b"")
    return found


def reason(data: bytes) -> str:
    """Return the reason why ``data`` is malformed."""
    with pytest.raises(BadParcel) as caught:
        decode(data)
    assert str(caught.value)
    return caught.value.reason


numbers = st.integers(0, MAX_SEQUENCE)
small = st.integers(0, 2**40)
ports = st.integers(0, 65_535)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=16)
octets = st.binary(max_size=24)
addresses = st.tuples(st.ip_addresses(v=4).map(str), ports) | st.tuples(
    st.sampled_from(["::", "::1", "fe80::1", "2001:db8:85a3::8a2e:370:7334", "ff02::2:ff00:0"]), ports
)
ids = st.integers(0, 65_535)
extensions = st.builds(Extension, ids, numbers, st.integers(0, 2**32 - 1))
infos = st.builds(NodeInfo, ids, st.sampled_from(Mode), texts, addresses, st.none() | extensions)
runs = st.builds(PublisherRun, texts, numbers, small, st.lists(octets, max_size=4).map(tuple), st.none() | numbers)
views = st.builds(
    Membership, st.lists(st.tuples(st.builds(MemberId, texts, numbers), addresses), max_size=4).map(tuple)
)
entries = st.one_of(
    st.builds(LogEntry, numbers, st.just(EntryKind.DATA), st.lists(runs, max_size=3).map(tuple)),
    st.builds(LogEntry, numbers, st.just(EntryKind.MEMBERSHIP), views),
    st.builds(LogEntry, numbers, st.just(EntryKind.NO_OP), st.none()),
)
nonces = st.binary(min_size=16, max_size=16)
proofs = st.binary(min_size=32, max_size=32) | st.just(b"")
refusals = st.sampled_from(RefusalReason)
documents = st.one_of(
    st.builds(Parcel, st.booleans(), st.just(ParcelType.DSC_REQ), ids, infos, octets),
    st.builds(
        Parcel, st.booleans(), st.just(ParcelType.DSC_RES), ids, st.lists(infos, max_size=9).map(tuple), st.just(b"")
    ),
    st.builds(Parcel, st.booleans(), st.sampled_from(ParcelType), ids, numbers, octets),
    st.builds(Parcel, st.booleans(), st.sampled_from(ParcelType), ids, st.none(), octets),
)
ours = st.one_of(
    st.builds(Hello, texts, texts, numbers, numbers, nonces),
    st.builds(Welcome, texts, numbers, numbers, nonces, proofs),
    st.builds(Proof, proofs),
    st.builds(Refused, refusals, texts),
    st.builds(Heartbeat, st.sampled_from(Mode), numbers, numbers),
    st.builds(RequestVote, numbers, numbers, numbers, st.booleans()),
    st.builds(RequestVoteReply, numbers, st.booleans(), st.booleans()),
    st.builds(AppendEntries, numbers, small, numbers, numbers, st.lists(entries, max_size=3).map(tuple)),
    st.builds(AppendEntriesReply, numbers, st.booleans(), numbers),
    st.builds(InstallSnapshot, numbers, numbers, numbers, numbers, numbers, octets),
    st.builds(InstallSnapshotReply, numbers, numbers, numbers),
    st.builds(Publish, runs),
    st.builds(PublishAck, texts, numbers, numbers, st.lists(st.tuples(small, small), max_size=3).map(tuple)),
    st.builds(PublishNack, texts, numbers, numbers, refusals, texts),
    st.builds(FetchEvents, numbers, numbers),
    st.builds(FetchEventsReply, small, st.lists(st.tuples(texts, numbers, numbers, octets), max_size=4).map(tuple)),
    st.builds(FetchState, numbers, numbers),
    st.builds(StartElection, numbers),
    st.builds(Dismissal, numbers),
    st.builds(ForcedRequestVote, numbers, numbers, numbers),
    st.builds(FetchStateReply, numbers, numbers, numbers, st.booleans(), octets),
)
messages: st.SearchStrategy[Message] = documents | ours


class TestVectors:
    @pytest.mark.parametrize("vector", of_kind("golden"))
    def test_reference_parcel_decodes_to_its_recorded_fields(self, vector: Vector) -> None:
        parcel = named(vector["fields"])
        assert decode(bytes.fromhex(vector["hex"]) + parcel.data) == [parcel]

    @pytest.mark.parametrize("vector", of_kind("golden"))
    def test_recorded_fields_encode_to_the_bytes_of_the_reference(self, vector: Vector) -> None:
        parcel = named(vector["fields"])
        assert encode(parcel) == bytes.fromhex(vector["hex"]) + parcel.data

    @pytest.mark.parametrize("vector", of_kind("decode"))
    def test_encoding_variant_is_accepted_or_rejected_like_the_reference(self, vector: Vector) -> None:
        data, fields = bytes.fromhex(vector["hex"]), vector["fields"]
        if fields["accepted"]:
            assert decode(data) == [named(fields["decoded"])]
            if fields["byte_identical_to_reference_encoding"]:
                assert encode(named(fields["decoded"])) == data
        elif vector["name"] not in ACCEPTED_BY_US_ALONE:
            expected = [why for part, why in REASONS.items() if part in vector["name"]]
            assert reason(data) == (expected or ["bad-value"])[0]

    def test_sequence_number_may_exceed_one_byte(self) -> None:
        (vector,) = [vector for vector in VECTORS if vector["name"] in ACCEPTED_BY_US_ALONE]
        parcel = Parcel(True, ParcelType.SEQ_RES, 7_898, 256)
        assert decode(bytes.fromhex(vector["hex"])) == [parcel]
        assert encode(parcel) == bytes.fromhex(vector["hex"])

    @pytest.mark.parametrize("vector", of_kind("overflow"))
    def test_parcel_with_a_head_over_255_bytes_is_not_encoded(self, vector: Vector) -> None:
        with pytest.raises(UnencodableMessage, match="256 bytes"):
            encode(named(vector["fields"]))

    @pytest.mark.parametrize("vector", of_kind("overflow"))
    def test_reference_parcel_with_a_wrong_length_is_rejected(self, vector: Vector) -> None:
        assert reason(bytes.fromhex(vector["hex"])) == "bad-cbor"

    @pytest.mark.parametrize("vector", of_kind("node_id"))
    def test_node_id_matches_the_reference(self, vector: Vector) -> None:
        assert node_id(vector["fields"]["node_name"]) == vector["fields"]["id"]
        assert node_id(vector["fields"]["node_name"]).to_bytes(2, "big").hex() == vector["hex"]

    @pytest.mark.parametrize("vector", of_kind("transcript"))
    def test_recorded_conversation_survives_a_round_trip(self, vector: Vector) -> None:
        for side in ("hex", "reply_hex"):
            data = bytes.fromhex(vector[side])
            (parcel,) = decode(data)
            assert encode(parcel) == data
        request, reply = decode(bytes.fromhex(vector["hex"]))[0], decode(bytes.fromhex(vector["reply_hex"]))[0]
        assert [request, reply] == [named(vector["fields"]["request"]), named(vector["fields"]["reply"])]

    @pytest.mark.parametrize("side", ["joiner", "responder"])
    @pytest.mark.parametrize("vector", of_kind("transcript"))
    def test_each_side_of_a_recorded_conversation_decodes_as_a_stream(self, vector: Vector, side: str) -> None:
        decoder, found = ParcelDecoder(), []
        for step in vector["steps"]:
            if step["from"] == side and "hex" in step:
                found += decoder.feed(bytes.fromhex(step["hex"]))
        assert len(found) == 1
        assert decoder.waiting == 0

    @pytest.mark.parametrize("vector", of_kind("live"))
    def test_recorded_traffic_decodes_like_in_the_reference(self, vector: Vector) -> None:
        data = bytes.fromhex(vector["hex"])
        if vector["name"].endswith((": n=0", ": garbage CBOR", ": garbage reply")):
            assert reason(data)
            return
        found = ParcelDecoder().feed(data)
        if vector["name"].endswith("truncated parcel then close"):
            assert found == []
        elif vector["name"].endswith("two DscReq parcels on one connection"):
            assert len(found) == 2
        else:
            assert len(found) == bool(data)

    @pytest.mark.parametrize(
        "vector", [vector for vector in of_kind("live") if "reply_hex" in vector.values[0]["fields"]]
    )
    def test_recorded_replies_decode_unless_their_length_is_wrong(self, vector: Vector) -> None:
        fields = vector["fields"]
        reply = bytes.fromhex(fields["reply_hex"])
        if "body_bytes_sent" in fields or vector["name"].endswith("garbage reply"):
            assert reason(reply)
            return
        (parcel,) = decode(reply)
        assert isinstance(parcel, Parcel)
        # Fields in another order are accepted, but never written.
        assert (encode(parcel) == reply) is ("canonical" not in vector["name"].partition("responder")[0])

    def test_application_data_is_kept_with_its_parcel(self) -> None:
        (vector,) = [vector for vector in VECTORS if "size=5 followed by 5 app bytes" in vector["name"]]
        (parcel,) = decode(bytes.fromhex(vector["hex"]))
        assert isinstance(parcel, Parcel)
        assert parcel.data == b"12345"


class TestRoundTrip:
    @given(messages)
    def test_decode_inverts_encode_of_a_parcel(self, message: Message) -> None:
        assert decode(encode(message)) == [message]

    @given(messages)
    def test_decoded_message_has_the_type_of_the_original(self, message: Message) -> None:
        (decoded,) = decode(encode(message))
        assert type(decoded) is type(message)
        assert repr(decoded) == repr(message)

    @given(ours)
    def test_extension_parcel_has_a_head_in_the_documented_form(self, message: Message) -> None:
        data = encode(message)
        head = data[1 : 1 + data[0]]
        kind = type(message)
        answers = {
            Welcome,
            Refused,
            RequestVoteReply,
            AppendEntriesReply,
            InstallSnapshotReply,
            PublishAck,
            PublishNack,
            FetchEventsReply,
            FetchStateReply,
        }
        name = WIRE_NAMES[kind].encode()
        flag = b"\xf5" if kind in answers else b"\xf4"
        start = b"\xa5\x6bis_response" + flag + b"\x6bparcel_type" + bytes([0x60 + len(name)]) + name
        assert head.startswith(start + b"\x62id\x19\xeb\xec\x64size")
        assert head.endswith(b"\x64body\x65Empty")

    @pytest.mark.parametrize("size", [0, 23, 24, 255, 256, 1_000, MAX_DATA - 20])
    def test_parcel_head_declares_the_size_of_its_data(self, size: int) -> None:
        message = InstallSnapshot(1, 2, 3, 4, 5, bytes(size))
        assert decode(encode(message) * 2) == [message] * 2

    @pytest.mark.parametrize(
        "message",
        [
            Publish(PublisherRun("p" * 160, MAX_SEQUENCE, 1, (bytes(MAX_EVENT),))),
            AppendEntries(
                MAX_SEQUENCE,
                MAX_SEQUENCE - 1,
                MAX_SEQUENCE,
                MAX_SEQUENCE,
                (
                    LogEntry(
                        MAX_SEQUENCE,
                        EntryKind.DATA,
                        (PublisherRun("p" * 160, MAX_SEQUENCE, MAX_SEQUENCE, (bytes(MAX_EVENT),)),),
                    ),
                ),
            ),
            FetchEventsReply(1, (("p" * 160, MAX_SEQUENCE, MAX_SEQUENCE, bytes(MAX_EVENT)),)),
            AppendEntries(
                1,
                1,
                1,
                1,
                (
                    LogEntry(
                        1,
                        EntryKind.MEMBERSHIP,
                        Membership(
                            tuple((MemberId("n" * 64, number), ("2001:db8::1", 65_535)) for number in range(256))
                        ),
                    ),
                ),
            ),
        ],
        ids=["Publish", "Append", "Fetched", "view"],
    )
    def test_largest_message_of_each_type_fits_a_parcel(self, message: Message) -> None:
        data = encode(message)
        assert len(data) <= MAX_PARCEL
        assert decode(data) == [message]

    def test_encoded_parcel_carries_the_sender_id_of_the_codec(self) -> None:
        assert b"\x62id\x07\x64size" in ParcelCodec(7).encode(Proof(b""))
        assert b"\x62id\x00\x64size" in ParcelCodec().encode(Proof(b""))


class TestStream:
    def test_parcel_codec_implements_the_stream_interfaces(self) -> None:
        codec = ParcelCodec()
        assert verifyObject(IStreamCodec, codec)
        assert verifyObject(IStreamDecoder, codec.decoder())

    @given(st.lists(messages, max_size=4))
    def test_bytewise_decoding_equals_decoding_at_once(self, sent: list[Message]) -> None:
        data = b"".join(map(encode, sent))
        decoder, found = ParcelDecoder(), []
        for place in range(len(data)):
            found += decoder.feed(data[place : place + 1])
        assert found == decode(data) == sent
        assert decoder.waiting == 0

    @given(st.lists(messages, min_size=1, max_size=6), st.data())
    def test_chunk_boundaries_do_not_affect_parcel_decoding(self, sent: list[Message], draw: st.DataObject) -> None:
        data = b"".join(map(encode, sent))
        cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=8)))
        decoder, found = ParcelDecoder(), []
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            found += decoder.feed(data[start:stop])
        assert found == sent

    @given(messages)
    def test_partial_parcel_is_buffered(self, message: Message) -> None:
        data = encode(message)
        for size in range(len(data)):
            decoder = ParcelDecoder()
            assert decoder.feed(data[:size]) == []
            assert decoder.waiting == size
            assert decoder.feed(data[size:]) == [message]

    @given(messages)
    def test_decoder_accepts_and_copies_any_bytes_like_object(self, message: Message) -> None:
        data = encode(message)
        buffer = bytearray(data[:-1])
        decoder = ParcelDecoder()
        decoder.feed(memoryview(buffer))  # type: ignore[arg-type]
        buffer[:] = bytes(len(buffer))
        assert decoder.feed(bytearray(data[-1:])) == [message]  # type: ignore[arg-type]

    def test_decoder_buffers_at_most_one_parcel(self) -> None:
        data = encode(InstallSnapshot(1, 2, 3, 4, 5, bytes(MAX_DATA - 20)))
        decoder = ParcelDecoder()
        assert len(decoder.feed(data * 20 + data[:-1])) == 20
        assert decoder.waiting == len(data) - 1 <= MAX_PARCEL

    def test_parcels_before_a_malformed_one_are_returned_first(self) -> None:
        good = encode(Heartbeat(Mode.WRK, 1, 2))
        decoder = ParcelDecoder()
        assert decoder.feed(good + good + b"\x00" + good) == [Heartbeat(Mode.WRK, 1, 2)] * 2
        assert decoder.waiting == 0
        for _ in range(2):
            with pytest.raises(BadParcel, match="0 bytes"):
                decoder.feed(b"")
        with pytest.raises(BadParcel, match="0 bytes"):
            decoder.feed(good)

    def test_malformed_parcel_raises_at_once(self) -> None:
        decoder = ParcelDecoder()
        with pytest.raises(BadParcel):
            decoder.feed(b"\x00")
        with pytest.raises(BadParcel):
            decoder.feed(b"")
        assert decoder.waiting == 0

    def test_malformed_head_raises_before_its_data_arrives(self) -> None:
        data = encode(InstallSnapshot(1, 2, 3, 4, 5, bytes(1_000)))
        cut = data[: 1 + data[0]].replace(b"StatePart", b"StatePort")
        assert reason(cut) == "unknown-type"

    def test_parcel_decoders_do_not_share_buffers(self) -> None:
        codec, data = ParcelCodec(), encode(Proof(b""))
        first, second = codec.decoder(), codec.decoder()
        assert first.feed(data[:9]) == []
        assert second.feed(data) == [Proof(b"")]
        assert first.feed(data[9:]) == [Proof(b"")]

    @given(st.binary(max_size=600))
    def test_arbitrary_bytes_raise_only_remote_errors_in_the_parcel_decoder(self, data: bytes) -> None:
        with suppress(RemoteError):
            decode(data)

    @given(messages, st.data())
    def test_parcels_with_changed_bytes_raise_only_remote_errors(self, message: Message, draw: st.DataObject) -> None:
        data = bytearray(encode(message))
        for _ in range(draw.draw(st.integers(1, 3))):
            data[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
        with suppress(RemoteError):
            decode(bytes(data))

    @given(ours, st.binary(max_size=300))
    def test_valid_head_before_arbitrary_data_raises_only_remote_errors(self, message: Message, rest: bytes) -> None:
        data = encode(message)
        head = data[1 : 1 + data[0]]
        at = head.rindex(b"\x64size") + 5
        head = head[:at] + b"\x19" + len(rest).to_bytes(2, "big") + b"\x64body\x65Empty"
        with suppress(RemoteError):
            decode(bytes([len(head)]) + head + rest)


SEEDS: list[Message] = [
    Parcel(False, ParcelType.DSC_REQ, 1, NodeInfo(1, Mode.DSC, "Ivan", ("127.0.0.1", 7_878), Extension(1, 2**62, 3))),
    Parcel(True, ParcelType.DSC_RES, 1, tuple(NodeInfo(i, Mode.WRK, f"node-{i}", ("::1", i)) for i in range(12))),
    Parcel(True, ParcelType.SEQ_RES, 1, 77),
    Hello("cluster", "Ivan", 2**62, 2**61, bytes(16)),
    AppendEntries(
        2,
        9,
        2,
        8,
        (
            LogEntry(2, EntryKind.NO_OP, None),
            LogEntry(
                2, EntryKind.DATA, (PublisherRun("p", 1, 1, (b"one", b"two")), PublisherRun("q", 1, 7, (b"three",)))
            ),
            LogEntry(2, EntryKind.MEMBERSHIP, Membership(((MemberId("Ivan", 2**62), ("127.0.0.1", 7_878)),))),
        ),
    ),
    PublishAck("p", 1, 1, ((1, 2), (9, 1))),
    FetchEventsReply(4, (("p", 1, 1, b"one"), ("q", 1, 7, b"three"))),
]


@pytest.mark.soak(seconds=60)
def test_mutated_parcels_raise_only_remote_errors_for_45_seconds() -> None:
    rng, stop, tried = Random(4), time.monotonic() + 45, 0
    whole = [encode(message) for message in SEEDS]
    while time.monotonic() < stop:
        data = bytearray(rng.choice(whole))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    data[at:at] = rng.choice(whole)[: rng.randrange(40)]
                case _:
                    del data[at : at + rng.randrange(1, 4)]
                    data += b"\0"
        decoder = ParcelDecoder()
        try:
            for message in decoder.feed(bytes(data)):
                # A decoded parcel can be sent on unchanged.
                assert decode(encode(message)) == [message]
            decoder.feed(b"")
        except RemoteError:
            pass
        tried += 1
    assert tried > 10_000
