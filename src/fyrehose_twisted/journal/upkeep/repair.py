"""Repair of a damaged journal: removal of damaged parts, and restoring of records from other journals.

An interrupted repair leaves a journal that opens. A file replaces another only once it is complete and durable, and a
damaged file is first copied durably to NAME.damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from errno import EROFS
from itertools import count

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.compaction import compact, temporary_name
from fyrehose_twisted.journal.errors import JournalError, JournalInUse
from fyrehose_twisted.journal.format.index_file import write_index
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import INDEX_SUFFIX, segment_name
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.segment_loader import NUMBERS_MISSING, agreed_header
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.upkeep.backfill import JournalBackfill
from fyrehose_twisted.journal.upkeep.check import check
from fyrehose_twisted.journal.upkeep.check_report import (
    CheckReport,
    find_missing_ranges,
    format_ranges,
    summarize_epoch,
)
from fyrehose_twisted.ranges import RangeSet

COPY_CHUNK = 4 * 2**20
DAMAGED_SUFFIX = ".damaged"

OnMessage = Callable[[str], object]


def repair(
    directory: IDirectory,
    *,
    stream: str | None = None,
    wrap: int = 0,
    others: Sequence[JournalReader] = (),
    declare_lost: bool = False,
    dry_run: bool = False,
    on_message: OnMessage,
    progress: Callable[[int], object] | None = None,
) -> bool:
    """Repair a journal that no process is writing to; return whether all ``others`` agree with it.

    :param stream: stream of the journal; needed only if no segment names it.
    :param wrap: modulus of the sequence numbers; used only if no segment has it.
    :param others: journals of the same stream from which missing records are restored.
    :param declare_lost: whether to declare records lost that are still missing, so that readers continue after them.
    :param dry_run: whether to report what would be done without changing anything.
    :param on_message: called with a line about each finding and each action.
    :param progress: called with the number of bytes read since the last call.
    :raises JournalInUse: if another process has it open for writing.
    :raises JournalError: if it cannot be repaired.
    """
    with closing(lock_of(directory)):
        checked = check(directory, on_message=lambda finding: on_message(finding.text), progress=progress)
        _assign_stream(checked, stream, wrap)
        _Repair(checked, dry_run, on_message).run()
    catalog = checked.catalog
    if dry_run:
        agreed = _backfill(catalog, None, others, on_message, declare_lost)
    else:
        with closing(Journal(directory, catalog.stream, wrap=catalog.wrap)) as journal:
            found = journal.recovery
            # Missing numbers that cannot be restored are reported below.
            found = replace(found, damages=[damage for damage in found.damages if damage.reason != NUMBERS_MISSING])
            for line in found.messages():
                on_message(line)
            agreed = _backfill(journal.catalog, journal, others, on_message, declare_lost)
            catalog = journal.catalog
    for epoch in catalog.epochs():
        gaps = find_missing_ranges(catalog, epoch)
        which = f": {format_ranges(gaps)}" if gaps else ""
        on_message(f"{catalog.stream} {'has' if dry_run else 'now has'} {summarize_epoch(catalog, epoch)}{which}")
    return agreed


def lock_of(directory: IDirectory) -> IFile:
    """Acquire the writer lock of a journal.

    :raises JournalInUse: if another process holds it.
    :raises JournalError: if it cannot be acquired.
    """
    try:
        lock: IFile = directory.lock()
    except BlockingIOError:
        raise JournalInUse(f"{directory} is in use by a process that writes to it; stop that first") from None
    except OSError as error:
        hint = "; repair a copy on a writable file system" if error.errno == EROFS else ""
        raise JournalError(f"{directory} cannot be locked: {error.strerror}{hint}") from error
    return lock


def _assign_stream(checked: CheckReport, stream: str | None, wrap: int) -> None:
    """Set the stream of the catalog if no segment names it."""
    catalog, segments = checked.catalog, list(checked.segments.values())
    if any(segment.header.stream for segment in segments):
        agreed_header(segments, catalog.directory, stream)
        return
    if stream is None:
        raise JournalError(f"{catalog.directory}: no segment header names the stream; give it with --stream URI")
    tags = {segment.header.tag for segment in segments}
    if len(tags) > 1:
        raise JournalError(
            f"{catalog.directory}: all headers are damaged, and the frames belong to {len(tags)} journals;"
            " move the segments of other journals out of the directory"
        )
    catalog.stream, catalog.wrap = stream, wrap
    for segment in segments:
        catalog.tag = segment.header.tag
        segment.header = segment.header._replace(stream=stream, wrap=wrap)
    catalog.segments = checked.segments
    catalog.rebuild()
    catalog.advance_watermarks()


def _backfill(
    catalog: Catalog,
    journal: Journal | None,
    others: Sequence[JournalReader],
    on_message: OnMessage,
    declare_lost: bool,
) -> bool:
    backfill = JournalBackfill(catalog, journal, on_message)
    agreed = [backfill.copy_from(other) for other in others]
    backfill.finish()
    if declare_lost:
        backfill.declare_lost()
    return all(agreed)


class _Repair:
    """Repair of the files of one journal. The caller holds the writer lock."""

    def __init__(self, checked: CheckReport, dry_run: bool, on_message: OnMessage) -> None:
        self.checked = checked
        self.directory = checked.catalog.directory
        self._dry_run = dry_run
        self._on_message = on_message

    def run(self) -> None:
        checked = self.checked
        for damage in checked.unreadable:
            if self._is_wanted(f"rename {damage.name}, which has no valid frame, to {self._free_name(damage.name)}"):
                self.directory.rename(damage.name, self._free_name(damage.name))
                self.directory.sync()
        for number, segment in checked.segments.items():
            if segment.damages or number in checked.unordered:
                self._rewrite(segment)
            elif number in checked.indexes and self._is_wanted(
                f"rebuild {segment_name(number, INDEX_SUFFIX)}: {checked.indexes[number]}"
            ):
                write_index(self.directory, segment)
        for name in checked.leftovers:
            self._is_wanted(f"remove {name}, left over from a crash")  # Opening the journal does it.
        if checked.torn is not None:
            self._is_wanted(f"cut {checked.torn.length:,} incomplete bytes off {checked.torn.name}")

    def _is_wanted(self, action: str) -> bool:
        """Report an action; return whether to carry it out."""
        self._on_message(f"{'to do' if self._dry_run else 'done'}: {action}")
        return not self._dry_run

    def _rewrite(self, segment: Segment) -> None:
        directory, kept = self.directory, self._free_name(segment.name)
        for epoch, lost in self._lost_numbers(segment).items():
            self._on_message(f"lost from {segment.name} in epoch {epoch}: {format_ranges(lost)}")
        if not self._is_wanted(f"rewrite {segment.name} without its damaged parts; the original is in {kept}"):
            return
        self._copy(segment.name, kept)
        with suppress(FileNotFoundError):
            directory.remove(segment_name(segment.number, INDEX_SUFFIX))  # It belongs to the old file.
        directory.sync()
        ordered = compact(directory, segment)
        directory.rename(temporary_name(segment.number), ordered.name)
        directory.sync()
        write_index(directory, ordered)
        if not segment.ordered:
            directory.remove(segment.name)
            directory.sync()

    def _lost_numbers(self, segment: Segment) -> dict[int, RangeSet]:
        """Return the numbers that only damaged frames of ``segment`` held, as far as known."""
        lost: dict[int, RangeSet] = {}
        for damage in segment.damages:
            if damage.epoch is None or damage.first is None or damage.last is None:
                continue
            held = self.checked.catalog.held.get(damage.epoch) or RangeSet()
            for gap in held.gaps(damage.first, damage.last):
                lost.setdefault(damage.epoch, RangeSet()).add(*gap)
        return lost

    def _free_name(self, name: str) -> str:
        taken = self.directory.names()
        candidates = (f"{name}{DAMAGED_SUFFIX}{'' if again == 1 else again}" for again in count(1))
        return next(candidate for candidate in candidates if candidate not in taken)

    def _copy(self, name: str, copy: str) -> None:
        """Make a durable copy of a file."""
        directory, temporary = self.directory, f"{copy}.tmp"
        with suppress(FileNotFoundError):
            directory.remove(temporary)
        source: IFile = directory.open(name)
        target: IFile = directory.open(temporary, create=True)
        try:
            for offset in range(0, source.size(), COPY_CHUNK):
                target.write(offset, source.read(offset, COPY_CHUNK))
            target.sync()
        finally:
            source.close()
            target.close()
        directory.rename(temporary, copy)
        directory.sync()
