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


def test_a_node_provides_the_interface_of_a_link_node() -> None:
    verifyObject(ILinkNode, FreenetNode(NodeConfig(1, 1, 0.5), Random(1), 0.0))


def test_finished_requests_leave_no_timers(bench: Bench) -> None:
    for number in range(1_000):
        bench.request(3, key=key(number), best=0.0)
        asked, request = bench.take_request()
        bench.receive(asked, DataNotFound(request.uid))
    assert bench.node.streams == {}
    assert len(bench.node._context._timers) <= 2 * TIMER_PRUNE_THRESHOLD


def test_pending_timers_are_not_pruned(bench: Bench) -> None:
    for number in range(100):
        bench.request(3, key=key(number % 32), best=0.0)
    bench.take()
    bench.wait(1_000.0)
    assert bench.node.streams == {}
    assert bench.node.next_deadline() is None


def test_a_stream_retains_32_packets(member: Bench) -> None:
    for number in range(1_000):
        member.receive_packet(1, number)
    assert len(member.stream.packets) == 32
    member.request(3)
    assert len(member.take(3)) == 1 + 32


def test_the_number_of_remembered_deliveries_is_bounded(member: Bench) -> None:
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


def test_neighbours_that_do_not_return_are_forgotten(bench: Bench) -> None:
    for number in range(100, 200):
        bench.connect(number, 0.3)
        bench.disconnect(number)
    bench.wait(61.0)
    assert set(bench.node._context.neighbours) == {1, 2, 3, 4}


def test_discontinuous_numbers_do_not_accumulate_state(member: Bench) -> None:
    for number in range(50):
        member.receive_packet(1, number * (packet_window.MAX_JUMP + 1))
    assert len(member.stream.packets) == 1


def test_announcements_of_restarts_cost_at_most_one_timer_each(member: Bench) -> None:
    for uid in range(1_000):
        member.receive(1, SubscribeRestarted(member.key, uid, member.at(0.1)))
        member.receive(1, SubscribeSucceeded(member.key, uid, member.at(0.0)))
    member.wait(130.0)
    assert member.node.next_deadline() is None


# Status


def test_the_status_of_a_node_contains_its_neighbours_and_streams(member: Bench) -> None:
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


def test_a_node_is_busy_while_it_waits_for_answers(bench: Bench) -> None:
    assert not bench.node.busy
    bench.call("subscribe", bench.key)
    assert bench.node.busy
    bench.succeed()
    assert not bench.node.busy
    bench.call("publish", bench.key, b"x", None)
    assert bench.node.busy


def test_the_repr_of_a_neighbour_contains_its_location(bench: Bench) -> None:
    assert repr(bench.node._context.links[1]) == f"<Neighbour 1 at {bench.at(0.1):.4f}>"


@pytest.mark.parametrize("change", [StreamInput.LOST, StreamInput.TORN_DOWN])
def test_an_impossible_input_of_a_stream_raises(change: StreamInput) -> None:
    with pytest.raises(KeyError):
        Stream(key(1), 32).transition(change)
    assert Stream(key(1), 32).phase is StreamPhase.SEARCHING
