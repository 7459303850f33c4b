from __future__ import annotations

from typing import Any

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Topology, TreeExperiment
from fyrehose_twisted.experiments.growth.link_policies import RandomLinks, SmallWorldLinks
from fyrehose_twisted.experiments.measures.link_shapes import measure_links
from fyrehose_twisted.experiments.trials.sessions import Durations

KEY = bytes(20)


def links(experiment: TreeExperiment) -> Topology:
    network: Any = experiment._network
    return Topology.from_edges(network.links(), network.locations, n=experiment.topology.n)


def test_trees_hold_while_nodes_rewire_to_a_small_world() -> None:
    experiment = TreeExperiment(Topology.random(120, 8, seed=1), seed=1)
    for node in range(0, 120, 6):
        experiment.subscribe(node, KEY).addErrback(lambda _: None)
    experiment.run()
    before = measure_links(links(experiment), 300, 1)
    process = experiment.rewiring(SmallWorldLinks(6, 12), 5.0)
    experiment.run(experiment.now + 400)
    process.stop()
    experiment.run()
    experiment.check()
    after = measure_links(links(experiment), 300, 1)
    assert before.greedy.success.value < 0.5 < 0.95 < after.greedy.success.value
    assert after.degree_max <= 12
    assert process.linked > process.unlinked > 0
    assert process.linked - process.unlinked == after.links - before.links
    assert experiment.metrics()["reach"] == 1.0
    changed = process.linked
    experiment.run(experiment.now + 100)
    assert process.linked == changed


def test_a_node_that_returns_gets_new_links() -> None:
    experiment = TreeExperiment(Topology.kleinberg(60, 6, seed=1), seed=1)
    process = experiment.rewiring(RandomLinks(3, 6), 10.0)
    experiment.run(25.0)
    before = set(experiment._network.linked_nodes(7))
    experiment.kill(7)
    experiment.run(45.0)
    assert not links(experiment).neighbours(7).tolist()
    experiment.restart(7)
    assert experiment._network.linked_nodes(7) == []
    experiment.run(120.0)
    after = set(experiment._network.linked_nodes(7))
    assert len(after) >= 3
    assert after != before
    assert {node for node in range(60) if 7 in experiment._network.linked_nodes(node)} == after
    process.stop()


def test_trees_survive_sessions_with_rewiring() -> None:
    experiment = TreeExperiment(Topology.kleinberg(80, 8, seed=2), seed=2)
    for node in range(0, 80, 4):
        experiment.subscribe(node, KEY).addErrback(lambda _: None)
    experiment.run()
    processes: list[Any] = [
        experiment.rewiring(SmallWorldLinks(5, 10), 10.0),
        experiment.sessions(Durations.weibull(0.7, 200), Durations.exponential(50)),
    ]
    experiment.run(experiment.now + 600)
    processes[1].stop()
    experiment.run(experiment.now + 200)
    processes[0].stop()
    experiment.run()
    experiment.check()


def test_wrong_rewirings_are_refused() -> None:
    experiment = TreeExperiment(Topology.ring(9))
    with pytest.raises(ConfigurationError, match="every=0"):
        experiment.rewiring(RandomLinks(), 0)
    with pytest.raises(ConfigurationError, match="does not provide ILinkPolicy"):
        experiment.rewiring(object(), 5.0)  # type: ignore[arg-type]
    experiment.link(0, 4)
    with pytest.raises(ConfigurationError, match="links were changed before"):
        experiment.rewiring(RandomLinks(), 5.0)
