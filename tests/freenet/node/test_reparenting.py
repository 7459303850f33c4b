from __future__ import annotations

from typing import Any

import pytest
from suite.freenet_bench import Bench

from fyrehose_twisted.freenet.events import ParentChanged, ParentLost, StreamDropped, Subscribed
from fyrehose_twisted.freenet.node.incoming_requests import ANNOUNCEMENT_DELAY
from fyrehose_twisted.freenet.wire.messages import (
    Accepted,
    BetterRoot,
    DataNotFound,
    Dismissed,
    Located,
    RejectedBusy,
    RejectedLoop,
    RejectedOverload,
    ResubscribeRequest,
    RouteNotFound,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)


@pytest.fixture
def orphan(member: Bench) -> Any:
    """Node with subscriber 3 that lost its parent 1 and has sent a request to neighbour 2."""
    member.add_subscribers(3)
    member.disconnect(1)
    member.wait(1.1)
    member.uid = member.take_request_to(2).uid
    member.events.clear()
    return member


@pytest.fixture
def below(member: Bench) -> Any:
    """Node with subscriber 3 whose parent 1 is restarting."""
    member.add_subscribers(3)
    member.receive(1, SubscribeRestarted(member.key, 77, member.at(0.1)))
    member.take()
    return member


# The parent restarts


def test_a_restart_is_announced_once_unless_the_path_changes(below: Bench) -> None:
    news = SubscribeRestarted(below.key, 77, below.at(0.1))
    below.receive(1, news)
    assert below.take(3) == []
    assert below.node.counters["restarted_again"] == 1
    # Another restart further up takes another path, and so may the same one after its end.
    other = SubscribeRestarted(below.key, 78, below.at(0.05))
    below.receive(1, other)
    assert below.take(3) == [other]
    below.receive(1, SubscribeSucceeded(below.key, 78, below.at(0.0)))
    below.take()
    below.receive(1, news)
    assert below.take(3) == [news]


def test_a_restart_is_announced_once_to_a_subscriber_that_asks_again(below: Bench) -> None:
    below.request(3)
    below.take()
    other = SubscribeRestarted(below.key, 78, below.at(0.05))
    below.receive(1, other)
    assert below.take(3) == [other]


# The parent is lost


def test_a_lost_parent_is_announced_at_once_and_replaced_within_a_second(member: Bench) -> None:
    member.add_subscribers(3)
    for number in (5, 6, 8):
        member.receive_packet(1, number)
    member.take()
    member.disconnect(1)
    assert member.take_events(ParentLost) == [ParentLost(member.key, "parent-lost")]
    (restarted,) = member.take()
    here = member.at(0.2)
    assert restarted == SubscribeRestarted(member.key, restarted.uid, here)
    member.wait(1.0)
    request = member.take_request_to(2)
    assert request == ResubscribeRequest(restarted.uid, member.key, 10, 6, here, here)


def test_the_loss_of_a_neighbour_that_is_not_the_parent_restarts_nothing(member: Bench) -> None:
    member.disconnect(4)
    member.wait(5.0)
    assert member.take() == []


def test_a_new_parent_is_announced_to_the_whole_subtree(orphan: Bench) -> None:
    orphan.receive(2, SubscribeSucceeded(orphan.key, orphan.uid, orphan.at(0.02)))
    assert orphan.take() == [SubscribeSucceeded(orphan.key, orphan.uid, orphan.at(0.02))]
    assert orphan.events == [ParentChanged(orphan.key, 2), Subscribed(orphan.key, orphan.at(0.02), False)]
    assert orphan.stream.settled


def test_a_restarting_node_without_a_nearer_neighbour_becomes_the_root(orphan: Bench) -> None:
    for number in (2, 3, 4):
        orphan.receive(number, RejectedLoop(orphan.uid))
    assert orphan.take(3)[-1:] == [SubscribeSucceeded(orphan.key, orphan.uid, orphan.at(0.2))]
    assert orphan.events == [ParentChanged(orphan.key, None), Subscribed(orphan.key, orphan.at(0.2), True)]


