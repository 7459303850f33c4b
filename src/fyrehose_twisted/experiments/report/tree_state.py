"""How the tree of one key looks at one moment of a recording."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import nan


@dataclass(frozen=True)
class TreeState:
    """The tree of one key, and the network below it.

    A node that is down is no member: whatever it had is gone. It may be somebody's parent until that one notices.

    :ivar t: seconds since the start.
    :ivar locations: of all nodes.
    :ivar links: pairs of nodes, the lower number first; those of nodes that are down are among them.
    :ivar parents: of each node that has one.
    :ivar roots: nodes that are root.
    :ivar detached: nodes that have lost their parent and look for another one.
    :ivar subscribers: nodes whose application wants the stream, whether they are up or not.
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
        """Nodes that have a part in the stream: those with a parent, the roots, and the detached ones."""
        return frozenset(self.parents) | self.roots | self.detached

    @cached_property
    def depths(self) -> dict[int, int]:
        """Hops to the root, of each member that reaches one."""
        return {node: depth for node, (_, depth) in self._positions.items()}

    @property
    def unrooted(self) -> frozenset[int]:
        """Members that reach no root: somebody above them is detached, down or no member, or they are in a cycle."""
        return self.members - self.depths.keys()

    @property
    def trees(self) -> dict[int, int]:
        """The root of each member that reaches one."""
        return {node: root for node, (root, _) in self._positions.items()}

    @property
    def reach(self) -> float:
        """Share of the subscribers that are up which is in one tree, that with the most of them; nan without any."""
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
                # Whoever comes back to a node of its own path is in a cycle, and finds this.
                places[node] = None
                path.append(node)
                node = self.parents.get(node)
            above = None if node is None else places[node]
            for below in reversed(path):
                above = None if above is None else (above[0], above[1] + 1)
                places[below] = above
        return {node: place for node, place in places.items() if place is not None}
