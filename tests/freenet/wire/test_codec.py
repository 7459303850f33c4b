from __future__ import annotations

import time
from contextlib import suppress
from random import Random
from typing import Any

import cbor2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import MalformedPacket, RemoteError, UnencodableMessage
from fyrehose_twisted.freenet.wire.codec import MAX_FRAME, FreenetCodec, FreenetDecoder, MessageCode
from fyrehose_twisted.freenet.wire.messages import (
    MAX_DATA,
    MAX_HTL,
    MAX_PACKET,
    MAX_REASON,
    MAX_UID,
    Accepted,
    BetterRoot,
    DataNotFound,
    Dismissed,
    Hello,
    Located,
    Message,
    Ping,
    Pong,
    Prove,
    PublishCollision,
    PublishData,
    PublishFailed,
    PublishSucceeded,
    Recall,
    RejectedBusy,
    RejectedLoop,
    RejectedOverload,
    ResubscribeRequest,
    RouteNotFound,
    SubscribeData,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder

KEY = bytes(range(20))
_KEY = "54000102030405060708090a0b0c0d0e0f10111213"
_HALF, _QUARTER = "fb3fe0000000000000", "fb3fd0000000000000"

WRITTEN: list[tuple[Message, str]] = [
    (Hello(7, MAX_UID, 0.25, b"n" * 16), f"85 01 07 1bffffffffffffffff {_QUARTER} 50{'6e' * 16}"),
    (Prove(b""), "82 02 40"),
    (Prove(b"p" * 32), f"82 02 5820{'70' * 32}"),
    (Located(0.5), f"82 03 {_HALF}"),
    (Ping(), "81 04"),
    (Pong(), "81 05"),
    (SubscribeRequest(1, KEY, 10, -1, 0.5), f"86 0a 01 {_KEY} 0a 20 {_HALF}"),
    (
        ResubscribeRequest(24, KEY, 255, MAX_PACKET, 0.5, 0.25),
        f"87 0b 1818 {_KEY} 18ff 1b7fffffffffffffff {_HALF} {_QUARTER}",
    ),
    (Accepted(255), "82 0c 18ff"),
    (RejectedLoop(256), "82 0d 190100"),
    (RejectedOverload(65_536), "82 0e 1a00010000"),
    (RejectedBusy(1, 0.5), f"83 0f 01 {_HALF}"),
    (DataNotFound(1), "83 10 01 f6"),
    (DataNotFound(1, 0.5), f"83 10 01 {_HALF}"),
    (RouteNotFound(1, 10), "84 11 01 0a f6"),
    (RouteNotFound(1, 0, 0.25), f"84 11 01 00 {_QUARTER}"),
    (SubscribeSucceeded(KEY, 1, 0.0), f"84 14 {_KEY} 01 fb0000000000000000"),
    (SubscribeSucceededNewRoot(KEY, 1, 0.5), f"84 15 {_KEY} 01 {_HALF}"),
    (SubscribeRestarted(KEY, 1, 0.1), f"84 16 {_KEY} 01 fb3fb999999999999a"),
    (Unsubscribe(KEY), f"82 17 {_KEY}"),
    (Dismissed(KEY), f"82 1818 {_KEY}"),
    (BetterRoot(KEY, 0.5), f"83 1819 {_KEY} {_HALF}"),
    (Recall(KEY, -1), f"83 181a {_KEY} 20"),
    (SubscribeData(KEY, 5, b"hi"), f"84 181e {_KEY} 05 426869"),
    (PublishData(2, KEY, 5, 0.5, b"hi", 10, True), f"88 181f 02 {_KEY} 05 {_HALF} 426869 0a f5"),
    (PublishSucceeded(2), "82 1820 02"),
    (PublishCollision(2, 6), "83 1821 02 06"),
    (PublishFailed(2, "no-stream"), "83 1822 02 696e6f2d73747265616d"),
]
"""Messages and their fixed CBOR encoding, without the four-byte length."""

PLAIN = {
    "node": 1,
    "boot": 2,
    "uid": 3,
    "location": 0.5,
    "best": 0.5,
    "must_beat": 0.5,
    "root": 0.5,
    "place": 0.5,
    "busy": None,
    "nonce": b"n" * 16,
    "proof": b"",
    "key": KEY,
    "htl": 10,
    "last_seen": -1,
    "after": -1,
    "packet": 5,
    "next": 6,
    "data": b"hi",
    "reason": "no-stream",
    "wanted": True,
}
"""Valid value of each field."""

_NO_WHOLE: list[Any] = [None, True, False, 1.0, "1", b"1", [1], 2**70]
_NO_UID = [*_NO_WHOLE, -1, MAX_UID + 1]
_NO_PACKET = [*_NO_WHOLE, -1, MAX_PACKET + 1]
_NO_SEEN = [*_NO_WHOLE, -2, MAX_PACKET + 1]
_NO_LOCATION: list[Any] = [None, 0, True, "0.5", -0.1, 1.0, 1e300, float("nan"), float("inf"), float("-inf"), [0.5]]
_NO_BYTES: list[Any] = [None, 0, "k" * 20, [0] * 20]

REFUSED: dict[str, list[Any]] = {
    "node": _NO_UID,
    "boot": _NO_UID,
    "uid": _NO_UID,
    "location": _NO_LOCATION,
    "best": _NO_LOCATION,
    "must_beat": _NO_LOCATION,
    "root": _NO_LOCATION,
    "place": _NO_LOCATION,
    "busy": [value for value in _NO_LOCATION if value is not None],
    "nonce": [*_NO_BYTES, b"", b"n" * 15, b"n" * 17],
    "proof": [*_NO_BYTES, b"p", b"p" * 31, b"p" * 33],
    "key": [*_NO_BYTES, b"", b"k" * 19, b"k" * 21],
    "htl": [*_NO_WHOLE, -1, MAX_HTL + 1],
    "last_seen": _NO_SEEN,
    "after": _NO_SEEN,
    "packet": _NO_PACKET,
    "next": _NO_PACKET,
    "data": [*_NO_BYTES, b"d" * (MAX_DATA + 1)],
    "reason": [None, 0, b"why", "r" * (MAX_REASON + 1), "two\nlines", "\0", "\x1b[2J"],
    "wanted": [None, 0, 1, "true"],
}
"""Invalid values of each field."""

KINDS: list[Any] = list(dict.fromkeys(type(message) for message, _ in WRITTEN))
OUT_OF_RANGE = [
    pytest.param(kind, name, value, id=f"{kind.__name__}-{name}-{value!r:.20}")
    for kind in KINDS
    for name in kind._fields
    for value in REFUSED[name]
]


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def code_of(kind: Any) -> int:
    (code,) = (code for code in MessageCode if code.name.replace("_", "").lower() == kind.__name__.lower())
    return int(code)


def encode(message: Message) -> bytes:
    return FreenetCodec().encode(message)


def decode(data: bytes) -> list[Message]:
    decoder = FreenetDecoder()
    found = decoder.feed(data)
    decoder.feed(b"")
    return found


def outcome(pieces: list[bytes]) -> tuple[list[Message], str | None]:
    """Return the decoded messages, and the code of the error after them."""
    decoder = FreenetDecoder()
    found: list[Message] = []
    try:
        for piece in pieces:
            found += decoder.feed(piece)
        decoder.feed(b"")
    except MalformedPacket as error:
        return found, error.reason
    return found, None


def reason(data: bytes) -> str:
    """Return the code of the error for the CBOR ``data``."""
    with pytest.raises(MalformedPacket) as caught:
        decode(framed(data))
    assert str(caught.value)
    return caught.value.reason


uids = st.integers(0, MAX_UID) | st.integers(0, 300)
packets = st.integers(0, MAX_PACKET) | st.integers(0, 300)
seen = st.integers(-1, MAX_PACKET) | st.integers(-1, 300)
locations = st.floats(0.0, 1.0, exclude_max=True)
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "node": uids,
    "boot": uids,
    "uid": uids,
    "location": locations,
    "best": locations,
    "must_beat": locations,
    "root": locations,
    "place": locations,
    "busy": st.none() | locations,
    "nonce": st.binary(min_size=16, max_size=16),
    "proof": st.just(b"") | st.binary(min_size=32, max_size=32),
    "key": st.binary(min_size=20, max_size=20),
    "htl": st.integers(0, MAX_HTL),
    "last_seen": seen,
    "after": seen,
    "packet": packets,
    "next": packets,
    "data": st.binary(max_size=60) | st.integers(0, MAX_DATA).map(bytes),
    "reason": st.text(max_size=MAX_REASON).filter(str.isprintable),
    "wanted": st.booleans(),
}
messages: st.SearchStrategy[Message] = st.one_of(
    [st.builds(kind, **{name: FIELDS[name] for name in kind._fields}) for kind in KINDS]
)
odd_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.binary(max_size=30)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 9), inner, max_size=2),
    max_leaves=6,
)
odd_frames = st.lists(odd_values, max_size=7).flatmap(
    lambda items: st.sampled_from(MessageCode).map(lambda code: framed(cbor2.dumps([int(code), *items])))
)


