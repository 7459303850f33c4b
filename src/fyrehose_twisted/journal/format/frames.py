"""Frames: what a segment is made of. Bytes to columns and back; docs/reference/journal-format.md has every byte.

A frame is a header of 72 bytes and a body, both padded to multiples of 8. Everything is little-endian, so that on the
machines of today the columns of a body are numpy arrays as they are.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Sequence
from enum import IntEnum
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from fyrehose_twisted.effects import Datagram
from fyrehose_twisted.journal.block import Block, Numbers

MAGIC = b"\xf7FRM"
VERSION = 1
HEADER = struct.Struct("<4sBBHIIQQIIQqII8x")
"""Magic, version, kind, flags, count, body length, base, epoch, span, segment, offset, newest, tag, CRC of the body;
4 bytes are free, and the header's own CRC stands in the last 4."""
_CHECK = struct.Struct("<I")
_PAIR = struct.Struct("<QQ")

DENSE = 1
"""Flag: the numbers are ``base``, ``base + 1``, and so on, and no column says so."""

MAX_RECORDS = 65_536
MAX_BODY = 2**30
"""Bytes. What says that it is longer is damaged."""

FRAME_BYTES = 16 * 2**20
"""Payload bytes after which another frame begins."""

MAX_GAP = 4_096
"""Numbers that a frame may leave out between two records; where more are missing another frame begins, so that a late
repair does not make a frame that seems to cover everything."""

MAX_PAYLOAD = 2**28
"""Bytes of one record."""


class FrameKind(IntEnum):
    """What a frame holds."""

    RECORDS = 1
    LOST = 2
    START = 3


class FrameHeader(NamedTuple):
    """The header of a frame, without magic, version and checks."""

    kind: FrameKind
    flags: int
    entries: int
    """How many records, ranges or starts."""
    body: int
    """Bytes of the body, padding included."""
    base: int
    """Position of the first record."""
    epoch: int
    span: int
    """Position of the last record, less ``base``."""
    segment: int
    offset: int
    """Where the frame begins in its segment."""
    newest: int
    """Latest ``received_at`` in it."""
    tag: int
    """Of the journal: a frame of another one is no frame here."""
    body_crc: int

    @property
    def size(self) -> int:
        """Bytes of header and body."""
        return HEADER.size + self.body

    @property
    def last(self) -> int:
        """Position of the last record."""
        return self.base + self.span


class FramePosition(NamedTuple):
    """Where a frame is to stand."""

    segment: int
    offset: int
    tag: int


class BadFrame(Exception):
    """The bytes at hand are not a frame; its text says why."""


def read_header(data: Datagram, start: int = 0) -> FrameHeader:
    """Return the header at ``start`` in ``data``.

    :raises BadFrame: if it is none.
    """
    if len(data) - start < HEADER.size:
        raise BadFrame(f"{len(data) - start} bytes are too few for a frame's header")
    end = start + HEADER.size
    (check,) = _CHECK.unpack_from(data, end - 4)
    magic, version, kind, flags, count, body, base, epoch, span, segment, offset, newest, tag, crc = HEADER.unpack_from(
        data, start
    )
    if magic != MAGIC:
        raise BadFrame("no frame begins here")
    if zlib.crc32(memoryview(data)[start : end - 4]) != check:
        raise BadFrame("the checksum of the header is wrong")
    if version != VERSION:
        raise BadFrame(f"the frame is of version {version}; this is made for version {VERSION}")
    if body > MAX_BODY or body % 8:
        raise BadFrame(f"a body of {body:,} bytes")
    try:
        return FrameHeader(FrameKind(kind), flags, count, body, base, epoch, span, segment, offset, newest, tag, crc)
    except ValueError:
        raise BadFrame(f"a frame of kind {kind} is not known") from None


def check_body(header: FrameHeader, body: Datagram) -> None:
    """Raise what is wrong with a body.

    :raises BadFrame: if it is cut, damaged, or not what the header says.
    """
    if len(body) < header.body:
        raise BadFrame(f"{len(body):,} of {header.body:,} bytes of the body are there")
    if zlib.crc32(memoryview(body)[: header.body]) != header.body_crc:
        raise BadFrame("the checksum of the body is wrong")
    count = header.entries
    match header.kind:
        case FrameKind.RECORDS:
            whole = count > 0 and header.body >= columns_size(header)
        case _:
            whole = header.body == 16 * count
    if not whole:
        raise BadFrame(f"{count:,} entries do not fit a body of {header.body:,} bytes")


def columns_size(header: FrameHeader) -> int:
    """Return how many bytes of a body of records precede the payloads."""
    return (12 if header.flags & DENSE else 16) * header.entries + 4


