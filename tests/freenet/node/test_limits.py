from __future__ import annotations

from random import Random

import pytest
from suite.freenet_bench import Bench
from zope.interface.verify import verifyObject

from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.node import packet_window, stream
from fyrehose_twisted.freenet.node.context import TIMER_PRUNE_THRESHOLD
from fyrehose_twisted.freenet.node.node import FreenetNode
from fyrehose_twisted.freenet.node.status import NeighbourStatus, StreamStatus
from fyrehose_twisted.freenet.node.stream import Stream, StreamInput, StreamPhase
from fyrehose_twisted.freenet.wire.messages import DataNotFound, SubscribeRestarted, SubscribeSucceeded
from fyrehose_twisted.interfaces import ILinkNode


def key(number: int) -> bytes:
    return number.to_bytes(20, "big")


def test_a_node_is_what_drivers_drive() -> None:
    verifyObject(ILinkNode, FreenetNode(NodeConfig(1, 1, 0.5), Random(1), 0.0))


def test_requests_that_are_over_leave_no_timers(bench: Bench) -> None:
    for number in range(1_000):
        bench.request(3, key=key(number), best=0.0)
        asked, request = bench.take_request()
        bench.receive(asked, DataNotFound(request.uid))
    assert bench.node.streams == {}
    assert len(bench.node._context._timers) <= 2 * TIMER_PRUNE_THRESHOLD


def test_timers_that_matter_stay(bench: Bench) -> None:
    for number in range(100):
        bench.request(3, key=key(number % 32), best=0.0)
    bench.take()
    bench.wait(1_000.0)
    assert bench.node.streams == {}
    assert bench.node.next_deadline() is None


def test_a_stream_keeps_32_packets(member: Bench) -> None:
    for number in range(1_000):
        member.receive_packet(1, number)
    assert len(member.stream.packets) == 32
    member.request(3)
    assert len(member.take(3)) == 1 + 32


def test_what_the_application_was_given_is_forgotten_in_the_end(member: Bench) -> None:
    for number in range(stream.DELIVERED_IDS_KEPT + 100):
        member.receive_packet(1, number)
    assert len(member.stream.delivered_ids) == stream.DELIVERED_IDS_KEPT


def test_a_stream_remembers_16_restarts(member: Bench) -> None:
    for _ in range(40):
        member.disconnect(member.stream.parent.node)
        member.wait(1.0)
        number, request = member.take_request()
        member.receive(number, SubscribeSucceeded(member.key, request.uid, member.at(0.0)))
        for absent in {1, 2, 3, 4} - set(member.node.neighbours()):
            member.connect(absent, 0.3)
    assert len(member.stream.known_restart_uids) == stream.RESTART_UIDS_KEPT


def test_neighbours_that_do_not_come_back_are_forgotten(bench: Bench) -> None:
    for number in range(100, 200):
        bench.connect(number, 0.3)
        bench.disconnect(number)
    bench.wait(61.0)
    assert set(bench.node._context.neighbours) == {1, 2, 3, 4}


def test_numbers_that_jump_leave_nothing_behind(member: Bench) -> None:
    for number in range(50):
        member.receive_packet(1, number * (packet_window.MAX_JUMP + 1))
    assert len(member.stream.packets) == 1


def test_restarts_of_whoever_likes_cost_one_timer_each_until_it_is_over(member: Bench) -> None:
    for uid in range(1_000):
        member.receive(1, SubscribeRestarted(member.key, uid, member.at(0.1)))
        member.receive(1, SubscribeSucceeded(member.key, uid, member.at(0.0)))
    member.wait(130.0)
    assert member.node.next_deadline() is None


# How a node looks


def test_a_node_shows_what_it_has(member: Bench) -> None:
    member.add_subscribers(3)
    member.receive_packet(1, 5)
    member.disconnect(4)
    member.now += 3.0
    state = member.node.state(member.now)
    assert (state.node, state.boot, state.location, state.requests) == (100, 1, member.at(0.2), 0)
    assert state.neighbours[0] == NeighbourStatus(1, member.at(0.1), True, 3.0)
    assert [one.linked for one in state.neighbours] == [True, True, True, False]
    (shown,) = state.streams
    location = member.at(0.0)
    assert shown == StreamStatus(member.key, location, "settled", 1, False, location, [3], True, 5)
    assert state.counts["requests"] == 1


def test_a_node_is_busy_while_it_waits_for_others(bench: Bench) -> None:
    assert not bench.node.busy
    bench.call("subscribe", bench.key)
    assert bench.node.busy
    bench.succeed()
    assert not bench.node.busy
    bench.call("publish", bench.key, b"x", None)
    assert bench.node.busy


def test_neighbours_are_shown_by_where_they_are(bench: Bench) -> None:
    assert repr(bench.node._context.links[1]) == f"<Neighbour 1 at {bench.at(0.1):.4f}>"


@pytest.mark.parametrize("change", [StreamInput.LOST, StreamInput.TORN_DOWN])
def test_what_cannot_happen_to_a_stream_is_a_mistake_of_ours(change: StreamInput) -> None:
    with pytest.raises(KeyError):
        Stream(key(1), 32).transition(change)
    assert Stream(key(1), 32).phase is StreamPhase.SEARCHING
