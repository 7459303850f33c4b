"""Fuzz target: codec of freenet messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import get_args

from hypothesis import strategies as st

from fuzz.checks import check_stream
from fuzz.seeds import draw
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.freenet.wire.codec import FreenetCodec
from fyrehose_twisted.freenet.wire.location import KEY_SIZE
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET, NONCE_SIZE, PROOF_SIZE, Message

CODEC = FreenetCodec()
_uids, _places = st.integers(0, 2**64 - 1), st.floats(0, 1, exclude_max=True)
_packets = st.integers(0, MAX_PACKET)
_FIELDS: dict[str, st.SearchStrategy[object]] = {
    "node": _uids,
    "boot": _uids,
    "uid": _uids,
    **dict.fromkeys(("location", "best", "must_beat", "root", "place"), _places),
    "busy": st.none() | _places,
    "nonce": st.binary(min_size=NONCE_SIZE, max_size=NONCE_SIZE),
    "proof": st.just(b"") | st.binary(min_size=PROOF_SIZE, max_size=PROOF_SIZE),
    "key": st.binary(min_size=KEY_SIZE, max_size=KEY_SIZE),
    "htl": st.integers(0, 255),
    **dict.fromkeys(("last_seen", "after"), st.integers(-1, MAX_PACKET)),
    **dict.fromkeys(("packet", "next"), _packets),
    "data": st.binary(max_size=20),
    "reason": st.sampled_from(["", "no-stream"]),
    "wanted": st.booleans(),
}
MESSAGES = st.one_of([st.builds(kind, **{name: _FIELDS[name] for name in kind._fields}) for kind in get_args(Message)])
"""Messages that can be encoded."""


def seeds() -> Iterable[bytes]:
    """Return seed inputs: encoded streams."""
    frames = [CODEC.encode(message) for message in draw(MESSAGES, 100)]
    yield from (b"\x09" + frame for frame in frames)
    for start in range(0, len(frames), 10):
        yield b"\x05\x01" + b"".join(frames[start : start + 10])
    yield b"\xff\0\0\x08\x01"


def one(data: bytes) -> None:
    """Decode a stream; each decoded message must encode to the same bytes."""
    messages, _ = check_stream(CODEC.decoder, data, MalformedPacket)
    written = b"".join(map(CODEC.encode, messages))
    assert data[1:].startswith(written)
