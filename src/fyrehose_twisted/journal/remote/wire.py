"""Codec of the journal protocol over TCP, without I/O. The protocol is described in docs/reference/journal-wire.md.

A message is a 4-byte little-endian length and a CBOR map of that length. The map of :class:`Records` is followed by
frames as in segment files, which a receiver can use as columns without parsing single records.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from io import BytesIO
from typing import Any, NamedTuple, NoReturn

from cbor2 import CBORDecoder, dumps
from zope.interface import implementer

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IStreamDecoder
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.frames import (
    DENSE,
    HEADER,
    MAX_PAYLOAD,
    MAX_RECORDS,
    BadFrame,
    FrameHeader,
    FrameKind,
    FramePosition,
    block_frame,
    check_body,
    read_header,
    read_records,
)

VERSION = 1
NONCE_SIZE, MAC_SIZE = 16, 32
MAX_INTEGER = 2**63 - 1
"""Highest integer in a message."""

MAX_REQUEST = 4_096
"""Bytes of a map from a client."""
MAX_ANSWER = 2**20
"""Bytes of a map from a server."""
MAX_FRAMES = MAX_PAYLOAD + 2**20
"""Bytes of frames in one message: enough for the largest record."""
MAX_RANGES = 8_192
"""Ranges in one message."""
MAX_DAMAGES = 64
"""Damaged places in one message."""
MAX_ENTRIES = 512
"""Streams plus epochs in one message."""
MAX_URI = 1_024
"""Bytes of a stream's URI."""
MAX_TEXT = 2_048
"""Characters of a human-readable text."""

NO_POSITION = FramePosition(0, 0, 0)
"""Position of a frame that is not in a segment."""

# Names of errors.
BAD_REQUEST, TOO_MANY, TIMED_OUT, WRONG_SECRET = "bad-request", "too-many", "timed-out", "wrong-secret"
UNKNOWN_STREAM, NOT_IN_JOURNAL, DAMAGED, FAILED = "unknown-stream", "not-in-journal", "damaged", "failed"


class EpochInfo(NamedTuple):
    """Bounds of an epoch; see :class:`~fyrehose_twisted.journal.coverage.Bounds`."""

    epoch: int
    first: int
    next: int
    last: int


class StreamInfo(NamedTuple):
    """A stream that the server provides.

    A long list of epochs is split over several entries with the same ``stream``.
    """

    stream: str
    wrap: int
    """Modulus of the sequence numbers; 0 if they do not wrap."""
    epochs: tuple[EpochInfo, ...]


@dataclass(frozen=True, slots=True)
class Greeting:
    """First message of the server. ``secret`` tells whether it requires :func:`proof` of a secret."""

    version: int
    nonce: bytes
    secret: bool


@dataclass(frozen=True, slots=True)
class Hello:
    """Response of the client to the greeting. ``mac`` is empty if no secret is required."""

    version: int
    mac: bytes


@dataclass(frozen=True, slots=True)
class Welcome:
    """The server accepts requests from the client."""

    version: int


@dataclass(frozen=True, slots=True)
class ListStreams:
    """Request for the list of streams, answered with :class:`Streams`."""

    id: int


@dataclass(frozen=True, slots=True)
class Read:
    """Request for the records at ``first`` to ``last``, answered with :class:`Records`.

    :ivar limit: bytes of frames after which the response may end. ``next`` of its last message is where to continue.
    :ivar skip: whether to leave out and report damaged parts. Otherwise damage is an error.
    """

    id: int
    stream: str
    epoch: int
    first: int
    last: int
    limit: int
    skip: bool


@dataclass(frozen=True, slots=True)
class ListRanges:
    """Request for the lost or the held ranges within ``first`` to ``last``, answered with :class:`Ranges`."""

    id: int
    stream: str
    epoch: int
    first: int
    last: int
    lost: bool


@dataclass(frozen=True, slots=True)
class Ranges:
    """The requested ranges from ``first`` up to ``next``, exclusive. ``end`` is set in the last part of a response."""

    id: int
    first: int
    next: int
    end: bool
    ranges: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Streams:
    """Streams that the server provides. ``end`` is set in the last part of a response.

    :ivar tags: tag of each stream's journal; empty if the server does not report tags.
    :ivar damages: damage and missing files, each with its stream.
    """

    id: int
    streams: tuple[StreamInfo, ...]
    end: bool
    tags: tuple[int | None, ...] = ()
    damages: tuple[tuple[str, Damage], ...] = ()