def test_a_subscriber_that_becomes_the_parent_is_dismissed_as_subscriber(orphan: Bench) -> None:
    orphan.receive(2, RejectedLoop(orphan.uid))
    assert orphan.take_request_to(3).uid == orphan.uid
    orphan.receive(3, Unsubscribe(orphan.key), SubscribeSucceeded(orphan.key, orphan.uid, orphan.at(0.02)))
    assert orphan.take() == []
    assert orphan.subscribers == []
    assert orphan.stream.parent.node == 3


def test_two_nodes_cannot_be_each_others_parents(orphan: Bench) -> None:
    orphan.receive(2, RejectedLoop(orphan.uid))
    orphan.take()
    orphan.receive(3, SubscribeSucceeded(orphan.key, orphan.uid, orphan.at(0.02)))
    assert orphan.take() == [Dismissed(orphan.key)]
    assert orphan.subscribers == []


def test_a_relay_restarts_too(bench: Bench) -> None:
    bench.request(3)
    bench.succeed()
    bench.disconnect(1)
    bench.wait(1.0)
    assert isinstance(bench.take_request_to(2), ResubscribeRequest)


def test_a_subscription_during_a_restart_waits_for_its_end(bench: Bench) -> None:
    bench.request(3)
    bench.succeed()
    bench.disconnect(1)
    bench.call("subscribe", bench.key)
    bench.wait(1.0)
    (request,) = bench.take(2)
    assert isinstance(request, ResubscribeRequest)
    bench.receive(2, SubscribeSucceeded(bench.key, request.uid, bench.at(0.02)))
    assert bench.take_events(Subscribed) == [Subscribed(bench.key, bench.at(0.02), False)]


def test_an_unanswered_restart_is_attempted_three_times(orphan: Bench) -> None:
    uids = []
    for _ in range(3):
        assert not orphan.stream.connected
        uids.append(orphan.uid)
        orphan.receive(2, RejectedOverload(orphan.uid))
        orphan.wait(10.0)
        if not orphan.stream.connected:
            orphan.uid = orphan.take_request_to(2).uid
    assert len(set(uids)) == 3
    assert orphan.stream.is_root


def test_only_consecutive_failures_of_a_restart_count(orphan: Bench) -> None:
    for answer in (RejectedOverload, RejectedOverload, None, RejectedOverload, RejectedOverload):
        if answer is None:
            orphan.receive(2, SubscribeSucceeded(orphan.key, orphan.uid, orphan.at(0.0)))
            orphan.receive(2, Dismissed(orphan.key))
        else:
            orphan.receive(2, answer(orphan.uid))
        orphan.wait(10.0)
        orphan.uid = orphan.take_request_to(2).uid
    assert not orphan.stream.connected


def test_a_node_that_meets_nearer_restarting_nodes_retries(orphan: Bench) -> None:
    orphan.receive(2, RejectedBusy(orphan.uid, orphan.at(0.1)))
    orphan.receive(3, RejectedLoop(orphan.uid))
    orphan.receive(4, RejectedLoop(orphan.uid))
    assert not orphan.stream.connected
    assert isinstance(orphan.take(3)[-1], SubscribeRestarted)
    orphan.wait(1.5)
    assert orphan.take_request_to(2).uid != orphan.uid


def test_a_node_that_meets_only_farther_restarting_nodes_becomes_the_root(orphan: Bench) -> None:
    orphan.receive(2, RejectedBusy(orphan.uid, orphan.at(0.3)))
    orphan.receive(3, RouteNotFound(orphan.uid, 3, orphan.at(-0.25)))
    orphan.receive(4, DataNotFound(orphan.uid, orphan.at(0.21)))
    assert orphan.stream.is_root


