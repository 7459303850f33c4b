"""Statistics of greedy routing between random nodes, with confidence intervals."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan, sqrt
from statistics import NormalDist

import numpy as np
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.topologies.greedy_routing import route
from fyrehose_twisted.experiments.topologies.request_routing import MAX_VISITS, route_requests
from fyrehose_twisted.experiments.topologies.topology import Topology
from fyrehose_twisted.freenet.policy import Policy
from fyrehose_twisted.interfaces import IRoutingPolicy

DEFAULT_HOP_LIMITS = (10, 18)
"""HTL of requests in networks of the past and of today."""
_Z = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate with its 95 % confidence interval."""

    value: float
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    def __str__(self) -> str:
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True, slots=True)
class GreedyStudy:
    """Statistics of greedy routes between random nodes.

    :ivar topology: name of the topology.
    :ivar routes: number of routes.
    :ivar success: share of the routes that reached their target.
    :ivar hops: mean hops of these routes; nan if there are none.
    :ivar p95: 95th percentile of their hops.
    :ivar most: maximum of their hops.
    :ivar within: share of all routes that reached their target within a number of hops, by that number.
    """

    topology: str
    routes: int
    success: Estimate
    hops: Estimate
    p95: Estimate
    most: int
    within: dict[int, Estimate]


def study(topology: Topology, routes: int, seed: int, within: tuple[int, ...] = DEFAULT_HOP_LIMITS) -> GreedyStudy:
    """Study greedy routes between random nodes.

    The intervals apply to the given network. Networks of the same kind vary more.

    :param routes: number of routes.
    :param seed: seed for the ends of the routes.
    :param within: hop limits for which to report the share of routes.
    :raises ConfigurationError: if there are fewer than two nodes, or no routes.
    """
    if topology.n < 2 or routes < 1:
        raise ConfigurationError(
            f"{routes} routes over {topology.n} nodes: at least one route and two nodes are required"
        )
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
        within={limit: proportion(int((hops <= limit).sum()), routes) for limit in within},
    )


@dataclass(frozen=True, slots=True)
class RequestStudy:
    """Statistics of requests from random nodes for random keys.

    :ivar topology: name of the topology.
    :ivar requests: number of requests.
    :ivar nearest: share of the requests that ended at the node nearest to their key.
    :ivar hops: mean links from the source to the end.
    :ivar visits: mean number of nodes that accepted a request.
    :ivar dead_ends: mean number of nodes that sent a request back for lack of untried neighbours.
    :ivar expired: share of the requests whose HTL was used up at least once.
    :ivar cut: share of the requests that were given up after too many visits.
    """

    topology: str
    requests: int
    nearest: Estimate
    hops: Estimate
    visits: Estimate
    dead_ends: Estimate
    expired: Estimate
    cut: Estimate


def study_requests(
    topology: Topology,
    requests: int,
    seed: int,
    policy: Policy | None = None,
    *,
    routing: IRoutingPolicy | None = None,
    max_visits: int = MAX_VISITS,
) -> RequestStudy:
    """Study requests with HTL and backtracking from random nodes for random keys that have no tree yet.

    :param seed: seed for the sources, the keys, and the draws of the links.
    :raises ConfigurationError: see :func:`~fyrehose_twisted.experiments.topologies.request_routing.route_requests`;
        or if there are no requests.
    """
    if requests < 1:
        raise ConfigurationError(f"requests={requests!r}: at least one request is required")
    rng = Generator(PCG64(seed))
    sources, keys = rng.integers(0, topology.n, requests), rng.random(requests)
    found = route_requests(topology, sources, keys, policy, routing=routing, seed=seed, max_visits=max_visits)
    return RequestStudy(
        topology=topology.name,
        requests=requests,
        nearest=proportion(int(found.nearest.sum()), requests),
        hops=mean_estimate(found.hops.astype(np.int64)),
        visits=mean_estimate(found.visits.astype(np.int64)),
        dead_ends=mean_estimate(found.dead_ends.astype(np.int64)),
        expired=proportion(int(found.expired.sum()), requests),
        cut=proportion(int(found.cut.sum()), requests),
    )


def proportion(count: int, total: int) -> Estimate:
    """Return the share ``count / total`` with its Wilson interval."""
    value = count / total
    middle = (value + _Z**2 / (2 * total)) / (1 + _Z**2 / total)
    half = _Z / (1 + _Z**2 / total) * sqrt(value * (1 - value) / total + _Z**2 / (4 * total**2))
    # For shares of 0 and 1, rounding may place the estimate just outside.
    return Estimate(value, min(value, max(0.0, middle - half)), max(value, min(1.0, middle + half)))


def mean_estimate(values: NDArray[np.int64]) -> Estimate:
    """Return the mean with its normal interval; nan for no values, and without an interval for one value."""
    if not len(values):
        return Estimate(nan, nan, nan)
    value = float(values.mean())
    if len(values) == 1:
        return Estimate(value, nan, nan)
    half = _Z * float(values.std(ddof=1)) / sqrt(len(values))
    return Estimate(value, value - half, value + half)


def quantile_estimate(ordered: NDArray[np.int64], at: float) -> Estimate:
    """Return a quantile of ascending values, with the interval between order statistics; nan for no values.

    The quantile is the lowest value that a share ``at`` of all values does not exceed.
    """
    count = len(ordered)
    if not count:
        return Estimate(nan, nan, nan)
    half = _Z * sqrt(count * at * (1 - at))
    ranks = [at * count, at * count - half, at * count + half + 1]
    value, low, high = (float(ordered[min(count - 1, max(0, int(np.ceil(rank)) - 1))]) for rank in ranks)
    return Estimate(value, low, high)
