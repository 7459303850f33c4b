"""Subscriptions and publications in an experiment, and their results."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.errors import (
    ConfigurationError,
    MessageTooLarge,
    PublishRefused,
    TooManyStreams,
)
from fyrehose_twisted.experiments import Policy, SubscriptionFailed, Topology, TreeExperiment
from fyrehose_twisted.experiments.topologies.greedy_routing import greedy_path
from fyrehose_twisted.freenet.wire.location import key_location

KEY = bytes(20)
"""It lies at 0.714."""
OTHER = bytes(range(20))
"""It lies at 0.756."""
NOWHERE = b"\1" * 20

Make = Callable[..., TreeExperiment]
Publish = Callable[..., int]
Result = Callable[..., Any]


class TestSubscribe:
    def test_the_first_request_runs_to_the_node_nearest_to_the_key(self, line: Make, result: Result) -> None:
        experiment = line()
        found = experiment.subscribe(0, KEY)
        assert not found.called
        experiment.run()
        subscription = result(found)
        assert subscription.path == (0, 1, 2, 3, 4)
        assert (subscription.node, subscription.key, subscription.root, subscription.hops) == (0, KEY, 4, 4)
        # Over each link: the request, that it is accepted, where it has got to, and that it succeeded.
        assert (subscription.requests, subscription.messages) == (4, 16)
        assert experiment.tree(KEY) == {0: 1, 1: 2, 2: 3, 3: 4, 4: None}
        assert experiment.now == pytest.approx(8 * 0.05)

    def test_subscribing_at_a_member_sends_no_request(self, line: Make, grown: Make, result: Result) -> None:
        experiment = grown(line(), 0)
        found = experiment.subscribe(2, KEY)
        assert result(found).path == (2, 3, 4)
        assert experiment.subscribers(KEY) == [0, 2]

    def test_a_later_request_stops_at_the_tree(self, line: Make, grown: Make, result: Result) -> None:
        experiment = grown(line(), 2)
        found = experiment.subscribe(0, KEY)
        experiment.run()
        subscription = result(found)
        assert (subscription.path, subscription.requests, subscription.messages) == ((0, 1, 2, 3, 4), 2, 6)

    def test_both_deferreds_of_a_repeated_subscription_fire(self, line: Make, result: Result) -> None:
        experiment = line()
        one, same = experiment.subscribe(0, KEY), experiment.subscribe(0, KEY)
        experiment.run()
        after = experiment.subscribe(0, KEY)
        assert result(one) == result(same)
        assert result(after).path == (0, 1, 2, 3, 4)
        assert experiment.metrics()["subscribers"] == 1.0

    def test_streams_of_different_keys_are_independent(self, line: Make, grown: Make) -> None:
        experiment = grown(grown(line(), 0), 1, key=OTHER)
        assert set(experiment.tree(KEY)) == {0, 1, 2, 3, 4}
        assert set(experiment.tree(OTHER)) == {1, 2, 3, 4}
        assert experiment.tree(NOWHERE) == {}
        assert experiment.subscribers(NOWHERE) == []

    def test_a_subscription_fails_when_the_node_dies(self, line: Make, problem: Result) -> None:
        experiment = line()
        found = experiment.subscribe(0, KEY)
        experiment.kill(0)
        error = problem(found, SubscriptionFailed)
        assert (error.node, error.key, error.reason) == (0, KEY, "node-died")
        assert str(error) == f"node 0 could not join the tree of {KEY.hex()}: node-died"

    def test_a_subscription_fails_when_the_application_unsubscribes(self, line: Make, problem: Result) -> None:
        experiment = line()
        found = experiment.subscribe(0, KEY)
        experiment.unsubscribe(0, KEY)
        assert problem(found, SubscriptionFailed).reason == "unsubscribed"
        experiment.run()
        assert experiment.subscribers(KEY) == []

    def test_the_first_subscription_attempt_fails_at_an_overloaded_node(
        self, line: Make, grown: Make, problem: Result
    ) -> None:
        experiment = grown(line(Policy(max_streams=1, retry=False)), 2)
        found = experiment.subscribe(0, OTHER)
        experiment.run()
        assert problem(found, SubscriptionFailed).reason == "overload"
        assert experiment.metrics()["overload_rate"] > 0.0
        assert experiment.metrics()["subscribe_success"] == 0.5

    def test_subscribing_beyond_max_streams_raises(self, line: Make, grown: Make) -> None:
        experiment = grown(line(Policy(max_streams=1)), 0)
        with pytest.raises(TooManyStreams):
            experiment.subscribe(0, OTHER)
        assert experiment.subscribers(OTHER) == []
        experiment.run()
        experiment.check()

    @pytest.mark.parametrize("lattice", [True, False])
    def test_the_path_of_a_subscription_is_that_of_greedy_routing(self, result: Result, lattice: bool) -> None:
        equal = 0
        for seed in range(100):
            rng = Random(seed)
            topology = Topology.kleinberg(150, 6, seed, lattice=lattice)
            key, node = rng.randbytes(20), rng.randrange(150)
            experiment = TreeExperiment(topology, seed=seed)
            found = experiment.subscribe(node, key)
            experiment.run()
            path, greedy = list(result(found).path), greedy_path(topology, node, key_location(key))
            # Where greedy routing comes to its end, a request looks around for a better place.
            assert path[: len(greedy)] == greedy, f"seed {seed}"
            equal += path == greedy
        assert equal == 100 if lattice else 20 < equal < 80


class TestPublish:
    def test_a_packet_goes_up_to_the_root_and_down_to_all(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 0, 2)
        number = published(experiment, 0, b"hello")
        assert number >= 0
        metrics = experiment.metrics()
        assert (metrics["delivery_ratio"], metrics["duplicates"]) == (1.0, 0.0)

    def test_packet_numbers_of_a_stream_are_consecutive(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 0, 2)
        first = published(experiment, 0, b"1")
        assert published(experiment, 2, b"2") == first + 1
        assert published(experiment, 2, b"9", number=first + 9) == first + 9

    def test_a_packet_number_that_is_taken_is_refused(
        self, line: Make, grown: Make, published: Publish, problem: Result
    ) -> None:
        experiment = grown(line(), 0, 2)
        number = published(experiment, 0, b"1")
        refused = experiment.publish(2, KEY, b"2", number=number)
        experiment.run()
        error = problem(refused, PublishRefused)
        assert (error.why, error.next) == ("collision", number + 1)

    def test_publishing_requires_a_subscription(self, line: Make, problem: Result) -> None:
        error = problem(line().publish(0, KEY, b"hello"), PublishRefused)
        assert error.why == "no-stream"
        assert str(error) == f"node 0 could not publish to {KEY.hex()}: no-stream"

    def test_publishing_fails_when_the_node_dies(self, line: Make, grown: Make, problem: Result) -> None:
        experiment = grown(line(), 0)
        done = experiment.publish(0, KEY, b"hello")
        experiment.kill(0)
        assert problem(done, PublishRefused).why == "node-died"
        # One that was only cut off may tell of it later, to nobody.
        experiment.restart(0, new_boot_id=False)
        experiment.run()
        experiment.check()

    def test_a_packet_that_is_too_long_is_refused_at_once(self, line: Make, grown: Make, published: Publish) -> None:
        experiment = grown(line(), 0)
        with pytest.raises(MessageTooLarge):
            experiment.publish(0, KEY, bytes(1_059))
        assert published(experiment, 0, bytes(1_058)) >= 0


class TestUnsubscribe:
    def test_a_branch_is_removed_with_its_last_subscriber(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0, 2)
        experiment.unsubscribe(0, KEY)
        experiment.run()
        assert experiment.tree(KEY) == {2: 3, 3: 4, 4: None}
        experiment.unsubscribe(2, KEY)
        experiment.run()
        assert experiment.tree(KEY) == {}
        experiment.check()

    def test_a_relay_stays_while_others_need_it(self, line: Make, grown: Make) -> None:
        experiment = grown(line(), 0, 2)
        experiment.unsubscribe(2, KEY)
        experiment.run()
        assert experiment.tree(KEY) == {0: 1, 1: 2, 2: 3, 3: 4, 4: None}
        assert experiment.subscribers(KEY) == [0]

    def test_unsubscribing_without_a_subscription_is_harmless(self, line: Make) -> None:
        experiment = line()
        experiment.unsubscribe(0, KEY)
        assert experiment.tree(KEY) == {}


class TestMistakes:
    @pytest.mark.parametrize(
        ("options", "text"),
        [
            ({"loss": 1.0}, "loss=1.0"),
            ({"loss": -0.1}, "loss=-0.1"),
            ({"latency": -1}, "latency=-1.0"),
            ({"latency": float("inf")}, "latency=inf"),
            ({"latency": float("nan")}, "latency=nan"),
        ],
    )
    def test_invalid_experiments_are_refused(self, line: Make, options: dict[str, Any], text: str) -> None:
        with pytest.raises(ConfigurationError, match=f"^{text}: "):
            line(**options)

    def test_the_result_of_a_latency_function_is_checked(self, line: Make) -> None:
        with pytest.raises(ConfigurationError, match=r"^latency\(0, 1, rng\) is -1\.0: a time is 0 or more seconds"):
            line(latency=lambda a, b, rng: -1.0).subscribe(0, KEY)

    @pytest.mark.parametrize("node", [-1, 5])
    def test_missing_nodes_are_refused(self, line: Make, node: int) -> None:
        experiment = line()
        calls: list[Callable[[], object]] = [
            lambda: experiment.subscribe(node, KEY),
            lambda: experiment.unsubscribe(node, KEY),
            lambda: experiment.publish(node, KEY, b""),
            lambda: experiment.kill(node),
            lambda: experiment.restart(node),
            lambda: experiment.link(0, node),
            lambda: experiment.unlink(node, 0),
            lambda: experiment.swap(0, node),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError, match=f"there is no node {node}; nodes are numbered from 0 to 4"):
                call()

    def test_commands_of_dead_nodes_are_refused(self, line: Make) -> None:
        experiment = line()
        experiment.kill(0)
        calls: list[Callable[[], object]] = [
            lambda: experiment.subscribe(0, KEY),
            lambda: experiment.publish(0, KEY, b""),
            lambda: experiment.kill(0),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError, match="node 0 is down"):
                call()
        with pytest.raises(ConfigurationError, match="node 1 is already running"):
            experiment.restart(1)

    @pytest.mark.parametrize("key", [b"", b"short", bytes(21), "a" * 20, None])
    def test_malformed_keys_are_refused(self, line: Make, key: Any) -> None:
        experiment = line()
        calls: list[Callable[[], object]] = [
            lambda: experiment.subscribe(0, key),
            lambda: experiment.unsubscribe(0, key),
            lambda: experiment.publish(0, key, b""),
        ]
        for call in calls:
            with pytest.raises(ConfigurationError, match="is not a key: a key has 20 bytes"):
                call()

    def test_a_pair_of_the_same_node_is_refused(self, line: Make) -> None:
        experiment = line()
        for call in (experiment.link, experiment.unlink, experiment.swap):
            with pytest.raises(ConfigurationError, match="a=2 and b=2 are the same node; give two nodes"):
                call(2, 2)

    @pytest.mark.parametrize(("rate", "life"), [(-1.0, 1.0), (1.0, 0.0), (float("nan"), 1.0)])
    def test_churn_requires_a_valid_rate_and_lifetime(self, line: Make, rate: float, life: float) -> None:
        with pytest.raises(ConfigurationError, match="the rate must be 0 or more, the life more than 0"):
            line().churn(rate, life)

    def test_swapping_requires_a_valid_rate(self, line: Make) -> None:
        with pytest.raises(ConfigurationError, match="the rate must be more than 0"):
            line().swapping(0.0)