def test_the_codec_provides_the_interface_of_links() -> None:
    verifyObject(IStreamCodec, FreenetCodec())
    verifyObject(IStreamDecoder, FreenetCodec().decoder())


class TestBytes:
    @pytest.mark.parametrize(("message", "text"), WRITTEN, ids=[f"{message!r:.40}" for message, _ in WRITTEN])
    def test_the_encoding_of_each_message_is_unchanged(self, message: Message, text: str) -> None:
        data = framed(bytes.fromhex(text))
        assert encode(message) == data
        (found,) = decode(data)
        assert found == message
        assert type(found) is type(message)

    def test_every_message_type_has_an_example(self) -> None:
        assert sorted(map(code_of, KINDS)) == sorted(MessageCode)

    def test_message_codes_are_fixed(self) -> None:
        assert {code.name: int(code) for code in MessageCode} == {
            "HELLO": 1,
            "PROVE": 2,
            "LOCATED": 3,
            "PING": 4,
            "PONG": 5,
            "SUBSCRIBE_REQUEST": 10,
            "RESUBSCRIBE_REQUEST": 11,
            "ACCEPTED": 12,
            "REJECTED_LOOP": 13,
            "REJECTED_OVERLOAD": 14,
            "REJECTED_BUSY": 15,
            "DATA_NOT_FOUND": 16,
            "ROUTE_NOT_FOUND": 17,
            "SUBSCRIBE_SUCCEEDED": 20,
            "SUBSCRIBE_SUCCEEDED_NEW_ROOT": 21,
            "SUBSCRIBE_RESTARTED": 22,
            "UNSUBSCRIBE": 23,
            "DISMISSED": 24,
            "BETTER_ROOT": 25,
            "RECALL": 26,
            "SUBSCRIBE_DATA": 30,
            "PUBLISH_DATA": 31,
            "PUBLISH_SUCCEEDED": 32,
            "PUBLISH_COLLISION": 33,
            "PUBLISH_FAILED": 34,
        }