@dataclass(frozen=True, slots=True)
class Records:
    """Records and losses from ``first`` up to ``next``, exclusive. ``end`` is set in the last part of a response."""

    id: int
    first: int
    next: int
    end: bool
    losses: tuple[tuple[int, int], ...] = ()
    damages: tuple[Damage, ...] = ()
    frames: bytes = b""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Error with a stable ``name`` and a human-readable ``text``. Without ``id`` it ends the connection."""

    id: int | None
    name: str
    text: str
    damage: Damage | None = None


Request = ListStreams | Read | ListRanges
Message = Greeting | Hello | Welcome | Request | Streams | Records | Ranges | Refusal


def proof(secret: bytes, nonce: bytes) -> bytes:
    """Return the proof that a client knows the secret: 32 bytes of HMAC-SHA-256, valid for one nonce."""
    return hmac.digest(secret, b"fyrehose journal" + nonce, "sha256")


def encode(message: Message) -> bytes:
    """Encode one message."""
    kind = _KINDS[type(message)]
    content = {field.name: getattr(message, field.name) for field in fields(message)}
    frames = content.pop("frames", b"")
    if kind == "records":
        content["bytes"] = len(frames)
    packed = dumps({"kind": kind, **content})
    return b"".join((len(packed).to_bytes(4, "little"), packed, frames))


def frame_of(block: Block) -> bytes:
    """Encode ``block``, which must be within the limits of one frame, as a frame."""
    return bytes(block_frame(NO_POSITION, block)[1])


def request_decoder() -> Decoder:
    """Return a decoder for the server side of one connection."""
    return Decoder(_REQUESTS, MAX_REQUEST, 0)


def answer_decoder(frames_limit: int = MAX_FRAMES) -> Decoder:
    """Return a decoder for the client side of one connection.

    :param frames_limit: bytes of frames allowed in one message.
    """
    return Decoder(_ANSWERS, MAX_ANSWER, frames_limit)


@implementer(IStreamDecoder)
class Decoder:
    """Stream decoder that buffers at most one message and one piece of input.

    See :class:`~fyrehose_twisted.interfaces.IStreamDecoder`.

    :param shapes: messages that are accepted.
    :param map_limit: bytes allowed in a map.
    :param frames_limit: bytes of frames allowed after a map.
    """

    def __init__(self, shapes: Mapping[str, _Shape], map_limit: int, frames_limit: int) -> None:
        self._shapes = shapes
        self._map_limit = map_limit
        self._frames_limit = frames_limit
        self._buffer = bytearray()
        self._wanted = 4
        self._step: Callable[[bytes], Message | None] = self._length
        self._records: Records | None = None
        self._error: RemoteError | None = None

    def feed(self, data: Datagram) -> list[Message]:
        """Decode input; return the messages that are now complete.

        :raises RemoteError: if the bytes violate the protocol.
        """
        if self._error is not None:
            raise self._error
        self._buffer += data
        found: list[Message] = []
        try:
            while len(self._buffer) >= self._wanted:
                with memoryview(self._buffer) as view:
                    piece = bytes(view[: self._wanted])
                del self._buffer[: self._wanted]
                message = self._step(piece)
                if message is not None:
                    found.append(message)
        except RemoteError as error:
            self._error = error
            self._buffer.clear()
            raise
        return found

    def _length(self, piece: bytes) -> None:
        length = int.from_bytes(piece, "little")
        if not 1 <= length <= self._map_limit:
            raise RemoteError(f"a map of {length:,} bytes is over the limit of {self._map_limit:,}")
        self._wanted, self._step = length, self._map

    def _map(self, piece: bytes) -> Message | None:
        content = _plain(piece)
        if not isinstance(content, dict) or not isinstance(kind := content.get("kind"), str):
            raise RemoteError("a message is not a map with a kind")
        shape = self._shapes.get(kind)
        if shape is None:
            raise RemoteError(f"unexpected message of kind {kind[:40]!r}")
        message = shape.message(**{name: take(content.get(name), name) for name, take in shape.fields.items()})
        self._wanted, self._step = 4, self._length
        if isinstance(message, Ranges):
            _check_part(message, message.ranges)
        if not isinstance(message, Records):
            return message
        _check_part(message, message.losses)
        length = _number(content.get("bytes"), "bytes")
        if length > self._frames_limit:
            raise RemoteError(f"{length:,} bytes of frames are over the limit of {self._frames_limit:,}")
        if not length:
            return message
        self._records, self._wanted, self._step = message, length, self._frames
        return None

    def _frames(self, piece: bytes) -> Message:
        part, self._records = self._records, None
        self._wanted, self._step = 4, self._length
        assert part is not None
        return Records(part.id, part.first, part.next, part.end, part.losses, part.damages, piece)


def blocks_of(part: Records, stream: str, epoch: int, wrap: int = 0) -> list[Block]:
    """Decode and validate the frames of a part; return one block for each frame.

    :raises RemoteError: if a frame is invalid.
    """
    view, low = memoryview(part.frames), part.first
    found: list[Block] = []
    while view:
        try:
            header = read_header(view)
            body = view[HEADER.size : header.size]
            _check_frame(header, epoch, low, part.next)
            check_body(header, body)
        except BadFrame as error:
            raise RemoteError(f"invalid frame: {error}") from None
        block = read_records(header, body, stream, wrap)
        _check_columns(header, block)
        found.append(block)
        low, view = header.last + 1, view[header.size :]
    return found


def _check_frame(header: FrameHeader, epoch: int, low: int, high: int) -> None:
    if header.kind != FrameKind.RECORDS or header.epoch != epoch or header.flags & ~DENSE:
        raise BadFrame(f"kind {header.kind}, flags {header.flags}, epoch {header.epoch}")
    if not 1 <= header.entries <= MAX_RECORDS:
        raise BadFrame(f"{header.entries:,} records are over the limit of {MAX_RECORDS:,}")
    if header.base < low or header.last >= high:
        raise BadFrame(f"numbers {header.base} to {header.last} are outside of {low} to {high - 1}")


def _check_columns(header: FrameHeader, block: Block) -> None:
    offsets, spare = block.offsets, len(block.payload) - int(block.offsets[-1])
    if int(offsets[0]) != 0 or not 0 <= spare < 8 or bool((offsets[1:] < offsets[:-1]).any()):
        raise RemoteError("invalid frame: its payload offsets are not ascending within its body")
    if int(block.times.min()) < 0:
        raise RemoteError("invalid frame: a time is below 0")
    positions = block.positions
    rising = bool(header.flags & DENSE) or bool((positions[1:] > positions[:-1]).all())
    if not rising or (block.first, block.last) != (header.base, header.last):
        raise RemoteError("invalid frame: its numbers are not ascending, or do not match its header")


def _check_part(part: Records | Ranges, ranges: tuple[tuple[int, int], ...]) -> None:
    low = part.first
    for first, last in ranges:
        if not low <= first <= last:
            raise RemoteError("ranges are not ascending")
        low = last + 1
    if low > part.next:
        raise RemoteError(f"a part from {part.first} up to {part.next} has ranges beyond it")


# Fields


def _plain(packed: bytes) -> Any:
    stream = BytesIO(packed)
    try:
        content = CBORDecoder(
            stream,
            tag_hook=_refuse,
            semantic_decoders=_NO_TAGS,
            max_depth=5,
            allow_indefinite=False,
            allow_duplicate_keys=False,
            strict_hashable_types=True,
        ).decode()
    except Exception as error:  # The library may raise anything on hostile input.
        raise RemoteError(f"a message is not plain CBOR ({type(error).__name__})") from None
    if stream.tell() != len(packed):
        raise RemoteError("a message has data after its map")
    return content


def _refuse(*_: object) -> NoReturn:
    raise RemoteError("a message has CBOR tags")


_NO_TAGS = dict.fromkeys(
    [*range(6), 25, 28, 29, 30, 35, 36, 37, 52, 54, 100, 256, *range(258, 262), 1004, 43000, 55799], _refuse
)
"""Tags that the library decodes itself. It passes all others to the hook."""


def _wrong(name: str) -> NoReturn:
    raise RemoteError(f"{name!r} of a message is missing or wrong")


def _number(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_INTEGER:
        _wrong(name)
    return value


def _last(value: object, name: str) -> int:
    return -1 if value == -1 and type(value) is int else _number(value, name)


def _optional(value: object, name: str) -> int | None:
    return None if value is None else _number(value, name)


def _flag(value: object, name: str) -> bool:
    if not isinstance(value, bool):
        _wrong(name)
    return value


def _text(value: object, name: str, limit: int = MAX_TEXT) -> str:
    if not isinstance(value, str) or len(value) > limit:
        _wrong(name)
    return value


def _uri(value: object, name: str) -> str:
    return _text(value, name, MAX_URI)


def _nonce(value: object, name: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != NONCE_SIZE:
        _wrong(name)
    return value


def _mac(value: object, name: str) -> bytes:
    if not isinstance(value, bytes) or len(value) not in (0, MAC_SIZE):
        _wrong(name)
    return value


def _row(value: object, name: str, length: int) -> list[Any]:
    if not isinstance(value, list) or len(value) != length:
        _wrong(name)
    return value


def _rows(value: object, name: str, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        _wrong(name)
    return value


def _ranges(value: object, name: str) -> tuple[tuple[int, int], ...]:
    pairs = [_row(pair, name, 2) for pair in _rows(value, name, MAX_RANGES)]
    return tuple((_number(first, name), _number(last, name)) for first, last in pairs)


def _damage(value: object, name: str) -> Damage:
    file, offset, length, reason, epoch, first, last = _row(value, name, 7)
    numbers = _optional(epoch, name), _optional(first, name), _optional(last, name)
    return Damage(_text(file, name), _number(offset, name), _number(length, name), _text(reason, name), *numbers)


def _damages(value: object, name: str) -> tuple[Damage, ...]:
    return tuple(_damage(row, name) for row in _rows(value, name, MAX_DAMAGES))


def _tags(value: object, name: str) -> tuple[int | None, ...]:
    return () if value is None else tuple(_optional(tag, name) for tag in _rows(value, name, MAX_ENTRIES))


def _streams_damages(value: object, name: str) -> tuple[tuple[str, Damage], ...]:
    rows = [] if value is None else [_row(row, name, 2) for row in _rows(value, name, MAX_DAMAGES)]
    return tuple((_uri(stream, name), _damage(damage, name)) for stream, damage in rows)


def _optional_damage(value: object, name: str) -> Damage | None:
    return None if value is None else _damage(value, name)


def _epoch(value: object, name: str) -> EpochInfo:
    epoch, first, following, last = _row(value, name, 4)
    return EpochInfo(_number(epoch, name), _number(first, name), _number(following, name), _last(last, name))


def _stream(value: object, name: str) -> StreamInfo:
    stream, wrap, epochs = _row(value, name, 3)
    rows = _rows(epochs, name, MAX_ENTRIES)
    return StreamInfo(_uri(stream, name), _number(wrap, name), tuple(_epoch(row, name) for row in rows))


def _streams(value: object, name: str) -> tuple[StreamInfo, ...]:
    return tuple(_stream(row, name) for row in _rows(value, name, MAX_ENTRIES))


class _Shape(NamedTuple):
    message: Callable[..., Message]
    fields: Mapping[str, Callable[[object, str], object]]


_RANGE = {"id": _number, "stream": _uri, "epoch": _number, "first": _number, "last": _number}
_REQUESTS = {
    "hello": _Shape(Hello, {"version": _number, "mac": _mac}),
    "list-streams": _Shape(ListStreams, {"id": _number}),
    "read": _Shape(Read, {**_RANGE, "limit": _number, "skip": _flag}),
    "list-ranges": _Shape(ListRanges, {**_RANGE, "lost": _flag}),
}
_PART = {"id": _number, "first": _number, "next": _number, "end": _flag}
_ANSWERS = {
    "greeting": _Shape(Greeting, {"version": _number, "nonce": _nonce, "secret": _flag}),
    "welcome": _Shape(Welcome, {"version": _number}),
    "streams": _Shape(
        Streams,
        {"id": _number, "streams": _streams, "end": _flag, "tags": _tags, "damages": _streams_damages},
    ),
    "records": _Shape(Records, {**_PART, "losses": _ranges, "damages": _damages}),
    "ranges": _Shape(Ranges, {**_PART, "ranges": _ranges}),
    "refusal": _Shape(Refusal, {"id": _optional, "name": _text, "text": _text, "damage": _optional_damage}),
}
_KINDS: dict[object, str] = {shape.message: kind for kind, shape in {**_REQUESTS, **_ANSWERS}.items()}
