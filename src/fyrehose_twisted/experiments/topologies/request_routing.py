"""Routes of requests with hops to live (HTL), dead ends and backtracking, many at once.

The rules are those of a node for a SubscribeRequest (document 003, "When we get a SubscribeRequest"): a request goes to
the untried neighbour nearest to its key, even away from it, and visits no node twice. A node without untried neighbours
sends it back with the remaining HTL; a request whose HTL is used up returns to the last node that was nearer to the key
than all before. That node becomes the root.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import ArrayLike, NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.adjacency import Locations, Nodes, neighbour_positions
from fyrehose_twisted.experiments.topologies.greedy_routing import (
    check_locations,
    check_nodes,
    nearest_distance,
    ring_distance,
)
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.interfaces import IRoutingPolicy

MAX_VISITS = 10_000
"""Default limit of the nodes that a request visits."""
_TABLE_SIZE = 2**26
"""Bytes of the table of visited nodes, which limits the routes computed at once."""
_FIRST_DEPTH = 32

_Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False, slots=True)
class RequestRoutes:
    """Results of requests, with one array entry per request.

    :ivar end: node that became the root, or the member of the tree that was found.
    :ivar hops: links from the source to this node, along the way that remains after backtracking.
    :ivar nearest: True if no node is nearer to the target than this one.
    :ivar found: True if a member of the tree was found.
    :ivar visits: nodes that accepted the request, without the source.
    :ivar dead_ends: nodes that sent the request back for lack of untried neighbours.
    :ivar expired: True if the HTL was used up at least once.
    :ivar cut: True if the request was given up after the maximum number of visits.
    """

    end: Nodes
    hops: Nodes
    nearest: _Flags
    found: _Flags
    visits: Nodes
    dead_ends: Nodes
    expired: _Flags
    cut: _Flags


def route_requests(
    topology: Topology,
    sources: ArrayLike,
    targets: ArrayLike,
    policy: Policy | None = None,
    *,
    routing: IRoutingPolicy | None = None,
    members: ArrayLike | None = None,
    seed: int = 0,
    max_visits: int = MAX_VISITS,
) -> RequestRoutes:
    """Route a request from each of ``sources`` to the corresponding location of ``targets``.

    Each result equals that of running nodes in a quiet network without other requests. Only the probabilities of
    decrementing the HTL, which each link draws once, are drawn from another generator.

    :param policy: ``max_htl``, ``htl_on_closer``, ``p_max`` and ``p_min`` apply.
    :param routing: order in which neighbours are tried; by default the nearest to the key first.
    :param members: nodes that are in the tree already, any of which answers a request.
    :param seed: seed of the draws of the links.
    :param max_visits: nodes after which a request is given up.
    :raises ConfigurationError: if the numbers of sources and targets differ, a node or location does not exist, the
        policy has ``confirm_root``, or ``max_visits`` is below 1.
    """
    policy = Policy() if policy is None else policy
    starts = check_nodes(topology, "sources", np.asarray(sources)).astype(np.int64)
    places = check_locations(np.asarray(targets, np.float64))
    if places.shape != starts.shape:
        raise ConfigurationError(f"{starts.shape} sources and {places.shape} targets: each request needs one of each")
    if policy.confirm_root:
        raise ConfigurationError("confirm_root=True: only running nodes search a second time; use TreeExperiment")
    if max_visits < 1:
        raise ConfigurationError(f"max_visits={max_visits!r}: it must be 1 or more")
    in_tree = np.zeros(topology.n, np.bool_)
    if members is not None:
        in_tree[check_nodes(topology, "members", np.asarray(members, np.int64))] = True
    draws = Generator(PCG64(seed)).random((2, len(topology.indices)))
    decrements = draws[0] < policy.p_max, draws[1] < policy.p_min
    size = max(1, _TABLE_SIZE // topology.n)
    parts = []
    for low in range(0, len(starts), size):
        part = slice(low, low + size)
        batch = _Requests(topology, starts[part], places[part], policy, routing, in_tree, decrements, max_visits)
        parts.append(batch.run())
    if not parts:
        none, no = np.empty(0, np.int32), np.empty(0, np.bool_)
        return RequestRoutes(none, none, no, no, none, none, no, no)
    joined = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    end, hops, found, visits, dead_ends, expired, cut = joined
    nearest = ring_distance(topology.locations[end], places) == nearest_distance(topology, places)
    return RequestRoutes(end, hops, nearest, found, visits, dead_ends, expired, cut)


class _Requests:
    """Requests that are routed at the same time. Each has a stack of the nodes that wait for its answer."""

    def __init__(
        self,
        topology: Topology,
        starts: NDArray[np.int64],
        places: Locations,
        policy: Policy,
        routing: IRoutingPolicy | None,
        in_tree: _Flags,
        decrements: tuple[_Flags, _Flags],
        max_visits: int,
    ) -> None:
        count = len(starts)
        self._topology = topology
        self._places = places
        self._policy = policy
        self._routing = routing
        self._in_tree = in_tree
        self._decrements = decrements
        self._max_visits = max_visits
        self._visited = np.zeros((count, topology.n), np.bool_)
        self._visited[np.arange(count), starts] = True
        self._depth = np.zeros(count, np.int64)
        self._nodes = np.zeros((count, _FIRST_DEPTH), np.int64)
        self._nodes[:, 0] = starts
        self._htl = np.zeros((count, _FIRST_DEPTH), np.int64)
        self._htl[:, 0] = policy.max_htl
        self._closest = np.zeros((count, _FIRST_DEPTH), np.bool_)
        # A source is nearer than all before it, since there are none.
        self._closest[:, 0] = True
        self._best = ring_distance(topology.locations[starts], places)
        self._found = in_tree[starts]
        self._cut = np.zeros(count, np.bool_)
        self._expired = np.zeros(count, np.bool_)
        self._visits = np.zeros(count, np.int64)
        self._dead_ends = np.zeros(count, np.int64)

    def run(self) -> tuple[Nodes | _Flags, ...]:
        """Route all requests to their ends."""
        active = np.flatnonzero(~self._found)
        while len(active):
            active = self._step(active)
        end = self._nodes[np.arange(len(self._depth)), self._depth]
        return (
            end.astype(np.int32),
            self._depth.astype(np.int32),
            self._found,
            self._visits.astype(np.int32),
            self._dead_ends.astype(np.int32),
            self._expired,
            self._cut,
        )

    def _step(self, active: NDArray[np.int64]) -> NDArray[np.int64]:
        """Send each request on or back once; return the requests that have not ended."""
        following, links = self._next_hops(active)
        depth = self._depth[active]
        goes_on = (following >= 0) & (self._htl[active, depth] > 0)
        self._cut[active] |= goes_on & (self._visits[active] >= self._max_visits)
        goes_on &= ~self._cut[active]
        self._send_on(active[goes_on], following[goes_on], links[goes_on])
        returns = ~goes_on & ~self._closest[active, depth] & ~self._cut[active]
        self._send_back(active[returns])
        return active[(goes_on & ~self._found[active]) | returns]

    def _next_hops(self, active: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the next hop of each request, -1 for none, and the position of the link to it."""
        topology = self._topology
        here = self._nodes[active, self._depth[active]]
        positions, owners, _ = neighbour_positions(topology.indptr, here)
        neighbours = topology.indices[positions].astype(np.int64)
        untried = ~self._visited[active[owners], neighbours]
        positions, owners, neighbours = positions[untried], owners[untried], neighbours[untried]
        places, targets = topology.locations[neighbours], self._places[active[owners]]
        if self._routing is None:
            cost = ring_distance(places, targets)
        else:
            cost = np.asarray(self._routing.cost(topology.locations[here[owners]], targets, places), np.float64)
            usable = cost < np.inf
            positions, owners, neighbours, cost = positions[usable], owners[usable], neighbours[usable], cost[usable]
        following = np.full(len(active), -1, np.int64)
        links = np.full(len(active), -1, np.int64)
        if len(cost):
            firsts = np.flatnonzero(np.diff(owners, prepend=-1))
            least = np.full(len(active), np.inf)
            least[owners[firsts]] = np.minimum.reduceat(cost, firsts)
            # Written in reverse, so that the first of equally cheap neighbours remains.
            cheapest = np.flatnonzero(cost == least[owners])[::-1]
            following[owners[cheapest]] = neighbours[cheapest]
            links[owners[cheapest]] = positions[cheapest]
        return following, links

    def _send_on(self, requests: NDArray[np.int64], nodes: NDArray[np.int64], links: NDArray[np.int64]) -> None:
        policy, depth = self._policy, self._depth[requests]
        if len(depth) and int(depth.max()) + 1 >= self._nodes.shape[1]:
            self._nodes = np.concatenate((self._nodes, np.zeros_like(self._nodes)), axis=1)
            self._htl = np.concatenate((self._htl, np.zeros_like(self._htl)), axis=1)
            self._closest = np.concatenate((self._closest, np.zeros_like(self._closest)), axis=1)
        htl = self._htl[requests, depth]
        far = ring_distance(self._topology.locations[nodes], self._places[requests])
        closer = far < self._best[requests]
        kept = ((htl == policy.max_htl) & ~self._decrements[0][links]) | ((htl == 1) & ~self._decrements[1][links])
        unchanged = policy.max_htl if policy.htl_on_closer == "reset" else htl
        self._best[requests[closer]] = far[closer]
        self._depth[requests] = depth = depth + 1
        self._nodes[requests, depth] = nodes
        self._htl[requests, depth] = np.where(closer, unchanged, htl - ~kept)
        self._closest[requests, depth] = closer
        self._visited[requests, nodes] = True
        self._visits[requests] += 1
        self._found[requests] = self._in_tree[nodes]

    def _send_back(self, requests: NDArray[np.int64]) -> None:
        depth = self._depth[requests]
        htl = self._htl[requests, depth]
        self._dead_ends[requests] += htl > 0
        self._expired[requests] |= htl == 0
        self._depth[requests] = depth = depth - 1
        self._htl[requests, depth] = np.minimum(self._htl[requests, depth], htl)
