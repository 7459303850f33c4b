"""Guardian process, which sends the DROP of its node if and only if the kernel reports the exit of the node."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import error, reactor
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IStreamClientEndpoint
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.guardian import launcher as guarding_module
from fyrehose_twisted.hydra.guardian.launcher import KILL_TIMEOUT, MAX_LINKS, RESTART_DELAY, GuardianProcess, can_guard
from fyrehose_twisted.hydra.guardian.process import FINAL_DIAL_TIMEOUT, FLUSH_TIMEOUT, Guardian, watch_parent

DEADLINE = 120.0
"""Seconds after which a test fails; reached only on failure."""

pytestmark = pytest.mark.skipif(not can_guard(), reason="the platform has no pidfd")


class Wire(StringTransport):
    """The other end of one link."""

    def __init__(self, protocol: Any) -> None:
        super().__init__()
        self.protocol = protocol
        self.up = True

    def take(self) -> bytes:
        """Return lines sent since the last call, without keepalives."""
        data: bytes = self.value()
        self.clear()
        return b"".join(line for line in data.splitlines(keepends=True) if line.strip())

    def loseConnection(self) -> None:
        super().loseConnection()
        self.end()

    def abortConnection(self) -> None:
        super().abortConnection()
        self.end()

    def end(self) -> None:
        """Close the connection."""
        if self.up:
            self.up = False
            self.protocol.connectionLost(Failure(error.ConnectionDone()))


class Net:
    """A guardian and its links.

    :ivar up: links that can be opened.
    :ivar wires: open links.
    """

    def __init__(self, *links: str) -> None:
        self.clock = Clock()
        self.up = set(links)
        self.wires: dict[str, Wire] = {}
        self.dialled = 0
        self.said: list[str] = []
        self.guardian = Guardian(self.clock, links, Timers(1.0), self.endpoint_for, report=self.said.append)

    def endpoint_for(self, clock: Any, address: tuple[str, int]) -> Any:
        net, link = self, address[0]

        @implementer(IStreamClientEndpoint)
        class Endpoint:
            def connect(self, factory: Any) -> Deferred[Any]:
                net.dialled += 1
                if link not in net.up:
                    return fail(error.ConnectionRefusedError())
                protocol = factory.buildProtocol(None)
                net.wires[link] = Wire(protocol)
                protocol.makeConnection(net.wires[link])
                return succeed(protocol)

        return Endpoint()

    def bind(self, link: str, number: int) -> Wire:
        """Bind a link of the guardian to its node."""
        wire = self.wires[link]
        assert wire.take() == b"KNOCK %d ~guardian\r\n" % number
        wire.protocol.dataReceived(b"KNOCK 1 a\r\nHELLO %d 1\r\n" % number)
        return wire

    @property
    def drops(self) -> list[str]:
        """Return the links over which a new DROP was sent."""
        return [link for link, wire in self.wires.items() if b"DROP" in wire.value()]


def test_guardian_drops_a_node_whose_process_exited_and_exits() -> None:
    net = Net("x", "y")
    net.guardian.set_node_id(4711)
    x, y = net.bind("x", 4711), net.bind("y", 4711)
    assert "stands by for node 4711, 2 of 2 links are ready" in net.said
    for wire in (x, y) * 30:
        net.clock.advance(0.5)
        wire.protocol.dataReceived(b"PING 1 x 4711\r\nDROP 9\r\n")
    assert (x.take(), y.take()) == (b"", b"")
    net.guardian.parent_exited()
    assert (x.take(), y.take()) == (b"DROP 4711 guardian\r\n",) * 2
    assert (x.up, y.up) == (False, False)
    assert net.guardian.finished.called
    net.clock.advance(FLUSH_TIMEOUT)
    assert net.clock.getDelayedCalls() == []
    net.guardian.parent_exited()


def test_guardian_sends_no_drop_for_any_other_reason() -> None:
    net = Net("x", "y")
    net.guardian.set_node_id(4711)
    net.bind("x", 4711)
    net.bind("y", 4711)
    net.wires["x"].end()
    net.up.clear()
    net.wires["y"].protocol.dataReceived(b"DROP 4711 gone\r\nHELLO 4711 2\r\nnonsense\r\n" * 20)
    net.clock.pump([0.5] * 200)
    net.guardian.set_node_id(None)
    net.clock.pump([0.5] * 200)
    net.guardian.set_node_id(12)
    net.clock.pump([0.5] * 200)
    assert net.drops == []
    assert not net.guardian.finished.called
    net.up.add("x")
    net.clock.pump([0.5] * 20)
    wire = net.bind("x", 12)
    net.guardian.shut_down()
    assert net.drops == []
    assert not wire.up
    assert net.guardian.finished.called


def test_guardian_redials_and_knocks_again() -> None:
    net = Net("x")
    net.up.clear()
    net.guardian.set_node_id(4711)
    net.clock.pump([0.25] * 100)
    assert 10 <= net.dialled <= 20
    net.up.add("x")
    net.clock.pump([1.0] * 5)
    wire = net.bind("x", 4711)
    # A peer that does not know the node yet does not answer; the guardian knocks again.
    wire.end()
    net.clock.advance(0.5)
    wire = net.wires["x"]
    assert wire.take() == b"KNOCK 4711 ~guardian\r\n"
    for _ in range(20):
        net.clock.advance(0.5)
        wire.protocol.dataReceived(b"PING 1 x 7\r\n")
        if not wire.up:
            break
    assert not wire.up
    net.clock.pump([0.5] * 4)
    assert net.wires["x"] is not wire
    wire = net.bind("x", 4711)
    # A silent peer is considered absent.
    net.clock.pump([1.0] * 20)
    assert not wire.up
    assert net.wires["x"].up


def test_guardian_link_is_bound_to_one_id() -> None:
    net = Net("x")
    net.guardian.set_node_id(4711)
    old = net.bind("x", 4711)
    net.guardian.set_node_id(4712)
    assert not old.up
    assert b"DROP" not in old.value()
    net.guardian.set_node_id(None)
    assert not net.wires["x"].up
    net.guardian.set_node_id(4713)
    wire = net.wires["x"]
    # An answer for another node binds no link.
    assert wire.take() == b"KNOCK 4713 ~guardian\r\n"
    wire.protocol.dataReceived(b"HELLO 4712 1\r\n")
    net.guardian.parent_exited()
    assert net.drops == []
    wire.protocol.dataReceived(b"HELLO 4713 1\r\n")
    assert wire.take() == b"DROP 4713 guardian\r\n"
    assert net.guardian.finished.called


def test_finished_guardian_does_not_dial() -> None:
    net = Net("x")
    net.guardian.set_node_id(4711)
    net.bind("x", 4711)
    net.guardian.shut_down()
    net.guardian._dial_failed(("x", 1), "refused")
    net.clock.advance(60.0)
    assert net.dialled == 1


def test_guardian_dials_for_a_while_after_the_exit_of_the_parent() -> None:
    net = Net("x")
    net.up.clear()
    net.guardian.set_node_id(4711)
    net.guardian.parent_exited()
    net.up.add("x")
    net.clock.pump([0.5] * 4)
    assert net.bind("x", 4711).take() == b"DROP 4711 guardian\r\n"
    assert net.guardian.finished.called
    net = Net("x")
    net.up.clear()
    net.guardian.set_node_id(4711)
    net.guardian.parent_exited()
    net.clock.advance(FINAL_DIAL_TIMEOUT - 0.1)
    assert not net.guardian.finished.called
    net.clock.advance(0.2)
    assert net.guardian.finished.called
    # A node without a network has no DROP to send.
    net = Net("x")
    net.guardian.parent_exited()
    assert net.guardian.finished.called
    assert net.dialled == 0


def test_parent_that_exited_before_the_start_is_detected() -> None:
    gone: list[None] = []
    # The pid may be reused by another process, so only the parent id counts.
    watch_parent(os.getpid(), None, lambda: gone.append(None))
    assert gone == [None]


def test_guardian_exits_without_commands(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fyrehose_twisted.hydra.guardian.process"]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    first = {"parent": os.getpid(), "secret": None, "links": ["tcp:127.0.0.1:1"], "scale": 0.1}
    lines = [first, {"id": None}, {"quit": True}]
    data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    done = subprocess.run(command, input=data, capture_output=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


class Spawning:
    """Reactor that records processes instead of starting them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.spawned: list[tuple[Any, ...]] = []
        self.told: list[dict[str, Any]] = []
        self.signals: list[str] = []
        self.pipes: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.clock, name)

    def spawnProcess(self, protocol: Any, *arguments: Any, **more: Any) -> None:  # noqa: N802
        self.spawned.append((arguments, more))
        self.pipes[0] = self.told.append
        protocol.makeConnection(self)

    def writeToChild(self, number: int, data: bytes) -> None:  # noqa: N802
        self.pipes[number](json.loads(data))

    def signalProcess(self, name: str) -> None:  # noqa: N802
        self.signals.append(name)


