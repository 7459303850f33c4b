"""Registry of the nodes of a network (document 002, "Nodes must keep a record of all other nodes")."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from fyrehose_twisted.effects import Peer

MAX_DROPPED = 256
"""Number of dropped nodes that are remembered."""


@dataclass(slots=True)
class RegisteredNode:
    """A registered node.

    :ivar registered_at: time of its registration at this node.
    :ivar hops: distance in links, from its PONG to the latest PING.
    :ivar neighbour: link over which the PONG with the fewest relays arrived.
    :ivar val: token of the PING that :attr:`hops` and :attr:`neighbour` refer to.
    :ivar last_pong_at: time of its last PONG.
    """

    id: int
    registered_at: float
    tag: str = ""
    hops: int | None = None
    neighbour: Peer | None = None
    val: str = ""
    last_pong_at: float | None = None


class Registry:
    """Registered nodes, reservations for inductees, and recently dropped nodes.

    :ivar reservations: end of the reservation by inductee.
    """

    def __init__(self) -> None:
        self.reservations: dict[int, float] = {}
        self._members: dict[int, RegisteredNode] = {}
        self._dropped: OrderedDict[int, None] = OrderedDict()
        self._tags: dict[int, str] = {}

    def __contains__(self, node: int | None) -> bool:
        return node in self._members

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[RegisteredNode]:
        return iter(self._members.values())

    def get(self, node: int | None) -> RegisteredNode | None:
        """Return a node, ``None`` if not registered."""
        return None if node is None else self._members.get(node)

    def ids(self) -> frozenset[int]:
        """Return the ids of registered nodes."""
        return frozenset(self._members)

    def places_taken(self) -> int:
        """Return the number of registered nodes and reservations."""
        return len(self._members) + len(self.reservations)

    def reserve(self, ind: int, tag: str, until: float) -> None:
        """Reserve a place for an inductee."""
        self.reservations[ind] = until
        self._tags[ind] = tag

    def add(self, node: int, now: float) -> RegisteredNode:
        """Register a node."""
        self.reservations.pop(node, None)
        member = self._members[node] = RegisteredNode(node, now, self._tags.pop(node, ""))
        return member

    def drop(self, node: int) -> bool:
        """Remove a node or an inductee; return whether it was present."""
        self._dropped[node] = None
        if len(self._dropped) > MAX_DROPPED:
            self._dropped.popitem(last=False)
        return self.release(node) | (self._members.pop(node, None) is not None)

    def release(self, ind: int) -> bool:
        """Release the reservation of an inductee; return whether there was one."""
        self._tags.pop(ind, None)
        return self.reservations.pop(ind, None) is not None

    def was_dropped(self, node: int) -> bool:
        """Return whether a node was dropped recently."""
        return node in self._dropped

    def expire(self, now: float) -> None:
        """Release expired reservations."""
        for ind in [ind for ind, until in self.reservations.items() if until <= now]:
            self.release(ind)

    def clear(self) -> None:
        """Remove all nodes and reservations."""
        self.reservations.clear()
        self._members.clear()
        self._tags.clear()
        self._dropped.clear()

    def pong_received(self, node: int, val: str, count: int, tag: str, neighbour: Peer | None, now: float) -> None:
        """Update a node from its PONG. Of several copies, the one with the fewest relays counts."""
        member = self._members.get(node)
        if member is None:
            return
        hops = count + 1
        if member.val != val or member.hops is None or hops < member.hops:
            member.hops, member.neighbour = hops, neighbour
        member.val = val
        member.tag = tag or member.tag
        member.last_pong_at = now
