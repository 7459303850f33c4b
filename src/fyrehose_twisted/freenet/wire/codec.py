"""Messages on a stream. Document 003 fixes no bytes, so these are ours: four bytes that say how long the rest is
(big-endian), and an array in CBOR (RFC 8949): a number for the kind of message, and its fields in the order of
:mod:`~fyrehose_twisted.freenet.wire.messages`. Each message is written in one way only: numbers as short as possible,
locations in eight bytes, lengths before what they are of.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple

import cbor2
from zope.interface import implementer

from fyrehose_twisted.errors import MalformedPacket, RemoteError, UnencodableMessage
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
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder

__all__ = ["MAX_FRAME", "Code", "FreenetCodec", "FreenetDecoder"]

MAX_FRAME = 2_048
"""Bytes of one message, without those that say how long it is; a longer one ends the connection."""
_PREFIX = 4


class Code(IntEnum):
    """What an array begins with."""

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


def _whole(low: int, high: int) -> Callable[[Any], bool]:
    # type() and not isinstance(): a bool is no number here.
    return lambda value: type(value) is int and low <= value <= high


def _location(value: Any) -> bool:
    return type(value) is float and 0.0 <= value < 1.0


def _perhaps_location(value: Any) -> bool:
    return value is None or _location(value)


def _bytes(*sizes: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is bytes and len(value) in sizes


def _data(value: Any) -> bool:
    return type(value) is bytes and len(value) <= MAX_DATA


def _flag(value: Any) -> bool:
    return type(value) is bool


def _reason(value: Any) -> bool:
    return type(value) is str and len(value) <= MAX_REASON and value.isprintable()


_UID = _whole(0, MAX_UID)
_PACKET = _whole(0, MAX_PACKET)
_FIELDS: dict[str, Callable[[Any], bool]] = {
    "node": _UID,
    "boot": _UID,
    "uid": _UID,
    "location": _location,
    "best": _location,
    "must_beat": _location,
    "root": _location,
    "place": _location,
    "busy": _perhaps_location,
    "nonce": _bytes(NONCE_SIZE),
    "proof": _bytes(0, PROOF_SIZE),
    "key": _bytes(KEY_SIZE),
    "htl": _whole(0, MAX_HTL),
    "last_seen": _whole(NONE_SEEN, MAX_PACKET),
    "after": _whole(NONE_SEEN, MAX_PACKET),
    "packet": _PACKET,
    "next": _PACKET,
    "data": _data,
    "reason": _reason,
    "wanted": _flag,
}
"""What each field may be; it means the same in all messages that have it."""


class _Kind(NamedTuple):
    code: Code
    make: Callable[..., Message]
    names: tuple[str, ...]
    checks: tuple[Callable[[Any], bool], ...]


def _kind(code: Code) -> _Kind:
    make: Any = getattr(messages, "".join(word.capitalize() for word in code.name.split("_")))
    return _Kind(code, make, make._fields, tuple(_FIELDS[name] for name in make._fields))


_BY_CODE = {int(code): _kind(code) for code in Code}
_BY_TYPE: dict[Any, _Kind] = {kind.make: kind for kind in _BY_CODE.values()}


@implementer(IStreamCodec)
class FreenetCodec:
    """How the messages of :mod:`~fyrehose_twisted.freenet.wire.messages` travel."""

    def encode(self, message: Message) -> bytes:
        """Return the bytes of ``message``.

        :raises UnencodableMessage: if it is none, or a field is out of its range.
        """
        kind = _BY_TYPE.get(type(message))
        if kind is None:
            raise UnencodableMessage(f"a {type(message).__name__} is not sent")
        for check, value, name in zip(kind.checks, message, kind.names, strict=True):
            if not check(value):
                raise UnencodableMessage(f"{name}={_shown(value)} does not fit a {type(message).__name__}")
        data = cbor2.dumps([int(kind.code), *message])
        return len(data).to_bytes(_PREFIX, "big") + data

    def decoder(self) -> FreenetDecoder:
        """Return what takes the bytes of one connection apart."""
        return FreenetDecoder()


@implementer(IStreamDecoder)
class FreenetDecoder:
    """See :class:`~fyrehose_twisted.interfaces.IStreamDecoder`. Between two calls it holds less than one message.

    If a bad message comes behind good ones, the good ones are returned, and the next call raises.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._error: RemoteError | None = None

    @property
    def waiting(self) -> int:
        """Bytes that came of a message which is not complete."""
        return len(self._rest)

    def feed(self, data: bytes) -> list[Message]:
        """Return the messages that are complete now.

        :raises MalformedPacket: if there is something else; from then on, always.
        """
        if self._error is not None:
            raise self._error
        if self._rest:
            data = self._rest + data
        found: list[Message] = []
        start, end = 0, len(data)
        try:
            while end - start >= _PREFIX:
                size = int.from_bytes(data[start : start + _PREFIX], "big")
                if not 0 < size <= MAX_FRAME:
                    raise MalformedPacket("size", f"a message of {size:,} bytes; they have 1 to {MAX_FRAME:,}")
                stop = start + _PREFIX + size
                if stop > end:
                    break
                found.append(_message(data[start + _PREFIX : stop]))
                start = stop
        except RemoteError as error:
            self._error = error
            self._rest = b""
            if not found:
                raise
            return found
        self._rest = bytes(data[start:])
        return found


def _message(data: bytes) -> Message:
    try:
        items = cbor2.loads(bytes(data))
    except Exception as error:  # Whatever it raises, it is the bytes that were wrong.
        raise MalformedPacket("no-cbor", f"a message is no CBOR: {error!s:.80}") from None
    if type(items) is not list or not items or type(items[0]) is not int:
        raise MalformedPacket("no-array", "a message is no array that begins with a number")
    kind = _BY_CODE.get(items[0])
    if kind is None:
        raise MalformedPacket("unknown-code", f"messages of kind {_shown(items[0])} are not known")
    if len(items) != len(kind.checks) + 1:
        raise MalformedPacket("fields", f"a {kind.code.name} has {len(items) - 1} fields instead of {len(kind.checks)}")
    for check, value, name in zip(kind.checks, items[1:], kind.names, strict=True):
        if not check(value):
            raise MalformedPacket("bad-value", f"a {kind.code.name} has {name}={_shown(value)}")
    if cbor2.dumps(items) != data:
        raise MalformedPacket("not-plain", f"a {kind.code.name} is not written as it has to be, or goes on behind")
    return kind.make(*items[1:])


def _shown(value: Any) -> str:
    try:
        return f"{value!r:.60}"
    except ValueError:  # Of numbers of thousands of digits, Python makes no text.
        return f"a very long {type(value).__name__}"
