from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.freenet.wire.location import is_location

seeds = st.integers(0, 2**32)


def check(topology: Topology) -> None:
    """Check the properties of every topology."""
    n = topology.n
    assert topology.locations.dtype == np.float64
    assert topology.indptr.dtype == np.int64
    assert topology.indices.dtype == np.int32
    assert topology.indptr.shape == (n + 1,)
    assert topology.indptr[0] == 0
    assert topology.indptr[-1] == len(topology.indices) == 2 * topology.links
    assert all(is_location(location) for location in topology.locations.tolist())
    pairs = set()
    for node in range(n):
        row = topology.neighbours(node).tolist()
        assert row == sorted(set(row))
        assert node not in row
        pairs.update((node, other) for other in row)
    assert pairs == {(other, node) for node, other in pairs}
    assert list(map(tuple, topology.edges().tolist())) == sorted(pair for pair in pairs if pair[0] < pair[1])
    assert topology.degrees().tolist() == [len(topology.neighbours(node)) for node in range(n)]
    for array in (topology.locations, topology.indptr, topology.indices):
        assert not array.flags.writeable


def same(one: Topology, other: Topology) -> bool:
    """Return True if two topologies are equal except for their names."""
    arrays = ("locations", "indptr", "indices")
    equal = all(np.array_equal(getattr(one, name), getattr(other, name)) for name in arrays)
    return equal and one.labels == other.labels


def ranks(topology: Topology) -> NDArray[np.int64]:
    """Return the rank of each node in the order of locations."""
    found = np.empty(topology.n, np.int64)
    found[np.argsort(topology.locations)] = np.arange(topology.n)
    return found


def steps(topology: Topology) -> NDArray[np.int64]:
    """Return the difference of the ranks of each link's ends."""
    ends = ranks(topology)[topology.edges()]
    straight = np.abs(ends[:, 0] - ends[:, 1])
    return np.minimum(straight, topology.n - straight)


@st.composite
def drawn(draw: st.DrawFn) -> tuple[Topology, int]:
    """Return a topology and its expected number of links."""
    n = draw(st.integers(3, 40))
    lattice = draw(st.booleans())
    degree = draw(st.floats(2, n - 1) | st.integers(2, n - 1) | st.just(n - 1))
    seed = draw(seeds)
    if draw(st.booleans()):
        return Topology.kleinberg(n, degree, seed, lattice), round(n * degree / 2)
    return Topology.random(n, degree, seed), round(n * degree / 2)


@given(drawn())
def test_random_topologies_have_the_given_number_of_links(made: tuple[Topology, int]) -> None:
    topology, links = made
    check(topology)
    assert topology.links == links
    assert topology.repeated == 0


@given(st.integers(2, 40), seeds)
def test_networks_without_links_can_be_drawn(n: int, seed: int) -> None:
    check(Topology.random(n, 0, seed))
    assert Topology.kleinberg(n, 0, seed).links == 0
    assert Topology.kleinberg(n, 0, seed).is_connected() is False