class TestRefused:
    @pytest.mark.parametrize(("kind", "name", "value"), OUT_OF_RANGE)
    def test_a_field_out_of_range_is_neither_encoded_nor_decoded(self, kind: Any, name: str, value: Any) -> None:
        message = kind(**{field: PLAIN[field] for field in kind._fields})
        assert decode(encode(message)) == [message]
        wrong = message._replace(**{name: value})
        with pytest.raises(UnencodableMessage, match=name):
            encode(wrong)
        assert reason(cbor2.dumps([code_of(kind), *wrong])) in ("bad-value", "no-cbor", "no-array")

    @pytest.mark.parametrize("message", [None, "PING", object(), (1, 2), cbor2.undefined])
    def test_values_that_are_not_messages_are_not_encoded(self, message: Any) -> None:
        with pytest.raises(UnencodableMessage, match="is not a message"):
            encode(message)

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("80", "no-array"),
            ("04", "no-array"),
            ("a10101", "no-array"),
            ("8161 34", "no-array"),
            ("81f5", "no-array"),
            ("8104 00", "not-plain"),
            ("8200", "no-cbor"),
            ("8100", "unknown-code"),
            ("8120", "unknown-code"),
            ("811823", "unknown-code"),
            ("811b0000000000000004", "not-plain"),
            ("9f04ff", "not-plain"),
            ("820400", "fields"),
            ("810c", "fields"),
            ("820c1801", "not-plain"),
            ("820cc24101", "not-plain"),
            ("820cd81c01", "not-plain"),
            ("8203f93800", "not-plain"),
            ("8203fa3f000000", "not-plain"),
            (f"8217{_KEY.replace('54', '5f54', 1)}ff", "not-plain"),
            ("d9d9f78104", "no-array"),
            ("ff", "no-cbor"),
            ("1c", "no-cbor"),
            ("9bffffffffffffffff", "no-cbor"),
            ("820cf6", "bad-value"),
            ("8203c482200 5".replace(" ", ""), "bad-value"),
            ("83182202" + "62c328", "no-cbor"),
            ("81" * 2_000 + "00", "no-cbor"),
        ],
    )
    def test_malformed_messages_are_refused_with_a_reason(self, text: str, why: str) -> None:
        assert reason(bytes.fromhex(text)) == why

    def test_an_integer_of_thousands_of_digits_is_refused(self) -> None:
        huge = b"\xc2\x59\x07\xd0" + b"\xff" * 2_000
        assert reason(b"\x81" + huge) == "unknown-code"
        assert reason(b"\x82\x0c" + huge) == "bad-value"

    def test_a_non_canonical_encoding_is_refused_even_if_its_length_is_right(self) -> None:
        # A location in two bytes instead of eight, and numbers in four and two bytes more than they need.
        data = bytes.fromhex(f"86 0a 1a00000001 {_KEY} 19000a 20 f93800")
        assert len(framed(data)) == len(encode(SubscribeRequest(1, KEY, 10, -1, 0.5)))
        assert reason(data) == "not-plain"


