from __future__ import annotations

from suite.freenet_bench import Bench

from fyrehose_twisted.freenet.events import StreamDropped
from fyrehose_twisted.freenet.wire.messages import (
    Accepted,
    Dismissed,
    RejectedLoop,
    RejectedOverload,
    SubscribeData,
    SubscribeRestarted,
    SubscribeSucceeded,
    Unsubscribe,
)


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


# Unsubscribing


def test_a_node_stays_in_the_tree_while_it_has_a_subscriber(member: Bench) -> None:
    member.add_subscribers(3, 4)
    member.call("unsubscribe", member.key)
    member.receive(3, Unsubscribe(member.key))
    assert member.take() == []
    member.receive(4, Unsubscribe(member.key))
    assert member.sent == [(1, Unsubscribe(member.key))]
    assert member.take_events(StreamDropped) == [StreamDropped(member.key)]
    assert member.node.streams == {}


def test_a_node_stays_in_the_tree_while_its_application_is_subscribed(member: Bench) -> None:
    member.add_subscribers(3)
    member.receive(3, Unsubscribe(member.key))
    assert member.take() == []
    member.call("unsubscribe", member.key)
    assert member.take() == [Unsubscribe(member.key)]


def test_a_root_without_subscribers_drops_its_stream(root: Bench) -> None:
    root.call("unsubscribe", root.key)
    assert root.node.streams == {}
    root.wait(1_000.0)
    assert root.take() == []


def test_an_unsubscribe_of_a_neighbour_that_is_not_subscribed_changes_nothing(member: Bench) -> None:
    member.add_subscribers(3)
    member.receive(4, Unsubscribe(member.key), Unsubscribe(key(1)))
    assert member.subscribers == [3]


def test_an_unsubscribed_neighbour_receives_no_packets(member: Bench) -> None:
    member.add_subscribers(3, 4)
    member.receive(3, Unsubscribe(member.key))
    member.receive_packet(1, 5)
    assert member.sent == [(4, SubscribeData(member.key, 5, b"x"))]


def test_unsubscribing_twice_is_harmless(member: Bench) -> None:
    member.call("unsubscribe", member.key)
    member.take()
    member.call("unsubscribe", member.key)
    member.call("unsubscribe", key(1))
    assert member.take() == []


