"""Codec of single packets (documents 000 and 001, packet diagrams).

:mod:`fyrehose_twisted.fyrehose.wire.run_codec` contains the columnar codec for runs of datagrams.
"""

from __future__ import annotations

import struct
from socket import inet_ntoa

from fyrehose_twisted.effects import Address, Datagram
from fyrehose_twisted.errors import MalformedPacket, MessageTooLarge, UnencodableMessage
from fyrehose_twisted.fyrehose.wire.address import IPV6_SIZE, pack_address, unpack_ipv6_host
from fyrehose_twisted.fyrehose.wire.extension import decode_extension, encode_extension
from fyrehose_twisted.fyrehose.wire.packets import (
    AGAIN,
    CONFIRM,
    MAC_SIZE,
    MAX_DATA,
    MAX_SEQUENCE,
    PUSH_HOPS,
    TOKEN_SIZE,
    WITH_MAC,
    Asked,
    Beacon,
    Deliver,
    Depth,
    Dialect,
    Forward,
    Group,
    Head,
    Holds,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    PacketType,
    Push,
    Request,
    Status,
)

DATA_HEADER = struct.Struct(">BHHI")
"""Type, LENGTH, and SEQUENCE as its high 16 and low 32 bits: DELIVER, and PUSH of version 2."""
PUSH_V1_HEADER = struct.Struct(">BH")
RANGE = struct.Struct(">B4sHHIHI")
"""REQUEST and FORWARD: type, ADDR, PORT, FROM and TO, each number as high 16 and low 32 bits."""
RANGE6 = struct.Struct(">B16sHHIHI")
"""REQUEST6 and FORWARD6: the same with ADDR of 16 bytes."""
KEEPALIVE_V1 = struct.Struct(">B4sH")
KEEPALIVE_V2 = struct.Struct(">B4sHHI16s")
KEEPALIVE6 = struct.Struct(">B16sHHI16s")
ACK_V2_SIZE = 17
ACK_WITH_MAC_SIZE = 49

_WITH_IPV6 = {PacketType.REQUEST: PacketType.REQUEST6, PacketType.FORWARD: PacketType.FORWARD6}


def encode(packet: Packet) -> bytes:
    """Return the datagram for ``packet``.

    :raises MessageTooLarge: if DATA is over 65,526 bytes.
    :raises UnencodableMessage: if a field is out of range.
    """
    match packet:
        case Deliver(sequence, data, fetched, mac):
            return encode_deliver(sequence, data, fetched=fetched, mac=mac)
        case Push(data, dialect, confirm, again, hops):
            return encode_push(data, dialect, confirm, again, hops)
        case Request(address, first, last):
            return _encode_range(PacketType.REQUEST, address, first, last)
        case Forward(address, first, last, mac):
            return _encode_range(PacketType.FORWARD, address, first, last, WITH_MAC * mac)
        case Keepalive(address, flags, token, dialect):
            return _encode_keepalive(address, flags, token, dialect)
        case KeepaliveAck(token, stream_id, mac):
            if len(token) not in (0, TOKEN_SIZE):
                raise UnencodableMessage(f"token of {len(token)} bytes; it must have 16, or none in version 1")
            if not stream_id and not mac:
                return bytes([PacketType.KEEPALIVE_ACK]) + token
            if (len(token), len(stream_id), len(mac)) != (TOKEN_SIZE, TOKEN_SIZE, MAC_SIZE):
                raise UnencodableMessage("token, stream id and MAC of a KEEPALIVE-ACK must have 16 bytes each")
            return bytes([PacketType.KEEPALIVE_ACK | WITH_MAC]) + token + stream_id + mac
        case Holds() | Status() | Asked() | Leader() | Head() | Depth() | Group() | Beacon():
            return encode_extension(packet)


def encode_deliver(sequence: int, data: Datagram, *, fetched: bool = False, mac: bytes = b"") -> bytes:
    """Return a DELIVER. For the errors, see :func:`encode`."""
    kind = PacketType.FETCHED if fetched else PacketType.DELIVER
    if not mac:
        return _data_header(kind, len(data), sequence) + data
    if len(mac) != MAC_SIZE:
        raise UnencodableMessage(f"MAC of {len(mac)} bytes; it must have {MAC_SIZE}")
    return _data_header(kind | WITH_MAC, len(data), sequence) + data + mac


def encode_push(
    data: Datagram, dialect: Dialect = Dialect.V2, confirm: bool = False, again: bool = False, hops: int = 0
) -> bytes:
    """Return a PUSH. For the errors, see :func:`encode`."""
    return push_header(len(data), dialect, confirm, again, hops) + data


