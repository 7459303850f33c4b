from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from typing import Any

import pytest
from sim.worlds import MakeWorld, World

from fyrehose_twisted.effects import Send
from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.invariants import InvariantViolated
from fyrehose_twisted.sim.link import Link
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.schedule import FaultSchedule
from fyrehose_twisted.sim.trace import TraceWriter

FIELDS = {
    "run": {"scenario", "seed", "start", "nodes", "python", "version", "replay"},
    "send": {"t", "node", "to", "id", "size", "what"},
    "arrive": {"t", "node", "from", "id", "damaged", "truncated", "what"},
    "drop": {"t", "node", "from", "id", "why"},
    "event": {"t", "node", "what"},
    "persist": {"t", "node", "what"},
    "operation": {"t", "node", "what"},
    "start": {"t", "node"},
    "stop": {"t", "node", "what"},
    "pause": {"t", "node"},
    "resume": {"t", "node"},
    "link": {"t", "node", "to", "what"},
    "fault": {"t", "what", "nodes", "until"},
    "broken": {"t", "invariant", "nodes", "what"},
    "end": {"t", "counts"},
}
"""Documented fields of each kind of entry, besides the kind."""


def read(out: StringIO) -> list[dict[str, Any]]:
    assert out.getvalue().endswith("\n")
    return [json.loads(line) for line in out.getvalue().splitlines()]


def traced(world: World, **options: Any) -> tuple[TraceWriter, StringIO]:
    out = StringIO()
    described = {"describe": lambda thing: f"<{thing!r}>"} | options
    trace = TraceWriter(world.network, out, scenario="test.trace", seed=7, **described)
    world.network.add_observer(trace)
    return trace, out


@pytest.fixture
def lines(make_world: MakeWorld) -> list[dict[str, Any]]:
    """Return the trace of a run with every kind of entry."""
    world = make_world(link=Link(delay=0.25), start=1_000_000.0)
    a, b = world.add("a", "b")
    trace, out = traced(world)
    network = world.network
    world["a"].wanted.append(Outputs("mark", [Send([b"x"], (b.address, ("10.9.9.9", 9)))], ["event"]))
    a.flush()
    network.run(1.5)
    for observe in network.observers.operation_performed:
        observe(a, "something")
    for observe in network.observers.connection_changed:
        observe(a, b.address, "connected")
        observe(a, ("10.9.9.9", 9), "refused")
    FaultSchedule.parse("0.1 pause b for 0.2\n0.4 clock a +1.0").schedule_on(network)
    network.run(0.5)
    b.stop(CrashMode.POWER)
    b.start()
    for observe in network.observers.sent.of(("a message", 1)):
        observe(SimPacket(99, a, b.address, ("a message", 1), 0.0))
    trace.broken(InvariantViolated("nothing breaks", 2.0, ("a", "b"), "it did"))
    trace.end()
    return read(out)


def test_each_kind_of_trace_entry_has_its_documented_fields(lines: list[dict[str, Any]]) -> None:
    assert {line["kind"] for line in lines} == set(FIELDS)
    for line in lines:
        optional = {"size", "until", "replay"} | (
            {"damaged", "truncated", "what"} if line["kind"] == "arrive" else set()
        )
        expected = FIELDS[line["kind"]] | {"kind"}
        assert expected - optional <= set(line) <= expected, line
    assert [list(line)[:2] for line in lines[1:]] == [["t", "kind"]] * (len(lines) - 1)
    for kind in FIELDS:
        # The class docstring names all kinds.
        assert f"``{kind}``" in str(TraceWriter.__doc__)


