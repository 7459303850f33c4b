"""Sequential scan of a segment, frame by frame, that resynchronizes after damage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fyrehose_twisted.interfaces import IFile
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.frames import (
    HEADER,
    MAGIC,
    BadFrame,
    FrameHeader,
    FrameKind,
    check_body,
    read_header,
)

READ_CHUNK = 4 * 2**20


class ScannedFrame(NamedTuple):
    """Header and body of a valid frame."""

    header: FrameHeader
    body: memoryview


def scan(
    file: IFile,
    name: str,
    *,
    number: int,
    tag: int | None,
    start: int,
    end: int,
    progress: Callable[[int], object] | None = None,
) -> Iterator[ScannedFrame | Damage]:
    """Yield the valid frames between ``start`` and ``end``, and the damage between them.

    Damage that reaches to ``end`` may be the torn end of the segment that was being written.

    :param tag: tag of the journal; ``None`` to accept the tag of the first frame.
    :param progress: called with the number of bytes scanned since the last call.
    """
    window = _BufferedWindow(file, end)
    offset = start
    while offset < end:
        try:
            header = _header_at(window, offset, number, tag)
            body = window.read(offset + HEADER.size, header.body)
            check_body(header, body)
        except BadFrame as error:
            after = _next_frame(window, offset + 8, end, number, tag)
            yield _damage(name, window, offset, after - offset, str(error), number, tag)
            if progress is not None:
                progress(after - offset)
            offset = after
            continue
        tag = header.tag
        yield ScannedFrame(header, body)
        if progress is not None:
            progress(header.size)
        offset += header.size


class _BufferedWindow:
    """A buffered window of a few megabytes over a file."""

    def __init__(self, file: IFile, end: int) -> None:
        self._file = file
        self._end = end
        self._start = 0
        self._view = memoryview(b"")

    def read(self, offset: int, length: int) -> memoryview:
        """Return ``length`` bytes at ``offset``, or fewer at the end of the range."""
        length = max(0, min(length, self._end - offset))
        inside = offset - self._start
        if inside < 0 or inside + length > len(self._view):
            wanted = min(max(length, READ_CHUNK), self._end - offset)
            self._view = memoryview(self._file.read(offset, wanted))
            self._start, inside = offset, 0
        return self._view[inside : inside + length]


def _header_at(window: _BufferedWindow, offset: int, number: int, tag: int | None) -> FrameHeader:
    header = read_header(window.read(offset, HEADER.size))
    if header.offset != offset or header.segment != number:
        raise BadFrame(f"the frame belongs to segment {header.segment}, offset {header.offset:,}")
    if tag is not None and header.tag != tag:
        raise BadFrame("the frame belongs to another journal")
    return header


def _next_frame(window: _BufferedWindow, offset: int, end: int, number: int, tag: int | None) -> int:
    """Return the offset of the next valid frame header, or ``end``."""
    while offset < end:
        piece = bytes(window.read(offset, READ_CHUNK))
        at = piece.find(MAGIC)
        while at >= 0:
            if (offset + at) % 8 == 0:
                try:
                    _header_at(window, offset + at, number, tag)
                except BadFrame:
                    pass
                else:
                    return offset + at
            at = piece.find(MAGIC, at + 1)
        offset += max(8, len(piece) - len(piece) % 8 - 8)
        if len(piece) < len(MAGIC):
            break
    return end


def _damage(
    name: str, window: _BufferedWindow, offset: int, length: int, reason: str, number: int, tag: int | None
) -> Damage:
    try:
        header = _header_at(window, offset, number, tag)
    except BadFrame:
        return Damage(name, offset, length, reason)
    if header.kind != FrameKind.RECORDS:
        return Damage(name, offset, length, reason)  # Its base is not the number of a record.
    return Damage(name, offset, length, reason, header.epoch, header.base, header.last)
