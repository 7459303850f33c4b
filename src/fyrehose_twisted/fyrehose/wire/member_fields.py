"""Fields of the messages between members, and of a member's state.

Each check takes a value of a message or of decoded CBOR, because both directions have the same limits: no member sends
a value that the others refuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.member_messages import MemberData, NumberBounds, Seam
from fyrehose_twisted.fyrehose.wire.packets import MAX_MEMBERS

MAX_NUMBER = 2**63 - 1
"""Highest term, index, sequence number and incarnation."""
MAX_NAME = 64
"""Maximum length of a member's name in UTF-8 bytes."""
MAX_STREAM = 256
"""Maximum length of a stream's URI in UTF-8 bytes."""


class InvalidField(ValueError):
    """A value is invalid for its field."""


def check_number(value: Any) -> int:
    """Return ``value`` if it is an unsigned number of at most 63 bits. :raises InvalidField: if not."""
    # type() rather than isinstance(), which accepts a bool as an int.
    if type(value) is not int or not 0 <= value <= MAX_NUMBER:
        raise InvalidField(f"{abbreviate(value)} is not an integer from 0 to 2**63 - 1")
    return value


def check_flag(value: Any) -> bool:
    """Return ``value`` if it is a boolean. :raises InvalidField: if not."""
    if type(value) is not bool:
        raise InvalidField(f"{abbreviate(value)} is not a boolean")
    return value


def _text(limit: int) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if type(value) is not str or not 0 < len(value.encode(errors="replace")) <= limit or not value.isprintable():
            raise InvalidField(f"{abbreviate(value)} is not printable text of 1 to {limit} bytes")
        return value

    return check


check_name, check_stream = _text(MAX_NAME), _text(MAX_STREAM)


def check_bytes(value: Any) -> bytes:
    """Return ``value`` if it is a byte string. :raises InvalidField: if not."""
    if type(value) is not bytes:
        raise InvalidField(f"{abbreviate(value)} is not a byte string")
    return value


def check_array(value: Any, count: int | None = None) -> Sequence[Any]:
    """Return ``value`` if it is an array, of ``count`` items if given. :raises InvalidField: if not."""
    # Decoded arrays are lists; those of messages are tuples.
    if not isinstance(value, list | tuple) or count not in (None, len(value)):
        raise InvalidField(f"{abbreviate(value)} is not an array" + ("" if count is None else f" of {count}"))
    return value


def _address(*, in_packets: bool) -> Callable[[Any], tuple[str, int]]:
    def check(value: Any) -> tuple[str, int]:
        host, port = check_array(value, 2)
        try:
            parsed = ip_address(host) if type(host) is str else None
        except ValueError:
            parsed = None
        if parsed is None or str(parsed) != host:
            raise InvalidField(f"{abbreviate(host)} is not an IP address")
        if in_packets and not can_be_packed((host, 0)):
            raise InvalidField(f"{host} means nothing to clients on other hosts")
        if type(port) is not int or not 0 <= port <= 65_535:
            raise InvalidField(f"{abbreviate(port)} is not a port")
        return host, port

    return check


# Clients are told of the leader's address.
check_client_address, check_peer_address = _address(in_packets=True), _address(in_packets=False)


def check_member(value: Any) -> MemberId:
    """Return the id of a member from its fields. :raises InvalidField: if it is not one."""
    name, incarnation = check_array(value, 2)
    return MemberId(check_name(name), check_number(incarnation))


def check_member_data(value: Any) -> MemberData:
    """Return what a membership records of a member from its fields. :raises InvalidField: if it is not one."""
    client, peer, witness = check_array(value, 3)
    return MemberData(check_client_address(client), check_peer_address(peer), check_flag(witness))


def check_bounds(value: Any) -> NumberBounds:
    """Return the content of an entry of kind DATA.

    :raises InvalidField: if it is not one.
    """
    bound, kept, given, exact, seams = check_array(value, 5)
    ranges = (check_array(seam, 2) for seam in check_array(seams))
    return NumberBounds(
        check_number(bound),
        check_number(kept),
        check_number(given),
        check_flag(exact),
        tuple([Seam(check_number(held_up_to), check_number(first)) for held_up_to, first in ranges]),
    )


def check_membership(value: Any) -> Membership:
    """Return a membership from its fields. :raises InvalidField: if it is not one."""
    pairs = [check_array(pair, 2) for pair in check_array(value)]
    if len(pairs) > MAX_MEMBERS:
        raise InvalidField(f"{len(pairs)} members are more than {MAX_MEMBERS}")
    return Membership(tuple([(check_member(member), check_member_data(data)) for member, data in pairs]))


def pack_entry(entry: LogEntry) -> list[Any]:
    """Return a log entry as an array for CBOR. :raises InvalidField: if it has no such form."""
    term, kind, content = entry
    if kind is EntryKind.MEMBERSHIP:
        content = check_membership(content.members).members
    elif kind is EntryKind.DATA:
        content = check_bounds(content)
    elif content is not None:
        raise InvalidField(f"an entry of kind {kind!r} has content")
    return [check_number(term), int(kind), content]


def unpack_entry(value: Any) -> LogEntry:
    """Return the log entry in an array. :raises InvalidField: if it is not one."""
    term, kind, content = check_array(value, 3)
    match check_number(kind):
        case EntryKind.DATA:
            return LogEntry(check_number(term), EntryKind.DATA, check_bounds(content))
        case EntryKind.MEMBERSHIP:
            return LogEntry(check_number(term), EntryKind.MEMBERSHIP, check_membership(content))
        case EntryKind.NO_OP if content is None:
            return LogEntry(check_number(term), EntryKind.NO_OP, None)
    raise InvalidField(f"{abbreviate(value)} is not an entry")


def abbreviate(value: Any) -> str:
    """Return the start of the representation of ``value``."""
    try:
        return f"{value!r:.60}"
    except ValueError:  # Python refuses to format integers of thousands of digits.
        return f"a very long {type(value).__name__}"
