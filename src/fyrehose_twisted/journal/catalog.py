"""Catalog of the segments of a journal, and reading across them in order of position."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from itertools import accumulate, islice
from operator import itemgetter
from typing import NamedTuple

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.block import Block, merge_blocks
from fyrehose_twisted.journal.coverage import Coverage
from fyrehose_twisted.journal.errors import Damage, JournalDamaged, JournalError
from fyrehose_twisted.journal.format.frames import FrameHeader
from fyrehose_twisted.journal.format.segment import Projection, Segment
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record

MERGED_RECORDS, MERGED_BYTES = 65_536, 32 * 2**20
"""Records and bytes of overlapping frames that are merged at once, approximately."""

OPEN_FILES = 128
CACHED_FRAMES, CACHED_BYTES = 64, 64 * 2**20


class StoredBlock(NamedTuple):
    """Records as stored in one segment."""

    segment: str
    """Name of the segment's file."""
    block: Block


_StoredFrame = tuple[Segment, FrameHeader]
"""A frame and the segment that it is in."""


class _ReadOptions(NamedTuple):
    """Options of one read; see :meth:`Catalog.read`."""

    on_damage: Callable[[Damage], object] | None
    since: int = 0
    projection: Projection = Projection.ALL


class Catalog(Coverage):
    """Segments of one journal on disk, and the coverage that results from them.

    :ivar segments: segments by number, ascending.
    :ivar open_files: limit of the files kept open.
    :ivar generation: counter that changes when segments are replaced or removed.
    """

    def __init__(self, directory: IDirectory, stream: str, wrap: int, tag: int) -> None:
        super().__init__(stream, wrap)
        self.directory = directory
        self.tag = tag
        self.segments: dict[int, Segment] = {}
        self.generation = 0
        self.open_files = OPEN_FILES
        self._files: OrderedDict[str, IFile] = OrderedDict()
        self._blocks: OrderedDict[tuple[str, int], Block] = OrderedDict()
        self._cached = 0
        self._epoch_segments: dict[int, _EpochSegments] = {}
        self._epoch_segments_state = (0, 0)

    def rebuild(self) -> None:
        """Recompute the coverage from the segments."""
        self.held, self.lost, self.starts = {}, {}, {}
        for segment in self.segments.values():
            self.starts.update(segment.starts)
        for segment in self.segments.values():
            for epoch, index in segment.frame_indexes.items():
                self._merge_ranges(self.held, epoch, index.held)
                self.starts.setdefault(epoch, index.first)  # Only needed if the start frame is damaged.
            for epoch, lost in segment.lost.items():
                self._merge_ranges(self.lost, epoch, lost)
                self.starts.setdefault(epoch, lost.first)
        last = max(self.starts, default=0)
        expired = [epoch for epoch in self.starts if epoch < last and self._is_expired(epoch)]
        self.expired_epochs = {epoch: self.starts[epoch] for epoch in expired}
        for epoch in expired:
            self.drop_epoch(epoch)
        for epoch, start in self.starts.items():
            for ranges in (self.held.get(epoch), self.lost.get(epoch)):
                if ranges and start > 0:
                    ranges.discard(0, start - 1)
        self.generation += 1

    def _is_expired(self, epoch: int) -> bool:
        """Return whether retention has removed all of an epoch."""
        start = self.starts[epoch]
        return all(not ranges or ranges.last < start for ranges in (self.held.get(epoch), self.lost.get(epoch)))

    @staticmethod
    def _merge_ranges(table: dict[int, RangeSet], epoch: int, ranges: RangeSet) -> None:
        whole = table.setdefault(epoch, RangeSet())
        for first, last in ranges:
            whole.add(first, last)

    # Reading

    def read(
        self,
        epoch: int,
        first: int,
        last: int,
        on_damage: Callable[[Damage], object] | None = None,
        since: int = 0,
        *,
        projection: Projection = Projection.ALL,
    ) -> Iterator[Block]:
        """Return the held records at ``first`` to ``last``, in order.

        :param on_damage: called with each damaged part, which is then left out. Without it, damage is raised.
        :param since: UTC microseconds since 1970. Frames with only older records are skipped without reading them.
        :param projection: parts of the records to read.
        :raises NotInJournal: if ``first`` is before the start of the epoch.
        :raises JournalDamaged: while reading.
        """
        self.check_start(epoch, first)
        return self._read(epoch, first, last, _ReadOptions(on_damage, since, projection))

    def stored(
        self,
        epoch: int,
        first: int,
        last: int,
        on_damage: Callable[[Damage], object] | None = None,
        *,
        projection: Projection = Projection.ALL,
    ) -> Iterator[list[StoredBlock]]:
        """Return the stored records at ``first`` to ``last``, including replaced ones.

        See :meth:`~fyrehose_twisted.journal.reader.JournalReader.stored`.
        """
        self.check_start(epoch, first)
        return self._stored(epoch, first, last, _ReadOptions(on_damage, projection=projection))

    def get(self, epoch: int, position: int) -> Record | None:
        """Return the record at a position, or ``None`` if it is not held.

        :raises JournalDamaged: if it is damaged.
        """
        held = self.held.get(epoch)
        if held is None or position not in held:
            return None
        damaged: JournalDamaged | None = None
        for segment in sorted(self._candidates(epoch, position, position), key=_by_number, reverse=True):
            covering = segment.frame_indexes[epoch].covering(position, position)
            for header in sorted(covering, key=_by_offset, reverse=True):
                try:
                    block = self._cached_block(segment, header)
                except JournalDamaged as error:
                    damaged = error  # The frame may span this position without holding it.
                    continue
                except FileNotFoundError:
                    self.segment_missing(segment)
                    return self.get(epoch, position)
                row = block.row_of(position)
                if row is not None:
                    return next(block.rows(row, row + 1).records())
        if damaged is not None:
            raise damaged
        return None

    def file_of(self, segment: Segment) -> IFile:
        """Return the open file of a segment."""
        name = segment.name
        file = self._files.get(name)
        if file is None:
            try:
                file = self._files[name] = self.directory.open(name)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise JournalError(f"{self.directory}/{name} cannot be opened: {error.strerror}") from error
            if len(self._files) > self.open_files:
                self._files.popitem(last=False)
        else:
            self._files.move_to_end(name)
        return file

    def release(self, name: str) -> None:
        """Drop the cached file and blocks of a name. Reads in progress keep the file open."""
        self._files.pop(name, None)
        for key in [key for key in self._blocks if key[0] == name]:
            self._cached -= len(self._blocks.pop(key).payload)

    def close(self) -> None:
        """Close all files."""
        while self._files:
            self._files.popitem()[1].close()
        self._blocks.clear()
        self._cached = 0

    def segment_missing(self, segment: Segment) -> None:
        """Handle a segment whose file is gone. Subclasses that follow another writer reload here."""
        raise FileNotFoundError(f"{segment.name} is gone from {self.directory}")

    def _read(self, epoch: int, first: int, last: int, options: _ReadOptions) -> Iterator[Block]:
        for parts in self._stored(epoch, first, last, options):
            yield parts[0].block if len(parts) == 1 else merge_blocks([part.block for part in parts])

    def _stored(self, epoch: int, first: int, last: int, options: _ReadOptions) -> Iterator[list[StoredBlock]]:
        while first <= last:
            self.check_start(epoch, first)
            generation = self.generation
            for parts, end in self._windows(epoch, first, last, options):
                first = end + 1
                if parts:
                    yield parts
                if self.generation != generation:
                    break
            if self.generation == generation:
                return

    def _windows(
        self, epoch: int, first: int, last: int, options: _ReadOptions
    ) -> Iterator[tuple[list[StoredBlock], int]]:
        """Yield the stored blocks of each window, oldest first, and the last position of the window.

        Stops early if the segments change.
        """
        generation = self.generation
        frames = self._frames(epoch, first, last)
        window: list[_StoredFrame] = []
        blocks: dict[tuple[int, int], Block] = {}
        index = 0
        while window or index < len(frames):
            if not window and _is_disjoint(frames, index):
                segment, header = frames[index]
                index, end = index + 1, min(header.last, last)
                if header.newest < options.since:
                    found: list[StoredBlock] = []
                else:
                    found = _clip([(segment, self._block(segment, header, {}, options))], first, end)
            else:
                index = _extend_window(window, frames, index, first)
                end = _window_end(window, frames, index, last)
                whole = [
                    (segment, self._block(segment, header, blocks, options))
                    for segment, header in sorted(window, key=_by_age)
                ]
                found = _clip(whole, first, end)
                # A frame that reaches beyond this window is also part of the next one.
                window = [(segment, header) for segment, header in window if header.last > end and end < last]
                kept = {(segment.number, header.offset) for segment, header in window}
                blocks = {key: block for key, block in blocks.items() if key in kept}
            if self.generation != generation:
                return
            yield found, end
            first = end + 1

    def _frames(self, epoch: int, first: int, last: int) -> list[_StoredFrame]:
        found = [
            (segment, header)
            for segment in self._candidates(epoch, first, last)
            for header in segment.frame_indexes[epoch].covering(first, last)
        ]
        found.sort(key=_by_base)
        return found

    def _candidates(self, epoch: int, first: int, last: int) -> list[Segment]:
        """Return the segments that may hold positions ``first`` to ``last``, without visiting all segments."""
        state = self.generation, len(self.segments)
        if state != self._epoch_segments_state:
            self._epoch_segments, self._epoch_segments_state = {}, state
        index = self._epoch_segments.get(epoch)
        if index is None:
            index = self._epoch_segments[epoch] = _EpochSegments(epoch, list(self.segments.values())[:-1])
        candidates = index.between(first, last)
        for segment in islice(reversed(self.segments.values()), 1):  # The last segment may still grow.
            if epoch in segment.frame_indexes:
                candidates.append(segment)
        return candidates

    def _block(
        self,
        segment: Segment,
        header: FrameHeader,
        blocks: dict[tuple[int, int], Block],
        options: _ReadOptions,
    ) -> Block | None:
        key = segment.number, header.offset
        block = blocks.get(key)
        if block is None:
            try:
                block = blocks[key] = segment.read(self.file_of(segment), header, options.projection)
            except FileNotFoundError:
                self.segment_missing(segment)
                return None
            except JournalDamaged as error:
                if options.on_damage is None:
                    raise
                options.on_damage(error.damage)
                return None
        return block

    def _cached_block(self, segment: Segment, header: FrameHeader) -> Block:
        key = segment.name, header.offset
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = segment.block(self.file_of(segment), header)
            self._cached += len(block.payload)
            while len(self._blocks) > 1 and (len(self._blocks) > CACHED_FRAMES or self._cached > CACHED_BYTES):
                self._cached -= len(self._blocks.popitem(last=False)[1].payload)
        else:
            self._blocks.move_to_end(key)
        return block


