"""How far a journal is durable, for readers in other processes, and which numbers it has promised not to change."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.errors import Damage

MARK_NAME = "durable"
MAGIC = b"\xf7FYRMRK\x01"
_MARK = struct.Struct("<8sIIQ4xI")
_WATERMARKS = struct.Struct("<8sII")
"""Magic, how many watermarks follow, tag of the journal."""
_WATERMARKS_MAGIC = b"\xf7FYRWTR\x01"
_WATERMARK = struct.Struct("<QQ")
_CHECK = struct.Struct("<I")
_TRIES = 3
"""A reader may look while the writer writes."""

EPOCHS = 8
"""Of so many epochs, the latest, the mark has the watermark."""

# All of it lies in one sector of 512 bytes, which a disk writes whole or not at all.
MARK_BYTES = _MARK.size + _WATERMARKS.size + EPOCHS * _WATERMARK.size + _CHECK.size


class Mark(NamedTuple):
    """Everything before ``offset`` of segment ``segment``, and in segments before it, is durable."""

    segment: int
    offset: int
    tag: int
    watermarks: tuple[tuple[int, int], ...] = ()
    """The latest epochs, ascending, and the durable watermark of each."""


def open_mark(directory: IDirectory) -> IFile:
    """Return the file of the mark, for its writer."""
    try:
        file: IFile = directory.open(MARK_NAME, writable=True)
    except FileNotFoundError:
        file = directory.open(MARK_NAME, create=True)
    return file


def latest(watermarks: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return those of ``watermarks`` that a mark has room for."""
    return tuple(sorted(watermarks)[-EPOCHS:])


def write_mark(file: IFile, mark: Mark) -> None:
    """Move the mark. It is not made durable itself: an older one is as true."""
    packed = _MARK.pack(MAGIC, mark.segment, mark.tag, mark.offset, 0)[: -_CHECK.size]
    second = _WATERMARKS.pack(_WATERMARKS_MAGIC, len(mark.watermarks), mark.tag)
    second += b"".join(_WATERMARK.pack(*one) for one in mark.watermarks)
    second = second.ljust(_WATERMARKS.size + EPOCHS * _WATERMARK.size, b"\0")
    file.write(0, packed + _CHECK.pack(zlib.crc32(packed)) + second + _CHECK.pack(zlib.crc32(second)))


def read_mark(directory: IDirectory, damages: list[Damage] | None = None) -> Mark | None:
    """Return the mark; ``None`` if there is none that makes sense.

    :param damages: gets what is damaged of it. A mark that is not there, or not whole because a crash came while the
        first was written, is none that is damaged.
    """
    found: list[Damage] = []
    mark: Mark | None = None
    with suppress(FileNotFoundError):
        file = directory.open(MARK_NAME)
        try:
            for _ in range(_TRIES):
                found.clear()
                mark = _decode(file.read(0, MARK_BYTES), found)
                if not found:
                    break
        finally:
            file.close()
    if damages is not None:
        damages += found
    return mark


def _decode(data: bytes, damages: list[Damage]) -> Mark | None:
    first, second = data[: _MARK.size], data[_MARK.size :]
    if not any(data) or len(first) < _MARK.size:
        return None  # A crash came before anything was marked.
    if not _is_whole(first, _MARK.size, MAGIC):
        damages.append(Damage(MARK_NAME, 0, len(data), "it is no mark of what is durable"))
        return None
    _, segment, tag, offset, _ = _MARK.unpack(first)
    mark = Mark(segment, offset, tag)
    if len(data) < MARK_BYTES:
        return mark  # Of an earlier release, or what a crash left of the first one.
    if _is_whole(second, MARK_BYTES - _MARK.size, _WATERMARKS_MAGIC):
        _, count, theirs = _WATERMARKS.unpack_from(second)
        if theirs == tag and count <= EPOCHS:
            packed = second[_WATERMARKS.size :][: count * _WATERMARK.size]
            return mark._replace(watermarks=tuple(_WATERMARK.iter_unpack(packed)))
    damages.append(Damage(MARK_NAME, _MARK.size, len(second), "the watermarks in it are not what was written"))
    return mark


def _is_whole(data: bytes, size: int, magic: bytes) -> bool:
    if len(data) != size or data[: len(magic)] != magic:
        return False
    return bool(_CHECK.unpack_from(data, size - _CHECK.size)[0] == zlib.crc32(memoryview(data)[: -_CHECK.size]))