@pytest.mark.parametrize("answer", [RouteNotFound, DataNotFound])
def test_the_location_of_the_nearest_busy_node_is_returned_to_the_requester(bench: Bench, answer: Any) -> None:
    bench.disconnect(2)
    bench.disconnect(4)
    uid = bench.request(3, must_beat=0.1, best=0.1, htl=2)
    bench.take()
    last = (uid, 1, bench.at(0.05)) if answer is RouteNotFound else (uid, bench.at(0.05))
    bench.receive(1, answer(*last))
    assert bench.take() == [answer(*last)]


def test_a_node_becomes_the_root_after_20_busy_attempts(orphan: Bench) -> None:
    tries = 0
    while not orphan.stream.connected:
        for number in (2, 3, 4):
            orphan.receive(number, RejectedBusy(orphan.uid, orphan.at(0.1)))
        tries += 1
        orphan.wait(1.5)
        if orphan.sent and not orphan.stream.connected:
            orphan.uid = orphan.take_request()[1].uid
    assert tries == 20


# Above a restart


def test_a_restart_of_the_parent_is_announced_to_the_whole_subtree(member: Bench) -> None:
    member.add_subscribers(3)
    restarted = SubscribeRestarted(member.key, 77, member.at(0.1))
    member.receive(1, restarted)
    assert member.take() == [restarted]
    assert member.stream.connected
    assert not member.stream.settled


def test_the_end_of_a_restart_is_announced_to_the_whole_subtree(below: Bench) -> None:
    below.events.clear()
    below.receive(1, SubscribeSucceeded(below.key, 77, below.at(0.03)))
    assert below.take() == [SubscribeSucceeded(below.key, 77, below.at(0.03))]
    assert below.events == [Subscribed(below.key, below.at(0.03), False)]
    assert below.stream.settled


def test_the_end_of_a_restart_with_the_same_root_emits_no_event(below: Bench) -> None:
    below.receive(1, SubscribeSucceeded(below.key, 77, below.at(0.0)))
    assert below.take_events(Subscribed) == []


def test_a_restart_of_the_parent_that_takes_too_long_counts_as_a_lost_parent(below: Bench) -> None:
    below.wait(120.1)
    assert below.take(1) == [Unsubscribe(below.key)]
    assert below.take_events(ParentLost) == [ParentLost(below.key, "parent-restarting")]


def test_a_restart_of_the_parent_that_ends_in_time_does_not_lose_the_parent(below: Bench) -> None:
    below.receive(1, SubscribeSucceeded(below.key, 77, below.at(0.0)))
    below.take()
    below.wait(130.0)
    assert below.take() == []


def test_a_restart_announcement_of_an_unknown_stream_is_counted_as_a_stray(bench: Bench) -> None:
    bench.receive(1, SubscribeRestarted(bench.key, 77, bench.at(0.1)))
    assert bench.node.counters["strays"] == 1


# Routes through the own subtree


def test_the_resubscription_of_the_parent_passes_and_reverses_the_path(below: Bench) -> None:
    below.request(1, must_beat=0.1, best=0.1, uid=77)
    assert below.take_request_to(2).must_beat == below.at(0.1)
    below.receive(2, SubscribeSucceeded(below.key, 77, below.at(0.01)))
    succeeded = SubscribeSucceeded(below.key, 77, below.at(0.01))
    # The old parent must get the Unsubscribe before it learns of its new parent.
    assert below.take(1) == [Unsubscribe(below.key), succeeded]
    assert below.take(3) == [succeeded]
    assert below.stream.parent.node == 2
    assert below.subscribers == [3, 1]


def test_a_node_nearer_than_its_restarting_parent_may_become_the_root(below: Bench) -> None:
    below.request(1, must_beat=0.3, best=0.3, uid=77)
    for number in (2, 3, 4):
        below.receive(number, RejectedLoop(77))
    here = below.at(0.2)
    assert below.take(1)[-2:] == [Unsubscribe(below.key), SubscribeSucceededNewRoot(below.key, 77, here)]
    assert below.stream.is_root


