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
    def __init__(self) -> None:
        self.parts: dict[int, bytes] = {}
        self.size: int | None = None


class FragmentBuffer:
    """Fragments of incomplete packets.

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
        packet.parts.setdefault(start, data)
        if not fragment.has_more:
            packet.size = start + len(data)
        if packet.size is None or sum(map(len, packet.parts.values())) < packet.size:
            return None
        del self._packets[fragment.packet]
        whole = b"".join(part for _, part in sorted(packet.parts.items()))
        places = sorted(packet.parts)
        # Overlapping fragments are sent by attackers alone.
        if len(whole) != packet.size or any(
            place + len(packet.parts[place]) != following
            for place, following in zip(places, [*places[1:], packet.size], strict=True)
        ):
            self.evicted += 1
            return None
        return whole
