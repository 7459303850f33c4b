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


# Who leaves


def test_a_node_stays_so_long_as_somebody_below_needs_it(member: Bench) -> None:
    member.add_subscribers(3, 4)
    member.call("unsubscribe", member.key)
    member.receive(3, Unsubscribe(member.key))
    assert member.take() == []
    member.receive(4, Unsubscribe(member.key))
    assert member.sent == [(1, Unsubscribe(member.key))]
    assert member.take_events(StreamDropped) == [StreamDropped(member.key)]
    assert member.node.streams == {}


def test_a_node_stays_so_long_as_its_application_needs_it(member: Bench) -> None:
    member.add_subscribers(3)
    member.receive(3, Unsubscribe(member.key))
    assert member.take() == []
    member.call("unsubscribe", member.key)
    assert member.take() == [Unsubscribe(member.key)]


def test_a_root_that_nobody_needs_drops_its_stream(root: Bench) -> None:
    root.call("unsubscribe", root.key)
    assert root.node.streams == {}
    root.wait(1_000.0)
    assert root.take() == []


def test_who_is_no_subscriber_leaves_nothing(member: Bench) -> None:
    member.add_subscribers(3)
    member.receive(4, Unsubscribe(member.key), Unsubscribe(key(1)))
    assert member.subscribers == [3]


def test_who_left_gets_no_packets(member: Bench) -> None:
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


def test_a_search_that_nobody_needs_any_more_is_given_up(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    request = bench.take_request_to(1)
    bench.call("unsubscribe", bench.key)
    assert not bench.node.busy
    # The neighbour may have found something by now.
    bench.receive(1, SubscribeSucceeded(bench.key, request.uid, bench.at(0.0)))
    assert bench.take() == [Unsubscribe(bench.key)]


def test_a_restart_that_nobody_needs_any_more_is_given_up(member: Bench) -> None:
    member.disconnect(1)
    member.call("unsubscribe", member.key)
    member.wait(100.0)
    assert member.take() == []


def test_who_leaves_and_comes_back_looks_for_the_tree_anew(member: Bench) -> None:
    member.call("unsubscribe", member.key)
    member.take()
    member.attach(0.05)
    assert member.stream.parent.node == 1


# Who wrongly takes this node for its subscriber


def test_a_parent_that_is_none_is_corrected(bench: Bench) -> None:
    bench.receive(1, SubscribeSucceeded(bench.key, 5, bench.at(0.0)))
    assert bench.take() == [Unsubscribe(bench.key)]
    assert bench.node.counters["strays"] == 1


def test_a_success_for_another_key_is_none(bench: Bench) -> None:
    bench.call("subscribe", bench.key)
    request = bench.take_request_to(1)
    bench.receive(1, SubscribeSucceeded(key(9), request.uid, bench.at(0.0)))
    assert bench.take() == [Unsubscribe(key(9))]
    assert not bench.stream.connected


def test_a_dismissal_by_somebody_else_means_nothing(member: Bench) -> None:
    member.receive(2, Dismissed(member.key), Dismissed(key(9)))
    assert member.stream.settled


# No room: somebody has more than its share


def hogged(bench: Bench, hog: int = 3, other: int = 4, *, others: int = 0) -> None:
    """Fill the node: one neighbour looks for nearly all streams, another for a few."""
    for number in range(32):
        bench.request(other if number < others else hog, key=key(number + 1), best=0.0)
    assert len(bench.node.streams) == 32
    bench.sent.clear()


def test_whoever_has_more_than_half_of_the_streams_loses_its_newest_for_another(bench: Bench) -> None:
    hogged(bench)
    uid = bench.request(4, key=key(99), best=0.0)
    assert bench.take(3)[:1] == [RejectedOverload(32)]
    assert bench.take(4)[:1] == [Accepted(uid)]
    assert len(bench.node.streams) == 32
    assert key(32) not in bench.node.streams
    assert bench.node.counters["evicted"] == 1


def test_whoever_has_more_than_half_gets_no_more(bench: Bench) -> None:
    hogged(bench)
    uid = bench.request(3, key=key(99), best=0.0)
    assert bench.take() == [RejectedOverload(uid)]


def test_half_is_not_too_much(bench: Bench) -> None:
    hogged(bench, others=16)
    bench.request(2, key=key(99), best=0.0)
    assert bench.node.counters["evicted"] == 0


def test_who_has_half_as_much_as_the_hog_gets_no_more(bench: Bench) -> None:
    hogged(bench, others=11)
    uid = bench.request(4, key=key(99), best=0.0)
    assert bench.take() == [RejectedOverload(uid)]
    bench.request(2, key=key(98), best=0.0)
    assert bench.node.counters["evicted"] == 1


def test_the_application_gets_room_too(bench: Bench) -> None:
    hogged(bench)
    bench.call("subscribe", bench.key)
    assert bench.stream.local
    assert bench.node.counters["evicted"] == 1


def test_what_the_application_or_several_want_is_nobodys_share(bench: Bench) -> None:
    for number in range(32):
        if number < 16:
            bench.call("subscribe", key(number + 1))
        bench.request(3, key=key(number + 1), best=0.0)
    for number in range(24, 32):
        bench.request(2, key=key(number + 1), best=0.0)
    bench.sent.clear()
    uid = bench.request(4, key=key(99), best=0.0)
    assert bench.take() == [RejectedOverload(uid)]


def test_who_loses_a_stream_that_is_settled_is_dismissed(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4}, max_streams=1)
    bench.request(3)
    bench.succeed()
    bench.sent.clear()
    bench.request(4, key=key(9))
    assert bench.take(3) == [Dismissed(bench.key)]
    assert bench.take(1)[:1] == [Unsubscribe(bench.key)]


def test_who_loses_a_stream_that_others_wait_for_lets_them_go(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3, 4: 0.4}, max_streams=1)
    first = bench.request(3)
    second = bench.request(3)
    bench.take()
    bench.request(4, key=key(9))
    assert bench.take(3) == [RejectedOverload(first), RejectedOverload(second)]


# Who joins when its link is gone


def test_who_is_gone_does_not_join(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 3: 0.3})
    bench.attach()
    bench.receive(1, SubscribeRestarted(bench.key, 77, bench.at(0.1)))
    bench.request(3)
    bench.disconnect(3)
    bench.take()
    bench.receive(1, SubscribeSucceeded(bench.key, 77, bench.at(0.0)))
    assert bench.subscribers == []


def test_a_parent_that_asks_while_it_restarts_is_rejected_when_it_has_one_again(member: Bench) -> None:
    member.receive(1, SubscribeRestarted(member.key, 77, member.at(0.1)))
    uid = member.request(1, best=0.1)
    member.take()
    member.receive(1, SubscribeSucceeded(member.key, 77, member.at(0.0)))
    assert member.take() == [RejectedLoop(uid)]
    assert member.subscribers == []