def test_a_node_farther_than_its_restarting_parent_does_not_become_the_root(below: Bench) -> None:
    below.request(1, must_beat=0.1, best=0.4, uid=77)
    for number in (2, 3, 4):
        below.receive(number, RejectedLoop(77))
    assert below.take(1)[-1:] == [RouteNotFound(77, 10)]
    assert below.stream.parent.node == 1


def test_a_resubscription_with_another_uid_does_not_pass(below: Bench) -> None:
    below.request(4, must_beat=0.3, best=0.3, uid=78)
    assert below.take() == [RejectedBusy(78, below.at(0.1))]


def test_the_result_of_an_outdated_resubscription_is_declined(below: Bench) -> None:
    below.request(1, must_beat=0.1, best=0.1, uid=77)
    below.receive(1, SubscribeRestarted(below.key, 78, below.at(0.1)))
    below.take()
    below.receive(2, SubscribeSucceeded(below.key, 77, below.at(0.01)))
    assert below.take(2) == [Unsubscribe(below.key)]
    assert below.take(1) == [RejectedBusy(77, below.at(0.1))]
    assert below.stream.parent.node == 1


def test_a_result_for_a_parent_that_is_settled_again_is_declined(below: Bench) -> None:
    below.request(1, must_beat=0.1, best=0.1, uid=77)
    below.receive(1, SubscribeSucceeded(below.key, 78, below.at(0.05)))
    below.take()
    below.receive(2, SubscribeSucceeded(below.key, 77, below.at(0.01)))
    assert below.take(2) == [Unsubscribe(below.key)]
    assert below.take(1) == [RejectedLoop(77)]


def test_a_result_for_a_former_parent_is_declined_but_it_may_join(below: Bench) -> None:
    below.request(1, must_beat=0.1, best=0.1, uid=77)
    below.receive(1, Dismissed(below.key))
    below.wait(1.1)
    uid = below.take_request_to(1).uid
    below.receive(1, RejectedLoop(uid))
    below.receive(2, SubscribeSucceeded(below.key, uid, below.at(0.15)))
    below.receive(2, SubscribeSucceeded(below.key, uid, below.at(0.05)))
    below.take()
    below.receive(2, SubscribeSucceeded(below.key, 77, below.at(0.05)))
    assert below.sent == [(1, SubscribeSucceeded(below.key, 77, below.at(0.05)))]
    assert below.subscribers == [3, 1]


# Acceptance of resubscribers


@pytest.mark.parametrize(
    ("accept", "must_beat", "taken"),
    [("root", 0.1, True), ("root", 0.04, False), ("own", 0.3, True), ("own", 0.1, False)],
)
def test_a_resubscriber_is_accepted_only_below_a_nearer_root(
    make_bench: type[Bench], accept: str, must_beat: float, taken: bool
) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3}, accept=accept)
    bench.attach(0.05)
    uid = bench.request(3, must_beat=must_beat)
    answer = SubscribeSucceeded(bench.key, uid, bench.at(0.05)) if taken else RejectedLoop(uid)
    assert bench.take(3) == [answer]
    assert bench.subscribers == ([3] if taken else [])


def test_a_node_without_the_stream_routes_a_resubscription(bench: Bench) -> None:
    uid = bench.request(3, must_beat=0.3, best=0.3)
    assert bench.take(3) == [Accepted(uid), SubscribeRestarted(bench.key, uid, bench.at(0.2))]
    request = bench.take_request_to(1)
    assert request == ResubscribeRequest(uid, bench.key, 10, -1, bench.at(0.3), bench.at(0.2))


def test_a_node_without_the_stream_becomes_the_root_only_if_it_is_nearer_than_the_resubscriber(bench: Bench) -> None:
    for must_beat, answer in (
        (0.1, RouteNotFound(1, 10)),
        (0.3, SubscribeSucceededNewRoot(bench.key, 2, bench.at(0.2))),
    ):
        uid = bench.request(3, must_beat=must_beat, best=0.3)
        for number in (1, 2, 4):
            bench.receive(number, RejectedLoop(uid))
        assert bench.take(3)[-1:] == [answer]


