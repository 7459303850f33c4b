"""The last packets of a stream."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b

from fyrehose_twisted.freenet.events import Packet
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET, NONE_SEEN

NUMBER_SPACE = MAX_PACKET + 1
"""How many packet numbers there are before they begin anew."""
HALF_NUMBER_SPACE = NUMBER_SPACE // 2
MAX_JUMP = 1_024
"""A number that is further ahead of the highest is a surprise."""


def serial_difference(number: int, base: int) -> int:
    """Return by how much ``number`` is ahead of another, below 0 if it is behind: the shorter way round."""
    return (number - base + HALF_NUMBER_SPACE) % NUMBER_SPACE - HALF_NUMBER_SPACE


def packet_fingerprint(number: int, data: bytes) -> int:
    """Return what tells a packet from all others, also from those with its number."""
    return number << 64 | int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class PacketClass(Enum):
    """What a packet is to those that are known."""

    NEW = "new"
    SAME = "same"
    CONFLICT = "conflict"
    """There is another one with its number."""
    OLD = "old"
    """It is too old for that to be known."""


class PacketWindow:
    """The last packets of a stream, by number.

    :param kept: how many numbers back from the highest are kept.
    :ivar newest: the highest number, ``None`` before the first.
    """

    __slots__ = ("_base", "_capacity", "_floor", "_packets", "_previous_highest", "newest")

    def __init__(self, capacity: int) -> None:
        self.newest: int | None = None
        self._capacity = capacity
        self._base = 0
        """The number that was first, so long as it is kept: what came before is not missing."""
        self._floor: int | None = None
        """What somebody else has already, who goes on from there."""
        self._previous_highest: int | None = None
        """The highest number before the last one that was far ahead of it."""
        self._packets: dict[int, bytes] = {}

    def start_after(self, last_seen: int) -> None:
        """Go on behind ``last_seen``, of which somebody else has all that came before; -1 for the beginning.

        Of use before the first packet only.
        """
        if last_seen != NONE_SEEN and self.newest is None:
            self.newest = self._floor = last_seen
            self._base = (last_seen + 1) % NUMBER_SPACE

    def clear_floor(self) -> None:
        """Take packets again that somebody else was said to have already."""
        self._floor = None

    def __len__(self) -> int:
        return len(self._packets)

    def classify(self, number: int, data: bytes) -> PacketClass:
        """Say what a packet is to those that are here."""
        held = self._packets.get(number)
        if held is not None:
            return PacketClass.SAME if held == data else PacketClass.CONFLICT
        if self.newest is not None and serial_difference(number, self.newest) <= -self._capacity:
            return PacketClass.OLD
        if self._floor is not None and serial_difference(number, self._floor) <= 0:
            return PacketClass.OLD
        return PacketClass.NEW

    def add(self, number: int, data: bytes) -> list[tuple[int, int]]:
        """Keep a packet that is :attr:`PacketClass.NEW`.

        :returns: first and last of the numbers that make room for it without having come; none if it is more than
            :data:`MAX_JUMP` ahead.
        :raises ValueError: it is older than all that are kept.
        """
        newest = self.newest
        if newest is None:
            self.newest = self._base = number
        elif serial_difference(number, newest) > 0:
            missed = self._slide(newest, number)
            if serial_difference(number, newest) > MAX_JUMP:
                # It is not that so many are missing: they are counted from somewhere else.
                self._previous_highest, self._base, missed = newest, number, []
                self._packets.clear()
            self.newest = number
            self._packets[number] = data
            return missed
        elif serial_difference(number, newest) <= -self._capacity:
            raise ValueError(f"packet {number} is older than the {self._capacity} that are kept up to {newest}")
        elif serial_difference(number, self._base) < 0:
            self._base = number
        self._packets[number] = data
        return []

    def is_discontinuous(self, number: int) -> bool:
        """Say whether a number has nothing to do with those that are known."""
        return self.newest is not None and abs(serial_difference(number, self.newest)) > MAX_JUMP

    def roll_back(self) -> None:
        """Go back to what was before a number that was far ahead: it was wrong, or everybody counts anew."""
        before, self._previous_highest = self._previous_highest, None
        if before == self.newest:
            before = None
        self.newest = self._floor = None
        self._packets.clear()
        if before is not None:
            self.start_after(before)

    def _slide(self, newest: int, number: int) -> list[tuple[int, int]]:
        held = self._packets
        oldest, edge = self._base, (number - self._capacity + 1) % NUMBER_SPACE
        if serial_difference(edge, oldest) <= 0:
            return []
        # Where a number is far ahead, all that is known is between the oldest and the newest.
        missed: list[tuple[int, int]] = []
        one = oldest
        end = edge if serial_difference(edge, newest) <= 0 else (newest + 1) % NUMBER_SPACE
        while one != end:
            if held.pop(one, None) is None:
                if missed and (missed[-1][1] + 1) % NUMBER_SPACE == one:
                    missed[-1] = missed[-1][0], one
                else:
                    missed.append((one, one))
            one = (one + 1) % NUMBER_SPACE
        if end != edge:
            last = (edge - 1) % NUMBER_SPACE
            if missed and (missed[-1][1] + 1) % NUMBER_SPACE == end:
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
        one = (self._base - 1) % NUMBER_SPACE
        while one != self.newest and (one + 1) % NUMBER_SPACE in self._packets:
            one = (one + 1) % NUMBER_SPACE
        return one

    def packets_after(self, last_seen: int) -> list[Packet]:
        """Return the packets that come after a number, oldest first; all for -1."""
        newest = self.newest
        if newest is None:
            return []
        found = self._packets.items()
        if last_seen != NONE_SEEN:
            chosen = [
                (serial_difference(number, newest), number, data)
                for number, data in found
                if serial_difference(number, last_seen) > 0
            ]
        else:
            chosen = [(serial_difference(number, newest), number, data) for number, data in found]
        return [Packet(number, data) for _, number, data in sorted(chosen)]

    @property
    def next_number(self) -> int | None:
        """The number after the highest, ``None`` if none is known."""
        return None if self.newest is None else (self.newest + 1) % NUMBER_SPACE
