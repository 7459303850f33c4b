from __future__ import annotations

from math import inf
from typing import Any

import pytest
from suite.freenet_bench import Bench
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, LocalError, TooManyStreams
from fyrehose_twisted.freenet.events import Packet, PacketsDelivered, ParentChanged, Subscribed, SubscribeFailed
from fyrehose_twisted.freenet.node import node as node_module
from fyrehose_twisted.freenet.wire.messages import (
    Accepted,
    DataNotFound,
    RejectedBusy,
    RejectedLoop,
    RejectedOverload,
    RouteNotFound,
    SubscribeData,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)
from fyrehose_twisted.interfaces import IRoutingPolicy

# Members


def test_a_settled_node_accepts_the_requester(member: Bench) -> None:
    uid = member.request(3)
    assert member.take() == [SubscribeSucceeded(member.key, uid, member.at(0.0))]
    assert member.subscribers == [3]


def test_a_new_subscriber_receives_the_packets_that_it_has_not_seen(member: Bench) -> None:
    for number in (5, 6, 7):
        member.receive_packet(1, number)
    member.request(3, last_seen=5)
    assert [one.packet for one in member.take(3)[1:]] == [6, 7]


def test_a_repeated_request_is_answered_with_the_missing_packets_again(member: Bench) -> None:
    member.add_subscribers(3)
    member.receive_packet(1, 5)
    member.take()
    member.request(3, last_seen=4)
    assert member.take(3)[1:] == [SubscribeData(member.key, 5, b"x")]
    assert member.subscribers == [3]


def test_the_parent_is_no_subscriber_at_the_same_time(member: Bench) -> None:
    uid = member.request(1)
    assert member.take() == [RejectedLoop(uid)]
    assert member.subscribers == []


# Forwarding


def test_a_request_is_accepted_and_goes_to_the_nearest_neighbour(bench: Bench) -> None:
    uid = bench.request(3, best=0.4, last_seen=9)
    here = bench.at(0.2)
    assert bench.take(3) == [Accepted(uid), SubscribeRestarted(bench.key, uid, here)]
    assert bench.take(1) == [SubscribeRequest(uid, bench.key, 10, 9, here)]


