"""Members of a group, in one process on real sockets, and one member on a port without a socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.endpoints import TCP4ServerEndpoint
from twisted.internet.task import Clock
from twisted.logger import LogEvent, capturedLogs
from zope.interface import implementer

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import NotConnected, OperationalError, StateFileError
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import LeadershipChanged, TakenOver
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient, SequenceCheckpoint, VolatileSequenceStore
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.node.member.persistent_state import MemberCheckpoint, MemberState
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol, VolatileMemberStore
from fyrehose_twisted.fyrehose.wire.codec import encode
from fyrehose_twisted.fyrehose.wire.packets import Dialect, Keepalive
from fyrehose_twisted.fyrehose.wire.token import make_token
from fyrehose_twisted.interfaces import IClientMemory
from fyrehose_twisted.net.boottime import BoottimeReactor
from fyrehose_twisted.net.udp import DatagramPort

reactor: Any = installed_reactor

DEADLINE = 120.0
"""Seconds after which a test on real sockets fails; reached only on failure."""
HERE, THERE = ("127.0.0.1", 7), ("127.0.0.1", 8)
CLIENT: Address = ("192.0.2.9", 4_000)
SECRET = b"a secret that is long enough"
UTC, UPTIME = 1_800_000_000.0, 1_000.0


@implementer(IClientMemory)
class Store(VolatileSequenceStore):
    """A store that records, and has clients."""

    complete = True

    def __init__(self, order: list[Any], clients: tuple[KnownClient, ...]) -> None:
        super().__init__()
        self.order = order
        self.clients = clients

    def persist(self, checkpoint: SequenceCheckpoint) -> None:
        super().persist(checkpoint)
        self.order.append(checkpoint)


class MemberStore(VolatileMemberStore):
    """A store that records, and may fail."""

    def __init__(self, order: list[Any], clock: Clock) -> None:
        super().__init__()
        self.order = order
        self.error: Exception | None = None
        self.clock = clock
        self.seconds = 0.0
        """Time that a write takes."""

    def persist(self, state: MemberState) -> None:
        if self.error is not None:
            raise self.error
        self.clock.rightNow += self.seconds
        super().persist(state)
        self.order.append(state)


class Port(DatagramPort):
    """A port without a socket."""

    def __init__(self, protocol: MemberProtocol, clock: Any) -> None:
        super().__init__(0, protocol, "127.0.0.1", clock)
        self.sent: list[Send] = []

    def getHost(self) -> Any:
        return type("Host", (), {"host": HERE[0], "port": HERE[1]})

    def send(self, datagrams: Any, peers: Any) -> None:
        self.sent.append(Send(datagrams, peers))


class Alone:
    """A member whose peer is never there."""

    def __init__(self, config: BackboneConfig | None = None, clients: tuple[KnownClient, ...] = ()) -> None:
        self.clock = Clock()
        self.clock.advance(UPTIME)
        self.order: list[Any] = []
        self.store, self.member_store = Store(self.order, clients), MemberStore(self.order, self.clock)
        self.dialled: list[Address] = []
        self.utc_ahead = UTC - UPTIME
        self.protocol = MemberProtocol(
            MemberConfig(name="a", stream="fyrehose://s", peers=(THERE,), client_address=HERE, peer_address=HERE),
            config,
            state=self.store,
            member_state=self.member_store,
            endpoint_factory=self.dial,
            reactor=self.clock,
            time_of_day=lambda: self.clock.seconds() + self.utc_ahead,
        )
        # The clock of the reactor is that of the node here.
        self.protocol.reactor = self.clock
        self.port = Port(self.protocol, self.clock)
        self.protocol.makeConnection(self.port)

    def dial(self, reactor: Any, address: Address) -> Any:
        self.dialled.append(address)
        return type("Never", (), {"connect": lambda self, factory: Deferred()})()

    @property
    def node(self) -> Any:
        return self.protocol.member_node


def known(heard_at: float) -> KnownClient:
    return KnownClient(CLIENT, CLIENT, 0, Dialect.V2, 3, heard_at)


@pytest.fixture
def alone() -> Alone:
    return Alone()


@pytest.fixture
def logged() -> Iterator[Any]:
    with capturedLogs() as events:
        yield events


def lines(events: list[LogEvent]) -> list[str]:
    return [
        event["log_format"].format(**event) for event in events if event.get("log_namespace", "").startswith("fyre")
    ]


def test_reactor_of_a_member_has_a_clock_that_cannot_be_set() -> None:
    protocol = MemberProtocol()
    assert isinstance(protocol.reactor, BoottimeReactor)
    assert MemberProtocol(reactor=protocol.reactor).reactor is protocol.reactor


def test_protocol_without_a_configuration_or_a_port_does_not_run() -> None:
    protocol = MemberProtocol()
    assert protocol.node is protocol.member_node is None
    for call in (protocol.transfer, lambda: protocol.remove("b"), lambda: protocol.make_node(0.0)):
        with pytest.raises(NotConnected):
            call()


def test_member_dials_its_peers_and_stands_by(alone: Alone) -> None:
    alone.clock.advance(0)
    assert alone.dialled == [THERE]
    assert alone.node.status(0.0).state == "standby"
    assert alone.protocol.node is alone.node.backbone
    with pytest.raises(OperationalError):
        alone.protocol.transfer()
    with pytest.raises(OperationalError):
        alone.protocol.remove("b")


def test_state_is_persisted_before_anything_is_done(alone: Alone) -> None:
    (first,) = alone.order
    assert first.member.name == "a"
    assert alone.member_store.state == first
    alone.order.clear()
    state, sequence = first._replace(term=5), SequenceCheckpoint(7, 4_096)
    alone.protocol.persist(MemberCheckpoint(sequence, state))
    assert alone.order == [state, sequence]
    alone.protocol.persist(MemberCheckpoint(None, None))
    assert alone.order == [state, sequence]


def test_state_that_cannot_be_persisted_stops_the_member(logged: list[LogEvent]) -> None:
    alone = Alone()
    alone.member_store.error = StateFileError("the disk is full")
    alone.node._state_changed = True
    alone.protocol.links.flush()  # type: ignore[union-attr]
    assert "stopping: the disk is full" in lines(logged)
    with pytest.raises(NotConnected, match="does not run"):
        alone.protocol.transfer()
    before = list(alone.port.sent)
    alone.clock.advance(10)
    assert alone.port.sent == before


@pytest.mark.parametrize(("seconds", "interval"), [(0.0, 0.005), (0.001, 0.005), (0.01, 0.04), (5.0, 0.1)])
def test_slow_disk_makes_extensions_rarer(alone: Alone, seconds: float, interval: float) -> None:
    assert alone.node.leadership.kept_interval == 0.005
    alone.member_store.seconds = seconds
    alone.protocol.persist(MemberCheckpoint(None, alone.member_store.state))
    assert alone.node.leadership.kept_interval == pytest.approx(interval)


def test_times_of_clients_are_utc_in_the_state_file_and_uptime_in_the_node() -> None:
    alone = Alone(clients=(known(UTC - 2.0),))
    (client,) = alone.node.backbone.clients
    assert client.heard_at == UPTIME - 2.0
    alone.order.clear()
    alone.utc_ahead += 3_600.0  # The clock is set.
    changes = ((CLIENT, known(UPTIME + 1.0)), (THERE, None))
    alone.protocol.persist(MemberCheckpoint(SequenceCheckpoint(1, 2, changes), None))
    (stored,) = alone.order
    assert stored.clients == ((CLIENT, known(UTC + 3_601.0)), (THERE, None))


def test_tokens_of_clients_are_checked_by_the_time_of_day() -> None:
    alone = Alone(BackboneConfig(secret=SECRET))
    drops = alone.node.backbone.drops.counts
    for ahead in (0.0, 86_400.0):  # The clock is set.
        alone.utc_ahead += ahead
        for offset, refused in ((alone.utc_ahead, 0), (0.0, 1)):
            before = drops["token"]
            token = make_token(SECRET, CLIENT, 0, alone.clock.seconds() + offset)
            alone.protocol.datagramReceived(encode(Keepalive(CLIENT, 0, token)), CLIENT)
            assert drops["token"] - before == refused


def test_what_a_paused_leader_would_send_is_discarded_and_counted(alone: Alone) -> None:
    sent: list[Any] = []
    sender: Any = SimpleNamespace(send=lambda burst, peer: sent.append(burst))
    alone.port.segmenting_socket = sender
    for send_before, count in ((inf, 1), (UPTIME + 1.0, 2), (UPTIME, 2), (UPTIME - 1.0, 2)):
        alone.node._send_before = send_before
        assert alone.port._sender(b"burst", CLIENT) is None  # type: ignore[arg-type]
        assert len(sent) == count
    assert alone.node.backbone.drops.counts["lease_over"] == 2


def test_port_of_twisted_is_guarded_too(alone: Alone) -> None:
    written: list[Any] = []
    alone.protocol.transport = type("Plain", (), {"write": lambda self, data, peer: written.append(data)})()
    alone.protocol._send(Send([b"1"], [CLIENT]))
    alone.node._send_before = UPTIME
    alone.protocol._send(Send([b"2"], [CLIENT]))
    assert written == [b"1"]


def test_takeovers_and_leaders_are_logged_and_counted(alone: Alone, logged: list[LogEvent]) -> None:
    told: list[Any] = []
    alone.protocol.on_leadership = told.append
    for event in (LeadershipChanged(1, None, False), LeadershipChanged(1, "b", False), LeadershipChanged(2, "a", True)):
        alone.protocol.event_received(event)
    assert [event.leader for event in told] == [None, "b", "a"]
    alone.protocol.event_received(TakenOver(2, 10, 16_385, 3, 0.0421))
    alone.protocol.event_received(TakenOver(4, 20_000, 20_001, 0, 0.0))
    assert lines(logged) == [
        "no member leads",
        "member b leads in term 1",
        "this member leads in term 2",
        "numbering from 16,385 in term 2; clients hold messages up to 10, of which 3 answered within 0.042 s",
        "numbering from 20,001 in term 4; clients hold messages up to 20,000, of which 0 answered within 0.000 s",
    ]
    assert (alone.protocol.takeovers, alone.protocol.skipped) == (2, 16_374)


class Led(MemberProtocol):
    """A member that tells when a condition holds."""

    def __init__(self) -> None:
        super().__init__(settle_time=0.0)
        self.leader: tuple[str | None, bool] = None, False
        self.names: tuple[str, ...] = ()
        self.waiting: list[tuple[Callable[[], bool], Deferred[None]]] = []

    def leadership_changed(self, leader: str | None, leads: bool) -> None:
        self.leader = leader, leads

    def members_changed(self, names: tuple[str, ...]) -> None:
        self.names = names

    def event_received(self, event: Any) -> None:
        super().event_received(event)
        for condition, done in tuple(self.waiting):
            if condition() and not done.called:
                done.callback(None)

    def when(self, condition: Callable[[], bool]) -> Deferred[None]:
        """Return a Deferred that fires once a condition holds after an event."""
        done: Deferred[None] = Deferred()
        self.waiting.append((condition, done))
        return done.addTimeout(DEADLINE, reactor)


class Group:
    """Two members on loopback."""

    def __init__(self) -> None:
        self.members = {name: Led() for name in "ab"}
        self.ports: dict[str, Any] = {}
        self.peer_ports: dict[str, Any] = {}
        self.factories = {name: Accepting(member) for name, member in self.members.items()}

    async def start(self) -> None:
        for name, member in self.members.items():
            self.ports[name] = DatagramPort(0, member, "127.0.0.1", reactor)
            self.ports[name].bind()
            endpoint: Any = TCP4ServerEndpoint(reactor, 0, interface="127.0.0.1")
            self.peer_ports[name] = await endpoint.listen(self.factories[name])
        for name, member in self.members.items():
            (other,) = set(self.members) - {name}
            member.member = MemberConfig(
                name=name,
                stream="fyrehose://s",
                peers=(self.address(self.peer_ports[other]),),
                client_address=self.address(self.ports[name]),
                peer_address=self.address(self.peer_ports[name]),
                bootstrap=True,
            )
            self.ports[name].start()

    async def stop(self) -> None:
        for port in (*self.ports.values(), *self.peer_ports.values()):
            await port.stopListening()
        for member in self.members.values():
            if member.links is not None:
                await member.links.stop()

    @staticmethod
    def address(port: Any) -> Address:
        host = port.getHost()
        return host.host, host.port


class Accepting:
    """Factory of accepted connections of a member."""

    def __init__(self, member: MemberProtocol) -> None:
        self.member = member

    def doStart(self) -> None:  # noqa: N802
        pass

    doStop = doStart  # noqa: N815

    def buildProtocol(self, addr: Any) -> Any:
        return None if self.member.links is None else self.member.links.factory.buildProtocol(addr)


@pytest_twisted.ensureDeferred
async def test_two_members_bootstrap_a_group_and_hand_over_without_a_skipped_number() -> None:
    group = Group()
    a, b = group.members.values()
    followed = b.when(lambda: b.leader == ("a", False) and b.names == ("a", "b"))
    numbering = a.when(lambda: a.leader == ("a", True) and a.takeovers == 1)
    try:
        await group.start()
        await gatherResults([followed, numbering])
        handed_over = a.when(lambda: a.leader == ("b", False)), b.when(lambda: b.takeovers == 1)
        assert a.transfer() == "b"
        await gatherResults(handed_over)
        assert a.node is not None
        assert b.node is not None
        assert b.node.sequencer.last == a.node.sequencer.last + 1
        assert b.skipped == 0
    finally:
        await group.stop()
