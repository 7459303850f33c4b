from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.experiments.measures.routing_stats import study_requests
from fyrehose_twisted.experiments.topologies import request_routing
from fyrehose_twisted.experiments.topologies.greedy_routing import greedy_path
from fyrehose_twisted.experiments.topologies.request_routing import route_requests
from fyrehose_twisted.experiments.topologies.routing_policies import ClockwiseRouting, GreedyRouting
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.freenet.wire.messages import Accepted, DataNotFound, RouteNotFound
from fyrehose_twisted.interfaces import IRoutingPolicy

KEY = bytes(20)
PLACE = key_location(KEY)


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    n = draw(st.integers(2, 16))
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)).filter(lambda pair: pair[0] != pair[1])
    places = draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=n, max_size=n))
    return Topology.from_edges(draw(st.lists(pairs, max_size=40)), places, n=n)


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    """Return policies whose links need not draw anything."""
    certain = st.sampled_from([0.0, 1.0])
    return Policy(
        max_htl=draw(st.integers(1, 4)),
        p_max=draw(certain),
        p_min=draw(certain),
        htl_on_closer=draw(st.sampled_from(["reset", "keep"])),
    )


@settings(max_examples=300)
@given(networks(), policies(), st.sampled_from([None, GreedyRouting(), ClockwiseRouting()]), st.data())
def test_requests_take_the_way_that_running_nodes_send_them(
    topology: Topology, policy: Policy, routing: Any, data: st.DataObject
) -> None:
    source = data.draw(st.integers(0, topology.n - 1))
    experiment = TreeExperiment(topology, policy, routing=routing)
    answers: list[Any] = []
    experiment.subscribe(source, KEY).addCallback(answers.append)
    experiment.run()
    (answer,) = answers
    sent = experiment._network.sent_by_type
    found = route_requests(topology, [source], [PLACE], policy, routing=routing)
    assert (found.end[0], found.hops[0]) == (answer.root, answer.hops)
    assert found.visits[0] == sent[Accepted]
    assert found.dead_ends[0] == sent[RouteNotFound]
    assert found.expired[0] == bool(sent[DataNotFound])
    assert not found.found[0]
    assert not found.cut[0]


@settings(max_examples=150)
@given(networks(), policies(), st.data())
def test_requests_end_at_the_member_at_which_those_of_running_nodes_end(
    topology: Topology, policy: Policy, data: st.DataObject
) -> None:
    first, second = (data.draw(st.integers(0, topology.n - 1)) for _ in range(2))
    experiment = TreeExperiment(topology, policy)
    experiment.subscribe(first, KEY)
    experiment.run()
    members = sorted(experiment.tree(KEY))
    before = experiment._network.sent_by_type[Accepted]
    experiment.subscribe(second, KEY)
    experiment.run()
    found = route_requests(topology, [second], [PLACE], policy, members=members)
    # A member answers without accepting.
    assert found.visits[0] - found.found[0] <= experiment._network.sent_by_type[Accepted] - before <= found.visits[0]
    if not found.found[0]:
        assert experiment.tree(KEY)[int(found.end[0])] is None
    elif second not in members:
        tree = experiment.tree(KEY)
        here: int | None = second
        for _ in range(int(found.hops[0])):
            assert here is not None
            here = tree[here]
        assert here == found.end[0]


def test_many_requests_at_once_equal_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    topology = Topology.kleinberg(200, 6, seed=1)
    sources, keys = np.arange(100), np.linspace(0, 0.99, 100)
    together = route_requests(topology, sources, keys, seed=3)
    assert together.dead_ends.any() or together.expired.any()
    monkeypatch.setattr(request_routing, "_TABLE_SIZE", 200 * 7)
    monkeypatch.setattr(request_routing, "_FIRST_DEPTH", 1)
    apart = route_requests(topology, sources, keys, seed=3)
    for name in ("end", "hops", "nearest", "found", "visits", "dead_ends", "expired", "cut"):
        assert getattr(together, name).tolist() == getattr(apart, name).tolist()


def test_links_draw_whether_they_decrement_the_htl_in_the_given_shares() -> None:
    topology = Topology.random(400, 4, seed=2)
    means = {
        share: study_requests(topology, 300, 1, Policy(max_htl=1, p_max=share, p_min=share)).visits.value
        for share in (0.1, 0.5, 1.0)
    }
    assert means[0.1] > means[0.5] > means[1.0]


