from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.experiments.growth.growing_network import GrowingNetwork
from fyrehose_twisted.experiments.growth.link_policies import (
    LINK_POLICIES,
    MIN_LENGTH,
    DensityLinks,
    LinkView,
    RandomLinks,
    SmallWorldLinks,
)
from fyrehose_twisted.experiments.measures.link_shapes import measure_links
from fyrehose_twisted.freenet.wire.location import distance
from fyrehose_twisted.interfaces import ILinkPolicy

policies = st.sampled_from(sorted(LINK_POLICIES))


def grown(policy: Any, n: int = 60, rounds: int = 40, seed: int = 1, **options: Any) -> GrowingNetwork:
    network = GrowingNetwork(policy, seed)
    network.grow(n, rounds, **options)
    return network


@settings(max_examples=40)
@given(policies, st.integers(0, 25), st.integers(0, 6), st.integers(1, 4), st.integers(0, 4), st.integers(1, 9))
def test_links_stay_symmetric_and_within_the_limit(
    name: str, n: int, rounds: int, min_links: int, more: int, per_round: int
) -> None:
    network = GrowingNetwork(LINK_POLICIES[name](min_links, min_links + more), 1)
    network.grow(n, rounds, joins_per_round=per_round)
    assert network.n == n
    for node in range(n):
        neighbours = network.neighbours(node)
        assert len(neighbours) == len(set(neighbours)) <= min_links + more
        assert node not in neighbours
        assert all(node in network.neighbours(other) for other in neighbours)


@settings(max_examples=40)
@given(policies, st.lists(st.integers(0, 11), max_size=30), st.integers(1, 4), st.integers(0, 4))
def test_nodes_that_left_have_no_links_until_they_rejoin(
    name: str, changes: list[int], min_links: int, more: int
) -> None:
    network = grown(LINK_POLICIES[name](min_links, min_links + more), 12, 2)
    gone: set[int] = set()
    for node in changes:
        if node in gone:
            network.rejoin(node)
        else:
            network.leave(node)
        gone ^= {node}
        network.run_round()
        assert network.absent == gone
        for one in range(12):
            neighbours = network.neighbours(one)
            assert len(neighbours) <= min_links + more
            assert gone.isdisjoint(neighbours)
            assert one not in gone or not neighbours
            assert all(one in network.neighbours(other) for other in neighbours)


def test_a_network_continues_from_a_topology_within_the_limits() -> None:
    topology = Topology.kleinberg(60, 12, seed=1)
    network = GrowingNetwork.of_topology(SmallWorldLinks(4, 8), topology, 1)
    assert network.topology().locations.tolist() == topology.locations.tolist()
    kept = set(map(tuple, network.topology().edges().tolist()))
    assert kept < set(map(tuple, topology.edges().tolist()))
    assert network.topology().degrees().max() == 8
    same = GrowingNetwork.of_topology(SmallWorldLinks(4, 30), topology, 1)
    assert same.topology().edges().tolist() == topology.edges().tolist()


@pytest.mark.parametrize("name", sorted(LINK_POLICIES))
def test_equal_seeds_grow_equal_networks(name: str) -> None:
    one, same, other = (grown(LINK_POLICIES[name](4, 8), seed=seed).topology() for seed in (1, 1, 2))
    assert one.edges().tolist() == same.edges().tolist()
    assert one.locations.tolist() == same.locations.tolist()
    assert one.edges().tolist() != other.edges().tolist()


def test_nodes_that_may_link_seek_the_minimum_of_links() -> None:
    degrees = grown(SmallWorldLinks(5, 10)).topology().degrees()
    assert degrees.min() >= 5


def test_small_world_links_serve_greedy_routing_better_than_density_links() -> None:
    found = {
        name: measure_links(grown(LINK_POLICIES[name](), 400, 60).topology(), 500, 1)
        for name in ("small-world", "density", "random")
    }
    small, dense, random = found["small-world"], found["density"], found["random"]
    assert small.greedy.success.value > 0.98 > random.greedy.success.value
    assert small.greedy.hops.value < dense.greedy.hops.value
    assert small.length_fit < 0.3 < min(dense.length_fit, random.length_fit)
    assert small.nearest > 0.95


def test_small_world_links_seek_the_nearest_nodes_first_and_never_give_them_up() -> None:
    policy, rng = SmallWorldLinks(), Random(1)
    nearest = ((1, 0.51), (2, 0.48), (3, 0.53))
    assert policy.target(LinkView(0, 0.5, ((1, 0.51),), nearest), rng) == 0.48
    assert policy.surplus(LinkView(0, 0.5, nearest, nearest), rng) is None
    assert policy.surplus(LinkView(0, 0.5, (*nearest, (9, 0.9)), nearest), rng) == 9


def test_small_world_links_draw_lengths_that_are_uniform_on_a_logarithmic_scale() -> None:
    policy, rng = SmallWorldLinks(), Random(1)
    nearest = ((1, 0.501), (2, 0.499), (3, 0.502))
    view = LinkView(0, 0.5, nearest, nearest)
    logs = np.log([distance(0.5, policy.target(view, rng)) for _ in range(4_000)])
    shares = np.histogram(logs, 4, (np.log(0.002), np.log(0.5)))[0] / 4_000
    assert shares.sum() == 1.0
    assert np.abs(shares - 0.25).max() < 0.03


