"""How well greedy routing finds its way over a network: figures with intervals, from routes between nodes drawn."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt
from statistics import NormalDist

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.greedy_routing import route
from fyrehose_twisted.experiments.topologies.topology import Topology

DEFAULT_HOP_LIMITS = (10, 18)
"""Hops that a request has in networks of old and of today."""
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate, and the interval around it that covers the true value in 95 of 100 studies."""

    value: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True, slots=True)
class GreedyStudy:
    """What came of greedy routes from nodes drawn to other nodes drawn.

    :ivar topology: the name of the network.
    :ivar routes: how many there were.
    :ivar success: share that ended at its target.
    :ivar hops: mean hops of those; nan if there are none.
    :ivar p95: 95th percentile of the hops of those.
    :ivar most: most hops of those.
    :ivar within: for a number of hops, the share of all routes that ended at the target after so many at most.
    """

    topology: str
    routes: int
    success: Estimate
    hops: Estimate
    p95: Estimate
    most: int
    within: dict[int, Estimate]


def study(topology: Topology, routes: int, seed: int, within: tuple[int, ...] = DEFAULT_HOP_LIMITS) -> GreedyStudy:
    """Route from nodes drawn to other nodes drawn.

    The intervals are about the network that is given; another one of the same kind differs by more.

    :param routes: how many.
    :param seed: of the ends.
    :param within: numbers of hops of which the share of routes is wanted that need no more.
    :raises ConfigurationError: if there are not two nodes, or not one route.
    """
    if topology.n < 2 or routes < 1:
        raise ConfigurationError(f"{routes} routes over {topology.n} nodes: it takes a route and two nodes")
    rng = Generator(PCG64(seed))
    sources = rng.integers(0, topology.n, routes)
    targets = (sources + rng.integers(1, topology.n, routes)) % topology.n
    found = route(topology, sources, targets)
    hops = np.sort(found.hops[found.reached]).astype(np.int64)
    return GreedyStudy(
        topology=topology.name,
        routes=routes,
        success=proportion(len(hops), routes),
        hops=mean_estimate(hops),
        p95=quantile_estimate(hops, 0.95),
        most=int(hops[-1]) if len(hops) else 0,
        within={most: proportion(int((hops <= most).sum()), routes) for most in within},
    )


def proportion(count: int, total: int) -> Estimate:
    """Return the share ``count / total`` with Wilson's interval."""
    value = count / total
    middle = (value + _Z**2 / (2 * total)) / (1 + _Z**2 / total)
    half = _Z / (1 + _Z**2 / total) * sqrt(value * (1 - value) / total + _Z**2 / (4 * total**2))
    # With none or all, rounding may leave the estimate a hair outside.
    return Estimate(value, min(value, max(0.0, middle - half)), max(value, min(1.0, middle + half)))


def mean_estimate(values: NDArray[np.int64]) -> Estimate:
    """Return the mean, with the interval of the normal distribution; of no values it is nan, of one it has none."""
    if not len(values):
        return Estimate(nan, nan, nan)
    value = float(values.mean())
    if len(values) == 1:
        return Estimate(value, nan, nan)
    half = _Z * float(values.std(ddof=1)) / sqrt(len(values))
    return Estimate(value, value - half, value + half)


def quantile_estimate(ordered: NDArray[np.int64], at: float) -> Estimate:
    """Return a quantile of values in ascending order, with the interval between order statistics; of none it is nan.

    It is the lowest value that a share ``at`` of all does not exceed.
    """
    count = len(ordered)
    if not count:
        return Estimate(nan, nan, nan)
    half = _Z * sqrt(count * at * (1 - at))
    ranks = [at * count, at * count - half, at * count + half + 1]
    value, low, high = (float(ordered[min(count - 1, max(0, int(np.ceil(rank)) - 1))]) for rank in ranks)
    return Estimate(value, low, high)
