"""Reader of capture files: pcap, with times in microseconds or nanoseconds, and pcapng.

The formats are those of the Internet drafts draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from fyrehose_twisted.errors import OperationalError

MAX_FRAME = 262_144
"""Largest captured frame in bytes; tcpdump and Wireshark have the same limit."""
MAX_BLOCK = 16 * 2**20
"""Largest block of a pcapng file in bytes."""
MAX_INTERFACES = 65_536
"""Largest number of interfaces in one section of a pcapng file."""

_PCAP = {
    b"\xa1\xb2\xc3\xd4": (">", 1_000),
    b"\xd4\xc3\xb2\xa1": ("<", 1_000),
    b"\xa1\xb2\x3c\x4d": (">", 1),
    b"\x4d\x3c\xb2\xa1": ("<", 1),
}
"""Byte order, and nanoseconds in a unit of the fraction, by magic."""
_SECTION = b"\x0a\x0d\x0d\x0a"
_ORDERS = {b"\x1a\x2b\x3c\x4d": ">", b"\x4d\x3c\x2b\x1a": "<"}
_INTERFACE, _OLD_PACKET, _SIMPLE_PACKET, _PACKET = 1, 2, 3, 6
_TIME_RESOLUTION, _TIME_OFFSET = 9, 14
_SECOND = 10**9


class CapturedFrame(NamedTuple):
    """One frame of a capture."""

    time: int
    """Nanoseconds since 1970; 0 if unknown."""
    link_type: int
    """Link type, as registered with tcpdump.org."""
    data: bytes
    size: int
    """Size on the wire in bytes. A larger one than that of :attr:`data` means that the capture cut the frame."""


class InvalidCapture(OperationalError):
    """A file is not a capture, or is damaged."""


class _Interface(NamedTuple):
    link_type: int
    snap_length: int
    units: int
    """Units of time in a second."""
    offset: int
    """Seconds to add to each time."""


def read_capture(file: BinaryIO) -> Iterator[CapturedFrame]:
    """Yield the frames of a capture.

    :raises InvalidCapture: if the file is not a capture, or is damaged or cut; then after the frames before.
    """
    magic = file.read(4)
    if magic == _SECTION:
        yield from _read_pcapng(file)
    elif magic in _PCAP:
        yield from _read_pcap(file, *_PCAP[magic])
    elif magic[:2] == b"\x1f\x8b":
        raise InvalidCapture("the capture is compressed; unpack it with gunzip")
    else:
        raise InvalidCapture(f"neither pcap nor pcapng: the file begins with {magic.hex(' ') or 'nothing'}")


def _read_pcap(file: BinaryIO, order: str, unit: int) -> Iterator[CapturedFrame]:
    # The upper bits of the link type tell of a checksum at the end of frames.
    link_type = struct.unpack(order + "16xL", _read(file, 20, "header"))[0] & 0xFFFF
    header = struct.Struct(order + "LLLL")
    while start := file.read(header.size):
        seconds, fraction, size, wire_size = header.unpack(start + _read(file, header.size - len(start), "packet"))
        if size > MAX_FRAME:
            raise InvalidCapture(f"the capture is damaged: a packet of {size:,} bytes is over {MAX_FRAME:,}")
        data = _read(file, size, "packet")
        yield CapturedFrame(seconds * _SECOND + fraction * unit, link_type, data, wire_size)


def _read_pcapng(file: BinaryIO) -> Iterator[CapturedFrame]:
    order, interfaces = _read_section(file), list[_Interface]()
    while start := file.read(4):
        start += _read(file, 4 - len(start), "block")
        if start == _SECTION:
            # Interfaces are numbered anew in each section; files are merged by concatenation.
            order, interfaces = _read_section(file), []
            continue
        kind = struct.unpack(order + "L", start)[0]
        body = _read_block(file, order)
        if kind == _INTERFACE:
            if len(interfaces) == MAX_INTERFACES:
                raise InvalidCapture(f"the capture is damaged: it has over {MAX_INTERFACES:,} interfaces")
            interfaces.append(_parse_interface(body, order))
        elif kind in (_PACKET, _OLD_PACKET, _SIMPLE_PACKET):
            yield _parse_packet(kind, body, order, interfaces)


def _read_section(file: BinaryIO) -> str:
    start = _read(file, 8, "section")
    order = _ORDERS.get(start[4:])
    if order is None:
        raise InvalidCapture(f"the capture is damaged: a section has the byte order {start[4:].hex(' ')}")
    (size,) = struct.unpack(order + "L", start[:4])
    _read_body(file, size, 12)
    return order


def _read_block(file: BinaryIO, order: str) -> bytes:
    (size,) = struct.unpack(order + "L", _read(file, 4, "block"))
    return _read_body(file, size, 8)


def _read_body(file: BinaryIO, size: int, taken: int) -> bytes:
    if not taken + 4 <= size <= MAX_BLOCK:
        raise InvalidCapture(f"the capture is damaged: a block has {size:,} bytes")
    # Blocks are padded to a multiple of four, and end with their size once more.
    return _read(file, size + -size % 4 - taken, "block")[:-4]


def _parse_interface(body: bytes, order: str) -> _Interface:
    if len(body) < 8:
        raise InvalidCapture("the capture is damaged: the description of an interface is too short")
    link_type, snap_length = struct.unpack_from(order + "HxxL", body)
    units, offset, at = 1_000_000, 0, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        value = body[at + 4 : at + 4 + size]
        if code == _TIME_RESOLUTION and len(value) == 1:
            units = (2 if value[0] & 0x80 else 10) ** (value[0] & 0x7F)
        elif code == _TIME_OFFSET and len(value) == 8:
            (offset,) = struct.unpack(order + "q", value)
        elif code == 0:
            break
        at += 4 + size + -size % 4
    return _Interface(link_type, snap_length or MAX_FRAME, units, offset)


def _parse_packet(kind: int, body: bytes, order: str, interfaces: list[_Interface]) -> CapturedFrame:
    if len(body) < (4 if kind == _SIMPLE_PACKET else 20):
        raise InvalidCapture(f"the capture is damaged: a packet has a block of {len(body)} bytes")
    number = time = 0
    if kind == _SIMPLE_PACKET:
        (wire_size,) = struct.unpack_from(order + "L", body)
        start, size = 4, min(wire_size, interfaces[0].snap_length if interfaces else 0, len(body) - 4)
    else:
        layout = "LLLLL" if kind == _PACKET else "HxxLLLL"
        number, high, low, size, wire_size = struct.unpack_from(order + layout, body)
        start, time = 20, high << 32 | low
    if number >= len(interfaces):
        raise InvalidCapture(f"the capture is damaged: a packet has the interface {number}, which is not described")
    if size > len(body) - start:
        raise InvalidCapture(f"the capture is damaged: a packet of {size:,} bytes in a block of {len(body):,}")
    link_type, _, units, offset = interfaces[number]
    if time:
        time = time * _SECOND // units + offset * _SECOND
    return CapturedFrame(time, link_type, body[start : start + size], wire_size)


def _read(file: BinaryIO, size: int, what: str) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise InvalidCapture(f"the capture is cut within a {what}")
    return data
