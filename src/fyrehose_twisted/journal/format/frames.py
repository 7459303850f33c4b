"""Codec of frames, the units of a segment. The layout is in docs/reference/journal-format.md.

A frame is a 72-byte header and a body, each padded to a multiple of 8 bytes. All fields are little-endian, so on a
little-endian machine the columns of a body are numpy arrays without conversion.
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
from fyrehose_twisted.journal.block import Block, Numbers, integer_limits

MAGIC = b"\xf7FRM"
VERSION = 1
HEADER = struct.Struct("<4sBBHIIQQIIQqII8x")
"""Magic, version, kind, flags, count, body length, base, epoch, span, segment, offset, newest, tag, CRC of the body.
Then 4 unused bytes, and in the last 4 the CRC of the header."""
_CHECK = struct.Struct("<I")
_PAIR = struct.Struct("<QQ")

DENSE = 1
"""Flag: positions are ``base``, ``base + 1`` and so on, and the position column is omitted."""

MAX_RECORDS = 65_536
MAX_BODY = 2**30
"""Bytes. A header with a larger value is damaged."""

FRAME_BYTES = 16 * 2**20
"""Payload bytes after which a new frame begins."""

MAX_GAP = 4_096
"""Largest gap between two records of a frame. A larger gap begins a new frame, so that a late repair does not create a
frame that appears to cover everything in between."""

MAX_PAYLOAD = 2**28
"""Bytes of one payload."""


class FrameKind(IntEnum):
    """Kind of a frame: records, lost ranges or epoch starts."""

    RECORDS = 1
    LOST = 2
    START = 3


class FrameHeader(NamedTuple):
    """Header of a frame, without magic, version and checksum."""

    kind: FrameKind
    flags: int
    entries: int
    """Number of records, ranges or starts."""
    body: int
    """Bytes of the body, including padding."""
    base: int
    """Position of the first record."""
    epoch: int
    span: int
    """Position of the last record, less ``base``."""
    segment: int
    offset: int
    """Offset of the frame in its segment."""
    newest: int
    """Latest ``received_at`` in the frame."""
    tag: int
    """Tag of the journal. A frame with another tag is not valid here."""
    body_crc: int

    @property
    def size(self) -> int:
        """Bytes of the header and the body."""
        return HEADER.size + self.body

    @property
    def last(self) -> int:
        """Position of the last record."""
        return self.base + self.span


class FramePosition(NamedTuple):
    """Place in a journal at which a frame is written."""

    segment: int
    offset: int
    tag: int


class BadFrame(Exception):
    """The bytes are not a valid frame. The text gives the reason."""


def read_header(data: Datagram, start: int = 0) -> FrameHeader:
    """Parse the frame header at ``start`` in ``data``.

    :raises BadFrame: if it is not valid.
    """
    if len(data) - start < HEADER.size:
        raise BadFrame(f"{len(data) - start} bytes are too few for a frame header")
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
        raise BadFrame(f"unsupported frame version {version}; expected {VERSION}")
    if body > MAX_BODY or body % 8:
        raise BadFrame(f"invalid body length of {body:,} bytes")
    try:
        return FrameHeader(FrameKind(kind), flags, count, body, base, epoch, span, segment, offset, newest, tag, crc)
    except ValueError:
        raise BadFrame(f"unknown frame kind {kind}") from None


def check_body(header: FrameHeader, body: Datagram) -> None:
    """Validate the body of a frame against its header.

    :raises BadFrame: if the body is truncated, damaged or inconsistent with the header.
    """
    if len(body) < header.body:
        raise BadFrame(f"the body is truncated to {len(body):,} of {header.body:,} bytes")
    if zlib.crc32(memoryview(body)[: header.body]) != header.body_crc:
        raise BadFrame("the checksum of the body is wrong")
    count = header.entries
    match header.kind:
        case FrameKind.RECORDS:
            is_consistent = count > 0 and header.body >= columns_size(header)
        case _:
            is_consistent = header.body == 16 * count
    if not is_consistent:
        raise BadFrame(f"{count:,} entries do not fit a body of {header.body:,} bytes")


def columns_size(header: FrameHeader) -> int:
    """Return the number of bytes that precede the payloads in a body of records."""
    return (12 if header.flags & DENSE else 16) * header.entries + 4


def read_records(header: FrameHeader, body: Datagram, stream: str, wrap: int = 0) -> Block:
    """Return the records of a frame whose body has been validated."""
    count = header.entries
    times = np.frombuffer(body, "<i8", count)
    offsets = np.frombuffer(body, "<u4", count + 1, 8 * count)
    payload = memoryview(body)[columns_size(header) :]
    return Block(stream, header.epoch, read_positions(header, body), times, offsets, payload, wrap)


def read_positions(header: FrameHeader, body: Datagram) -> Numbers:
    """Return the positions of the records in a frame."""
    base, count = header.base, header.entries
    if header.flags & DENSE:
        return np.arange(base, base + count, dtype=np.uint64)
    return np.frombuffer(body, "<u4", count, 8 * count + 4 * (count + 1)).astype(np.uint64) + np.uint64(base)


def read_pairs(header: FrameHeader, body: Datagram) -> list[tuple[int, int]]:
    """Return the number pairs of a frame of lost ranges or epoch starts."""
    return list(_PAIR.iter_unpack(memoryview(body)[: 16 * header.entries]))


def records_frame(
    place: FramePosition, epoch: int, positions: Sequence[int], times: Sequence[int], payloads: Sequence[bytes]
) -> tuple[FrameHeader, bytearray]:
    """Encode a frame of records. They must be ascending, and within the limits of one frame."""
    count, base = len(positions), positions[0]
    span = positions[-1] - base
    dense = span == count - 1
    offsets = np.fromiter(accumulate(map(len, payloads), initial=0), "<u4", count + 1)
    columns = [np.array(times, "<i8").tobytes(), offsets.tobytes()]
    if not dense:
        columns.append((np.array(positions, np.uint64) - np.uint64(base)).astype("<u4").tobytes())
    flags, newest = DENSE if dense else 0, integer_limits(times)[1]
    return _frame(place, FrameKind.RECORDS, flags, count, (*columns, *payloads), base, epoch, span, newest)


def block_frame(place: FramePosition, block: Block) -> tuple[FrameHeader, bytearray]:
    """Encode a frame of the records of ``block``."""
    count, base = len(block), block.first
    span = block.last - base
    dense = span == count - 1
    offsets = block.offsets - block.offsets[0]
    columns: list[Datagram] = [block.times.astype("<i8").tobytes(), offsets.astype("<u4").tobytes()]
    if not dense:
        columns.append((block.positions - np.uint64(base)).astype("<u4").tobytes())
    columns.append(block.payload[int(block.offsets[0]) : int(block.offsets[-1])])
    flags = DENSE if dense else 0
    return _frame(place, FrameKind.RECORDS, flags, count, columns, base, block.epoch, span, int(block.times.max()))


def lost_frame(
    place: FramePosition, epoch: int, ranges: Iterable[tuple[int, int]], noticed_at: int
) -> tuple[FrameHeader, bytearray]:
    """Encode a frame that declares ranges lost."""
    pairs = list(ranges)
    body = b"".join(_PAIR.pack(*pair) for pair in pairs)
    return _frame(place, FrameKind.LOST, 0, len(pairs), [body], pairs[0][0], epoch, 0, noticed_at)


def start_frame(place: FramePosition, starts: Iterable[tuple[int, int]]) -> tuple[FrameHeader, bytearray]:
    """Encode a frame that gives the first position of each epoch."""
    pairs = list(starts)
    body = b"".join(_PAIR.pack(*pair) for pair in pairs)
    return _frame(place, FrameKind.START, 0, len(pairs), [body], 0, 0, 0, 0)


def _frame(
    place: FramePosition,
    kind: FrameKind,
    flags: int,
    count: int,
    parts: Iterable[Datagram],
    base: int,
    epoch: int,
    span: int,
    newest: int,
) -> tuple[FrameHeader, bytearray]:
    frame = bytearray().join((bytes(HEADER.size), *parts))  # The only copy of the payloads.
    frame += bytes(-len(frame) % 8)
    segment, offset, tag = place
    length = len(frame) - HEADER.size
    crc = zlib.crc32(memoryview(frame)[HEADER.size :])
    header = FrameHeader(kind, flags, count, length, base, epoch, span, segment, offset, newest, tag, crc)
    HEADER.pack_into(frame, 0, MAGIC, VERSION, *header)
    _CHECK.pack_into(frame, HEADER.size - 4, zlib.crc32(memoryview(frame)[: HEADER.size - 4]))
    return header, frame


def frame_boundaries(positions: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Return the rows at which a new frame must begin, followed by the number of rows."""
    boundaries: list[int] = []
    began, filled = 0, 0
    if positions[-1] - positions[0] < len(positions) + MAX_GAP and sum(sizes) < FRAME_BYTES:
        return [*range(MAX_RECORDS, len(positions), MAX_RECORDS), len(positions)]
    for row, size in enumerate(sizes):
        is_far = row > began and positions[row] - positions[row - 1] > MAX_GAP
        if is_far or row - began >= MAX_RECORDS or (row > began and filled + size > FRAME_BYTES):
            boundaries.append(row)
            began, filled = row, 0
        filled += size
    return [*boundaries, len(positions)]