def test_a_resubscription_with_a_known_uid_is_rejected_as_a_loop(bench: Bench) -> None:
    uid = bench.request(3, must_beat=0.3)
    bench.take()
    bench.request(4, must_beat=0.3, uid=uid)
    assert bench.take() == [RejectedLoop(uid)]


def test_a_node_in_a_voluntary_restart_rejects_resubscribers(member: Bench) -> None:
    member.receive(1, SubscribeSucceeded(member.key, 0, member.at(0.15)))
    member.call("move", member.at(0.12))
    member.take()
    uid = member.request(3, must_beat=0.3)
    assert member.take() == [RejectedBusy(uid, member.at(0.12))]


# Cycles


def test_a_node_whose_own_restart_its_parent_announces_is_in_a_cycle(orphan: Bench) -> None:
    orphan.receive(2, SubscribeSucceeded(orphan.key, orphan.uid, orphan.at(0.02)))
    orphan.take()
    orphan.receive(2, SubscribeRestarted(orphan.key, orphan.uid, orphan.at(0.2)))
    assert orphan.take(2) == [Unsubscribe(orphan.key)]
    assert orphan.take_events(ParentLost) == [ParentLost(orphan.key, "cycle")]
    (restarted,) = orphan.take(3)
    assert restarted.uid != orphan.uid
    orphan.wait(2.0)
    assert orphan.take_request_to(2).uid == restarted.uid


def test_a_node_whose_last_restart_its_parent_announces_is_in_a_cycle(bench: Bench) -> None:
    uid = bench.request(3, must_beat=0.3, best=0.3)
    bench.succeed(0.01)
    bench.take()
    bench.receive(1, SubscribeRestarted(bench.key, uid, bench.at(0.3)))
    assert bench.take(1) == [Unsubscribe(bench.key)]
    assert bench.node.counters["cycles"] == 1


# Dismissals, reboots, lost links


def test_a_dismissed_node_restarts(member: Bench) -> None:
    member.receive(2, Dismissed(member.key))
    assert member.take_events(ParentLost) == []
    member.receive(1, Dismissed(member.key))
    assert member.take_events(ParentLost) == [ParentLost(member.key, "dismissed")]
    member.wait(1.0)
    # The neighbour may be tried again.
    assert isinstance(member.take_request_to(1), ResubscribeRequest)


def test_a_parent_with_another_boot_id_counts_as_lost(member: Bench) -> None:
    member.disconnect(2)
    member.connect(1, 0.1, boot=2)
    assert member.take_events(ParentLost) == [ParentLost(member.key, "parent-rebooted")]
    assert member.node.counters["reboots"] == 1


def test_a_subscriber_with_another_boot_id_is_removed(member: Bench) -> None:
    member.add_subscribers(3)
    member.connect(3, 0.3, boot=2)
    assert member.subscribers == []


def test_a_subscriber_whose_link_is_down_stays_subscribed_for_a_minute(member: Bench) -> None:
    member.add_subscribers(3, 4)
    for number in (3, 4):
        member.disconnect(number)
    member.receive_packet(1, 5)
    assert member.take() == []
    assert member.node.counters["unsent"] == 2
    member.wait(59.9)
    member.connect(4, -0.4)
    # A subscriber that has another parent by now unsubscribes.
    (told,) = member.take(4)
    assert (type(told), told.key) == (SubscribeSucceeded, member.key)
    member.wait(0.2)
    assert member.subscribers == [4]
    member.receive_packet(1, 6)
    assert [one.packet for one in member.take(4)] == [6]


def test_the_grace_period_of_a_subscriber_restarts_with_each_loss(member: Bench) -> None:
    member.add_subscribers(3)
    member.disconnect(3)
    member.wait(30.0)
    member.connect(3, 0.3)
    member.wait(10.0)
    member.disconnect(3)
    member.wait(59.9)
    assert member.subscribers == [3]
    member.wait(0.2)
    assert member.subscribers == []


# Teardown


