from __future__ import annotations

from typing import Any

import pytest
from suite.freenet_bench import Bench

from fyrehose_twisted.freenet.events import Subscribed
from fyrehose_twisted.freenet.wire.messages import (
    Accepted,
    DataNotFound,
    RejectedBusy,
    RejectedLoop,
    RejectedOverload,
    ResubscribeRequest,
    RouteNotFound,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
)


@pytest.fixture
def looking(bench: Bench) -> Any:
    """Node that has sent a request of its own to neighbour 1."""
    bench.call("subscribe", bench.key)
    bench.uid = bench.take_request()[1].uid
    return bench


# Order of waiting requests


def test_a_request_with_a_farther_best_location_waits(looking: Bench) -> None:
    uid = looking.request(3, best=0.4)
    assert looking.take() == [Accepted(uid), SubscribeRestarted(looking.key, looking.uid, looking.at(0.2))]


def test_a_request_with_a_nearer_best_location_does_not_wait(looking: Bench) -> None:
    uid = looking.request(3, best=0.01)
    nearer = looking.at(0.01)
    assert looking.take(3) == [Accepted(uid), SubscribeRestarted(looking.key, uid, nearer)]
    assert [type(one) for one in looking.take(1)] == [SubscribeRequest]


def test_of_two_equally_near_requests_the_one_with_the_higher_uid_waits(make_bench: type[Bench]) -> None:
    for uid, waits in ((2**64 - 1, True), (0, False)):
        bench = make_bench(0.25, {1: 0.1, 3: 0.3})
        bench.call("subscribe", bench.key)
        bench.take()
        bench.request(3, best=0.25, uid=uid)
        assert (bench.take(1) == []) is waits


def test_a_request_waits_for_the_one_with_the_smallest_rank(looking: Bench) -> None:
    first = looking.request(3, best=0.01)
    looking.take()
    looking.request(4, best=0.05)
    assert looking.take()[-1:] == [SubscribeRestarted(looking.key, first, looking.at(0.01))]


def test_queued_requests_are_accepted_when_a_parent_is_found(looking: Bench) -> None:
    waiting = [looking.request(number, best=0.4) for number in (3, 4)]
    looking.take()
    looking.receive(1, SubscribeSucceeded(looking.key, looking.uid, looking.at(0.0)))
    joined = [SubscribeSucceeded(looking.key, uid, looking.at(0.0)) for uid in waiting]
    assert looking.take() == joined
    assert looking.subscribers == [3, 4]


def test_parallel_requests_are_accepted_when_a_parent_is_found(looking: Bench) -> None:
    uid = looking.request(3, best=0.01)
    looking.take()
    looking.receive(1, SubscribeSucceeded(looking.key, looking.uid, looking.at(0.0)))
    assert looking.take() == [SubscribeSucceeded(looking.key, uid, looking.at(0.0))]
    assert not looking.node.busy


def test_the_application_is_subscribed_when_a_neighbours_request_finds_a_parent(looking: Bench) -> None:
    uid = looking.request(3, best=0.01)
    looking.take()
    looking.receive(1, SubscribeSucceeded(looking.key, uid, looking.at(0.0)))
    assert looking.take_events(Subscribed) == [Subscribed(looking.key, looking.at(0.0), False)]
    assert not looking.node.busy


def test_queued_requests_are_accepted_by_a_new_root(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4})
    first = bench.request(3)
    second = bench.request(4)
    bench.take()
    bench.receive(1, DataNotFound(first))
    here = bench.at(0.2)
    assert bench.take(3) == [SubscribeSucceededNewRoot(bench.key, first, here)]
    assert bench.take(4) == [SubscribeSucceeded(bench.key, second, here)]


def test_queued_requests_are_routed_when_the_first_finds_no_tree(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4})
    first = bench.request(3, best=0.01)
    second = bench.request(4, best=0.02)
    bench.take()
    bench.receive(1, DataNotFound(first))
    assert bench.take(3) == [DataNotFound(first)]
    assert bench.take(4) == []
    assert bench.take_request_to(1).uid == second


def test_the_stream_is_dropped_when_queued_requests_have_no_htl_left(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4})
    first = bench.request(3, best=0.01)
    second = bench.request(4, best=0.02, htl=0)
    bench.take()
    bench.receive(1, DataNotFound(first))
    assert bench.take(3) == [DataNotFound(first)]
    assert bench.take(4) == [DataNotFound(second)]
    assert bench.node.streams == {}


def test_the_application_searches_again_when_a_neighbours_request_fails(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    first = bench.request(3, best=0.01)
    bench.call("subscribe", bench.key)
    bench.take()
    bench.receive(1, DataNotFound(first))
    assert bench.take_request_to(1).uid != first


def test_a_queued_request_is_routed_when_the_requester_before_it_is_lost(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4})
    bench.request(3, best=0.01)
    second = bench.request(4, best=0.02)
    bench.take()
    bench.disconnect(3)
    assert bench.take(4) == []
    assert bench.take_request_to(1).uid == second


def test_no_request_is_sent_on_a_link_that_is_being_replaced(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.15, 3: 0.1, 4: 0.4})
    bench.request(3, best=0.01)
    second = bench.request(4, best=0.02)
    bench.take()
    bench.connect(3, 0.1, boot=2)
    assert bench.take(3) == []
    assert bench.take_request_to(1).uid == second


def test_a_queued_request_times_out_after_30_seconds(looking: Bench) -> None:
    looking.receive(1, Accepted(looking.uid))
    uid = looking.request(3, best=0.4, htl=7)
    looking.take()
    looking.wait(29.9)
    assert looking.take() == []
    looking.wait(0.2)
    assert looking.take() == [RouteNotFound(uid, 7, looking.at(0.2))]
    looking.receive(1, SubscribeSucceeded(looking.key, looking.uid, looking.at(0.0)))
    assert looking.subscribers == []


