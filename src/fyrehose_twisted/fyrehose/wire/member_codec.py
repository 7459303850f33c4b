"""Codec of the messages between members of a group of backbones.

A frame is a four-byte big-endian length and a CBOR array (RFC 8949): the kind of the message, and its fields in the
order of :mod:`~fyrehose_twisted.fyrehose.wire.member_messages` and :mod:`~fyrehose_twisted.consensus.messages`. The
encoding is canonical: shortest integers, definite lengths, no tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from io import BytesIO
from typing import Any, NamedTuple, NoReturn

import cbor2
from zope.interface import classImplements

from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    RequestVote,
    RequestVoteReply,
    StartElection,
)
from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.member_fields import (
    InvalidField,
    abbreviate,
    check_array,
    check_bytes,
    check_flag,
    check_member,
    check_member_data,
    check_number,
    check_stream,
    pack_entry,
    unpack_entry,
)
from fyrehose_twisted.fyrehose.wire.member_messages import (
    LeaseReply,
    LeaseRound,
    MemberHello,
    MemberMessage,
    Ping,
    Pong,
)
from fyrehose_twisted.interfaces import IStreamCodec
from fyrehose_twisted.length_frames import LengthFrameDecoder, frame

MAX_FRAME = 262_144
"""Maximum size of one message in bytes, without the length prefix. A longer one ends the connection."""
_MAX_DEPTH = 8


class MemberMessageKind(IntEnum):
    """Kind of a message, the first item of its array."""

    HELLO = 1
    PING = 2
    PONG = 3
    LEASE_ROUND = 4
    LEASE_REPLY = 5
    REQUEST_VOTE = 10
    REQUEST_VOTE_REPLY = 11
    APPEND_ENTRIES = 12
    APPEND_ENTRIES_REPLY = 13
    INSTALL_SNAPSHOT = 14
    INSTALL_SNAPSHOT_REPLY = 15
    START_ELECTION = 16
    FORCED_REQUEST_VOTE = 17


class _Field(NamedTuple):
    pack: Callable[[Any], Any]
    unpack: Callable[[Any], Any]


def _same(check: Callable[[Any], Any]) -> _Field:
    return _Field(check, check)


_NUMBER, _FLAG, _BYTES = _same(check_number), _same(check_flag), _same(check_bytes)
_ENTRIES = _Field(
    lambda entries: [pack_entry(entry) for entry in entries],
    lambda value: tuple([unpack_entry(entry) for entry in check_array(value)]),
)


class _MessageType(NamedTuple):
    kind: MemberMessageKind
    make: Any
    fields: tuple[_Field, ...]


_HELLO_FIELDS = _same(check_stream), _same(check_member), _same(check_member_data), _FLAG, _FLAG, _NUMBER, _NUMBER
_TYPES = (
    _MessageType(MemberMessageKind.HELLO, MemberHello, _HELLO_FIELDS),
    _MessageType(MemberMessageKind.PING, Ping, ()),
    _MessageType(MemberMessageKind.PONG, Pong, ()),
    _MessageType(MemberMessageKind.LEASE_ROUND, LeaseRound, (_NUMBER, _NUMBER, _NUMBER)),
    _MessageType(MemberMessageKind.LEASE_REPLY, LeaseReply, (_NUMBER, _NUMBER)),
    _MessageType(MemberMessageKind.REQUEST_VOTE, RequestVote, (_NUMBER, _NUMBER, _NUMBER, _FLAG)),
    _MessageType(MemberMessageKind.REQUEST_VOTE_REPLY, RequestVoteReply, (_NUMBER, _FLAG, _FLAG)),
    _MessageType(MemberMessageKind.APPEND_ENTRIES, AppendEntries, (_NUMBER, _NUMBER, _NUMBER, _NUMBER, _ENTRIES)),
    _MessageType(MemberMessageKind.APPEND_ENTRIES_REPLY, AppendEntriesReply, (_NUMBER, _FLAG, _NUMBER)),
    _MessageType(
        MemberMessageKind.INSTALL_SNAPSHOT, InstallSnapshot, (_NUMBER, _NUMBER, _NUMBER, _NUMBER, _NUMBER, _BYTES)
    ),
    _MessageType(MemberMessageKind.INSTALL_SNAPSHOT_REPLY, InstallSnapshotReply, (_NUMBER, _NUMBER, _NUMBER)),
    _MessageType(MemberMessageKind.START_ELECTION, StartElection, (_NUMBER,)),
    _MessageType(MemberMessageKind.FORCED_REQUEST_VOTE, ForcedRequestVote, (_NUMBER, _NUMBER, _NUMBER)),
)
_BY_KIND = {int(one.kind): one for one in _TYPES}
_BY_TYPE: dict[Any, _MessageType] = {one.make: one for one in _TYPES}


class MemberCodec:
    """Codec of :data:`~fyrehose_twisted.fyrehose.wire.member_messages.MemberMessage`."""

    def encode(self, message: MemberMessage) -> bytes:
        """Return the frame of ``message``.

        :raises UnencodableMessage: if it is not a message, a field is out of range, or it is too long.
        """
        found = _BY_TYPE.get(type(message))
        if found is None:
            raise UnencodableMessage(f"{type(message).__name__} is not a message of a member")
        items: list[Any] = [int(found.kind)]
        try:
            for field, value in zip(found.fields, message, strict=True):
                items.append(field.pack(value))
        except InvalidField as error:
            raise UnencodableMessage(f"{type(message).__name__}.{_field_name(found, len(items))}: {error}") from None
        data = cbor2.dumps(items)
        if len(data) > MAX_FRAME:
            raise UnencodableMessage(f"{type(message).__name__} of {len(data):,} bytes is over the {MAX_FRAME:,}")
        return frame(data)

    def decoder(self) -> LengthFrameDecoder[MemberMessage]:
        """Return a decoder for one connection."""
        return LengthFrameDecoder(_decode_message, MAX_FRAME)


classImplements(MemberCodec, IStreamCodec)


class _NoTags(Mapping[int, Any]):
    """Tag decoders that refuse every tag before its content is read: some make a few bytes arbitrarily expensive."""

    def __getitem__(self, tag: int) -> NoReturn:
        raise ValueError(f"tag {tag}")

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[int]:
        return iter(())


_NO_TAGS = _NoTags()


def _decode_message(data: bytes) -> MemberMessage:
    try:
        items = cbor2.CBORDecoder(
            BytesIO(data), semantic_decoders=_NO_TAGS, max_depth=_MAX_DEPTH, allow_indefinite=False
        ).decode()
    except Exception as error:  # Hostile bytes may raise anything in the library.
        raise MalformedPacket("no-cbor", f"message is not plain CBOR: {error!s:.80}") from None
    if type(items) is not list or not items or type(items[0]) is not int:
        raise MalformedPacket("no-array", "message is not an array that begins with a number")
    found = _BY_KIND.get(items[0])
    if found is None:
        raise MalformedPacket("unknown-kind", f"unknown kind of message {abbreviate(items[0])}")
    if len(items) != len(found.fields) + 1:
        raise MalformedPacket("fields", f"{found.kind.name} has {len(items) - 1} fields instead of {len(found.fields)}")
    values: list[Any] = []
    try:
        for field, value in zip(found.fields, items[1:], strict=True):
            values.append(field.unpack(value))
    except InvalidField as error:
        place = _field_name(found, len(values) + 1)
        raise MalformedPacket("bad-value", f"{found.kind.name}.{place}: {error}") from None
    if cbor2.dumps(items) != data:
        raise MalformedPacket("not-plain", f"{found.kind.name} is not in canonical encoding, or has trailing bytes")
    message: MemberMessage = found.make(*values)
    return message


def _field_name(found: _MessageType, position: int) -> str:
    return str(found.make._fields[position - 1])
