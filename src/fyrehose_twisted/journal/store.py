"""Journal of one stream on disk, with a single writer process and any number of readers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from errno import EDQUOT, EFBIG, ENOSPC
from pathlib import Path
from typing import Any

import numpy as np
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IDirectory, IFile, IJournal
from fyrehose_twisted.journal.arrow.tabular import Tabular
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.commit_group import AppendCounters, CommitGroup
from fyrehose_twisted.journal.compaction import FRAME_RECORDS, compact, temporary_name
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage, JournalBroken, JournalError, JournalFull, JournalInUse
from fyrehose_twisted.journal.format.disk import LOCK_NAME, LocalDirectory
from fyrehose_twisted.journal.format.disk_reserve import allocate_reserve, release_reserve
from fyrehose_twisted.journal.format.frames import (
    DENSE,
    HEADER,
    MAX_RECORDS,
    FrameHeader,
    FramePosition,
    frame_boundaries,
    lost_frame,
    records_frame,
    start_frame,
)
from fyrehose_twisted.journal.format.index_file import write_index
from fyrehose_twisted.journal.format.layout import directory_name, make_directory
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import MAX_URI, OPEN_SUFFIX, SegmentHeader, encode, segment_name
from fyrehose_twisted.journal.format.watermark import DurablePosition, latest_epochs, open_position_file, write_position
from fyrehose_twisted.journal.recovery import Recovery, recover
from fyrehose_twisted.journal.retention import Retention, expired_segments
from fyrehose_twisted.journal.segment_loader import find_missing
from fyrehose_twisted.record import Record

NO_SPACE_ERRNOS = (ENOSPC, EDQUOT, EFBIG)


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Settings of a journal.

    :ivar segment_bytes: size after which a new segment begins.
    :ivar segment_frames: number of frames after which a new segment begins, regardless of its size.
    :ivar frame_records: minimum number of records in a frame of a compacted segment.
    :ivar retention: retention policy.
    """

    segment_bytes: int = 64 * 2**20
    segment_frames: int = 32_768
    frame_records: int = FRAME_RECORDS
    retention: Retention = field(default_factory=Retention)


