"""Reference figures of subscription trees and their repair, and the experiments that reproduce them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment

KEYS, SUBSCRIBERS = 40, 100

Draw = Callable[[int, int], Topology]
"""Function that draws a network of a size and a seed."""


class TreeRow(NamedTuple):
    """A row of the reference's table of trees: sequential subscriptions, degree 10, no lattice."""

    n: int
    links: str
    policy: dict[str, Any]
    roots: float
    reach: float
    first: float
    later: float
    depth: float
    deepest: int
    stretch: float
    members: int


Way = Literal["in-turn", "one by one", "together"]
WAYS: tuple[Way, ...] = "in-turn", "one by one", "together"
EVERY_LINK = {"p_max": 1.0, "p_min": 1.0}
TREES = (
    TreeRow(1_000, "Kleinberg", {"max_htl": 10, **EVERY_LINK}, 1.00, 1.000, 44, 4.8, 6.5, 21, 1.9, 243),
    TreeRow(10_000, "Kleinberg", {"max_htl": 5, **EVERY_LINK}, 1.48, 0.906, 32, 9.6, 10, 28, 2.3, 484),
    TreeRow(10_000, "Kleinberg", {"max_htl": 10, **EVERY_LINK}, 1.10, 0.976, 48, 9.6, 11, 30, 2.6, 484),
    TreeRow(10_000, "Kleinberg", {"max_htl": 10}, 1.02, 0.998, 96, 9.5, 12.5, 40, 2.8, 485),
    TreeRow(1_000, "random", {"max_htl": 10, **EVERY_LINK}, 3.73, 0.637, 38, 5.5, 15, 50, 4.7, 254),
    TreeRow(10_000, "Kleinberg", {"max_htl": 5, "htl_on_closer": "keep", **EVERY_LINK}, 1.80, *[float("nan")] * 7),  # type: ignore[arg-type]
)


class RepairRow(NamedTuple):
    """A row of the reference's table of repairs: sequential resubscriptions, HTL 10, 0.1
    0.2.
    """

    n: int
    killed: float
    accept: str
    messages: float
    roots: float
    reach: float


REPAIRS = (
    RepairRow(1_000, 0.1, "root", 4.3, 1.02, 0.995),
    RepairRow(1_000, 0.1, "own", 7.0, 1.27, 0.944),
    RepairRow(1_000, 0.3, "root", 4.9, 1.05, 0.990),
    RepairRow(1_000, 0.3, "own", 8.8, 2.50, 0.790),
    RepairRow(10_000, 0.1, "root", 6.9, 1.00, 1.000),
    RepairRow(10_000, 0.1, "own", 9.1, 1.70, 0.856),
)


def grow(topology: Topology, policy: Policy, seed: int) -> tuple[TreeExperiment, list[bytes]]:
    """Return an experiment in which all nodes have subscribed, one after the other."""
    rng = random.Random(seed)
    experiment = TreeExperiment(topology, policy, seed=seed)
    keys = [rng.randbytes(20) for _ in range(KEYS)]
    for key in keys:
        for node in rng.sample(range(topology.n), SUBSCRIBERS):
            experiment.subscribe(node, key)
            experiment.run()
    experiment.check()
    return experiment, keys


def measure_trees(topology: Topology, policy: Policy, seed: int) -> dict[str, float]:
    """Return the figures of one network, named as in :class:`TreeRow`."""
    experiment, keys = grow(topology, policy, seed)
    found = experiment.metrics()
    return {
        "roots": found["roots_per_key"],
        "reach": found["reach"],
        # The reference counts a request and its answer.
        "first": 2 * found["subscribe_requests_first"],
        "later": 2 * found["subscribe_requests_later"],
        "depth": found["depth_mean"],
        "deepest": found["depth_max"],
        "stretch": found["stretch"],
        "members": found["members"] / len(keys),
    }


def measure_repair(topology: Topology, policy: Policy, killed: float, seed: int, way: Way) -> dict[str, float]:
    """Let a share of the nodes die, and return what that costs and what is left.

    :param way: whether all die at one moment and orphans look for parents ``in-turn`` or ``together``, or the nodes die
        ``one by one``, each when the trees are whole again after the one before.
    """
    experiment, _ = grow(topology, policy, seed)
    dead = random.Random(seed).sample(range(topology.n), round(killed * topology.n))
    if way == "one by one":
        for node in dead:
            experiment.kill(node)
            experiment.run()
    else:
        experiment.kill_at_once(dead, resubscribe=way)
    experiment.run()
    experiment.check()
    found = experiment.metrics()
    return {
        # The reference counts a request and its answer.
        "messages": 2 * found["repair_requests"],
        "restarted": found["repair_restarted"],
        "seconds": found["repair_time_p50"],
        "roots": found["roots_per_key"],
        "reach": found["reach"],
    }
