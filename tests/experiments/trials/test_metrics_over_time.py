from __future__ import annotations

from collections.abc import Callable
from io import StringIO
from math import isnan

import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.experiments.measures.node_metrics import node_metrics
from fyrehose_twisted.experiments.trials.sessions import Durations

KEY = bytes(20)
Make = Callable[..., TreeExperiment]

SUMS = ("messages", "simulated")


def busy(seed: int = 1) -> TreeExperiment:
    experiment = TreeExperiment(Topology.kleinberg(80, 6, seed=seed), seed=seed)
    for node in range(0, 80, 3):
        experiment.subscribe(node, KEY).addErrback(lambda _: None)
    experiment.run()
    return experiment


def test_reset_metrics_cover_the_time_from_then_on(line: Make, grown: Make, published: Callable[..., int]) -> None:
    experiment = grown(line(), 0, 4)
    published(experiment, 0, b"before")
    experiment.kill(3)
    experiment.run()
    experiment.reset_metrics()
    at_once = experiment.metrics()
    assert at_once["messages"] == at_once["simulated"] == 0.0
    assert all(
        isnan(at_once[name]) for name in ("delivery_ratio", "latency_p50", "subscribe_success", "lost_in_repair")
    )
    assert at_once["members"] == 5.0 - 1.0
    experiment.restart(3)
    experiment.run()
    before = experiment.metrics()["messages"]
    published(experiment, 4, b"after")
    found = experiment.metrics()
    assert found["messages"] > before > 0.0
    assert found["delivery_ratio"] == 1.0


def test_a_packet_under_way_at_the_reset_does_not_count(line: Make, grown: Make) -> None:
    experiment = grown(line(), 0, 1, 2, 3, 4)
    done = experiment.publish(0, KEY, b"x")
    experiment.run(experiment.now + 0.12)
    experiment.reset_metrics()
    experiment.run()
    assert done.called
    found = experiment.metrics()
    assert isnan(found["delivery_ratio"])
    assert isnan(found["latency_p50"])
    assert found["messages"] > 0.0
    experiment.check()


def test_late_deliveries_of_a_published_packet_do_not_pile_up(line: Make, grown: Make) -> None:
    experiment = grown(line(), 0, 1, 2, 3, 4)
    done = experiment.publish(4, KEY, b"x")
    assert done.called
    experiment.reset_metrics()
    experiment.run()
    assert isnan(experiment.metrics()["latency_p50"])
    assert not experiment._metrics._early_deliveries


def test_duplicates_are_still_found_after_a_reset(line: Make, grown: Make, published: Callable[..., int]) -> None:
    experiment = grown(line(), 0, 4)
    published(experiment, 0, b"x")
    experiment._metrics.duplicate_deliveries.append((0, KEY, 1))
    experiment.reset_metrics()
    with pytest.raises(AssertionError, match="twice"):
        experiment.check()


def test_counts_of_a_node_that_died_do_not_become_negative() -> None:
    experiment = busy()
    experiment.reset_metrics()
    for node in range(0, 80, 2):
        experiment.kill(node)
    experiment.run()
    for node in range(0, 80, 2):
        experiment.restart(node, new_boot_id=node % 4 == 0)
    experiment.run()
    assert all(value >= 0.0 for row in experiment.node_metrics() for value in row.values())
    found = experiment.metrics()
    assert 0.0 <= found["overload_rate"] <= 1.0


def test_samples_cover_the_time_between_them_and_add_up() -> None:
    experiment = busy()
    before = experiment.metrics()
    sampling = experiment.sampling(20.0)
    began = experiment.now
    experiment.sessions(Durations.exponential(60), Durations.exponential(20))
    for step in range(1, 6):
        experiment.publish(experiment.subscribers(KEY)[0], KEY, bytes([step])).addErrback(lambda _: None)
        experiment.run(began + step * 19.0)
    sampling.stop()
    sampling.stop()
    samples, after = sampling.samples, experiment.metrics()
    assert [sample["t"] - began for sample in samples] == pytest.approx([20, 40, 60, 80, 95])
    for name in SUMS:
        assert sum(sample[name] for sample in samples) == pytest.approx(after[name] - before[name])
    assert samples[-1]["members"] == after["members"]
    assert len({sample["members"] for sample in samples}) > 1
    experiment.run(began + 200)
    assert len(sampling.samples) == 5


def test_sampling_leaves_the_metrics_of_the_experiment_alone() -> None:
    sampled, plain = busy(), busy()
    sampled.sampling(1.0)
    for experiment in (sampled, plain):
        experiment.kill_at_once([3, 6, 9])
        experiment.publish(12, KEY, b"x").addErrback(lambda _: None)
        experiment.run(experiment.now + 300)
    one, other = sampled.metrics(), plain.metrics()
    assert {name: value for name, value in one.items() if value == value} == {
        name: value for name, value in other.items() if value == value
    }


def test_a_series_has_a_row_per_sample() -> None:
    experiment = busy()
    sampling = experiment.sampling(5.0)
    experiment.run(experiment.now + 11)
    sampling.stop()
    out = StringIO()
    sampling.write_csv(out)
    heading, *rows = out.getvalue().splitlines()
    assert heading.split(",")[:3] == ["t", "keys", "subscribers"]
    assert len(rows) == 3
    assert ",," in rows[0]


@pytest.mark.parametrize("every", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_intervals_are_refused(every: float) -> None:
    with pytest.raises(ConfigurationError, match="every="):
        TreeExperiment(Topology.ring(5)).sampling(every)


def test_metrics_of_nodes_tell_their_place_in_the_trees(line: Make, grown: Make, published: Callable[..., int]) -> None:
    experiment = grown(line(Policy(max_htl=5)), 0)
    published(experiment, 0, b"x")
    rows = experiment.node_metrics()
    assert [row["node"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["links"] for row in rows] == [1, 2, 2, 2, 1]
    assert [row["subscriptions"] for row in rows] == [1, 0, 0, 0, 0]
    assert [row["streams"] for row in rows] == [1, 1, 1, 1, 1]
    assert [row["roots"] for row in rows] == [0, 0, 0, 0, 1]
    assert [row["children"] for row in rows] == [0, 1, 1, 1, 1]
    assert sum(row["sent"] for row in rows) == sum(row["received"] for row in rows) == experiment.messages
    experiment.reset_metrics()
    assert [row["sent"] for row in experiment.node_metrics()] == [0] * 5
    experiment.kill(2)
    experiment.run()
    assert [(row["up"], row["links"]) for row in experiment.node_metrics()] == [(1, 1), (1, 1), (0, 2), (1, 1), (1, 1)]


def test_nodes_that_never_took_part_have_metrics() -> None:
    experiment = TreeExperiment(Topology.ring(5))
    rows = node_metrics(experiment._network, experiment._metrics.baseline, {})
    assert all(row["sent"] == row["received"] == row["streams"] == 0 for row in rows)
