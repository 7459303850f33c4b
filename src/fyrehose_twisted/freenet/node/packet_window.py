"""Sliding window of the latest packets of a stream."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b

from fyrehose_twisted.freenet.events import Packet
from fyrehose_twisted.freenet.wire.messages import MAX_PACKET, NONE_SEEN

NUMBER_SPACE = MAX_PACKET + 1
"""Number of packet numbers before they wrap around."""
HALF_NUMBER_SPACE = NUMBER_SPACE // 2
MAX_JUMP = 1_024
"""Largest step from the highest number that is not a discontinuity."""


def serial_difference(number: int, base: int) -> int:
    """Return how far ``number`` is ahead of ``base`` in serial arithmetic; negative if it is behind."""
    return (number - base + HALF_NUMBER_SPACE) % NUMBER_SPACE - HALF_NUMBER_SPACE


def packet_fingerprint(number: int, data: bytes) -> int:
    """Return a fingerprint that distinguishes a packet from all others, even with the same number."""
    return number << 64 | int.from_bytes(blake2b(data, digest_size=8).digest(), "big")


class PacketClass(Enum):
    """Relation of a packet to those in the window."""

    NEW = "new"
    SAME = "same"
    CONFLICT = "conflict"
    """Another packet has the number."""
    OLD = "old"
    """The number is older than the window."""


class PacketWindow:
    """Latest packets of a stream, by number.

    :param capacity: size of the window, in numbers back from the highest.
    :ivar newest: highest number, ``None`` before the first.
    """

    __slots__ = ("_base", "_capacity", "_floor", "_packets", "_previous_highest", "newest")

    def __init__(self, capacity: int) -> None:
        self.newest: int | None = None
        self._capacity = capacity
        self._base = 0
        """First number of the stream while it is inside the window; earlier numbers are not missing."""
        self._floor: int | None = None
        """Number up to which packets are treated as old, because the application or a subscriber has them."""
        self._previous_highest: int | None = None
        """Highest number before the last discontinuity."""
        self._packets: dict[int, bytes] = {}

    def start_after(self, last_seen: int) -> None:
        """Start the window after ``last_seen``; do nothing for -1.

        It has no effect once a packet was added.
        """
        if last_seen != NONE_SEEN and self.newest is None:
            self.newest = self._floor = last_seen
            self._base = (last_seen + 1) % NUMBER_SPACE

    def clear_floor(self) -> None:
        """Accept packets again up to the number that :meth:`start_after` was given."""
        self._floor = None

    def __len__(self) -> int:
        return len(self._packets)

    def classify(self, number: int, data: bytes) -> PacketClass:
        """Return the relation of a packet to those in the window."""
        held = self._packets.get(number)
        if held is not None:
            return PacketClass.SAME if held == data else PacketClass.CONFLICT
        if self.newest is not None and serial_difference(number, self.newest) <= -self._capacity:
            return PacketClass.OLD
        if self._floor is not None and serial_difference(number, self._floor) <= 0:
            return PacketClass.OLD
        return PacketClass.NEW

    def add(self, number: int, data: bytes) -> list[tuple[int, int]]:
        """Add a packet that is :attr:`PacketClass.NEW`.

        :returns: ranges (first, last) of numbers that left the window without having arrived; none if the packet is
            more than :data:`MAX_JUMP` ahead.
        :raises ValueError: if the packet is older than the window.
        """
        newest = self.newest
        if newest is None:
            self.newest = self._base = number
        elif serial_difference(number, newest) > 0:
            missed = self._slide(newest, number)
            if serial_difference(number, newest) > MAX_JUMP:
                # A discontinuity: numbering continues elsewhere, so no packets are missing.
                self._previous_highest, self._base, missed = newest, number, []
                self._packets.clear()
            self.newest = number
            self._packets[number] = data
            return missed
        elif serial_difference(number, newest) <= -self._capacity:
            raise ValueError(f"packet {number} is older than the window of {self._capacity} up to {newest}")
        elif serial_difference(number, self._base) < 0:
            self._base = number
        self._packets[number] = data
        return []

    def is_discontinuous(self, number: int) -> bool:
        """Return True if a number is more than :data:`MAX_JUMP` away from the highest."""
        return self.newest is not None and abs(serial_difference(number, self.newest)) > MAX_JUMP

    def roll_back(self) -> None:
        """Discard the numbers after the last discontinuity: it was wrong, or the tree started over."""
        before, self._previous_highest = self._previous_highest, None
        if before == self.newest:
            before = None
        self.newest = self._floor = None
        self._packets.clear()
        if before is not None:
            self.start_after(before)

    def _slide(self, newest: int, number: int) -> list[tuple[int, int]]:
        packets = self._packets
        oldest, edge = self._base, (number - self._capacity + 1) % NUMBER_SPACE
        if serial_difference(edge, oldest) <= 0:
            return []
        # If the number is far ahead, packets exist only between the oldest and the newest.
        missed: list[tuple[int, int]] = []
        current = oldest
        end = edge if serial_difference(edge, newest) <= 0 else (newest + 1) % NUMBER_SPACE
        while current != end:
            if packets.pop(current, None) is None:
                if missed and (missed[-1][1] + 1) % NUMBER_SPACE == current:
                    missed[-1] = missed[-1][0], current
                else:
                    missed.append((current, current))
            current = (current + 1) % NUMBER_SPACE
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
        """Highest number up to which the window has no gap; -1 before the first packet."""
        if self.newest is None:
            return NONE_SEEN
        # The first number itself may be missing.
        last = (self._base - 1) % NUMBER_SPACE
        while last != self.newest and (last + 1) % NUMBER_SPACE in self._packets:
            last = (last + 1) % NUMBER_SPACE
        return last

    def packets_after(self, last_seen: int) -> list[Packet]:
        """Return the packets after a number, oldest first; all packets for -1."""
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
        """Number after the highest, ``None`` before the first."""
        return None if self.newest is None else (self.newest + 1) % NUMBER_SPACE
