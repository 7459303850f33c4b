"""One file of a journal: what it holds and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

import numpy as np

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.block import Block, Numbers
from fyrehose_twisted.journal.errors import Damage, JournalDamaged
from fyrehose_twisted.journal.format.frame_index import FrameIndex
from fyrehose_twisted.journal.format.frames import (
    DENSE,
    HEADER,
    BadFrame,
    FrameHeader,
    FrameKind,
    check_body,
    columns_size,
    read_pairs,
    read_positions,
    read_records,
)
from fyrehose_twisted.journal.format.scan import ScannedFrame, scan
from fyrehose_twisted.journal.format.segment_header import OPEN_SUFFIX, SegmentHeader, segment_name
from fyrehose_twisted.ranges import RangeSet

HEAD_BYTES = 64
"""Bytes of a record in which what a protocol puts before a payload can be seen."""

LONG_RECORDS = 8_192
"""Bytes of a record from which on reading only its beginning is faster."""


class Projection(Enum):
    """What of a record is read. Only with all of it is checked that it is what was written."""

    ALL = "all"
    HEADS = "heads"
    """Of the payload no more than :data:`HEAD_BYTES` bytes, where that saves reading."""
    TIMES = "times"
    """No payload: its size is given as 0."""
    NUMBERS = "numbers"
    """Neither payload nor time, which are given as 0. Most frames are then not even looked at."""


class Segment:
    """What is known of one segment.

    :ivar header: whose it is.
    :ivar name: of its file.
    :ivar ordered: its records are in order, and nothing is added to it any more.
    :ivar end: bytes of it that are known: where the next frame would begin.
    :ivar frame_indexes: the frames with records, by epoch.
    :ivar lost: what it says is lost, by epoch.
    :ivar starts: with which position each epoch begins, as it says.
    :ivar newest: the latest time at which one of its records was received; 0 if it has none.
    :ivar damages: what was found that is damaged, when it was read.
    """

    def __init__(self, directory: IDirectory, header: SegmentHeader, suffix: str) -> None:
        self.directory = directory
        self.header = header
        self.suffix = suffix
        self.name = segment_name(header.number, suffix)
        self.end = header.length
        self.frame_indexes: dict[int, FrameIndex] = {}
        self.lost: dict[int, RangeSet] = {}
        self.starts: dict[int, int] = {}
        self.newest = 0
        self.frames = 0
        self.damages: list[Damage] = []

    @property
    def number(self) -> int:
        """Which segment of the journal it is."""
        return self.header.number

    @property
    def ordered(self) -> bool:
        """Whether its records are in order, and nothing is added to it any more."""
        return self.suffix != OPEN_SUFFIX

    @property
    def last(self) -> tuple[int, int] | None:
        """The highest epoch and, in it, the highest position that is held or lost; ``None`` if there is none."""
        epochs = [*self.frame_indexes, *self.lost]
        if not epochs:
            return None
        epoch = max(epochs)
        held = [self.frame_indexes[epoch].last] if epoch in self.frame_indexes else []
        return epoch, max([*held, *([self.lost[epoch].last] if epoch in self.lost else [])])

    @property
    def records(self) -> int:
        """How many records it has; one that was replaced counts each time."""
        return sum(shelf.records for shelf in self.frame_indexes.values())

    def add(self, header: FrameHeader, body: memoryview) -> None:
        """Take in a frame that stands at its end."""
        match header.kind:
            case FrameKind.RECORDS:
                self.add_records(header, None if header.flags & DENSE else read_positions(header, body))
                return
            case FrameKind.LOST:
                lost = self.lost.setdefault(header.epoch, RangeSet())
                for first, last in read_pairs(header, body):
                    lost.add(first, last)
            case FrameKind.START:
                self.starts.update(read_pairs(header, body))
        self._grow(header)

    def add_records(self, header: FrameHeader, positions: Numbers | None) -> None:
        """Take in a frame of records that stands at its end; ``positions`` may be ``None`` if it is dense."""
        shelf = self.frame_indexes.get(header.epoch)
        if shelf is None:
            shelf = self.frame_indexes[header.epoch] = FrameIndex()
        shelf.add(header, positions)
        self.newest = max(self.newest, header.newest)
        self._grow(header)

    def _grow(self, header: FrameHeader) -> None:
        self.frames += 1
        self.end = max(self.end, header.offset + header.size)

    def read_appended(self, file: IFile, end: int) -> list[Damage]:
        """Take in what was added, up to ``end``; return what is damaged after the last good frame, of which
        ``damages`` has nothing."""
        damages: list[Damage] = []
        for what in self.scan_frames(file, self.end, end):
            if isinstance(what, ScannedFrame):
                self.add(what.header, what.body)
                self.damages += damages
                damages = []
            else:
                damages.append(what)
        return damages

    def scan_frames(
        self, file: IFile, start: int, end: int, progress: Callable[[int], object] | None = None
    ) -> Iterator[ScannedFrame | Damage]:
        """Yield its frames and what is damaged: see :func:`~fyrehose_twisted.journal.format.scan.scan`."""
        header = self.header
        return scan(file, self.name, number=header.number, tag=header.tag, start=start, end=end, progress=progress)

    def read(self, file: IFile, header: FrameHeader, projection: Projection) -> Block:
        """Return the records of one of its frames.

        :raises JournalDamaged: if they cannot be read, or are not what was written where that is checked.
        """
        match projection:
            case Projection.ALL:
                return self.block(file, header)
            case Projection.HEADS:
                return self.heads(file, header)
            case _:
                return self._without_payloads(file, header, times=projection is Projection.TIMES)

    def _without_payloads(self, file: IFile, header: FrameHeader, *, times: bool) -> Block:
        count, is_dense = header.entries, bool(header.flags & DENSE)
        received_at = np.zeros(count, np.int64)
        try:
            if is_dense:
                positions: Numbers = np.arange(header.base, header.base + count, dtype=np.uint64)
                if times:
                    received_at = np.frombuffer(file.read(header.offset + HEADER.size, 8 * count), "<i8", count)
            else:
                columns = file.read(header.offset + HEADER.size, columns_size(header))
                positions = read_positions(header, columns)
                if times:
                    received_at = np.frombuffer(columns, "<i8", count)
            if int(positions[-1]) != header.last or not (is_dense or bool((positions[1:] > positions[:-1]).all())):
                raise ValueError("its numbers are not those of its header")
        except (OSError, ValueError) as error:
            reason = f"it cannot be read: {error}"
            place = header.epoch, header.base, header.last
            raise JournalDamaged(Damage(self.name, header.offset, header.size, reason, *place)) from None
        offsets = np.zeros(count + 1, np.uint32)
        wrap = self.header.wrap
        return Block(self.header.stream, header.epoch, positions, received_at, offsets, memoryview(b""), wrap)

    def heads(self, file: IFile, header: FrameHeader) -> Block:
        """Return the records of one of its frames, of each no more than :data:`HEAD_BYTES` bytes where that saves
        reading.

        Then what is read is not checked.

        :raises JournalDamaged: if they cannot be read, or are not what was written where that is checked.
        """
        if header.body < LONG_RECORDS * header.entries:
            return self.block(file, header)
        start = header.offset + HEADER.size
        try:
            columns = file.read(start, columns_size(header))
            block = read_records(header, columns, self.header.stream, self.header.wrap)
            start += len(columns)
            sizes = np.minimum(np.diff(block.offsets), HEAD_BYTES)
            wanted = zip((block.offsets[:-1].astype(np.int64) + start).tolist(), sizes.tolist(), strict=True)
            beginnings = [file.read(offset, size) for offset, size in wanted]
        except (OSError, ValueError) as error:
            reason = f"it cannot be read: {error}"
            place = header.epoch, header.base, header.last
            raise JournalDamaged(Damage(self.name, header.offset, header.size, reason, *place)) from None
        offsets = np.cumsum([0, *map(len, beginnings)], dtype=np.uint32)
        payload = memoryview(b"".join(beginnings))
        return Block(block.stream, block.epoch, block.positions, block.times, offsets, payload, block.wrap)

    def block(self, file: IFile, header: FrameHeader) -> Block:
        """Return the records of one of its frames.

        :raises JournalDamaged: if they are not what was written.
        """
        try:
            body = memoryview(file.read(header.offset + HEADER.size, header.body))
            check_body(header, body)
        except (OSError, BadFrame) as error:
            reason = f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            place = header.epoch, header.base, header.last
            raise JournalDamaged(Damage(self.name, header.offset, header.size, reason, *place)) from None
        return read_records(header, body, self.header.stream, self.header.wrap)
