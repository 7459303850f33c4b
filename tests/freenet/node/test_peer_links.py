from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from suite.freenet_bench import Bench

from fyrehose_twisted.effects import Close, Dial, Peer
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import NeighbourDown, NeighbourUp, OperatorWarning, ParentLost
from fyrehose_twisted.freenet.node.peer_links import _compute_proof
from fyrehose_twisted.freenet.wire.messages import (
    Hello,
    Located,
    Message,
    Ping,
    Pong,
    Prove,
    SubscribeRestarted,
    SubscribeSucceeded,
)

ADDRESS = ("10.0.0.1", 6_174)
SECRET = b"a secret of 16 bytes or more"
ORDER = count(1)


def link(*, dialled: bool = False, address: tuple[str, int] = ADDRESS) -> Peer:
    return Peer(address, next(ORDER), dialled)


def greet(bench: Bench, peer: Peer, node: int = 7, *, boot: int = 1, secret: bytes | None = None) -> Hello:
    """Open a link and complete the handshake; return the Hello of the node."""
    bench.call("connected", peer)
    (ours,) = bench.take(peer)
    theirs = Hello(node, boot, bench.at(0.1), bytes(16))
    bench.receive(peer, theirs, Prove(_compute_proof(secret, theirs, ours)))
    return ours


def kinds(bench: Bench) -> list[type]:
    return [type(one) for one in bench.effects]


# Handshake


def test_both_ends_of_a_link_send_hello_and_a_proof(bench: Bench) -> None:
    peer = link()
    ours = greet(bench, peer)
    assert ours == Hello(100, 1, bench.node.location, ours.nonce)
    assert len(ours.nonce) == 16
    assert bench.take(peer) == [Prove(b"")]
    assert bench.take_events(NeighbourUp)[-1:] == [NeighbourUp(7, bench.at(0.1))]
    bench.receive(peer, Ping())
    assert bench.take(peer) == [Pong()]


def test_no_nonce_is_used_twice(bench: Bench) -> None:
    assert greet(bench, link(), 7).nonce != greet(bench, link(), 8).nonce


def test_two_nodes_with_the_same_secret_are_neighbours(make_bench: type[Bench]) -> None:
    one, other = (make_bench(0.2, {}, config={"secret": SECRET}) for _ in range(2))
    other.node._context.config = NodeConfig(101, 1, other.node.location, secret=SECRET)
    peers = {one: link(dialled=True), other: link()}
    for bench, peer in peers.items():
        bench.call("connected", peer)
    for _ in range(2):
        said = [(to, bench.take()) for bench, to in ((one, other), (other, one))]
        for to, messages in said:
            to.receive(peers[to], *messages)
    assert [told.node for told in one.events + other.events] == [101, 100]


@pytest.mark.parametrize("secret", [None, b"another secret of 16 bytes"])
def test_a_peer_with_another_secret_is_refused(make_bench: type[Bench], secret: bytes | None) -> None:
    bench = make_bench(0.2, {}, config={"secret": SECRET})
    peer = link()
    greet(bench, peer, secret=secret)
    assert bench.effects == [Close(peer)]
    assert [type(told) for told in bench.events] == [OperatorWarning]
    assert bench.node.counters["refused_wrong_secret"] == 1
    assert bench.node.neighbours() == []


def test_a_proof_is_good_for_one_link_only(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {}, config={"secret": SECRET})
    theirs = Hello(7, 1, bench.at(0.1), bytes(16))
    first, second = link(), link()
    bench.call("connected", first)
    proof = Prove(_compute_proof(SECRET, theirs, bench.take()[0]))
    bench.call("connected", second)
    bench.receive(second, theirs, proof)
    assert bench.effects == [Close(second)]


def test_a_proof_cannot_be_reflected_to_its_sender(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {}, config={"secret": SECRET})
    peer = link()
    bench.call("connected", peer)
    ours = bench.take()[0]
    bench.receive(peer, ours._replace(node=7))
    bench.receive(peer, *bench.take())
    assert bench.effects == [Close(peer)]


def test_a_node_that_dials_itself_closes_the_link(bench: Bench) -> None:
    peer = link()
    bench.call("connected", peer)
    bench.receive(peer, Hello(100, 1, bench.at(0.1), bytes(16)))
    assert bench.effects == [Close(peer)]
    assert bench.node.counters["refused_self"] == 1


@pytest.mark.parametrize("first", [Ping(), Prove(b""), Located(0.5)])
def test_a_first_message_other_than_hello_closes_the_link(bench: Bench, first: Message) -> None:
    peer = link()
    bench.call("connected", peer)
    bench.receive(peer, first)
    assert bench.effects == [Close(peer)]
    bench.receive(peer, Ping())
    assert len(bench.effects) == 1