def test_teardown_dismisses_the_subtree_and_subscribes_again(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 2: 0.15, 3: 0.3}, on_parent_lost="teardown")
    bench.attach()
    bench.add_subscribers(3)
    bench.disconnect(1)
    assert bench.take() == [Dismissed(bench.key)]
    assert bench.subscribers == []
    bench.wait(1.0)
    assert isinstance(bench.take_request_to(2), SubscribeRequest)


def test_teardown_drops_a_stream_that_the_application_does_not_use(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3}, on_parent_lost="teardown")
    bench.request(3)
    bench.succeed()
    bench.disconnect(1)
    assert bench.node.streams == {}
    assert bench.take_events(StreamDropped) == [StreamDropped(bench.key)]


# Better roots


def test_a_new_neighbour_nearer_than_the_root_is_tried_while_the_old_parent_is_kept(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.1)
    bench.add_subscribers(3)
    bench.connect(5, 0.05)
    (restarted,) = bench.take(3)
    here = bench.at(0.2)
    assert bench.take_request_to(5) == ResubscribeRequest(restarted.uid, bench.key, 10, -1, here, here)
    bench.receive_packet(1, 9)
    assert [one.packet for one in bench.take(3)] == [9]
    bench.receive(5, SubscribeSucceeded(bench.key, restarted.uid, bench.at(0.05)))
    assert bench.take(1)[:1] == [Unsubscribe(bench.key)]
    assert bench.stream.parent.node == 5
    assert bench.take_events(ParentLost) == []


@pytest.mark.parametrize("news", [True, False])
def test_a_request_of_the_root_that_overtakes_its_announcement_waits_for_it(
    make_bench: type[Bench], news: bool
) -> None:
    bench = make_bench(0.02, {1: 0.12, 2: 0.3})
    bench.attach(0.1)
    uid = bench.request(2, best=0.1, must_beat=0.1)
    assert bench.take() == []
    if news:
        bench.receive(1, SubscribeRestarted(bench.key, uid, bench.at(0.1)))
    bench.wait(ANNOUNCEMENT_DELAY)
    if news:
        assert bench.take(2)[0] == Accepted(uid)
        assert bench.take_request_to(1) == ResubscribeRequest(uid, bench.key, 10, -1, bench.at(0.1), bench.at(0.02))
        bench.receive(1, RejectedLoop(uid))
        assert bench.stream.is_root
        assert bench.take(2)[:1] == [SubscribeSucceededNewRoot(bench.key, uid, bench.at(0.02))]
    else:
        assert bench.take() == [RejectedLoop(uid)]


def test_the_old_parent_gets_a_hint_to_the_better_root(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1})
    bench.attach(0.1)
    bench.connect(5, 0.05)
    bench.succeed(0.05)
    assert bench.take(1) == [Unsubscribe(bench.key), BetterRoot(bench.key, bench.at(0.05))]


def test_a_new_neighbour_that_is_no_nearer_than_the_root_changes_nothing(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1})
    bench.attach(0.05)
    bench.connect(5, 0.06)
    assert bench.take() == []


@pytest.mark.parametrize("what", ["located", "moved"])
def test_a_move_restarts_a_stream_if_a_node_is_nearer_than_the_root(make_bench: type[Bench], what: str) -> None:
    bench = make_bench(0.2, {1: 0.1, 2: 0.3})
    bench.attach(0.1)
    for place, restarts in ((0.12, False), (0.08, True)):
        if what == "located":
            bench.receive(2, Located(bench.at(place)))
        else:
            bench.call("move", bench.at(place))
            assert Located(bench.at(place)) in bench.take(2)[:1]
        assert (bench.stream.own_restart_uid is not None) is restarts


def test_a_voluntary_restart_without_a_better_root_changes_nothing(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.1)
    bench.add_subscribers(3)
    bench.connect(5, 0.05)
    uid = bench.take_request_to(5).uid
    for number in (5, 1, 3):
        bench.receive(number, RejectedLoop(uid))
    assert bench.take(3)[-1:] == [SubscribeSucceeded(bench.key, uid, bench.at(0.1))]
    assert bench.stream.settled
    assert bench.stream.parent.node == 1


