"""Check of a journal that reads every byte to find damage, missing records and leftovers of a crash."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fyrehose_twisted.interfaces import IDirectory, IFile
from fyrehose_twisted.journal.block import Numbers, position_ranges
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.errors import Damage, JournalError
from fyrehose_twisted.journal.format.frames import DENSE, FrameHeader, FrameKind, read_records
from fyrehose_twisted.journal.format.index_file import restore
from fyrehose_twisted.journal.format.scan import ScannedFrame
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.segment_header import (
    FULL_SUFFIX,
    INDEX_SUFFIX,
    MAX_HEADER,
    OPEN_SUFFIX,
    segment_name,
)
from fyrehose_twisted.journal.format.watermark import POSITION_BYTES, POSITION_NAME, DurablePosition, read_position
from fyrehose_twisted.journal.segment_loader import (
    OTHER_JOURNAL,
    OpenSegment,
    agreed_header,
    find_missing,
    is_file_missing,
    may_be_unstarted,
    missing_file_damage,
    open_segment,
    segment_suffixes,
    truncation_damage,
)
from fyrehose_twisted.journal.upkeep.check_report import CheckFinding, CheckReport, find_missing_ranges, format_ranges
from fyrehose_twisted.ranges import RangeSet


def check(
    directory: IDirectory,
    *,
    writing: bool = False,
    on_message: Callable[[CheckFinding], object] | None = None,
    progress: Callable[[int], object] | None = None,
) -> CheckReport:
    """Read all files of a journal and report their condition.

    :param writing: whether a process is writing to it, so that only durable data is checked.
    :param on_message: called with each finding as it is made.
    :param progress: called with the number of bytes read since the last call.
    :raises JournalError: if there is no journal, its format version is unsupported, or it cannot be read.
    """
    return _Check(directory, writing, on_message, progress).run()


class _Check:
    def __init__(
        self,
        directory: IDirectory,
        writing: bool,
        on_message: Callable[[CheckFinding], object] | None,
        progress: Callable[[int], object] | None,
    ) -> None:
        self.directory = directory
        self.checked = CheckReport(Catalog(directory, "", 0, 0))
        self._writing = writing
        self._on_message = on_message
        self._progress = progress
        self._last = 0
        self._seen: dict[int, RangeSet] = {}
        self._duplicates: dict[int, RangeSet] = {}
        self._before: tuple[int, int] = (-1, -1)

    def run(self) -> CheckReport:
        checked = self.checked
        mark = checked.durable_position = self._read_position()  # First: the files that it covers exist by now.
        names = self.directory.names()
        suffixes = segment_suffixes(names)
        if not suffixes:
            raise JournalError(f"{self.directory} holds no journal: there is no {segment_name(1, '.log')} or the like")
        self._last = max(suffixes)
        durable = self._last - 1 if mark is None else mark.segment
        for number, suffix in suffixes.items():
            if not (self._writing and number > durable and suffix == OPEN_SUFFIX):  # It is still being created.
                self._open(number, suffix)
        self._check_owner()
        for segment in list(checked.segments.values()):
            self._scan_segment(segment)
        self._check_position(suffixes)
        self._find_leftovers(names, suffixes)
        self._check_coverage()
        return checked

    def _add_finding(self, text: str, damage: bool = True) -> None:
        finding = CheckFinding(text, damage)
        self.checked.findings.append(finding)
        if self._on_message is not None:
            self._on_message(finding)

    def _read_position(self) -> DurablePosition | None:
        damages: list[Damage] = []
        mark = read_position(self.directory, damages)
        for damage in damages:
            self._add_finding(f"{damage}; the next start writes it")
        if mark is None and not damages:
            self._add_finding(f"{POSITION_NAME} is missing, as after a power failure; the next start writes it", False)
        return mark

    def _open(self, number: int, suffix: str) -> None:
        begun = 0 if self.checked.durable_position is None else self.checked.durable_position.segment
        try:
            found = open_segment(self.directory, number, suffix)
        except FileNotFoundError:
            if suffix == OPEN_SUFFIX:
                self._open(number, FULL_SUFFIX)  # It has been compacted, or else removed by retention.
            return
        if isinstance(found, OpenSegment):
            found.file.close()
            self.checked.segments[number] = found.segment
            for damage in found.segment.damages:
                self._add_finding(str(damage))
        elif number == self._last and number > begun and suffix == OPEN_SUFFIX and found.length <= MAX_HEADER:
            self.checked.torn = found
            self._add_finding(f"{found.name}: incomplete after a crash; the next start removes it", False)
        else:
            self.checked.unreadable.append(found)
            self._add_finding(str(found))

    def _check_owner(self) -> None:
        checked = self.checked
        try:
            header = agreed_header(checked.segments.values(), self.directory)
        except JournalError as error:
            self._add_finding(str(error))
            return
        if header is not None:
            checked.catalog.stream, checked.catalog.wrap, checked.catalog.tag = header.stream, header.wrap, header.tag

    # One segment

    def _scan_segment(self, segment: Segment) -> None:
        number, mark = segment.number, self.checked.durable_position
        try:
            file: IFile = self.directory.open(segment.name)
        except FileNotFoundError:
            del self.checked.segments[number]
            self._open(number, FULL_SUFFIX)
            if not segment.ordered and number in self.checked.segments:
                self._scan_segment(self.checked.segments[number])
            return
        try:
            size = end = file.size()
            if self._writing and mark is not None and mark.segment == number and not segment.ordered:
                end = min(end, mark.offset)
            self.checked.size += end
            self._before = (-1, -1)
            damages: list[Damage] = []
            for found in segment.scan_frames(file, segment.end, end, self._progress):
                if isinstance(found, ScannedFrame):
                    self._take(segment, found)
                else:
                    damages.append(found)
        except OSError as error:
            raise JournalError(f"{self.directory}/{segment.name} cannot be read: {error.strerror}") from error
        finally:
            file.close()
        ends = [damage for damage in damages if damage.offset >= segment.end]
        if ends and self._is_torn(segment, ends[0]):
            torn = self.checked.torn = ends[0]._replace(length=size - ends[0].offset)
            self._add_finding(f"{torn}; incomplete after a crash; the next start cuts it off", False)
            damages = damages[: -len(ends)]
        if segment.ordered:
            damages = self._check_index(segment, damages)
        elif mark is not None and self._is_ours(mark) and mark.segment == number:
            damages += truncation_damage(segment, size, mark.offset)
        segment.damages += damages
        for damage in damages:
            self._add_finding(str(damage))

    def _is_torn(self, segment: Segment, damage: Damage) -> bool:
        if self._writing or segment.ordered or segment.number != self._last:
            return False
        mark = self.checked.durable_position
        if mark is None or not self._is_ours(mark):
            return not segment.frames and may_be_unstarted(segment, damage.offset + damage.length)
        return (mark.segment, mark.offset) <= (segment.number, damage.offset)

    def _is_ours(self, durable_position: DurablePosition) -> bool:
        return durable_position.tag == self.checked.catalog.tag

    def _take(self, segment: Segment, found: ScannedFrame) -> None:
        header, body = found
        if header.kind != FrameKind.RECORDS:
            segment.add(header, body)
            return
        block = read_records(header, body, segment.header.stream)
        positions, where = block.positions, f"{segment.name}, the frame at byte {header.offset:,}"
        if int(positions[-1]) != header.last or not (header.flags & DENSE or bool(np.all(np.diff(positions) > 0))):
            self._add_finding(f"{where}: its numbers are not ascending, or do not match its header")
        ends = block.offsets
        if int(ends[0]) or int(ends[-1]) > len(block.payload) or bool(np.any(ends[1:] < ends[:-1])):
            self._add_finding(f"{where}: its records extend beyond it")
        if segment.ordered:
            if (header.epoch, header.base) <= self._before:
                self.checked.unordered.add(segment.number)
                self._add_finding(f"{where}: number {header.base} of epoch {header.epoch} follows {self._before[1]}")
            self._before = header.epoch, header.last
        self._count(header, positions)
        segment.add_records(header, positions)

    def _count(self, header: FrameHeader, positions: Numbers) -> None:
        seen = self._seen.setdefault(header.epoch, RangeSet())
        runs = [(header.base, header.last)] if header.flags & DENSE else position_ranges(positions)
        for first, last in runs:
            for repeated in list(seen.intersection(first, last)):
                self._duplicates.setdefault(header.epoch, RangeSet()).add(*repeated)
            seen.add(first, last)

    def _check_index(self, segment: Segment, damages: list[Damage]) -> list[Damage]:
        """Compare the index file with the segment; use it to locate the numbers of damaged frames."""
        name, number = segment_name(segment.number, INDEX_SUFFIX), segment.number
        try:
            file: IFile = self.directory.open(name)
        except FileNotFoundError:
            self.checked.indexes[number] = "it is missing"
            self._add_finding(f"{name} is missing; the next start writes it", False)
            return damages
        try:
            data = file.read(0, file.size())
        finally:
            file.close()
        indexed = Segment(self.directory, segment.header, FULL_SUFFIX)
        if not restore(indexed, data):
            self.checked.indexes[number] = "its checksum is wrong, or it belongs to another journal"
        elif damages:
            return [_locate_damage(damage, indexed) for damage in damages]
        elif _index_facts(indexed) != _index_facts(segment):
            self.checked.indexes[number] = f"it does not match {segment.name}"
        if number in self.checked.indexes:
            self._add_finding(f"{name}: {self.checked.indexes[number]}")
        return damages

    # All together

    def _check_position(self, suffixes: dict[int, str]) -> None:
        mark, catalog = self.checked.durable_position, self.checked.catalog
        if mark is None or not catalog.stream:
            return
        if not self._is_ours(mark):
            self._add_finding(str(Damage(POSITION_NAME, 0, POSITION_BYTES, OTHER_JOURNAL)))
            return
        catalog.published_watermarks = dict(mark.watermarks)
        if is_file_missing(mark, suffixes):
            self._add_finding(str(missing_file_damage(mark)))

    def _find_leftovers(self, names: list[str], suffixes: dict[int, str]) -> None:
        if self._writing:
            return
        for name in names:
            owner = name.removesuffix(INDEX_SUFFIX) + FULL_SUFFIX
            replaced = name.endswith(OPEN_SUFFIX) and name.removesuffix(OPEN_SUFFIX) + FULL_SUFFIX in names
            if name.endswith(".tmp") or replaced or (name.endswith(INDEX_SUFFIX) and owner not in names):
                self.checked.leftovers.append(name)
                self._add_finding(f"{name} is left over from a crash; the next start removes it", False)

    def _check_coverage(self) -> None:
        checked, catalog = self.checked, self.checked.catalog
        if not catalog.stream:
            return
        catalog.segments = checked.segments
        catalog.rebuild()
        catalog.advance_watermarks()
        known = [damage for segment in checked.segments.values() for damage in segment.damages]
        missing = find_missing(catalog, [*known, *checked.unreadable])
        # If the journal is being written, retention may just have removed them.
        if not (self._writing and read_position(self.directory) != checked.durable_position):
            for damage in missing:
                self._add_finding(str(damage))
        for epoch, repeated in sorted(self._duplicates.items()):
            self._add_finding(f"stored twice in epoch {epoch}, the later counts: {format_ranges(repeated)}", False)
        for epoch in catalog.epochs():
            held, lost = catalog.held.get(epoch) or RangeSet(), catalog.lost.get(epoch) or RangeSet()
            both = [both for first, last in lost for both in held.intersection(first, last)]
            if both:
                self._add_finding(f"both held and declared lost in epoch {epoch}: {format_ranges(both)}")
            if lost:
                self._add_finding(f"declared lost in epoch {epoch}: {format_ranges(lost)}", False)
            gaps = find_missing_ranges(catalog, epoch)
            if gaps:
                self._add_finding(f"missing in epoch {epoch}: {format_ranges(gaps)}", False)


def _index_facts(segment: Segment) -> object:
    indexes = {epoch: (list(index), index.held) for epoch, index in segment.frame_indexes.items()}
    return segment.end, segment.newest, segment.frames, segment.starts, segment.lost, indexes


def _locate_damage(damage: Damage, indexed: Segment) -> Damage:
    if damage.first is not None:
        return damage
    for epoch, index in sorted(indexed.frame_indexes.items()):
        frames = [frame for frame in index if damage.offset <= frame.offset < damage.offset + damage.length]
        if frames:
            last = max(frame.last for frame in frames)
            return damage._replace(epoch=epoch, first=min(frame.base for frame in frames), last=last)
    return damage
