"""Packets of fyrehose in words."""

from __future__ import annotations

from fyrehose_twisted.cli.dump.description import Description, excerpt, format_range, message_fields, words
from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import MalformedPacket, RemoteError
from fyrehose_twisted.fyrehose.wire.codec import DATA_HEADER, PUSH_V1_HEADER, RANGE, RANGE6, decode
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, unwrap
from fyrehose_twisted.fyrehose.wire.message_key import split_key
from fyrehose_twisted.fyrehose.wire.packets import (
    ANY_ADDRESS,
    MAC_SIZE,
    MAX_SEQUENCE,
    Asked,
    Beacon,
    Deliver,
    Depth,
    Dialect,
    Flags,
    Forward,
    Group,
    Head,
    Holding,
    Holds,
    Keepalive,
    KeepaliveAck,
    Leader,
    Packet,
    Push,
    Request,
    Status,
)
from fyrehose_twisted.fyrehose.wire.term_start import decode_term_start
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.sealing.payload import is_sealed
from fyrehose_twisted.wording import pluralize

MAX_BURST = 128
"""Largest number of datagrams that the kernel takes in one call."""

_FIXED_SIZES = {0x04: RANGE.size, 0x08: RANGE.size, 0x88: RANGE.size, 0x44: RANGE6.size, 0x48: RANGE6.size}
_FIXED_SIZES[0xC8] = RANGE6.size


def decode_datagram(datagram: bytes) -> list[Packet]:
    """Return the packet in a datagram, or those of a burst.

    A program hands the kernel several datagrams of one size in one call (UDP_SEGMENT). A capture on the sending host
    or on loopback has them before they are separated: as one datagram.

    :raises MalformedPacket: if it is neither.
    """
    try:
        return [decode(datagram)]
    except MalformedPacket:
        packets = _decode_burst(datagram)
        if packets is None:
            raise
        return packets


def _decode_burst(datagram: bytes) -> list[Packet] | None:
    for size in _burst_sizes(datagram):
        if len(datagram) / MAX_BURST <= size < len(datagram):
            try:
                return [decode(datagram[at : at + size]) for at in range(0, len(datagram), size)]
            except RemoteError:
                continue
    return None


def _burst_sizes(datagram: bytes) -> tuple[int, ...]:
    """Return the sizes that the first packet of a burst may have."""
    if len(datagram) < PUSH_V1_HEADER.size:
        return ()
    kind, length = PUSH_V1_HEADER.unpack_from(datagram)
    match kind:
        case 0x01 | 0x41:
            return (DATA_HEADER.size + length,)
        case 0x81 | 0xC1:
            return (DATA_HEADER.size + length + MAC_SIZE,)
        case 0x02 | 0x42 | 0x82 | 0xC2:
            return (DATA_HEADER.size + length, PUSH_V1_HEADER.size + length)
    return (_FIXED_SIZES[kind],) if kind in _FIXED_SIZES else ()


def describe_packet(packet: Packet, *, with_data: bool = False) -> Description:
    """Return a packet in words.

    :param with_data: whether to print the start of DATA.
    """
    kind, text = _format(packet, with_data)
    fields = message_fields(packet)
    match packet:
        case Deliver() | Push():
            fields |= _data_fields(packet.data)
            if isinstance(packet, Deliver):
                fields["mac"] = bool(packet.mac)
        case Keepalive():
            fields |= {"flags": packet.flags, "flag_names": _flag_names(packet.flags)}
        case KeepaliveAck():
            fields = {"version": 2 if packet.token else 1, "stream_id": packet.stream_id.hex()}
            fields["mac"] = bool(packet.mac)
        case Forward():
            fields["mac"] = packet.mac
    return Description(kind, text, fields)