def test_a_search_ends_when_its_last_user_unsubscribes(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    request = bench.take_request_to(1)
    bench.call("unsubscribe", bench.key)
    assert not bench.node.busy
    # The neighbour may have found a parent by now.
    bench.receive(1, SubscribeSucceeded(bench.key, request.uid, bench.at(0.0)))
    assert bench.take() == [Unsubscribe(bench.key)]


def test_a_restart_ends_when_its_last_user_unsubscribes(member: Bench) -> None:
    member.disconnect(1)
    member.call("unsubscribe", member.key)
    member.wait(100.0)
    assert member.take() == []


def test_a_node_that_left_searches_again_when_it_subscribes_again(member: Bench) -> None:
    member.call("unsubscribe", member.key)
    member.take()
    member.attach(0.05)
    assert member.stream.parent.node == 1


# Neighbours that wrongly believe to be the parent


def test_a_success_of_a_neighbour_that_is_not_the_parent_is_answered_with_unsubscribe(bench: Bench) -> None:
    bench.receive(1, SubscribeSucceeded(bench.key, 5, bench.at(0.0)))
    assert bench.take() == [Unsubscribe(bench.key)]
    assert bench.node.counters["strays"] == 1


def test_a_success_for_another_key_does_not_answer_the_request(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    request = bench.take_request_to(1)
    bench.receive(1, SubscribeSucceeded(key(9), request.uid, bench.at(0.0)))
    assert bench.take() == [Unsubscribe(key(9))]
    assert not bench.stream.connected


def test_a_dismissal_by_a_neighbour_that_is_not_the_parent_is_ignored(member: Bench) -> None:
    member.receive(2, Dismissed(member.key), Dismissed(key(9)))
    assert member.stream.settled


# Eviction of streams


def hogged(bench: Bench, hog: int = 3, other: int = 4, *, others: int = 0) -> None:
    """Fill the node with streams: nearly all for one neighbour, and a few for another."""
    for number in range(32):
        bench.request(other if number < others else hog, key=key(number + 1), best=0.0)
    assert len(bench.node.streams) == 32
    bench.sent.clear()


def test_a_neighbour_with_more_than_half_of_the_streams_loses_its_newest_one(bench: Bench) -> None:
    hogged(bench)
    uid = bench.request(4, key=key(99), best=0.0)
    assert bench.take(3)[:1] == [RejectedOverload(32)]
    assert bench.take(4)[:1] == [Accepted(uid)]
    assert len(bench.node.streams) == 32
    assert key(32) not in bench.node.streams
    assert bench.node.counters["evicted"] == 1


def test_a_neighbour_with_more_than_half_of_the_streams_gets_no_further_one(bench: Bench) -> None:
    hogged(bench)
    uid = bench.request(3, key=key(99), best=0.0)
    assert bench.take() == [RejectedOverload(uid)]


def test_a_neighbour_with_half_of_the_streams_loses_none(bench: Bench) -> None:
    hogged(bench, others=16)
    bench.request(2, key=key(99), best=0.0)
    assert bench.node.counters["evicted"] == 0


def test_a_requester_with_half_as_many_streams_as_the_largest_user_evicts_none(bench: Bench) -> None:
    hogged(bench, others=11)
    uid = bench.request(4, key=key(99), best=0.0)
    assert bench.take() == [RejectedOverload(uid)]
    bench.request(2, key=key(98), best=0.0)
    assert bench.node.counters["evicted"] == 1


def test_a_stream_is_evicted_for_the_application_too(bench: Bench) -> None:
    hogged(bench)
    bench.call("subscribe", bench.key)
    assert bench.stream.local
    assert bench.node.counters["evicted"] == 1


def test_streams_of_the_application_or_of_several_neighbours_are_not_evicted(bench: Bench) -> None:
    for number in range(32):
        if number < 16:
            bench.call("subscribe", key(number + 1))
        bench.request(3, key=key(number + 1), best=0.0)
    for number in range(24, 32):
        bench.request(2, key=key(number + 1), best=0.0)
    bench.sent.clear()
    uid = bench.request(4, key=key(99), best=0.0)
    assert bench.take() == [RejectedOverload(uid)]


def test_the_subscriber_of_an_evicted_stream_is_dismissed(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4}, max_streams=1)
    bench.request(3)
    bench.succeed()
    bench.sent.clear()
    bench.request(4, key=key(9))
    assert bench.take(3) == [Dismissed(bench.key)]
    assert bench.take(1)[:1] == [Unsubscribe(bench.key)]


def test_requests_that_wait_for_an_evicted_stream_are_rejected(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4}, max_streams=1)
    first = bench.request(3)
    second = bench.request(3)
    bench.take()
    bench.request(4, key=key(9))
    assert bench.take(3) == [RejectedOverload(first), RejectedOverload(second)]


# Requesters whose link is lost


def test_a_requester_whose_link_is_down_is_not_accepted(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach()
    bench.receive(1, SubscribeRestarted(bench.key, 77, bench.at(0.1)))
    bench.request(3)
    bench.disconnect(3)
    bench.take()
    bench.receive(1, SubscribeSucceeded(bench.key, 77, bench.at(0.0)))
    assert bench.subscribers == []


def test_a_restarting_parent_that_sends_a_request_is_rejected_after_the_restart(member: Bench) -> None:
    member.receive(1, SubscribeRestarted(member.key, 77, member.at(0.1)))
    uid = member.request(1, best=0.1)
    member.take()
    member.receive(1, SubscribeSucceeded(member.key, 77, member.at(0.0)))
    assert member.take() == [RejectedLoop(uid)]
    assert member.subscribers == []
