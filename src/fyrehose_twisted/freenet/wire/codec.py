"""Codec of freenet messages.

Document 003 defines no encoding; this one is the library's own. A frame is a four-byte big-endian length and a CBOR
array (RFC 8949): the code of the message, and its fields in the order of
:mod:`~fyrehose_twisted.freenet.wire.messages`. The encoding is canonical: shortest integers, eight-byte floats for
locations, definite lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import cbor2
from zope.interface import classImplements

from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.freenet.wire import messages
from fyrehose_twisted.freenet.wire.location import KEY_SIZE
from fyrehose_twisted.freenet.wire.messages import (
    MAX_DATA,
    MAX_HTL,
    MAX_PACKET,
    MAX_REASON,
    MAX_UID,
    NONCE_SIZE,
    NONE_SEEN,
    PROOF_SIZE,
    Message,
)
from fyrehose_twisted.interfaces import IStreamCodec
from fyrehose_twisted.length_frames import LengthFrameDecoder, frame

__all__ = ["MAX_FRAME", "FreenetCodec", "FreenetDecoder", "MessageCode"]

MAX_FRAME = 2_048
"""Maximum size of one message in bytes, without the length prefix. A longer one ends the connection."""


class MessageCode(IntEnum):
    """Code of a message, the first item of its array."""

    HELLO = 1
    PROVE = 2
    LOCATED = 3
    PING = 4
    PONG = 5
    SUBSCRIBE_REQUEST = 10
    RESUBSCRIBE_REQUEST = 11
    ACCEPTED = 12
    REJECTED_LOOP = 13
    REJECTED_OVERLOAD = 14
    REJECTED_BUSY = 15
    DATA_NOT_FOUND = 16
    ROUTE_NOT_FOUND = 17
    SUBSCRIBE_SUCCEEDED = 20
    SUBSCRIBE_SUCCEEDED_NEW_ROOT = 21
    SUBSCRIBE_RESTARTED = 22
    UNSUBSCRIBE = 23
    DISMISSED = 24
    BETTER_ROOT = 25
    RECALL = 26
    SUBSCRIBE_DATA = 30
    PUBLISH_DATA = 31
    PUBLISH_SUCCEEDED = 32
    PUBLISH_COLLISION = 33
    PUBLISH_FAILED = 34


def _integer_between(low: int, high: int) -> Callable[[Any], bool]:
    # type() rather than isinstance(), which accepts a bool as an int.
    return lambda value: type(value) is int and low <= value <= high


def _location(value: Any) -> bool:
    return type(value) is float and 0.0 <= value < 1.0


def _optional_location(value: Any) -> bool:
    return value is None or _location(value)


def _bytes(*sizes: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is bytes and len(value) in sizes


def _data(value: Any) -> bool:
    return type(value) is bytes and len(value) <= MAX_DATA


def _boolean(value: Any) -> bool:
    return type(value) is bool


def _reason(value: Any) -> bool:
    return type(value) is str and len(value) <= MAX_REASON and value.isprintable()


_UID = _integer_between(0, MAX_UID)
_PACKET = _integer_between(0, MAX_PACKET)
_FIELD_CHECKS: dict[str, Callable[[Any], bool]] = {
    "node": _UID,
    "boot": _UID,
    "uid": _UID,
    "location": _location,
    "best": _location,
    "must_beat": _location,
    "root": _location,
    "place": _location,
    "busy": _optional_location,
    "nonce": _bytes(NONCE_SIZE),
    "proof": _bytes(0, PROOF_SIZE),
    "key": _bytes(KEY_SIZE),
    "htl": _integer_between(0, MAX_HTL),
    "last_seen": _integer_between(NONE_SEEN, MAX_PACKET),
    "after": _integer_between(NONE_SEEN, MAX_PACKET),
    "packet": _PACKET,
    "next": _PACKET,
    "data": _data,
    "reason": _reason,
    "wanted": _boolean,
}
"""Check of each field, by name. A field has the same meaning in all messages."""


class _MessageType(NamedTuple):
    code: MessageCode
    make: Callable[..., Message]
    names: tuple[str, ...]
    checks: tuple[Callable[[Any], bool], ...]


def _message_type(code: MessageCode) -> _MessageType:
    make: Any = getattr(messages, "".join(word.capitalize() for word in code.name.split("_")))
    return _MessageType(code, make, make._fields, tuple(_FIELD_CHECKS[name] for name in make._fields))


_BY_CODE = {int(code): _message_type(code) for code in MessageCode}
_BY_TYPE: dict[Any, _MessageType] = {kind.make: kind for kind in _BY_CODE.values()}


class FreenetCodec:
    """Encoder and decoder factory for the messages of :mod:`~fyrehose_twisted.freenet.wire.messages`."""

    def encode(self, message: Message) -> bytes:
        """Return the frame of ``message``.

        :raises UnencodableMessage: if it is not a message, or a field is out of range.
        """
        kind = _BY_TYPE.get(type(message))
        if kind is None:
            raise UnencodableMessage(f"{type(message).__name__} is not a message")
        for check, value, name in zip(kind.checks, message, kind.names, strict=True):
            if not check(value):
                raise UnencodableMessage(f"{type(message).__name__}: {name}={_abbreviate(value)} is out of range")
        return frame(cbor2.dumps([int(kind.code), *message]))

    def decoder(self) -> FreenetDecoder:
        """Return a decoder for one connection."""
        return FreenetDecoder()


classImplements(FreenetCodec, IStreamCodec)


class FreenetDecoder(LengthFrameDecoder[Message]):
    """Decoder of one connection; see :class:`~fyrehose_twisted.length_frames.LengthFrameDecoder`."""

    def __init__(self) -> None:
        super().__init__(_decode_message, MAX_FRAME)


def _decode_message(data: bytes) -> Message:
    try:
        items = cbor2.loads(bytes(data))
    except Exception as error:  # Any exception means malformed input.
        raise MalformedPacket("no-cbor", f"message is not valid CBOR: {error!s:.80}") from None
    if type(items) is not list or not items or type(items[0]) is not int:
        raise MalformedPacket("no-array", "message is not an array that begins with a number")
    kind = _BY_CODE.get(items[0])
    if kind is None:
        raise MalformedPacket("unknown-code", f"unknown message code {_abbreviate(items[0])}")
    if len(items) != len(kind.checks) + 1:
        raise MalformedPacket("fields", f"{kind.code.name} has {len(items) - 1} fields instead of {len(kind.checks)}")
    for check, value, name in zip(kind.checks, items[1:], kind.names, strict=True):
        if not check(value):
            raise MalformedPacket("bad-value", f"{kind.code.name}: {name}={_abbreviate(value)} is out of range")
    if cbor2.dumps(items) != data:
        raise MalformedPacket("not-plain", f"{kind.code.name} is not in canonical encoding, or has trailing bytes")
    return kind.make(*items[1:])


def _abbreviate(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python refuses to format integers of thousands of digits.
        return f"a very long {type(value).__name__}"
