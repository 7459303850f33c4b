from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology, TreeExperiment
from fyrehose_twisted.experiments.topologies.latencies import LinkLatencies

networkx = pytest.importorskip("networkx")

TRIANGLE = Topology.from_edges([("a", "b"), ("b", "c"), ("c", "a")], [0.1, 0.4, 0.7])


@given(st.integers(1, 12), st.floats(0, 1), st.integers(0, 9))
def test_a_topology_survives_the_way_through_networkx(n: int, share: float, seed: int) -> None:
    topology = Topology.from_networkx(networkx.gnp_random_graph(n, share, seed=seed), seed)
    graph = topology.to_networkx()
    again = Topology.from_networkx(graph)
    assert again.edges().tolist() == topology.edges().tolist()
    assert again.locations.tolist() == topology.locations.tolist()
    assert again.labels == topology.labels == ()
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (topology.n, topology.links)


def test_names_and_locations_of_a_graph_are_kept() -> None:
    graph = networkx.Graph([("x", "y"), ("y", ("z", 1))])
    graph.nodes["y"]["place"] = 0.25
    topology = Topology.from_networkx(graph, seed=3, location="place")
    assert topology.labels == ("x", "y", "('z', 1)")
    assert topology.locations[1] == 0.25
    assert topology.locations[0] == Topology.from_networkx(graph, seed=3).locations[0]
    assert topology.edges().tolist() == [[0, 1], [1, 2]]
    assert topology.to_networkx().nodes[2]["label"] == "('z', 1)"


def test_whole_numbers_are_numbered_in_their_order_as_in_a_file(tmp_path: Path) -> None:
    graph = networkx.Graph()
    graph.add_edge(30, 4, latency=0.25)
    graph.add_edge(4, 12)
    topology = Topology.from_networkx(graph, seed=5)
    assert topology.labels == ("4", "12", "30")
    assert topology.edges().tolist() == [[0, 1], [0, 2]]
    topology.to_file(tmp_path / "links.txt")
    again = Topology.from_file(tmp_path / "links.txt")
    assert (again.labels, again.edges().tolist()) == (topology.labels, topology.edges().tolist())
    assert again.locations.tolist() == topology.locations.tolist()
    latencies = LinkLatencies.from_networkx(graph, topology, 1.0)
    assert [latencies(*link, None) for link in ((0, 2), (2, 0), (0, 1))] == [0.25, 0.25, 1.0]  # type: ignore[arg-type]


def test_parallel_links_of_a_multigraph_count_once() -> None:
    topology = Topology.from_networkx(networkx.MultiGraph([(0, 1), (0, 1), (1, 2)]))
    assert (topology.links, topology.repeated) == (2, 1)


@pytest.mark.parametrize(
    ("graph", "problem"),
    [
        (networkx.DiGraph([(0, 1)]), "the graph is directed"),
        (networkx.Graph(), "the graph has no nodes"),
        (networkx.Graph([(1, "1")]), "several nodes are named '1'"),
        (networkx.Graph([(1, 1)]), "links node 0 to itself"),
    ],
)
def test_graphs_that_are_no_networks_are_refused(graph: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        Topology.from_networkx(graph)


@pytest.mark.parametrize("place", [1.0, -0.1, "north", float("nan")])
def test_wrong_locations_are_refused(place: object) -> None:
    graph = networkx.Graph([(0, 1)])
    graph.nodes[1]["location"] = place
    with pytest.raises(ConfigurationError, match="of node 1"):
        Topology.from_networkx(graph)


def test_a_missing_networkx_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'fyrehose_twisted\[graphs\]'"):
        TRIANGLE.to_networkx()


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., LinkLatencies]:
    def found(text: str, default: Any = None) -> LinkLatencies:
        file = tmp_path / "latencies.txt"
        file.write_text(text)
        return LinkLatencies.from_file(file, TRIANGLE, default)

    return found


def test_links_have_the_latencies_of_a_file_in_both_directions(read: Callable[..., LinkLatencies]) -> None:
    latencies = read("# seconds\na b 0.5\n\nc b 2\n", default=0.1)
    assert latencies.missing == 1
    experiment = TreeExperiment(TRIANGLE, latency=latencies)
    network = experiment._network
    assert [network._arrival_time(*link) for link in ((0, 1), (1, 0), (1, 2), (2, 1), (0, 2))] == [0.5, 0.5, 2, 2, 0.1]


def test_a_packet_takes_the_latencies_of_its_way(read: Callable[..., LinkLatencies]) -> None:
    topology = Topology.from_edges([("a", "b"), ("b", "c")], [0.3, 0.5, 0.71])
    experiment = TreeExperiment(topology, latency=LinkLatencies(topology, {(0, 1): 0.5, (1, 2): 0.25}))
    for node in (2, 0):
        experiment.subscribe(node, bytes(20))
        experiment.run()
    experiment.publish(2, bytes(20), b"x")
    experiment.run()
    assert experiment.metrics()["latency_p99"] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a b\n", "line 1: 'a b': a latency is NODE NODE SECONDS"),
        ("a b 1\na x 1\n", "line 2: there is no node 'x'"),
        ("a b fast\n", "line 1: 'fast' is not a number"),
        ("a b 1\nb a 2\n", "line 2: the link has the latency 1 s already"),
        ("a b -1\n", "line 1: '-1' is not a number of seconds, 0 or more"),
        ("a b nan\n", "line 1: 'nan' is not a number of seconds"),
        ("a a 1\n", "latency of a a: the topology has no such link"),
        ("a b 1\n", "2 links have no latency, such as a c; give a default"),
    ],
)
def test_malformed_latencies_are_refused(read: Callable[..., LinkLatencies], text: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read(text)


def test_negative_latencies_are_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"latency of a b, -1\.0: give 0 or more"):
        LinkLatencies(TRIANGLE, {(0, 1): -1.0})


def test_other_links_may_draw_their_latencies(read: Callable[..., LinkLatencies]) -> None:
    latencies = read("a b 0.5\n", default=lambda one, other, rng: 3.0 + one + other)
    experiment = TreeExperiment(TRIANGLE, latency=latencies)
    assert [experiment._network._arrival_time(*link) for link in ((0, 1), (1, 2))] == [0.5, 6.0]


def test_edges_of_a_graph_have_latencies() -> None:
    graph = networkx.Graph()
    graph.add_edge("b", "a", latency=0.2)
    graph.add_edge("a", "c", delay=3)
    topology = Topology.from_networkx(graph)
    latencies = LinkLatencies.from_networkx(graph, topology, 0.7)
    experiment = TreeExperiment(topology, latency=latencies)
    assert [experiment._network._arrival_time(*link) for link in ((0, 1), (1, 0), (2, 1))] == [0.2, 0.2, 0.7]