def test_backtracking_leaves_a_dead_end() -> None:
    # Node 1 is nearest to the key of all neighbours of 0, but leads nowhere; the way to node 4 begins away from it.
    topology = Topology.from_edges([(0, 1), (0, 2), (2, 3), (3, 4)], [0.2, 0.4, 0.1, 0.95, 0.5])
    found = route_requests(topology, [0], [0.5])
    assert greedy_path(topology, 0, 0.5) == [0, 1]
    # Node 1 is nearer than all before it, so it becomes the root; a request ends there.
    assert (found.end[0], found.hops[0], found.nearest[0]) == (1, 1, False)
    away = Topology.from_edges([(0, 1), (0, 2), (2, 3), (3, 4)], [0.4, 0.2, 0.1, 0.95, 0.5])
    back = route_requests(away, [0], [0.5], Policy(max_htl=10, p_max=1.0))
    assert (back.end[0], back.hops[0], back.dead_ends[0], back.visits[0]) == (4, 3, 1, 4)
    short = route_requests(away, [0], [0.5], Policy(max_htl=2, p_max=1.0, p_min=1.0))
    assert (short.end[0], short.hops[0], short.expired[0], short.nearest[0]) == (0, 0, True, False)


def test_a_request_is_given_up_after_the_maximum_of_visits() -> None:
    topology = Topology.ring(50, 1, seed=1)
    policy = Policy(max_htl=1, p_min=1.0, p_max=1.0)
    found = route_requests(topology, [0, 1], topology.locations[[25, 2]], policy, max_visits=5)
    assert found.cut.tolist() == [True, False]
    assert found.visits.tolist() == [5, 2]


def test_a_source_in_the_tree_needs_no_request() -> None:
    found = route_requests(Topology.ring(9, 1), [4], [0.5], members=[4])
    assert (found.end[0], found.hops[0], found.visits[0], found.found[0]) == (4, 0, 0, True)


def test_a_routing_policy_excludes_neighbours_by_an_infinite_cost_or_none() -> None:
    @implementer(IRoutingPolicy)
    class Shy:
        def __init__(self, cost: float) -> None:
            self._cost = cost

        def cost(self, here: Any, target: Any, neighbour: Any) -> Any:
            return neighbour * 0.0 + self._cost

    topology = Topology.ring(9, 2)
    for cost in (np.inf, np.nan):
        assert route_requests(topology, [3], [0.9], routing=Shy(cost)).visits[0] == 0
        experiment = TreeExperiment(topology, routing=Shy(cost))
        experiment.subscribe(3, KEY)
        experiment.run()
        assert experiment.tree(KEY) == {3: None}


def test_clockwise_routing_needs_more_hops_than_greedy_routing() -> None:
    topology = Topology.kleinberg(2_000, 12, seed=1, lattice=True)
    greedy, clockwise = (
        study_requests(topology, 300, 1, routing=routing) for routing in (GreedyRouting(), ClockwiseRouting())
    )
    assert greedy.hops.high < clockwise.hops.low


def test_no_requests_have_no_results() -> None:
    assert len(route_requests(Topology.ring(3), np.empty(0, np.int64), []).end) == 0


@pytest.mark.parametrize(
    ("arguments", "options", "problem"),
    [
        (([0, 1], [0.5]), {}, "each request needs one of each"),
        (([9], [0.5]), {}, "node 9"),
        (([0], [1.0]), {}, "a location goes from 0"),
        (([0], [0.5]), {"policy": Policy(confirm_root=True)}, "confirm_root"),
        (([0], [0.5]), {"max_visits": 0}, "max_visits=0"),
        (([0], [0.5]), {"members": [7]}, "members"),
    ],
)
def test_wrong_requests_are_refused(arguments: Any, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        route_requests(Topology.ring(5), *arguments, **options)
    with pytest.raises(ConfigurationError, match="at least one"):
        study_requests(Topology.ring(5), 0, 1)


def test_an_object_that_is_no_routing_policy_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="does not provide IRoutingPolicy"):
        TreeExperiment(Topology.ring(5), routing=object())