def test_a_trace_records_the_events_of_a_run(lines: list[dict[str, Any]]) -> None:
    python, version = lines[0].pop("python"), lines[0].pop("version")
    assert python == ".".join(map(str, sys.version_info[:2]))
    assert version
    assert lines == [
        {"kind": "run", "scenario": "test.trace", "seed": 7, "start": 1_000_000.0, "nodes": ["a", "b"]},
        {"t": 0.0, "kind": "persist", "node": "a", "what": "<'mark'>"},
        {"t": 0.0, "kind": "send", "node": "a", "to": "b", "id": 1, "size": 1, "what": "<b'x'>"},
        {"t": 0.0, "kind": "send", "node": "a", "to": "10.9.9.9:9", "id": 2, "size": 1, "what": "<b'x'>"},
        {"t": 0.0, "kind": "drop", "node": "10.9.9.9:9", "from": "a", "id": 2, "why": "nobody"},
        {"t": 0.0, "kind": "event", "node": "a", "what": "<'event'>"},
        {"t": 0.25, "kind": "arrive", "node": "b", "from": "a", "id": 1},
        {"t": 1.5, "kind": "operation", "node": "a", "what": "something"},
        {"t": 1.5, "kind": "link", "node": "a", "to": "b", "what": "connected"},
        {"t": 1.5, "kind": "link", "node": "a", "to": "10.9.9.9:9", "what": "refused"},
        {"t": 1.6, "kind": "fault", "what": "pause b for 0.2", "nodes": ["b"], "until": 1.8},
        {"t": 1.6, "kind": "pause", "node": "b"},
        {"t": 1.8, "kind": "resume", "node": "b"},
        {"t": 1.9, "kind": "fault", "what": "clock a +1.0", "nodes": ["a"]},
        {"t": 2.0, "kind": "stop", "node": "b", "what": "power lost"},
        {"t": 2.0, "kind": "start", "node": "b"},
        {"t": 2.0, "kind": "send", "node": "a", "to": "b", "id": 99, "what": "<('a message', 1)>"},
        {"t": 2.0, "kind": "broken", "invariant": "nothing breaks", "nodes": ["a", "b"], "what": "it did"},
        {
            "t": 2.0,
            "kind": "end",
            "counts": {
                "arrived": 1,
                "batches": 1,
                "dropped": 1,
                "dropped: nobody": 1,
                "faults": 2,
                "sent": 2,
            },
        },
    ]
    assert list(lines[-1]["counts"]) == sorted(lines[-1]["counts"])


def test_trace_entries_are_single_ascii_lines(make_world: MakeWorld) -> None:
    world = make_world()
    (a,) = world.add("a")
    trace, out = traced(world, describe=lambda thing: "é\n\u2028\x00\ud800")
    world["a"].wanted.append(Outputs(None, [], ["event"]))
    a.flush()
    trace.end()
    assert out.getvalue().isascii()
    assert len(out.getvalue().splitlines()) == 3
    assert read(out)[1]["what"] == "é\n\u2028\x00\ud800"


def test_both_arrivals_of_a_duplicate_have_the_id_of_its_send(make_world: MakeWorld) -> None:
    world = make_world(link=Link(duplication=1.0))
    world.add("a", "b")
    _, out = traced(world)
    world.send("a", "b", b"1", b"2")
    world.network.run(1)
    assert [(line["kind"], line["id"]) for line in read(out)[1:]] == [
        ("send", 1),
        ("send", 2),
        *[("arrive", number) for number in (1, 1, 2, 2)],
    ]


def test_a_trace_records_payloads_damaged_in_transit(make_world: MakeWorld) -> None:
    world = make_world(link=Link(corruption=0.4, truncation=0.4, checksum=False))
    world.add("a", "b")
    _, out = traced(world)
    world.send("a", "b", *[b"whole datagram"] * 100)
    world.network.run(1)
    arrivals = [line for line in read(out) if line["kind"] == "arrive"]
    seen = set()
    for line, (_, datagram, _, truncated) in zip(arrivals, world["b"].rows, strict=True):
        damaged = datagram != b"whole datagram"[: len(datagram) if truncated else None]
        seen.add((damaged, truncated))
        damage = {"damaged": True} if damaged else {}
        damage |= {"truncated": True} if truncated else {}
        damage |= {"what": f"<{datagram!r}>"} if damage else {}
        assert {key: line[key] for key in line if key not in ("t", "kind", "node", "from", "id")} == damage
    assert len(seen) == 4


