from __future__ import annotations

from typing import Any

import pytest
from sim.tcp.stream_nodes import LengthCodec, MakeConnectedPair, MakeStreamNetwork
from zope.interface.verify import verifyObject

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.interfaces import ILinkNode, IStreamCodec, IStreamDecoder, Outputs
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.link import Link

NOWHERE: Address = ("192.0.2.1", 1)


def ephemeral(network: Any, name: str) -> Address:
    """Return the source address of the one connection that ``name`` accepted from a."""
    (peer,) = network[name].peers
    return network.hosts["a"].address[0], 49_152 + peer.number % 16_384


def test_the_tcp_test_nodes_provide_their_interfaces(
    stream_network: MakeStreamNetwork, length_codec: type[LengthCodec]
) -> None:
    codec = length_codec()
    assert verifyObject(ILinkNode, stream_network("a")["a"])
    assert verifyObject(IStreamCodec, codec)
    assert verifyObject(IStreamDecoder, codec.decoder())


def test_dialling_takes_a_round_trip_and_the_acceptor_learns_one_way_later(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    network.dial("a", "b")
    network.run_until(0.4)
    assert network.network.streams.peers(network.hosts["a"]) == []
    network.run_until(5)
    assert network["a"].story == [(0.5, "connected", network.hosts["b"].address)]
    assert network["b"].story == [(0.75, "connected", ephemeral(network, "b"))]
    (one,), (other,) = network["a"].peers, network["b"].peers
    assert (one.dialled, other.dialled) == (True, False)
    assert one.number != other.number
    assert network.network.counters["connections"] == 1
    assert network.words == [(0.0, "a", "dialled"), (0.5, "a", "connected"), (0.75, "b", "accepted")]
    assert network.network.streams.peers(network.hosts["a"]) == [one]


def test_connect_opens_a_connection_at_once(connected_pair: MakeConnectedPair) -> None:
    network = connected_pair()
    assert network["a"].story == [(0.0, "connected", network.hosts["b"].address)]
    assert network["b"].story == [(0.0, "connected", ephemeral(network, "b"))]
    assert network.network.counters["connections"] == 1
    network.write("b", "a", "hello")
    network.run_until(1)
    assert network["a"].got == ["hello"]


def test_dialling_an_unknown_address_is_refused_after_a_round_trip(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a")
    network.want("a", Dial(NOWHERE))
    network.run_until(5)
    assert network["a"].story == [(0.5, "dial failed", "refused")]
    assert network.words == [(0.0, "a", "dialled"), (0.5, "a", "refused")]
    assert network.forgotten()


@pytest.mark.parametrize("how", ["killed", "told to", "no link node"])
def test_dialling_a_host_that_does_not_listen_is_refused(how: str, stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    if how == "killed":
        network.hosts["b"].stop(CrashMode.KILLED)
    elif how == "told to":
        network.network.streams.refuse_dials(network.hosts["b"])
    else:
        network.hosts["b"].node = object()
    network.dial("a", "b")
    network.run_until(5)
    assert network["a"].story == [(0.5, "dial failed", "refused")]
    assert network.forgotten()


def test_nested_dial_refusals_must_all_end(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    streams, host = network.network.streams, network.hosts["b"]
    streams.refuse_dials(host)
    streams.refuse_dials(host)
    streams.accept_dials(host)
    network.dial("a", "b")
    network.run_until(1)
    assert network["a"].peers == []
    streams.accept_dials(host)
    network.dial("a", "b")
    network.run_until(2)
    assert len(network["a"].peers) == len(network["b"].peers) == 1


@pytest.mark.parametrize("how", ["cut there", "cut back", CrashMode.POWER, CrashMode.DISK])
def test_dialling_an_unresponsive_host_times_out(how: str | CrashMode, stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    if how == "cut there":
        network.cut("a", "b")
    elif how == "cut back":
        network.cut("b", "a")
    elif isinstance(how, CrashMode):
        network.hosts["b"].stop(how)
    network.dial("a", "b")
    network.run_until(70)
    assert network["a"].story == [(5.0, "dial failed", "timed out")]
    assert network["b"].story == []
    assert network.forgotten()


def test_a_handshake_answer_after_the_timeout_is_ignored(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b", link=Link(delay=2.75))
    network.dial("a", "b")
    network.run_until(70)
    assert network["a"].story == [(5.0, "dial failed", "timed out")]
    assert network["b"].story == []
    assert network.forgotten()


@pytest.mark.parametrize(("source", "to", "opens"), [("a", "b", 1.9), ("b", "a", 1.6)])
def test_a_handshake_is_retransmitted_with_exponential_backoff(
    source: str, to: str, opens: float, stream_network: MakeStreamNetwork
) -> None:
    network = stream_network("a", "b")
    network.cut(source, to, lasts=1.0)
    network.dial("a", "b")
    network.run_until(10)
    # Partitioned one way, it retransmits at 0.2, 0.6 and 1.4; the other way it notices a missing answer 0.25 s later.
    assert network["a"].told("connected")[0][0] == pytest.approx(opens)
    assert len(network["b"].peers) == len(network.network.streams.connection_ends(network.hosts["b"])) == 1


def test_mutual_dials_open_two_connections(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    network.dial("a", "b")
    network.dial("b", "a")
    network.run_until(1)
    peers = [*network["a"].peers, *network["b"].peers]
    assert sorted(peer.dialled for peer in peers) == [False, False, True, True]
    assert len({peer.number for peer in peers}) == 4
    for peer in network["a"].peers:
        network.want("a", Write([peer.dialled], peer))
    by_dialled: list[tuple[bool, Any]] = []
    network["b"].react = lambda what, detail, peer: by_dialled.append((peer is not None and peer.dialled, detail))
    network.run_until(2)
    assert sorted(by_dialled) == [(False, True), (True, False)]


def test_a_host_can_dial_itself(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a")
    network.dial("a", "a")
    network.run_until(1)
    dialler, acceptor = sorted(network["a"].peers, key=lambda peer: not peer.dialled)
    network.want("a", Write(["hello"], dialler), Close(acceptor))
    network["a"].forget(acceptor)
    network.run_until(2)
    assert network["a"].ended == [(1.25, "closed")]
    assert network.forgotten()


def test_a_paused_host_accepts_and_is_told_on_resume(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    network.pause("b", 8.0)
    network.dial("a", "b")
    network.run_until(1)
    assert network["a"].story == [(0.5, "connected", network.hosts["b"].address)]
    network.write("a", "b", "first")
    network.run_until(7)
    assert network["b"].story == []
    network.run_until(9)
    assert network["b"].story == [(8.0, "connected", ephemeral(network, "b")), (8.0, "got", "first")]


def test_a_paused_dialler_is_told_on_resume(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b", "c")
    node = network["b"]
    node.react = lambda what, detail, peer: node.wants.append(Write(["welcome"], peer)) if peer else None
    network.network.streams.refuse_dials(network.hosts["c"])
    network.dial("a", "c")
    network.dial("a", "b")
    network.pause("a", 8.0)
    network.run_until(9)
    b = network.hosts["b"].address
    assert network["b"].story == [(0.75, "connected", ephemeral(network, "b"))]
    assert network["a"].story == [(8.0, "dial failed", "refused"), (8.0, "connected", b), (8.0, "got", "welcome")]


@pytest.mark.parametrize("crash", CrashMode)
@pytest.mark.parametrize("when", [0.1, 0.3])
def test_a_crashed_dialler_leaves_no_connection(
    crash: CrashMode, when: float, stream_network: MakeStreamNetwork
) -> None:
    network = stream_network("a", "b")
    network.dial("a", "b")
    network.network.call_in(when, lambda: network.hosts["a"].stop(crash))
    network.run_until(70)
    assert network["b"].story == []
    assert network.forgotten()


def test_an_acceptor_that_crashes_during_the_handshake_resets(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    network.dial("a", "b")
    network.network.call_in(0.6, lambda: network.hosts["b"].stop(CrashMode.KILLED))
    network.run_until(5)
    assert network["a"].ended == [(0.85, "reset")]
    assert network["b"].story == []
    assert network.forgotten()


def test_a_handshake_whose_last_segment_is_lost_leaves_no_connection(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    network.dial("a", "b")
    network.network.call_in(0.4, lambda: network.cut("a", "b"))
    network.run_until(70)
    assert network["a"].story == [(0.5, "connected", network.hosts["b"].address), (60.5, "disconnected", "timed out")]
    assert network["b"].story == []
    assert network.forgotten()


def test_dials_over_a_lossy_link_open_on_both_sides_or_on_none(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b", link=Link(delay=0.01, jitter=0.05, loss=0.4))
    for _ in range(100):
        network.dial("a", "b")
    network.run_until(100)
    opened = len(network["a"].told("connected"))
    assert opened == len(network["b"].told("connected"))
    assert opened + len(network["a"].told("dial failed")) == 100
    assert 50 < opened < 100


def test_dialling_the_source_address_of_an_accepted_connection_is_refused(stream_network: MakeStreamNetwork) -> None:
    network = stream_network("a", "b")
    network.dial("a", "b")
    network.run_until(1)
    (peer,) = network["b"].peers
    network.want("b", Dial(peer.address))
    network.run_until(2)
    assert network["b"].told("dial failed") == [(1.5, "dial failed", "refused")]


def test_observers_see_the_host_address_of_an_accepted_connection(
    stream_network: MakeStreamNetwork, codec: LengthCodec | None
) -> None:
    network = stream_network("a", "b", codec=codec)
    seen: list[tuple[str, Address]] = []
    network.network.observers.connection_changed.append(lambda host, to, what: seen.append((what, to)))
    network.network.observers.sent.append(lambda packet: seen.append(("sent", packet.to)))
    network.dial("a", "b")
    network.run_until(1)
    network.write("b", "a", "answer")
    network.run_until(2)
    network.close("b", "a")
    network.run_until(3)
    a, b = (network.hosts[name].address for name in "ab")
    assert seen == [("dialled", b), ("connected", b), ("accepted", a), ("sent", a), ("closed", a), ("closed", b)]


@pytest.mark.parametrize("shared", [False, True])
def test_a_dropped_write_to_an_accepted_connection_names_the_host_address(
    shared: bool, stream_network: MakeStreamNetwork
) -> None:
    network = stream_network("b")
    sent: list[Address] = []
    network.network.observers.sent.append(lambda packet: sent.append(packet.to))
    ends: list[tuple[Peer, Address]] = []
    callers = []
    for row in range(3):
        address = ("10.1.0.1" if shared else f"10.1.0.{row}", 1_000 + row)
        callers.append(network.network.add(f"caller-{row}", address, lambda boot: type(network["b"])()))
    for host in callers:
        host.start()
        network.network.streams.connect(host, network.hosts["b"])
        ends.append((network["b"].peers[-1], host.address))
        network.network.streams.reset(host, network.hosts["b"])
    for peer, _ in ends:
        network.want("b", Write(["too late"], peer))
    assert sent == [address for _, address in ends]
    assert network.drops() == {"gone": 3}


def test_dialling_from_a_datagram_node_is_an_error(stream_network: MakeStreamNetwork) -> None:
    class Silent:
        def drain(self) -> Outputs:
            return Outputs(None, [Dial(NOWHERE)], [])

    network = stream_network("a")
    network.network.add("odd", ("10.0.0.9", 9), lambda boot: Silent())
    with pytest.raises(TypeError, match=r"^the Silent on odd dials, but is not an ILinkNode"):
        network.network.host("odd").start()