def test_a_request_with_a_known_uid_is_rejected_as_a_loop(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    bench.request(4, uid=uid)
    assert bench.take() == [RejectedLoop(uid)]


def test_the_nodes_own_request_is_rejected_as_a_loop_when_it_returns(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    _, asked = bench.take_request()
    bench.request(4, uid=asked.uid)
    assert bench.take() == [RejectedLoop(asked.uid)]


def test_neighbours_are_tried_in_order_of_their_distance_except_the_requester(bench: Bench) -> None:
    bench.request(2, best=0.4)
    order = []
    for _ in range(3):
        number, asked = bench.take_request()
        order.append(number)
        bench.receive(number, RejectedLoop(asked.uid))
    assert order == [1, 3, 4]


@implementer(IRoutingPolicy)
class Preference:
    """Policy that prefers neighbours in a given order of their locations, and excludes all others."""

    def __init__(self, *places: float) -> None:
        self._places = places

    def cost(self, here: float, target: float, neighbour: float) -> float:
        return float(self._places.index(neighbour)) if neighbour in self._places else inf


def test_a_routing_policy_decides_the_order_of_neighbours_except_the_requester(
    bench: Bench, make_bench: type[Bench]
) -> None:
    policy = Preference(bench.at(-0.4), bench.at(-0.15), bench.at(0.3))
    bench = make_bench(0.2, {1: 0.1, 2: -0.15, 3: 0.3, 4: -0.4}, config={"routing": policy})
    uid = bench.request(2, best=0.4)
    for expected in (4, 3):
        number, asked = bench.take_request()
        assert number == expected
        bench.receive(number, RejectedLoop(asked.uid))
    # It is nearer than the node before it, and has asked all neighbours that the policy allows.
    assert bench.take() == [SubscribeSucceededNewRoot(bench.key, uid, bench.at(0.2))]


def test_a_suspected_neighbour_comes_last_whatever_a_routing_policy_says(bench: Bench, make_bench: type[Bench]) -> None:
    policy = Preference(bench.at(-0.4), bench.at(-0.15), bench.at(0.3))
    bench = make_bench(0.2, {2: -0.15, 3: 0.3, 4: -0.4}, config={"routing": policy})
    bench.node.suspect(4)
    bench.call("subscribe", bench.key)
    order = []
    for _ in range(3):
        number, asked = bench.take_request()
        order.append(number)
        bench.receive(number, RejectedLoop(asked.uid))
    assert order == [2, 3, 4]


def test_of_two_equally_near_neighbours_the_earlier_one_is_tried(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {7: 0.125, 5: 0.125, 6: 0.125})
    bench.call("subscribe", bench.key)
    assert bench.take_request()[0] == 7


def test_the_next_neighbour_gets_the_same_htl_after_a_loop_and_the_remaining_one_after_route_not_found(
    bench: Bench,
) -> None:
    uid = bench.request(2)
    bench.receive(1, RejectedLoop(uid))
    assert bench.take_request()[1].htl == 10
    bench.receive(3, RouteNotFound(uid, 4))
    assert bench.take_request()[1].htl == 4


def test_route_not_found_cannot_raise_the_htl(bench: Bench) -> None:
    uid = bench.request(2, best=0.01, htl=3)
    bench.receive(1, RouteNotFound(uid, 8))
    assert bench.take_request()[1].htl == 2


def test_a_neighbour_that_does_not_accept_in_time_is_tried_last_for_five_minutes(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    assert bench.take_request()[0] == 1
    bench.wait(9.9)
    assert bench.take() == []
    bench.wait(0.2)
    assert bench.take_request()[0] == 2
    order = []
    for pause in (299.0, 1.0):
        bench.call("unsubscribe", bench.key)
        bench.now += pause
        bench.call("subscribe", bench.key)
        order.append(bench.take_request()[0])
    assert order == [2, 1]


def test_a_neighbour_that_accepts_has_two_minutes_to_answer(bench: Bench) -> None:
    uid = bench.request(3)
    bench.receive(1, Accepted(uid))
    bench.take()
    bench.wait(119.9)
    assert bench.take() == []
    bench.wait(0.2)
    assert bench.take() == [RejectedOverload(uid)]
    assert bench.key not in bench.node.streams


def test_a_second_accepted_does_not_extend_the_timeout(bench: Bench) -> None:
    uid = bench.request(3)
    bench.receive(1, Accepted(uid))
    bench.wait(60.0)
    bench.receive(1, Accepted(uid))
    bench.take()
    bench.wait(60.1)
    assert bench.take() == [RejectedOverload(uid)]


def test_a_neighbour_that_answered_in_time_is_not_suspected(bench: Bench) -> None:
    uid = bench.request(3)
    bench.receive(1, Accepted(uid), SubscribeSucceeded(bench.key, uid, bench.at(0.0)))
    bench.take()
    bench.wait(200.0)
    assert bench.take() == []


def test_answers_of_neighbours_that_were_not_asked_are_ignored(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    for answer in (Accepted(uid), RejectedLoop(uid), RejectedOverload(uid), DataNotFound(uid), RouteNotFound(uid, 1)):
        bench.receive(2, answer)
    assert bench.take() == []
    bench.receive(2, SubscribeSucceeded(bench.key, uid, bench.at(0.0)))
    assert not bench.stream.connected
    bench.wait(10.1)
    assert bench.node.counters["not_accepted"] == 1


def test_the_next_neighbour_is_tried_when_the_link_to_the_last_is_lost(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    bench.disconnect(1)
    assert bench.take_request() == (2, SubscribeRequest(uid, bench.key, 10, -1, bench.at(0.2)))


def test_a_request_is_dropped_when_the_link_to_its_requester_is_lost(bench: Bench) -> None:
    bench.request(3)
    bench.disconnect(3)
    assert bench.node.streams == {}
    assert not bench.node.busy


# Hops to live


def hops(bench: Bench, **request: Any) -> int:
    """Return the HTL with which a request of neighbour 3 is forwarded."""
    bench.request(3, **request)
    return int(bench.take_request()[1].htl)


NEIGHBOURS = {1: 0.1, 2: 0.15, 3: 0.3}


def test_a_node_nearer_than_all_before_resets_the_htl(make_bench: type[Bench]) -> None:
    assert hops(make_bench(0.2, NEIGHBOURS, p_max=1.0), best=0.25, htl=3) == 10


def test_a_nearer_node_keeps_the_htl_if_the_policy_says_so(make_bench: type[Bench]) -> None:
    assert hops(make_bench(0.2, NEIGHBOURS, htl_on_closer="keep", p_max=1.0), best=0.25, htl=3) == 3


@pytest.mark.parametrize(
    ("policy", "htl", "left"),
    [
        ({"p_max": 1.0}, 10, 9),
        ({"p_max": 0.0}, 10, 10),
        ({"p_max": 0.0, "p_min": 0.0}, 9, 8),
        ({"p_min": 0.0}, 1, 1),
        ({"p_min": 0.0}, 2, 1),
        ({"p_max": 0.0}, 200, 10),
        ({"p_max": 1.0}, 200, 9),
    ],
)
def test_a_node_that_is_not_nearer_decrements_the_htl(
    make_bench: type[Bench], policy: dict[str, float], htl: int, left: int
) -> None:
    assert hops(make_bench(0.2, NEIGHBOURS, **policy), best=0.1, htl=htl) == left


def test_an_equally_near_node_is_not_nearer(make_bench: type[Bench]) -> None:
    assert hops(make_bench(0.25, NEIGHBOURS, p_max=1.0), best=0.25, htl=10) == 9


def test_whether_a_link_decrements_the_htl_is_drawn_once(make_bench: type[Bench]) -> None:
    seen = set()
    for seed in range(20):
        bench = make_bench(0.2, NEIGHBOURS, seed=seed, p_max=0.5, max_streams=100)
        drawn = {hops(bench, best=0.0, htl=10, key=bytes(19) + bytes([number])) for number in range(1, 20)}
        assert len(drawn) == 1
        seen |= drawn
    assert seen == {9, 10}


def test_a_request_with_an_exhausted_htl_is_answered_with_data_not_found(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, NEIGHBOURS, p_min=1.0)
    uid = bench.request(3, best=0.1, htl=1)
    assert bench.take()[-1:] == [DataNotFound(uid)]
    assert bench.node.streams == {}


# Results


def test_a_success_is_returned_to_the_requester(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    bench.receive(1, SubscribeSucceeded(bench.key, uid, bench.at(0.03)))
    assert bench.take() == [SubscribeSucceeded(bench.key, uid, bench.at(0.03))]
    assert bench.stream.settled
    assert bench.take_events(ParentChanged) == [ParentChanged(bench.key, 1)]
    assert bench.subscribers == [3]


def test_a_success_with_a_new_root_is_returned_unchanged(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    bench.receive(1, SubscribeSucceededNewRoot(bench.key, uid, bench.at(0.03)))
    assert bench.take() == [SubscribeSucceededNewRoot(bench.key, uid, bench.at(0.03))]


def test_the_nearest_node_becomes_the_root_when_no_neighbour_is_left(bench: Bench) -> None:
    uid = bench.request(3)
    for number in (1, 2, 4):
        bench.receive(number, RejectedLoop(uid))
    assert bench.take(3)[-1:] == [SubscribeSucceededNewRoot(bench.key, uid, bench.at(0.2))]
    assert bench.stream.is_root


def test_the_nearest_node_becomes_the_root_after_data_not_found(bench: Bench) -> None:
    uid = bench.request(3)
    bench.receive(1, DataNotFound(uid))
    assert bench.take(3)[-1:] == [SubscribeSucceededNewRoot(bench.key, uid, bench.at(0.2))]


def test_the_nearest_node_does_not_become_the_root_if_a_nearer_one_was_busy(bench: Bench) -> None:
    uid = bench.request(3)
    bench.receive(1, RouteNotFound(uid, 5, bench.at(0.05)))
    for number in (2, 4):
        bench.receive(number, RejectedLoop(uid))
    assert bench.take(3)[-1:] == [RouteNotFound(uid, 5, bench.at(0.05))]
    assert bench.node.streams == {}


def test_a_subscription_that_met_a_nearer_busy_node_is_retried(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    bench.receive(1, DataNotFound(bench.take_request_to(1).uid, bench.at(0.05)))
    assert bench.take_events(SubscribeFailed) == [SubscribeFailed(bench.key, "busy")]
    bench.wait(4.0)
    assert bench.take_request_to(1).last_seen == -1


def test_a_relay_returns_data_not_found(bench: Bench) -> None:
    uid = bench.request(3, best=0.01)
    bench.receive(1, DataNotFound(uid))
    assert bench.take(3)[-1:] == [DataNotFound(uid)]
    assert bench.take(2) == []
    assert bench.node.streams == {}


def test_a_relay_returns_route_not_found_with_the_remaining_htl(bench: Bench) -> None:
    uid = bench.request(3, best=0.01, htl=5)
    for number in (1, 2, 4):
        bench.receive(number, RejectedLoop(uid))
    assert bench.take(3)[-1:] == [RouteNotFound(uid, 4)]


def test_an_overload_is_returned_without_trying_another_neighbour(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    bench.receive(1, RejectedOverload(uid))
    assert bench.take() == [RejectedOverload(uid)]
    assert bench.node.streams == {}


def test_a_success_that_comes_too_late_is_declined(bench: Bench) -> None:
    bench.request(3)
    bench.take()
    bench.receive(2, SubscribeSucceeded(bench.key, 999, bench.at(0.0)))
    assert bench.take() == [Unsubscribe(bench.key)]
    assert not bench.stream.connected


def test_a_late_success_of_a_neighbour_with_a_new_request_is_not_declined(bench: Bench) -> None:
    bench.request(3)
    bench.take()
    bench.receive(1, SubscribeSucceeded(bench.key, 999, bench.at(0.0)))
    assert bench.take() == []


def test_a_candidate_searches_twice_before_it_becomes_the_root_if_the_policy_says_so(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3}, confirm_root=True)
    uid = bench.request(3)
    bench.take()
    bench.receive(1, RouteNotFound(uid, 2))
    number, again = bench.take_request()
    assert (number, again.htl) == (1, 10)
    assert again.uid != uid
    bench.receive(1, RejectedLoop(again.uid))
    assert bench.take() == [SubscribeSucceededNewRoot(bench.key, uid, bench.at(0.2))]


def test_the_confirming_search_may_find_a_tree(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3}, confirm_root=True)
    uid = bench.request(3)
    bench.receive(1, RouteNotFound(uid, 2))
    bench.succeed(0.05)
    assert bench.stream.root == bench.at(0.05)
    assert bench.subscribers == [3]


# Limits


def fill(bench: Bench, number: int, many: int) -> None:
    for one in range(many):
        bench.request(number, key=bytes(18) + (one + 1).to_bytes(2, "big"), best=0.0)


def test_a_node_has_at_most_32_streams(bench: Bench) -> None:
    fill(bench, 3, 32)
    bench.take()
    uid = bench.request(3)
    assert bench.take() == [RejectedOverload(uid)]
    again = bench.request(3, must_beat=0.3)
    assert bench.take() == [RejectedOverload(again)]
    assert len(bench.node.streams) == 32
    assert bench.node.counters["overloads"] == 2


def test_subscribing_raises_when_the_node_has_the_maximum_number_of_streams(bench: Bench) -> None:
    for one in range(32):
        bench.call("subscribe", bytes([one]) * 20)
    with pytest.raises(TooManyStreams) as caught:
        bench.call("subscribe", b"\xff" * 20)
    assert isinstance(caught.value, LocalError)


# Subscriptions of the application


def test_a_subscription_starts_with_the_maximum_htl(bench: Bench) -> None:
    bench.call("subscribe", bench.key, last_seen=41)
    number, asked = bench.take_request()
    assert (number, asked) == (1, SubscribeRequest(asked.uid, bench.key, 10, 41, bench.at(0.2)))
    bench.receive(1, SubscribeSucceeded(bench.key, asked.uid, bench.at(0.0)))
    assert bench.take_events(Subscribed) == [Subscribed(bench.key, bench.at(0.0), False)]


def test_a_node_without_neighbours_becomes_the_root(make_bench: type[Bench]) -> None:
    bench = make_bench(0.3, {})
    bench.call("subscribe", bench.key)
    assert bench.events == [ParentChanged(bench.key, None), Subscribed(bench.key, bench.at(0.3), True)]


@pytest.fixture
def newcomer(make_bench: type[Bench]) -> Any:
    """Node with a target to dial, subscribed before its first neighbour is up."""
    waiting = {"targets": (("10.0.0.1", 6_180),), "first_neighbour_timeout": 2.0}
    bench = make_bench(0.05, {}, config=waiting)
    bench.call("subscribe", bench.key, last_seen=7)
    return bench


def test_a_node_with_peers_waits_for_its_first_neighbour_before_it_searches(newcomer: Bench) -> None:
    newcomer.wait(1.9)
    assert newcomer.events == []
    newcomer.connect(1, 0.3)
    assert newcomer.take_request_to(1).last_seen == 7
    newcomer.connect(2, 0.1)
    newcomer.wait(0.5)
    assert newcomer.take() == []


def test_a_node_joins_the_tree_of_its_first_neighbour_before_that_one_may_join_it(newcomer: Bench) -> None:
    # The root notices at once that the new node is nearer. Its request arrives together with the end of the handshake.
    newcomer.node.add_neighbour(1, 1, 1, newcomer.at(0.3), newcomer.now)
    uid = newcomer.request(1, must_beat=0.3, best=0.3)
    own, answer = newcomer.take()
    assert (type(own), answer) == (SubscribeRequest, RejectedBusy(uid, newcomer.at(0.05)))
    newcomer.receive(1, SubscribeSucceeded(newcomer.key, own.uid, newcomer.at(0.3)))
    newcomer.receive_packet(1, 8)
    assert newcomer.take_events(Subscribed) == [Subscribed(newcomer.key, newcomer.at(0.3), False)]
    assert newcomer.take_events(PacketsDelivered) == [PacketsDelivered(newcomer.key, [Packet(8, b"x")])]


def test_a_node_that_finds_no_neighbour_in_time_is_the_root(newcomer: Bench) -> None:
    newcomer.wait(2.0)
    assert newcomer.events == [ParentChanged(newcomer.key, None), Subscribed(newcomer.key, newcomer.at(0.05), True)]


def test_a_subscription_that_ends_while_it_waits_for_a_neighbour_asks_nobody(newcomer: Bench) -> None:
    newcomer.call("unsubscribe", newcomer.key)
    newcomer.connect(1, 0.3)
    newcomer.wait(2.0)
    assert newcomer.take() == []


def test_subscribing_twice_is_harmless(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    bench.take()
    bench.call("subscribe", bench.key)
    assert bench.take() == []


def test_subscribing_at_a_member_succeeds_at_once_and_delivers_retained_packets(bench: Bench) -> None:
    uid = bench.request(3)
    bench.receive(1, SubscribeSucceeded(bench.key, uid, bench.at(0.0)))
    for number in (4, 5, 6):
        bench.receive_packet(1, number)
    bench.events.clear()
    bench.call("subscribe", bench.key, last_seen=4)
    subscribed, delivered = bench.events
    assert subscribed == Subscribed(bench.key, bench.at(0.0), False)
    assert [one.number for one in delivered.packets] == [5, 6]


def test_a_failed_subscription_is_retried(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    _, first = bench.take_request()
    bench.receive(1, RejectedOverload(first.uid))
    assert bench.take_events(SubscribeFailed) == [SubscribeFailed(bench.key, "overload")]
    assert bench.take() == []
    bench.wait(5.0)
    _, second = bench.take_request()
    assert second.uid != first.uid
    bench.receive(1, Accepted(second.uid))
    bench.wait(120.1)
    assert bench.take_events(SubscribeFailed) == [SubscribeFailed(bench.key, "timed-out")]


def test_a_failed_subscription_is_not_retried_if_the_policy_says_so(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, NEIGHBOURS, retry=False)
    bench.call("subscribe", bench.key)
    bench.receive(1, RejectedOverload(bench.take_request()[1].uid))
    bench.wait(100.0)
    assert bench.take() == []
    assert bench.node.streams == {}


def test_a_malformed_key_is_refused(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="20 bytes"):
        bench.call("subscribe", bytes(21))
    assert bench.node.streams == {}


@pytest.mark.interpreted
def test_subscribing_to_a_signed_stream_requires_signature_support(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "can_verify", lambda: False)
    with pytest.raises(ConfigurationError, match="pip install"):
        bench.call("subscribe", b"\xed\x25\x51\x9f" + bytes(16))