def test_a_second_hello_closes_the_link(bench: Bench) -> None:
    peer = link()
    bench.call("connected", peer)
    bench.receive(peer, *[Hello(7, 1, bench.at(0.1), bytes(16))] * 2)
    assert bench.effects == [Close(peer)]


@pytest.mark.parametrize("message", [Hello(7, 1, 0.5, bytes(16)), Prove(b"")])
def test_a_handshake_message_of_a_neighbour_is_counted_as_out_of_turn(bench: Bench, message: Message) -> None:
    bench.receive(1, message)
    assert bench.node.counters["out_of_turn"] == 1
    assert bench.take() == []


def test_an_interrupted_handshake_is_forgotten(bench: Bench) -> None:
    peer = link()
    bench.call("connected", peer)
    bench.call("disconnected", peer, "closed")
    bench.take()
    bench.receive(peer, Hello(7, 1, bench.at(0.1), bytes(16)))
    assert bench.take() == []


# Two links to one node


@pytest.mark.parametrize(("node", "stays"), [(7, "theirs"), (200, "ours")])
def test_of_two_links_the_one_dialled_by_the_lower_id_stays(make_bench: type[Bench], node: int, stays: str) -> None:
    for ours_first in (True, False):
        bench = make_bench(0.2, {})
        ours, theirs = link(dialled=True), link()
        for peer in (ours, theirs) if ours_first else (theirs, ours):
            greet(bench, peer, node)
        assert bench.node.neighbours() == [ours if stays == "ours" else theirs]
        assert bench.effects == [Close(theirs if stays == "ours" else ours)]


@pytest.mark.parametrize(("silence", "replaced"), [(14.0, False), (16.0, True)])
def test_a_second_link_replaces_the_first_only_if_that_is_silent(
    make_bench: type[Bench], silence: float, replaced: bool
) -> None:
    bench = make_bench(0.2, {}, config={"ping_every": 15.0})
    first, second = link(), link()
    greet(bench, first)
    bench.now += silence
    greet(bench, second)
    assert bench.node.neighbours() == [second if replaced else first]
    assert [told.reason for told in bench.take_events(NeighbourDown)] == (["reconnected"] if replaced else [])


def test_messages_in_flight_on_a_replaced_link_are_lost(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {})
    theirs, ours = link(), link(dialled=True)
    greet(bench, theirs, 200)
    bench.call("subscribe", bench.key)
    request = bench.take_request_to(theirs)
    bench.receive(theirs, SubscribeSucceeded(bench.key, request.uid, bench.at(0.0)))
    greet(bench, ours, 200)
    assert bench.take_events(ParentLost) == [ParentLost(bench.key, "parent-lost")]


def test_a_node_with_the_maximum_number_of_neighbours_refuses_callers(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1}, config={"max_neighbours": 1})
    theirs, ours = link(), link(dialled=True)
    greet(bench, theirs, 8)
    assert bench.effects == [Close(theirs)]
    assert bench.node.counters["refused_crowded"] == 1
    greet(bench, ours, 9)
    assert bench.node.neighbours() == [1, ours]


def test_a_link_without_a_timely_handshake_is_closed(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {}, config={"handshake_timeout": 5.0})
    mute, slow, prompt = link(), link(), link()
    bench.call("connected", mute)
    bench.call("connected", slow)
    bench.receive(slow, Hello(7, 1, bench.at(0.1), bytes(16)))
    greet(bench, prompt, 8)
    bench.wait(4.9)
    assert bench.effects == []
    bench.wait(0.2)
    assert bench.effects == [Close(mute), Close(slow)]
    assert bench.node.counters["refused_late"] == 2
    assert bench.node.neighbours() == [prompt]


def test_the_oldest_unfinished_handshake_of_an_address_is_closed_for_a_new_one(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {}, config={"max_handshakes_per_host": 2})
    elsewhere = link(address=("10.0.0.2", 6_174))
    bench.call("connected", elsewhere)
    silent = [link() for _ in range(2)]
    for peer in silent:
        bench.call("connected", peer)
    assert bench.effects == []
    greet(bench, link(), 8)
    assert bench.effects == [Close(silent[0])]
    assert bench.node.counters["refused_silent"] == 1
    # A completed handshake does not count.
    bench.call("connected", link())
    assert bench.effects == [Close(silent[0])]


def test_the_addresses_of_an_ipv6_64_share_the_limit_of_unfinished_handshakes(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {}, config={"max_handshakes_per_host": 2})
    silent = [link(address=(f"2001:db8::{number}", 6_174)) for number in range(1, 4)]
    bench.call("connected", link(address=("2001:db8:0:1::1", 6_174)))
    for peer in silent:
        bench.call("connected", peer)
    assert bench.effects[-1] == Close(silent[0])
    assert bench.node.counters["refused_silent"] == 1


# Dialling


@pytest.fixture
def dialling(make_bench: type[Bench]) -> Any:
    """Node that has just started to dial a target."""
    bench = make_bench(0.2, {}, config={"targets": (ADDRESS,)})
    bench.wait(0.0)
    assert bench.effects == [Dial(ADDRESS)]
    bench.effects.clear()
    return bench