@implementer(IJournal)
class Journal(Tabular):
    """Journal on disk, open for writing; see :class:`~fyrehose_twisted.interfaces.IJournal`.

    :param directory: directory that holds its files and nothing else.
    :param stream: URI of the stream.
    :param wrap: modulus of the sequence numbers; 0 if they do not wrap.
    :param tag: tag of the frames if the journal is new; random by default.
    :param clock: returns UTC seconds since 1970.
    :ivar recovery: results of the recovery at opening.
    :ivar counters: outcomes of the appended records.
    :ivar commits: number of commits made durable.
    :raises JournalInUse: if another process has it open for writing.
    :raises JournalError: if it belongs to another stream, or cannot be read or written.
    """

    def __init__(
        self,
        directory: IDirectory,
        stream: str,
        *,
        wrap: int = 0,
        config: JournalConfig | None = None,
        tag: int | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if len(stream.encode()) > MAX_URI:
            raise ConfigurationError(
                f"stream {stream[:40]!r}… has {len(stream.encode()):,} bytes; the limit is {MAX_URI}"
            )
        self.directory = directory
        self.stream = stream
        self.wrap = wrap
        self.config = JournalConfig() if config is None else config
        self._clock = clock
        self.commits = 0
        self._broken: BaseException | None = None
        self._not_compacted: set[int] = set()
        self._unsynced = False
        try:
            self._lock = directory.lock()
        except BlockingIOError:
            raise JournalInUse(f"{directory} is in use by another process that writes to it") from None
        except OSError as error:
            raise JournalError(f"{directory} cannot be locked: {error.strerror}") from error
        try:
            self._open(wrap, tag)
        except OSError as error:
            self._lock.close()
            raise _journal_error(directory, error) from error
        except BaseException:
            self._lock.close()
            raise

    def _open(self, wrap: int, tag: int | None) -> None:
        self.recovery: Recovery = recover(self.directory, self.stream)
        known = self.recovery.header
        if known is not None and known.wrap != wrap:
            raise JournalError(f"{self.directory} has sequence numbers that wrap at {known.wrap}, not at {wrap}")
        if tag is None:
            tag = secrets.randbits(32)
        self.catalog = Catalog(self.directory, self.stream, wrap, tag if known is None else known.tag)
        self.catalog.segments = self.recovery.segments
        self.catalog.published_watermarks = self.recovery.published_watermarks
        self.catalog.rebuild()
        self.catalog.advance_watermarks()
        self._damaged = list(self.recovery.damages)
        self.recovery.damages += find_missing(self.catalog, self._damaged)
        self._group = CommitGroup(self.catalog)
        self.counters: AppendCounters = self._group.counters
        self._position_file = open_position_file(self.directory)
        allocate_reserve(self.directory)
        if self.recovery.open_segment is None:
            self._begin_segment(self.recovery.next_number)
        else:
            self._active = self.recovery.open_segment
            self._file: IFile = self.directory.open(self._active.name, writable=True)
            self._publish_durable(lasting=True)
        self.directory.sync()

    def __str__(self) -> str:
        return f"journal of {self.stream} in {self.directory}"

    @property
    def tag(self) -> int:
        """Random tag that tells this journal from any other in the same directory."""
        return self.catalog.tag

    @property
    def damages(self) -> list[Damage]:
        """Damage found at opening, and numbers that have gone missing and not been restored."""
        catalog = self.catalog
        if all(catalog.watermarks.get(epoch, 0) >= floor for epoch, floor in catalog.published_watermarks.items()):
            return self._damaged[:]  # Cheap common case: searching the coverage takes long.
        return [*self._damaged, *find_missing(catalog, self._damaged)]

    # Writing

    def begin(self, epoch: int, sequence: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.begin`."""
        self._check()
        self._group.begin(epoch, sequence)

    def append(self, records: Sequence[Record], *, authoritative: bool = False) -> int:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.append`."""
        self._check()
        taken = self._group.add(records, authoritative=authoritative)
        if self._group.is_full:
            self.write()
        return taken

    def lose(self, epoch: int, first: int, last: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.lose`."""
        self._check()
        self._group.lose(epoch, first, last)

    def commit(self, sync: bool = True) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.commit`."""
        self.write()
        if sync:
            self.sync()

    def write(self) -> None:
        """Write the commit group to the file. It can then be read but is not durable.

        :raises JournalFull: if the disk is full. The group is unchanged.
        """
        self._check()
        if not self._group:
            return
        if self._active.end >= self.config.segment_bytes or self._active.frames >= self.config.segment_frames:
            self.roll()
        self._group.drop_settled()
        frames = self._frames()
        if not frames:
            return
        active, end = self._active, self._active.end
        self._unsynced = True
        try:
            self._write(active, end, frames)
        except JournalError:
            raise
        except BaseException as error:
            self._broken = error  # The state of the file is unknown.
            raise

    def _write(self, active: Segment, end: int, frames: list[tuple[FrameHeader, bytes, Sequence[int] | None]]) -> None:
        self._put(end, b"".join(data for _, data, _ in frames))
        for header, data, positions in frames:
            if positions is None:
                active.add(header, memoryview(data)[HEADER.size :])
            else:
                active.add_records(header, None if header.flags & DENSE else np.array(positions, np.uint64))
        self._group.mark_written()

    def sync(self) -> None:
        """Make all writes durable and publish them to readers.

        :raises JournalBroken: if the sync fails. The journal must then be reopened.
        """
        self._check()
        if not self._unsynced:
            return
        try:
            self._file.sync()
            self._publish_durable()
            self.commits += 1
        except OSError as error:
            raise self._mark_broken(error) from error

    def roll(self) -> None:
        """Seal the active segment and begin a new one."""
        self.sync()
        try:
            self._begin_segment(max(self._active.number + 1, self.recovery.next_number))
        except OSError as error:
            raise self._write_error(error) from error

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.close`."""
        try:
            if self._broken is None:
                self.commit()
                try:
                    self._position_file.sync()
                except OSError as error:
                    raise self._mark_broken(error) from error
        finally:
            self._broken = self._broken or JournalError("it is closed")
            self.catalog.close()
            self._file.close()
            self._position_file.close()
            self._lock.close()

    # Compaction and retention

    def sealed_segments(self) -> list[Segment]:
        """Return the full segments that can be passed to :func:`~fyrehose_twisted.journal.compaction.compact`.

        Damaged segments are not compacted.
        """
        return [
            segment
            for segment in self.catalog.segments.values()
            if not (segment.ordered or segment is self._active or segment.number in self._not_compacted)
        ]

    def install_compacted(self, compacted: Segment) -> None:
        """Replace a segment by the result of :func:`~fyrehose_twisted.journal.compaction.compact`.

        A damaged segment is not replaced. Its bytes may become readable again, and a repair needs them.
        """
        self._check()
        number = compacted.number
        if compacted.damages:
            self._not_compacted.add(number)
        if compacted.damages or number not in self.catalog.segments:  # Retention has removed it.
            with suppress(OSError):
                self.directory.remove(temporary_name(number))
            return
        old = self.catalog.segments[number]
        try:
            self.directory.rename(temporary_name(number), compacted.name)
            self.directory.sync()
            self.catalog.segments[number] = compacted
            self.catalog.generation += 1
            self.catalog.release(old.name)
            with suppress(OSError):  # The index is optional.
                write_index(self.directory, compacted)
            self.directory.remove(old.name)
        except OSError as error:
            raise self._write_error(error) from error

    def compact(self) -> list[Damage]:
        """Compact all full segments; return the damage in the segments that could not be compacted."""
        damages: list[Damage] = []
        for segment in self.sealed_segments():
            try:
                ordered = compact(self.directory, segment, self.config.frame_records)
            except OSError as error:
                raise self._write_error(error) from error
            self.install_compacted(ordered)
            damages += ordered.damages
        return damages

    def trim(self) -> int:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.trim`.

        Removing segments requires a write, so on a full disk this releases the disk reserve first.
        """
        try:
            freed = self._trim()
        except JournalFull:
            if not release_reserve(self.directory):
                raise
            freed = self._trim()
        except OSError as error:
            raise self._write_error(error) from error
        if freed:
            allocate_reserve(self.directory)
        return freed

    def _trim(self) -> int:
        self._check()
        now = int(self._clock() * 1_000_000)
        retention = self.config.retention
        too_large = retention.size is not None and self._active.end >= self.config.segment_bytes
        if (too_large or retention.should_roll(self._active.header.created_at, now)) and self._active.records:
            self.roll()  # Only sealed segments can be removed.
        segments = [segment for segment in self.catalog.segments.values() if segment is not self._active]
        expired = expired_segments(segments, self._active, retention, now)
        if not expired:
            return 0
        starts: dict[int, int] = {}
        epoch, position = max((segment.last for segment in expired if segment.last is not None), default=(-1, -1))
        for earlier in [earlier for earlier in self.catalog.starts if earlier < epoch]:
            bounds = self.catalog.bounds(earlier)
            assert bounds is not None
            starts[earlier] = bounds.last + 1  # A remaining segment may hold records of it.
        if epoch in self.catalog.starts:
            starts[epoch] = max(position + 1, self.catalog.starts[epoch])
        self._write_starts(starts)  # Must be durable before any segment is removed.
        for segment in expired:
            del self.catalog.segments[segment.number]
            self.catalog.release(segment.name)
            self.directory.remove(segment.name)
            with suppress(FileNotFoundError):
                self.directory.remove(segment_name(segment.number, ".idx"))
        self.catalog.rebuild()
        self.catalog.advance_watermarks()
        self.directory.sync()
        return sum(segment.end for segment in expired)

    def _write_starts(self, starts: dict[int, int]) -> None:
        """Write and sync new epoch starts. The commit group is not written."""
        active = self._active
        header, data = start_frame(FramePosition(active.number, active.end, self.catalog.tag), sorted(starts.items()))
        self._unsynced = True
        self._put(active.end, data)
        active.add(header, memoryview(data)[HEADER.size :])
        self.sync()
        for epoch, position in starts.items():
            self.catalog.starts[epoch] = position
            self._group.drop_before(epoch, position)

    # Reading

    def epochs(self) -> list[int]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.epochs`."""
        return self.catalog.epochs()

    def bounds(self, epoch: int) -> Bounds | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.bounds`."""
        return self.catalog.bounds(epoch)

    def read(
        self, epoch: int, first: int, last: int, on_damage: Callable[[Damage], object] | None = None
    ) -> Iterator[Block]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.read`."""
        return self.catalog.read(epoch, first, last, on_damage)

    def get(self, epoch: int, position: int) -> Record | None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalReader.get`."""
        return self.catalog.get(epoch, position)

    def held(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.held`."""
        return self.catalog.held_ranges(epoch, first, last)

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """See :meth:`~fyrehose_twisted.interfaces.IJournalContents.losses`."""
        return self.catalog.losses(epoch, first, last)

    # Internals

    def _frames(self) -> list[tuple[FrameHeader, bytes, Sequence[int] | None]]:
        group, offset = self._group, self._active.end
        frames: list[tuple[FrameHeader, bytes, Sequence[int] | None]] = []

        def place() -> FramePosition:
            nonlocal offset
            offset = frames[-1][0].offset + frames[-1][0].size if frames else offset
            return FramePosition(self._active.number, offset, self.catalog.tag)

        if group.starts:
            frames.append((*start_frame(place(), sorted(group.starts.items())), None))
        for epoch, positions, times, payloads in group.columns():
            low = 0
            for high in frame_boundaries(positions, list(map(len, payloads))):
                part = positions[low:high]
                frames.append((*records_frame(place(), epoch, part, times[low:high], payloads[low:high]), part))
                low = high
        noticed_at = int(self._clock() * 1_000_000)
        for epoch, lost in sorted(group.lost.items()):
            pairs = list(lost)
            for row in range(0, len(pairs), MAX_RECORDS):
                frames.append((*lost_frame(place(), epoch, pairs[row : row + MAX_RECORDS], noticed_at), None))
        return frames

    def _put(self, offset: int, data: bytes) -> None:
        try:
            self._file.write(offset, data)
        except OSError as error:
            try:
                self._file.truncate(offset)
            except OSError:
                raise self._mark_broken(error) from error
            raise self._write_error(error) from error

    def _begin_segment(self, number: int) -> None:
        catalog, created_at = self.catalog, int(self._clock() * 1_000_000)
        header = SegmentHeader(number, self.stream, catalog.wrap, created_at, catalog.tag)
        packed = encode(header)
        active = Segment(self.directory, header._replace(length=len(packed)), OPEN_SUFFIX)
        # A segment must not depend on earlier segments, which retention may remove.
        starts = sorted({**catalog.expired_epochs, **catalog.starts}.items())
        frame, data = start_frame(FramePosition(number, active.end, catalog.tag), starts)
        name = segment_name(number, OPEN_SUFFIX)
        file: IFile = self.directory.open(name, create=True)
        try:
            file.write(0, packed + data)
            file.sync()
            self.directory.sync()
        except BaseException:
            file.close()
            with suppress(OSError):
                self.directory.remove(name)
            raise
        active.add(frame, memoryview(data)[HEADER.size :])
        if catalog.segments and number > 1 and hasattr(self, "_file"):
            self._file.close()
        self._active, self._file = active, file
        catalog.segments[number] = active
        self._publish_durable(lasting=True)

    def _publish_durable(self, *, lasting: bool = False) -> None:
        """Publish the durable position, given that all writes are durable.

        :param lasting: whether to sync the position file. Within a segment, an older position is sufficient.
        """
        catalog = self.catalog
        self._unsynced = False
        catalog.advance_watermarks()
        for epoch, position in catalog.watermarks.items():
            catalog.published_watermarks[epoch] = max(position, catalog.published_watermarks.get(epoch, 0))
        floors = latest_epochs(catalog.published_watermarks.items())
        write_position(self._position_file, DurablePosition(self._active.number, self._active.end, catalog.tag, floors))
        if lasting:
            self._position_file.sync()

    def _check(self) -> None:
        if self._broken is not None:
            raise JournalBroken(f"{self.directory} cannot be used any more: {self._broken}; reopen it")

    def _write_error(self, error: OSError) -> JournalError:
        if error.errno in NO_SPACE_ERRNOS:
            return JournalFull(
                f"{self.directory} cannot be written: {error.strerror}; free disk space or reduce --retention"
            )
        return self._mark_broken(error)

    def _mark_broken(self, error: OSError) -> JournalBroken:
        self._broken = error
        return JournalBroken(f"{self.directory} cannot be written: {error.strerror}; reopen it")


def _journal_error(directory: Any, error: OSError) -> JournalError:
    kind = JournalFull if error.errno in NO_SPACE_ERRNOS else JournalError
    return kind(f"{directory} cannot be opened for writing: {error.strerror}")


def check_unlocked(path: Path, stream: str) -> None:
    """Check that no process has the journal of ``stream`` below ``path`` open for writing, without creating files.

    :raises JournalInUse: if a process has.
    :raises JournalError: if its lock cannot be opened.
    """
    journal = path / directory_name(stream)
    if (journal / LOCK_NAME).exists():
        try:
            LocalDirectory(journal).lock().close()
        except BlockingIOError:
            raise JournalInUse(f"{journal} is in use by another process that writes to it") from None
        except OSError as error:
            raise JournalError(f"{journal} cannot be locked: {error.strerror}") from None


def open_journal(path: Path, stream: str, *, wrap: int = 0, config: JournalConfig | None = None) -> Journal:
    """Open the journal of ``stream`` below ``path`` for writing, creating it if needed.

    :raises ConfigurationError: if ``stream`` is not a valid URI.
    :raises JournalInUse: if another process has it open for writing.
    :raises JournalError: if it cannot be read or written.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        directory = make_directory(path, stream)
    except OSError as error:
        raise JournalError(f"directory {error.filename or path} cannot be created: {error.strerror}") from error
    return Journal(LocalDirectory(directory), stream, wrap=wrap, config=config)