def test_small_world_links_give_up_the_link_most_similar_to_another() -> None:
    links = ((4, 0.6), (5, 0.7), (6, 0.71), (7, 0.99))
    assert SmallWorldLinks().surplus(LinkView(0, 0.5, links, ()), Random(1)) == 6


def test_nodes_at_one_location_have_links_of_a_minimum_length() -> None:
    same = ((1, 0.5), (2, 0.5), (3, 0.5), (4, 0.5), (5, 0.5))
    policy = SmallWorldLinks()
    assert policy.surplus(LinkView(0, 0.5, same, same[:1]), Random(1)) in {2, 3, 4, 5}
    assert distance(0.5, policy.target(LinkView(0, 0.5, same, same), Random(1))) + 1e-15 >= MIN_LENGTH


def test_density_links_seek_their_own_location_first_and_give_up_the_longest_link() -> None:
    policy = DensityLinks()
    links = ((1, 0.9), (2, 0.1), (3, 0.55), (4, 0.49))
    assert policy.target(LinkView(0, 0.5, links, ()), Random(1)) == 0.5
    assert policy.surplus(LinkView(0, 0.5, links, ()), Random(1)) in {1, 2}
    assert policy.surplus(LinkView(0, 0.5, (), ()), Random(1)) is None


@given(st.lists(st.floats(0, 1, exclude_max=True), min_size=5, max_size=12), st.floats(0, 1, exclude_max=True))
def test_density_links_seek_the_middle_between_two_neighbours(places: list[float], location: float) -> None:
    links = tuple(enumerate(places, 1))
    target = DensityLinks().target(LinkView(0, location, links, ()), Random(1))
    assert 0.0 <= target < 1.0
    ordered = sorted(places)
    middles = [(one + other) / 2 for one, other in pairwise(ordered)]
    middles.append((ordered[-1] + ordered[0] + 1.0) / 2 % 1.0)
    assert min(distance(target, middle) for middle in middles) < 1e-9


def test_density_links_prefer_near_middles() -> None:
    links = tuple(enumerate((0.0, 0.2, 0.4, 0.6, 0.8), 1))
    rng = Random(1)
    targets = [DensityLinks().target(LinkView(0, 0.31, links, ()), rng) for _ in range(400)]
    assert sum(abs(target - 0.3) < 1e-9 for target in targets) > 250


def test_random_links_ignore_distances() -> None:
    shape = measure_links(grown(RandomLinks(), 400, 40).topology(), 100, 1)
    assert shape.length_mean == pytest.approx(0.25, abs=0.02)


def test_a_policy_that_accepts_too_much_does_not_break_the_limit() -> None:
    class Greedy(RandomLinks):
        def accepts(self, view: Any, candidate: float, rng: Random) -> bool:
            return True

    assert grown(Greedy(3, 4)).topology().degrees().max() == 4


def test_a_policy_that_accepts_nothing_leaves_the_first_links() -> None:
    class Alone(SmallWorldLinks):
        def accepts(self, view: Any, candidate: float, rng: Random) -> bool:
            return False

    network = grown(Alone(), 10, 5)
    assert network.topology().links == 1 + 2 * 8


def test_a_search_follows_links_and_finds_only_nodes_that_it_passes() -> None:
    @implementer(ILinkPolicy)
    class Searching(RandomLinks):
        introduces = False

        def target(self, view: Any, rng: Random) -> float:
            return 0.99

    network = GrowingNetwork(Searching(3, 3), 1)
    for place in (0.1, 0.3, 0.5):
        network.join(place)
    far = network.join(0.99)
    # Nothing leads to a node without links.
    for other in network.neighbours(far):
        network._unlink(far, other)
    network.run_round()
    assert network.neighbours(far) == []


def test_the_limit_holds_for_nodes_that_newcomers_link_to() -> None:
    network = GrowingNetwork(SmallWorldLinks(1, 1), 1)
    network.grow(9, 0)
    assert network.topology().degrees().max() == 1


@pytest.mark.parametrize("limits", [(0, 5), (5, 4), (-1, 3)])
def test_impossible_limits_are_refused(limits: tuple[int, int]) -> None:
    with pytest.raises(ConfigurationError, match=r"min_links=.* give 1 or more"):
        SmallWorldLinks(*limits)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not provide ILinkPolicy"):
        GrowingNetwork(object(), 1)
    network = GrowingNetwork(RandomLinks(), 1)
    with pytest.raises(ConfigurationError, match=r"location=1\.0"):
        network.join(1.0)
    network.join()
    with pytest.raises(ConfigurationError, match="did not leave"):
        network.rejoin(0)
    network.leave(0)
    for node in (0, 1, -1):
        with pytest.raises(ConfigurationError, match="does not exist, or left already"):
            network.leave(node)
    for arguments in ((-1, 1, 1), (1, -1, 1), (1, 1, 0)):
        with pytest.raises(ConfigurationError, match=r"nodes=.*rounds="):
            network.grow(*arguments[:2], joins_per_round=arguments[2])