def test_a_failed_dial_is_retried_with_exponential_backoff(dialling: Bench) -> None:
    pauses = []
    for _ in range(12):
        dialling.call("dial_failed", ADDRESS, "refused")
        assert dialling.effects == []
        pauses.append(dialling.wait_for_output())
        assert dialling.effects == [Dial(ADDRESS)]
        dialling.effects.clear()
    assert pauses == pytest.approx([0.5, 1.0, 2.0, 4.0, 8.0, 16.0, *[30.0] * 6], rel=0.5001)


def test_a_lost_link_is_dialled_again(dialling: Bench) -> None:
    peer = link(dialled=True)
    greet(dialling, peer)
    dialling.wait(100.0)
    assert dialling.effects == []
    dialling.call("disconnected", peer, "closed")
    dialling.wait(1.0)
    assert dialling.effects == [Dial(ADDRESS)]


def test_a_target_that_has_dialled_this_node_is_not_dialled(dialling: Bench) -> None:
    ours, theirs = link(dialled=True), link(address=("10.0.0.9", 40_000))
    greet(dialling, ours)
    greet(dialling, theirs)
    assert dialling.node.neighbours() == [theirs]
    dialling.effects.clear()
    dialling.wait(100.0)
    assert dialling.effects == []
    dialling.call("disconnected", theirs, "closed")
    dialling.wait(1.0)
    assert dialling.effects == [Dial(ADDRESS)]


def test_a_refused_link_is_dialled_again(dialling: Bench) -> None:
    peer = link(dialled=True)
    dialling.call("connected", peer)
    dialling.receive(peer, Ping())
    dialling.wait(2.0)
    assert kinds(dialling) == [Close, Dial]


def test_a_failed_dial_of_an_unknown_address_is_ignored(dialling: Bench) -> None:
    dialling.call("dial_failed", ("10.9.9.9", 1), "refused")
    greet(dialling, link(), 8)
    dialling.call("disconnected", dialling.node.neighbours()[0], "closed")
    dialling.wait(50.0)
    assert dialling.effects == []


# Keepalive


def test_a_silent_neighbour_is_pinged_and_then_disconnected(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1, 2: 0.2}, config={"ping_every": 15.0})
    for _ in range(3):
        bench.wait(15.0)
        assert bench.take(2) == [Ping()]
        bench.receive(2, Pong())
    assert bench.effects == []
    bench.wait(15.0)
    assert bench.effects == [Close(1)]
    assert bench.take_events(NeighbourDown) == [NeighbourDown(1, "silent")]
    assert bench.node.neighbours() == [2]


def test_an_active_neighbour_is_not_pinged(make_bench: type[Bench]) -> None:
    bench = make_bench(0.2, {1: 0.1}, config={"ping_every": 15.0})
    for _ in range(10):
        bench.wait(10.0)
        bench.receive(1, SubscribeRestarted(bench.key, 1, 0.5))
        bench.wait(5.0)
    assert bench.take() == []


def test_requests_are_routed_by_a_neighbours_new_location(bench: Bench) -> None:
    bench.receive(4, Located(bench.at(0.01)))
    bench.call("subscribe", bench.key)
    assert bench.take_request()[0] == 4


def test_a_leaving_node_leaves_its_trees_and_closes_its_links(member: Bench) -> None:
    member.add_subscribers(3)
    member.call("leave")
    assert [(peer, type(one).__name__) for peer, one in member.sent] == [(3, "Dismissed"), (1, "Unsubscribe")]
    assert member.effects == [Close(number) for number in (1, 2, 3, 4)]
    assert member.node.neighbours() == []
    assert member.node.streams == {}


def test_a_blocked_link_is_counted(bench: Bench) -> None:
    bench.call("blocked", 1)
    bench.call("unblocked", 1)
    assert bench.node.counters["blocked"] == 1


# Configuration


@pytest.mark.parametrize(
    ("what", "value"),
    [("node", -1), ("node", 2**64), ("boot", 2**64), ("location", 1.0), ("location", 0), ("secret", b"short")],
)
def test_an_invalid_configuration_is_refused(what: str, value: Any) -> None:
    options: dict[str, Any] = {"node": 1, "boot": 1, "location": 0.5, what: value}
    with pytest.raises(ConfigurationError):
        NodeConfig(**options)


def test_the_repr_of_a_configuration_hides_the_secret() -> None:
    assert "secret" not in repr(NodeConfig(1, 1, 0.5, secret=SECRET))


@pytest.mark.parametrize("location", [1.0, -0.1, float("nan"), 1])
def test_moving_to_an_invalid_location_is_refused(bench: Bench, location: Any) -> None:
    with pytest.raises(ConfigurationError, match="location"):
        bench.call("move", location)
