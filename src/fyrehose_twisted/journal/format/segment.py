"""Segment of a journal: its contents, and reading of its frames."""

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
"""Bytes of a record that are enough to see the framing that a protocol puts before the payload."""

LONG_RECORDS = 8_192
"""Average bytes of a record from which reading only the heads is faster than reading the whole frame."""


class Projection(Enum):
    """Parts of a record to read. Checksums are verified only with :attr:`ALL`."""

    ALL = "all"
    HEADS = "heads"
    """At most :data:`HEAD_BYTES` bytes of each payload, where that saves reading."""
    TIMES = "times"
    """Positions and times only. Payloads are empty."""
    NUMBERS = "numbers"
    """Positions only. Payloads are empty and times are 0. Most frames are not read at all."""


class Segment:
    """One segment and the index of its frames.

    :ivar header: header of the segment.
    :ivar name: name of its file.
    :ivar ordered: whether its records are in order and it is sealed.
    :ivar end: offset after the last known frame, where the next one would begin.
    :ivar frame_indexes: index of the record frames, by epoch.
    :ivar lost: ranges that it declares lost, by epoch.
    :ivar starts: first position of each epoch, according to its start frames.
    :ivar newest: latest receive time of its records; 0 if it has none.
    :ivar damages: damage found while it was read.
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
        """Number of the segment in its journal."""
        return self.header.number

    @property
    def ordered(self) -> bool:
        """Whether its records are in order and it is sealed."""
        return self.suffix != OPEN_SUFFIX

    @property
    def last(self) -> tuple[int, int] | None:
        """Highest epoch, and the highest position held or lost in it; ``None`` if there is none."""
        epochs = [*self.frame_indexes, *self.lost]
        if not epochs:
            return None
        epoch = max(epochs)
        held = [self.frame_indexes[epoch].last] if epoch in self.frame_indexes else []
        return epoch, max([*held, *([self.lost[epoch].last] if epoch in self.lost else [])])

    @property
    def records(self) -> int:
        """Number of records. A replaced record counts every time it was written."""
        return sum(shelf.records for shelf in self.frame_indexes.values())

    def add(self, header: FrameHeader, body: memoryview) -> None:
        """Add a frame that follows the last known one."""
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
        """Add a frame of records that follows the last known one. ``positions`` may be ``None`` if it is dense."""
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
        """Load the frames appended up to ``end``.

        :returns: the damage after the last valid frame, which is not added to ``damages``.
        """
        damages: list[Damage] = []
        for found in self.scan_frames(file, self.end, end):
            if isinstance(found, ScannedFrame):
                self.add(found.header, found.body)
                self.damages += damages
                damages = []
            else:
                damages.append(found)
        return damages

    def scan_frames(
        self, file: IFile, start: int, end: int, progress: Callable[[int], object] | None = None
    ) -> Iterator[ScannedFrame | Damage]:
        """Yield its frames and damage; see :func:`~fyrehose_twisted.journal.format.scan.scan`."""
        header = self.header
        return scan(file, self.name, number=header.number, tag=header.tag, start=start, end=end, progress=progress)

    def read(self, file: IFile, header: FrameHeader, projection: Projection) -> Block:
        """Read the records of one of its frames.

        :raises JournalDamaged: if they cannot be read, or a verified part is damaged.
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
                raise ValueError("its numbers do not match its header")
        except (OSError, ValueError) as error:
            reason = f"it cannot be read: {error}"
            place = header.epoch, header.base, header.last
            raise JournalDamaged(Damage(self.name, header.offset, header.size, reason, *place)) from None
        offsets = np.zeros(count + 1, np.uint32)
        wrap = self.header.wrap
        return Block(self.header.stream, header.epoch, positions, received_at, offsets, memoryview(b""), wrap)

    def heads(self, file: IFile, header: FrameHeader) -> Block:
        """Read the records of one of its frames, truncated to :data:`HEAD_BYTES` bytes where that saves reading.

        Truncated records are not verified.

        :raises JournalDamaged: if they cannot be read, or a verified part is damaged.
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
            heads = [file.read(offset, size) for offset, size in wanted]
        except (OSError, ValueError) as error:
            reason = f"it cannot be read: {error}"
            place = header.epoch, header.base, header.last
            raise JournalDamaged(Damage(self.name, header.offset, header.size, reason, *place)) from None
        offsets = np.cumsum([0, *map(len, heads)], dtype=np.uint32)
        payload = memoryview(b"".join(heads))
        return Block(block.stream, block.epoch, block.positions, block.times, offsets, payload, block.wrap)

    def block(self, file: IFile, header: FrameHeader) -> Block:
        """Read and verify the records of one of its frames.

        :raises JournalDamaged: if they are damaged.
        """
        try:
            body = memoryview(file.read(header.offset + HEADER.size, header.body))
            check_body(header, body)
        except (OSError, BadFrame) as error:
            reason = f"it cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            place = header.epoch, header.base, header.last
            raise JournalDamaged(Damage(self.name, header.offset, header.size, reason, *place)) from None
        return read_records(header, body, self.header.stream, self.header.wrap)
