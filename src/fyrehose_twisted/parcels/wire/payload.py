"""Codec of the application data of extension parcels: one CBOR array of the message's fields."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args, get_type_hints

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
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.parcels.wire.cbor import (
    NULL,
    BadParcel,
    decode_plain,
    encode_array_header,
    encode_bytes,
    encode_integer,
    truncate_repr,
)
from fyrehose_twisted.parcels.wire.field_codecs import (
    ANY_BYTES,
    ENTRY_KIND,
    EVENT,
    EVENTS,
    FLAG,
    MODE,
    NAME,
    NONCE,
    NUMBER,
    PROOF,
    PUBLISHER,
    REFUSAL,
    TEXT,
    FieldCodec,
    InvalidField,
    array_of,
    check_array,
    check_range_end,
    read_number,
    write_number,
)
from fyrehose_twisted.parcels.wire.head import pack_host, unpack_host
from fyrehose_twisted.parcels.wire.messages import (
    MAX_DATA,
    Dismissal,
    FetchEvents,
    FetchEventsReply,
    FetchState,
    FetchStateReply,
    Heartbeat,
    Hello,
    Message,
    Mode,
    Parcel,
    Proof,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
)

MAX_MEMBERS = 256
"""Maximum number of members in a membership."""

_MAX_DEPTH = 6
"""Nesting of the deepest message: the events of the runs of the entries of an AppendEntries."""


def _write_run(run: PublisherRun) -> bytes:
    check_range_end(run.first, len(run.events))
    expect = run.expect
    parts = (
        encode_array_header(4 if expect is None else 5),
        PUBLISHER.write(run.publisher),
        write_number(run.epoch),
        write_number(run.first),
        EVENTS.write(run.events),
    )
    return b"".join(parts if expect is None else (*parts, write_number(expect)))


def _read_run(value: Any) -> PublisherRun:
    fields = check_array(value)
    publisher, epoch, first, events = check_array(fields[:4], 4)
    events = EVENTS.read(events)
    check_range_end(read_number(first), len(events))
    expect = read_number(*check_array(fields[4:], 1)) if len(fields) != 4 else None
    return PublisherRun(PUBLISHER.read(publisher), read_number(epoch), first, events, expect)


def _write_address(address: Address) -> bytes:
    host, port = address
    if not 0 <= port <= 65_535:
        raise InvalidField(f"port {port} is outside 0..65535")
    return encode_bytes(pack_host(host)) + encode_integer(port)


def _write_membership(view: Membership) -> bytes:
    if len(view.members) > MAX_MEMBERS:
        raise InvalidField(f"a membership of {len(view.members)} members is over the limit of {MAX_MEMBERS}")
    parts = [encode_array_header(len(view.members))]
    for member, address in view.members:
        parts += [
            encode_array_header(4),
            NAME.write(member.name),
            write_number(member.incarnation),
            _write_address(address),
        ]
    return b"".join(parts)


def _read_membership(value: Any) -> Membership:
    listed = check_array(value)
    if len(listed) > MAX_MEMBERS:
        raise InvalidField(f"a membership of {len(listed):,} members is over the limit of {MAX_MEMBERS}")
    members = []
    for each in listed:
        name, incarnation, host, port = check_array(each, 4)
        if type(host) is not bytes or len(host) not in (4, 16):
            raise InvalidField(f"{truncate_repr(host)} is not an IP address")
        if type(port) is not int or not 0 <= port <= 65_535:
            raise InvalidField(f"{truncate_repr(port)} is not a port")
        members.append((MemberId(NAME.read(name), read_number(incarnation)), (unpack_host(host), port)))
    return Membership(tuple(members))


class EntryWriter:
    """Entry encoder with a cache, because each entry is sent to every follower.

    The cache is keyed by identity, so an entry must not be changed after it was sent.
    """

    MAX_ENTRIES = 64
    MAX_BYTES = 262_144
    """Maximum size of the cache in bytes, not counting the latest entry."""

    def __init__(self) -> None:
        # A reference to the entry keeps its identity from being reused.
        self._cache: dict[int, tuple[LogEntry, bytes]] = {}
        self._size = 0

    def write(self, entries: Sequence[LogEntry]) -> bytes:
        """Encode ``entries`` as an array."""
        parts = [encode_array_header(len(entries))]
        for entry in entries:
            known = self._cache.get(id(entry))
            if known is None:
                known = (entry, _write_entry(entry))
                self._add_to_cache(known)
            parts.append(known[1])
        return b"".join(parts)

    def _add_to_cache(self, written: tuple[LogEntry, bytes]) -> None:
        self._size += len(written[1])
        while self._cache and (len(self._cache) >= self.MAX_ENTRIES or self._size > self.MAX_BYTES):
            oldest = next(iter(self._cache))
            self._size -= len(self._cache.pop(oldest)[1])
        self._cache[id(written[0])] = written


def _write_entry(entry: LogEntry) -> bytes:
    content = entry.content
    if isinstance(content, Membership):
        fits, written = EntryKind.MEMBERSHIP, _write_membership(content)
    elif content is None:
        fits, written = EntryKind.NO_OP, NULL
    else:
        fits, written = EntryKind.DATA, encode_array_header(len(content)) + b"".join(map(_write_run, content))
    if entry.kind is not fits:
        raise InvalidField(f"an entry of kind {entry.kind!r} cannot have {truncate_repr(content)}")
    return b"".join((encode_array_header(3), write_number(entry.term), encode_integer(entry.kind), written))


def _read_entry(value: Any) -> LogEntry:
    term, kind, content = check_array(value, 3)
    kind = ENTRY_KIND.read(kind)
    if kind is EntryKind.DATA:
        content = tuple(map(_read_run, check_array(content)))
    elif kind is EntryKind.MEMBERSHIP:
        content = _read_membership(content)
    elif content is not None:
        raise InvalidField(f"{truncate_repr(content)} in an entry without content")
    return LogEntry(read_number(term), kind, content)


def _read_entries(value: Any) -> tuple[LogEntry, ...]:
    return tuple(map(_read_entry, check_array(value)))


def _check_append_entries(message: AppendEntries) -> None:
    check_range_end(message.previous + 1, len(message.entries))


def _check_publish_ack(message: PublishAck) -> None:
    for first, count in message.sequences:
        check_range_end(first, count)


def _check_fetch_reply(message: FetchEventsReply) -> None:
    check_range_end(message.first, len(message.events))


_CHECKS: dict[type, Callable[[Any], None]] = {
    AppendEntries: _check_append_entries,
    PublishAck: _check_publish_ack,
    FetchEventsReply: _check_fetch_reply,
}
"""Checks that involve several fields."""

_RUN = FieldCodec(_write_run, _read_run)
_ENTRIES = FieldCodec(lambda entries: EntryWriter().write(entries), _read_entries)
_SEQUENCES, _EVENTS = array_of(NUMBER, NUMBER), array_of(PUBLISHER, NUMBER, NUMBER, EVENT)

_BY_NAME = {
    "cluster": NAME,
    "name": NAME,
    "nonce": NONCE,
    "proof": PROOF,
    "text": TEXT,
    "publisher": PUBLISHER,
    "run": _RUN,
    "entries": _ENTRIES,
    "sequences": _SEQUENCES,
    "events": _EVENTS,
}
_BY_TYPE = {int: NUMBER, bool: FLAG, bytes: ANY_BYTES, Mode: MODE, RefusalReason: REFUSAL}

_FIELD_CODECS: dict[type[Any], tuple[FieldCodec, ...]] = {
    message: tuple([_BY_NAME.get(name) or _BY_TYPE[hint] for name, hint in get_type_hints(message).items()])
    for message in get_args(Message)
    if message is not Parcel
}
"""Field codecs of each message, chosen by field name, or else by field type."""

RESPONSES = frozenset(
    (
        Welcome,
        Refused,
        RequestVoteReply,
        AppendEntriesReply,
        InstallSnapshotReply,
        PublishAck,
        PublishNack,
        FetchEventsReply,
        FetchStateReply,
    )
)
"""Messages whose head is marked as a response."""

WIRE_NAMES: dict[type[Any], str] = {
    Hello: "Hello",
    Welcome: "Welcome",
    Proof: "Proof",
    Refused: "Refused",
    Heartbeat: "Beat",
    RequestVote: "VoteAsked",
    RequestVoteReply: "VoteGiven",
    AppendEntries: "Append",
    AppendEntriesReply: "Appended",
    InstallSnapshot: "StatePart",
    InstallSnapshotReply: "StateTaken",
    Publish: "Publish",
    PublishAck: "Published",
    PublishNack: "NotPublished",
    FetchEvents: "Fetch",
    FetchEventsReply: "Fetched",
    FetchState: "FetchState",
    FetchStateReply: "FetchedState",
    StartElection: "TakeOver",
    ForcedRequestVote: "VoteOrdered",
    Dismissal: "Dismissed",
}
"""Names of extension types in heads. They are part of the protocol and independent of class names."""

_READERS = {WIRE_NAMES[kind]: (kind, [each.read for each in kinds]) for kind, kinds in _FIELD_CODECS.items()}


def is_extension_type(name: str) -> bool:
    """Return whether ``name`` is an extension type."""
    return name in _READERS


class PayloadWriter:
    """Encoder of the application data of extension parcels."""

    def __init__(self) -> None:
        self._writers = {kind: [each.write for each in kinds] for kind, kinds in _FIELD_CODECS.items()}
        self._writers[AppendEntries][AppendEntries._fields.index("entries")] = EntryWriter().write

    def write(self, message: Message) -> bytes:
        """Encode the application data of a message.

        :raises UnencodableMessage: if it does not fit, or a field is out of range.
        """
        kind = type(message)
        writers = self._writers[kind]
        parts = [encode_array_header(len(writers))]
        try:
            if kind in _CHECKS:
                _CHECKS[kind](message)
            for write, value in zip(writers, message, strict=True):
                parts.append(write(value))
        except (InvalidField, UnicodeEncodeError) as error:
            raise UnencodableMessage(f"{WIRE_NAMES[kind]}: {error}") from None
        data = b"".join(parts)
        if len(data) > MAX_DATA:
            raise UnencodableMessage(
                f"{WIRE_NAMES[kind]} of {len(data):,} bytes does not fit the {MAX_DATA:,} of one parcel"
            )
        return data


def read_payload(name: str, data: bytes) -> Message:
    """Decode the application data of a message of type ``name``.

    :raises BadParcel: if it is malformed.
    """
    kind, readers = _READERS[name]
    content = decode_plain(data, _MAX_DEPTH)
    if type(content) is not list or len(content) != len(readers):
        raise BadParcel("bad-payload", f"{name} is {truncate_repr(content)}, not an array of {len(readers)}")
    values: list[Any] = []
    try:
        for read, value in zip(readers, content, strict=True):
            values.append(read(value))
        message: Message = kind(*values)
        if kind in _CHECKS:
            _CHECKS[kind](message)
    except InvalidField as error:
        place = f".{kind._fields[len(values)]}" if len(values) < len(readers) else ""
        raise BadParcel("bad-payload", f"{name}{place}: {error}") from None
    return message
