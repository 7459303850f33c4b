"""Making a damaged journal whole again: without what is damaged, and with what another journal still has.

Whatever is cut short leaves a journal that opens: a file takes the place of another only when it is complete and
durable, and of what is replaced for damage there is a durable copy, NAME.damaged, before that.
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
    """Repair a journal to which nobody writes; say whether all ``others`` agreed with it.

    :param stream: whose journal it is; needed only if no segment says so.
    :param wrap: how many sequence numbers there are before they begin anew; counts only if no segment says so.
    :param others: journals of the same stream, to take from them what is missing.
    :param declare_lost: declare lost for good what is missing after that, so that readers go on behind it.
    :param dry_run: only tell what would be done.
    :param on_message: called with each thing that was found or done.
    :param progress: called with the number of bytes that were read since the last call.
    :raises JournalInUse: if somebody writes to it.
    :raises JournalError: if it cannot be repaired.
    """
    with closing(lock_of(directory)):
        checked = check(directory, on_message=lambda finding: on_message(finding.text), progress=progress)
        _assign_stream(checked, stream, wrap)
        mending = _Repair(checked, dry_run, on_message)
        mending.run()
    catalog = checked.catalog
    if dry_run:
        agreed = _backfill(catalog, None, others, on_message, declare_lost)
    else:
        with closing(Journal(directory, catalog.stream, wrap=catalog.wrap)) as journal:
            found = journal.recovery
            # What is gone is told below, if nobody has it.
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
    """Return the lock of a journal's writer.

    :raises JournalInUse: if somebody else has it.
    :raises JournalError: if it cannot be had.
    """
    try:
        lock: IFile = directory.lock()
    except BlockingIOError:
        raise JournalInUse(f"{directory} is in use by a process that writes to it; stop that first") from None
    except OSError as error:
        hint = "; a copy of it elsewhere can be repaired" if error.errno == EROFS else ""
        raise JournalError(f"{directory} cannot be locked: {error.strerror}{hint}") from error
    return lock


def _assign_stream(checked: CheckReport, stream: str | None, wrap: int) -> None:
    """Let the catalog know its stream, if its segments do not say it themselves."""
    catalog, segments = checked.catalog, list(checked.segments.values())
    if any(segment.header.stream for segment in segments):
        agreed_header(segments, catalog.directory, stream)
        return
    if stream is None:
        raise JournalError(f"{catalog.directory}: no header says whose journal this is; say it with --stream URI")
    tags = {segment.header.tag for segment in segments}
    if len(tags) > 1:
        raise JournalError(
            f"{catalog.directory}: all headers are damaged, and the frames are those of {len(tags)} journals;"
            " move away what does not belong here"
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
    filling = JournalBackfill(catalog, journal, on_message)
    agreed = [filling.copy_from(other) for other in others]
    filling.finish()
    if declare_lost:
        filling.declare_lost()
    return all(agreed)


class _Repair:
    """Replaces what is damaged in the files of one journal. The caller has the lock."""

    def __init__(self, checked: CheckReport, dry_run: bool, on_message: OnMessage) -> None:
        self.checked = checked
        self.directory = checked.catalog.directory
        self._dry_run = dry_run
        self._on_message = on_message

    def run(self) -> None:
        checked = self.checked
        for damage in checked.unreadable:
            if self._is_wanted(f"call {damage.name}, in which there is no frame, {self._free_name(damage.name)}"):
                self.directory.rename(damage.name, self._free_name(damage.name))
                self.directory.sync()
        for number, segment in checked.segments.items():
            if segment.damages or number in checked.unordered:
                self._rewrite(segment)
            elif number in checked.indexes and self._is_wanted(
                f"write {segment_name(number, INDEX_SUFFIX)} anew: {checked.indexes[number]}"
            ):
                write_index(self.directory, segment)
        for name in checked.leftovers:
            self._is_wanted(f"remove {name}, left over from a crash")  # Opening the journal does it.
        if checked.torn is not None:
            self._is_wanted(f"cut {checked.torn.length:,} unfinished bytes off {checked.torn.name}")

    def _is_wanted(self, what: str) -> bool:
        self._on_message(f"{'to do' if self._dry_run else 'done'}: {what}")
        return not self._dry_run

    def _rewrite(self, segment: Segment) -> None:
        directory, kept = self.directory, self._free_name(segment.name)
        for epoch, gone in self._lost_numbers(segment).items():
            self._on_message(f"gone with {segment.name}, in epoch {epoch}: {format_ranges(gone)}")
        if not self._is_wanted(f"write {segment.name} anew without what is damaged; as it was, it is in {kept}"):
            return
        self._copy(segment.name, kept)
        with suppress(FileNotFoundError):
            directory.remove(segment_name(segment.number, INDEX_SUFFIX))  # It is that of the old file.
        directory.sync()
        ordered = compact(directory, segment)
        directory.rename(temporary_name(segment.number), ordered.name)
        directory.sync()
        write_index(directory, ordered)
        if not segment.ordered:
            directory.remove(segment.name)
            directory.sync()

    def _lost_numbers(self, segment: Segment) -> dict[int, RangeSet]:
        """Return the numbers that only damaged frames of ``segment`` had, as far as these can be read."""
        gone: dict[int, RangeSet] = {}
        for damage in segment.damages:
            if damage.epoch is None or damage.first is None or damage.last is None:
                continue
            held = self.checked.catalog.held.get(damage.epoch) or RangeSet()
            for gap in held.gaps(damage.first, damage.last):
                gone.setdefault(damage.epoch, RangeSet()).add(*gap)
        return gone

    def _free_name(self, name: str) -> str:
        taken = self.directory.names()
        free = (f"{name}{DAMAGED_SUFFIX}{'' if again == 1 else again}" for again in count(1))
        return next(one for one in free if one not in taken)

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