def test_a_traced_fault_ends_after_its_own_duration(make_world: MakeWorld) -> None:
    world = make_world()
    world.add("a", "b")
    _, out = traced(world)
    FaultSchedule.parse("0.5 crash a killed once durable for 2.0\n1.0 crash b killed for 2.0").schedule_on(
        world.network
    )
    world.network.run(9)
    assert [line["until"] for line in read(out) if line["kind"] == "fault"] == [4.5, 3.0]


def test_a_trace_starts_with_its_replay_command(make_world: MakeWorld) -> None:
    world = make_world()
    world.add("a")
    _, out = traced(world, replay="fyrehose simulate x:Y --seed 7")
    assert read(out)[0]["replay"] == "fyrehose simulate x:Y --seed 7"
    _, out = traced(world)
    assert "replay" not in read(out)[0]


PROGRAM = """
import sys
from random import Random
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME, Backbone
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.sim import fault_generators
from fyrehose_twisted.sim.schedule import FaultSchedule
from fyrehose_twisted.sim.scenario import Scenario

BACKBONE = ("10.0.0.1", 2323)

class Small(Scenario):
    '''A backbone and four clients of which each publishes.'''

    name = "test.small"
    duration = 30.0

    def build(self):
        names = self.names = ["backbone", *(f"client-{number}" for number in range(4))]
        self.network.add("backbone", BACKBONE, self.backbone)
        self.hosts = [self.network.add(name, (f"10.0.1.{number}", 4000), self.client)
                      for number, name in enumerate(names[1:])]
        for number in range(40):
            self.network.call_in(self.rng.uniform(1, 25), lambda number=number: self.publish(number))

    def backbone(self, boot):
        last, bound = (boot.persisted.last, boot.persisted.bound) if boot.persisted else (0, 0)
        settle = None if boot.last_crash is None else boot.now + SETTLE_TIME
        policy = RandomForward(Random(self.rng.random()))
        start = BackboneStart(last=last, bound=bound, settle_until=settle)
        return Backbone(BackboneConfig(), policy, start)

    def client(self, boot):
        return Client(BACKBONE, ClientConfig(), Random(self.rng.random()), boot.now)

    def publish(self, number):
        host = self.rng.choice(self.hosts)
        self.operate(host, f"publish {number}", lambda node, now: node.publish(b"message %d" % number, now))

    def draw_faults(self, rng):
        kinds = [(1.0, fault_generators.crashes(self.names, after_persist=0.5)),
                 (1.0, fault_generators.pauses(self.names)),
                 (1.0, fault_generators.cuts(self.names)),
                 (2.0, fault_generators.bad_links(self.names, deliver_corrupted=True)),
                 (1.0, fault_generators.clock_faults(self.names))]
        return FaultSchedule.draw(rng, 12, until=20.0, kinds=kinds)

for seed in map(int, sys.argv[1:]):
    outcome = Small(seed).run(sys.stdout)
    assert outcome.violation is None, outcome.violation
"""


def trace_of(*seeds: int, hash_seed: str) -> bytes:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, seeds)],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr.decode()
    return ran.stdout


def test_equal_seeds_have_equal_traces_in_any_process() -> None:
    together = trace_of(1, 2, hash_seed="0")
    place = together.index(b'{"kind":"run"', 1)
    first, second = together[:place], together[place:]
    # In another process, to show that neither hash seeds nor earlier runs matter.
    assert trace_of(2, hash_seed="1") == second
    assert first != second
    assert first.count(b"\n") > 1_000
    lines = [json.loads(line) for line in first.splitlines()]
    kinds = {line["kind"] for line in lines}
    assert {"send", "arrive", "drop", "event", "persist", "operation", "stop", "start", "pause", "fault"} <= kinds
    assert [line["kind"] for line in lines if line["kind"] in ("run", "broken", "end")] == ["run", "end"]
    assert lines[-1]["kind"] == "end"
    assert [line["t"] for line in lines[1:]] == sorted(line["t"] for line in lines[1:])
