from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cbor2 import CBORTag, dumps
from hypothesis import example, given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError, RemoteError
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.frames import HEADER, lost_frame, records_frame
from fyrehose_twisted.journal.remote import wire
from fyrehose_twisted.process.secret import check_secret

STREAM = "test://stream"

numbers = st.integers(0, wire.MAX_INTEGER)
flags = st.booleans()
texts = st.text(max_size=20)
damages = st.builds(Damage, texts, numbers, numbers, texts, st.none() | numbers, st.none() | numbers, st.none())
epochs = st.builds(wire.EpochInfo, numbers, numbers, numbers, st.integers(-1, wire.MAX_INTEGER))
streams = st.builds(wire.StreamInfo, texts, numbers, st.lists(epochs, max_size=3).map(tuple))


@st.composite
def ranges(draw: Any) -> tuple[int, int, tuple[tuple[int, int], ...]]:
    ends = sorted(draw(st.sets(st.integers(0, 10**6), min_size=2, max_size=12)))
    pairs = tuple(zip(ends[1:-1:2], ends[2:-1:2], strict=False))
    return ends[0], ends[-1], pairs


@st.composite
def parts(draw: Any) -> wire.Records | wire.Ranges:
    first, following, pairs = draw(ranges())
    if draw(flags):
        return wire.Ranges(draw(numbers), first, following, draw(flags), pairs)
    told = tuple(draw(st.lists(damages, max_size=3)))
    return wire.Records(draw(numbers), first, following, draw(flags), pairs, told, draw(st.binary(max_size=50)))


requests = st.one_of(
    st.builds(wire.Hello, numbers, st.just(b"") | st.binary(min_size=32, max_size=32)),
    st.builds(wire.ListStreams, numbers),
    st.builds(wire.Read, numbers, texts, numbers, numbers, numbers, numbers, flags),
    st.builds(wire.ListRanges, numbers, texts, numbers, numbers, numbers, flags),
)
answers = st.one_of(
    st.builds(wire.Greeting, numbers, st.binary(min_size=16, max_size=16), flags),
    st.builds(wire.Welcome, numbers),
    st.builds(wire.Streams, numbers, st.lists(streams, max_size=3).map(tuple), flags),
    st.builds(wire.Refusal, st.none() | numbers, texts, texts, st.none() | damages),
    parts(),
)


def packed(content: object) -> bytes:
    data = content if isinstance(content, bytes) else dumps(content)
    return len(data).to_bytes(4, "little") + data


def check_pieces(decoder: Callable[[], wire.Decoder], messages: list[Any], sizes: list[int]) -> None:
    data = b"".join(map(wire.encode, messages))
    assert decoder().feed(data) == messages
    slow, found = decoder(), []
    for byte in data:
        found += slow.feed(bytes([byte]))
    assert found == messages
    other, found, start = decoder(), [], 0
    for size in [*sizes, len(data)]:
        found += other.feed(memoryview(data)[start : start + size])
        start += size
    assert found == messages


@given(st.lists(answers, max_size=4), st.lists(st.integers(0, 60), max_size=6))
def test_answers_are_decoded_from_any_split_of_their_bytes(messages: list[Any], sizes: list[int]) -> None:
    check_pieces(wire.answer_decoder, messages, sizes)


@given(st.lists(requests, max_size=4), st.lists(st.integers(0, 60), max_size=6))
def test_requests_are_decoded_from_any_split_of_their_bytes(messages: list[Any], sizes: list[int]) -> None:
    check_pieces(wire.request_decoder, messages, sizes)


@given(answers)
def test_an_incomplete_message_is_waited_for(message: Any) -> None:
    data = wire.encode(message)
    for end in range(len(data)):
        assert wire.answer_decoder().feed(data[:end]) == []


@given(st.lists(st.binary(max_size=60), max_size=4), st.booleans())
@example([b"\x05\0\0\0" + b"\x81" * 5], True)
def test_decoding_arbitrary_remote_bytes_raises_only_remote_errors(pieces: list[bytes], framed: bool) -> None:
    for decoder in wire.answer_decoder(), wire.request_decoder():
        try:
            for piece in pieces:
                decoder.feed(packed(piece) if framed else piece)
        except RemoteError:
            with pytest.raises(RemoteError):
                decoder.feed(b"")