@given(st.integers(2, 40), st.data(), seeds)
def test_a_ring_links_each_node_to_the_next(n: int, data: st.DataObject, seed: int) -> None:
    reach = data.draw(st.integers(1, n // 2))
    topology = Topology.ring(n, reach, seed)
    check(topology)
    assert np.all(np.diff(topology.locations) >= 0)
    for node in range(n):
        near = {(node + step) % n for step in range(-reach, reach + 1)} - {node}
        assert set(topology.neighbours(node).tolist()) == near
    assert topology.is_connected()


@given(st.integers(3, 40), seeds)
def test_every_node_of_a_lattice_is_linked_to_the_next_on_the_ring(n: int, seed: int) -> None:
    topology = Topology.kleinberg(n, 2, seed, lattice=True)
    assert np.array_equal(steps(topology), np.ones(n, np.int64))
    assert topology.is_connected()


def test_equal_seeds_make_equal_networks_and_others_make_others() -> None:
    makers: list[Callable[[int], Topology]] = [
        lambda seed: Topology.kleinberg(200, 6, seed),
        lambda seed: Topology.kleinberg(200, 6, seed, lattice=True),
        lambda seed: Topology.random(200, 6, seed),
        lambda seed: Topology.ring(200, 2, seed),
        lambda seed: Topology.from_edges([(0, 1), (1, 2)], seed=seed),
        lambda seed: Topology.kleinberg(50, 6, 1).swap(2, seed),
    ]
    for make in makers:
        assert same(make(7), make(7))
        assert not np.array_equal(make(7).locations, make(8).locations)
    assert not np.array_equal(makers[0](7).indices, makers[0](8).indices)
    assert not np.array_equal(makers[2](7).indices, makers[2](8).indices)


def test_links_drawn_like_the_reference_are_fewer_and_rarer_to_the_next_node() -> None:
    exact, reference = (Topology.kleinberg(2_000, 10, seed=1, draw=draw) for draw in ("exact", "reference"))
    assert same(reference, Topology.kleinberg(2_000, 10, seed=1, draw="reference"))
    assert exact.links == 10_000
    assert reference.repeated == 10_000 - reference.links > 100
    nearest = [np.count_nonzero(steps(topology) == 1) for topology in (exact, reference)]
    assert 2.0 < nearest[0] / nearest[1] < 3.2
    check(Topology.kleinberg(51, 5, seed=1, lattice=True, draw="reference"))


def test_each_node_draws_as_many_links_as_any_other() -> None:
    assert Topology.kleinberg(2_000, 10, 3).degrees().min() >= 5
    assert Topology.random(2_000, 10, 3).degrees().min() >= 5
    assert Topology.kleinberg(2_000, 9, 3).degrees().min() >= 4


def test_node_numbers_are_independent_of_locations() -> None:
    locations = Topology.kleinberg(10_000, 2, 5).locations
    assert abs(np.corrcoef(np.arange(10_000), locations)[0, 1]) < 0.04


@pytest.mark.parametrize(("n", "degree"), [(20_001, 2), (4_095, 1)])
def test_the_probability_of_a_link_is_in_inverse_proportion_to_the_distance(n: int, degree: int) -> None:
    # With so few links hardly any is drawn twice, which would take from the short ones.
    found = np.bincount(np.log2(steps(Topology.kleinberg(n, degree, 11))).astype(int))
    every = np.arange(1, n)
    shares = np.bincount(np.log2(np.minimum(every, n - every)).astype(int), 1 / np.minimum(every, n - every))
    expected = shares / shares.sum() * found.sum()
    # What chance exceeds once in a thousand times, with 11 to 13 degrees of freedom.
    assert ((found - expected) ** 2 / expected).sum() < 34.5


def test_links_of_a_random_network_are_equally_likely_between_any_two_nodes() -> None:
    n = 20_001
    topology = Topology.random(n, 2, 11)
    straight = np.diff(topology.edges(), axis=1).ravel()
    expected = np.bincount(np.arange(1, n // 2 + 1) * 16 // n, minlength=8) / (n // 2) * n
    for lengths in (steps(topology), np.minimum(straight, n - straight)):
        found = np.bincount(lengths.astype(np.int64) * 16 // n, minlength=8)
        # What chance exceeds once in a thousand times, with 7 degrees of freedom.
        assert ((found - expected) ** 2 / expected).sum() < 24.3


def test_the_last_links_of_a_dense_network_are_drawn_from_the_missing_ones() -> None:
    full = Topology.kleinberg(30, 29, 1)
    assert full.degrees().tolist() == [29] * 30
    nearly = Topology.kleinberg(60, 57, 1)
    assert nearly.links == 1_710
    check(nearly)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)).filter(lambda pair: pair[0] != pair[1])), seeds)
def test_duplicate_links_are_dropped_and_counted(edges: list[tuple[int, int]], seed: int) -> None:
    topology = Topology.from_edges(edges, n=13, seed=seed)
    check(topology)
    wanted = {(min(pair), max(pair)) for pair in edges}
    assert set(map(tuple, topology.edges().tolist())) == wanted
    assert topology.repeated == len(edges) - len(wanted)
    again = Topology.from_edges(topology.edges(), topology.locations)
    assert np.array_equal(again.indices, topology.indices)


def test_a_topology_is_connected_only_if_all_nodes_are() -> None:
    assert Topology.from_edges([(0, 1), (2, 1)]).is_connected()
    assert not Topology.from_edges([(0, 1), (2, 3)]).is_connected()
    assert not Topology.from_edges([(1, 2)]).is_connected()
    assert Topology.from_edges([], n=1).is_connected()


@given(st.integers(2, 30), st.floats(0.5, 1), seeds)
def test_connectedness_agrees_with_a_graph_traversal(n: int, degree: float, seed: int) -> None:
    topology = Topology.random(n, min(2 * degree, n - 1), seed)
    seen, left = {0}, [0]
    while left:
        found = set(topology.neighbours(left.pop()).tolist()) - seen
        seen |= found
        left += found
    assert topology.is_connected() == (len(seen) == n)


def test_node_names_are_numbered_in_order_of_appearance_and_numbers_by_size() -> None:
    named = Topology.from_edges([("b", "a"), ("a", "10")])
    assert named.labels == ("b", "a", "10")
    assert named.label(2) == "10"
    assert named.edges().tolist() == [[0, 1], [1, 2]]
    sparse = Topology.from_edges([("10", "9"), ("9", "100")])
    assert sparse.labels == ("9", "10", "100")
    assert sparse.edges().tolist() == [[0, 1], [0, 2]]
    turned = Topology.from_edges([("30", "10"), ("10", "20")])
    assert turned.labels == ("10", "20", "30")
    assert turned.edges().tolist() == [[0, 1], [0, 2]]
    plain = Topology.from_edges([("2", "1"), ("1", "0")])
    assert plain.labels == ()
    assert plain.label(2) == "2"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Topology.kleinberg(1, 0, 1), "n=1: it must be a whole number from 2"),
        (lambda: Topology.kleinberg(10.0, 2, 1), "n=10.0"),  # type: ignore[arg-type]
        (lambda: Topology.kleinberg(10, 9.5, 1), "degree=9.5: with n=10 it goes from 0 to 9"),
        (lambda: Topology.kleinberg(10, float("nan"), 1), "degree=nan"),
        (lambda: Topology.random(10, -1, 1), "degree=-1"),
        (lambda: Topology.kleinberg(10, 1, 1, lattice=True), "degree=1: the lattice alone gives each node 2 links"),
        (lambda: Topology.kleinberg(10, 2, -1), "seed=-1"),
        (lambda: Topology.kleinberg(10, 2.5, 1, draw="reference"), "degree=2.5: with draw='reference'"),
        (lambda: Topology.kleinberg(10, 2, 1, draw="dice"), "draw='dice': choose one of exact, reference"),  # type: ignore[arg-type]
        (lambda: Topology.kleinberg(10, 2, True), "seed=True"),
        (lambda: Topology.ring(6, 4), "reach=4: it must be a whole number from 1 to 3"),
        (lambda: Topology.from_edges([(0, 1), (2, 2)]), "edge 1 links node 2 to itself; leave it out"),
        (lambda: Topology.from_edges([("a", "a")]), "link 1: 'a' is linked to itself"),
        (lambda: Topology.from_edges([(0, -1)]), r"edge 0, \(0, -1\): nodes are 0 to 0"),
        (lambda: Topology.from_edges([(0, 1), (1, 9)], n=3), r"edge 1, \(1, 9\): nodes are 0 to 2"),
        (lambda: Topology.from_edges([(0, 1, 2)]), r"edges of shape \(1, 3\)"),
        (lambda: Topology.from_edges([(0, 0.5)]), "float64: pairs of numbers or names"),
        (lambda: Topology.from_edges([(0, 3)], [0.1, 0.2]), "2 locations for 4 nodes: each node needs one"),
        (lambda: Topology.from_edges([(0, 1)], [0.1, 1.0]), "location 1.0 of node 1"),
        (lambda: Topology.from_edges([(0, 1)], [[0.1], [0.2]]), r"locations of shape \(2, 1\)"),
        (lambda: Topology.ring(5).swap(-1), "rounds=-1"),
        (lambda: Topology.ring(5).swap(1, walk=0), "walk=0"),
        (lambda: Topology.ring(5).swap(1, reset=2.0), "reset=2.0: a probability goes from 0 to 1"),
    ],
)
def test_invalid_topologies_are_refused(make: Callable[[], Topology], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        make()


@pytest.mark.parametrize("node", [-1, 5])
def test_the_neighbours_of_a_missing_node_raise(node: int) -> None:
    with pytest.raises(IndexError, match=f"node {node} is outside 0 to 4"):
        Topology.ring(5).neighbours(node)
