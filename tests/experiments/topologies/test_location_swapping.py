from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from math import exp, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import PCG64, Generator
from numpy.typing import NDArray

from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.experiments.measures.routing_stats import study
from fyrehose_twisted.experiments.topologies import location_swapping
from fyrehose_twisted.experiments.topologies.location_swapping import draw_attempts, swap_locations
from fyrehose_twisted.freenet.wire.location import distance


def product(topology: Topology, locations: list[float], ones: tuple[int, ...]) -> float:
    """Return the logarithm of the product of the link lengths of these nodes."""
    return sum(
        log(max(distance(locations[one], locations[other]), 2.0**-64))
        for one in ones
        for other in topology.neighbours(one).tolist()
    )


def one_by_one(topology: Topology, rounds: int, rng: Generator, walk: int, reset: float) -> list[float]:
    """Return the locations after sequential attempts, as the module defines them."""
    now = topology.locations.tolist()
    for _ in range(rounds):
        attempts = draw_attempts(topology.indptr, topology.indices, rng, walk=walk, reset=reset)
        for one, other, chance in zip(*(column.tolist() for column in attempts), strict=True):
            if other < 0:
                now[one] = chance
                continue
            after = list(now)
            after[one], after[other] = now[other], now[one]
            before_product, after_product = (product(topology, at, (one, other)) for at in (now, after))
            if chance < exp(min(0.0, before_product - after_product)):
                now = after
    return now


def scrambled(topology: Topology, seed: int) -> Topology:
    """Return the same network with shuffled locations."""
    return replace(topology, locations=Generator(PCG64(seed)).permutation(topology.locations))


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    n = draw(st.integers(3, 60))
    seed = draw(st.integers(0, 2**32))
    made = Topology.random(n, draw(st.floats(0, min(8, n - 1))), seed)
    hub = draw(st.booleans())
    edges = [*made.edges().tolist(), *([0, node] for node in range(1, n) if hub)]
    return Topology.from_edges(edges, made.locations, n=n)


@given(networks(), st.integers(1, 11), st.sampled_from([0.0, 0.1]), st.integers(0, 2**32))
def test_batched_swaps_equal_sequential_swaps(topology: Topology, walk: int, reset: float, seed: int) -> None:
    found = swap_locations(
        topology.indptr, topology.indices, topology.locations, 4, Generator(PCG64(seed)), walk=walk, reset=reset
    )
    assert found.tolist() == one_by_one(topology, 4, Generator(PCG64(seed)), walk, reset)


@given(networks(), st.sampled_from([0.01, 0.5, 2]), st.integers(0, 2**32))
def test_swaps_do_not_depend_on_the_batch_size(topology: Topology, space: float, seed: int) -> None:
    def found() -> list[float]:
        return topology.swap(3, seed, reset=0.1).locations.tolist()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(location_swapping, "_NODES_PER_ATTEMPT", 10**6)
        alone = found()
        patch.setattr(location_swapping, "_NODES_PER_ATTEMPT", space)
        assert found() == alone


@given(networks(), st.integers(0, 2**32))
def test_without_resets_the_set_of_locations_is_unchanged(topology: Topology, seed: int) -> None:
    after = topology.swap(3, seed, reset=0.0)
    assert np.array_equal(np.sort(after.locations), np.sort(topology.locations))
    assert np.array_equal(after.indices, topology.indices)
    assert np.array_equal(after.indptr, topology.indptr)


def test_resets_replace_all_locations() -> None:
    topology = Topology.ring(500)
    after = topology.swap(20, 1, reset=1.0)
    assert not set(after.locations.tolist()) & set(topology.locations.tolist())
    kept = topology.swap(1, 1, reset=0.02)
    fresh = len(set(kept.locations.tolist()) - set(topology.locations.tolist()))
    assert 1 <= fresh <= 25


def test_the_partner_of_a_swap_is_the_end_of_a_random_walk() -> None:
    topology = Topology.from_edges([(0, 1), (1, 2), (2, 3)], n=5)
    ones, others, chances = draw_attempts(topology.indptr, topology.indices, Generator(PCG64(1)), walk=2, reset=0.0)
    pairs: Counter[tuple[int, int]] = Counter()
    rng = Generator(PCG64(1))
    for _ in range(2_000):
        ones, others, chances = draw_attempts(topology.indptr, topology.indices, rng, walk=2, reset=0.0)
        pairs.update(zip(ones.tolist(), others.tolist(), strict=True))
        assert np.all((chances >= 0) & (chances < 1))
    # Of 10,000 walks each node begins a fifth; two hops lead back or, with half a chance, on.
    expected = {(0, 0): 0.5, (0, 2): 0.5, (1, 1): 0.75, (1, 3): 0.25, (2, 0): 0.25, (2, 2): 0.75, (3, 1): 0.5}
    expected |= {(3, 3): 0.5, (4, 4): 1.0}
    assert pairs.keys() == expected.keys()
    assert all(pairs[pair] / 2_000 == pytest.approx(share, abs=0.06) for pair, share in expected.items())


@pytest.mark.extended
def test_arrangements_have_the_metropolis_hastings_distribution() -> None:
    # A network without symmetry, so that its 120 arrangements all differ.
    places = [0.0, 0.11, 0.19, 0.52, 0.7]
    topology = Topology.from_edges([(0, 1), (1, 2), (2, 3), (1, 3), (3, 4)], places)
    weights = {}
    for arrangement in permutations(places):
        links = topology.edges().tolist()
        weights[arrangement] = exp(-sum(log(distance(arrangement[one], arrangement[other])) for one, other in links))
    total = sum(weights.values())
    rng, now, rounds = Generator(PCG64(3)), topology.locations, 2_500
    found: Counter[tuple[float, ...]] = Counter()
    for _ in range(rounds):
        now = swap_locations(topology.indptr, topology.indices, now, 3, rng, reset=0.0)
        found[tuple(now.tolist())] += 1
    expected = {arrangement: weight / total * rounds for arrangement, weight in weights.items()}
    assert found.keys() <= expected.keys()
    # Successive arrangements are alike, so chance may exceed what it does once in a thousand times otherwise: 172.
    chi = sum((found[key] - count) ** 2 / count for key, count in expected.items())
    assert chi < 250


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_swapping_finds_locations_by_which_routing_works_again(seed: int) -> None:
    drawn = Topology.kleinberg(200, 8, seed)
    lost = scrambled(drawn, seed)

    def success(topology: Topology) -> float:
        return study(topology, 3_000, 1).success.value

    before, after, kept = success(lost), success(lost.swap(200, seed)), success(drawn.swap(200, seed, reset=0.0))
    assert before < 0.1
    assert after > 3 * before
    # Where routing works it goes on working: the links were drawn from the distribution that swapping aims at.
    assert kept == pytest.approx(success(drawn), abs=0.12)


def lengths(topology: Topology) -> NDArray[np.float64]:
    """Return the lengths of the links."""
    ends = topology.locations[topology.edges()]
    straight = np.abs(ends[:, 0] - ends[:, 1])
    return np.minimum(straight, 1 - straight)


def test_nodes_at_the_same_location_can_swap() -> None:
    topology = Topology.from_edges([(0, 1), (1, 2), (2, 3), (3, 0)], [0.5, 0.5, 0.5, 0.1])
    after = topology.swap(50, 1, reset=0.0)
    assert np.array_equal(np.sort(after.locations), np.sort(topology.locations))
    assert np.count_nonzero(lengths(after)) == 2