class TestLimits:
    @pytest.mark.parametrize("size", [0, MAX_FRAME + 1, 2**31, 2**32 - 1])
    def test_a_frame_size_out_of_range_is_refused_before_its_data_arrives(self, size: int) -> None:
        decoder = FreenetDecoder()
        with pytest.raises(MalformedPacket, match="2,048") as caught:
            decoder.feed(size.to_bytes(4, "big"))
        assert caught.value.reason == "size"
        assert len(decoder._buffer) == 0

    def test_the_longest_message_fits_in_a_frame(self) -> None:
        longest = PublishData(MAX_UID, KEY, MAX_PACKET, 0.1, bytes(MAX_DATA), MAX_HTL, False)
        data = encode(longest)
        assert len(data) <= MAX_FRAME + 4
        assert decode(data) == [longest]

    def test_a_frame_of_the_maximum_size_is_buffered(self) -> None:
        decoder = FreenetDecoder()
        data = MAX_FRAME.to_bytes(4, "big") + bytes(MAX_FRAME)
        assert decoder.feed(data[:-1]) == []
        assert len(decoder._buffer) == MAX_FRAME + 3
        with pytest.raises(MalformedPacket):
            decoder.feed(data[-1:])

    def test_messages_before_a_malformed_one_are_returned_and_none_after_it(self) -> None:
        decoder = FreenetDecoder()
        assert decoder.feed(encode(Ping()) * 2 + framed(b"\x80") + encode(Pong())) == [Ping(), Ping()]
        assert len(decoder._buffer) == 0
        for more in (b"", encode(Pong())):
            with pytest.raises(MalformedPacket) as caught:
                decoder.feed(more)
            assert caught.value.reason == "no-array"

    def test_the_decoder_buffers_at_most_part_of_a_message(self) -> None:
        decoder = FreenetDecoder()
        assert decoder.feed(encode(Ping()) * 1_000 + encode(Pong())[:5]) == [Ping()] * 1_000
        assert len(decoder._buffer) == 5


