"""Axis of sequence numbers with breaks and bins."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MAX_BINS = 400
"""Maximum of bins per axis: the number of marks that a plot can show distinctly."""

MIN_BREAK_FRACTION = 0.25
"""Fraction of an axis above which a hole is omitted from the axis."""

MAX_BREAKS = 16
"""Maximum of omitted holes per axis."""


class Tick(NamedTuple):
    """Axis position and its number as text."""

    place: int
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """Axis over the numbers ``first`` to ``last`` of a stream's epoch, without ``breaks``.

    Plots use places: 0 for ``first``, and one more for each number that is not omitted. Numbers can exceed 2**53, above
    which browsers' numbers are inexact, and holes can be wide enough to hide everything else.

    :ivar breaks: omitted ranges in ascending order, each with first and last number.
    """

    stream: str
    epoch: int
    first: int
    last: int
    breaks: tuple[tuple[int, int], ...] = ()

    @classmethod
    def over(cls, stream: str, epoch: int, first: int, last: int, holes: Iterable[tuple[int, int]]) -> Axis:
        """Create the axis for a range and omit ``holes`` that would take up too much of it."""
        left_out: list[tuple[int, int]] = []
        shown = last - first + 1
        inside = [(max(low, first), min(high, last)) for low, high in holes if low <= last and high >= first]
        for low, high in sorted(inside, key=lambda hole: hole[0] - hole[1])[:MAX_BREAKS]:
            length = high - low + 1
            # Keep the margins of the hole, so that the plot still shows it.
            if length > MIN_BREAK_FRACTION * shown and length > MAX_BINS:
                margin = max(1, (shown - length) // MAX_BINS)
                if length - 2 * margin > 0:
                    left_out.append((low + margin, high - margin))
                    shown -= length - 2 * margin
        return cls(stream, epoch, first, last, tuple(sorted(left_out)))

    @property
    def length(self) -> int:
        """Number of places."""
        return self.last - self.first + 1 - sum(high - low + 1 for low, high in self.breaks)

    @property
    def width(self) -> int:
        """Number of places per bin."""
        return max(1, -(-self.length // MAX_BINS))

    def place(self, number: int) -> int:
        """Return the place of a number; an omitted number has the place of the next number shown."""
        place = number - self.first
        for low, high in self.breaks:
            place -= max(0, min(number - low, high - low + 1))
        return place

    def number(self, place: int) -> int:
        """Return the number at a place."""
        number = self.first + place
        for low, high in self.breaks:
            if number >= low:
                number += high - low + 1
        return number

    def ticks(self, wanted: int = 6) -> list[Tick]:
        """Return ticks at round numbers, omitting those near a break."""
        ends = [self.first, *(end for low, high in self.breaks for end in (low - 1, high + 1)), self.last]
        step = _step(self.length / wanted)
        numbers: set[int] = set()
        for first, last in zip(ends[::2], ends[1::2], strict=True):
            inside = range(-(-first // step) * step, last + 1, step)
            numbers.update(inside[: 4 * wanted])
        if len(numbers) < 2:
            numbers.update((self.first, self.last))
        for low, high in self.breaks:
            # Both sides of a break share a place, which has a label of its own.
            numbers = {number for number in numbers if not low - step // 2 < number < high + step // 2}
        return [Tick(self.place(number), f"{number:,}") for number in sorted(numbers)]


class BinCount(NamedTuple):
    """Counts of one bin of one lane.

    :ivar numbers: count of affected sequence numbers.
    :ivar runs: count of findings.
    """

    bin: int
    numbers: int
    runs: int


class Bar(NamedTuple):
    """Adjacent bins of about the same density, drawn as one bar.

    :ivar level: density of affected numbers, from 1 (few) to :data:`LEVELS` (most).
    """

    first: int
    last: int
    numbers: int
    runs: int
    level: int


LEVELS = 4


def make_bars(axis: Axis, counts: Iterable[BinCount]) -> list[Bar]:
    """Merge counts, at most one per bin, into bars."""
    made: list[Bar] = []
    for one in sorted(counts):
        width = min(axis.width, axis.length - one.bin * axis.width)
        level = _level(one.numbers / max(1, width))
        if made and made[-1].last == one.bin - 1 and made[-1].level == level:
            before = made[-1]
            made[-1] = Bar(before.first, one.bin, before.numbers + one.numbers, before.runs + one.runs, level)
        else:
            made.append(Bar(one.bin, one.bin, one.numbers, one.runs, level))
    return made


def _level(share: float) -> int:
    return 1 + sum(share > bound for bound in (0.01, 0.1, 0.5))


def _step(least: float) -> int:
    """Return 1, 2 or 5 times a power of ten, at least ``least``."""
    if least <= 1:
        return 1
    power = 10 ** math.floor(math.log10(least))
    return int(next(factor * power for factor in (1, 2, 5, 10, 20) if factor * power >= least))


def thin_ticks(ticks: list[Tick], axis: Axis, share: float = 0.08) -> list[Tick]:
    """Drop ticks that are too close to the previous one."""
    if not ticks:
        return []
    kept = [ticks[0]]
    for _, tick in pairwise(ticks):
        if tick.place - kept[-1].place >= share * axis.length:
            kept.append(tick)
    return kept