def push_header(size: int, dialect: Dialect, confirm: bool, again: bool = False, hops: int = 0) -> bytes:
    """Return the header of a PUSH with ``size`` bytes of DATA. For the errors, see :func:`encode`."""
    kind = PacketType.PUSH | CONFIRM * confirm | AGAIN * again
    if not 0 <= hops <= (255 if dialect is Dialect.V2 else 0):
        raise UnencodableMessage(f"PUSH that {hops} relays have passed on; version 2 has room for 255, version 1 none")
    if dialect is Dialect.V2:
        return _data_header(kind, size, PUSH_HOPS + hops if hops else 0)
    if size > MAX_DATA:
        raise MessageTooLarge(size, MAX_DATA)
    return PUSH_V1_HEADER.pack(kind, size)


def _data_header(kind: int, size: int, sequence: int) -> bytes:
    if size > MAX_DATA:
        raise MessageTooLarge(size, MAX_DATA)
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise UnencodableMessage(f"sequence {sequence} is outside 0..{MAX_SEQUENCE}")
    return DATA_HEADER.pack(kind, size, sequence >> 32, sequence & 0xFFFFFFFF)


def _encode_range(kind: PacketType, address: Address, first: int, last: int, mark: int = 0) -> bytes:
    if not 0 <= first <= last <= MAX_SEQUENCE:
        raise UnencodableMessage(f"range {first}..{last} is empty or outside 0..{MAX_SEQUENCE}")
    host, port = pack_address(address)
    layout, kind = range_layout(kind, host)
    return layout.pack(kind | mark, host, port, first >> 32, first & 0xFFFFFFFF, last >> 32, last & 0xFFFFFFFF)


def range_layout(kind: PacketType, host: bytes) -> tuple[struct.Struct, PacketType]:
    """Return the layout and the type of a REQUEST or FORWARD with ``host`` as ADDR."""
    return (RANGE6, _WITH_IPV6[kind]) if len(host) == IPV6_SIZE else (RANGE, kind)


def _encode_keepalive(address: Address, flags: int, token: bytes, dialect: Dialect) -> bytes:
    host, port = pack_address(address)
    flags = int(flags)  # Operators of IntFlag are slow.
    if dialect is Dialect.V1:
        if flags or token.strip(b"\0"):
            raise UnencodableMessage("a KEEPALIVE of version 1 has neither flags nor a token")
        if len(host) == IPV6_SIZE:
            raise UnencodableMessage(f"{address[0]} is an IPv6 address, which version 1 cannot carry; use 0.0.0.0")
        return KEEPALIVE_V1.pack(PacketType.KEEPALIVE, host, port)
    if not 0 <= flags < 2**48:
        raise UnencodableMessage(f"flags {flags:#x} do not fit 48 bits")
    if len(token) != TOKEN_SIZE:
        raise UnencodableMessage(f"token of {len(token)} bytes; it must have 16")
    if len(host) == IPV6_SIZE:
        return KEEPALIVE6.pack(PacketType.KEEPALIVE6, host, port, flags >> 32, flags & 0xFFFFFFFF, token)
    return KEEPALIVE_V2.pack(PacketType.KEEPALIVE, host, port, flags >> 32, flags & 0xFFFFFFFF, token)


def decode(datagram: Datagram, *, truncated: bool = False) -> Packet:
    """Return the packet in ``datagram``.

    :param truncated: whether the receive call truncated the datagram. Such a datagram is always malformed, because it
        may look complete.
    :raises MalformedPacket: if ``datagram`` is not a packet. No other exception is raised.
    """
    if truncated:
        raise MalformedPacket("truncated", f"datagram was cut to {len(datagram)} bytes on receipt")
    if not datagram:
        raise MalformedPacket("empty", "datagram of 0 bytes has no type")
    match datagram[0]:
        case PacketType.DELIVER | PacketType.FETCHED:
            return _decode_deliver(datagram, 0)
        case 0x81 | 0xC1:
            return _decode_deliver(datagram, MAC_SIZE)
        case 0x02 | 0x42 | 0x82 | 0xC2:
            return _decode_push(datagram)
        case PacketType.REQUEST | PacketType.REQUEST6:
            return Request(*_decode_range(datagram))
        case PacketType.FORWARD | PacketType.FORWARD6:
            return Forward(*_decode_range(datagram))
        case 0x88 | 0xC8:
            return Forward(*_decode_range(datagram), mac=True)
        case PacketType.KEEPALIVE:
            return _decode_keepalive(datagram)
        case PacketType.KEEPALIVE6:
            return _decode_keepalive6(datagram)
        case PacketType.KEEPALIVE_ACK:
            if len(datagram) not in (1, ACK_V2_SIZE):
                raise MalformedPacket("size", f"KEEPALIVE-ACK of {len(datagram)} bytes; it has 17, or 1 in version 1")
            return KeepaliveAck(bytes(datagram[1:]))
        case 0xA0:
            if len(datagram) != ACK_WITH_MAC_SIZE:
                raise MalformedPacket(
                    "size", f"KEEPALIVE-ACK with a MAC of {len(datagram)} bytes; it has {ACK_WITH_MAC_SIZE}"
                )
            return KeepaliveAck(bytes(datagram[1:17]), bytes(datagram[17:33]), bytes(datagram[33:]))
        case PacketType.EXTENSION:
            return decode_extension(bytes(datagram))
        case unknown:
            raise MalformedPacket("unknown_type", f"type byte {unknown:#04x} is not one of the protocol's")


