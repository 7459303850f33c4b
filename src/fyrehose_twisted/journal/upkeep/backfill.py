"""Taking what a journal lacks from another journal of the same stream."""

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
"""Numbers on either side of a hole whose records, where both journals have them, have to be equal."""


class _MissingRange(NamedTuple):
    """A range that another journal may have, in positions of ours."""

    epoch: int
    first: int
    last: int
    shift: int
    """What to add to a position of the other journal; not 0 only where sequence numbers wrap."""


class JournalBackfill:
    """Fills one journal from others.

    :param catalog: what it holds.
    :param journal: to write to; ``None`` only to tell what would be taken.
    :param tell: called with each thing that was done or refused.
    """

    def __init__(self, catalog: Catalog, journal: Journal | None, on_message: Callable[[str], object]) -> None:
        self._catalog = catalog
        self._journal = journal
        self._on_message = on_message
        self._taken: dict[int, RangeSet] = {}
        self._lost: dict[int, RangeSet] = {}

    def copy_from(self, other: JournalReader) -> bool:
        """Take what ``other`` holds below its watermark; say whether it agrees with us. If not, nothing is taken.

        :raises JournalError: if it is another stream's.
        """
        ours = self._catalog
        if (other.stream, other.wrap) != (ours.stream, ours.wrap):
            raise JournalError(
                f"{other.directory} is the journal of {other.stream}, wrapping at {other.wrap},"
                f" not of {ours.stream}, wrapping at {ours.wrap}"
            )
        wanted = [one for epoch in other.epochs() for one in self._missing(other, epoch)]
        if not wanted:
            self._on_message(f"{other.directory} has nothing that is missing here")
            return True
        equal = 0
        for one in wanted:
            compared = self._compare(other, one)
            if compared is None:
                return False
            equal += compared
        if not equal:
            self._on_message(
                f"refused: {other.directory} has no record near what is missing that is here too, to compare"
            )
            return False
        for one in wanted:
            self._copy(other, one)
        if self._journal is not None:
            self._journal.commit()
        return True

    def finish(self) -> None:
        """Declare lost what others say is lost and nobody had, and make all of it durable."""
        for epoch, lost in sorted(self._lost.items()):
            taken = self._taken.get(epoch, RangeSet())
            ranges = [gap for first, last in lost for gap in taken.gaps(first, last)]
            if self._journal is not None:
                for first, last in ranges:
                    self._journal.lose(epoch, self._sequence(first), self._sequence(last))
            if ranges:
                self._on_message(
                    f"{self._summary}: declare lost in epoch {epoch}, as others do: {format_ranges(ranges)}"
                )
        if self._journal is not None:
            self._journal.commit()

    def declare_lost(self) -> None:
        """Declare lost all that is missing still, so that the watermark can pass it, and make that durable."""
        catalog = self._catalog
        for epoch in sorted({*catalog.epochs(), *catalog.published_watermarks} - {*catalog.expired_epochs}):
            bounds = catalog.bounds(epoch)
            known = RangeSet(
                [(0, catalog.published_watermarks[epoch] - 1)]
                if bounds is None
                else find_missing_ranges(catalog, epoch)
            )
            taken = self._taken.get(epoch, RangeSet())
            ranges = [gap for first, last in known for gap in taken.gaps(first, last)]
            if self._journal is not None:
                if bounds is None:
                    self._journal.begin(epoch, self._sequence(catalog.published_watermarks[epoch]))
                for first, last in ranges:
                    self._journal.lose(epoch, self._sequence(first), self._sequence(last))
            if ranges:
                self._on_message(
                    f"{self._summary}: declare lost in epoch {epoch}, for nobody has them: {format_ranges(ranges)}"
                )
        if self._journal is not None:
            self._journal.commit()

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
            for hole in RangeSet([(low, high)]).intersection(first, last):
                ranges.add(*hole)
        if high > ours.last and low <= ours.last + 1:
            ranges.add(ours.last + 1, high)
        elif high > ours.last:
            self._on_message(
                f"{other.directory} begins epoch {epoch} at {low}, and here it ends at {ours.last}: not taken"
            )
        taken = self._taken.get(epoch, RangeSet())
        return [_MissingRange(epoch, *gap, shift) for first, last in ranges for gap in taken.gaps(first, last)]

    def _shift(self, ours: Bounds, theirs: Bounds) -> int:
        wrap = self._catalog.wrap
        return (ours.last - theirs.next + 1 + wrap // 2) // wrap * wrap if wrap else 0

    def _compare(self, other: JournalReader, one: _MissingRange) -> int | None:
        """Return how many records around a range are equal here and there; ``None`` if there are others."""
        ours, theirs = self._catalog.bounds(one.epoch), other.bounds(one.epoch)
        assert theirs is not None, one.epoch
        if ours is None:
            return self._compare_before(other)
        low, high = max(ours.first, theirs.first + one.shift), min(ours.last, theirs.next - 1 + one.shift)
        equal = 0
        sides = (one.first - COMPARED_RECORDS, one.first - 1), (one.last + 1, one.last + COMPARED_RECORDS)
        for first, last in ((max(low, first), min(high, last)) for first, last in sides):
            if first > last:
                continue
            here: dict[int, bytes] = {}
            for block in self._catalog.read(one.epoch, first, last, self._report_damage):
                here.update(zip(block.positions.tolist(), block.payloads(), strict=True))
            for block in self._blocks(other, one._replace(first=first, last=last)):
                positions = [position + one.shift for position in block.positions.tolist()]
                for position, payload in zip(positions, block.payloads(), strict=True):
                    if here.get(position, payload) != payload:
                        what = f"another record under number {position} of epoch {one.epoch}"
                        self._on_message(f"conflict: {other.directory} has {what}; nothing is taken from there")
                        return None
                    equal += position in here
        return equal

    def _compare_before(self, other: JournalReader) -> int | None:
        """Compare the end of the last epoch that both have: another is to follow it."""
        for epoch in reversed(self._catalog.epochs()):
            ours, theirs = self._catalog.bounds(epoch), other.bounds(epoch)
            if ours is not None and theirs is not None:
                shift = self._shift(ours, theirs)
                end = min(ours.last, theirs.next - 1 + shift) + 1
                return self._compare(other, _MissingRange(epoch, end, end, shift))
        return 0

    def _copy(self, other: JournalReader, one: _MissingRange) -> None:
        taken = self._taken.setdefault(one.epoch, RangeSet())
        theirs = other.bounds(one.epoch)
        count = 0
        if self._journal is not None and theirs is not None:
            self._journal.begin(one.epoch, self._sequence(theirs.first))
        for block in self._blocks(other, one):
            count += len(block)
            for first, last in position_ranges(block.positions):
                taken.add(first + one.shift, last + one.shift)
            if self._journal is not None:
                self._journal.append(list(block.records()), authoritative=True)
        lost = other.losses(one.epoch, one.first - one.shift, one.last - one.shift)
        for first, last in lost:
            self._lost.setdefault(one.epoch, RangeSet()).add(first + one.shift, last + one.shift)
        where = f"{format_ranges([(one.first, one.last)])} of epoch {one.epoch}"
        self._on_message(f"{self._summary}: take {pluralize(count, 'record')} of {where} from {other.directory}")

    def _sequence(self, position: int) -> int:
        return position % self._catalog.wrap if self._catalog.wrap else position

    def _blocks(self, other: JournalReader, one: _MissingRange) -> Iterator[Block]:
        return other.read(one.epoch, one.first - one.shift, one.last - one.shift, self._report_damage)

    def _report_damage(self, damage: object) -> None:
        self._on_message(f"{damage}; left out")