@given(answers, st.data())
def test_decoding_a_message_with_a_changed_byte_raises_only_remote_errors(message: Any, data: st.DataObject) -> None:
    changed = bytearray(wire.encode(message))
    changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    decoder = wire.answer_decoder()
    try:
        for one in decoder.feed(changed):
            if isinstance(one, wire.Records):
                wire.blocks_of(one, STREAM, 0)
    except RemoteError:
        pass


@pytest.mark.parametrize(
    "content",
    [
        [],
        {},
        {"kind": 1},
        {"kind": "hello", "version": 1, "mac": b""},  # Not a message of a server.
        {"kind": "welcome"},
        {"kind": "welcome", "version": True},
        {"kind": "welcome", "version": -1},
        {"kind": "welcome", "version": 2**63},
        {"kind": "welcome", "version": 1.0},
        {"kind": "welcome", "version": CBORTag(9, 1)},
        {"kind": "greeting", "version": 1, "nonce": bytes(15), "secret": True},
        {"kind": "greeting", "version": 1, "nonce": bytes(16), "secret": 1},
        {"kind": "refusal", "id": 1, "name": "a", "text": "b" * 2_049, "damage": None},
        {"kind": "refusal", "id": 1, "name": "a", "text": "b", "damage": ["a", 1, 2, "b"]},
        {"kind": "streams", "id": 1, "end": True, "streams": [["a", 0, []]] * 513},
        {"kind": "streams", "id": 1, "end": True, "streams": [["a", 0, [[0, 0, 0]]]]},
        {"kind": "streams", "id": 1, "end": True, "streams": [["a", 0, [[0, 0, 0, -2]]]]},
        {"kind": "ranges", "id": 1, "first": 5, "next": 9, "end": True, "ranges": [[4, 4]]},
        {"kind": "ranges", "id": 1, "first": 5, "next": 9, "end": True, "ranges": [[6, 5]]},
        {"kind": "ranges", "id": 1, "first": 5, "next": 9, "end": True, "ranges": [[7, 7], [5, 5]]},
        {"kind": "ranges", "id": 1, "first": 5, "next": 9, "end": True, "ranges": [[7, 9]]},
        {"kind": "ranges", "id": 1, "first": 5, "next": 4, "end": True, "ranges": []},
        {"kind": "ranges", "id": 1, "first": 0, "next": 20_000, "end": True, "ranges": [[i, i] for i in range(8_193)]},
        dumps({"kind": "welcome", "version": 1}) + b"\0",
        b"\xd8\x1c\x81\xd8\x1d\x00",  # A list that contains itself.
        b"\xbf\x64kind\x67welcome\x67version\x01\xff",  # Indefinite length.
        b"\xa3\x64kind\x67welcome\x67version\x01\x67version\x01",
        b"\xa3\x64kind\x67welcome\x67version\x01\x81\x01\x01",  # A list as a key.
    ],
)
def test_an_invalid_remote_message_is_refused(content: object) -> None:
    with pytest.raises(RemoteError):
        wire.answer_decoder().feed(packed(content))


def test_nested_cbor_tags_are_not_interpreted() -> None:
    head = dumps({"kind": "welcome", "version": 1, "more": 0})[:-1]
    for tag in [*range(300), 1_004, 43_000, 55_799]:
        for value in (1, b"1", "1", [1], [1, 2], {}):
            with pytest.raises(RemoteError):
                wire.answer_decoder().feed(packed(head + dumps(CBORTag(tag, value))))


def test_answers_of_an_earlier_release_are_accepted() -> None:
    message = {"kind": "streams", "id": 1, "streams": [["s", 0, []]], "end": True}
    (answer,) = wire.answer_decoder().feed(packed(message))
    assert answer == wire.Streams(1, (wire.StreamInfo("s", 0, ()),), True)


def test_unknown_message_keys_are_ignored() -> None:
    content = {"kind": "welcome", "version": 1, "colour": "green"}
    assert wire.answer_decoder().feed(packed(content)) == [wire.Welcome(1)]