def test_guardian_gets_its_settings_only_over_standard_input() -> None:
    spawning = Spawning()
    guarding = GuardianProcess(spawning, [f"tcp:x:{port}" for port in range(1, 9)], b"a secret", 0.1)
    guarding.set_node_id(7)
    guarding.start()
    ((executable, command, environment), more) = spawning.spawned[0]
    assert command[-2:] == ["-m", "fyrehose_twisted.hydra.guardian.process"]
    assert executable == sys.executable
    assert not any("secret" in str(part) for part in (*command, *environment.values()) if "a secret" in str(part))
    assert more == {"childFDs": {0: "w", 1: 2, 2: 2}}
    links = [f"tcp:x:{port}" for port in range(1, 1 + MAX_LINKS)]
    first = {"parent": os.getpid(), "secret": b"a secret".hex(), "links": links, "scale": 0.1}
    assert spawning.told == [first, {"id": 7}]
    guarding.set_node_id(7)
    guarding.set_node_id(None)
    assert spawning.told[2:] == [{"id": None}]
    # A guardian that exits is restarted with the same settings.
    guarding.processExited(Failure(error.ProcessDone(0)))
    guarding.set_node_id(8)
    spawning.clock.advance(RESTART_DELAY)
    assert len(spawning.spawned) == 2
    assert spawning.told[3:] == [first, {"id": 8}]
    # Without QUIT it keeps running.
    assert guarding.stop(goodbye_sent=False).called
    assert spawning.told[5:] == []