def test_a_node_nearer_than_the_root_sends_a_hint_to_itself(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1})
    bench.attach(0.1)
    bench.call("move", bench.at(0.05))
    bench.receive(1, RejectedLoop(bench.take_request_to(1).uid))
    assert bench.take() == [BetterRoot(bench.key, bench.at(0.05))]


def test_a_stream_restarts_voluntarily_at_most_once_in_five_minutes(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1})
    bench.attach(0.1)
    for number, offset in ((5, 0.05), (6, 0.04)):
        bench.connect(number, offset)
    uid = bench.take_request_to(5).uid
    for number in (5, 6, 1):
        bench.receive(number, RejectedLoop(uid))
    bench.take()
    bench.connect(7, 0.03)
    assert bench.take() == []
    bench.wait(299.9)
    assert bench.take() == []
    bench.wait(0.2)
    assert bench.take_request_to(7).uid != uid


def test_a_restart_of_the_parent_ends_a_voluntary_restart(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1})
    bench.attach(0.1)
    bench.connect(5, 0.05)
    uid = bench.take_request_to(5).uid
    bench.receive(1, SubscribeRestarted(bench.key, 77, bench.at(0.1)))
    bench.receive(5, SubscribeSucceeded(bench.key, uid, bench.at(0.05)))
    assert bench.take(5) == [Unsubscribe(bench.key)]
    assert bench.stream.parent.node == 1
    bench.receive(1, SubscribeSucceeded(bench.key, 77, bench.at(0.1)))
    assert bench.stream.settled


def test_a_subscriber_that_joins_during_a_voluntary_restart_is_notified_of_it(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.1)
    bench.connect(5, 0.05)
    own = bench.take_request_to(5).uid
    uid = bench.request(3)
    assert bench.take() == [
        SubscribeSucceeded(bench.key, uid, bench.at(0.1)),
        SubscribeRestarted(bench.key, own, bench.at(0.2)),
    ]


# Roots


def test_a_root_probes_after_2_seconds_and_then_with_exponential_backoff(root: Bench) -> None:
    pauses = []
    for _ in range(10):
        pauses.append(root.wait_for_output())
        for _ in (3, 4):
            number, request = root.take_request()
            root.receive(number, RejectedLoop(request.uid))
        root.sent.clear()
    expected = [2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 300.0, 300.0]
    assert pauses == pytest.approx(expected, rel=0.1001)
    assert root.stream.is_root


def test_a_root_that_finds_a_better_root_becomes_a_member(root: Bench) -> None:
    root.add_subscribers(3)
    root.wait(2.2)
    assert root.take_request_to(3).must_beat == root.at(0.05)
    root.wait(10.1)
    root.succeed(0.01)
    assert root.stream.parent.node == 4
    assert root.take_events(Subscribed) == [Subscribed(root.key, root.at(0.01), False)]
    root.take()
    root.wait(1_000.0)
    assert root.take() == []


def test_a_root_that_met_a_nearer_busy_node_probes_again_after_ten_seconds(make_bench: type[Bench]) -> None:
    bench = make_bench(0.05, {3: 0.3}, first_probe=200.0)
    bench.call("subscribe", bench.key)
    bench.receive(3, RejectedLoop(bench.take_request_to(3).uid))
    bench.wait(221.0)
    bench.receive(3, RejectedBusy(bench.take_request_to(3).uid, bench.at(0.01)))
    bench.wait(9.9)
    assert bench.take() == []
    bench.wait(0.2)
    assert isinstance(bench.take_request_to(3), ResubscribeRequest)


def test_a_root_without_neighbours_does_not_probe(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {})
    bench.call("subscribe", bench.key)
    bench.wait(100.0)
    assert bench.node.counters["volunteered"] == 0


