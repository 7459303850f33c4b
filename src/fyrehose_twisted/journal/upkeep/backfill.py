"""Backfill of a journal with records from other journals of the same stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fyrehose_twisted.journal.block import Block, position_ranges
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import JournalError
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.upkeep.check_report import find_missing_ranges, format_ranges
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.wording import pluralize

COMPARED_RECORDS = 4_096
"""Numbers on either side of a gap that are compared. Records that both journals hold must be equal."""


class _MissingRange(NamedTuple):
    """A missing range that another journal may hold, as positions of the own journal."""

    epoch: int
    first: int
    last: int
    shift: int
    """Offset from positions of the other journal to the own ones. Nonzero only if sequence numbers wrap."""


class JournalBackfill:
    """Backfill of one journal from others.

    :param catalog: catalog of the journal.
    :param journal: journal to write to; ``None`` to report only what would be done.
    :param on_message: called with a line about each action or refusal.
    """

    def __init__(self, catalog: Catalog, journal: Journal | None, on_message: Callable[[str], object]) -> None:
        self._catalog = catalog
        self._journal = journal
        self._on_message = on_message
        self._taken: dict[int, RangeSet] = {}
        self._lost: dict[int, RangeSet] = {}

    def copy_from(self, other: JournalReader) -> bool:
        """Copy missing records that ``other`` holds below its watermark, if both journals agree.

        :returns: whether they agree. If not, nothing is copied.
        :raises JournalError: if ``other`` is the journal of another stream.
        """
        ours = self._catalog
        if (other.stream, other.wrap) != (ours.stream, ours.wrap):
            raise JournalError(
                f"{other.directory} is the journal of {other.stream}, wrapping at {other.wrap},"
                f" not of {ours.stream}, wrapping at {ours.wrap}"
            )
        wanted = [gap for epoch in other.epochs() for gap in self._missing(other, epoch)]
        if not wanted:
            self._on_message(f"{other.directory} holds no records that are missing here")
            return True
        equal = 0
        for gap in wanted:
            compared = self._compare(other, gap)
            if compared is None:
                return False
            equal += compared
        if not equal:
            self._on_message(
                f"refused: {other.directory} shares no record near the missing ones, so the two cannot be compared"
            )
            return False
        for gap in wanted:
            self._copy(other, gap)
        if self._journal is not None:
            self._journal.commit()
        return True

    def finish(self) -> None:
        """Declare lost the numbers that others declare lost and no journal held; then commit."""
        for epoch, lost in sorted(self._lost.items()):
            self._lose(epoch, lost, "as others do")
        if self._journal is not None:
            self._journal.commit()

    def declare_lost(self) -> None:
        """Declare lost all numbers that are still missing, so that the watermark can pass them; then commit."""
        catalog = self._catalog
        for epoch in sorted({*catalog.epochs(), *catalog.published_watermarks} - {*catalog.expired_epochs}):
            bounds = catalog.bounds(epoch)
            known = RangeSet(
                [(0, catalog.published_watermarks[epoch] - 1)]
                if bounds is None
                else find_missing_ranges(catalog, epoch)
            )
            if self._journal is not None and bounds is None:
                self._journal.begin(epoch, self._sequence(catalog.published_watermarks[epoch]))
            self._lose(epoch, known, "as no journal holds them")
        if self._journal is not None:
            self._journal.commit()

    def _lose(self, epoch: int, known: RangeSet, reason: str) -> None:
        """Declare lost the numbers of ``known`` that were not copied."""
        taken = self._taken.get(epoch, RangeSet())
        ranges = [gap for first, last in known for gap in taken.gaps(first, last)]
        if self._journal is not None:
            for first, last in ranges:
                self._journal.lose(epoch, self._sequence(first), self._sequence(last))
        if ranges:
            self._on_message(f"{self._summary}: declare lost in epoch {epoch}, {reason}: {format_ranges(ranges)}")

    @property
    def _summary(self) -> str:
        return "to do" if self._journal is None else "done"

    def _missing(self, other: JournalReader, epoch: int) -> list[_MissingRange]:
        ours, theirs = self._catalog.bounds(epoch), other.bounds(epoch)
        assert theirs is not None, epoch
        if theirs.next == theirs.first:
            return []
        if ours is None:
            later = epoch > max(self._catalog.epochs(), default=-1) and epoch not in self._taken
            return [_MissingRange(epoch, theirs.first, theirs.next - 1, 0)] if later else []
        shift = self._shift(ours, theirs)
        low, high = theirs.first + shift, theirs.next - 1 + shift
        ranges = RangeSet()
        for first, last in find_missing_ranges(self._catalog, epoch):
            for gap in RangeSet([(low, high)]).intersection(first, last):
                ranges.add(*gap)
        if high > ours.last and low <= ours.last + 1:
            ranges.add(ours.last + 1, high)
        elif high > ours.last:
            self._on_message(
                f"{other.directory} begins epoch {epoch} at {low}, but this journal ends at {ours.last}; not copied"
            )
        taken = self._taken.get(epoch, RangeSet())
        return [_MissingRange(epoch, *gap, shift) for first, last in ranges for gap in taken.gaps(first, last)]

    def _shift(self, ours: Bounds, theirs: Bounds) -> int:
        wrap = self._catalog.wrap
        return (ours.last - theirs.next + 1 + wrap // 2) // wrap * wrap if wrap else 0

    def _compare(self, other: JournalReader, missing: _MissingRange) -> int | None:
        """Return the number of equal records around a range; ``None`` if any records differ."""
        ours, theirs = self._catalog.bounds(missing.epoch), other.bounds(missing.epoch)
        assert theirs is not None, missing.epoch
        if ours is None:
            return self._compare_before(other)
        low, high = max(ours.first, theirs.first + missing.shift), min(ours.last, theirs.next - 1 + missing.shift)
        equal = 0
        before = missing.first - COMPARED_RECORDS, missing.first - 1
        after = missing.last + 1, missing.last + COMPARED_RECORDS
        for first, last in ((max(low, first), min(high, last)) for first, last in (before, after)):
            if first > last:
                continue
            here: dict[int, bytes] = {}
            for block in self._catalog.read(missing.epoch, first, last, self._report_damage):
                here.update(zip(block.positions.tolist(), block.payloads(), strict=True))
            for block in self._blocks(other, missing._replace(first=first, last=last)):
                positions = [position + missing.shift for position in block.positions.tolist()]
                for position, payload in zip(positions, block.payloads(), strict=True):
                    if here.get(position, payload) != payload:
                        number = f"number {position} of epoch {missing.epoch}"
                        self._on_message(f"conflict: {other.directory} differs at {number}; nothing is copied from it")
                        return None
                    equal += position in here
        return equal

    def _compare_before(self, other: JournalReader) -> int | None:
        """Compare the end of the last epoch that both journals have, before a new epoch is copied."""
        for epoch in reversed(self._catalog.epochs()):
            ours, theirs = self._catalog.bounds(epoch), other.bounds(epoch)
            if ours is not None and theirs is not None:
                shift = self._shift(ours, theirs)
                end = min(ours.last, theirs.next - 1 + shift) + 1
                return self._compare(other, _MissingRange(epoch, end, end, shift))
        return 0

    def _copy(self, other: JournalReader, missing: _MissingRange) -> None:
        taken = self._taken.setdefault(missing.epoch, RangeSet())
        theirs = other.bounds(missing.epoch)
        count = 0
        if self._journal is not None and theirs is not None:
            self._journal.begin(missing.epoch, self._sequence(theirs.first))
        for block in self._blocks(other, missing):
            count += len(block)
            for first, last in position_ranges(block.positions):
                taken.add(first + missing.shift, last + missing.shift)
            if self._journal is not None:
                self._journal.append(block.record_columns(), authoritative=True)
        lost = other.losses(missing.epoch, missing.first - missing.shift, missing.last - missing.shift)
        for first, last in lost:
            self._lost.setdefault(missing.epoch, RangeSet()).add(first + missing.shift, last + missing.shift)
        numbers = f"{format_ranges([(missing.first, missing.last)])} of epoch {missing.epoch}"
        self._on_message(f"{self._summary}: copy {pluralize(count, 'record')} of {numbers} from {other.directory}")

    def _sequence(self, position: int) -> int:
        return position % self._catalog.wrap if self._catalog.wrap else position

    def _blocks(self, other: JournalReader, span: _MissingRange) -> Iterator[Block]:
        return other.read(span.epoch, span.first - span.shift, span.last - span.shift, self._report_damage)

    def _report_damage(self, damage: object) -> None:
        self._on_message(f"{damage}; left out")
