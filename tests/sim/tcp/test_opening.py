from __future__ import annotations

from typing import Any

import pytest
from sim.tcp.talkers import JoinLines, LengthCodec, MakeLines
from zope.interface.verify import verifyObject

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.interfaces import ILinkNode, IStreamCodec, IStreamDecoder, Outputs
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.link import Link

NOWHERE: Address = ("192.0.2.1", 1)


def ephemeral(lines: Any, name: str) -> Address:
    """Return what the one connection that ``name`` accepted from a seems to come from."""
    (peer,) = lines[name].peers
    return lines.hosts["a"].address[0], 49_152 + peer.number % 16_384


def test_the_test_nodes_are_what_they_say(lines_of: MakeLines, length_codec: type[LengthCodec]) -> None:
    codec = length_codec()
    assert verifyObject(ILinkNode, lines_of("a")["a"])
    assert verifyObject(IStreamCodec, codec)
    assert verifyObject(IStreamDecoder, codec.decoder())


def test_it_takes_a_round_trip_and_the_acceptor_hears_one_way_later(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.dial("a", "b")
    lines.run_until(0.4)
    assert lines.network.streams.peers(lines.hosts["a"]) == []
    lines.run_until(5)
    assert lines["a"].story == [(0.5, "connected", lines.hosts["b"].address)]
    assert lines["b"].story == [(0.75, "connected", ephemeral(lines, "b"))]
    (one,), (other,) = lines["a"].peers, lines["b"].peers
    assert (one.dialled, other.dialled) == (True, False)
    assert one.number != other.number
    assert lines.network.counters["connections"] == 1
    assert lines.words == [(0.0, "a", "dialled"), (0.5, "a", "connected"), (0.75, "b", "accepted")]
    assert lines.network.streams.peers(lines.hosts["a"]) == [one]


def test_connect_has_it_open_at_once(joined: JoinLines) -> None:
    lines = joined()
    assert lines["a"].story == [(0.0, "connected", lines.hosts["b"].address)]
    assert lines["b"].story == [(0.0, "connected", ephemeral(lines, "b"))]
    assert lines.network.counters["connections"] == 1
    lines.write("b", "a", "hello")
    lines.run_until(1)
    assert lines["a"].got == ["hello"]


def test_nobody_there_is_refused_after_a_round_trip(lines_of: MakeLines) -> None:
    lines = lines_of("a")
    lines.want("a", Dial(NOWHERE))
    lines.run_until(5)
    assert lines["a"].story == [(0.5, "dial failed", "refused")]
    assert lines.words == [(0.0, "a", "dialled"), (0.5, "a", "refused")]
    assert lines.forgotten()


@pytest.mark.parametrize("how", ["killed", "told to", "no link node"])
def test_who_does_not_listen_refuses(how: str, lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    if how == "killed":
        lines.hosts["b"].stop(CrashMode.KILLED)
    elif how == "told to":
        lines.network.streams.refuse_dials(lines.hosts["b"])
    else:
        lines.hosts["b"].node = object()
    lines.dial("a", "b")
    lines.run_until(5)
    assert lines["a"].story == [(0.5, "dial failed", "refused")]
    assert lines.forgotten()


def test_who_was_told_twice_to_refuse_accepts_when_told_twice(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    streams, host = lines.network.streams, lines.hosts["b"]
    streams.refuse_dials(host)
    streams.refuse_dials(host)
    streams.accept_dials(host)
    lines.dial("a", "b")
    lines.run_until(1)
    assert lines["a"].peers == []
    streams.accept_dials(host)
    lines.dial("a", "b")
    lines.run_until(2)
    assert len(lines["a"].peers) == len(lines["b"].peers) == 1


@pytest.mark.parametrize("how", ["cut there", "cut back", CrashMode.POWER, CrashMode.DISK])
def test_it_times_out_where_nobody_answers(how: str | CrashMode, lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    if how == "cut there":
        lines.cut("a", "b")
    elif how == "cut back":
        lines.cut("b", "a")
    elif isinstance(how, CrashMode):
        lines.hosts["b"].stop(how)
    lines.dial("a", "b")
    lines.run_until(70)
    assert lines["a"].story == [(5.0, "dial failed", "timed out")]
    assert lines["b"].story == []
    assert lines.forgotten()


def test_an_answer_that_takes_too_long_is_none(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b", link=Link(delay=2.75))
    lines.dial("a", "b")
    lines.run_until(70)
    assert lines["a"].story == [(5.0, "dial failed", "timed out")]
    assert lines["b"].story == []
    assert lines.forgotten()


@pytest.mark.parametrize(("source", "to", "opens"), [("a", "b", 1.9), ("b", "a", 1.6)])
def test_it_asks_again_after_0_2_s_then_twice_as_long(source: str, to: str, opens: float, lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.cut(source, to, lasts=1.0)
    lines.dial("a", "b")
    lines.run_until(10)
    # Cut there, it asks at 0, 0.2, 0.6 and 1.4. Cut back, it takes a quarter of a second to miss an answer.
    assert lines["a"].told("connected")[0][0] == pytest.approx(opens)
    assert len(lines["b"].peers) == len(lines.network.streams.connection_ends(lines.hosts["b"])) == 1


def test_two_that_dial_each_other_have_two_connections(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.dial("a", "b")
    lines.dial("b", "a")
    lines.run_until(1)
    peers = [*lines["a"].peers, *lines["b"].peers]
    assert sorted(peer.dialled for peer in peers) == [False, False, True, True]
    assert len({peer.number for peer in peers}) == 4
    for peer in lines["a"].peers:
        lines.want("a", Write([peer.dialled], peer))
    by_dialled: list[tuple[bool, Any]] = []
    lines["b"].react = lambda what, detail, peer: by_dialled.append((peer is not None and peer.dialled, detail))
    lines.run_until(2)
    assert sorted(by_dialled) == [(False, True), (True, False)]


def test_one_can_dial_itself(lines_of: MakeLines) -> None:
    lines = lines_of("a")
    lines.dial("a", "a")
    lines.run_until(1)
    dialler, acceptor = sorted(lines["a"].peers, key=lambda peer: not peer.dialled)
    lines.want("a", Write(["hello"], dialler), Close(acceptor))
    lines["a"].forget(acceptor)
    lines.run_until(2)
    assert lines["a"].ended == [(1.25, "closed")]
    assert lines.forgotten()


def test_a_host_that_stands_still_accepts_and_is_told_when_it_goes_on(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.pause("b", 8.0)
    lines.dial("a", "b")
    lines.run_until(1)
    assert lines["a"].story == [(0.5, "connected", lines.hosts["b"].address)]
    lines.write("a", "b", "first")
    lines.run_until(7)
    assert lines["b"].story == []
    lines.run_until(9)
    assert lines["b"].story == [(8.0, "connected", ephemeral(lines, "b")), (8.0, "got", "first")]


def test_a_dialler_that_stands_still_is_told_when_it_goes_on(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b", "c")
    node = lines["b"]
    node.react = lambda what, detail, peer: node.wants.append(Write(["welcome"], peer)) if peer else None
    lines.network.streams.refuse_dials(lines.hosts["c"])
    lines.dial("a", "c")
    lines.dial("a", "b")
    lines.pause("a", 8.0)
    lines.run_until(9)
    b = lines.hosts["b"].address
    assert lines["b"].story == [(0.75, "connected", ephemeral(lines, "b"))]
    assert lines["a"].story == [(8.0, "dial failed", "refused"), (8.0, "connected", b), (8.0, "got", "welcome")]


@pytest.mark.parametrize("crash", CrashMode)
@pytest.mark.parametrize("when", [0.1, 0.3])
def test_a_dialler_that_crashes_leaves_nothing(crash: CrashMode, when: float, lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.dial("a", "b")
    lines.network.call_in(when, lambda: lines.hosts["a"].stop(crash))
    lines.run_until(70)
    assert lines["b"].story == []
    assert lines.forgotten()


def test_an_acceptor_that_crashes_before_it_was_told_resets(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.dial("a", "b")
    lines.network.call_in(0.6, lambda: lines.hosts["b"].stop(CrashMode.KILLED))
    lines.run_until(5)
    assert lines["a"].ended == [(0.85, "reset")]
    assert lines["b"].story == []
    assert lines.forgotten()


def test_a_handshake_of_which_the_last_word_is_lost_leaves_nothing(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.dial("a", "b")
    lines.network.call_in(0.4, lambda: lines.cut("a", "b"))
    lines.run_until(70)
    assert lines["a"].story == [(0.5, "connected", lines.hosts["b"].address), (60.5, "disconnected", "timed out")]
    assert lines["b"].story == []
    assert lines.forgotten()


def test_many_dials_through_a_bad_link_open_on_both_sides_or_on_none(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b", link=Link(delay=0.01, jitter=0.05, loss=0.4))
    for _ in range(100):
        lines.dial("a", "b")
    lines.run_until(100)
    opened = len(lines["a"].told("connected"))
    assert opened == len(lines["b"].told("connected"))
    assert opened + len(lines["a"].told("dial failed")) == 100
    assert 50 < opened < 100


def test_nobody_listens_where_an_accepted_connection_comes_from(lines_of: MakeLines) -> None:
    lines = lines_of("a", "b")
    lines.dial("a", "b")
    lines.run_until(1)
    (peer,) = lines["b"].peers
    lines.want("b", Dial(peer.address))
    lines.run_until(2)
    assert lines["b"].told("dial failed") == [(1.5, "dial failed", "refused")]


def test_who_watches_is_told_the_host_and_not_where_it_seems_to_come_from(
    lines_of: MakeLines, codec: LengthCodec | None
) -> None:
    lines = lines_of("a", "b", codec=codec)
    seen: list[tuple[str, Address]] = []
    lines.network.observers.connection_changed.append(lambda host, to, what: seen.append((what, to)))
    lines.network.observers.sent.append(lambda packet: seen.append(("sent", packet.to)))
    lines.dial("a", "b")
    lines.run_until(1)
    lines.write("b", "a", "answer")
    lines.run_until(2)
    lines.hang_up("b", "a")
    lines.run_until(3)
    a, b = (lines.hosts[name].address for name in "ab")
    assert seen == [("dialled", b), ("connected", b), ("accepted", a), ("sent", a), ("closed", a), ("closed", b)]


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_written_to_an_accepted_connection_that_is_gone_names_its_host(
    shared: bool, lines_of: MakeLines
) -> None:
    lines = lines_of("b")
    sent: list[Address] = []
    lines.network.observers.sent.append(lambda packet: sent.append(packet.to))
    ends: list[tuple[Peer, Address]] = []
    callers = []
    for row in range(3):
        address = ("10.1.0.1" if shared else f"10.1.0.{row}", 1_000 + row)
        callers.append(lines.network.add(f"caller-{row}", address, lambda boot: type(lines["b"])()))
    for host in callers:
        host.start()
        lines.network.streams.connect(host, lines.hosts["b"])
        ends.append((lines["b"].peers[-1], host.address))
        lines.network.streams.reset(host, lines.hosts["b"])
    for peer, _ in ends:
        lines.want("b", Write(["too late"], peer))
    assert sent == [address for _, address in ends]
    assert lines.drops() == {"gone": 3}


def test_only_a_link_node_dials(lines_of: MakeLines) -> None:
    class Silent:
        def drain(self) -> Outputs:
            return Outputs(None, [Dial(NOWHERE)], [])

    lines = lines_of("a")
    lines.network.add("odd", ("10.0.0.9", 9), lambda boot: Silent())
    with pytest.raises(TypeError, match=r"^the Silent on odd dials, but is not an ILinkNode"):
        lines.network.host("odd").start()