class _EpochSegments:
    """Sealed segments with records of one epoch, sorted by the first of these. They must not change."""

    def __init__(self, epoch: int, segments: list[Segment]) -> None:
        entries = [
            (segment.frame_indexes[epoch].first, segment.frame_indexes[epoch].last, segment)
            for segment in segments
            if epoch in segment.frame_indexes
        ]
        entries.sort(key=itemgetter(0))
        self._segments = [segment for _, _, segment in entries]
        self._firsts = [first for first, _, _ in entries]
        # Running maximum, as in a frame index.
        self._max_lasts = list(accumulate((last for _, last, _ in entries), max))

    def between(self, first: int, last: int) -> list[Segment]:
        """Return the segments that may hold positions ``first`` to ``last``."""
        return self._segments[bisect_left(self._max_lasts, first) : bisect_right(self._firsts, last)]


def _by_number(segment: Segment) -> int:
    return segment.number


def _is_disjoint(frames: list[_StoredFrame], index: int) -> bool:
    """Return whether a frame does not overlap the next one, and so none of the following ones."""
    return index + 1 == len(frames) or frames[index + 1][1].base > frames[index][1].last


def _extend_window(window: list[_StoredFrame], frames: list[_StoredFrame], index: int, first: int) -> int:
    """Add to ``window`` the frames from ``index`` on that overlap it, within limits; return the next index.

    Frames that start at the first position of the window are added regardless of the limits.
    """
    if not window:
        window.append(frames[index])
        index += 1
    begin = max(first, min(header.base for _, header in window))
    reach = max(header.last for _, header in window)
    count, size = sum(header.entries for _, header in window), sum(header.body for _, header in window)
    while index < len(frames):
        header = frames[index][1]
        is_full = count >= MERGED_RECORDS or size >= MERGED_BYTES
        if header.base > reach or (is_full and header.base > begin):
            break
        window.append(frames[index])
        reach, count, size = max(reach, header.last), count + header.entries, size + header.body
        index += 1
    return index


def _window_end(window: list[_StoredFrame], frames: list[_StoredFrame], index: int, last: int) -> int:
    """Return the last position of a window whose next frame is at ``index``."""
    end = max(header.last for _, header in window)
    if index < len(frames):
        end = min(end, frames[index][1].base - 1)
    return min(end, last)


def _clip(blocks: list[tuple[Segment, Block | None]], first: int, last: int) -> list[StoredBlock]:
    parts = [(segment.name, block.within(first, last)) for segment, block in blocks if block is not None]
    return [StoredBlock(name, part) for name, part in parts if len(part)]


def _by_offset(header: FrameHeader) -> int:
    return header.offset


def _by_base(frame: _StoredFrame) -> int:
    return frame[1].base


def _by_age(frame: _StoredFrame) -> tuple[int, int]:
    return frame[0].number, frame[1].offset
