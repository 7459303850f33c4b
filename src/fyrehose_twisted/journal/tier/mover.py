"""Moving of sealed segments to object storage, in steps each of which a crash may interrupt."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.errors import JournalError, TierError
from fyrehose_twisted.journal.format.layout import directory_name
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import (
    COPYING_SUFFIX,
    DROPPED_SUFFIX,
    FULL_SUFFIX,
    MOVED_SUFFIX,
    segment_name,
)
from fyrehose_twisted.journal.segment_loader import OpenSegment, load_segment, open_segment
from fyrehose_twisted.journal.tier.entry import (
    BLOCK_BYTES,
    ContentDigest,
    TierEntry,
    entry_name,
    entry_numbers,
    read_entry,
    write_entry,
)
from fyrehose_twisted.journal.tier.location import displayed, object_url, parse_tier_url
from fyrehose_twisted.journal.tier.objects import Objects
from fyrehose_twisted.journal.tier.read_back import reads_back


@dataclass
class TierReport:
    """Results of :meth:`SegmentMover.run`.

    :ivar moved: names of the segments that are only in object storage since.
    :ivar moved_bytes: their size.
    :ivar removed: number of objects removed that the journal does not need any more.
    :ivar skipped: reasons for which segments stay where they are, or objects could not be removed.
    """

    moved: list[str] = field(default_factory=list)
    moved_bytes: int = 0
    removed: int = 0
    skipped: list[str] = field(default_factory=list)


class SegmentMover:
    """Moves the compacted segments of one journal to object storage.

    At most one process may do so at a time; another may write the journal meanwhile. A manifest is written before the
    upload, so no object is ever forgotten. The segment is removed only after the object was read back.

    :param directory: local directory of the journal.
    :param tier: URL of a bucket and prefix.
    :raises ConfigurationError: if ``tier`` is invalid.
    """

    def __init__(self, directory: IDirectory, objects: Objects, tier: str) -> None:
        self.directory = directory
        self._objects = objects
        self._tier = parse_tier_url(tier)

    def run(
        self,
        before: int | None = None,
        *,
        on_moved: Callable[[str], object] = lambda name: None,
        should_stop: Callable[[], bool] = lambda: False,
        limit: int | None = None,
    ) -> TierReport:
        """Complete what an earlier run has left, then move segments, lowest number first.

        Safe to run in a thread.

        :param before: UTC microseconds since 1970; only segments with nothing but older records are moved.
        :param on_moved: called with the name of each segment after it was moved.
        :param should_stop: asked between two steps whether to stop.
        :param limit: number of segments after which to stop.
        :raises TierError: if the object storage fails. What was moved before stays moved.
        :raises JournalError: if the journal cannot be read or written.
        """
        report = TierReport()
        try:
            for number in self._numbers(COPYING_SUFFIX):
                self._resume(number, report)
            for number in self._numbers(MOVED_SUFFIX):
                self._finish(number, report, on_moved)
            self._remove_dropped(report)
            for number in self._numbers(FULL_SUFFIX):
                if should_stop() or (limit is not None and len(report.moved) >= limit):
                    break
                self._move(number, before, report, on_moved)
            if not report.skipped:
                self._remove_dropped(report)
        except OSError as error:
            raise JournalError(f"{self.directory}: {error.strerror or error}") from error
        return report

    def _numbers(self, suffix: str) -> list[int]:
        return list(entry_numbers(self.directory.names(), suffix))

    def _resume(self, number: int, report: TierReport) -> None:
        """Decide about a copy that an earlier run did not complete."""
        try:
            entry = read_entry(self.directory, number, COPYING_SUFFIX)
        except FileNotFoundError:
            return  # Retention has just dropped it.
        if self._local_matches(entry) is None:
            # Only a human removes a segment at this point. The copy may be all there is.
            try:
                self._verify(entry)
            except TierError as error:
                report.skipped.append(f"{segment_name(number, FULL_SUFFIX)} is gone from {self.directory}, and {error}")
            else:
                self._advance(number, COPYING_SUFFIX, MOVED_SUFFIX)
        else:
            self._advance(number, COPYING_SUFFIX, DROPPED_SUFFIX)

    def _finish(self, number: int, report: TierReport, on_moved: Callable[[str], object]) -> None:
        """Remove a segment that is stored in both places, unless it has been repaired since."""
        name = segment_name(number, FULL_SUFFIX)
        if name not in self.directory.names():
            return
        try:
            entry = read_entry(self.directory, number, MOVED_SUFFIX)
        except FileNotFoundError:
            return
        if self._local_matches(entry) is False:
            self._advance(number, MOVED_SUFFIX, DROPPED_SUFFIX)
            return
        self._verify(entry)
        self._remove_local(entry, report, on_moved)

    def _move(self, number: int, before: int | None, report: TierReport, on_moved: Callable[[str], object]) -> None:
        if any(entry_name(number, suffix) in self.directory.names() for suffix in (DROPPED_SUFFIX, MOVED_SUFFIX)):
            return  # The object of an earlier copy could not be removed, and its manifest is needed for that.
        try:
            opened = open_segment(self.directory, number, FULL_SUFFIX)
        except FileNotFoundError:
            return
        if not isinstance(opened, OpenSegment):
            report.skipped.append(f"{opened}")
            return
        segment, file = opened
        try:
            load_segment(opened, keep_index=True)
            if before is not None and max(segment.newest, segment.header.created_at) >= before:
                return
            # Every byte is verified: a damaged segment stays, where a repair finds it.
            scanned = Segment(self.directory, segment.header, FULL_SUFFIX)
            damages = scanned.read_appended(file, file.size()) + scanned.damages
            if damages:
                report.skipped.append(f"{damages[0]}")
            else:
                entry = self._entry(segment, file)
                write_entry(self.directory, entry)
                self._objects.write(entry.url, _pieces(file))
                self._verify(entry)
                if self._advance(number, COPYING_SUFFIX, MOVED_SUFFIX):
                    self._remove_local(entry, report, on_moved)
        finally:
            file.close()

    def _entry(self, segment: Segment, file: IFile) -> TierEntry:
        content = ContentDigest()
        for block in _pieces(file):
            content.add(block)
        header = segment.header
        # Never the name of an earlier copy: a slow or repeated request could still change or remove that object.
        names = directory_name(header.stream), f"{header.tag:08x}", f"{header.number:010d}-{secrets.token_hex(4)}.seg"
        ranges = {epoch: (index.first, index.last) for epoch, index in segment.frame_indexes.items()}
        return TierEntry(
            number=header.number,
            url=object_url(self._tier, *names),
            size=content.size,
            sha256=content.hexdigest(),
            block_bytes=BLOCK_BYTES,
            blocks=content.blocks,
            newest=segment.newest,
            ranges=ranges,
            header=file.read(0, header.length),
        )

    def _verify(self, entry: TierEntry) -> None:
        """Read a copy back. :raises TierError: if it is not what was written."""
        if not reads_back(self._objects, entry.url, entry.size, entry.sha256):
            raise TierError(
                f"object {displayed(entry.url)} does not read back as it was written;"
                f" {segment_name(entry.number, FULL_SUFFIX)} stays in {self.directory}"
            )

    def _local_matches(self, entry: TierEntry) -> bool | None:
        """Return whether the local segment is the one that was copied; ``None`` if there is none."""
        try:
            file = self.directory.open(segment_name(entry.number, FULL_SUFFIX))
        except FileNotFoundError:
            return None
        content = ContentDigest()
        try:
            for block in _pieces(file):
                content.add(block)
        finally:
            file.close()
        return content.hexdigest() == entry.sha256

    def _advance(self, number: int, old: str, new: str) -> bool:
        """Move a manifest to its next state; return whether retention had not done so before."""
        try:
            self.directory.rename(entry_name(number, old), entry_name(number, new))
        except FileNotFoundError:
            return False
        self.directory.sync()
        return True

    def _remove_local(self, entry: TierEntry, report: TierReport, on_moved: Callable[[str], object]) -> None:
        name = segment_name(entry.number, FULL_SUFFIX)
        with suppress(FileNotFoundError):
            self.directory.remove(name)
        self.directory.sync()
        report.moved.append(name)
        report.moved_bytes += entry.size
        on_moved(name)

    def _remove_dropped(self, report: TierReport) -> None:
        for number in self._numbers(DROPPED_SUFFIX):
            try:
                self._objects.remove(read_entry(self.directory, number, DROPPED_SUFFIX).url)
            except TierError as error:
                report.skipped.append(str(error))  # The other segments can be moved nevertheless.
            else:
                self.directory.remove(entry_name(number, DROPPED_SUFFIX))
                report.removed += 1
        self.directory.sync()


def _pieces(file: IFile) -> Iterator[bytes]:
    for offset in range(0, file.size(), BLOCK_BYTES):
        yield file.read(offset, BLOCK_BYTES)
