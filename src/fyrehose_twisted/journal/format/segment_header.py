"""Header of a segment, and the names of segment files."""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

from fyrehose_twisted.effects import Datagram

MAGIC = b"\xf7FYRJRNL"
VERSION = 1
_FIXED = struct.Struct("<8sIIQqIH")
"""Magic, version, header length, wrap, creation time, tag, URI length. The URI, zeros and a CRC-32 follow."""
_PREFIX = struct.Struct("<8sII")
_NUMBER = struct.Struct("<I")
_CHECK = struct.Struct("<I")

MAX_NUMBER = 2**32 - 1
"""Highest number of a segment."""

MAX_URI = 1_024
MAX_HEADER = 2_048
"""Upper limit of the size of a header, in bytes."""

OPEN_SUFFIX, FULL_SUFFIX, INDEX_SUFFIX = ".log", ".seg", ".idx"

COPYING_SUFFIX, MOVED_SUFFIX, DROPPED_SUFFIX = ".copying", ".tier", ".drop"
"""Suffixes of the manifest of a segment in object storage, by the state of the copy: it is being made or unverified, it
is verified and counts, or it is no longer needed."""

_NAME = re.compile(r"(\d{10})\.(?:log|seg)")


def different_tags(first: int | None, second: int | None) -> bool:
    """Return whether two tags are both known and differ, so that they belong to different journals."""
    return first is not None and second is not None and first != second


class SegmentHeader(NamedTuple):
    """Header of one segment."""

    number: int
    stream: str
    wrap: int
    """Modulus of the sequence numbers; 0 if they do not wrap."""
    created_at: int
    """UTC microseconds since 1970."""
    tag: int
    """Random tag of the journal, repeated in all its frames."""
    length: int = 0
    """Bytes of this header."""


class BadHeader(Exception):
    """The bytes are not a valid segment header. The text gives the reason."""


class UnsupportedVersion(Exception):
    """The segment has an unsupported format version. Nothing in the directory may be changed."""


def segment_name(number: int, suffix: str) -> str:
    """Return the file name of a segment."""
    return f"{number:010d}{suffix}"


def segment_number(name: str) -> int | None:
    """Return the segment number of a file name, or ``None`` if it is not a segment."""
    found = _NAME.fullmatch(name)
    number = int(found[1]) if found else 0
    return number if 0 < number <= MAX_NUMBER else None


def stored_segment(name: str) -> int | None:
    """Return the segment number of a file name that says where a segment is stored: here or in object storage."""
    return segment_number(name.removesuffix(MOVED_SUFFIX) + FULL_SUFFIX if name.endswith(MOVED_SUFFIX) else name)


def encode(header: SegmentHeader) -> bytes:
    """Encode a header."""
    uri = header.stream.encode()
    length = _FIXED.size + _NUMBER.size + len(uri) + _CHECK.size
    length += -length % 8
    fixed = _FIXED.pack(MAGIC, VERSION, length, header.wrap, header.created_at, header.tag, len(uri))
    data = (fixed + _NUMBER.pack(header.number) + uri).ljust(length - _CHECK.size, b"\0")
    return data + _CHECK.pack(zlib.crc32(data))


def decode(data: Datagram) -> SegmentHeader:
    """Parse the header at the start of ``data``.

    :raises BadHeader: if there is no valid header.
    :raises UnsupportedVersion: if its format version is unsupported.
    """
    if len(data) < _PREFIX.size or bytes(data[: len(MAGIC)]) != MAGIC:
        raise BadHeader("it does not start with the magic of a journal segment")
    _, version, length = _PREFIX.unpack_from(data)
    if not _FIXED.size + _CHECK.size <= length <= min(MAX_HEADER, len(data)):
        raise BadHeader(f"its header is truncated or damaged: length {length:,}, {len(data):,} bytes available")
    if zlib.crc32(memoryview(data)[: length - 4]) != _CHECK.unpack_from(data, length - 4)[0]:
        raise BadHeader("the checksum of its header is wrong")
    if version != VERSION:
        raise UnsupportedVersion(f"unsupported format version {version}; expected {VERSION}")
    *_, wrap, created_at, tag, size = _FIXED.unpack_from(data)
    (number,) = _NUMBER.unpack_from(data, _FIXED.size)
    start = _FIXED.size + _NUMBER.size
    if start + size > length - _CHECK.size:
        raise BadHeader(f"its header of {length:,} bytes is too short for a URI of {size:,}")
    try:
        stream = bytes(data[start : start + size]).decode()
    except UnicodeDecodeError as error:
        raise BadHeader(f"the URI in its header is not UTF-8: {error}") from None
    return SegmentHeader(number, stream, wrap, created_at, tag, length)
