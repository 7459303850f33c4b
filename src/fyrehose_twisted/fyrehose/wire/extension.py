"""Codec of the extension packets of this library, which docs/protocol/fyrehose describes.

Each packet ends with a CRC-32 of the preceding bytes, because the receiver acts on a single packet.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum, IntFlag
from socket import inet_ntoa

from fyrehose_twisted.errors import MalformedPacket, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.address import IPV4_SIZE, IPV6_SIZE, map_host, pack_address, unpack_mapped_host
from fyrehose_twisted.fyrehose.wire.packets import (
    MAX_HOLDINGS,
    MAX_MEMBERS,
    MAX_SEQUENCE,
    TOKEN_SIZE,
    Asked,
    Beacon,
    Depth,
    Extension,
    Group,
    Head,
    Holding,
    Holds,
    Leader,
    PacketType,
    Status,
)
from fyrehose_twisted.host_addresses import format_address


class ExtensionKind(IntEnum):
    """Second byte of an extension packet."""

    HOLDS = 1
    STATUS = 2
    ASKED = 3
    LEADER = 4
    HEAD = 5
    LEADER6 = 6
    """LEADER with an IPv6 address. All its addresses have 16 bytes, and IPv4 addresses are IPv4-mapped."""
    GROUP = 7
    DEPTH = 8
    BEACON = 9


class _LeaderFlags(IntFlag):
    """Last byte of the fixed part of a LEADER. The other bits are sent as 0 and ignored."""

    ASKS_HEAD = 0x1


_HOLDS = struct.Struct(">BB16sQQQQ")
_STATUS = struct.Struct(">BB16sQQ")
_HOLDING = struct.Struct(">QQ")
_ASKED = struct.Struct(">BB16sQQL")
_LEADER = struct.Struct(">BB16sQ4sHB")
_MEMBER = struct.Struct(">4sH")
_LEADER6 = struct.Struct(">BB16sQ16sHB")
_MEMBER6 = struct.Struct(">16sH")
_HEAD = struct.Struct(">BB16sQQ")
_GROUP = struct.Struct(">BB16s4sH")
_DEPTH = struct.Struct(">BB16sB")
_BEACON = struct.Struct(">BBL")
_CRC = struct.Struct(">L")
_MAX_COUNT = 2**32 - 1
_MAX_TERM = 2**64 - 1


_KINDS = {int(kind): kind for kind in ExtensionKind}


def encode_extension(packet: Extension) -> bytes:
    """Return the datagram for ``packet``. :raises UnencodableMessage: if a field is out of range."""
    body = _encode(packet)
    return body + _CRC.pack(zlib.crc32(body))


def _encode(packet: Extension) -> bytes:
    if isinstance(packet, Beacon):
        return _BEACON.pack(PacketType.EXTENSION, ExtensionKind.BEACON, min(packet.listeners, _MAX_COUNT))
    if len(packet.token) != TOKEN_SIZE:
        raise UnencodableMessage(f"token of {len(packet.token)} bytes; it must have {TOKEN_SIZE}")
    match packet:
        case Holds(token, oldest, holding, reached):
            _check_encodable(oldest, *holding, reached)
            return _HOLDS.pack(PacketType.EXTENSION, ExtensionKind.HOLDS, token, oldest, *holding, reached)
        case Status(token, oldest, last, holdings):
            if len(holdings) > MAX_HOLDINGS:
                raise UnencodableMessage(f"{len(holdings)} journals do not fit a STATUS; it describes {MAX_HOLDINGS}")
            _check_encodable(oldest, last, *(number for holding in holdings for number in holding))
            head = _STATUS.pack(PacketType.EXTENSION, ExtensionKind.STATUS, token, oldest, last)
            return head + b"".join(_HOLDING.pack(*holding) for holding in holdings)
        case Asked(token, first, last, left):
            _check_encodable(first, last)
            return _ASKED.pack(PacketType.EXTENSION, ExtensionKind.ASKED, token, first, last, min(left, _MAX_COUNT))
        case Leader(token, term, leader, asks_head, members):
            if len(members) > MAX_MEMBERS:
                raise UnencodableMessage(f"{len(members)} members do not fit a LEADER; it describes {MAX_MEMBERS}")
            _check_term(term)
            flags = _LeaderFlags.ASKS_HEAD if asks_head else 0
            addresses = [pack_address(address) for address in (leader, *members)]
            kind, layout, each = ExtensionKind.LEADER, _LEADER, _MEMBER
            if any(len(host) == IPV6_SIZE for host, _ in addresses):
                kind, layout, each = ExtensionKind.LEADER6, _LEADER6, _MEMBER6
                addresses = [(map_host(host), port) for host, port in addresses]
            head = layout.pack(PacketType.EXTENSION, kind, token, term, *addresses[0], flags)
            return head + b"".join(each.pack(*address) for address in addresses[1:])
        case Head(token, term, highest):
            _check_term(term)
            _check_encodable(highest)
            return _HEAD.pack(PacketType.EXTENSION, ExtensionKind.HEAD, token, term, highest)
        case Depth(token, depth):
            if not 1 <= depth <= 255:
                raise UnencodableMessage(f"depth {depth} is outside 1..255")
            return _DEPTH.pack(PacketType.EXTENSION, ExtensionKind.DEPTH, token, depth)
        case Group(token, address):
            host, port = pack_address(address)
            if not _is_group(host, port):
                raise UnencodableMessage(f"{format_address(address)} is not an IPv4 multicast group with a port")
            return _GROUP.pack(PacketType.EXTENSION, ExtensionKind.GROUP, token, host, port)


def decode_extension(datagram: bytes) -> Extension:
    """Return the extension in ``datagram``, whose first byte was checked. :raises MalformedPacket: if it is invalid."""
    body, kind = datagram[: -_CRC.size], datagram[1] if len(datagram) > 1 else 0
    known = _KINDS.get(kind)
    if known is None:
        raise MalformedPacket("unknown_type", f"extension {kind:#04x} is not one of the protocol's")
    if zlib.crc32(body) != int.from_bytes(datagram[-_CRC.size :]):
        raise MalformedPacket("checksum", f"{known.name} of {len(datagram)} bytes has a wrong checksum")
    return _decode(known, body)


def _decode(kind: ExtensionKind, datagram: bytes) -> Extension:
    size = len(datagram)
    match kind:
        case ExtensionKind.HOLDS:
            _check_size(kind, size, size == _HOLDS.size)
            _, _, token, oldest, since, durable, reached = _HOLDS.unpack(datagram)
            _check_decoded(oldest, since, durable, reached)
            return Holds(token, oldest, Holding(since, durable), reached)
        case ExtensionKind.STATUS:
            more = size - _STATUS.size
            _check_size(kind, size, 0 <= more <= MAX_HOLDINGS * _HOLDING.size and more % _HOLDING.size == 0)
            _, _, token, oldest, last = _STATUS.unpack_from(datagram)
            holdings = tuple(map(Holding._make, _HOLDING.iter_unpack(datagram[_STATUS.size :])))
            _check_decoded(oldest, last, *(number for holding in holdings for number in holding))
            return Status(token, oldest, last, holdings)
        case ExtensionKind.ASKED:
            _check_size(kind, size, size == _ASKED.size)
            _, _, token, first, last, left = _ASKED.unpack(datagram)
            _check_decoded(first, last)
            if first > last:
                raise MalformedPacket("range", f"ASKED from {first} to {last} is empty")
            return Asked(token, first, last, left)
        case ExtensionKind.LEADER:
            more = size - _LEADER.size
            _check_size(kind, size, 0 <= more <= MAX_MEMBERS * _MEMBER.size and more % _MEMBER.size == 0)
            _, _, token, term, host, port, flags = _LEADER.unpack_from(datagram)
            members = tuple((inet_ntoa(host), port) for host, port in _MEMBER.iter_unpack(datagram[_LEADER.size :]))
            return Leader(token, term, (inet_ntoa(host), port), bool(flags & _LeaderFlags.ASKS_HEAD), members)
        case ExtensionKind.LEADER6:
            more = size - _LEADER6.size
            _check_size(kind, size, 0 <= more <= MAX_MEMBERS * _MEMBER6.size and more % _MEMBER6.size == 0)
            _, _, token, term, host, port, flags = _LEADER6.unpack_from(datagram)
            rest = _MEMBER6.iter_unpack(datagram[_LEADER6.size :])
            leader, *others = [(unpack_mapped_host(host), port) for host, port in ((host, port), *rest)]
            if not any(":" in host for host, _ in (leader, *others)):
                raise MalformedPacket("address", "LEADER6 without an IPv6 address")
            return Leader(token, term, leader, bool(flags & _LeaderFlags.ASKS_HEAD), tuple(others))
        case ExtensionKind.HEAD:
            _check_size(kind, size, size == _HEAD.size)
            _, _, token, term, highest = _HEAD.unpack(datagram)
            _check_decoded(highest)
            return Head(token, term, highest)
        case ExtensionKind.DEPTH:
            _check_size(kind, size, size == _DEPTH.size and datagram[-1] > 0)
            _, _, token, depth = _DEPTH.unpack(datagram)
            return Depth(token, depth)
        case ExtensionKind.GROUP:
            _check_size(kind, size, size == _GROUP.size)
            _, _, token, host, port = _GROUP.unpack(datagram)
            if not _is_group(host, port):
                raise MalformedPacket("address", f"GROUP with {inet_ntoa(host)}:{port}, which is no multicast group")
            return Group(token, (inet_ntoa(host), port))
        case ExtensionKind.BEACON:
            _check_size(kind, size, size == _BEACON.size)
            _, _, listeners = _BEACON.unpack(datagram)
            return Beacon(listeners)


def _is_group(host: bytes, port: int) -> bool:
    """Return whether ADDR and PORT are those of an IPv4 multicast group."""
    return len(host) == IPV4_SIZE and host[0] & 0xF0 == 0xE0 and port > 0


def _check_term(term: int) -> None:
    if not 0 <= term <= _MAX_TERM:
        raise UnencodableMessage(f"term {term} is outside 0..{_MAX_TERM}")


def _check_encodable(*numbers: int) -> None:
    for number in numbers:
        if not 0 <= number <= MAX_SEQUENCE + 1:
            raise UnencodableMessage(f"number {number} is outside 0..{MAX_SEQUENCE + 1}")


def _check_decoded(*numbers: int) -> None:
    highest = max(numbers)
    if highest > MAX_SEQUENCE + 1:
        raise MalformedPacket("range", f"extension with number {highest}, which is over {MAX_SEQUENCE}")


def _check_size(kind: ExtensionKind, size: int, is_valid: bool) -> None:
    if not is_valid:
        raise MalformedPacket("size", f"{kind.name} of {size} bytes, which is not a valid size")
