from __future__ import annotations

from typing import Any

from sim.tcp.stream_nodes import LengthCodec, MakeConnectedPair

from fyrehose_twisted.effects import Address, Close, Peer, Write
from fyrehose_twisted.sim.link import Link

NOWHERE: Address = ("192.0.2.1", 1)


def numbered(count: int) -> list[str]:
    return [f"message {number}" for number in range(count)]


def test_close_delivers_written_data_before_the_peer_sees_the_end(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    network.write("b", "a", "before")
    network.run_until(1)
    network.write("a", "b", *numbered(3))
    network.write("b", "a", "on its way")
    network.close("a", "b")
    network.write("b", "a", "too late")
    network.run_until(2)
    assert network["b"].story[1:] == [
        *((1.25, "got", text) for text in numbered(3)),
        (1.25, "disconnected", "closed"),
    ]
    assert network["a"].got == ["before"]
    assert network["a"].ended == []
    assert network.drops() == {"closed": 2}
    assert network.words[-2:] == [(1.0, "a", "closed"), (1.25, "b", "closed")]
    assert network.forgotten()


def test_close_delivers_all_data_to_a_slow_reader(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec, link=Link(delay=0.1, jitter=0.1, loss=0.2))
    network.network.streams.throttle_reads(network.hosts["b"], 4_000.0)
    messages = [f"{number:0>246}" for number in range(1_000)]
    network.write("a", "b", *messages)
    network.run_until(1)
    network.close("a", "b")
    for number in range(50):
        network.write("b", "a", f"to nobody {number}")
        network.network.run(1.0)
    assert len(network["b"].peers) == 1
    network.run_until(150)
    assert network["b"].got == messages
    assert [reason for _, reason in network["b"].ended] == ["closed"]
    assert [what for _, what, _ in network["a"].story] == ["connected", "blocked"]
    assert network.drops() == {"closed": 50}
    assert network.forgotten()


def test_unread_data_is_discarded_on_close(codec: LengthCodec | None, connected_pair: MakeConnectedPair) -> None:
    network = connected_pair(codec=codec)
    node = network["b"]

    def close(what: str, detail: Any, peer: Peer | None) -> None:
        if detail == "message 2" and peer is not None:
            node.forget(peer)
            node.wants.append(Close(peer))

    node.react = close
    network.write("a", "b", *numbered(600))
    network.run_until(0.3)
    assert network.drops()["closed"] > 200
    network.run_until(5)
    assert node.got == numbered(3)
    assert network["a"].ended == [(0.5, "closed")]
    assert network.drops() == {"closed": 597}
    assert network.forgotten()


def test_a_blocked_node_whose_peer_closes_is_told_only_the_end(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.pause("b", 5.0)
    network.write("a", "b", *range(600))
    network.run_until(1)
    network.hosts["b"].resume()
    network.close("b", "a")
    network.run_until(70)
    assert [what for _, what, _ in network["a"].story] == ["connected", "blocked", "disconnected"]


def test_a_simultaneous_close_is_reported_to_neither_side(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.write("a", "b", "last words")
    network.close("a", "b")
    network.close("b", "a")
    network.run_until(5)
    assert network["a"].ended == network["b"].ended == []
    assert network.drops() == {"closed": 1}
    assert network.forgotten()


def test_closing_a_connection_twice_has_no_effect(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    peer = network.peer("a", "b")
    network.close("a", "b")
    network.want("a", Close(peer))
    network.run_until(5)
    network.want("a", Close(peer))
    network.run_until(10)
    assert network["b"].ended == [(0.25, "closed")]
    assert network.words[2:] == [(0.0, "a", "closed"), (0.25, "b", "closed")]


def test_writes_to_an_ended_connection_are_dropped(
    codec: LengthCodec | None, connected_pair: MakeConnectedPair
) -> None:
    network = connected_pair(codec=codec)
    peer = network.peer("a", "b")
    network.close("a", "b")
    network.want("a", Write(["one", "two"], peer))
    network.run_until(5)
    network.want("b", Write(["three"], peer))  # A connection of another host.
    assert network.drops() == {"gone": 3}
    assert network.network.counters["sent"] == 3
    assert network["b"].got == []


def test_stream_nodes_are_called_with_the_time_of_their_host(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    network.hosts["b"].set_clock(offset=1_000.0)
    network.write("a", "b", "hello")
    network.run_until(1)
    assert network["b"].told("got") == [(1_000.25, "got", "hello")]
