"""Which positions a journal holds, without the records themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fyrehose_twisted.journal.errors import NotInJournal
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record


class Bounds(NamedTuple):
    """How far an epoch goes, in positions."""

    first: int
    """Where it begins."""
    next: int
    """The durable watermark: all from ``first`` up to here, this not included, are held or declared lost for good."""
    last: int
    """The highest that is held or lost, durable or not, or was before it went missing; ``first - 1`` if there is none.
    """


class Coverage:
    """What a journal holds.

    :ivar wrap: how many sequence numbers there are before they begin anew; 0 if they never do.
    :ivar held: positions of records, by epoch.
    :ivar lost: positions that are declared lost, by epoch.
    :ivar starts: where each epoch begins.
    :ivar watermarks: the durable watermark of each epoch.
    :ivar published_watermarks: the highest watermark of each epoch that was published: numbers below it do not get
        another payload, whether they can still be read or not.
    :ivar expired_epochs: where epochs of which nothing is kept would begin again.
    """

    def __init__(self, stream: str, wrap: int) -> None:
        self.stream = stream
        self.wrap = wrap
        self.held: dict[int, RangeSet] = {}
        self.lost: dict[int, RangeSet] = {}
        self.starts: dict[int, int] = {}
        self.watermarks: dict[int, int] = {}
        self.published_watermarks: dict[int, int] = {}
        self.expired_epochs: dict[int, int] = {}

    def get(self, epoch: int, position: int) -> Record | None:
        """Return a record, ``None`` if it is not held."""
        raise NotImplementedError(f"{type(self).__name__} does not say where its records are")

    def epochs(self) -> list[int]:
        """Return the epochs of which something is known, lowest first."""
        return sorted(self.starts)

    def bounds(self, epoch: int) -> Bounds | None:
        """Return how far an epoch goes, ``None`` if nothing is known of it."""
        start = self.starts.get(epoch)
        if start is None:
            return None
        here = [ranges.last for ranges in (self.held.get(epoch), self.lost.get(epoch)) if ranges]
        return Bounds(
            start, self.watermarks[epoch], max([start - 1, self.published_watermarks.get(epoch, 0) - 1, *here])
        )

    def missing_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield epoch, first and last of those positions below a published watermark that are neither held nor lost."""
        for epoch, floor in sorted(self.published_watermarks.items()):
            if epoch in self.expired_epochs:
                continue  # Retention took it.
            held, lost = self.held.get(epoch) or RangeSet(), self.lost.get(epoch) or RangeSet()
            first = self.starts.get(epoch, 0)
            if first < floor:
                for gap in held.gaps(first, floor - 1):
                    for pair in lost.gaps(*gap):
                        yield epoch, *pair

    def next_missing(self, epoch: int, position: int) -> int:
        """Return the first position from ``position`` on that is neither held nor lost."""
        held, lost = self.held.get(epoch) or RangeSet(), self.lost.get(epoch) or RangeSet()
        while True:
            here = held.range_of(position) or lost.range_of(position)
            if here is None:
                return position
            position = here[1] + 1

    def advance_watermarks(self) -> None:
        """All that is known of is durable: move the watermarks on."""
        for epoch, start in self.starts.items():
            self.watermarks[epoch] = self.next_missing(epoch, max(start, self.watermarks.get(epoch, start)))

    def drop_epoch(self, epoch: int) -> None:
        """Drop an epoch."""
        for table in (self.held, self.lost, self.starts, self.watermarks, self.published_watermarks):
            table.pop(epoch, None)

    def held_ranges(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield those parts of ``first`` to ``last`` that are held."""
        return (self.held.get(epoch) or RangeSet()).intersection(first, last)

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return those parts of ``first`` to ``last`` that are declared lost."""
        return list((self.lost.get(epoch) or RangeSet()).intersection(first, last))

    def check_start(self, epoch: int, first: int) -> None:
        """:raises NotInJournal: if ``first`` lies before the beginning of the epoch."""
        start = self.starts.get(epoch)
        if start is not None and first < start:
            raise NotInJournal(f"{first} of epoch {epoch} was asked for, and {self.stream} begins at {start} here")
