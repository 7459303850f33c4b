"""All segments of one journal together: what they hold, and reading it in order."""

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
"""Records and bytes of overlapping frames that are put in order at once, about."""

OPEN_FILES = 128
CACHED_FRAMES, CACHED_BYTES = 64, 64 * 2**20


class StoredBlock(NamedTuple):
    """Records as they stand in one segment."""

    segment: str
    """Name of its file."""
    block: Block


class _ReadOptions(NamedTuple):
    """How to read, as :meth:`Catalog.read` has it."""

    on_damage: Callable[[Damage], object] | None
    since: int = 0
    projection: Projection = Projection.ALL


class Catalog(Coverage):
    """What a journal on disk holds.

    :ivar segments: by number, ascending.
    :ivar open_files: how many are kept open.
    :ivar generation: changes when segments are replaced or removed.
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
        """Put together anew what the segments hold."""
        self.held, self.lost, self.starts = {}, {}, {}
        for segment in self.segments.values():
            self.starts.update(segment.starts)
        for segment in self.segments.values():
            for epoch, shelf in segment.frame_indexes.items():
                self._merge_ranges(self.held, epoch, shelf.held)
                self.starts.setdefault(epoch, shelf.first)  # Only if the frame that says so is damaged.
            for epoch, lost in segment.lost.items():
                self._merge_ranges(self.lost, epoch, lost)
                self.starts.setdefault(epoch, lost.first)
        last = max(self.starts, default=0)
        over = [epoch for epoch in self.starts if epoch < last and self._is_expired(epoch)]
        self.expired_epochs = {epoch: self.starts[epoch] for epoch in over}
        for epoch in over:
            self.drop_epoch(epoch)
        for epoch, start in self.starts.items():
            for ranges in (self.held.get(epoch), self.lost.get(epoch)):
                if ranges and start > 0:
                    ranges.discard(0, start - 1)
        self.generation += 1

    def _is_expired(self, epoch: int) -> bool:
        """Whether retention has passed an earlier epoch: nothing of it is kept."""
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
        """Return what is held of ``first`` to ``last``, in order.

        :param on_damage: called with what is damaged, which is then left out; without it, damage is raised.
        :param since: UTC microseconds since 1970; what was received before may be left out, and is then not even read.
        :param projection: what to read of records.
        :raises NotInJournal: if ``first`` lies before the beginning.
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
        """Return what stands in segments of ``first`` to ``last``, also what was replaced later: see
        :meth:`~fyrehose_twisted.journal.reader.JournalReader.stored`."""
        self.check_start(epoch, first)
        return self._stored(epoch, first, last, _ReadOptions(on_damage, projection=projection))

    def get(self, epoch: int, position: int) -> Record | None:
        """Return a record, ``None`` if it is not held.

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
                    damaged = error  # It may only span this position, and have nothing of it.
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
        """Return the file of a segment, open."""
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
        """Forget the open file of that name; who reads from it at the moment keeps it."""
        self._files.pop(name, None)
        for key in [key for key in self._blocks if key[0] == name]:
            self._cached -= len(self._blocks.pop(key).payload)

    def close(self) -> None:
        """Let go of all files."""
        while self._files:
            self._files.popitem()[1].close()
        self._blocks.clear()
        self._cached = 0

    def segment_missing(self, segment: Segment) -> None:
        """The file of ``segment`` is gone. Whoever keeps up with another process looks what became of it."""
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
        """Yield what is stored, oldest first, and up to where; nothing more once segments have changed."""
        generation = self.generation
        frames = self._frames(epoch, first, last)
        blocks: dict[tuple[int, int], Block] = {}
        cluster: list[tuple[Segment, FrameHeader]] = []
        index = 0
        while cluster or index < len(frames):
            if not cluster and _is_disjoint(frames, index):
                segment, header = frames[index]
                index, end = index + 1, min(header.last, last)
                if header.newest < options.since:
                    yield [], end
                    first = end + 1
                    continue
                alone = self._block(segment, header, {}, options)
                if self.generation != generation:
                    return
                yield _clip([(segment, alone)], first, end), end
                first = end + 1
                continue
            if not cluster:
                cluster = [frames[index]]
                index += 1
            begin = max(first, min(header.base for _, header in cluster))
            reach, count = max(header.last for _, header in cluster), sum(header.entries for _, header in cluster)
            size = sum(header.body for _, header in cluster)
            while index < len(frames):
                base = frames[index][1].base
                if base > reach or ((count >= MERGED_RECORDS or size >= MERGED_BYTES) and base > begin):
                    break
                cluster.append(frames[index])
                reach, count = max(reach, frames[index][1].last), count + frames[index][1].entries
                size += frames[index][1].body
                index += 1
            end = reach if index == len(frames) else min(reach, frames[index][1].base - 1)
            end = min(end, last)
            whole = [
                (segment, self._block(segment, header, blocks, options))
                for segment, header in sorted(cluster, key=_by_age)
            ]
            if self.generation != generation:
                return
            yield _clip(whole, first, end), end
            first = end + 1
            cluster = [(segment, header) for segment, header in cluster if header.last > end and end < last]
            going_on = {(segment.number, header.offset) for segment, header in cluster}
            blocks = {key: block for key, block in blocks.items() if key in going_on}

    def _frames(self, epoch: int, first: int, last: int) -> list[tuple[Segment, FrameHeader]]:
        found = [
            (segment, header)
            for segment in self._candidates(epoch, first, last)
            for header in segment.frame_indexes[epoch].covering(first, last)
        ]
        found.sort(key=_by_base)
        return found

    def _candidates(self, epoch: int, first: int, last: int) -> list[Segment]:
        """Return the segments that may hold some of ``first`` to ``last``, of thousands that do not."""
        state = self.generation, len(self.segments)
        if state != self._epoch_segments_state:
            self._epoch_segments, self._epoch_segments_state = {}, state
        row = self._epoch_segments.get(epoch)
        if row is None:
            row = self._epoch_segments[epoch] = _EpochSegments(epoch, list(self.segments.values())[:-1])
        near = row.between(first, last)
        for segment in islice(reversed(self.segments.values()), 1):  # Only to the last one something may be added.
            if epoch in segment.frame_indexes:
                near.append(segment)
        return near

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
    """Segments that have something of one epoch, by the first of it. They must not change."""

    def __init__(self, epoch: int, segments: list[Segment]) -> None:
        shelves = [
            (one.frame_indexes[epoch].first, one.frame_indexes[epoch].last, one)
            for one in segments
            if epoch in one.frame_indexes
        ]
        shelves.sort(key=itemgetter(0))
        self._segments = [segment for _, _, segment in shelves]
        self._firsts = [first for first, _, _ in shelves]
        # As a shelf has it for its frames.
        self._max_lasts = list(accumulate((last for _, last, _ in shelves), max))

    def between(self, first: int, last: int) -> list[Segment]:
        """Return those that may hold some of ``first`` to ``last``."""
        return self._segments[bisect_left(self._max_lasts, first) : bisect_right(self._firsts, last)]


def _by_number(segment: Segment) -> int:
    return segment.number


def _is_disjoint(frames: list[tuple[Segment, FrameHeader]], index: int) -> bool:
    """Say whether a frame has none of the numbers of the next one, nor so of any after it."""
    return index + 1 == len(frames) or frames[index + 1][1].base > frames[index][1].last


def _clip(blocks: list[tuple[Segment, Block | None]], first: int, last: int) -> list[StoredBlock]:
    parts = [(segment.name, block.within(first, last)) for segment, block in blocks if block is not None]
    return [StoredBlock(name, part) for name, part in parts if len(part)]


def _by_offset(header: FrameHeader) -> int:
    return header.offset


def _by_base(found: tuple[Segment, FrameHeader]) -> int:
    return found[1].base


def _by_age(found: tuple[Segment, FrameHeader]) -> tuple[int, int]:
    return found[0].number, found[1].offset
