"""Reassembly of fragmented IP packets (RFC 791, section 3.2; RFC 8200, section 4.5)."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MAX_PACKETS = 256
"""Incomplete packets that are buffered. A new one beyond evicts the oldest."""
MAX_SIZE = 65_535
"""Largest packet in bytes."""

Key = tuple[bytes, bytes, int, int]
"""Source, destination, protocol and identification."""


class Fragment(NamedTuple):
    """Place of a fragment."""

    packet: Key
    offset: int
    """Offset in units of 8 bytes."""
    has_more: bool
    """Whether it is not the last one of its packet."""


class _Parts:
    """Fragments of one packet, by their offset in bytes."""

    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.held = 0
        self.size: int | None = None

    def join(self) -> bytes | None:
        """Return the packet, ``None`` if fragments overlap, which only attackers send."""
        end = 0
        for place in sorted(self.parts):
            if place != end:
                return None
            end += len(self.parts[place])
        return b"".join(part for _, part in sorted(self.parts.items()))


class FragmentBuffer:
    """Fragments of incomplete packets, of each at most :data:`MAX_SIZE` bytes.

    :ivar evicted: packets that were not completed, because newer ones needed the room or their fragments overlap.
    """

    def __init__(self) -> None:
        self.evicted = 0
        self._packets: OrderedDict[Key, _Parts] = OrderedDict()

    def add(self, fragment: Fragment, data: bytes) -> bytes | None:
        """Add a fragment; return the packet if it is complete. The first of two fragments at one place counts."""
        start = fragment.offset * 8
        if start + len(data) > MAX_SIZE or not data:
            return None
        packet = self._packets.get(fragment.packet)
        if packet is None:
            if len(self._packets) >= MAX_PACKETS:
                self._packets.popitem(last=False)
                self.evicted += 1
            packet = self._packets[fragment.packet] = _Parts()
        if start not in packet.parts:
            packet.parts[start] = data
            packet.held += len(data)
        if not fragment.has_more:
            packet.size = start + len(data)
        if packet.held < (MAX_SIZE + 1 if packet.size is None else packet.size):
            return None
        del self._packets[fragment.packet]
        whole = packet.join() if packet.held == packet.size else None
        self.evicted += whole is None
        return whole
