"""Measures of the links of a network: lengths, degrees, clustering, shortest paths, and greedy routes."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log2, nan

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.measures.routing_stats import DEFAULT_HOP_LIMITS, GreedyStudy, study
from fyrehose_twisted.experiments.topologies.adjacency import Locations, path_lengths
from fyrehose_twisted.experiments.topologies.greedy_routing import ring_distance
from fyrehose_twisted.experiments.topologies.topology import Topology

MAX_CLUSTERED = 2_000
"""Nodes whose clustering is computed; of a larger network, a random sample."""
PATH_STARTS = 50
"""Nodes from which shortest paths are computed."""
PATH_ENDS = 200
"""Nodes to which shortest paths are computed, from each start."""
NEAREST = 3
"""Nearest nodes on the ring to which links are counted."""
SHORT, LONG = 0.1, 0.3
"""Lengths below which a link is short and above which it is long, as in the published study."""
LENGTH_BINS = 10
"""Bins of equal width from 0 to 0.5 for the lengths of links."""


@dataclass(frozen=True, slots=True)
class LinkShape:
    """Measures of the links of a network.

    :ivar links: number of links.
    :ivar degree_mean: mean number of neighbours.
    :ivar degree_min: minimum number of neighbours.
    :ivar degree_max: maximum number of neighbours.
    :ivar length_mean: mean distance between the ends of a link; nan if there are none, as for all shares of links.
    :ivar short: share of the links shorter than 0.1.
    :ivar long: share of the links longer than 0.3.
    :ivar lengths: shares of the links by length, in ten bins from 0 to 0.5.
    :ivar length_fit: largest difference between the distribution of the lengths and the ideal one, in which the
        probability of a length is in inverse proportion to it, from the mean distance of ring neighbours to 0.5
        (Kolmogorov-Smirnov); 0 is the best fit.
    :ivar nearest: share of the three nodes nearest to a node on the ring that it has links to.
    :ivar clustering: mean share of the pairs of neighbours that are linked, over nodes with two or more.
    :ivar path_mean: mean length of the shortest path between nodes that have any.
    :ivar greedy: greedy routes between random nodes, among them the share within :func:`published_hop_limit`.
    """

    links: int
    degree_mean: float
    degree_min: int
    degree_max: int
    length_mean: float
    short: float
    long: float
    lengths: tuple[float, ...] = field(repr=False)
    length_fit: float
    nearest: float
    clustering: float
    path_mean: float
    greedy: GreedyStudy


def measure_links(topology: Topology, routes: int, seed: int) -> LinkShape:
    """Measure the links of a network.

    :param routes: number of greedy routes.
    :param seed: seed for the ends of routes and paths, and for samples of large networks.
    :raises ConfigurationError: if there are fewer than two nodes, or no routes.
    """
    greedy = study(topology, routes, seed, (*DEFAULT_HOP_LIMITS, published_hop_limit(topology.n)))
    rng = Generator(PCG64([seed, 1]))
    edges, degrees = topology.edges(), topology.degrees()
    lengths = ring_distance(topology.locations[edges[:, 0]], topology.locations[edges[:, 1]])
    counted = np.histogram(lengths, LENGTH_BINS, (0.0, 0.5))[0]
    count = len(lengths)
    return LinkShape(
        links=count,
        degree_mean=float(degrees.mean()),
        degree_min=int(degrees.min()),
        degree_max=int(degrees.max()),
        length_mean=float(lengths.mean()) if count else nan,
        short=float((lengths < SHORT).mean()) if count else nan,
        long=float((lengths > LONG).mean()) if count else nan,
        lengths=tuple((counted / count).tolist()) if count else (nan,) * LENGTH_BINS,
        length_fit=harmonic_misfit(lengths, 1.0 / topology.n),
        nearest=_nearest_linked(topology),
        clustering=clustering(topology, rng),
        path_mean=_mean_path(topology, rng),
        greedy=greedy,
    )


def published_hop_limit(n: int) -> int:
    """Return the hops within which a route must reach its target in the published study.

    :param n: number of nodes.
    """
    return 5 * int(log2(n))


def harmonic_misfit(lengths: Locations, shortest: float) -> float:
    """Return the Kolmogorov-Smirnov distance of lengths from the density 1/d between ``shortest`` and 0.5.

    :return: nan for no lengths.
    :raises ConfigurationError: if ``shortest`` is not between 0 and 0.5.
    """
    if not 0.0 < shortest <= 0.5:
        raise ConfigurationError(f"shortest={shortest!r}: give a length above 0 and up to 0.5")
    if not len(lengths):
        return nan
    if shortest == 0.5:
        ideal = (np.sort(lengths) >= 0.5).astype(np.float64)
    else:
        ideal = np.log(np.clip(np.sort(lengths), shortest, 0.5) / shortest) / np.log(0.5 / shortest)
    steps = np.arange(len(lengths) + 1) / len(lengths)
    return float(max(np.abs(steps[1:] - ideal).max(), np.abs(steps[:-1] - ideal).max()))


def clustering(topology: Topology, rng: Generator) -> float:
    """Return the mean share of the pairs of neighbours that are linked.

    Nodes with fewer than two neighbours do not count; nan if there are no others.
    """
    nodes = np.flatnonzero(topology.degrees() >= 2)
    if len(nodes) > MAX_CLUSTERED:
        nodes = np.sort(rng.choice(nodes, MAX_CLUSTERED, replace=False))
    shares = []
    for node in nodes.tolist():
        neighbours = topology.neighbours(node)
        between = sum(int(np.isin(topology.neighbours(one), neighbours).sum()) for one in neighbours.tolist())
        shares.append(between / (len(neighbours) * (len(neighbours) - 1)))
    return float(np.mean(shares)) if shares else nan


def _nearest_linked(topology: Topology) -> float:
    n = topology.n
    order = np.argsort(topology.locations, kind="stable")
    around = [step for step in range(-NEAREST, NEAREST + 1) if step and n > 2 * NEAREST]
    if not around:
        return nan
    candidates: NDArray[np.int64] = np.stack([np.roll(order, -step) for step in around], axis=1)
    places = topology.locations
    far = ring_distance(places[order][:, None], places[candidates])
    chosen = np.take_along_axis(candidates, np.argsort(far, axis=1, kind="stable")[:, :NEAREST], axis=1)
    linked = [
        int(np.isin(near, topology.neighbours(node)).sum()) for node, near in zip(order.tolist(), chosen, strict=True)
    ]
    return sum(linked) / (NEAREST * n)


def _mean_path(topology: Topology, rng: Generator) -> float:
    found = []
    for start in rng.integers(0, topology.n, PATH_STARTS).tolist():
        ends = ((start + rng.integers(1, topology.n, PATH_ENDS)) % topology.n).astype(np.int32)
        lengths = path_lengths(topology.indptr, topology.indices, start, ends)
        found.append(lengths[lengths > 0])
    reached = np.concatenate(found)
    return float(reached.mean()) if len(reached) else nan