class TestStreams:
    @given(st.lists(messages, max_size=6))
    def test_decode_inverts_encode_of_a_message(self, some: list[Message]) -> None:
        found = decode(b"".join(map(encode, some)))
        assert found == some
        assert list(map(type, found)) == list(map(type, some))

    @given(messages)
    def test_a_partial_message_is_not_decoded(self, message: Message) -> None:
        data = encode(message)
        for cut in {*range(min(len(data), 60)), len(data) - 1}:
            decoder = FreenetDecoder()
            assert decoder.feed(data[:cut]) == []
            assert len(decoder._buffer) == cut
            assert decoder.feed(data[cut:]) == [message]
            assert len(decoder._buffer) == 0

    @given(messages, st.data())
    def test_truncated_cbor_is_refused(self, message: Message, draw: st.DataObject) -> None:
        data = encode(message)[4:]
        cut = draw.draw(st.integers(1, len(data) - 1))
        assert reason(data[:cut]) == "no-cbor"
        assert reason(data + b"\0") == "not-plain"

    @given(st.lists(messages.map(encode) | odd_frames | st.binary(max_size=12), max_size=5), st.data())
    def test_decoding_does_not_depend_on_chunk_boundaries(self, some: list[bytes], draw: st.DataObject) -> None:
        data = b"".join(some)
        cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=5)))
        pieces = [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
        assert outcome(pieces) == outcome([data]) == outcome([data[at : at + 1] for at in range(len(data))])

    @given(st.binary(max_size=200) | odd_frames | st.binary(min_size=1, max_size=80).map(framed))
    def test_arbitrary_bytes_raise_only_remote_errors_in_the_frame_decoder(self, data: bytes) -> None:
        with suppress(RemoteError):
            decode(data)

    @given(messages, st.data())
    def test_decoded_messages_encode_to_the_same_bytes(self, message: Message, draw: st.DataObject) -> None:
        data = bytearray(encode(message))
        for _ in range(draw.draw(st.integers(1, 3))):
            data[draw.draw(st.integers(4, len(data) - 1))] = draw.draw(st.integers(0, 255))
        with suppress(RemoteError):
            assert b"".join(map(encode, decode(bytes(data)))) == data

    def test_decoders_of_two_connections_are_independent(self) -> None:
        codec = FreenetCodec()
        first, second = codec.decoder(), codec.decoder()
        data = encode(Accepted(1))
        assert first.feed(data[:5]) == []
        assert second.feed(encode(Accepted(2))) == [Accepted(2)]
        assert first.feed(data[5:]) == [Accepted(1)]


@pytest.mark.soak(seconds=60)
def test_mutated_messages_raise_only_remote_errors_for_45_seconds() -> None:
    rng, stop, tried = Random(3), time.monotonic() + 45, 0
    whole = [framed(bytes.fromhex(text)) for _, text in WRITTEN]
    while time.monotonic() < stop:
        data = bytearray(b"".join(rng.choices(whole, k=3)))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[at] = rng.randrange(256)
                case 1:
                    data[at] ^= 1 << rng.randrange(8)
                case 2:
                    del data[at : at + rng.randint(1, 4)]
                case _:
                    data[at:at] = rng.randbytes(rng.randint(1, 4))
            if not data:
                break
        with suppress(RemoteError):
            decode(bytes(data))
        tried += 1
    assert tried > 1_000