def test_guardian_that_does_not_exit_is_killed() -> None:
    spawning = Spawning()
    guarding = GuardianProcess(spawning, ["tcp:x:1"], None, 1.0)
    guarding.start()
    stopped = guarding.stop(goodbye_sent=True)
    assert spawning.told[-1] == {"quit": True}
    spawning.clock.advance(KILL_TIMEOUT)
    assert spawning.signals == ["KILL"]
    assert not stopped.called
    guarding.processExited(Failure(error.ProcessTerminated(signal=9)))
    assert stopped.called
    assert spawning.clock.getDelayedCalls() == []
    assert len(spawning.spawned) == 1


def test_guardian_that_exits_after_the_stop_is_not_restarted() -> None:
    spawning = Spawning()
    guarding = GuardianProcess(spawning, ["tcp:x:1"], None, 1.0)
    guarding.start()
    assert guarding.stop(goodbye_sent=False).called
    guarding.processExited(Failure(error.ProcessDone(0)))
    spawning.clock.advance(RESTART_DELAY)
    assert len(spawning.spawned) == 1


def test_guardian_that_exits_in_time_is_not_killed() -> None:
    spawning = Spawning()
    guarding = GuardianProcess(spawning, ["tcp:x:1"], None, 1.0)
    guarding.start()
    stopped = guarding.stop(goodbye_sent=True)
    guarding.processExited(Failure(error.ProcessDone(0)))
    assert stopped.called
    assert spawning.clock.getDelayedCalls() == []
    assert spawning.signals == []


def test_guardian_with_a_closed_pipe_gets_no_commands() -> None:
    spawning = Spawning()
    guarding = GuardianProcess(spawning, ["tcp:x:1"], None, 1.0)
    guarding.start()
    spawning.pipes.clear()
    guarding.set_node_id(7)
    assert not guarding.stop(goodbye_sent=True).called
    guarding.processExited(Failure(error.ProcessTerminated(signal=9)))
    assert {"id": 7} not in spawning.told


@pytest_twisted.ensureDeferred
async def test_guardian_exits_on_quit(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[Any] = []

    class Watched(GuardianProcess):
        def processExited(self, reason: Failure) -> None:  # noqa: N802
            ends.append(reason.value)
            super().processExited(reason)

    # A busy machine might kill it instead.
    monkeypatch.setattr(guarding_module, "KILL_TIMEOUT", DEADLINE)
    watched = Watched(reactor, ["tcp:127.0.0.1:1"], None, 1.0)
    watched.start()
    watched.set_node_id(4711)
    await watched.stop(goodbye_sent=True)
    assert [type(end) for end in ends] == [error.ProcessDone]
