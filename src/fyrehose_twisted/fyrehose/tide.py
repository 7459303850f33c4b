"""How far the backbone has got, and whether a number that it sends can be true."""

from __future__ import annotations

PLAUSIBLE_JUMP = 2**24
"""Numbers that a backbone may skip; more, and the DELIVER waits for a second one that agrees."""

OLD_ONES = 3
"""Old numbers in rising order that make a backbone that counts anew; one is just a datagram that came twice."""

OLD = 5.0
"""Seconds after which a datagram is not just late."""


class Tide:
    """The highest number that came from the backbone itself, now and a while ago.

    :param start: the number to start with, if one was given: the first may be expected near it.
    """

    def __init__(self, now: float, start: int | None = None) -> None:
        self.highest = 0
        self._start = start
        self._old = 0
        self._old_ones = 0
        self._floor = 0
        self._mark = 0
        self._marked_at = now
        self._suspect: int | None = None

    def plausible(self, sequence: int) -> bool:
        """Say whether the backbone may have got this far: one forged number must not ruin a stream."""
        baseline = self.highest or self._start
        if baseline is None or sequence <= baseline + PLAUSIBLE_JUMP:
            return True
        if self._suspect is not None and self._suspect < sequence <= self._suspect + PLAUSIBLE_JUMP:
            return True
        self._suspect = sequence
        return False

    def reached(self, sequence: int) -> None:
        """The backbone sent this number."""
        if sequence > self.highest:
            self.highest = sequence
            self._old_ones = 0

    def time_passed(self, now: float) -> None:
        """Remember where the tide stood."""
        if now - self._marked_at >= OLD:
            self._floor, self._mark, self._marked_at = self._mark, self.highest, now

    def falls(self, sequence: int) -> bool:
        """Say whether the backbone counts anew: several numbers in rising order, and it was beyond them long ago."""
        if sequence > self._floor:
            return False
        self._old_ones = self._old_ones + 1 if sequence > self._old else 1
        self._old = sequence
        return self._old_ones >= OLD_ONES
