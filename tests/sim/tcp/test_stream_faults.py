from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from zope.interface import implementer

from fyrehose_twisted.effects import Address, Dial, Peer, Write
from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import ILinkNode, Outputs
from fyrehose_twisted.sim.fault_generators import half_opens, refusals, resets, slow_readers
from fyrehose_twisted.sim.faults.faults import Fault, PartitionFault
from fyrehose_twisted.sim.faults.stream_faults import DialRefusal, HalfOpen, Reset, SlowReader
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.schedule import FaultSchedule, shrink


@implementer(ILinkNode)
class Caller:
    """A stream node that records its inputs."""

    def __init__(self) -> None:
        self.story: list[tuple[float, str, Any]] = []
        self.peers: list[Peer] = []
        self.wants: list[Any] = []

    def connected(self, peer: Peer, now: float) -> None:
        self.peers.append(peer)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        self.story.append((now, "dial failed", reason))

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        self.peers.remove(peer)
        self.story.append((now, "disconnected", reason))

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        self.story.append((now, "got", message))

    def blocked(self, peer: Peer, now: float) -> None:
        self.story.append((now, "blocked", None))

    def unblocked(self, peer: Peer, now: float) -> None:
        self.story.append((now, "unblocked", None))

    def tick(self, now: float) -> None:
        raise AssertionError("nobody asked for a tick")

    def next_deadline(self) -> float | None:
        return None

    def drain(self) -> Outputs:
        wants, self.wants = self.wants, []
        return Outputs(None, wants, [])


class Office:
    """Three hosts, all connected, with a latency of 0.25 s."""

    def __init__(self, faults: str = "") -> None:
        self.network = Network(1, Link(delay=0.25), start=0.0)
        for number, name in enumerate("abc"):
            self.network.add(name, (f"10.0.0.{number}", number), lambda boot: Caller()).start()
        for one, other in ("ab", "bc", "ac"):
            self.network.streams.connect(self.network.host(one), self.network.host(other))
        FaultSchedule.parse(faults).schedule_on(self.network)

    def __getitem__(self, name: str) -> Caller:
        node: Caller = self.network.host(name).node
        return node

    def run_until(self, when: float) -> Office:
        self.network.scheduler.run_until(when)
        return self

    def write(self, name: str, to: str, *messages: Any) -> None:
        address = self.network.host(to).address
        ends = self.network.streams.connection_ends(self.network.host(name))
        peer = next(peer for peer in self[name].peers if ends[peer.number].to == address)
        self.network.host(name).perform(lambda node, now: node.wants.append(Write(messages, peer)))

    def dial(self, name: str, to: str) -> None:
        address = self.network.host(to).address
        self.network.host(name).perform(lambda node, now: node.wants.append(Dial(address)))


ALL: list[Fault] = [
    Reset(1.0, 0.0, "a", "b"),
    HalfOpen(1.5, 0.0, "a", "b"),
    DialRefusal(2.0, 3.0, "a"),
    SlowReader(2.25, 5.0, "a", 1_000.0),
    SlowReader(2.5, 5.0, "a", 0.5, "b"),
]

TEXT = """\
1.0 reset a b
1.5 half-open a b
2.0 refuse a for 3.0
2.25 slow a 1000.0 for 5.0
2.5 slow a 0.5 from b for 5.0
"""


def test_a_reset_fault_ends_every_connection_between_two_hosts() -> None:
    office = Office("1.0 reset a b")
    office.dial("b", "a")
    office.run_until(0.9)
    assert len(office["a"].peers) == 3
    office.write("a", "b", "on its way")
    office.run_until(5.0)
    assert office["a"].story == [(1.0, "disconnected", "reset")] * 2
    assert office["b"].story == [(1.0, "disconnected", "reset")] * 2
    assert office.network.counters["dropped: reset"] == 1
    assert office["c"].story == []
    assert len(office["c"].peers) == 2


