"""Greedy routing with general graph libraries, as their users write it: a loop over hops and one over neighbours."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.experiments.topologies.greedy_routing import route
from fyrehose_twisted.freenet.wire.location import distance

# Some of them may not be installed.
with suppress(ImportError):
    import networkx
with suppress(ImportError):
    import igraph


class Timed(NamedTuple):
    """Seconds to build a graph of given links, seconds of the routes on it, and their final nodes."""

    building: float
    routing: float
    hops: list[int]
    last: list[int]


def ours(topology: Topology, sources: Sequence[int], targets: Sequence[int]) -> Timed:
    """Measure this library."""
    edges, places = topology.edges(), topology.locations
    began = time.perf_counter()
    made = Topology.from_edges(edges, places)
    built = time.perf_counter()
    found = route(made, sources, targets)
    return Timed(built - began, time.perf_counter() - built, found.hops.tolist(), found.last.tolist())


def with_networkx(topology: Topology, sources: Sequence[int], targets: Sequence[int]) -> Timed:
    """Measure networkx."""
    edges, places = list(map(tuple, topology.edges().tolist())), topology.locations.tolist()
    began = time.perf_counter()
    graph = networkx.Graph()
    graph.add_nodes_from(range(topology.n))
    graph.add_edges_from(edges)
    built = time.perf_counter()
    hops, last = _routed(graph.adj.__getitem__, places, sources, targets)
    return Timed(built - began, time.perf_counter() - built, hops, last)


def with_igraph(topology: Topology, sources: Sequence[int], targets: Sequence[int]) -> Timed:
    """Measure igraph."""
    edges, places = topology.edges(), topology.locations.tolist()
    began = time.perf_counter()
    graph = igraph.Graph(n=topology.n, edges=edges)
    built = time.perf_counter()
    hops, last = _routed(graph.neighbors, places, sources, targets)
    return Timed(built - began, time.perf_counter() - built, hops, last)


def networkx_generator(n: int, seed: int) -> tuple[float, float]:
    """Return the seconds that networkx takes to draw Kleinberg's network on a ring, and its links per node.

    It draws directed links on a line, and examines all pairs.
    """
    began = time.perf_counter()
    graph = networkx.navigable_small_world_graph(n, p=1, q=5, r=1, dim=1, seed=seed)
    return time.perf_counter() - began, graph.number_of_edges() / n


def available() -> dict[str, Callable[[Topology, Sequence[int], Sequence[int]], Timed]]:
    """Return the installed libraries by name."""
    found: dict[str, Any] = {"this library": ours}
    if "networkx" in globals():
        found[f"networkx {networkx.__version__}"] = with_networkx
    if "igraph" in globals():
        found[f"igraph {igraph.__version__}"] = with_igraph
    return found


def _routed(
    neighbours: Callable[[int], Any], places: Sequence[float], sources: Sequence[int], targets: Sequence[int]
) -> tuple[list[int], list[int]]:
    hops, last = [], []
    for source, target in zip(np.asarray(sources).tolist(), np.asarray(targets).tolist(), strict=True):
        place, here, count = places[target], source, 0
        best = distance(places[here], place)
        while True:
            following = -1
            for neighbour in neighbours(here):
                far = distance(places[neighbour], place)
                if far < best:
                    following, best = neighbour, far
            if following < 0:
                break
            here, count = following, count + 1
        hops.append(count)
        last.append(here)
    return hops, last
