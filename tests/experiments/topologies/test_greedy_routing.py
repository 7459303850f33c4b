from __future__ import annotations

from itertools import pairwise, product
from math import isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.experiments.measures.routing_stats import (
    Estimate,
    mean_estimate,
    proportion,
    quantile_estimate,
    study,
)
from fyrehose_twisted.experiments.topologies import greedy_routing
from fyrehose_twisted.experiments.topologies.greedy_routing import greedy_path, ring_distance, route
from fyrehose_twisted.freenet.wire.location import distance

# Few of them, so that some are equally far from others, and neighbouring floats, whose distances differ by a rounding.
places = st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.625, 0.875, 0.3, np.nextafter(0.3, 1), 0.1 + 0.2, 0.7, 0.9999]) | (
    st.floats(0, 1, exclude_max=True)
)


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    n = draw(st.integers(2, 14))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    edges = draw(st.lists(pairs, max_size=40))
    return Topology.from_edges(edges, draw(st.lists(places, min_size=n, max_size=n)), n=n)


def by_the_rule(topology: Topology, source: int, target: float) -> list[int]:
    """Return the path by definition: to the nearest neighbour, the first of equally near ones, while it is nearer."""
    path = [source]
    while True:
        here = path[-1]

        def far(node: int) -> float:
            return distance(float(topology.locations[node]), target)

        nearest = min(topology.neighbours(here).tolist(), key=lambda node: (far(node), node), default=here)
        if far(nearest) >= far(here):
            return path
        path.append(nearest)


@given(places, places)
def test_distances_equal_those_of_nodes_to_the_last_bit(one: float, other: float) -> None:
    assert ring_distance(np.array([one]), np.array([other])).tolist() == [distance(one, other)]


@given(networks(), st.lists(places, min_size=1, max_size=4))
def test_all_routes_of_a_network_follow_the_routing_rule(topology: Topology, targets: list[float]) -> None:
    targets = [*targets, *topology.locations.tolist()]
    ends = list(product(range(topology.n), targets))
    found = route(topology, [source for source, _ in ends], [target for _, target in ends])
    for index, (source, target) in enumerate(ends):
        path = by_the_rule(topology, source, target)
        assert greedy_path(topology, source, target) == path
        assert (found.hops[index], found.last[index]) == (len(path) - 1, path[-1])
        nearest = min(distance(location, target) for location in topology.locations.tolist())
        assert found.reached[index] == (distance(float(topology.locations[path[-1]]), target) == nearest)


@given(networks())
def test_a_route_to_a_node_is_one_to_its_location(topology: Topology) -> None:
    sources, targets = np.divmod(np.arange(topology.n**2), topology.n)
    to_nodes = route(topology, sources, targets)
    to_places = route(topology, sources, topology.locations[targets])
    assert np.array_equal(to_nodes.hops, to_places.hops)
    assert np.array_equal(to_nodes.last, to_places.last)
    assert np.array_equal(to_nodes.reached, to_nodes.last == targets)


@given(networks(), places)
def test_each_hop_is_over_a_link_and_leads_nearer(topology: Topology, target: float) -> None:
    for source in range(topology.n):
        path = greedy_path(topology, source, target)
        far = [distance(float(topology.locations[node]), target) for node in path]
        assert all(later < earlier for earlier, later in pairwise(far))
        assert all(other in topology.neighbours(node) for node, other in pairwise(path))


@given(networks(), places, st.integers(0, 4))
def test_a_route_ends_after_the_maximum_number_of_hops(topology: Topology, target: float, most: int) -> None:
    sources = list(range(topology.n))
    found = route(topology, sources, [target] * topology.n, max_hops=most)
    for source in sources:
        path = greedy_path(topology, source, target)[: most + 1]
        assert (found.hops[source], found.last[source]) == (len(path) - 1, path[-1])


def test_routes_do_not_depend_on_the_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology.kleinberg(300, 6, 2)
    sources, targets = np.divmod(np.arange(300 * 300), 300)
    at_once = route(topology, sources, targets)
    monkeypatch.setattr(greedy_routing, "_BATCH_SIZE", 37)
    by_few = route(topology, sources[:9_000], targets[:9_000])
    assert np.array_equal(by_few.hops, at_once.hops[:9_000])
    assert np.array_equal(by_few.last, at_once.last[:9_000])


def test_all_routes_arrive_on_a_network_with_the_lattice() -> None:
    for seed in range(4):
        topology = Topology.kleinberg(200, 4, seed, lattice=True)
        sources, targets = np.divmod(np.arange(200 * 200), 200)
        assert route(topology, sources, targets).reached.all()


