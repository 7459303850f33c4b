"""Journal of one stream on disk, with a single writer process and any number of readers."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IDirectory, IJournal
from fyrehose_twisted.journal.arrow.tabular import Tabular
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.commit_group import AppendCounters, CommitGroup
from fyrehose_twisted.journal.compaction import FRAME_RECORDS, compact, temporary_name
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import Damage, JournalError, JournalFull, JournalInUse
from fyrehose_twisted.journal.format.disk import LOCK_NAME, LocalDirectory
from fyrehose_twisted.journal.format.disk_reserve import allocate_reserve, release_reserve
from fyrehose_twisted.journal.format.frames import start_frame
from fyrehose_twisted.journal.format.index_file import write_index
from fyrehose_twisted.journal.format.layout import directory_name, make_directory
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import MAX_URI, segment_name
from fyrehose_twisted.journal.format.watermark import open_position_file
from fyrehose_twisted.journal.recovery import Recovery, recover
from fyrehose_twisted.journal.retention import Retention, expired_segments
from fyrehose_twisted.journal.segment_loader import find_missing
from fyrehose_twisted.journal.tier.config import TierConfig, TierCounters
from fyrehose_twisted.journal.tier.directory import open_directory
from fyrehose_twisted.journal.writing.group_frames import EncodedFrame, encode_group
from fyrehose_twisted.journal.writing.segment_writer import NO_SPACE_ERRNOS, SegmentWriter
from fyrehose_twisted.record import Record


@dataclass(frozen=True, slots=True)
class JournalConfig:
    """Settings of a journal.

    :ivar segment_bytes: size after which a new segment begins.
    :ivar segment_frames: number of frames after which a new segment begins, regardless of its size.
    :ivar frame_records: minimum number of records in a frame of a compacted segment.
    :ivar retention: retention policy.
    :ivar tier: object storage to which a service moves compacted segments; ``None`` to keep them local.
    """

    segment_bytes: int = 64 * 2**20
    segment_frames: int = 32_768
    frame_records: int = FRAME_RECORDS
    retention: Retention = field(default_factory=Retention)
    tier: TierConfig | None = None


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
    :ivar tier_counters: outcomes of the moving of its segments to object storage.
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
        self.tier_counters = TierCounters()
        self._not_compacted: set[int] = set()
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
        position_file = open_position_file(self.directory)
        allocate_reserve(self.directory)
        self._writer = SegmentWriter(
            self.directory,
            self.catalog,
            position_file,
            self._clock,
            resume=self.recovery.open_segment,
            next_number=self.recovery.next_number,
        )
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
        self._writer.check()
        self._group.begin(epoch, sequence)

    def append(self, records: Sequence[Record], *, authoritative: bool = False) -> int:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.append`."""
        self._writer.check()
        taken = self._group.add(records, authoritative=authoritative)
        if self._group.is_full:
            self.write()
        return taken

    def lose(self, epoch: int, first: int, last: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.lose`."""
        self._writer.check()
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
        self._writer.check()
        if not self._group:
            return
        active = self._writer.active
        if active.end >= self.config.segment_bytes or active.frames >= self.config.segment_frames:
            self.roll()
        self._group.drop_settled()
        frames = encode_group(self._group, self._writer.end_position, int(self._clock() * 1_000_000))
        if not frames:
            return
        try:
            self._writer.write(frames)
            self._group.mark_written()
        except JournalError:
            raise
        except BaseException as error:
            self._writer.failure = error  # The state of the file is unknown.
            raise

    def sync(self) -> None:
        """Make all writes durable and publish them to readers.

        :raises JournalBroken: if the sync fails. The journal must then be reopened.
        """
        self._writer.check()
        if self._writer.sync():
            self.commits += 1

    def roll(self) -> None:
        """Seal the active segment and begin a new one."""
        self.sync()
        self._writer.begin_segment(max(self._writer.active.number + 1, self.recovery.next_number))

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IJournal.close`."""
        try:
            if self._writer.failure is None:
                self.commit()
                self._writer.sync_position()
        finally:
            self._writer.close()
            self.catalog.close()
            self._lock.close()

    # Compaction and retention

    def sealed_segments(self) -> list[Segment]:
        """Return the full segments that can be passed to :func:`~fyrehose_twisted.journal.compaction.compact`.

        Damaged segments are not compacted.
        """
        return [
            segment
            for segment in self.catalog.segments.values()
            if not (segment.ordered or segment is self._writer.active or segment.number in self._not_compacted)
        ]

    def install_compacted(self, compacted: Segment) -> None:
        """Replace a segment by the result of :func:`~fyrehose_twisted.journal.compaction.compact`.

        A damaged segment is not replaced. Its bytes may become readable again, and a repair needs them.
        """
        self._writer.check()
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
            raise self._writer.write_error(error) from error

    def compact(self) -> list[Damage]:
        """Compact all full segments; return the damage in the segments that could not be compacted."""
        damages: list[Damage] = []
        for segment in self.sealed_segments():
            try:
                ordered = compact(self.directory, segment, self.config.frame_records)
            except OSError as error:
                raise self._writer.write_error(error) from error
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
            raise self._writer.write_error(error) from error
        if freed:
            allocate_reserve(self.directory)
        return freed

    def _trim(self) -> int:
        self._writer.check()
        now = int(self._clock() * 1_000_000)
        retention = self.config.retention
        active = self._writer.active
        too_large = retention.size is not None and active.end >= self.config.segment_bytes
        if (too_large or retention.should_roll(active.header.created_at, now)) and active.records:
            self.roll()  # Only sealed segments can be removed.
            active = self._writer.active
        segments = [segment for segment in self.catalog.segments.values() if segment is not active]
        expired = expired_segments(segments, active, retention, now)
        if not expired:
            return 0
        self._write_starts(self._starts_after(expired))  # Must be durable before any segment is removed.
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

    def _starts_after(self, expired: Sequence[Segment]) -> dict[int, int]:
        """Return the new starts of the epochs in which segments are removed."""
        starts: dict[int, int] = {}
        epoch, position = max((segment.last for segment in expired if segment.last is not None), default=(-1, -1))
        for earlier in [earlier for earlier in self.catalog.starts if earlier < epoch]:
            bounds = self.catalog.bounds(earlier)
            assert bounds is not None
            starts[earlier] = bounds.last + 1  # A remaining segment may hold records of it.
        if epoch in self.catalog.starts:
            starts[epoch] = max(position + 1, self.catalog.starts[epoch])
        return starts

    def _write_starts(self, starts: dict[int, int]) -> None:
        """Write and sync new epoch starts. The commit group is not written."""
        frame = start_frame(self._writer.end_position, sorted(starts.items()))
        self._writer.write([EncodedFrame(*frame, None)])
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
    return Journal(open_directory(directory), stream, wrap=wrap, config=config)
