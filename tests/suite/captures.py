"""Frames and capture files, for tests of what reads them."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

from fyrehose_twisted.effects import Address

ETHERNET, RAW_IP, COOKED, COOKED_V2, NULL = 1, 101, 113, 276, 0
FIN, SYN, ACK = 1, 2, 16
SECOND = 10**9
START = 1_700_000_000 * SECOND


def udp(source: Address, destination: Address, payload: bytes) -> bytes:
    """Return an IP packet with a datagram."""
    return ip(
        source[0], destination[0], 17, struct.pack(">HHHH", source[1], destination[1], 8 + len(payload), 0) + payload
    )


def tcp(
    source: Address,
    destination: Address,
    sequence: int,
    payload: bytes = b"",
    flags: int = ACK,
    *,
    acknowledged: int = 0,
) -> bytes:
    """Return an IP packet with a segment."""
    numbers = sequence % 2**32, acknowledged
    header = struct.pack(">HHLLBBHHH", source[1], destination[1], *numbers, 5 << 4, flags, 65_535, 0, 0)
    return ip(source[0], destination[0], 6, header + payload)


def ip(source: str, destination: str, protocol: int, content: bytes) -> bytes:
    """Return an IP packet, of the version of its addresses."""
    hosts = ip_address(source).packed + ip_address(destination).packed
    if len(hosts) == 8:
        return struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(content), 1, 0, 64, protocol, 0) + hosts + content
    return struct.pack(">LHBB", 6 << 28, len(content), protocol, 64) + hosts + content


def fragments(packet: bytes, size: int, identifier: int = 7) -> list[bytes]:
    """Return the fragments of an IPv4 or IPv6 packet, with ``size`` bytes of content each, a multiple of 8."""
    content = packet[20:] if packet[0] >> 4 == 4 else packet[40:]
    found = []
    for at in range(0, len(content), size):
        part, has_more = content[at : at + size], at + size < len(content)
        if packet[0] >> 4 == 4:
            head = packet[:2] + struct.pack(">HHH", 20 + len(part), identifier, at // 8 | has_more << 13) + packet[8:20]
        else:
            head = packet[:4] + struct.pack(">HB", 8 + len(part), 44) + packet[7:40]
            head += struct.pack(">BxHL", packet[6], at | has_more, identifier)
        found.append(head + part)
    return found


def link(packet: bytes, kind: int = ETHERNET, *, vlan: bool = False) -> bytes:
    """Return the frame of an IP packet."""
    ethertype = struct.pack(">H", 0x0800 if packet[0] >> 4 == 4 else 0x86DD)
    if vlan:
        ethertype = b"\x81\x00\x00\x07" + ethertype
    match kind:
        case 1:
            return bytes(12) + ethertype + packet
        case 113:
            return bytes(14) + ethertype + packet
        case 276:
            return ethertype[:2] + bytes(18) + ethertype[2:] + packet
        case 0:
            return struct.pack("<L", 2 if packet[0] >> 4 == 4 else 24) + packet
    return packet


def pcap(frames: Iterable[bytes], kind: int = ETHERNET, *, order: str = "<", nano: bool = False) -> bytes:
    """Return a pcap file. Frames follow one another by a millisecond."""
    parts = [struct.pack(order + "LHHLLLL", 0xA1B23C4D if nano else 0xA1B2C3D4, 2, 4, 0, 0, 262_144, kind)]
    for number, frame in enumerate(frames):
        seconds, rest = divmod(START + number * 1_000_000, SECOND)
        parts.append(
            struct.pack(order + "LLLL", seconds, rest // (1 if nano else 1_000), len(frame), len(frame)) + frame
        )
    return b"".join(parts)


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    """Return a block of a pcapng file."""
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "L", len(body) + 12)
    return struct.pack(order + "L", kind) + size + body + size


def section(order: str = "<") -> bytes:
    """Return the block that begins a section of a pcapng file."""
    return block(0x0A0D0D0A, struct.pack(order + "LHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(kind: int = ETHERNET, options: bytes = b"", order: str = "<") -> bytes:
    """Return the block that describes an interface of a pcapng file."""
    return block(1, struct.pack(order + "HHL", kind, 0, 0) + options, order)


def packet_block(frame: bytes, time: int, number: int = 0, order: str = "<") -> bytes:
    """Return the block of a frame of a pcapng file."""
    head = struct.pack(order + "LLLLL", number, time >> 32, time & 0xFFFFFFFF, len(frame), len(frame))
    return block(6, head + frame, order)


def pcapng(frames: Iterable[bytes], kind: int = ETHERNET, *, order: str = "<") -> bytes:
    """Return a pcapng file. Frames follow one another by a millisecond."""
    blocks = [section(order), interface(kind, order=order)]
    blocks += [packet_block(frame, START // 1_000 + number * 1_000, order=order) for number, frame in enumerate(frames)]
    return b"".join(blocks)


class Conversation:
    """Frames of TCP connections and of datagrams, in order.

    :ivar frames: frames of Ethernet.
    """

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self._next: dict[tuple[Address, Address], int] = {}

    def datagram(self, source: Address, destination: Address, payload: bytes) -> None:
        """Add a datagram."""
        self.frames.append(link(udp(source, destination, payload)))

    def segment(self, source: Address, destination: Address, payload: bytes) -> None:
        """Add a segment, after the one with which its direction of a connection begins."""
        way = source, destination
        if way not in self._next:
            self.frames.append(link(tcp(*way, 999, flags=SYN)))
            self._next[way] = 1_000
        for at in range(0, len(payload), 1_400):
            part = payload[at : at + 1_400]
            self.frames.append(link(tcp(*way, self._next[way], part)))
            self._next[way] += len(part)

    def write(self, path: Path) -> Path:
        """Write a capture."""
        path.write_bytes(pcap(self.frames))
        return path
