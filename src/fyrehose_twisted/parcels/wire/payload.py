"""The application data of our own parcels: one CBOR array, with the fields of the message in their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args, get_type_hints

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.parcels.wire.cbor import NULL, BadParcel, array, integer, octets, read_plain, shown
from fyrehose_twisted.parcels.wire.field_codecs import (
    ANY_OCTETS,
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
    Kind,
    Unfit,
    check_end,
    read_number,
    row,
    rows,
    write_number,
)
from fyrehose_twisted.parcels.wire.head import pack_host, unpack_host
from fyrehose_twisted.parcels.wire.messages import (
    MAX_DATA,
    Append,
    Appended,
    Beat,
    Entry,
    EntryKind,
    Fetch,
    Fetched,
    Hello,
    Member,
    Message,
    Mode,
    NotPublished,
    Parcel,
    Proof,
    Publish,
    Published,
    Refusal,
    Refused,
    Run,
    StatePart,
    StateTaken,
    View,
    VoteAsked,
    VoteGiven,
    Welcome,
)

MAX_MEMBERS = 256
"""Members of one view."""

_DEPTH = 6
"""How deep the deepest goes: the events of the runs of an entry of an Append, all of them arrays."""


def _write_run(run: Run) -> bytes:
    check_end(run.first, len(run.events))
    return b"".join(
        (
            array(4),
            PUBLISHER.write(run.publisher),
            write_number(run.epoch),
            write_number(run.first),
            EVENTS.write(run.events),
        )
    )


def _read_run(value: Any) -> Run:
    publisher, epoch, first, events = row(value, 4)
    events = EVENTS.read(events)
    check_end(read_number(first), len(events))
    return Run(PUBLISHER.read(publisher), read_number(epoch), first, events)


def _write_address(address: Address) -> bytes:
    host, port = address
    if not 0 <= port <= 65_535:
        raise Unfit(f"port {port} is outside 0..65535")
    return octets(pack_host(host)) + integer(port)


def _write_view(view: View) -> bytes:
    if len(view.members) > MAX_MEMBERS:
        raise Unfit(f"a view of {len(view.members)} members is over the limit of {MAX_MEMBERS}")
    parts = [array(len(view.members))]
    for member, address in view.members:
        parts += [array(4), NAME.write(member.name), write_number(member.incarnation), _write_address(address)]
    return b"".join(parts)


def _read_view(value: Any) -> View:
    listed = row(value)
    if len(listed) > MAX_MEMBERS:
        raise Unfit(f"a view of {len(listed):,} members is over the limit of {MAX_MEMBERS}")
    members = []
    for each in listed:
        name, incarnation, host, port = row(each, 4)
        if type(host) is not bytes or len(host) not in (4, 16):
            raise Unfit(f"{shown(host)} is no IP address")
        if type(port) is not int or not 0 <= port <= 65_535:
            raise Unfit(f"{shown(port)} is no port")
        members.append((Member(NAME.read(name), read_number(incarnation)), (unpack_host(host), port)))
    return View(tuple(members))


class EntryWriter:
    """Writes entries, and remembers what it wrote of the last ones: each goes to every follower.

    It knows an entry by identity, so what is in one may not be changed once it was sent.
    """

    ENTRIES = 64
    SIZE = 262_144
    """Bytes that are remembered, but for the last entry."""

    def __init__(self) -> None:
        # With the entry itself, so that no other can take its identity.
        self._written: dict[int, tuple[Entry, bytes]] = {}
        self._size = 0

    def write(self, entries: Sequence[Entry]) -> bytes:
        """Return the array of ``entries``."""
        parts = [array(len(entries))]
        for entry in entries:
            known = self._written.get(id(entry))
            if known is None:
                known = (entry, _write_entry(entry))
                self._remember(known)
            parts.append(known[1])
        return b"".join(parts)

    def _remember(self, written: tuple[Entry, bytes]) -> None:
        self._size += len(written[1])
        while self._written and (len(self._written) >= self.ENTRIES or self._size > self.SIZE):
            oldest = next(iter(self._written))
            self._size -= len(self._written.pop(oldest)[1])
        self._written[id(written[0])] = written


def _write_entry(entry: Entry) -> bytes:
    content = entry.content
    if isinstance(content, View):
        fits, written = EntryKind.VIEW, _write_view(content)
    elif content is None:
        fits, written = EntryKind.NOTHING, NULL
    else:
        fits, written = EntryKind.EVENTS, array(len(content)) + b"".join(map(_write_run, content))
    if entry.kind is not fits:
        raise Unfit(f"an entry of kind {entry.kind!r} cannot have {shown(content)}")
    return b"".join((array(3), write_number(entry.term), integer(entry.kind), written))


def _read_entry(value: Any) -> Entry:
    term, kind, content = row(value, 3)
    kind = ENTRY_KIND.read(kind)
    if kind is EntryKind.EVENTS:
        content = tuple(map(_read_run, row(content)))
    elif kind is EntryKind.VIEW:
        content = _read_view(content)
    elif content is not None:
        raise Unfit(f"{shown(content)} in an entry of nothing")
    return Entry(read_number(term), kind, content)


def _read_entries(value: Any) -> tuple[Entry, ...]:
    return tuple(map(_read_entry, row(value)))


def _check_append(message: Append) -> None:
    check_end(message.previous + 1, len(message.entries))


def _check_published(message: Published) -> None:
    for first, count in message.sequences:
        check_end(first, count)


def _check_fetched(message: Fetched) -> None:
    check_end(message.first, len(message.events))


_CHECKS: dict[type, Callable[[Any], None]] = {
    Append: _check_append,
    Published: _check_published,
    Fetched: _check_fetched,
}
"""What has to hold of several fields together."""

_RUN = Kind(_write_run, _read_run)
_ENTRIES = Kind(lambda entries: EntryWriter().write(entries), _read_entries)
_SEQUENCES, _EVENTS = rows(NUMBER, NUMBER), rows(PUBLISHER, NUMBER, NUMBER, EVENT)

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
_BY_TYPE = {int: NUMBER, bool: FLAG, bytes: ANY_OCTETS, Mode: MODE, Refusal: REFUSAL}

_KINDS: dict[type[Any], tuple[Kind, ...]] = {
    message: tuple([_BY_NAME.get(name) or _BY_TYPE[hint] for name, hint in get_type_hints(message).items()])
    for message in get_args(Message)
    if message is not Parcel
}
"""What stands in the places of each message: what its fields have to have by their names, or else by their types."""

ANSWERS = frozenset((Welcome, Refused, VoteGiven, Appended, StateTaken, Published, NotPublished, Fetched))
"""Those whose head says that they are a response."""

WIRE_NAMES: dict[type[Any], str] = {
    Hello: "Hello",
    Welcome: "Welcome",
    Proof: "Proof",
    Refused: "Refused",
    Beat: "Beat",
    VoteAsked: "VoteAsked",
    VoteGiven: "VoteGiven",
    Append: "Append",
    Appended: "Appended",
    StatePart: "StatePart",
    StateTaken: "StateTaken",
    Publish: "Publish",
    Published: "Published",
    NotPublished: "NotPublished",
    Fetch: "Fetch",
    Fetched: "Fetched",
}
"""Types of our own parcels as a head names them. They are part of the protocol, whatever the classes are called."""

_READERS = {WIRE_NAMES[kind]: (kind, [each.read for each in kinds]) for kind, kinds in _KINDS.items()}


def is_ours(name: str) -> bool:
    """Return whether a parcel of this type is one of our own."""
    return name in _READERS


class PayloadWriter:
    """Writes the application data of our own parcels."""

    def __init__(self) -> None:
        self._writers = {kind: [each.write for each in kinds] for kind, kinds in _KINDS.items()}
        self._writers[Append][Append._fields.index("entries")] = EntryWriter().write

    def write(self, message: Message) -> bytes:
        """Return the application data of a message of our own.

        :raises UnencodableMessage: if it does not fit, or a field is out of its range.
        """
        kind = type(message)
        writers = self._writers[kind]
        parts = [array(len(writers))]
        try:
            if kind in _CHECKS:
                _CHECKS[kind](message)
            for write, value in zip(writers, message, strict=True):
                parts.append(write(value))
        except (Unfit, UnicodeEncodeError) as error:
            raise UnencodableMessage(f"{kind.__name__}: {error}") from None
        data = b"".join(parts)
        if len(data) > MAX_DATA:
            raise UnencodableMessage(
                f"{kind.__name__} of {len(data):,} bytes does not fit the {MAX_DATA:,} of one parcel"
            )
        return data


def read_payload(name: str, data: bytes) -> Message:
    """Return the message of type ``name`` with this application data.

    :raises BadParcel: if it is none.
    """
    kind, readers = _READERS[name]
    content = read_plain(data, _DEPTH)
    if type(content) is not list or len(content) != len(readers):
        raise BadParcel("bad-payload", f"{name} is {shown(content)}, not an array of {len(readers)}")
    values: list[Any] = []
    try:
        for read, value in zip(readers, content, strict=True):
            values.append(read(value))
        message: Message = kind(*values)
        if kind in _CHECKS:
            _CHECKS[kind](message)
    except Unfit as error:
        place = f".{kind._fields[len(values)]}" if len(values) < len(readers) else ""
        raise BadParcel("bad-payload", f"{name}{place}: {error}") from None
    return message
