"""Index file of a sealed segment, which saves scanning the segment. It can always be rebuilt."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress

import numpy as np

from fyrehose_twisted.interfaces import IDirectory
from fyrehose_twisted.journal.format.frame_index import FrameIndex
from fyrehose_twisted.journal.format.frames import FrameHeader, FrameKind
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import INDEX_SUFFIX, segment_name
from fyrehose_twisted.ranges import RangeSet

MAGIC = b"\xf7FYRIDX\x01"
_FIXED = struct.Struct("<8sQIIIIIqQ")
"""Magic and version, segment bytes, segment number, tag, number of record frames, ranges and starts, newest time,
number of frames of any kind."""
_CHECK = struct.Struct("<I")

_FRAME = np.dtype(
    [
        *((name, "<u4") for name in ("flags", "count", "body")),
        *((name, "<u8") for name in ("base", "epoch")),
        ("span", "<u4"),
        ("offset", "<u8"),
        ("newest", "<i8"),
        ("crc", "<u4"),
    ]
)
_RANGE = np.dtype([("lost", "<u8"), ("epoch", "<u8"), ("first", "<u8"), ("last", "<u8")])
_START = np.dtype([("epoch", "<u8"), ("first", "<u8")])


def encode(segment: Segment) -> bytes:
    """Encode the index of ``segment``."""
    frames = [
        (h.flags, h.entries, h.body, h.base, h.epoch, h.span, h.offset, h.newest, h.body_crc)
        for shelf in segment.frame_indexes.values()
        for h in shelf
    ]
    ranges = [
        *((0, epoch, *pair) for epoch, shelf in segment.frame_indexes.items() for pair in shelf.held),
        *((1, epoch, *pair) for epoch, lost in segment.lost.items() for pair in lost),
    ]
    starts = list(segment.starts.items())
    counts = len(frames), len(ranges), len(starts)
    data = b"".join(
        (
            _FIXED.pack(
                MAGIC, segment.end, segment.number, segment.header.tag, *counts, segment.newest, segment.frames
            ),
            np.array(frames, _FRAME).tobytes(),
            np.array(ranges, _RANGE).tobytes(),
            np.array(starts, _START).tobytes(),
        )
    )
    return data + _CHECK.pack(zlib.crc32(data))


def restore(segment: Segment, data: bytes) -> bool:
    """Load the index into ``segment``; return whether it is valid and belongs to that segment."""
    if len(data) < _FIXED.size + 4 or zlib.crc32(memoryview(data)[:-4]) != _CHECK.unpack_from(data, len(data) - 4)[0]:
        return False
    magic, end, number, tag, frames, ranges, starts, newest, all_frames = _FIXED.unpack_from(data)
    if (magic, number, tag) != (MAGIC, segment.number, segment.header.tag):
        return False
    offset = _FIXED.size
    headers: dict[int, list[FrameHeader]] = {}
    for row in np.frombuffer(data, _FRAME, frames, offset).tolist():
        flags, count, body, base, epoch, span, start, time, crc = row
        header = FrameHeader(FrameKind.RECORDS, flags, count, body, base, epoch, span, number, start, time, tag, crc)
        headers.setdefault(epoch, []).append(header)
    offset += frames * _FRAME.itemsize
    held: dict[int, RangeSet] = {}
    for lost, epoch, first, last in np.frombuffer(data, _RANGE, ranges, offset).tolist():
        (segment.lost if lost else held).setdefault(epoch, RangeSet()).add(first, last)
    offset += ranges * _RANGE.itemsize
    for epoch, first in np.frombuffer(data, _START, starts, offset).tolist():
        segment.starts[epoch] = first
    for epoch, found in headers.items():
        segment.frame_indexes[epoch] = FrameIndex()
        segment.frame_indexes[epoch].restore(found, held.get(epoch, RangeSet()))
    segment.end, segment.newest, segment.frames = end, newest, all_frames
    return True


def write_index(directory: IDirectory, segment: Segment) -> None:
    """Write the index of ``segment`` beside it. It is not synced, as it can be rebuilt."""
    name = segment_name(segment.number, INDEX_SUFFIX)
    with suppress(FileNotFoundError):
        directory.remove(f"{name}.tmp")
    file = directory.open(f"{name}.tmp", create=True)
    try:
        file.write(0, encode(segment))
    finally:
        file.close()
    directory.rename(f"{name}.tmp", name)


def read_index(directory: IDirectory, segment: Segment, size: int) -> bool:
    """Load the index file of ``segment``, whose file has ``size`` bytes; return whether there is a valid one."""
    try:
        file = directory.open(segment_name(segment.number, INDEX_SUFFIX))
        data = file.read(0, file.size())
    except OSError:
        return False
    file.close()
    if len(data) < _FIXED.size or _FIXED.unpack_from(data)[1] != size:
        return False
    return restore(segment, data)
