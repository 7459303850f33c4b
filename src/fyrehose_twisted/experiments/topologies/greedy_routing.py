"""Greedy routing: each hop goes to the neighbour nearest to the target, while that is nearer than the current node.

This is how a request is routed to a key, without HTL and backtracking (document 003, "When we get a SubscribeRequest").
Many routes are computed at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.adjacency import Locations, Nodes, neighbour_positions
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.wire.location import distance, is_location

_BATCH_SIZE = 2**20
"""Neighbours processed per batch. Larger batches are no faster."""


@dataclass(frozen=True, eq=False, slots=True)
class Routes:
    """Results of routes, with one array entry per route.

    :ivar hops: number of hops.
    :ivar reached: True if the route ended at its target node, or at a node nearest to its target location.
    :ivar last: last node of the route.
    """

    hops: Nodes
    reached: NDArray[np.bool_]
    last: Nodes


def route(topology: Topology, sources: ArrayLike, targets: ArrayLike, max_hops: int | None = None) -> Routes:
    """Route from each of ``sources`` to the corresponding one of ``targets``.

    Of equally near neighbours, the one with the lowest number is chosen. Each step equals that of :func:`greedy_path`,
    to the last bit.

    :param targets: nodes if they are integers, otherwise locations. A route to a node goes to its location.
    :param max_hops: maximum number of hops; by default, routes end only where no neighbour is nearer.
    :raises ConfigurationError: if the numbers of sources and targets differ, or a node or location does not exist.
    """
    at = check_nodes(topology, "sources", np.asarray(sources)).astype(np.int64)
    wanted = np.asarray(targets)
    if wanted.shape != at.shape:
        raise ConfigurationError(f"{at.shape} sources and {wanted.shape} targets: each route needs one of each")
    if max_hops is not None and max_hops < 0:
        raise ConfigurationError(f"max_hops={max_hops!r}: it must be 0 or more")
    if wanted.dtype.kind in "iu":
        places = topology.locations[check_nodes(topology, "targets", wanted)]
        hops = _follow_routes(topology, at, places, max_hops)
        return Routes(hops, at == wanted, at.astype(np.int32))
    places = check_locations(wanted)
    hops = _follow_routes(topology, at, places, max_hops)
    reached = ring_distance(topology.locations[at], places) == nearest_distance(topology, places)
    return Routes(hops, reached, at.astype(np.int32))


def greedy_path(topology: Topology, source: int, target: float) -> list[int]:
    """Return the nodes on the route from ``source`` to the location ``target``, both ends included.

    This slow and simple implementation is the reference for tests of :func:`route` and of running nodes.

    :raises ConfigurationError: if ``target`` is not a location.
    :raises IndexError: if the source does not exist.
    """
    if not is_location(target):
        raise ConfigurationError(f"target={target!r}: a location goes from 0 up to, but not including, 1")
    places = topology.locations
    path = [source]
    best = distance(float(places[source]), target)
    while True:
        following = -1
        for neighbour in topology.neighbours(path[-1]).tolist():
            far = distance(float(places[neighbour]), target)
            if far < best:
                following, best = neighbour, far
        if following < 0:
            return path
        path.append(following)


def ring_distance(a: Locations, b: Locations) -> Locations:
    """Return the distances between locations, equal to the last bit to those of
    :func:`~fyrehose_twisted.freenet.wire.location.distance`."""
    straight = np.abs(a - b)
    return np.minimum(straight, 1.0 - straight)


def _follow_routes(topology: Topology, at: NDArray[np.int64], places: Locations, max_hops: int | None) -> Nodes:
    """Move ``at`` to the ends of the routes, and return the numbers of hops."""
    hops = np.zeros(len(at), np.int32)
    near = ring_distance(topology.locations[at], places)
    active = np.arange(len(at))
    while len(active):
        if max_hops is not None:
            active = active[hops[active] < max_hops]
        goes_on = np.zeros(len(active), np.bool_)
        counts = topology.indptr[at[active] + 1] - topology.indptr[at[active]]
        totals = np.cumsum(counts)
        low = 0
        while low < len(active):
            start = int(totals[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(totals, start + _BATCH_SIZE, side="right")))
            part = active[low:high]
            following, far = _step(topology, at[part], places[part])
            nearer = far < near[part]
            goes_on[low:high] = nearer
            moved = part[nearer]
            at[moved], near[moved] = following[nearer], far[nearer]
            low = high
        active = active[goes_on]
        hops[active] += 1
    return hops


def _step(topology: Topology, at: NDArray[np.int64], places: Locations) -> tuple[NDArray[np.int64], Locations]:
    """Return each node's neighbour nearest to a target, and its distance; infinity if it has no neighbour."""
    found, owners, counts = neighbour_positions(topology.indptr, at)
    neighbours = topology.indices[found]
    far = ring_distance(topology.locations[neighbours], places[owners])
    following = np.full(len(at), -1, np.int64)
    least = np.full(len(at), np.inf)
    linked = counts > 0
    if len(far):
        starts = np.cumsum(counts) - counts
        least[linked] = np.minimum.reduceat(far, starts[linked])
    nearest = np.flatnonzero(far == least[owners])
    # Written in reverse, so that the first of equally near neighbours remains.
    following[owners[nearest[::-1]]] = neighbours[nearest[::-1]]
    return following, least


def nearest_distance(topology: Topology, places: Locations) -> Locations:
    """Return the distance of the nearest node from each target."""
    ordered = np.sort(topology.locations)
    after = np.searchsorted(ordered, places) % len(ordered)
    return np.minimum(ring_distance(ordered[after], places), ring_distance(ordered[after - 1], places))


def check_nodes(topology: Topology, name: str, nodes: NDArray[np.generic]) -> NDArray[np.integer]:
    """Return node numbers.

    :raises ConfigurationError: if they are not numbers of nodes of the topology.
    """
    if nodes.ndim != 1 or not np.issubdtype(nodes.dtype, np.integer):
        raise ConfigurationError(
            f"{name} of shape {nodes.shape} and type {nodes.dtype}: give a one-dimensional array of node numbers"
        )
    numbers = nodes.astype(np.int64)
    wrong = np.flatnonzero((numbers < 0) | (numbers >= topology.n))
    if len(wrong):
        first = int(wrong[0])
        raise ConfigurationError(f"{name}[{first}] is node {numbers[first]}; nodes are 0 to {topology.n - 1}")
    return numbers


def check_locations(places: NDArray[np.generic]) -> Locations:
    """Return locations.

    :raises ConfigurationError: if they are not.
    """
    if not np.issubdtype(places.dtype, np.floating):
        raise ConfigurationError(f"targets of type {places.dtype}: give integers for nodes, or floats for locations")
    found = places.astype(np.float64)
    wrong = np.flatnonzero(~((found >= 0.0) & (found < 1.0)))
    if len(wrong):
        first = int(wrong[0])
        raise ConfigurationError(f"targets[{first}] is {found[first]}; a location goes from 0 up to, but not to, 1")
    return found
