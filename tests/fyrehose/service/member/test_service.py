"""Service of a member: in one process on real sockets, and on its own with a fake clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from prometheus_client import CollectorRegistry
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.endpoints import TCP4ClientEndpoint
from twisted.internet.error import DNSLookupError
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import NotConnected, StateFileError
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.fyrehose.service.member import service as module
from fyrehose_twisted.fyrehose.service.member.config import MemberServiceConfig
from fyrehose_twisted.fyrehose.service.member.dialer import MemberDialer
from fyrehose_twisted.fyrehose.service.member.metrics import MemberCollector
from fyrehose_twisted.fyrehose.service.member.service import MemberService
from fyrehose_twisted.fyrehose.service.member.state_file import MemberStateFile
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile
from fyrehose_twisted.net.auth import AuthClientEndpoint, Authenticator

reactor: Any = installed_reactor

DEADLINE = 120.0
"""Seconds after which a test on real sockets fails; reached only on failure."""
STREAM = "fyrehose://s"
SECRET = b"a secret that is long enough"


class Told(MemberProtocol):
    """A member that tells when a condition holds."""

    def __init__(self) -> None:
        super().__init__(settle_time=0.0)
        self.names: tuple[str, ...] = ()
        self.waiting: list[tuple[Callable[[], object], Deferred[None]]] = []

    def members_changed(self, names: tuple[str, ...]) -> None:
        self.names = names

    def event_received(self, event: Any) -> None:
        super().event_received(event)
        for condition, done in tuple(self.waiting):
            if not done.called and condition():
                done.callback(None)

    def when(self, condition: Callable[[], object]) -> Deferred[None]:
        """Return a Deferred that fires once a condition holds after an event."""
        done: Deferred[None] = Deferred()
        self.waiting.append((condition, done))
        return done.addTimeout(DEADLINE, reactor)


class Group:
    """Services of the members of one group on loopback."""

    def __init__(self, directory: Path, *names: str, secrets: dict[str, bytes] | None = None) -> None:
        self.directory = directory
        self.services = {name: self.make(name, (secrets or {}).get(name, SECRET)) for name in names}

    def make(self, name: str, secret: bytes) -> Any:
        member = MemberServiceConfig(
            name=name, peers=(("127.0.0.1", 1),), listen="tcp:0", secret=secret, bootstrap=True, control="tcp:0"
        )
        return MemberService(
            Told(),
            member,
            lambda: SequenceFile(self.directory / name, STREAM),
            lambda: MemberStateFile(self.directory / f"{name}.member", STREAM, name),
            0,
            "127.0.0.1",
            stream=STREAM,
        )

    def start(self) -> None:
        for service in self.services.values():
            service.privilegedStartService()
        places = {name: self.place(name, "peer-listen") for name in self.services}
        for service in self.services.values():
            service.member = replace(service.member, peers=tuple(places.values()))  # Its own is left out.
            service.startService()

    def place(self, name: str, option: str) -> Address:
        (host,) = self.services[name]._peer_ports.hosts_by_option[option]
        return host.host, host.port

    async def stop(self) -> None:
        for service in self.services.values():
            await service.stopService()


@pytest.fixture
def logged() -> Iterator[Any]:
    with capturedLogs() as events:
        yield events


def lines(events: list[LogEvent]) -> list[str]:
    ours = [event for event in events if event.get("log_namespace", "").startswith("fyrehose")]
    return [event["log_format"].format(**event) for event in ours]


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the calls that would end the process."""
    calls: list[Any] = []
    monkeypatch.setattr("fyrehose_twisted.fyrehose.service.connect.exit_with_failure", calls.append)
    return calls