def _decode_deliver(datagram: Datagram, mac_size: int) -> Deliver:
    if len(datagram) < DATA_HEADER.size + mac_size:
        raise MalformedPacket(
            "size", f"DELIVER of {len(datagram)} bytes; header and MAC alone have {DATA_HEADER.size + mac_size}"
        )
    kind, length, high, low = DATA_HEADER.unpack_from(datagram)
    end = len(datagram) - mac_size
    if length != end - DATA_HEADER.size:
        raise MalformedPacket("length", f"DELIVER declares {length} bytes of DATA, but has {end - DATA_HEADER.size}")
    if length > MAX_DATA:
        raise MalformedPacket("length", f"DELIVER of {length} bytes of DATA is over {MAX_DATA}")
    data = bytes(datagram[DATA_HEADER.size : end])
    return Deliver(high << 32 | low, data, kind & ~WITH_MAC == PacketType.FETCHED, bytes(datagram[end:]))


def _decode_push(datagram: Datagram) -> Push:
    size = len(datagram)
    if size < PUSH_V1_HEADER.size:
        raise MalformedPacket("size", f"PUSH of {size} bytes; its header alone has 9, or 3 in version 1")
    kind, length = PUSH_V1_HEADER.unpack_from(datagram)
    # A whole PUSH is never ambiguous: LENGTH can equal only one of the two remainders.
    if length == size - DATA_HEADER.size:
        dialect, start = Dialect.V2, DATA_HEADER.size
    elif length == size - PUSH_V1_HEADER.size:
        dialect, start = Dialect.V1, PUSH_V1_HEADER.size
    else:
        raise MalformedPacket(
            "length", f"PUSH of {size} bytes declares {length} bytes of DATA, which fits neither version"
        )
    if length > MAX_DATA:
        raise MalformedPacket("length", f"PUSH of {length} bytes of DATA is over {MAX_DATA}")
    hops = 0
    if dialect is Dialect.V2:
        unused = int.from_bytes(datagram[PUSH_V1_HEADER.size : start])
        hops = unused - PUSH_HOPS if PUSH_HOPS < unused <= PUSH_HOPS + 255 else 0
    return Push(bytes(datagram[start:]), dialect, bool(kind & CONFIRM), bool(kind & AGAIN), hops)


def _decode_range(datagram: Datagram) -> tuple[Address, int, int]:
    kind = PacketType(datagram[0] & ~WITH_MAC)
    is_wide = kind in (PacketType.REQUEST6, PacketType.FORWARD6)
    layout = RANGE6 if is_wide else RANGE
    if len(datagram) != layout.size:
        raise MalformedPacket("size", f"{kind.name} of {len(datagram)} bytes; it has {layout.size}")
    _, host, port, first_high, first_low, last_high, last_low = layout.unpack(datagram)
    first, last = first_high << 32 | first_low, last_high << 32 | last_low
    if first > last:
        raise MalformedPacket("range", f"{kind.name} from {first} to {last} is empty")
    return (unpack_ipv6_host(host) if is_wide else inet_ntoa(host), port), first, last


def _decode_keepalive(datagram: Datagram) -> Keepalive:
    if len(datagram) == KEEPALIVE_V1.size:
        _, host, port = KEEPALIVE_V1.unpack(datagram)
        return Keepalive((inet_ntoa(host), port), token=b"", dialect=Dialect.V1)
    if len(datagram) != KEEPALIVE_V2.size:
        raise MalformedPacket("size", f"KEEPALIVE of {len(datagram)} bytes; it has 29, or 7 in version 1")
    _, host, port, high, low, token = KEEPALIVE_V2.unpack(datagram)
    return Keepalive((inet_ntoa(host), port), high << 32 | low, token)


def _decode_keepalive6(datagram: Datagram) -> Keepalive:
    if len(datagram) != KEEPALIVE6.size:
        raise MalformedPacket("size", f"KEEPALIVE6 of {len(datagram)} bytes; it has {KEEPALIVE6.size}")
    _, host, port, high, low, token = KEEPALIVE6.unpack(datagram)
    return Keepalive((unpack_ipv6_host(host), port), high << 32 | low, token)
