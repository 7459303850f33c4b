"""What reading all files of a journal brought to light, and how to say it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.format.watermark import DurablePosition
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.wording import pluralize

MAX_RANGES_SHOWN = 10
"""So many ranges of numbers are named in one line."""


class CheckFinding(NamedTuple):
    """Something that an operator should know."""

    text: str
    damage: bool
    """Whether bytes are not what was written; what a crash leaves, and numbers that never came, are no damage."""


@dataclass
class CheckReport:
    """What the files of one journal hold, found by reading all of them.

    :ivar catalog: what is held; its stream is empty if nothing says whose journal this is.
    :ivar segments: by number; ``damages`` of each has all that is damaged in it, its torn end excepted.
    :ivar unreadable: files that are no segments though they are called so.
    :ivar unordered: numbers of segments that were written anew and are not in order.
    :ivar indexes: what is wrong with the index of a segment, by its number.
    :ivar torn: the end of the last segment that the next start cuts off, or the segment itself.
    :ivar leftovers: names of files that a crash left and the next start removes.
    :ivar findings: all of it in words.
    """

    catalog: Catalog
    durable_position: DurablePosition | None = None
    segments: dict[int, Segment] = field(default_factory=dict)
    unreadable: list[Damage] = field(default_factory=list)
    unordered: set[int] = field(default_factory=set)
    indexes: dict[int, str] = field(default_factory=dict)
    torn: Damage | None = None
    leftovers: list[str] = field(default_factory=list)
    findings: list[CheckFinding] = field(default_factory=list)
    size: int = 0

    @property
    def damaged(self) -> int:
        """In how many places there is damage."""
        return sum(finding.damage for finding in self.findings)

    def summary(self) -> str:
        """Return a line about all of it."""
        catalog, parts = self.catalog, [f"{pluralize(len(self.segments), 'segment')}, {pluralize(self.size, 'byte')}"]
        for epoch in catalog.epochs():
            parts.append(summarize_epoch(catalog, epoch))
        if self.torn is not None:
            parts.append(f"torn end of {pluralize(self.torn.length, 'byte')}")
        parts.append(f"damage in {pluralize(self.damaged, 'place')}" if self.damaged else "nothing is damaged")
        return f"{catalog.stream or catalog.directory}: {'; '.join(parts)}"


def summarize_epoch(catalog: Catalog, epoch: int) -> str:
    """Return in words what is held of an epoch."""
    bounds = catalog.bounds(epoch)
    assert bounds is not None, epoch
    held, lost = catalog.held.get(epoch) or RangeSet(), catalog.lost.get(epoch) or RangeSet()
    gone = sum(last - first + 1 for first, last in find_missing_ranges(catalog, epoch))
    text = f"epoch {epoch} from {bounds.first} to {bounds.last}, {pluralize(held.count, 'record')}"
    return text + (f", {lost.count:,} lost" if lost else "") + (f", {gone:,} missing" if gone else "")


def find_missing_ranges(catalog: Catalog, epoch: int) -> list[tuple[int, int]]:
    """Return the ranges of positions, up to the last that is known, that are neither held nor declared lost."""
    bounds = catalog.bounds(epoch)
    if bounds is None:
        return []
    held, lost = catalog.held.get(epoch) or RangeSet(), catalog.lost.get(epoch) or RangeSet()
    return [gap for first, last in held.gaps(bounds.first, bounds.last) for gap in lost.gaps(first, last)]


def format_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Return some ranges: ``3, 7 to 9``."""
    ranges = iter(ranges)
    texts = [f"{first} to {last}" if last > first else str(first) for first, last in islice(ranges, MAX_RANGES_SHOWN)]
    more = sum(1 for _ in ranges)
    return ", ".join(texts) + (f" and {pluralize(more, 'more range')}" if more else "")