def test_on_a_ring_the_hops_are_those_of_the_shorter_arc() -> None:
    # Evenly spaced: of both ways the one with fewer hops is the shorter one.
    topology = Topology.from_edges([(node, (node + 1) % 9) for node in range(9)], np.arange(9) / 9)
    found = route(topology, [0] * 9, list(range(9)))
    assert found.hops.tolist() == [0, 1, 2, 3, 4, 4, 3, 2, 1]
    assert found.reached.all()


def test_routing_without_routes_returns_empty_arrays() -> None:
    found = route(Topology.ring(3), np.empty(0, np.int64), np.empty(0))
    assert (len(found.hops), len(found.reached), len(found.last)) == (0, 0, 0)


@pytest.mark.parametrize(
    ("sources", "targets", "complaint"),
    [
        ([0, 5], [0.5, 0.5], r"sources\[1\] is node 5; nodes are 0 to 4"),
        ([0, -1], [0.5, 0.5], r"sources\[1\] is node -1"),
        ([0.5], [0.5], "sources of shape"),
        ([0], [9], r"targets\[0\] is node 9"),
        ([0], [1.0], r"targets\[0\] is 1.0; a location goes from 0 up to, but not to, 1"),
        ([0], [float("nan")], r"targets\[0\] is nan"),
        ([0], ["a"], "targets of type"),
        ([0, 1], [0.5], r"\(2,\) sources and \(1,\) targets"),
    ],
)
def test_routes_from_or_to_missing_nodes_are_refused(sources: list[int], targets: list[float], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        route(Topology.ring(5), sources, targets)


def test_negative_hop_limits_and_invalid_targets_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_hops=-1"):
        route(Topology.ring(5), [0], [0.5], max_hops=-1)
    with pytest.raises(ConfigurationError, match=r"target=1\.0"):
        greedy_path(Topology.ring(5), 0, 1.0)


def test_a_routing_study_counts_outcomes_and_hops() -> None:
    topology = Topology.kleinberg(400, 6, 1)
    found = study(topology, 5_000, 3, within=(4,))
    every_source, every_target = np.divmod(np.arange(400 * 400), 400)
    others = every_source != every_target
    routes = route(topology, every_source[others], every_target[others])
    assert routes.reached.mean() in found.success
    assert routes.hops[routes.reached].mean() in found.hops
    assert (routes.reached & (routes.hops <= 4)).mean() in found.within[4]
    assert np.quantile(routes.hops[routes.reached], 0.95) in found.p95
    assert found.most <= routes.hops.max()
    assert study(topology, 5_000, 3, within=(4,)) == found
    assert study(topology, 5_000, 4, within=(4,)) != found


def test_a_routing_study_without_arrivals_has_no_hops() -> None:
    found = study(Topology.from_edges([], n=10), 50, 1)
    assert found.success.value == 0
    assert isnan(found.hops.value)
    assert isnan(found.p95.value)
    assert (found.most, found.within[10].value) == (0, 0)


@pytest.mark.parametrize(("n", "routes"), [(1, 5), (5, 0)])
def test_a_routing_study_needs_a_route_and_two_nodes(n: int, routes: int) -> None:
    with pytest.raises(ConfigurationError, match=f"{routes} routes over {n} nodes"):
        study(Topology.from_edges([], n=n), routes, 1)


def test_confidence_intervals_match_published_values() -> None:
    # Wilson's for 8 of 10 and 0 of 10, as tables have them.
    eight = proportion(8, 10)
    assert (eight.value, round(eight.low, 4), round(eight.high, 4)) == (0.8, 0.4902, 0.9433)
    none = proportion(0, 10)
    assert (none.low, round(none.high, 4)) == (0.0, 0.2775)
    assert proportion(10, 10).high == 1.0
    average = mean_estimate(np.array([1, 2, 3, 4, 5]))
    assert (average.value, round(average.high - 3, 4)) == (3.0, 1.3859)
    assert isnan(mean_estimate(np.array([3])).low)
    assert quantile_estimate(np.arange(1, 101), 0.95) == Estimate(95.0, 91.0, 100.0)
    assert quantile_estimate(np.array([7]), 0.95).value == 7
    assert str(eight) == "0.8 (0.49 to 0.943)"


def test_confidence_intervals_have_the_nominal_coverage() -> None:
    rng = np.random.Generator(np.random.PCG64(5))
    samples = np.sort(rng.geometric(0.2, (2_000, 400)), axis=1)
    for expected, figures in (
        (5.0, [mean_estimate(sample) for sample in samples]),
        (1 - 0.8**3, [proportion(int((sample <= 3).sum()), 400) for sample in samples]),
        (14.0, [quantile_estimate(sample, 0.95) for sample in samples]),
    ):
        assert np.mean([expected in figure for figure in figures]) > 0.93
