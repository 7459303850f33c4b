"""State of one tree at one time of a recording."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import nan


@dataclass(frozen=True)
class TreeState:
    """State of the tree of one key, and of the network.

    A node that is down is not a member, but remains the parent of its children until they notice.

    :ivar t: seconds since the start.
    :ivar locations: locations of all nodes.
    :ivar links: links as pairs of nodes, the lower number first, including those of nodes that are down.
    :ivar parents: parent of each node that has one.
    :ivar roots: nodes that are roots.
    :ivar detached: nodes that lost their parent and are searching for another.
    :ivar subscribers: nodes whose application is subscribed, running or not.
    :ivar down: nodes that are down.
    """

    t: float
    locations: tuple[float, ...]
    links: frozenset[tuple[int, int]]
    parents: dict[int, int]
    roots: frozenset[int]
    detached: frozenset[int]
    subscribers: frozenset[int]
    down: frozenset[int]

    @property
    def members(self) -> frozenset[int]:
        """Nodes with a parent, roots, and detached nodes."""
        return frozenset(self.parents) | self.roots | self.detached

    @cached_property
    def depths(self) -> dict[int, int]:
        """Hops to the root, for each member that reaches one."""
        return {node: depth for node, (_, depth) in self._positions.items()}

    @property
    def unrooted(self) -> frozenset[int]:
        """Members that reach no root: a node above is detached, down or not a member, or they are in a cycle."""
        return self.members - self.depths.keys()

    @property
    def trees(self) -> dict[int, int]:
        """Root of each member that reaches one."""
        return {node: root for node, (root, _) in self._positions.items()}

    @property
    def reach(self) -> float:
        """Share of the running subscribers that are in the tree with the most of them; nan if there are none."""
        alive = self.subscribers - self.down
        if not alive:
            return nan
        trees = self.trees
        counts = Counter(trees[node] for node in alive if node in trees)
        return max(counts.values(), default=0) / len(alive)

    @cached_property
    def _positions(self) -> dict[int, tuple[int, int]]:
        places: dict[int, tuple[int, int] | None] = {root: (root, 0) for root in self.roots}
        for member in self.parents:
            path = []
            node: int | None = member
            while node is not None and node not in places:
                # A path that returns to one of its own nodes finds this entry: a cycle.
                places[node] = None
                path.append(node)
                node = self.parents.get(node)
            above = None if node is None else places[node]
            for below in reversed(path):
                above = None if above is None else (above[0], above[1] + 1)
                places[below] = above
        return {node: place for node, place in places.items() if place is not None}
