"""The axis of sequence numbers: which are shown, which are left out, and into what bins they are counted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MAX_BINS = 400
"""An axis has at most so many bins: as many as a plot has room for marks that can be told apart."""

MIN_BREAK_FRACTION = 0.25
"""A hole this large a part of an axis is left out of it."""

MAX_BREAKS = 16
"""So many holes are left out at most."""


class Tick(NamedTuple):
    """A place on the axis, and the number that stands there."""

    place: int
    text: str


@dataclass(frozen=True, slots=True)
class Axis:
    """The numbers ``first`` to ``last`` of one epoch of a stream, without ``breaks``.

    What is drawn are places: 0 for ``first``, one more for each number that is not left out. Numbers themselves can be
    above 2**53, where those of a browser are not exact, and holes in them so wide that nothing else would be seen.

    :ivar breaks: ranges that are left out, ascending, first and last of each.
    """

    stream: str
    epoch: int
    first: int
    last: int
    breaks: tuple[tuple[int, int], ...] = ()

    @classmethod
    def over(cls, stream: str, epoch: int, first: int, last: int, holes: Iterable[tuple[int, int]]) -> Axis:
        """Return the axis for a range, without those of ``holes`` that would take too large a part of it."""
        left_out: list[tuple[int, int]] = []
        shown = last - first + 1
        inside = [(max(low, first), min(high, last)) for low, high in holes if low <= last and high >= first]
        for low, high in sorted(inside, key=lambda hole: hole[0] - hole[1])[:MAX_BREAKS]:
            length = high - low + 1
            # A little of the hole stays, or it would not be seen that something is missing there at all.
            if length > MIN_BREAK_FRACTION * shown and length > MAX_BINS:
                margin = max(1, (shown - length) // MAX_BINS)
                if length - 2 * margin > 0:
                    left_out.append((low + margin, high - margin))
                    shown -= length - 2 * margin
        return cls(stream, epoch, first, last, tuple(sorted(left_out)))

    @property
    def length(self) -> int:
        """How many places there are."""
        return self.last - self.first + 1 - sum(high - low + 1 for low, high in self.breaks)

    @property
    def width(self) -> int:
        """How many places are counted in one bin."""
        return max(1, -(-self.length // MAX_BINS))

    def place(self, number: int) -> int:
        """Return the place of a number; of one that is left out, that of the next one that is not."""
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
        """Return round numbers along the axis, and the numbers on both sides of what is left out."""
        ends = [self.first, *(end for low, high in self.breaks for end in (low - 1, high + 1)), self.last]
        step = _step(self.length / wanted)
        numbers: set[int] = set()
        for first, last in zip(ends[::2], ends[1::2], strict=True):
            inside = range(-(-first // step) * step, last + 1, step)
            numbers.update(inside[: 4 * wanted])
        if len(numbers) < 2:
            numbers.update((self.first, self.last))
        for low, high in self.breaks:
            # Both sides of a break share a place on the page, and it is labelled where it is drawn.
            numbers = {number for number in numbers if not low - step // 2 < number < high + step // 2}
        return [Tick(self.place(number), f"{number:,}") for number in sorted(numbers)]


class BinCount(NamedTuple):
    """What was counted in one bin of one lane.

    :ivar numbers: how many sequence numbers are concerned.
    :ivar runs: how many findings there are.
    """

    bin: int
    numbers: int
    runs: int


class Bar(NamedTuple):
    """Neighbouring bins that are about equally full: what is drawn as one bar.

    :ivar level: 1 if few of the numbers there are concerned, up to :data:`LEVELS` if most are.
    """

    first: int
    last: int
    numbers: int
    runs: int
    level: int


LEVELS = 4


def make_bars(axis: Axis, counts: Iterable[BinCount]) -> list[Bar]:
    """Return bars for counts, of which there is at most one for each bin."""
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
    """Return ticks without those that stand too near to the one before."""
    if not ticks:
        return []
    kept = [ticks[0]]
    for _, tick in pairwise(ticks):
        if tick.place - kept[-1].place >= share * axis.length:
            kept.append(tick)
    return kept