def test_a_queued_request_is_dropped_when_its_requester_is_lost(looking: Bench) -> None:
    looking.request(3, best=0.4)
    looking.disconnect(3)
    looking.receive(1, SubscribeSucceeded(looking.key, looking.uid, looking.at(0.0)))
    assert looking.subscribers == []


def test_a_node_queues_at_most_32_requests(looking: Bench) -> None:
    for number in range(200, 232):
        looking.connect(number, 0.45)
        looking.request(number, best=0.45)
    looking.take()
    uid = looking.request(3, best=0.45)
    assert looking.take() == [RejectedOverload(uid)]


def test_a_node_has_at_most_16_pending_requests_for_a_key(looking: Bench) -> None:
    for number in range(200, 215):
        looking.connect(number, 0.45)
        looking.request(number, best=0.1 - 0.001 * (number - 200))
    looking.take()
    uid = looking.request(3, best=0.01)
    assert looking.take() == [RejectedOverload(uid)]


# The other policies


def test_a_second_request_is_rejected_if_the_policy_says_so(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3}, coalesce="reject")
    bench.call("subscribe", bench.key)
    bench.take()
    uid = bench.request(3)
    assert bench.take() == [RejectedOverload(uid)]


def test_a_subscription_rejected_because_of_a_pending_request_is_retried_later(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3}, coalesce="reject")
    uid = bench.request(3)
    bench.call("subscribe", bench.key)
    bench.take()
    bench.receive(1, RejectedOverload(uid))
    assert bench.take() == [RejectedOverload(uid)]
    bench.wait(2.0)
    assert bench.take_request_to(1).uid != uid


def test_a_second_request_is_routed_as_well_if_the_policy_says_so(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3}, coalesce="parallel")
    bench.call("subscribe", bench.key)
    bench.take()
    uid = bench.request(3)
    assert bench.take_request_to(1).uid == uid


# Requests during a restart


def test_a_request_below_a_restart_waits_for_its_end(member: Bench) -> None:
    member.receive(1, SubscribeRestarted(member.key, 77, member.at(0.05)))
    uid = member.request(3, best=0.4)
    assert member.take() == [Accepted(uid), SubscribeRestarted(member.key, 77, member.at(0.05))]
    member.receive(1, SubscribeSucceeded(member.key, 77, member.at(0.01)))
    assert member.take() == [SubscribeSucceeded(member.key, uid, member.at(0.01))]


def test_a_request_to_a_restarting_node_waits_for_its_restart(member: Bench) -> None:
    member.disconnect(1)
    member.take()
    uid = member.request(3, best=0.4)
    accepted, restarted = member.take()
    assert (accepted, restarted.place) == (Accepted(uid), member.at(0.2))
    member.wait(1.1)
    asked = member.take_request()[1]
    assert isinstance(asked, ResubscribeRequest)
    assert asked.uid == restarted.uid


def test_a_waiting_requester_is_notified_of_later_restarts(member: Bench) -> None:
    member.receive(1, SubscribeRestarted(member.key, 77, member.at(0.05)))
    member.request(3, best=0.4)
    member.take()
    later = SubscribeRestarted(member.key, 78, member.at(0.06))
    member.receive(1, later)
    assert member.take(3) == [later]


def test_a_wait_for_a_restart_times_out_after_30_seconds(member: Bench) -> None:
    member.receive(1, SubscribeRestarted(member.key, 77, member.at(0.05)))
    uid = member.request(3, best=0.4)
    member.take()
    member.wait(30.1)
    assert member.take(3) == [RouteNotFound(uid, 10, member.at(0.05))]


def test_a_restarting_node_rejects_a_resubscriber_as_busy(looking: Bench) -> None:
    looking.request(4, best=0.01)
    looking.take()
    uid = looking.request(3, must_beat=0.3)
    assert looking.take() == [RejectedBusy(uid, looking.at(0.01))]


# Only the latest SubscribeRestarted counts


def test_a_restart_of_the_next_hop_is_relayed_to_the_requester(bench: Bench) -> None:
    bench.request(3)
    bench.take()
    for uid in (77, 78):
        restarted = SubscribeRestarted(bench.key, uid, bench.at(0.05))
        bench.receive(1, restarted)
        assert bench.take() == [restarted]
    bench.receive(1, SubscribeRestarted(bench.key, 78, bench.at(0.05)))
    assert bench.take() == []
    assert bench.stream.restart_uid == 78


def test_an_announcement_under_the_requests_own_uid_is_not_relayed(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    bench.receive(1, SubscribeRestarted(bench.key, uid, bench.at(0.1)))
    assert bench.take() == []


def test_only_the_resubscription_of_the_latest_restart_passes(looking: Bench) -> None:
    for uid in (77, 78):
        looking.receive(1, SubscribeRestarted(looking.key, uid, looking.at(0.05)))
    looking.request(3, must_beat=0.05, best=0.05, uid=77)
    assert looking.take() == [RejectedBusy(77, looking.at(0.2))]
    looking.request(3, must_beat=0.05, best=0.05, uid=78)
    assert looking.take(3)[:1] == [Accepted(78)]
    assert isinstance(looking.take_request_to(1), ResubscribeRequest)


def test_a_restart_of_a_neighbour_that_was_not_asked_is_not_relayed(bench: Bench) -> None:
    uid = bench.request(3)
    bench.take()
    bench.receive(2, SubscribeRestarted(bench.key, 77, bench.at(0.05)))
    assert bench.take() == []
    bench.receive(1, RejectedLoop(uid))
    assert bench.stream.restart_uid is None
