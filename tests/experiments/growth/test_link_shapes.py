from __future__ import annotations

from math import isnan

import numpy as np
import pytest
from numpy.random import PCG64, Generator

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.experiments.measures import link_shapes
from fyrehose_twisted.experiments.measures.link_shapes import clustering, harmonic_misfit, measure_links


def evenly(n: int) -> list[float]:
    return [node / n for node in range(n)]


def test_a_ring_has_the_measures_of_a_ring() -> None:
    edges = [(node, (node + step) % 20) for node in range(20) for step in (1, 2)]
    shape = measure_links(Topology.from_edges(edges, evenly(20)), 200, 1)
    assert (shape.links, shape.degree_mean, shape.degree_min, shape.degree_max) == (40, 4.0, 4, 4)
    assert shape.length_mean == pytest.approx(0.075)
    assert shape.clustering == pytest.approx(0.5)
    assert shape.long == 0.0
    assert sum(shape.lengths) == pytest.approx(1.0)
    assert shape.greedy.success.value == 1.0
    assert shape.path_mean == pytest.approx(shape.greedy.hops.value, abs=0.3)


def test_measures_equal_those_of_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    topology = Topology.kleinberg(80, 8, seed=3)
    graph = networkx.Graph(topology.edges().tolist())
    shape = measure_links(topology, 50, 1)
    assert shape.clustering == pytest.approx(networkx.average_clustering(graph))
    assert shape.path_mean == pytest.approx(networkx.average_shortest_path_length(graph), abs=0.05)


def test_links_to_the_three_nearest_nodes_are_counted() -> None:
    # Nodes 0, 1 and 2 are near to one another, the others far from all.
    places = [0.10, 0.11, 0.12, 0.2, 0.35, 0.5, 0.7, 0.9]
    alone = measure_links(Topology.from_edges([(0, 1)], places), 10, 1)
    assert alone.nearest == pytest.approx(2 / 24)
    full = [(one, other) for one in range(8) for other in range(one)]
    assert measure_links(Topology.from_edges(full, places), 10, 1).nearest == 1.0


def test_the_ideal_lengths_fit_and_others_do_not() -> None:
    ideal = 0.001 * 500 ** ((np.arange(1_000) + 0.5) / 1_000)
    assert harmonic_misfit(ideal, 0.001) == pytest.approx(0.0005, abs=1e-4)
    assert harmonic_misfit(np.linspace(0.001, 0.5, 1_000), 0.001) > 0.5
    assert harmonic_misfit(np.full(10, 0.5), 0.5) == pytest.approx(1.0)
    assert isnan(harmonic_misfit(np.empty(0), 0.1))
    with pytest.raises(ConfigurationError, match=r"shortest=0\.0"):
        harmonic_misfit(ideal, 0.0)


def test_large_networks_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology.kleinberg(300, 10, seed=1, lattice=True)
    exact = clustering(topology, Generator(PCG64(1)))
    monkeypatch.setattr(link_shapes, "MAX_CLUSTERED", 200)
    assert clustering(topology, Generator(PCG64(1))) == pytest.approx(exact, rel=0.2)


def test_networks_without_links_have_no_lengths() -> None:
    shape = measure_links(Topology.from_edges([], [0.1, 0.2]), 5, 1)
    assert all(
        isnan(value)
        for value in (shape.length_mean, shape.short, shape.clustering, shape.path_mean, shape.nearest, *shape.lengths)
    )
    assert (shape.links, shape.degree_max) == (0, 0)
