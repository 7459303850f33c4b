"""Changes of the network of an experiment, and simulated time."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.errors import (
    OperationalError,
)
from fyrehose_twisted.experiments import Topology, TreeExperiment

KEY = bytes(20)
"""It lies at 0.714."""
OTHER = bytes(range(20))
"""It lies at 0.756."""
NOWHERE = b"\1" * 20

Make = Callable[..., TreeExperiment]
Publish = Callable[..., int]
Result = Callable[..., Any]


class TestNodesAndLinks:
    def test_a_node_that_dies_is_routed_around(self, ring: Make, grown: Make) -> None:
        experiment = grown(ring(), 1, 0)
        assert experiment.tree(KEY) == {3: None, 2: 3, 1: 2, 4: 3, 0: 4}
        experiment.kill(2)
        assert not experiment.is_up(2)
        experiment.run()
        assert experiment.tree(KEY) == {3: None, 4: 3, 0: 4, 1: 0}
        experiment.check()

    def test_a_root_that_dies_is_replaced(self, ring: Make, grown: Make) -> None:
        experiment = grown(ring(), 0, 2)
        experiment.kill(3)
        experiment.run()
        assert [node for node, parent in experiment.tree(KEY).items() if parent is None] == [4]
        experiment.check()

    @pytest.mark.parametrize(("resubscribe", "most"), [("in-turn", 1), ("together", 6)])
    def test_orphans_search_for_parents_sequentially_or_concurrently(self, resubscribe: Any, most: int) -> None:
        experiment = TreeExperiment(Topology.kleinberg(120, 6, seed=1, draw="reference"), seed=1)
        for node in range(0, 120, 3):
            experiment.subscribe(node, KEY)
            experiment.run()
        trace = StringIO()
        experiment.trace(trace)
        experiment.kill_at_once(range(0, 120, 9), resubscribe=resubscribe)
        experiment.run()
        experiment.check()
        looking: set[int] = set()
        sizes = [0]
        for line in map(json.loads, trace.getvalue().splitlines()):
            if line["what"] == "detached":
                looking.add(line["node"])
            elif line["what"] in ("attached", "root", "dropped", "down"):
                looking.discard(line["node"])
            sizes.append(len(looking))
        assert max(sizes) == most
        assert experiment.metrics()["reach"] == 1.0

    def test_a_restarted_node_subscribes_again(self, ring: Make, grown: Make) -> None:
        experiment = grown(ring(), 1, 0)
        experiment.kill(1)
        experiment.run()
        assert experiment.subscribers(KEY) == [0]
        experiment.restart(1)
        experiment.run()
        assert experiment.is_up(1)
        assert experiment.subscribers(KEY) == [1, 0]
        assert 1 in experiment.tree(KEY)
        experiment.check()

    def test_a_disconnected_node_keeps_its_state(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 0, 2)
        number = published(experiment, 0, b"1")
        experiment.kill(0)
        published(experiment, 2, b"2")
        experiment.restart(0, new_boot_id=False)
        experiment.run()
        assert published(experiment, 0, b"3") == number + 2
        assert experiment.metrics()["delivery_ratio"] == 1.0
        experiment.check()

    def test_a_link_that_is_cut_splits_the_tree_until_there_is_another(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0)
        experiment.unlink(1, 2)
        experiment.run(100.0)
        assert experiment.tree(KEY) == {0: 1, 1: None}
        assert experiment.metrics()["roots_per_key"] == 1.0
        grown(experiment, 3)
        assert experiment.metrics()["roots_per_key"] == 2.0
        experiment.link(1, 4)
        experiment.run(1_000.0)
        assert experiment.tree(KEY) == {0: 1, 1: 4, 3: 4, 4: None}
        experiment.check()

    def test_adding_an_existing_link_and_removing_a_missing_one_are_harmless(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0)
        experiment.link(0, 1)
        experiment.unlink(0, 4)
        experiment.run()
        assert experiment.tree(KEY) == {0: 1, 1: 2, 2: 3, 3: 4, 4: None}
        experiment.check()

    def test_a_swap_moves_nodes_and_the_root_follows(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0)
        experiment.swap(2, 4)
        assert experiment.locations == [0.51, 0.56, 0.71, 0.66, 0.61]
        experiment.run(2_000.0)
        tree = experiment.tree(KEY)
        assert [node for node, parent in tree.items() if parent is None] == [2]
        experiment.check()

    def test_churn_continues_until_it_is_stopped(self, grown: Make) -> None:
        experiment = TreeExperiment(Topology.kleinberg(100, 8, 1), seed=3)
        grown(experiment, *range(0, 100, 10))
        churn = experiment.churn(rate=0.5, mean_life=100.0)
        down: set[int] = set()
        for _ in range(50):
            experiment.run(experiment.now + 2.0)
            down |= {node for node in range(100) if not experiment.is_up(node)}
        churn.stop()
        left = [experiment.is_up(node) for node in range(100)]
        # In 100 seconds some 60 nodes die, and 50 come back.
        assert 30 < len(down) < 90
        experiment.run()
        assert [experiment.is_up(node) for node in range(100)] == left
        experiment.check()
        assert experiment.metrics()["reach"] == 1.0

    def test_swapping_attempts_at_the_given_rate(self) -> None:
        experiment = TreeExperiment(Topology.kleinberg(100, 8, 1), seed=3)
        before = experiment.locations
        swapping = experiment.swapping(rate=2.0)
        experiment.run(100.0)
        swapping.stop()
        experiment.run(200.0)
        assert 150 < swapping.attempted < 250
        assert 0 < swapping.accepted < swapping.attempted
        assert sorted(experiment.locations) == sorted(before)
        assert (
            sum(one != other for one, other in zip(experiment.locations, before, strict=True)) <= 2 * swapping.accepted
        )

    def test_links_whose_latency_varies_keep_the_order_even_when_they_break(self) -> None:
        for seed in range(10):
            rng = Random(seed)
            experiment = TreeExperiment(Topology.kleinberg(40, 5, seed), latency=_slow_or_fast, seed=seed)
            for node in range(0, 40, 4):
                experiment.subscribe(node, KEY).addErrback(lambda _: None)
            experiment.run()
            for node in rng.sample(range(40), 12):
                for other in experiment.topology.neighbours(node).tolist():
                    experiment.unlink(node, other)
                    experiment.link(node, other)
                experiment.kill(node)
                experiment.run(experiment.now + rng.choice((0.0, 0.1)))
                experiment.restart(node)
            experiment.run()
            # Until the roots have found one another.
            experiment.run(experiment.now + 2_000.0)
            # A root may be looking for a better one just then.
            experiment.run()
            assert experiment.metrics()["reach"] == 1.0, f"seed {seed}"
            experiment.check()


class TestTime:
    def test_run_advances_the_experiment_to_the_given_time(self, line: Make) -> None:
        experiment = line()
        experiment.subscribe(0, KEY)
        experiment.run(0.12)
        assert experiment.now == 0.12
        assert experiment.messages == 3 * 2 + 1
        experiment.run(0.05)
        assert experiment.now == 0.12
        experiment.run(1_000.0)
        assert experiment.now == 1_000.0

    def test_a_network_that_never_becomes_quiet_is_an_error(self, ring: Make) -> None:
        experiment = TreeExperiment(Topology.ring(20), latency=400.0)
        experiment.subscribe(0, KEY).addErrback(lambda _: None)
        with pytest.raises(OperationalError, match=r"not quiet after 3,600 simulated .* pass a time to run\(\)"):
            experiment.run()

    @pytest.mark.parametrize("latency", [0, 0.2, lambda a, b, rng: 0.2])
    def test_a_message_takes_the_given_latency(self, line: Make, grown: Make, latency: Any) -> None:
        experiment = grown(line(latency=latency), 0)
        assert experiment.now == pytest.approx(8 * (0.2 if latency else 0.0))

    def test_a_latency_function_is_called_for_each_message(self, line: Make, grown: Make) -> None:
        asked: list[tuple[int, int]] = []

        def latency(one: int, other: int, rng: Random) -> float:
            asked.append((one, other))
            return rng.uniform(0.1, 0.2)

        experiment = grown(line(latency=latency), 3)
        assert len(asked) == experiment.messages
        assert set(asked) == {(3, 4), (4, 3), (3, 2), (2, 3), (2, 1), (1, 2), (1, 0), (0, 1)} & set(asked)

    def test_lost_messages_are_not_delivered(self, line: Make) -> None:
        experiment = line(loss=0.999)
        experiment.subscribe(0, KEY).addErrback(lambda _: None)
        experiment.run(5.0)
        assert experiment.tree(KEY) == {0: None}


def _slow_or_fast(one: int, other: int, rng: Random) -> float:
    return rng.choice((0.01, 0.5))
