"""Effects of policies on growing and healing trees."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.freenet.wire.messages import Dismissed, ResubscribeRequest, SubscribeRequest

KEY = bytes(20)
NODES = 150
CHOICES: list[dict[str, Any]] = [
    {},
    {"on_parent_lost": "teardown"},
    {"accept": "own"},
    {"coalesce": "reject"},
    {"coalesce": "parallel"},
    {"confirm_root": True},
    {"htl_on_closer": "keep"},
    {"on_parent_lost": "teardown", "coalesce": "reject", "accept": "own", "confirm_root": True},
]

Make = Callable[..., TreeExperiment]


def crowd(seed: int, **choice: Any) -> tuple[TreeExperiment, Random, list[Any]]:
    """Subscribe 25 nodes at once; return the experiment and the nodes whose first attempt failed."""
    rng, failed = Random(f"{seed}/test"), list[Any]()
    experiment = TreeExperiment(Topology.kleinberg(NODES, 8, seed), Policy(**choice), seed=seed)
    for node in rng.sample(range(NODES), 25):
        experiment.subscribe(node, KEY).addErrback(failed.append)
    experiment.run()
    return experiment, rng, failed


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("choice", CHOICES, ids=lambda choice: "-".join(map(str, choice.values())) or "default")
def test_many_simultaneous_subscribers_form_one_tree_and_do_so_again_after_deaths(
    choice: dict[str, Any], seed: int
) -> None:
    experiment, rng, _ = crowd(seed, **choice)
    experiment.check()
    metrics = experiment.metrics()
    assert (metrics["reach"], metrics["roots_per_key"], metrics["cycles"]) == (1.0, 1.0, 0.0)
    for node in rng.sample(range(NODES), 15):
        experiment.kill(node)
    experiment.run()
    experiment.check()
    # Until roots have found one another, if there are several.
    experiment.run(experiment.now + 2_000.0)
    experiment.run()
    experiment.check()
    for text in (b"one", b"another"):
        published: list[int] = []
        experiment.publish(experiment.subscribers(KEY)[0], KEY, text).addCallback(published.append)
        experiment.run()
        assert len(published) == 1
    metrics = experiment.metrics()
    assert (metrics["reach"], metrics["delivery_ratio"], metrics["cycles"]) == (1.0, 1.0, 0.0)


class TestOnParentLost:
    @pytest.mark.parametrize("choice", ["graft", "teardown"])
    def test_the_subtree_of_an_orphan_is_kept_or_dismissed(self, line: Make, grown: Make, choice: Any) -> None:
        experiment = grown(line(Policy(on_parent_lost=choice)), 0)
        sent = experiment._network.sent_by_type
        before = sent.copy()
        experiment.kill(3)
        experiment.run()
        graft = choice == "graft"
        # Node 2 told node 1, which told node 0: to wait, or that each is on its own.
        assert sent[Dismissed] - before[Dismissed] == (0 if graft else 2)
        assert sent[ResubscribeRequest] - before[ResubscribeRequest] == (2 if graft else 0)
        assert sent[SubscribeRequest] - before[SubscribeRequest] == (0 if graft else 2)
        assert experiment.tree(KEY)[0] == 1
        experiment.check()


class TestCoalesce:
    def test_queued_subscriptions_do_not_fail(self) -> None:
        for seed in range(5):
            experiment, _, failed = crowd(seed, coalesce="queue")
            assert failed == [], f"seed {seed}"
            assert experiment.metrics()["subscribe_success"] == 1.0

    def test_a_rejected_subscription_fails_once_and_is_retried(self) -> None:
        experiment, _, failed = crowd(1, coalesce="reject")
        assert {failure.value.reason for failure in failed} == {"overload"}
        assert len(failed) > 12
        assert experiment.metrics()["reach"] == 1.0

    def test_parallel_routing_sends_more_requests(self) -> None:
        queued, _, _ = crowd(1, coalesce="queue")
        routed, _, _ = crowd(1, coalesce="parallel")
        assert routed._network.sent_by_type[SubscribeRequest] > queued._network.sent_by_type[SubscribeRequest]


class TestAccept:
    @pytest.mark.parametrize(("choice", "parent"), [("root", 0), ("own", None)])
    def test_the_accept_policy_decides_which_location_is_compared(self, grown: Make, choice: Any, parent: Any) -> None:
        edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]
        ring = Topology.from_edges(edges, [0.2, 0.3, 0.5, 0.7, 0.9])
        experiment = grown(TreeExperiment(ring, Policy(accept=choice, restart_jitter=0.0)), 1, 0)
        assert (experiment.tree(KEY)[1], experiment.tree(KEY)[0]) == (2, 4)
        experiment.kill(2)
        # Its other neighbour is not nearer to the key than it is itself; that one's root is.
        experiment.run(experiment.now + 0.2)
        assert experiment.tree(KEY)[1] == parent


class TestRouting:
    @pytest.mark.parametrize(("far", "found"), [(1, True), (2, True), (3, False)])
    def test_the_htl_is_decremented_away_from_the_key(self, grown: Make, far: int, found: bool) -> None:
        locations = [0.6, 0.7, *(0.1 + node / 100 for node in range(far)), 0.7138]
        experiment = grown(_path(locations, max_htl=3), 0)
        assert _root(experiment) == (far + 2 if found else 1)

    @pytest.mark.parametrize(("choice", "root"), [("reset", 7), ("keep", 4)])
    def test_a_request_that_comes_nearer_resets_or_keeps_its_htl(self, grown: Make, choice: str, root: int) -> None:
        locations = [0.6, 0.7, 0.1, 0.11, 0.71, 0.12, 0.13, 0.7138]
        experiment = grown(_path(locations, max_htl=3, htl_on_closer=choice), 0)
        assert _root(experiment) == root

    def test_a_confirmed_root_searches_twice(self, ring: Make, grown: Make) -> None:
        plain, confirmed = (grown(ring(Policy(confirm_root=confirm)), 0) for confirm in (False, True))
        assert _root(plain) == _root(confirmed) == 3
        assert confirmed.messages > plain.messages


def _path(locations: list[float], **choice: Any) -> TreeExperiment:
    edges = [(node, node + 1) for node in range(len(locations) - 1)]
    return TreeExperiment(Topology.from_edges(edges, locations), Policy(p_max=1.0, p_min=1.0, **choice))


def _root(experiment: TreeExperiment) -> int:
    (root,) = [node for node, parent in experiment.tree(KEY).items() if parent is None]
    return root
