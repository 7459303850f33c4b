"""Sets of integers, such as sequence numbers, stored as ranges."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    """A set of integers kept as sorted, disjoint, non-adjacent inclusive ranges.

    Membership is a binary search; adding or discarding at either end costs the same, in the middle the
    cost of a list insertion. ``len()`` is the number of *ranges*; :attr:`count` is the number of integers.
    """

    __slots__ = ("_firsts", "_lasts", "count")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self.count = 0
        for first, last in ranges:
            self.add(first, last)

    def add(self, first: int, last: int | None = None) -> None:
        """Add ``first`` to ``last``, both inclusive (``last`` defaults to ``first``).

        :raises ValueError: if ``last`` is below ``first``.
        """
        if last is None:
            last = first
        elif last < first:
            raise ValueError(f"range {first}..{last} is empty")
        firsts, lasts = self._firsts, self._lasts
        if lasts and first > lasts[-1]:
            if first == lasts[-1] + 1:
                lasts[-1] = last
            else:
                firsts.append(first)
                lasts.append(last)
            self.count += last - first + 1
            return
        low = bisect_left(lasts, first - 1)
        high = bisect_right(firsts, last + 1)
        if low < high:
            first = min(first, firsts[low])
            last = max(last, lasts[high - 1])
            self.count -= sum(lasts[low:high]) - sum(firsts[low:high]) + high - low
        firsts[low:high] = [first]
        lasts[low:high] = [last]
        self.count += last - first + 1

    def discard(self, first: int, last: int | None = None) -> None:
        """Remove ``first`` to ``last``, both inclusive; absent numbers are ignored.

        :raises ValueError: if ``last`` is below ``first``.
        """
        if last is None:
            last = first
        elif last < first:
            raise ValueError(f"range {first}..{last} is empty")
        firsts, lasts = self._firsts, self._lasts
        low = bisect_left(lasts, first)
        high = bisect_right(firsts, last)
        if low >= high:
            return
        if high == low + 1 and first <= firsts[low] and lasts[low] <= last:
            self.count -= lasts[low] - firsts[low] + 1
            del firsts[low], lasts[low]
            return
        kept_firsts: list[int] = []
        kept_lasts: list[int] = []
        if firsts[low] < first:
            kept_firsts.append(firsts[low])
            kept_lasts.append(first - 1)
        if lasts[high - 1] > last:
            kept_firsts.append(last + 1)
            kept_lasts.append(lasts[high - 1])
        self.count -= sum(lasts[low:high]) - sum(firsts[low:high]) + high - low
        self.count += sum(kept_lasts) - sum(kept_firsts) + len(kept_firsts)
        firsts[low:high] = kept_firsts
        lasts[low:high] = kept_lasts

    def clear(self) -> None:
        """Remove everything."""
        self._firsts.clear()
        self._lasts.clear()
        self.count = 0

    def intersection(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges present within ``first`` to ``last``, lowest first.

        The set must not change during the iteration.
        """
        firsts, lasts = self._firsts, self._lasts
        for index in range(bisect_left(lasts, first), len(firsts) if first <= last else 0):
            if firsts[index] > last:
                return
            yield max(first, firsts[index]), min(last, lasts[index])

    def range_of(self, number: int) -> tuple[int, int] | None:
        """Return the range that contains ``number``, or ``None``."""
        index = bisect_left(self._lasts, number)
        if index < len(self._firsts) and self._firsts[index] <= number:
            return self._firsts[index], self._lasts[index]
        return None

    def gaps(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges absent within ``first`` to ``last``, lowest first."""
        position = first
        for here_first, here_last in self.intersection(first, last):
            if here_first > position:
                yield position, here_first - 1
            position = here_last + 1
        if position <= last:
            yield position, last

    @property
    def first(self) -> int:
        """The lowest member. :raises IndexError: if the set is empty."""
        return self._firsts[0]

    @property
    def last(self) -> int:
        """The highest member. :raises IndexError: if the set is empty."""
        return self._lasts[-1]

    def __contains__(self, number: int) -> bool:
        index = bisect_left(self._lasts, number)
        return index < len(self._firsts) and self._firsts[index] <= number

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)

    def __len__(self) -> int:
        return len(self._firsts)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RangeSet):
            return NotImplemented
        return self._firsts == other._firsts and self._lasts == other._lasts

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RangeSet({list(self)})"
