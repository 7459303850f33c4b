"""Index of the frames of one epoch in one segment."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from fyrehose_twisted.journal.block import Numbers, position_ranges
from fyrehose_twisted.journal.format.frames import DENSE, FrameHeader
from fyrehose_twisted.ranges import RangeSet


class FrameIndex:
    """Frame headers sorted by the position of their first record.

    :ivar held: positions of the records in these frames.
    """

    __slots__ = ("_bases", "_frames", "_max_lasts", "held")

    def __init__(self) -> None:
        self.held = RangeSet()
        self._frames: list[FrameHeader] = []
        self._bases: list[int] = []
        # Running maximum of the last positions, so that a search need not look further back.
        self._max_lasts: list[int] = []

    def add(self, header: FrameHeader, positions: Numbers | None = None) -> None:
        """Add a frame that follows all others in the segment.

        :param positions: positions of its records; required if the frame is not dense.
        """
        self._insert(header)
        if positions is None or header.flags & DENSE:
            self.held.add(header.base, header.last)
        else:
            for first, last in position_ranges(positions):
                self.held.add(first, last)

    def restore(self, headers: list[FrameHeader], held: RangeSet) -> None:
        """Add all frames at once, with the positions that they hold."""
        for header in headers:
            self._insert(header)
        self.held = held

    def _insert(self, header: FrameHeader) -> None:
        base = header.base
        if not self._bases or base >= self._bases[-1]:
            self._bases.append(base)
            self._frames.append(header)
            self._max_lasts.append(max(header.last, self._max_lasts[-1]) if self._max_lasts else header.last)
            return
        at = bisect_right(self._bases, base)
        self._bases.insert(at, base)
        self._frames.insert(at, header)
        self._max_lasts.insert(at, 0)
        reach = self._max_lasts[at - 1] if at else 0
        for index in range(at, len(self._frames)):
            reach = max(reach, self._frames[index].last)
            self._max_lasts[index] = reach

    def covering(self, first: int, last: int) -> list[FrameHeader]:
        """Return the frames that may hold positions ``first`` to ``last``, in order of their first record."""
        low = bisect_left(self._max_lasts, first)
        high = bisect_right(self._bases, last)
        return [header for header in self._frames[low:high] if header.last >= first]

    @property
    def first(self) -> int:
        """Lowest position of a record."""
        return self._bases[0]

    @property
    def last(self) -> int:
        """Highest position of a record."""
        return self._max_lasts[-1]

    @property
    def records(self) -> int:
        """Number of records in the frames. A replaced record counts every time it was written."""
        return sum(header.entries for header in self._frames)

    def __iter__(self) -> Iterator[FrameHeader]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)
