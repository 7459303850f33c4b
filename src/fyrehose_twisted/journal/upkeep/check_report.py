"""Report of a journal check: findings, damage and a summary."""

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
"""Number of ranges listed in one line."""


class CheckFinding(NamedTuple):
    """One finding of a check, for the operator."""

    text: str
    damage: bool
    """Whether it is damage. Leftovers of a crash and records that never arrived are not."""


@dataclass
class CheckReport:
    """Contents and condition of one journal, found by reading all its files.

    :ivar catalog: catalog of the records. Its stream is empty if no segment names it.
    :ivar segments: segments by number. ``damages`` of each holds all its damage except the torn end.
    :ivar unreadable: files with the name of a segment that are not segments.
    :ivar unordered: numbers of compacted segments whose records are not in order.
    :ivar indexes: problem of a segment's index, by segment number.
    :ivar torn: incomplete end of the last segment, or the whole incomplete segment, which the next start removes.
    :ivar leftovers: names of files left by a crash, which the next start removes.
    :ivar findings: all findings as text.
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
        """Number of damaged places."""
        return sum(finding.damage for finding in self.findings)

    def summary(self) -> str:
        """Return a one-line summary."""
        catalog, parts = self.catalog, [f"{pluralize(len(self.segments), 'segment')}, {pluralize(self.size, 'byte')}"]
        for epoch in catalog.epochs():
            parts.append(summarize_epoch(catalog, epoch))
        if self.torn is not None:
            parts.append(f"torn end of {pluralize(self.torn.length, 'byte')}")
        parts.append(f"damage in {pluralize(self.damaged, 'place')}" if self.damaged else "nothing is damaged")
        return f"{catalog.stream or catalog.directory}: {'; '.join(parts)}"


def summarize_epoch(catalog: Catalog, epoch: int) -> str:
    """Return a summary of the contents of an epoch."""
    bounds = catalog.bounds(epoch)
    assert bounds is not None, epoch
    held, lost = catalog.held.get(epoch) or RangeSet(), catalog.lost.get(epoch) or RangeSet()
    missing = sum(last - first + 1 for first, last in find_missing_ranges(catalog, epoch))
    text = f"epoch {epoch} from {bounds.first} to {bounds.last}, {pluralize(held.count, 'record')}"
    return text + (f", {lost.count:,} lost" if lost else "") + (f", {missing:,} missing" if missing else "")


def find_missing_ranges(catalog: Catalog, epoch: int) -> list[tuple[int, int]]:
    """Return the ranges, up to the last known position, that are neither held nor declared lost."""
    bounds = catalog.bounds(epoch)
    if bounds is None:
        return []
    held, lost = catalog.held.get(epoch) or RangeSet(), catalog.lost.get(epoch) or RangeSet()
    return [gap for first, last in held.gaps(bounds.first, bounds.last) for gap in lost.gaps(first, last)]


def format_ranges(ranges: Iterable[tuple[int, int]]) -> str:
    """Format ranges as ``3, 7 to 9``, up to a limit."""
    ranges = iter(ranges)
    texts = [f"{first} to {last}" if last > first else str(first) for first, last in islice(ranges, MAX_RANGES_SHOWN)]
    more = sum(1 for _ in ranges)
    return ", ".join(texts) + (f" and {pluralize(more, 'more range')}" if more else "")