@pytest_twisted.ensureDeferred
async def test_members_form_a_group_and_hand_over_when_one_stops(tmp_path: Path, failed: list[Any]) -> None:
    group = Group(tmp_path, "a", "b", "c")
    a, b, c = group.services.values()
    ready = [
        one.protocol.when(lambda one=one: one.protocol.names == ("a", "b", "c") and one.status()["leader"] == "a")
        for one in (a, b, c)
    ]
    numbering = a.protocol.when(lambda: a.protocol.takeovers)
    try:
        group.start()
        await gatherResults([*ready, numbering])
        status = a.status()
        status = json.loads(json.dumps(status))
        assert (status["name"], status["leads"], status["quorum"]) == ("a", True, 2)
        assert [(one["name"], one["peer_address"], one["connected"]) for one in status["members"]] == [
            (name, "{}:{}".format(*group.place(name, "peer-listen")), True) for name in "abc"
        ]
        assert "auth_reflected" not in status["counters"]
        values = metrics(a)
        assert values["fyrehose_backbone_leading"] == 1
        assert values["fyrehose_backbone_members{connected=true}"] == 3
        assert values["fyrehose_backbone_members{connected=false}"] == 0
        assert values["fyrehose_backbone_leader{leader=a}"] == 1
        assert values["fyrehose_backbone_takeovers_total"] == 1
        assert 0 < values["fyrehose_backbone_lease_seconds"] <= 0.8
        assert metrics(b)["fyrehose_backbone_leading"] == 0
        succeeded = [one.protocol.when(lambda one=one: one.protocol.takeovers) for one in (b, c)]
        await a.stopService()
        del group.services["a"]
        (new,) = [one for one in (b, c) if one.status()["leads"]]
        assert new.protocol.skipped == 0
        with pytest.raises(NotConnected):
            a.status()
        for path, open_file in (("a", SequenceFile), ("a.member", MemberStateFile)):
            arguments = (STREAM, "a") if open_file is MemberStateFile else (STREAM,)
            open_file(tmp_path / path, *arguments).close()  # type: ignore[arg-type]
        for one in succeeded:
            one.addErrback(lambda failure: None)
            one.cancel()
    finally:
        await group.stop()
    assert failed == []


