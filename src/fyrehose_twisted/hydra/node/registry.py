"""The nodes of a network, as one of them knows them (document 002, "Nodes must keep a record of all other nodes")."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from fyrehose_twisted.effects import Peer

MAX_DROPPED = 256
"""Nodes that were dropped, and are remembered."""


@dataclass(slots=True)
class RegisteredNode:
    """A node that is registered.

    :ivar registered_at: when it was registered here.
    :ivar hops: links to it, by the latest PING.
    :ivar neighbour: the link that its PONG came over first, or soonest.
    :ivar val: the PING that these are of.
    :ivar ponged: when its last PONG came.
    """

    id: int
    registered_at: float
    tag: str = ""
    hops: int | None = None
    neighbour: Peer | None = None
    val: str = ""
    last_pong_at: float | None = None


class Registry:
    """Who belongs to the network, who is about to, and who no longer does.

    :ivar reservations: whom this node agreed to, and until when their places are kept.
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
        """Return what is known of a node; ``None`` if it is not registered."""
        return None if node is None else self._members.get(node)

    def ids(self) -> frozenset[int]:
        """Return who is registered."""
        return frozenset(self._members)

    def places_taken(self) -> int:
        """Return how many places are taken, by nodes and by those who are about to be."""
        return len(self._members) + len(self.reservations)

    def reserve(self, ind: int, tag: str, until: float) -> None:
        """Keep a place for somebody."""
        self.reservations[ind] = until
        self._tags[ind] = tag

    def add(self, node: int, now: float) -> RegisteredNode:
        """Register a node."""
        self.reservations.pop(node, None)
        member = self._members[node] = RegisteredNode(node, now, self._tags.pop(node, ""))
        return member

    def drop(self, node: int) -> bool:
        """Remove a node, or whoever is about to be one; return whether it was there."""
        self._dropped[node] = None
        if len(self._dropped) > MAX_DROPPED:
            self._dropped.popitem(last=False)
        return self.release(node) | (self._members.pop(node, None) is not None)

    def release(self, ind: int) -> bool:
        """Keep no place for somebody any longer; return whether there was one."""
        self._tags.pop(ind, None)
        return self.reservations.pop(ind, None) is not None

    def was_dropped(self, node: int) -> bool:
        """Return whether a node was removed, as far as that is remembered."""
        return node in self._dropped

    def expire(self, now: float) -> None:
        """Free places that are kept for too long."""
        for ind in [ind for ind, until in self.reservations.items() if until <= now]:
            self.release(ind)

    def clear(self) -> None:
        """Forget the network."""
        self.reservations.clear()
        self._members.clear()
        self._tags.clear()
        self._dropped.clear()

    def pong_received(self, node: int, val: str, count: int, tag: str, neighbour: Peer | None, now: float) -> None:
        """Take in what a PONG tells of its sender: of several copies, the one with the fewest relays."""
        member = self._members.get(node)
        if member is None:
            return
        hops = count + 1
        if member.val != val or member.hops is None or hops < member.hops:
            member.hops, member.neighbour = hops, neighbour
        member.val = val
        member.tag = tag or member.tag
        member.last_pong_at = now