def test_a_length_over_the_limit_is_refused_before_buffering() -> None:
    for decoder, limit in (wire.request_decoder(), wire.MAX_REQUEST), (wire.answer_decoder(), wire.MAX_ANSWER):
        with pytest.raises(RemoteError, match="limit"):
            decoder.feed((limit + 1).to_bytes(4, "little"))
    part = {"kind": "records", "id": 1, "first": 0, "next": 1, "end": True, "losses": [], "damages": [], "bytes": 101}
    with pytest.raises(RemoteError, match="limit"):
        wire.answer_decoder(100).feed(packed(part))


def test_the_largest_messages_are_within_the_limit() -> None:
    infos = tuple(wire.StreamInfo("s" * wire.MAX_URI, 2**63 - 1, ()) for _ in range(wire.MAX_ENTRIES))
    high = wire.MAX_INTEGER - 2 * wire.MAX_RANGES
    pairs = tuple((high + 2 * i, high + 2 * i) for i in range(wire.MAX_RANGES))
    damage = Damage("n" * 255, 2**63 - 1, 2**63 - 1, "r" * wire.MAX_TEXT, 1, 2, 3)
    told = (damage,) * wire.MAX_DAMAGES
    damages = (("s" * wire.MAX_URI, damage),) * wire.MAX_DAMAGES
    streams = wire.Streams(1, infos, True, (2**32 - 1,) * wire.MAX_ENTRIES, damages)
    for message in streams, wire.Records(1, high, wire.MAX_INTEGER, True, pairs, told):
        assert wire.answer_decoder().feed(wire.encode(message)) == [message]
    request = wire.Read(
        wire.MAX_INTEGER, "s" * wire.MAX_URI, wire.MAX_INTEGER, 0, wire.MAX_INTEGER, wire.MAX_INTEGER, True
    )
    assert wire.request_decoder().feed(wire.encode(request)) == [request]


def test_a_proof_is_valid_for_one_secret_and_nonce() -> None:
    proof = wire.proof(b"s" * 16, bytes(16))
    assert len(proof) == wire.MAC_SIZE
    assert proof not in (wire.proof(b"t" * 16, bytes(16)), wire.proof(b"s" * 16, b"1" * 16))
    with pytest.raises(ConfigurationError):
        check_secret(b"s" * 15)


def block(positions: list[int], payloads: list[bytes] | None = None, epoch: int = 3) -> Block:
    payloads = [b"%d" % position for position in positions] if payloads is None else payloads
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.uint32)
    numbers, times = np.array(positions, np.uint64), np.arange(len(positions), dtype=np.int64)
    return Block(STREAM, epoch, numbers, times, offsets, memoryview(b"".join(payloads)), 0)


def rows(blocks: list[Block]) -> list[tuple[int, int, bytes]]:
    return [
        row for one in blocks for row in zip(one.positions.tolist(), one.times.tolist(), one.payloads(), strict=True)
    ]


@given(st.lists(st.sets(st.integers(0, 10_000), min_size=1, max_size=20), max_size=4))
def test_records_are_decoded_from_remote_frames(groups: list[set[int]]) -> None:
    blocks = [block([20_000 * turn + position for position in sorted(group)]) for turn, group in enumerate(groups)]
    part = wire.Records(1, 0, 100_000, True, frames=b"".join(map(wire.frame_of, blocks)))
    (decoded,) = wire.answer_decoder().feed(wire.encode(part))
    assert isinstance(decoded, wire.Records)
    assert rows(wire.blocks_of(decoded, STREAM, 3)) == rows(blocks)


FIELDS = ("magic", "version", "kind", "flags", "count", "body", "base")
FIELDS += ("epoch", "span", "segment", "offset", "newest", "tag", "crc")


def forged(frame: bytes, content: bytes | None = None, **changes: int) -> bytes:
    """Return a frame with another header or body, and with checksums that are right."""
    fields = dict(zip(FIELDS, HEADER.unpack(frame[: HEADER.size]), strict=True))
    content = frame[HEADER.size :] if content is None else content
    fields.update(body=len(content), crc=zlib.crc32(content))
    fields.update(changes)
    header = HEADER.pack(*fields.values())[:-4]
    return header + struct.pack("<I", zlib.crc32(header)) + content


