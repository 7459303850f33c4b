"""File ``durable``: the durable position of a journal and its published watermarks, for readers in other processes."""

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
"""Magic, number of watermarks that follow, tag of the journal."""
_WATERMARKS_MAGIC = b"\xf7FYRWTR\x01"
_WATERMARK = struct.Struct("<QQ")
_CHECK = struct.Struct("<I")
_MAX_TRIES = 3
"""Reads of the file before it counts as damaged: a read may overlap a write."""

MAX_EPOCHS = 8
"""Number of epochs, the latest ones, whose watermarks the file holds."""

# The file fits into one sector of 512 bytes, which a disk writes atomically.
POSITION_BYTES = _POSITION.size + _WATERMARKS.size + MAX_EPOCHS * _WATERMARK.size + _CHECK.size


class DurablePosition(NamedTuple):
    """Durable position: everything before ``offset`` of ``segment``, and in earlier segments, is durable."""

    segment: int
    offset: int
    tag: int
    watermarks: tuple[tuple[int, int], ...] = ()
    """Latest epochs, ascending, each with its durable watermark."""


def open_position_file(directory: IDirectory) -> IFile:
    """Open the position file for writing."""
    try:
        file: IFile = directory.open(POSITION_NAME, writable=True)
    except FileNotFoundError:
        file = directory.open(POSITION_NAME, create=True)
    return file


def latest_epochs(watermarks: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the ``watermarks`` that fit into a position: those of the latest epochs."""
    return tuple(sorted(watermarks)[-MAX_EPOCHS:])


def write_position(file: IFile, position: DurablePosition) -> None:
    """Write the durable position. The write itself is not synced: an older position stays valid."""
    packed = _POSITION.pack(MAGIC, position.segment, position.tag, position.offset, 0)[: -_CHECK.size]
    second = _WATERMARKS.pack(_WATERMARKS_MAGIC, len(position.watermarks), position.tag)
    second += b"".join(_WATERMARK.pack(*pair) for pair in position.watermarks)
    second = second.ljust(_WATERMARKS.size + MAX_EPOCHS * _WATERMARK.size, b"\0")
    file.write(0, packed + _CHECK.pack(zlib.crc32(packed)) + second + _CHECK.pack(zlib.crc32(second)))


def read_position(directory: IDirectory, damages: list[Damage] | None = None) -> DurablePosition | None:
    """Read the durable position; return ``None`` if there is no valid one.

    :param damages: receives the damage found in the file. A file that is missing, or that a crash left incomplete when
        it was first written, is not damaged.
    """
    found: list[Damage] = []
    position: DurablePosition | None = None
    with suppress(FileNotFoundError):
        file = directory.open(POSITION_NAME)
        try:
            for _ in range(_MAX_TRIES):
                found.clear()
                position = _decode(file.read(0, POSITION_BYTES), found)
                if not found:
                    break
        finally:
            file.close()
    if damages is not None:
        damages += found
    return position


def _decode(data: bytes, damages: list[Damage]) -> DurablePosition | None:
    first, second = data[: _POSITION.size], data[_POSITION.size :]
    if not any(data) or len(first) < _POSITION.size:
        return None  # A crash came before the first write was complete.
    if not _is_valid(first, _POSITION.size, MAGIC):
        damages.append(Damage(POSITION_NAME, 0, len(data), "it is not a valid durable position"))
        return None
    _, segment, tag, offset, _ = _POSITION.unpack(first)
    position = DurablePosition(segment, offset, tag)
    if len(data) < POSITION_BYTES:
        return position  # Written by an earlier release, or incomplete after a crash at the first write.
    if _is_valid(second, POSITION_BYTES - _POSITION.size, _WATERMARKS_MAGIC):
        _, count, second_tag = _WATERMARKS.unpack_from(second)
        if second_tag == tag and count <= MAX_EPOCHS:
            packed = second[_WATERMARKS.size :][: count * _WATERMARK.size]
            return position._replace(watermarks=tuple(_WATERMARK.iter_unpack(packed)))
    damages.append(Damage(POSITION_NAME, _POSITION.size, len(second), "its watermarks are damaged"))
    return position


def _is_valid(data: bytes, size: int, magic: bytes) -> bool:
    if len(data) != size or data[: len(magic)] != magic:
        return False
    return bool(_CHECK.unpack_from(data, size - _CHECK.size)[0] == zlib.crc32(memoryview(data)[: -_CHECK.size]))
