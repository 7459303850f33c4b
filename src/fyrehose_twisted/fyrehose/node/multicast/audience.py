"""Clients of a backbone that listen to its multicast group."""

from __future__ import annotations

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Beacon, Flags

BEACON_INTERVAL = 0.5
"""Seconds between two BEACONs while a client wants to listen."""

# As numbers, because operators of IntFlag are slow.
_NOSUBSCRIBE, _MULTICAST, _HEARS = int(Flags.NOSUBSCRIBE), int(Flags.MULTICAST), int(Flags.HEARS)


class Audience:
    """Clients that want to listen to the multicast group of a backbone, and those of them that hear it.

    :ivar group: the group; ``None`` for a backbone without one, which serves all clients one by one.
    """

    def __init__(self, group: Address | None) -> None:
        self.group = group
        self._beacon_due_at = 0.0
        self._candidates: set[Address] = set()
        self._listeners: set[Address] = set()
        self._others: tuple[Address, ...] = ()
        self._destinations: tuple[Address, ...] = ()

    @property
    def candidates(self) -> int:
        """Number of clients that want to listen, including those that hear the group."""
        return len(self._candidates)

    @property
    def listeners(self) -> int:
        """Number of clients that hear the group."""
        return len(self._listeners)

    def hears(self, address: Address) -> bool:
        """Return whether the client at ``address`` hears the group."""
        return address in self._listeners

    def update(self, address: Address, flags: int) -> int:
        """Record the FLAGS of a client. Return them with NOSUBSCRIBE if it needs no DELIVERs of its own."""
        if self.group is None:
            return flags
        if flags & (_MULTICAST | _NOSUBSCRIBE) != _MULTICAST:
            self._candidates.discard(address)
            self._listeners.discard(address)
            return flags
        self._candidates.add(address)
        if not flags & _HEARS:
            self._listeners.discard(address)
            return flags
        self._listeners.add(address)
        return flags | _NOSUBSCRIBE

    def next_beacon(self, now: float) -> float | None:
        """Return the time at which :meth:`take_beacon` is due; ``None`` while no client wants to listen."""
        return min(self._beacon_due_at, now + BEACON_INTERVAL) if self._candidates else None

    def take_beacon(self, now: float) -> bytes | None:
        """Return the BEACON to send to the group now, if it is due."""
        if not self._candidates or self._beacon_due_at - BEACON_INTERVAL <= now < self._beacon_due_at:
            return None
        self._beacon_due_at = now + BEACON_INTERVAL
        return encode(Beacon(self.listeners))

    def destinations(self, others: tuple[Address, ...]) -> tuple[Address, ...]:
        """Return where to send messages: the group if anyone hears it, and ``others``."""
        if not self._listeners or self.group is None:
            return others
        # Compared by identity, because callers compare the result so, too.
        if not self._destinations or self._others is not others:
            self._others, self._destinations = others, (self.group, *others)
        return self._destinations