def read_records(header: FrameHeader, body: Datagram, stream: str, wrap: int = 0) -> Block:
    """Return the records of a frame whose body was checked."""
    count = header.entries
    times = np.frombuffer(body, "<i8", count)
    offsets = np.frombuffer(body, "<u4", count + 1, 8 * count)
    payload = memoryview(body)[columns_size(header) :]
    return Block(stream, header.epoch, read_positions(header, body), times, offsets, payload, wrap)


def read_positions(header: FrameHeader, body: Datagram) -> Numbers:
    """Return the positions of a frame's records."""
    base, count = header.base, header.entries
    if header.flags & DENSE:
        return np.arange(base, base + count, dtype=np.uint64)
    return np.frombuffer(body, "<u4", count, 8 * count + 4 * (count + 1)).astype(np.uint64) + np.uint64(base)


def read_pairs(header: FrameHeader, body: Datagram) -> list[tuple[int, int]]:
    """Return the pairs of numbers in a frame of lost ranges or of starts."""
    return list(_PAIR.iter_unpack(memoryview(body)[: 16 * header.entries]))


def records_frame(
    place: FramePosition, epoch: int, positions: Sequence[int], times: Sequence[int], payloads: Sequence[bytes]
) -> tuple[FrameHeader, bytes]:
    """Return a frame of records, which are in ascending order and neither too many nor too far apart."""
    count, base = len(positions), positions[0]
    span = positions[-1] - base
    dense = span == count - 1
    offsets = np.fromiter(accumulate(map(len, payloads), initial=0), "<u4", count + 1)
    columns = [np.array(times, "<i8").tobytes(), offsets.tobytes()]
    if not dense:
        columns.append((np.array(positions, np.uint64) - np.uint64(base)).astype("<u4").tobytes())
    body = b"".join((*columns, *payloads))
    return _frame(place, FrameKind.RECORDS, DENSE if dense else 0, count, body, base, epoch, span, max(times))


def block_frame(place: FramePosition, block: Block) -> tuple[FrameHeader, bytes]:
    """Return a frame of the records of ``block``."""
    count, base = len(block), block.first
    span = block.last - base
    dense = span == count - 1
    offsets = block.offsets - block.offsets[0]
    columns = [block.times.astype("<i8").tobytes(), offsets.astype("<u4").tobytes()]
    if not dense:
        columns.append((block.positions - np.uint64(base)).astype("<u4").tobytes())
    payload = block.payload[int(block.offsets[0]) : int(block.offsets[-1])]
    body = b"".join((*columns, payload))
    flags = DENSE if dense else 0
    return _frame(place, FrameKind.RECORDS, flags, count, body, base, block.epoch, span, int(block.times.max()))


def lost_frame(
    place: FramePosition, epoch: int, ranges: Iterable[tuple[int, int]], noticed_at: int
) -> tuple[FrameHeader, bytes]:
    """Return a frame that says which numbers are lost."""
    pairs = list(ranges)
    body = b"".join(_PAIR.pack(*pair) for pair in pairs)
    return _frame(place, FrameKind.LOST, 0, len(pairs), body, pairs[0][0], epoch, 0, noticed_at)


def start_frame(place: FramePosition, starts: Iterable[tuple[int, int]]) -> tuple[FrameHeader, bytes]:
    """Return a frame that says with which position each epoch begins."""
    pairs = list(starts)
    return _frame(place, FrameKind.START, 0, len(pairs), b"".join(_PAIR.pack(*pair) for pair in pairs), 0, 0, 0, 0)


def _frame(
    place: FramePosition,
    kind: FrameKind,
    flags: int,
    count: int,
    body: bytes,
    base: int,
    epoch: int,
    span: int,
    newest: int,
) -> tuple[FrameHeader, bytes]:
    body += bytes(-len(body) % 8)
    segment, offset, tag = place
    crc = zlib.crc32(body)
    header = FrameHeader(kind, flags, count, len(body), base, epoch, span, segment, offset, newest, tag, crc)
    packed = bytearray(HEADER.size)
    HEADER.pack_into(packed, 0, MAGIC, VERSION, *header)
    _CHECK.pack_into(packed, HEADER.size - 4, zlib.crc32(memoryview(packed)[:-4]))
    return header, bytes(packed) + body


def frame_boundaries(positions: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return the rows at which another frame has to begin, and at the end the number of rows."""
    found: list[int] = []
    began, filled = 0, 0
    if positions[-1] - positions[0] < len(positions) + MAX_GAP and sum(sizes) < FRAME_BYTES:
        return [*range(MAX_RECORDS, len(positions), MAX_RECORDS), len(positions)]
    for row, size in enumerate(sizes):
        far = row > began and positions[row] - positions[row - 1] > MAX_GAP
        if far or row - began >= MAX_RECORDS or (row > began and filled + size > FRAME_BYTES):
            found.append(row)
            began, filled = row, 0
        filled += size
    return [*found, len(positions)]
