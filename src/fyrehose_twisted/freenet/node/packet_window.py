"""The last packets of a stream."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b

from fyrehose_twisted.freenet.events import Packet
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET, NONE_SEEN

NUMBERS = MAX_PACKET + 1
"""How many packet numbers there are before they begin anew."""
HALF = NUMBERS // 2
FAR = 1_024
"""A number that is further ahead of the highest is a surprise."""


def ahead(number: int, of: int) -> int:
    """Return by how much ``number`` is ahead of another, below 0 if it is behind: the shorter way round."""
    return (number - of + HALF) % NUMBERS - HALF


def identity(number: int, data: bytes) -> int:
    """Return what tells a packet from all others, also from those with its number."""
    return number << 64 | int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class Arrival(Enum):
    """What a packet is to those that are known."""

    NEW = "new"
    SAME = "same"
    CONFLICT = "conflict"
    """There is another one with its number."""
    OLD = "old"
    """It is too old for that to be known."""


class Packets:
    """The last packets of a stream, by number.

    :param kept: how many numbers back from the highest are kept.
    :ivar newest: the highest number, ``None`` before the first.
    """

    __slots__ = ("_base", "_before", "_floor", "_held", "_kept", "newest")

    def __init__(self, kept: int) -> None:
        self.newest: int | None = None
        self._kept = kept
        self._base = 0
        """The number that was first, so long as it is kept: what came before is not missing."""
        self._floor: int | None = None
        """What somebody else has already, who goes on from there."""
        self._before: int | None = None
        """The highest number before the last one that was far ahead of it."""
        self._held: dict[int, bytes] = {}

    def resume(self, last_seen: int) -> None:
        """Go on behind ``last_seen``, of which somebody else has all that came before; -1 for the beginning.

        Of use before the first packet only.
        """
        if last_seen != NONE_SEEN and self.newest is None:
            self.newest = self._floor = last_seen
            self._base = (last_seen + 1) % NUMBERS

    def reopen(self) -> None:
        """Take packets again that somebody else was said to have already."""
        self._floor = None

    def __len__(self) -> int:
        return len(self._held)

    def look(self, number: int, data: bytes) -> Arrival:
        """Say what a packet is to those that are here."""
        held = self._held.get(number)
        if held is not None:
            return Arrival.SAME if held == data else Arrival.CONFLICT
        if self.newest is not None and ahead(number, self.newest) <= -self._kept:
            return Arrival.OLD
        if self._floor is not None and ahead(number, self._floor) <= 0:
            return Arrival.OLD
        return Arrival.NEW

    def put(self, number: int, data: bytes) -> list[tuple[int, int]]:
        """Keep a packet that is :attr:`Arrival.NEW`.

        :returns: first and last of the numbers that make room for it without having come; none if it is more than
            :data:`FAR` ahead.
        :raises ValueError: it is older than all that are kept.
        """
        newest = self.newest
        if newest is None:
            self.newest = self._base = number
        elif ahead(number, newest) > 0:
            missed = self._slide(newest, number)
            if ahead(number, newest) > FAR:
                # It is not that so many are missing: they are counted from somewhere else.
                self._before, self._base, missed = newest, number, []
                self._held.clear()
            self.newest = number
            self._held[number] = data
            return missed
        elif ahead(number, newest) <= -self._kept:
            raise ValueError(f"packet {number} is older than the {self._kept} that are kept up to {newest}")
        elif ahead(number, self._base) < 0:
            self._base = number
        self._held[number] = data
        return []

    def is_far(self, number: int) -> bool:
        """Say whether a number has nothing to do with those that are known."""
        return self.newest is not None and abs(ahead(number, self.newest)) > FAR

    def retreat(self) -> None:
        """Go back to what was before a number that was far ahead: it was wrong, or everybody counts anew."""
        before, self._before = self._before, None
        if before == self.newest:
            before = None
        self.newest = self._floor = None
        self._held.clear()
        if before is not None:
            self.resume(before)

    def _slide(self, newest: int, number: int) -> list[tuple[int, int]]:
        held = self._held
        oldest, edge = self._base, (number - self._kept + 1) % NUMBERS
        if ahead(edge, oldest) <= 0:
            return []
        # Where a number is far ahead, all that is known is between the oldest and the newest.
        missed: list[tuple[int, int]] = []
        one = oldest
        end = edge if ahead(edge, newest) <= 0 else (newest + 1) % NUMBERS
        while one != end:
            if held.pop(one, None) is None:
                if missed and (missed[-1][1] + 1) % NUMBERS == one:
                    missed[-1] = missed[-1][0], one
                else:
                    missed.append((one, one))
            one = (one + 1) % NUMBERS
        if end != edge:
            last = (edge - 1) % NUMBERS
            if missed and (missed[-1][1] + 1) % NUMBERS == end:
                missed[-1] = missed[-1][0], last
            else:
                missed.append((end, last))
        self._base = edge
        return missed

    @property
    def last_seen(self) -> int:
        """The highest number below which none is missing of those that are kept; -1 if there is none."""
        if self.newest is None:
            return NONE_SEEN
        # The first number may be one that is missing itself.
        one = (self._base - 1) % NUMBERS
        while one != self.newest and (one + 1) % NUMBERS in self._held:
            one = (one + 1) % NUMBERS
        return one

    def after(self, last_seen: int) -> list[Packet]:
        """Return the packets that come after a number, oldest first; all for -1."""
        newest = self.newest
        if newest is None:
            return []
        found = self._held.items()
        if last_seen != NONE_SEEN:
            chosen = [(ahead(number, newest), number, data) for number, data in found if ahead(number, last_seen) > 0]
        else:
            chosen = [(ahead(number, newest), number, data) for number, data in found]
        return [Packet(number, data) for _, number, data in sorted(chosen)]

    @property
    def next(self) -> int | None:
        """The number after the highest, ``None`` if none is known."""
        return None if self.newest is None else (self.newest + 1) % NUMBERS
