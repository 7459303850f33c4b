"""How far the backbone has got, and whether a number that it sends can be true."""

from __future__ import annotations

PLAUSIBLE_JUMP = 2**24
"""Numbers that a backbone may skip; more, and the DELIVER waits for a second one that agrees."""

OLD = 5.0
"""Seconds after which a datagram is not just late."""


class Tide:
    """The highest number that came from the backbone itself, now and a while ago."""

    def __init__(self, now: float) -> None:
        self.highest = 0
        self._floor = 0
        self._mark = 0
        self._marked_at = now
        self._suspect: int | None = None

    def plausible(self, sequence: int) -> bool:
        """Say whether the backbone may have got this far: one forged number must not ruin a stream."""
        if self.highest == 0 or sequence <= self.highest + PLAUSIBLE_JUMP:
            return True
        if self._suspect is not None and self._suspect < sequence <= self._suspect + PLAUSIBLE_JUMP:
            return True
        self._suspect = sequence
        return False

    def reached(self, sequence: int) -> None:
        """The backbone sent this number."""
        if sequence > self.highest:
            self.highest = sequence

    def time_passed(self, now: float) -> None:
        """Remember where the tide stood."""
        if now - self._marked_at >= OLD:
            self._floor, self._mark, self._marked_at = self._mark, self.highest, now

    def is_old(self, sequence: int) -> bool:
        """Say whether the backbone was beyond this number so long ago that it cannot be a late datagram."""
        return sequence <= self._floor
