"""The first bytes of a segment: whose it is."""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

from fyrehose_twisted.effects import Datagram

MAGIC = b"\xf7FYRJRNL"
VERSION = 1
_FIXED = struct.Struct("<8sIIQqIH")
"""Magic, version, header length, wrap, creation time, tag, length of the URI; then the URI, zeros, a CRC-32."""
_PREFIX = struct.Struct("<8sII")
_NUMBER = struct.Struct("<I")
_CHECK = struct.Struct("<I")

MAX_NUMBER = 2**32 - 1
"""Of a segment."""

MAX_URI = 1_024
MAX_HEADER = 2_048
"""Bytes that suffice for every header."""

OPEN_SUFFIX, FULL_SUFFIX, INDEX_SUFFIX = ".log", ".seg", ".idx"
_NAME = re.compile(r"(\d{10})\.(?:log|seg)")


def different_tags(one: int | None, other: int | None) -> bool:
    """Say whether two journals are not the same, as far as their tags are known."""
    return one is not None and other is not None and one != other


class SegmentHeader(NamedTuple):
    """What a segment says of itself."""

    number: int
    stream: str
    wrap: int
    """How many sequence numbers there are before they begin anew; 0 if they never do."""
    created_at: int
    """UTC microseconds since 1970."""
    tag: int
    """Drawn once for each journal; all its frames bear it."""
    length: int = 0
    """Bytes of this header."""


class BadHeader(Exception):
    """The bytes at hand do not begin a segment; its text says why."""


class UnsupportedVersion(Exception):
    """A version that this cannot read wrote the segment: nothing there is to be touched."""


def segment_name(number: int, suffix: str) -> str:
    """Return the name of a segment's file."""
    return f"{number:010d}{suffix}"


def segment_number(name: str) -> int | None:
    """Return the number of the segment that a file is, or ``None`` if it is none."""
    found = _NAME.fullmatch(name)
    number = int(found[1]) if found else 0
    return number if 0 < number <= MAX_NUMBER else None


def encode(header: SegmentHeader) -> bytes:
    """Return the bytes of a header."""
    uri = header.stream.encode()
    length = _FIXED.size + _NUMBER.size + len(uri) + _CHECK.size
    length += -length % 8
    fixed = _FIXED.pack(MAGIC, VERSION, length, header.wrap, header.created_at, header.tag, len(uri))
    data = (fixed + _NUMBER.pack(header.number) + uri).ljust(length - _CHECK.size, b"\0")
    return data + _CHECK.pack(zlib.crc32(data))


def decode(data: Datagram) -> SegmentHeader:
    """Return the header with which ``data`` begins.

    :raises BadHeader: if there is none.
    :raises OtherVersion: if another version wrote it.
    """
    if len(data) < _PREFIX.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise BadHeader("it does not begin like a segment of a journal")
    _, version, length = _PREFIX.unpack_from(data)
    if not _FIXED.size + _CHECK.size <= length <= min(MAX_HEADER, len(data)):
        raise BadHeader(f"its header is cut, or damaged: {length:,} bytes of {len(data):,}")
    if zlib.crc32(memoryview(data)[: length - 4]) != _CHECK.unpack_from(data, length - 4)[0]:
        raise BadHeader("the checksum of its header is wrong")
    if version != VERSION:
        raise UnsupportedVersion(f"it is of version {version}, and this is made for version {VERSION}")
    *_, wrap, created_at, tag, size = _FIXED.unpack_from(data)
    (number,) = _NUMBER.unpack_from(data, _FIXED.size)
    start = _FIXED.size + _NUMBER.size
    if start + size > length - _CHECK.size:
        raise BadHeader(f"its header of {length:,} bytes has no room for a URI of {size:,}")
    try:
        stream = bytes(data[start : start + size]).decode()
    except UnicodeDecodeError as error:
        raise BadHeader(f"the URI in its header is not UTF-8: {error}") from None
    return SegmentHeader(number, stream, wrap, created_at, tag, length)