def with_offsets(positions: list[int], offsets: list[int], *, deltas: list[int] | None = None) -> bytes:
    """Return the body of a frame of 24 payload bytes."""
    times = np.zeros(len(positions), "<i8").tobytes()
    body = times + np.array(offsets, "<u4").tobytes() + np.array(deltas or [], "<u4").tobytes()
    return body + bytes(24) + bytes(-len(body) % 8)


DENSE = wire.frame_of(block([5, 6, 7], [b"12345678"] * 3))
LOOSE = wire.frame_of(block([5, 7, 9], [b"12345678"] * 3))


def test_the_forging_helper_reproduces_a_valid_frame() -> None:
    assert forged(DENSE) == DENSE
    good = forged(DENSE, with_offsets([5, 6, 7], [0, 8, 16, 24]))
    assert rows(wire.blocks_of(wire.Records(1, 5, 8, True, frames=good), STREAM, 3)) == [
        (position, 0, bytes(8)) for position in (5, 6, 7)
    ]
    good = forged(LOOSE, with_offsets([5, 7, 9], [0, 8, 16, 24], deltas=[0, 2, 4]))
    assert len(rows(wire.blocks_of(wire.Records(1, 5, 10, True, frames=good), STREAM, 3))) == 3


@pytest.mark.parametrize(
    "frames",
    [
        DENSE[:-1],
        DENSE[:40],
        DENSE + b"\0" * 8,
        DENSE + DENSE,
        LOOSE + DENSE,
        bytes([DENSE[0] ^ 1]) + DENSE[1:],
        DENSE[:-1] + bytes([DENSE[-1] ^ 1]),
        forged(DENSE, epoch=4),
        forged(DENSE, flags=3),
        forged(DENSE, count=0),
        forged(DENSE, count=4),
        forged(DENSE, count=65_537),
        forged(DENSE, count=2),
        forged(DENSE, span=3),
        forged(DENSE, base=4),
        forged(DENSE, base=9),
        forged(DENSE, base=2**64 - 1, span=2),
        forged(DENSE, body=2**30),
        forged(DENSE, with_offsets([5, 6, 7], [1, 8, 16, 24])),
        forged(DENSE, with_offsets([5, 6, 7], [0, 16, 8, 24])),
        forged(DENSE, with_offsets([5, 6, 7], [0, 8, 16, 2**31])),
        forged(DENSE, with_offsets([5, 6, 7], [0, 8, 16, 9])),
        forged(DENSE, with_offsets([5, 6, 7], [0, 0, 0, 0])),
        forged(DENSE, struct.pack("<q", -1) + DENSE[HEADER.size + 8 :]),
        forged(LOOSE, with_offsets([5, 7, 9], [0, 8, 16, 24], deltas=[0, 0, 4])),
        forged(LOOSE, with_offsets([5, 7, 9], [0, 8, 16, 24], deltas=[0, 5, 4])),
        forged(LOOSE, with_offsets([5, 7, 9], [0, 8, 16, 24], deltas=[1, 2, 4])),
        forged(LOOSE, with_offsets([5, 7, 9], [0, 8, 16, 24], deltas=[0, 2, 3])),
        lost_frame(wire.NO_POSITION, 3, [(5, 6)], 0)[1],
        records_frame(wire.NO_POSITION, 3, [10], [0], [b""])[1],
    ],
)
def test_an_invalid_remote_frame_is_refused(frames: bytes) -> None:
    with pytest.raises(RemoteError, match="invalid frame"):
        wire.blocks_of(wire.Records(1, 5, 10, True, frames=frames), STREAM, 3)


@given(st.data())
def test_a_changed_byte_of_a_remote_frame_is_detected(data: st.DataObject) -> None:
    changed = bytearray(LOOSE)
    at = data.draw(st.integers(0, len(changed) - 1))
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(RemoteError):
        wire.blocks_of(wire.Records(1, 0, 100, True, frames=bytes(changed)), STREAM, 3)