@pytest.mark.parametrize("fault", ["reset a b", "reset b a"])
def test_a_reset_fault_ends_half_open_connections(fault: str) -> None:
    office = Office(f"0.6 {fault}")
    office.dial("b", "a")
    office.run_until(5.0)
    assert office["b"].story == [(0.6, "disconnected", "reset")] * 2
    assert office["a"].story == [(0.6, "disconnected", "reset")]
    assert [len(office.network.streams.connection_ends(office.network.host(name))) for name in ("a", "b")] == [1, 1]


def test_a_half_open_fault_resets_one_side_and_the_other_on_its_next_write() -> None:
    office = Office("1.0 half-open a b").run_until(5.0)
    assert office["b"].story == [(1.0, "disconnected", "reset")]
    assert office["a"].story == []
    office.write("a", "b", "still there?")
    office.run_until(10.0)
    assert office["a"].story == [(5.5, "disconnected", "reset")]
    assert office["b"].story == [(1.0, "disconnected", "reset")]
    assert office["c"].story == []


def test_a_half_open_fault_is_directional() -> None:
    office = Office("1.0 half-open b a").run_until(5.0)
    assert (office["a"].story, office["b"].story) == ([(1.0, "disconnected", "reset")], [])


def test_a_dial_refusal_fault_ends_after_its_duration() -> None:
    office = Office("1.0 refuse b for 3.0")
    for when in (0.5, 1.5, 3.5, 4.5):
        office.run_until(when)
        office.dial("a", "b")
    office.run_until(10.0)
    assert office["a"].story == [(2.0, "dial failed", "refused"), (4.0, "dial failed", "refused")]
    assert len(office["a"].peers) == 4


def test_a_slow_reader_fault_ends_after_its_duration() -> None:
    office = Office("1.0 slow b 512.0 for 5.0").run_until(1.0)
    office.write("a", "b", *range(100))
    office.write("c", "b", *range(100, 105))
    office.run_until(5.9)
    assert 9 <= len(office["b"].story) <= 11
    office.run_until(6.5)
    got = [message for _, _, message in office["b"].story]
    assert sorted(got) == list(range(105))
    assert [message for message in got if message < 100] == list(range(100))


def test_a_slow_reader_fault_can_apply_to_one_peer() -> None:
    office = Office("1.0 slow b 512.0 from a for 5.0").run_until(1.0)
    office.write("a", "b", *range(100))
    office.write("c", "b", *range(100, 105))
    office.run_until(2.0)
    assert [message for _, _, message in office["b"].story if message >= 100] == list(range(100, 105))
    assert 5 <= len(office["b"].story) <= 9


def test_a_slow_reader_fault_blocks_the_sender() -> None:
    office = Office("0.0 slow b 512.0 for 20.0").run_until(0.5)
    office.write("a", "b", *range(600))
    office.run_until(60.0)
    assert [what for _, what, _ in office["a"].story] == ["blocked", "unblocked"]
    assert [message for _, _, message in office["b"].story] == list(range(600))


def test_a_slow_reader_fault_ends_with_a_crash_of_the_host() -> None:
    office = Office("0.0 slow b 512.0 for 20.0\n2.0 crash b killed for 1.0").run_until(0.5)
    office.write("a", "b", *range(100))
    office.run_until(5.0)
    office.dial("a", "b")
    office.run_until(6.0)
    office.write("a", "b", *range(10))
    office.run_until(30.0)
    assert [message for _, _, message in office["b"].story] == list(range(10))
    assert office["b"].story[-1][0] > 10.0
    assert len(office.network.scheduler) == 0


def test_stream_faults_round_trip_as_text() -> None:
    schedule = FaultSchedule(ALL)
    assert str(schedule) == TEXT
    assert FaultSchedule.parse(TEXT) == schedule


def test_a_slow_reader_rate_may_be_an_integer() -> None:
    (fault,) = FaultSchedule.parse("0 slow a 1000 for 5")
    assert fault == SlowReader(0.0, 5.0, "a", 1_000.0)