def _format(packet: Packet, with_data: bool) -> tuple[str, str]:
    match packet:
        case Deliver(sequence, data, fetched, mac):
            start = decode_term_start(sequence, data)
            parts = [_format_data(data, with_data), "with MAC" if mac else ""]
            if start is not None:
                skipped = start.skipped
                none = f", {format_range(skipped[0], skipped[-1])} were never given" if skipped else ""
                parts = [f"start of term {start.term}{none}", "with MAC" if mac else ""]
            return "FETCHED" if fetched else "DELIVER", words(f"{sequence}", *parts)
        case Push(data, dialect, confirm, again, hops):
            return "PUSH", words(
                _format_data(data, with_data),
                "confirm" if confirm else "",
                "again" if again else "",
                f"after {pluralize(hops, 'relay')}" if hops else "",
                "version 1" if dialect is Dialect.V1 else "",
            )
        case Request(address, first, last):
            return "REQUEST", _format_range(address, first, last)
        case Forward(address, first, last, mac):
            return "FORWARD", words(_format_range(address, first, last), "with MACs" if mac else "")
        case Keepalive(address, flags, token, dialect):
            if dialect is Dialect.V1:
                return "KEEPALIVE", words(_format_receiver(address), "version 1")
            names = " ".join(_flag_names(flags)) or "none"
            secret = "with a token" if any(token) else ""
            return "KEEPALIVE", words(_format_receiver(address), f"flags {names}", secret)
        case KeepaliveAck(token, stream_id, mac):
            return "KEEPALIVE-ACK", words("" if token else "version 1", _stream(stream_id), "with MAC" if mac else "")
        case Holds(_, oldest, holding, reached):
            reach = f"has all up to {reached}" if reached else ""
            return "HOLDS", words(f"{_format_holding(holding)} durable", f"oldest {oldest}", reach)
        case Status(_, oldest, last, holdings):
            journals = f": {'; '.join(map(_format_holding, holdings))}" if holdings else ""
            return "STATUS", words(
                f"last {last}",
                f"oldest {oldest}",
                pluralize(len(holdings), "journal") + journals,
            )
        case Asked(_, first, last, left):
            return "ASKED", f"{format_range(first, last)}, {pluralize(left, 'client')} left to ask"
        case Leader(_, term, leader, asks_head, members):
            return "LEADER", words(
                f"term {term}",
                "no leader known" if leader == ANY_ADDRESS else f"leader {format_address(leader)}",
                "asks for a HEAD" if asks_head else "",
                f"members {' '.join(map(format_address, members))}" if members else "",
            )
        case Head(_, term, highest):
            return "HEAD", f"term {term}, highest number {highest}"
        case Depth(_, depth):
            return "DEPTH", f"{pluralize(depth, 'relay')} to the backbone"
        case Group(_, address):
            return "GROUP", f"multicast group {format_address(address)}"
        case Beacon(listeners):
            return "BEACON", pluralize(listeners, "listener")


def _format_data(data: bytes, with_data: bool) -> str:
    fields = _data_fields(data)
    envelope = fields.get("publisher")
    return words(
        pluralize(len(data), "byte"),
        f"publisher {envelope} message {fields['counter']}" if envelope else "",
        f"key {fields['key']!r}" if "key" in fields else "",
        "sealed" if fields.get("sealed") else "",
        excerpt(data) if with_data else "",
    )


def _data_fields(data: bytes) -> dict[str, object]:
    """Return what the headers in DATA say."""
    envelope = unwrap(data)
    if envelope is None:
        return {"sealed": True} if is_sealed(data) else {}
    fields: dict[str, object] = {"publisher": envelope.publisher.hex(), "counter": envelope.counter}
    if is_sealed(data, ENVELOPE_SIZE):
        return fields | {"sealed": True}
    key, _ = split_key(data, ENVELOPE_SIZE)
    return fields if key is None else fields | {"key": key.decode(errors="backslashreplace")}


def _format_range(address: Address, first: int, last: int) -> str:
    client = _format_client(address)
    if last == MAX_SEQUENCE:
        return f"{first} and later for {client}"
    return f"{format_range(first, last)} ({pluralize(last - first + 1, 'message')}) for {client}"


def _format_client(address: Address) -> str:
    return "the sender" if address == ANY_ADDRESS else format_address(address)


def _format_receiver(address: Address) -> str:
    return "" if address == ANY_ADDRESS else f"receives at {format_address(address)}"


def _format_holding(holding: Holding) -> str:
    return format_range(*holding) if holding.since <= holding.durable else f"nothing since {holding.since}"


def _stream(stream_id: bytes) -> str:
    return f"stream {stream_id.hex()}" if stream_id else ""


def _flag_names(flags: int) -> list[str]:
    names = [str(flag.name) for flag in Flags if flags & flag]
    rest = flags & ~sum(Flags)
    return [*names, hex(rest)] if rest else names
