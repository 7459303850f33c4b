"""How far a journal is durable, for readers in other processes."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from typing import NamedTuple

from fyrehose_twisted.interfaces import IDirectory, IFile

MARK_NAME = "durable"
MAGIC = b"\xf7FYRMRK\x01"
_MARK = struct.Struct("<8sIIQ4xI")
_TRIES = 3
"""A reader may look while the writer writes."""


class Mark(NamedTuple):
    """Everything before ``offset`` of segment ``segment``, and in segments before it, is durable."""

    segment: int
    offset: int
    tag: int


def open_mark(directory: IDirectory) -> IFile:
    """Return the file of the mark, for its writer."""
    try:
        file: IFile = directory.open(MARK_NAME, writable=True)
    except FileNotFoundError:
        file = directory.open(MARK_NAME, create=True)
    return file


def write_mark(file: IFile, mark: Mark) -> None:
    """Move the mark. It is not made durable itself: an older one is as true."""
    packed = _MARK.pack(MAGIC, mark.segment, mark.tag, mark.offset, 0)
    file.write(0, packed[:-4] + struct.pack("<I", zlib.crc32(packed[:-4])))


def read_mark(directory: IDirectory) -> Mark | None:
    """Return the mark; ``None`` if there is none that makes sense, as a power failure may leave it."""
    with suppress(FileNotFoundError):
        file = directory.open(MARK_NAME)
        try:
            for _ in range(_TRIES):
                packed = file.read(0, _MARK.size)
                if len(packed) == _MARK.size and zlib.crc32(packed[:-4]) == struct.unpack("<I", packed[-4:])[0]:
                    magic, segment, tag, offset, _ = _MARK.unpack(packed)
                    return Mark(segment, offset, tag) if magic == MAGIC else None
        finally:
            file.close()
    return None