@pytest.mark.parametrize(
    "line",
    ["1 reset a", "1 half-open a b c", "1 refuse a b for 2", "1 slow a", "1 slow a 10 from"],
)
def test_an_invalid_stream_fault_is_reported_with_its_syntax(line: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{line.split()[1]}, such as: 1 "):
        FaultSchedule.parse(line)


@pytest.mark.parametrize("rate", ["0", "-1", "inf", "nan", "fast"])
def test_a_slow_reader_rate_must_be_positive(rate: str) -> None:
    with pytest.raises(ConfigurationError, match=r"line 1 of the faults"):
        FaultSchedule.parse(f"1 slow a {rate} for 2")


def test_a_slow_reader_rate_that_is_no_number_is_reported() -> None:
    with pytest.raises(ConfigurationError, match=r"'fast' is not a number$"):
        FaultSchedule.parse("1 slow a fast for 2")


def test_generated_stream_faults_cover_every_kind_and_round_trip() -> None:
    kinds = [
        (1.0, resets("abc")),
        (1.0, half_opens("abc")),
        (1.0, refusals("abc", max_duration=3.0)),
        (1.0, slow_readers("abc", rates=(10.0, 1_000.0), max_duration=4.0)),
    ]
    drawn = FaultSchedule.draw(Random(1), 400, until=60.0, kinds=kinds)
    assert FaultSchedule.parse(str(drawn)) == drawn
    assert {type(fault) for fault in drawn} == {Reset, HalfOpen, DialRefusal, SlowReader}
    for fault in drawn:
        assert len(set(fault.host_names())) == len(fault.host_names())
        assert set(fault.host_names()) <= set("abc")
    assert {len(fault.host_names()) for fault in drawn if isinstance(fault, SlowReader)} == {1, 2}
    assert all(0.1 <= fault.duration <= 3.0 for fault in drawn if isinstance(fault, DialRefusal))
    rates = sorted(fault.rate for fault in drawn if isinstance(fault, SlowReader))
    assert 10.0 <= rates[0] < 20.0 < 500.0 < rates[-1] <= 1_000.0
    Office(str(drawn)).run_until(100.0)


def test_stream_faults_name_their_hosts() -> None:
    assert [fault.host_names() for fault in ALL] == [("a", "b"), ("a", "b"), ("a",), ("a",), ("a", "b")]


def test_stream_faults_can_be_drawn_and_shrunk() -> None:
    kinds: list[tuple[float, Callable[[Random, float], Fault]]] = [
        (1.0, lambda rng, at: Reset(at, 0.0, "a", "b")),
        (1.0, lambda rng, at: HalfOpen(at, 0.0, "b", "c")),
        (1.0, lambda rng, at: DialRefusal(at, rng.uniform(1.0, 5.0), "c")),
        (1.0, lambda rng, at: SlowReader(at, rng.uniform(1.0, 5.0), "b", 1_000.0)),
        (1.0, lambda rng, at: PartitionFault(at, rng.uniform(1.0, 5.0), ("a",), ("c",))),
    ]
    drawn = FaultSchedule.draw(Random(1), 30, until=60.0, kinds=kinds)
    assert {type(fault) for fault in drawn} == {Reset, HalfOpen, DialRefusal, SlowReader, PartitionFault}

    def half_open_is_noticed(schedule: FaultSchedule) -> bool:
        office = Office(str(schedule)).run_until(100.0)
        return any(reason == "reset" for _, _, reason in office["c"].story)

    assert half_open_is_noticed(drawn)
    (fault,) = shrink(drawn, half_open_is_noticed)
    assert isinstance(fault, HalfOpen)
    slow = FaultSchedule([SlowReader(0.0, 16.0, "b", 1_000.0)])
    (shorter,) = shrink(slow, lambda schedule: any(fault.duration >= 1.0 for fault in schedule))
    assert shorter == SlowReader(0.0, 1.0, "b", 1_000.0)
