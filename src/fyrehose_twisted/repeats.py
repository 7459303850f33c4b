"""Detection of repeated messages, shared by subscribers, journal readers and Spark.

A message is a repeat if the same publisher and counter occur at a lower number, at most :data:`WINDOW` numbers before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

WINDOW = 65_536
"""Numbers before a message in which an equal envelope makes it a repeat."""

COUNTERS_PER_PAGE = 1_024
"""Counters of one publisher per page; bounds the length of each list."""


Numbers = NDArray[np.uint64]
_EMPTY: Numbers = np.array([], np.uint64)


SPARE_RANGES = 16
"""Expired ranges that a page may hold before it is pruned."""


class EnvelopeRun(NamedTuple):
    """Messages of one publisher with consecutive numbers and consecutive counters."""

    number: int
    """Of the first message."""
    publisher: int
    counter: int
    """Of the first message."""
    length: int


class Envelopes(NamedTuple):
    """Envelopes in columns, sorted by number."""

    numbers: Numbers
    publishers: Numbers
    counters: Numbers
    unpublished: Numbers = _EMPTY
    """Numbers of messages that no publisher published, such as the start of a term. Readers treat them as repeats."""

    def runs(self) -> list[EnvelopeRun]:
        """Return the envelopes as runs of maximum length."""
        if not len(self.numbers):
            return []
        numbers, publishers, counters, _ = self
        follows = (publishers[1:] == publishers[:-1]) & (counters[1:] - counters[:-1] == 1) & (counters[1:] != 0)
        follows &= numbers[1:] - numbers[:-1] == 1
        begins = np.append(0, np.flatnonzero(~follows) + 1)
        lengths = np.diff(begins, append=len(numbers))
        return list(map(EnvelopeRun, *(column[begins].tolist() for column in self[:3]), lengths.tolist()))

    def keys(self) -> Numbers:
        """Return a hash of publisher and counter for each envelope. Collisions are rare."""
        return self.publishers * _HASH_MULTIPLIER + self.counters

    def with_keys(self, keys: Numbers) -> Envelopes:
        """Return the envelopes whose key is in ``keys``, which must be sorted."""
        ours = self.keys()
        found = keys[np.minimum(keys.searchsorted(ours), len(keys) - 1)] == ours
        return Envelopes(self.numbers[found], self.publishers[found], self.counters[found])


_HASH_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
NO_ENVELOPES = Envelopes(_EMPTY, _EMPTY, _EMPTY)


class RepeatDetector:
    """Publishers and counters of the latest :data:`WINDOW` numbers of a stream.

    Memory is bounded by the window.

    :param window: number of sequence numbers; see :data:`WINDOW`.
    """

    def __init__(self, window: int = WINDOW) -> None:
        self._window = window
        self._pages: dict[tuple[int, int], _Page] = {}
        self._runs: deque[EnvelopeRun] = deque()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: EnvelopeRun) -> list[tuple[int, int]]:
        """Add a run whose numbers are above all previous ones.

        :return: rows of repeated messages as ascending, disjoint ranges with exclusive ends.
        """
        number, publisher, counter, length = run
        below = number + length - self._window
        place = counter % COUNTERS_PER_PAGE
        if place + length <= COUNTERS_PER_PAGE:
            found = self._add_part(run, below)
        else:
            found = []
            row = 0
            while row < length:
                part = min(length - row, COUNTERS_PER_PAGE - place)
                repeated = self._add_part(EnvelopeRun(number + row, publisher, counter + row, part), below)
                found += [(begin + row, end + row) for begin, end in repeated]
                row, place = row + part, 0
        runs = self._runs
        while runs:
            first, publisher, counter, length = runs[0]
            if first + length > below:
                break
            runs.popleft()
            key = publisher, counter // COUNTERS_PER_PAGE
            page = self._pages[key]
            page.runs -= 1
            if not page.runs:
                del self._pages[key]
        return found

    def runs(self) -> list[EnvelopeRun]:
        """Return the runs in order; adding them to another detector copies the state."""
        return list(self._runs)

    def _add_part(self, run: EnvelopeRun, below: int) -> list[tuple[int, int]]:
        number, publisher, counter, length = run
        key = publisher, counter // COUNTERS_PER_PAGE
        page = self._pages.get(key)
        if page is None:
            page = self._pages[key] = _Page()
        elif len(page.firsts) >= page.limit:
            page.discard_below(below)
        repeated = page.put(counter, counter + length - 1, number - counter, self._window)
        runs = self._runs
        if runs and counter % COUNTERS_PER_PAGE:
            first, other, begin, before = runs[-1]
            if first + before == number and begin + before == counter and other == publisher:
                runs[-1] = EnvelopeRun(first, publisher, begin, before + length)
                return repeated
        runs.append(run)
        page.runs += 1
        return repeated


class _Page:
    """Ascending, disjoint ranges of a publisher's counters, each with the offset from counter to number.

    :ivar runs: number of runs in the window with counters on this page.
    :ivar limit: number of ranges above which expired ones are pruned.
    """

    __slots__ = ("firsts", "lasts", "limit", "offsets", "runs")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        self.offsets: list[int] = []
        self.runs = 0
        self.limit = SPARE_RANGES

    def put(self, first: int, last: int, offset: int, window: int) -> list[tuple[int, int]]:
        """Add a range, replacing what overlaps it.

        :return: rows of the range that occurred within ``window`` numbers before.
        """
        firsts, lasts, aheads = self.firsts, self.lasts, self.offsets
        if not lasts or first > lasts[-1]:
            if lasts and lasts[-1] + 1 == first and aheads[-1] == offset:
                lasts[-1] = last
            else:
                firsts.append(first)
                lasts.append(last)
                aheads.append(offset)
            return []
        low, high = bisect_left(lasts, first), bisect_right(firsts, last)
        found: list[tuple[int, int]] = []
        parts = [(first, last, offset)]
        for index in range(low, high):
            begin, end, other = firsts[index], lasts[index], aheads[index]
            if offset - other <= window:
                found.append((max(begin - first, 0), min(end, last) + 1 - first))
            if begin < first:
                parts.insert(0, (begin, first - 1, other))
            if end > last:
                parts.append((last + 1, end, other))
        firsts[low:high], lasts[low:high], aheads[low:high] = map(list, zip(*parts, strict=True))
        return found

    def discard_below(self, below: int) -> None:
        """Discard the ranges whose numbers are all below ``below``."""
        rows = zip(self.firsts, self.lasts, self.offsets, strict=True)
        kept = [(first, last, ahead) for first, last, ahead in rows if last + ahead >= below]
        self.firsts, self.lasts, self.offsets = (
            [first for first, _, _ in kept],
            [last for _, last, _ in kept],
            [ahead for _, _, ahead in kept],
        )
        self.limit = SPARE_RANGES + 2 * len(kept)