def test_the_root_location_follows_a_root_that_moves(root: Bench) -> None:
    root.call("move", root.at(0.3))
    assert root.stream.root == root.at(0.3)


def test_a_hint_makes_the_root_probe(root: Bench) -> None:
    root.add_subscribers(3)
    root.receive(3, BetterRoot(root.key, root.at(0.01)))
    assert root.stream.own_restart_uid is None
    root.wait(1.5)
    assert isinstance(root.take_request_to(3), ResubscribeRequest)
    assert root.node.counters["volunteered"] == 1


def restarts(bench: Bench, seconds: float, *said: Any, answer: Any = RejectedLoop) -> int:
    """Let neighbour 3 send a message every 5 s and answer all requests; return the number of restarts."""
    before = bench.node.counters["volunteered"]
    for _ in range(int(seconds / 0.5)):
        if bench.now % 5.0 == 0.0:
            bench.receive(3, *said)
        bench.wait(0.5)
        for number, message in list(bench.sent):
            if isinstance(message, ResubscribeRequest):
                bench.receive(number, answer(message.uid))
        bench.sent.clear()
    restarted: int = bench.node.counters["volunteered"] - before
    return restarted


def test_hints_restart_a_tree_once_in_a_restart_interval(make_bench: type[Bench]) -> None:
    bench = make_bench(0.05, {3: 0.3}, first_probe=1e6, restart_interval=300.0)
    bench.call("subscribe", bench.key)
    bench.receive(3, RejectedLoop(bench.take_request_to(3).uid))
    bench.add_subscribers(3)
    own = restarts(bench, 3_000.0)
    hinted = restarts(bench, 3_000.0, BetterRoot(bench.key, bench.at(0.01)))
    assert 9 <= own <= 11
    assert 9 <= hinted - own <= 12


def test_a_root_probes_with_exponential_backoff_for_a_nearer_node_that_stays_busy(make_bench: type[Bench]) -> None:
    bench = make_bench(0.05, {3: 0.3}, first_probe=1e6, restart_interval=300.0)
    bench.call("subscribe", bench.key)
    bench.receive(3, RejectedLoop(bench.take_request_to(3).uid))
    bench.add_subscribers(3)
    bench.receive(3, BetterRoot(bench.key, bench.at(0.01)))
    found = restarts(bench, 290.0, answer=lambda uid: RejectedBusy(uid, bench.at(0.01)))
    # After the hint, and then after 10, 20, 40 and 80 s.
    assert found == 5


def test_a_neighbour_that_moves_again_and_again_leaves_one_timer(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.15)
    bench.receive(1, Located(bench.at(0.11)))
    for _ in range(2):
        number, request = bench.take_request()
        bench.receive(number, RejectedLoop(request.uid))
    before = len(bench.node._context._timers)
    for _ in range(40):
        bench.receive(1, Located(bench.at(0.12)))
    assert len(bench.node._context._timers) == before + 1


def test_hints_are_passed_up_at_most_once_in_ten_seconds(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.05)
    bench.add_subscribers(3)
    better = BetterRoot(bench.key, bench.at(0.01))
    bench.receive(3, better, better)
    assert bench.take() == [better]
    bench.wait(10.0)
    bench.receive(3, better)
    assert bench.take() == [better]


def test_a_hint_to_a_location_that_is_not_nearer_is_dropped(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.05)
    bench.add_subscribers(3)
    bench.receive(3, BetterRoot(bench.key, bench.at(0.06)))
    assert bench.take() == []


def test_hints_of_neighbours_that_are_not_subscribed_are_ignored(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.05)
    bench.receive(3, BetterRoot(bench.key, bench.at(0.01)))
    assert bench.take() == []
    assert bench.node.counters["strays"] == 1


def test_a_rejected_resubscriber_nearer_than_the_root_causes_a_hint(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach(0.05)
    uid = bench.request(3, must_beat=0.01)
    assert bench.take(3) == [RejectedLoop(uid)]
    assert bench.take(1) == [BetterRoot(bench.key, bench.at(0.01))]