def metrics(service: Any) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(MemberCollector(service))
    return {
        sample.name + "".join(f"{{{name}={value}}}" for name, value in sample.labels.items()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


@pytest_twisted.ensureDeferred
async def test_stranger_without_the_secret_gets_no_proof_and_is_counted(tmp_path: Path, failed: list[Any]) -> None:
    group = Group(tmp_path, "a", "z", secrets={"z": SECRET[::-1]})
    a = group.services["a"]
    refused: Deferred[None] = Deferred()
    a._auth_failures = Recording(refused, "wrong-proof")
    try:
        group.start()
        await refused.addTimeout(DEADLINE, reactor)
        with_lost = await Stranger().connect(group.place("a", "peer-listen"))
        assert with_lost.startswith(b"AUTH ")
        assert b"PROOF" not in with_lost
        assert a.status()["counters"]["auth_wrong_proof"] >= 1
        assert metrics(a)["fyrehose_backbone_peer_problems_total{reason=auth_wrong_proof}"] >= 1
        assert [one["name"] for one in a.status()["members"]] == []
        assert a.protocol.member_node.links.connected == {}
    finally:
        await group.stop()


class Recording(dict[str, int]):
    """Counter that tells of one reason."""

    def __init__(self, done: Deferred[None], reason: str) -> None:
        self.done, self.reason = done, reason

    def __missing__(self, key: str) -> int:
        return 0

    def __setitem__(self, key: str, value: int) -> None:
        super().__setitem__(key, value)
        if key == self.reason and not self.done.called:
            self.done.callback(None)


class Stranger(Protocol):
    """A client of the port for members that sends a message without a proof."""

    def __init__(self) -> None:
        self.heard = b""
        self.closed: Deferred[bytes] = Deferred()

    async def connect(self, place: Address) -> bytes:
        """Return what was heard until the connection ended."""
        endpoint: Any = TCP4ClientEndpoint(reactor, *place)
        await endpoint.connect(Factory.forProtocol(lambda: self))
        return await self.closed.addTimeout(DEADLINE, reactor)

    def connectionMade(self) -> None:
        transport: Any = self.transport
        transport.write(b"\0\0\0\x02\x81\x02" + b"\r\n" * 20)

    def dataReceived(self, data: bytes) -> None:
        self.heard += data

    def connectionLost(self, reason: Any = None) -> None:
        self.closed.callback(self.heard)


@pytest_twisted.ensureDeferred
async def test_start_that_fails_is_reported_and_the_service_can_stop(
    tmp_path: Path, failed: list[Any], logged: list[LogEvent]
) -> None:
    (tmp_path / "a.member").write_bytes(b"nonsense")
    group = Group(tmp_path, "a")
    group.start()
    assert len(failed) == 1
    assert any("stopping: state file" in line and "not the state of a member" in line for line in lines(logged))
    await group.stop()


@pytest_twisted.ensureDeferred
async def test_port_in_use_is_reported(tmp_path: Path, failed: list[Any], logged: list[LogEvent]) -> None:
    group = Group(tmp_path, "a", "b")
    for service in group.services.values():
        service.privilegedStartService()
    host, port = group.place("a", "peer-listen")
    b = group.services["b"]
    await b.stopService()
    again = group.services["b"] = group.make("b", SECRET)
    again._peer_ports = module.ListeningPorts(reactor, "tcp:2324", "members")
    again._peer_ports.add("peer-listen", f"tcp:{port}:interface={host}", again._peer_ports.gate)
    again.startService()
    await Deferred.fromCoroutine(settle())
    assert len(failed) == 1
    assert any(f"--peer-listen: cannot listen on tcp:{port}" in line for line in lines(logged))
    await group.stop()


async def settle() -> None:
    """Let the reactor do what is due."""
    done: Deferred[None] = Deferred()
    reactor.callLater(0, done.callback, None)
    await done


class Resolving(Clock):
    """A reactor that resolves the names that it knows."""

    names: dict[str, str]

    def resolve(self, name: str) -> Deferred[str]:
        answer: Deferred[str] = Deferred()
        if name in self.names:
            return succeed(self.names[name])
        answer.errback(DNSLookupError(name))
        return answer


def resolved(dialer: MemberDialer, *peers: Address) -> tuple[Address, ...]:
    found: list[tuple[Address, ...]] = []
    Deferred.fromCoroutine(dialer.resolve(peers)).addCallback(found.append)
    (addresses,) = found
    return addresses


def test_names_are_resolved_and_dialled_by_name_again(logged: list[LogEvent]) -> None:
    clock = Resolving()
    clock.names = {"b.example": "10.0.0.2", "again.example": "10.0.0.2"}
    dialled: list[Address] = []
    dialer = MemberDialer(clock, lambda reactor, address: dialled.append(address), None)  # type: ignore[func-returns-value,arg-type,return-value]
    peers = ("10.0.0.1", 1), ("b.example", 2), ("again.example", 2), ("unknown.example", 3)
    assert resolved(dialer, *peers) == (("10.0.0.1", 1), ("10.0.0.2", 2), ("unknown.example", 3))
    for address in (("10.0.0.1", 1), ("10.0.0.2", 2), ("unknown.example", 3), ("10.0.0.9", 9)):
        dialer.endpoint_for(clock, address)
    assert dialled == [("10.0.0.1", 1), ("again.example", 2), ("unknown.example", 3), ("10.0.0.9", 9)]
    assert [line for line in lines(logged) if "unknown.example" in line]


def test_connections_prove_the_secret() -> None:
    clock = Clock()
    dialer = MemberDialer(clock, lambda reactor, address: "plain", Authenticator(SECRET, clock))  # type: ignore[arg-type,return-value]
    assert isinstance(dialer.endpoint_for(clock, ("10.0.0.1", 1)), AuthClientEndpoint)


class Reluctant:
    """A leader whose successor never leads."""

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.ticks = 0
        self.prepared = False

    @property
    def may_stop(self) -> bool:
        return self.prepared and self.left <= 0

    def prepare_to_stop(self, now: float) -> None:
        self.prepared = True

    def tick(self, now: float) -> None:
        self.ticks += 1
        self.left -= 1


@pytest.mark.parametrize(("steps", "ticks"), [(0, 0), (3, 3), (1_000, 50)])
def test_stop_of_a_leader_waits_for_a_successor_but_not_forever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int, ticks: int
) -> None:
    clock, node, flushed = Clock(), Reluctant(steps), list[int]()
    service = Group(tmp_path, "a").services["a"]
    service.protocol.reactor = clock
    links = type("Links", (), {"now": lambda self: clock.seconds(), "flush": lambda self: flushed.append(node.ticks)})()
    monkeypatch.setattr(MemberProtocol, "running", (node, links))
    done: list[Any] = []
    Deferred.fromCoroutine(service._hand_over()).addBoth(done.append)
    while not done:
        clock.advance(module.POLL_INTERVAL)
    assert done == [None]
    assert node.ticks == pytest.approx(ticks, abs=1 if steps == 1_000 else 0)
    assert flushed == list(range(node.ticks + 1))
    assert clock.seconds() <= module.HAND_OVER_TIMEOUT + 2 * module.POLL_INTERVAL


def test_member_that_does_not_run_hands_nothing_over(tmp_path: Path) -> None:
    service = Group(tmp_path, "a").services["a"]
    done: list[Any] = []
    Deferred.fromCoroutine(service._hand_over()).addBoth(done.append)
    assert done == [None]
    assert service.problems() == {}
    assert list(MemberCollector(service).collect()) == []


def test_state_file_of_another_member_is_refused_at_the_start(tmp_path: Path) -> None:
    with closing(MemberStateFile(tmp_path / "x.member", STREAM, "x")), pytest.raises(StateFileError, match="in use"):
        MemberStateFile(tmp_path / "x.member", STREAM, "y")
