"""Positions that a journal holds or has declared lost, without the records themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fyrehose_twisted.journal.errors import NotInJournal
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.record import Record


class Bounds(NamedTuple):
    """Bounds of one epoch, as positions."""

    first: int
    """First position of the epoch."""
    next: int
    """Durable watermark (exclusive): every position from ``first`` up to here is held or declared lost."""
    last: int
    """Highest position held or lost, durable or not, including positions that have gone missing since.

    ``first - 1`` if there is none.
    """


class Coverage:
    """Coverage of one journal, by epoch.

    :ivar wrap: modulus of the sequence numbers; 0 if they do not wrap.
    :ivar held: positions of the records held, by epoch.
    :ivar lost: positions declared lost, by epoch.
    :ivar starts: first position of each epoch.
    :ivar watermarks: durable watermark of each epoch.
    :ivar published_watermarks: highest watermark ever published for each epoch. Numbers below it never get a different
        payload, whether or not they can still be read.
    :ivar expired_epochs: position at which each epoch that retention removed would restart.
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
        """Return the record at a position, or ``None`` if it is not held."""
        raise NotImplementedError(f"{type(self).__name__} must implement get()")

    def epochs(self) -> list[int]:
        """Return the known epochs, ascending."""
        return sorted(self.starts)

    def bounds(self, epoch: int) -> Bounds | None:
        """Return the bounds of an epoch, or ``None`` if the epoch is unknown."""
        start = self.starts.get(epoch)
        if start is None:
            return None
        here = [ranges.last for ranges in (self.held.get(epoch), self.lost.get(epoch)) if ranges]
        return Bounds(
            start, self.watermarks[epoch], max([start - 1, self.published_watermarks.get(epoch, 0) - 1, *here])
        )

    def missing_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield ``(epoch, first, last)`` of each range below a published watermark that is neither held nor lost."""
        for epoch, floor in sorted(self.published_watermarks.items()):
            if epoch in self.expired_epochs:
                continue  # Removed by retention.
            held, lost = self.held.get(epoch) or RangeSet(), self.lost.get(epoch) or RangeSet()
            first = self.starts.get(epoch, 0)
            if first < floor:
                for gap in held.gaps(first, floor - 1):
                    for pair in lost.gaps(*gap):
                        yield epoch, *pair

    def next_missing(self, epoch: int, position: int) -> int:
        """Return the first position at or after ``position`` that is neither held nor lost."""
        held, lost = self.held.get(epoch) or RangeSet(), self.lost.get(epoch) or RangeSet()
        while True:
            here = held.range_of(position) or lost.range_of(position)
            if here is None:
                return position
            position = here[1] + 1

    def advance_watermarks(self) -> None:
        """Advance the watermarks, given that everything recorded here is durable."""
        for epoch, start in self.starts.items():
            self.watermarks[epoch] = self.next_missing(epoch, max(start, self.watermarks.get(epoch, start)))

    def drop_epoch(self, epoch: int) -> None:
        """Remove an epoch."""
        for table in (self.held, self.lost, self.starts, self.watermarks, self.published_watermarks):
            table.pop(epoch, None)

    def held_ranges(self, epoch: int, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges within ``first`` to ``last`` that are held."""
        return (self.held.get(epoch) or RangeSet()).intersection(first, last)

    def losses(self, epoch: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the ranges within ``first`` to ``last`` that are declared lost."""
        return list((self.lost.get(epoch) or RangeSet()).intersection(first, last))

    def check_start(self, epoch: int, first: int) -> None:
        """Check that ``first`` is not before the start of the epoch.

        :raises NotInJournal: if it is.
        """
        start = self.starts.get(epoch)
        if start is not None and first < start:
            raise NotInJournal(f"{first} of epoch {epoch} is not held: {self.stream} begins at {start} here")
