"""Network whose nodes join one by one, seek links, and replace them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from itertools import islice
from math import inf, log2
from random import Random

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.growth.link_policies import LinkView
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.wire.location import distance, is_location
from fyrehose_twisted.interfaces import ILinkPolicy

FIRST_LINKS = 2
"""Links to random nodes that a node gets when it joins."""
NEAREST = 3
"""Nodes nearest to a node that its policy sees."""
SEEK_PROBABILITY = 0.05
"""Probability per round that a node with enough links seeks another."""
REPLACE_PROBABILITY = 0.1
"""Probability per round that a node with enough links replaces one."""
MAX_ATTEMPTS = 3
"""Links that a node with too few links seeks per round."""
MIN_HOPS = 10
"""Minimum of the hops that a search for a link may take. In large networks they are twice the logarithm of the size."""


class GrowingNetwork:
    """Network that grows by a link policy, and may lose nodes. Equal arguments and calls have equal outcomes.

    A node that seeks a link asks its policy for a location. It is introduced to the nearest node there that it has no
    link to, or, if the policy forgoes introductions, finds one by greedy routing over the links of that moment. A node
    never has more links than the policy allows, and the two ends of a link always agree.

    :param policy: link policy; its methods see one :class:`~.link_policies.LinkView` at a time.
    :ivar policy: link policy.
    :ivar seed: seed of all random choices.
    """

    def __init__(self, policy: ILinkPolicy, seed: int) -> None:
        if not ILinkPolicy.providedBy(policy):
            raise ConfigurationError(f"{policy!r} does not provide ILinkPolicy")
        self.policy = policy
        self.seed = seed
        self._rng = Random(f"{seed}/growth")
        self._locations: list[float] = []
        self._links: list[dict[int, None]] = []
        self._ring: list[tuple[float, int]] = []
        self._absent: set[int] = set()

    @classmethod
    def of_topology(cls, policy: ILinkPolicy, topology: Topology, seed: int) -> GrowingNetwork:
        """Return a network with the nodes and links of a topology.

        A node that has more links than the policy allows gives up the surplus at once.

        :raises ConfigurationError: if ``policy`` is no link policy.
        """
        network = cls(policy, seed)
        network._locations = topology.locations.tolist()
        network._links = [dict.fromkeys(topology.neighbours(node).tolist()) for node in range(topology.n)]
        network._ring = sorted((place, node) for node, place in enumerate(network._locations))
        for node in range(topology.n):
            while len(network._links[node]) > policy.max_links:
                network._make_room(node, -1)
        return network

    @property
    def n(self) -> int:
        """Number of nodes, including those that left."""
        return len(self._locations)

    @property
    def absent(self) -> frozenset[int]:
        """Nodes that left."""
        return frozenset(self._absent)

    def neighbours(self, node: int) -> list[int]:
        """Return the neighbours of a node."""
        return list(self._links[node])

    def grow(self, nodes: int, rounds: int, *, joins_per_round: int | None = None) -> None:
        """Add nodes, a few before each round, and then run the remaining rounds.

        :param joins_per_round: nodes that join before a round; by default all join before the first one.
        :raises ConfigurationError: if a number is out of range.
        """
        per_round = max(1, nodes) if joins_per_round is None else joins_per_round
        if nodes < 0 or rounds < 0 or per_round < 1:
            raise ConfigurationError(
                f"nodes={nodes!r}, rounds={rounds!r}, joins_per_round={joins_per_round!r}: give 0 or more nodes and"
                " rounds, and 1 or more joins"
            )
        left = nodes
        while left or rounds:
            for _ in range(min(left, per_round)):
                self.join()
            left -= min(left, per_round)
            if rounds:
                self.run_round()
                rounds -= 1

    def join(self, location: float | None = None) -> int:
        """Add a node with links to random nodes; return its number.

        :param location: location of the node; random by default.
        :raises ConfigurationError: if it is not a location.
        """
        place = self._rng.random() if location is None else location
        if not is_location(place):
            raise ConfigurationError(f"location={location!r}: a location goes from 0 up to, but not including, 1")
        node = self.n
        self._locations.append(place)
        self._links.append({})
        self._enter(node)
        return node

    def leave(self, node: int) -> None:
        """Remove a node and its links.

        :raises ConfigurationError: if the node does not exist, or left already.
        """
        if not 0 <= node < self.n or node in self._absent:
            raise ConfigurationError(f"node {node} does not exist, or left already")
        self._absent.add(node)
        del self._ring[bisect_left(self._ring, (self._locations[node], node))]
        for other in tuple(self._links[node]):
            self._unlink(node, other)

    def rejoin(self, node: int) -> None:
        """Add a node that left, at its location, with links to random nodes.

        :raises ConfigurationError: if the node did not leave.
        """
        if node not in self._absent:
            raise ConfigurationError(f"node {node} did not leave")
        self._absent.discard(node)
        self._enter(node)

    def run_round(self) -> None:
        """Let each node, in random order, seek links if it has too few, and otherwise sometimes replace one."""
        rng, policy = self._rng, self.policy
        for node in rng.sample(range(self.n), self.n):
            if node in self._absent:
                continue
            count = len(self._links[node])
            if count < policy.min_links:
                for _ in range(min(max((policy.min_links - count) // 2, 1), MAX_ATTEMPTS)):
                    self._seek(node, introduced=policy.introduces)
            elif count < policy.max_links and rng.random() < SEEK_PROBABILITY:
                self._seek(node, introduced=False)
            if len(self._links[node]) >= policy.min_links and rng.random() < REPLACE_PROBABILITY:
                self._replace(node)

    def topology(self) -> Topology:
        """Return the current locations and links. Nodes that left have no links."""
        edges = [(node, other) for node, others in enumerate(self._links) for other in others if node < other]
        name = f"{type(self.policy).__name__}(n={self.n}, seed={self.seed})"
        return Topology.from_edges(edges, self._locations, n=self.n, name=name)

    def view(self, node: int) -> LinkView:
        """Return what the policy sees of a node."""
        places = self._locations
        nearest = tuple(islice(((other, places[other]) for other in self._by_distance(places[node], node)), NEAREST))
        return LinkView(node, places[node], tuple((other, places[other]) for other in self._links[node]), nearest)

    def _enter(self, node: int) -> None:
        insort(self._ring, (self._locations[node], node))
        others: Sequence[int] = range(node)
        if self._absent or node < self.n - 1:
            others = [other for other in range(self.n) if other != node and other not in self._absent]
        for other in self._rng.sample(others, min(len(others), FIRST_LINKS)):
            if len(self._links[node]) < self.policy.max_links:
                self._link(node, other)
                if len(self._links[other]) > self.policy.max_links:
                    self._make_room(other, node)

    def _seek(self, node: int, *, introduced: bool) -> None:
        if len(self._links[node]) < self.policy.max_links:
            target = self.policy.target(self.view(node), self._rng)
            found = None if introduced else self._search(node, target)
            if found is None and self.policy.introduces:
                found = self._introduce(node, target)
            if found is not None and self._accepts(found, node):
                self._link(node, found)

    def _replace(self, node: int) -> None:
        view = self.view(node)
        surplus = self.policy.surplus(view, self._rng)
        if surplus is None:
            return
        target = self.policy.target(view, self._rng)
        found = self._introduce(node, target) if self.policy.introduces else self._search(node, target)
        if found is not None and self._accepts(found, node):
            self._unlink(node, surplus)
            self._link(node, found)

    def _accepts(self, node: int, candidate: int) -> bool:
        # A policy that accepts too much would break the limit of links.
        return len(self._links[node]) < self.policy.max_links and self.policy.accepts(
            self.view(node), self._locations[candidate], self._rng
        )

    def _make_room(self, node: int, newcomer: int) -> None:
        surplus = self.policy.surplus(self.view(node), self._rng)
        if surplus is None or surplus == newcomer:
            surplus = next(other for other in self._links[node] if other != newcomer)
        self._unlink(node, surplus)

    def _introduce(self, node: int, target: float) -> int | None:
        """Return the node nearest to a location that has no link to ``node``."""
        linked = self._links[node]
        return next((other for other in self._by_distance(target, node) if other not in linked), None)

    def _search(self, node: int, target: float) -> int | None:
        """Return the node nearest to a location, of those without a link to ``node`` that a greedy walk passes."""
        places, linked, visited = self._locations, self._links[node], {node}
        best, least, here = None, inf, node
        for _ in range(max(2 * int(log2(self.n)), MIN_HOPS)):
            following, far = -1, inf
            for other in self._links[here]:
                apart = distance(places[other], target)
                if apart < far and other not in visited:
                    following, far = other, apart
            if following < 0:
                break
            visited.add(following)
            here = following
            if far < least and here not in linked:
                best, least = here, far
        return best

    def _by_distance(self, target: float, without: int) -> Iterator[int]:
        """Return the other nodes by their distance from a location, the nearest first."""
        ring, n = self._ring, len(self._ring)
        after = bisect_left(ring, (target, -1))
        before = after - 1
        for _ in range(n):
            one, other = ring[before % n], ring[after % n]
            if distance(one[0], target) <= distance(other[0], target):
                found, before = one[1], before - 1
            else:
                found, after = other[1], after + 1
            if found != without:
                yield found

    def _link(self, one: int, other: int) -> None:
        self._links[one][other] = self._links[other][one] = None

    def _unlink(self, one: int, other: int) -> None:
        del self._links[one][other], self._links[other][one]
