"""Lines of hydra, and the datagrams of its UDP carrier, in words."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.cli.dump.description import Description, excerpt, format_range, message_fields, words
from fyrehose_twisted.errors import MalformedPacket
from fyrehose_twisted.hydra.transports.udp.datagrams import (
    ABORT,
    ACCEPT,
    ACCEPT_BODY,
    COOKIE,
    DATA,
    FIN,
    HEADER,
    ID_SIZE,
    INIT,
    INIT_SIZE,
    MAC_SIZE,
    OPEN,
    OPEN_BODY,
    REFUSE,
    RESET,
)
from fyrehose_twisted.hydra.wire.lines import untag
from fyrehose_twisted.hydra.wire.messages import (
    Call,
    Drop,
    Elect,
    Hello,
    Keepalive,
    Knock,
    Malformed,
    Meet,
    Message,
    Nominate,
    Ping,
    Pledge,
    Pong,
    Recv,
    Send,
    Welcome,
)
from fyrehose_twisted.wording import pluralize

KINDS = {
    INIT: "INIT",
    COOKIE: "COOKIE",
    OPEN: "OPEN",
    ACCEPT: "ACCEPT",
    REFUSE: "REFUSE",
    DATA: "DATA",
    FIN: "FIN",
    ABORT: "ABORT",
    RESET: "RESET",
}
"""Names of the datagrams of the UDP carrier."""

_COOKIE_SIZE = 1 + ID_SIZE + 16
_SIZES = {
    INIT: INIT_SIZE,
    COOKIE: _COOKIE_SIZE,
    OPEN: OPEN_BODY.size,
    ACCEPT: ACCEPT_BODY.size,
    REFUSE: 1 + ID_SIZE,
    RESET: 1 + ID_SIZE,
}
_AUTHENTICATION = (b"AUTH ", b"PROOF ")


def describe_message(message: Message) -> Description:
    """Return a line in words.

    :raises MalformedPacket: if the line is malformed.
    """
    if isinstance(message, Malformed):
        for command in _AUTHENTICATION:
            if message.line.startswith(command):
                return Description(command.decode().strip(), "of the authentication")
        raise MalformedPacket(message.reason, f"{message.reason}: {excerpt(message.line)}")
    if isinstance(message, Recv | Send):
        token, line = untag(message.line)
        number = f"{message.idx}" if isinstance(message, Recv) else f"of node {message.id}"
        fields = {("idx" if isinstance(message, Recv) else "id"): message[0], "line": _text(line), "tag": token}
        return Description(type(message).__name__.upper(), f"{number}: {_text(line)}", fields)
    return Description(type(message).__name__.upper(), _format(message), message_fields(message))


def _format(message: Message) -> str:
    match message:
        case Ping(term, val, node):
            return f"term {term}, leader {node}, val {val}"
        case Pong(val, node, count, tag):
            return words(f"node {node}", f"val {val}", f"relayed {count} times", f"tag {tag}" if tag else "")
        case Drop(node, reason):
            return f"node {node}" + (f": {reason}" if reason else "")
        case Nominate(term, node):
            return f"term {term}, candidate {node}"
        case Pledge(term, nominee, node) | Elect(term, nominee, node):
            return f"term {term}, for {nominee}, of node {node}"
        case Call(term):
            return f"term {term}"
        case Knock(node, tag):
            return f"node {node}" + (f", tag {tag}" if tag else "")
        case Meet(node, other) | Hello(node, other):
            return f"new node {node}, of node {other}"
        case Welcome(node):
            return f"new node {node}"
        case Keepalive():
            return "empty line"
    raise AssertionError(f"{type(message).__name__} is described elsewhere")


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


class CarrierDatagram(NamedTuple):
    """A datagram of the UDP carrier."""

    kind: int
    session: bytes
    """Session id of the receiver; in INIT and OPEN, that of the sender."""
    number: int = 0
    sequence: int = 0
    acknowledged: int = 0
    mask: bytes = b""
    payload: bytes = b""
    has_mac: bool | None = None
    """``None`` if the datagram does not tell; then :attr:`payload` has the MAC, if there is one."""
    accepted: bytes = b""
    """Session id of the acceptor, in an ACCEPT."""


def decode_datagram(datagram: bytes) -> CarrierDatagram:
    """Return a datagram of the UDP carrier. MACs are not verified, for a capture does not tell the secret.

    :raises MalformedPacket: if it is none.
    """
    if not datagram:
        raise MalformedPacket("empty", "datagram of 0 bytes has no kind")
    kind = datagram[0]
    if kind not in KINDS:
        raise MalformedPacket("unknown-kind", f"kind {kind:#04x} is not one of the UDP carrier's")
    name = KINDS[kind]
    if kind in _SIZES:
        size = _SIZES[kind]
        if len(datagram) not in (size, size + MAC_SIZE):
            raise MalformedPacket(
                "size", f"{name} of {len(datagram)} bytes; it has {size}, or {size + MAC_SIZE} with a MAC"
            )
        accepted = ACCEPT_BODY.unpack_from(datagram)[2] if kind == ACCEPT else b""
        has_mac = len(datagram) != size
        return CarrierDatagram(kind, datagram[1 : 1 + ID_SIZE], has_mac=has_mac, accepted=accepted)
    if len(datagram) < HEADER.size:
        raise MalformedPacket("size", f"{name} of {len(datagram)} bytes; its header alone has {HEADER.size}")
    _, session, number, sequence, acknowledged, mask_size = HEADER.unpack_from(datagram)
    end = HEADER.size + mask_size
    if len(datagram) < end:
        raise MalformedPacket("size", f"{name} of {len(datagram)} bytes ends within its mask of {mask_size}")
    if kind == FIN and not sequence:
        raise MalformedPacket("bad-number", "FIN without a sequence number")
    payload = datagram[end:]
    signed: bool | None = None
    if kind != DATA or not sequence:
        # These have no payload.
        if len(payload) not in (0, MAC_SIZE):
            raise MalformedPacket("size", f"{name} has {len(payload)} bytes after its header")
        signed, payload = bool(payload), b""
    return CarrierDatagram(kind, session, number, sequence, acknowledged, datagram[HEADER.size : end], payload, signed)


def describe_datagram(datagram: CarrierDatagram) -> Description:
    """Return a datagram of the UDP carrier in words."""
    kind, session, number, sequence, acknowledged, mask, payload, has_mac, _ = datagram
    fields: dict[str, object] = {"session": session.hex(), "mac": has_mac}
    parts = [f"session {session.hex()}"]
    if kind in (DATA, FIN, ABORT):
        more = list(_acknowledged_after_gap(acknowledged, mask))
        fields |= {"number": number, "sequence": sequence, "acknowledged": acknowledged, "size": len(payload)}
        fields["acknowledged_ranges"] = more
        parts += [
            f"segment {sequence} of {pluralize(len(payload), 'byte')}" if sequence and kind == DATA else "",
            f"segment {sequence}" if sequence and kind == FIN else "",
            f"datagram {number}",
            f"acknowledges {acknowledged}" + "".join(f" and {format_range(*each)}" for each in more[:8]),
        ]
    return Description(KINDS[kind], words(*parts, "with MAC" if has_mac else ""), fields)


def _acknowledged_after_gap(acknowledged: int, mask: bytes) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    bits = int.from_bytes(mask, "little")
    for place in range(bits.bit_length()):
        if bits >> place & 1:
            number = acknowledged + 2 + place
            if found and found[-1][1] == number - 1:
                found[-1] = found[-1][0], number
            else:
                found.append((number, number))
    return found
