"""How far a journal is durable, for readers in other processes, and which numbers it has promised not to change."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.errors import Damage

POSITION_NAME = "durable"
MAGIC = b"\xf7FYRMRK\x01"
_POSITION = struct.Struct("<8sIIQ4xI")
_WATERMARKS = struct.Struct("<8sII")
"""Magic, how many watermarks follow, tag of the journal."""
_WATERMARKS_MAGIC = b"\xf7FYRWTR\x01"
_WATERMARK = struct.Struct("<QQ")
_CHECK = struct.Struct("<I")
_MAX_TRIES = 3
"""A reader may look while the writer writes."""

MAX_EPOCHS = 8
"""Of so many epochs, the latest, the mark has the watermark."""

# All of it lies in one sector of 512 bytes, which a disk writes whole or not at all.
POSITION_BYTES = _POSITION.size + _WATERMARKS.size + MAX_EPOCHS * _WATERMARK.size + _CHECK.size


class DurablePosition(NamedTuple):
    """Everything before ``offset`` of segment ``segment``, and in segments before it, is durable."""

    segment: int
    offset: int
    tag: int
    watermarks: tuple[tuple[int, int], ...] = ()
    """The latest epochs, ascending, and the durable watermark of each."""


def open_position_file(directory: IDirectory) -> IFile:
    """Return the file of the mark, for its writer."""
    try:
        file: IFile = directory.open(POSITION_NAME, writable=True)
    except FileNotFoundError:
        file = directory.open(POSITION_NAME, create=True)
    return file


def latest_epochs(watermarks: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return those of ``watermarks`` that a mark has room for."""
    return tuple(sorted(watermarks)[-MAX_EPOCHS:])


def write_position(file: IFile, mark: DurablePosition) -> None:
    """Move the mark. It is not made durable itself: an older one is as true."""
    packed = _POSITION.pack(MAGIC, mark.segment, mark.tag, mark.offset, 0)[: -_CHECK.size]
    second = _WATERMARKS.pack(_WATERMARKS_MAGIC, len(mark.watermarks), mark.tag)
    second += b"".join(_WATERMARK.pack(*one) for one in mark.watermarks)
    second = second.ljust(_WATERMARKS.size + MAX_EPOCHS * _WATERMARK.size, b"\0")
    file.write(0, packed + _CHECK.pack(zlib.crc32(packed)) + second + _CHECK.pack(zlib.crc32(second)))


def read_position(directory: IDirectory, damages: list[Damage] | None = None) -> DurablePosition | None:
    """Return the mark; ``None`` if there is none that makes sense.

    :param damages: gets what is damaged of it. A mark that is not there, or not whole because a crash came while the
        first was written, is none that is damaged.
    """
    found: list[Damage] = []
    mark: DurablePosition | None = None
    with suppress(FileNotFoundError):
        file = directory.open(POSITION_NAME)
        try:
            for _ in range(_MAX_TRIES):
                found.clear()
                mark = _decode(file.read(0, POSITION_BYTES), found)
                if not found:
                    break
        finally:
            file.close()
    if damages is not None:
        damages += found
    return mark


def _decode(data: bytes, damages: list[Damage]) -> DurablePosition | None:
    first, second = data[: _POSITION.size], data[_POSITION.size :]
    if not any(data) or len(first) < _POSITION.size:
        return None  # A crash came before anything was marked.
    if not _is_valid(first, _POSITION.size, MAGIC):
        damages.append(Damage(POSITION_NAME, 0, len(data), "it is no mark of what is durable"))
        return None
    _, segment, tag, offset, _ = _POSITION.unpack(first)
    mark = DurablePosition(segment, offset, tag)
    if len(data) < POSITION_BYTES:
        return mark  # Of an earlier release, or what a crash left of the first one.
    if _is_valid(second, POSITION_BYTES - _POSITION.size, _WATERMARKS_MAGIC):
        _, count, theirs = _WATERMARKS.unpack_from(second)
        if theirs == tag and count <= MAX_EPOCHS:
            packed = second[_WATERMARKS.size :][: count * _WATERMARK.size]
            return mark._replace(watermarks=tuple(_WATERMARK.iter_unpack(packed)))
    damages.append(Damage(POSITION_NAME, _POSITION.size, len(second), "the watermarks in it are not what was written"))
    return mark


def _is_valid(data: bytes, size: int, magic: bytes) -> bool:
    if len(data) != size or data[: len(magic)] != magic:
        return False
    return bool(_CHECK.unpack_from(data, size - _CHECK.size)[0] == zlib.crc32(memoryview(data)[: -_CHECK.size]))
