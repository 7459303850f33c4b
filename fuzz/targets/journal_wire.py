"""Requests and responses of the journal protocol, and the frames that follow them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable

from hypothesis import strategies as st

from fuzz.checks import attempt, check_size, check_stream
from fuzz.seeds import draw
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.frames import HEADER, FramePosition, records_frame
from fyrehose_twisted.journal.remote import wire

FRAMES = 65_536
"""Limit of the bytes of frames."""
MEND = 1
"""Bit of the first byte: frames get valid checksums, as any sender can compute them."""

_numbers, _texts, _flags = st.integers(0, 99), st.sampled_from(["", "fyrehose://127.0.0.1:2323"]), st.booleans()
_damages = st.builds(Damage, _texts, _numbers, _numbers, _texts, st.none() | _numbers, st.none(), st.none())
_epochs = st.builds(wire.EpochInfo, _numbers, _numbers, _numbers, st.integers(-1, 9))
_streams = st.builds(wire.StreamInfo, _texts, _numbers, st.lists(_epochs, max_size=2).map(tuple))
_place = FramePosition(0, 0, 0)
_frames = st.sampled_from(
    [
        b"",
        records_frame(_place, 0, [5, 6, 7], [10, 11, 12], [b"a", b"", b"ccc"])[1],
        records_frame(_place, 0, [5, 9, 70], [10, 9, 12], [b"a", b"", b"ccc"])[1]
        + records_frame(_place, 0, [71], [13], [b"d"])[1],
    ]
)
REQUESTS: st.SearchStrategy[wire.Message] = st.one_of(
    st.builds(wire.Hello, _numbers, st.just(b"") | st.binary(min_size=32, max_size=32)),
    st.builds(wire.ListStreams, _numbers),
    st.builds(wire.Read, _numbers, _texts, _numbers, _numbers, _numbers, _numbers, _flags),
    st.builds(wire.ListRanges, _numbers, _texts, _numbers, _numbers, _numbers, _flags),
)
"""Messages from clients."""
ANSWERS: st.SearchStrategy[wire.Message] = st.one_of(
    st.builds(wire.Greeting, _numbers, st.binary(min_size=16, max_size=16), _flags),
    st.builds(wire.Welcome, _numbers),
    st.builds(wire.Streams, _numbers, st.lists(_streams, max_size=2).map(tuple), _flags),
    st.builds(wire.Refusal, st.none() | _numbers, _texts, _texts, st.none() | _damages),
    st.builds(wire.Ranges, _numbers, st.just(0), st.just(99), _flags, st.sampled_from([(), ((1, 2), (4, 9))])),
    st.builds(wire.Records, _numbers, st.just(0), st.just(99), _flags, st.just(((1, 2),)), st.just(()), _frames),
)
"""Messages from servers."""


def seeds() -> Iterable[bytes]:
    """Return streams with a prefix byte for the sender's side and one for the chunking."""
    for who, messages in ((0, draw(REQUESTS, 40)), (2, draw(ANSWERS, 80))):
        streams = [wire.encode(message) for message in messages]
        yield from (bytes((who, 29)) + stream for stream in streams)
        yield from (
            bytes((who | MEND, 5)) + b"".join(streams[start : start + 5]) for start in range(0, len(streams), 5)
        )


def one(data: bytes) -> None:
    """Decode a stream; messages survive a round trip, and frames match their declaration."""
    who, stream = data[0] if data else 0, data[1:]
    decoder = wire.request_decoder if not who & 2 else lambda: wire.answer_decoder(FRAMES)
    for message in check_stream(decoder, stream, RemoteError, keeps=False)[0]:
        assert decoder().feed(wire.encode(message)) == [message]
        if isinstance(message, wire.Records):
            _check_frames(message, bool(who & MEND))


def _check_frames(part: wire.Records, mend: bool) -> None:
    frames = _mended(part.frames) if mend else part.frames
    whole = wire.Records(part.id, part.first, part.next, part.end, frames=frames)
    blocks, error = attempt(lambda: wire.blocks_of(whole, "stream", 0), RemoteError)
    if error is not None:
        return
    low = part.first
    for block in blocks:
        for record in block.records():
            assert low <= record.sequence < part.next
            low = record.sequence + 1
        check_size(block.payloads(), len(frames))


def _mended(frames: bytes) -> bytes:
    """Return frames with valid checksums."""
    mended, start = bytearray(frames), 0
    while len(mended) - start >= HEADER.size:
        size = struct.unpack_from("<I", mended, start + 12)[0]
        end = start + HEADER.size
        struct.pack_into("<I", mended, end - 12, zlib.crc32(mended[end : end + size]))
        struct.pack_into("<I", mended, end - 4, zlib.crc32(mended[start : end - 4]))
        start = end + size
    return bytes(mended)
