"""A few nodes joined by hand, on a clock that stands still between two deadlines."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import inf
from random import Random
from typing import Any, TypeVar

import pytest

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.hydra.config import LinkTarget, NodeConfig
from fyrehose_twisted.hydra.events import AskIrc, CloseIrc, OpenIrc, Role, ToIrc
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.wire.messages import Hello, Keepalive, Knock, Meet, Message, Ping, Pong, Welcome
from fyrehose_twisted.interfaces import Outputs

DELAY = 0.0005
PORT = 6_174
Told = TypeVar("Told")


class End:
    """One end of a link: of a node, or of a test that plays somebody."""

    def __init__(self, net: Net, owner: Host | Actor, peer: Peer) -> None:
        self.net = net
        self.owner = owner
        self.peer = peer
        self.other: End
        self.open = True
        self.received: list[Message] = []
        self.hung_up = False

    def send(self, *messages: Message) -> None:
        """Send messages, and let them arrive."""
        self.put(*messages)
        self.net.run(2 * DELAY)

    def put(self, *messages: Message) -> None:
        """Send messages."""
        if self.open:
            self.net.later(DELAY, lambda: self.other.arrive(messages))

    def close(self) -> None:
        """Hang up."""
        if self.open:
            self.open = False
            self.net.later(DELAY, self.other.ended)

    def schedule_arrival(self, messages: tuple[Message, ...]) -> None:
        """Messages came from the other end."""
        if self.open and not self.net.is_cut(self.owner, self.other.owner):
            self.owner.arrived(self, messages)

    def ended(self) -> None:
        """The other end hung up."""
        if self.open:
            self.open = False
            self.hung_up = True
            self.owner.ended(self)

    def take(self, *kinds: type) -> list[Message]:
        """Return what came since the last call, but for empty lines; only ``kinds``, if there are any."""
        taken, self.received = self.received, []
        return [one for one in taken if not isinstance(one, Keepalive) and (not kinds or isinstance(one, kinds))]


class Actor:
    """Somebody whom a test plays: by default it takes what comes, shows signs of life, and says nothing else.

    :ivar pongs_as: with which id it answers PINGs; ``None`` to be silent.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.accepted: list[End] = []
        self.pongs_as: int | None = None
        self.answered: set[str] = set()

    def arrived(self, end: End, messages: tuple[Message, ...]) -> None:
        """Messages came."""
        for message in messages:
            end.received.append(message)
            if isinstance(message, Ping) and self.pongs_as is not None and message.val not in self.answered:
                self.answered.add(message.val)
                # What goes back from now on is of this term.
                end.put(message, Pong(message.val, self.pongs_as, 0, "played"))
            elif isinstance(message, Keepalive):
                end.put(Keepalive())

    def ended(self, end: End) -> None:
        """The other end hung up."""


class Host:
    """A node, what it told, its links, and its connection to IRC.

    :ivar irc: what becomes of a connection to IRC: ``works``, ``fails``, or ``waits`` for the test.
    :ivar answers: whether IRC answers for what it was handed.
    :ivar said: what was handed to IRC, and when.
    """

    def __init__(self, net: Net, node: HydraNode, address: Address) -> None:
        self.net = net
        self.node = node
        self.address = address
        self.told: list[Any] = []
        self.ends: dict[int, End] = {}
        self.dialled: list[tuple[float, Address]] = []
        self.drained: list[Outputs] = []
        self.vow: DurableState | None = None
        self.up = True
        self.turns = 0
        self.irc = "works"
        self.answers = True
        self.online = False
        self.said: list[tuple[float, bytes]] = []

    @property
    def id(self) -> int:
        """Its id; it has one."""
        assert self.node.id is not None
        return self.node.id

    def arrived(self, end: End, messages: tuple[Message, ...]) -> None:
        """Messages came."""
        if self.up:
            for message in messages:
                self.node.receive(message, end.peer, self.net.now)
            self.flush()

    def ended(self, end: End) -> None:
        """The other end hung up."""
        self.ends.pop(end.peer.number, None)
        if self.up:
            self.node.disconnected(end.peer, "closed", self.net.now)
            self.flush()

    def flush(self) -> None:
        """Do what the node wants."""
        while self.up:
            drained = self.node.drain()
            self.drained.append(drained)
            if drained.persist is not None:
                self.vow = drained.persist
            for effect in drained.effects:
                self._carry_out(effect)
            self.told.extend(drained.events)
            for event in drained.events:
                self._take(event)
            if not drained.events:
                return

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, Dial):
            self.dialled.append((self.net.now, effect.address))
            self.net.dial(self, effect.address)
        elif isinstance(effect, Write):
            end = self.ends.get(effect.peer.number)
            if end is not None:
                end.put(*effect.messages)
        elif isinstance(effect, Close):
            end = self.ends.pop(effect.peer.number, None)
            if end is not None:
                end.close()

    def _take(self, event: Any) -> None:
        now, node = self.net.now, self.node
        if isinstance(event, ToIrc):
            handed = self.online and now < event.deadline
            if handed:
                self.said.append((now, event.line))
            node.irc_handed(event, handed, now)
        elif isinstance(event, AskIrc):
            if self.online and self.answers:
                node.irc_answered(event.number, now)
        elif self.irc == "waits":
            return
        elif isinstance(event, OpenIrc):
            if self.irc == "works":
                self.online = True
                node.irc_opened(now, b"bot!u@h")
            else:
                node.irc_closed("refused", now)
        elif isinstance(event, CloseIrc):
            self.online = False
            node.irc_closed("closed", now)

    def of(self, kind: type[Told]) -> list[Told]:
        """Return what it told of one kind."""
        return [one for one in self.told if isinstance(one, kind)]

    def call(self, what: str, *arguments: Any, **options: Any) -> None:
        """Call a command of the node."""
        getattr(self.node, what)(*arguments, self.net.now, **options)
        self.flush()

    def kill(self) -> None:
        """End the process: its links are closed, and nobody listens any more."""
        self.up = False
        self.net.listening.pop(self.address, None)
        for end in list(self.ends.values()):
            end.close()
        self.ends.clear()


def deadline(node: HydraNode) -> float:
    at = node.next_deadline()
    return inf if at is None else at


class Net:
    """Carries messages between nodes, and between nodes and whoever a test plays."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.hosts: dict[str, Host] = {}
        self.listening: dict[Address, Host | Actor] = {}
        self.cuts: list[set[Host | Actor]] = []
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count(1)
        self._order = count()

    def later_epoch_start(self, delay: float, call: Callable[[], None]) -> None:
        """Call something after a while."""
        heappush(self._queue, (self.now + delay, next(self._order), call))

    def address(self, number: int) -> Address:
        """Return where the node with that number listens."""
        return (f"10.0.0.{number}", PORT)

    def is_cut(self, one: Host | Actor, other: Host | Actor) -> bool:
        """Return whether nothing passes between two."""
        return any((one in cut) != (other in cut) for cut in self.cuts)

    def node(
        self,
        name: str,
        number: int,
        targets: tuple[int, ...] = (),
        *,
        seed: int | None = None,
        vow: DurableState | None = None,
        remembers: bool = True,
        legacy: tuple[int, ...] = (),
        network: str = "test",
        **options: Any,
    ) -> Host:
        """Start a node."""
        links = tuple(LinkTarget(self.address(target), target in legacy) for target in targets)
        config = NodeConfig(network, name, targets=links, **options)
        rng = Random(number if seed is None else seed)
        host = Host(self, HydraNode(config, rng, self.now, durable=vow, remembers=remembers), self.address(number))
        host.vow = vow
        self.listening[host.address] = self.hosts[name] = host
        host.flush()
        return host

    def play(self, number: int) -> Actor:
        """Listen somewhere for a test."""
        actor = self.listening[self.address(number)] = Actor(self)
        return actor

    def link(self, host: Host) -> End:
        """Connect to a node."""
        actor = Actor(self)
        ours, theirs = self._pair(actor, host, host.address, "10.0.0.99")
        host.ends[theirs.peer.number] = theirs
        host.node.connected(theirs.peer, self.now)
        host.flush()
        self.run(2 * DELAY)
        return ours

    def join(self, host: Host, ind: int) -> End:
        """Become a node of a network, over a new link."""
        end = self.link(host)
        end.take()
        end.send(Knock(ind, f"played-{ind}"))
        return end

    def dial(self, host: Host, address: Address) -> None:
        """A node dials."""

        def open_it() -> None:
            target = self.listening.get(address)
            if not host.up:
                return
            if target is None or self.is_cut(host, target) or (isinstance(target, Host) and not target.up):
                host.node.dial_failed(address, "refused", self.now)
                host.flush()
                return
            ours, theirs = self._pair(host, target, address, host.address[0])
            host.ends[ours.peer.number] = ours
            if isinstance(target, Host):
                target.ends[theirs.peer.number] = theirs
                target.node.connected(theirs.peer, self.now)
                target.flush()
            else:
                target.accepted.append(theirs)
            host.node.connected(ours.peer, self.now)
            host.flush()

        self.later(DELAY, open_it)

    def _pair(self, dialler: Host | Actor, target: Host | Actor, address: Address, source: str) -> tuple[End, End]:
        number = next(self._numbers)
        ours = End(self, dialler, Peer(address, 2 * number, True))
        theirs = End(self, target, Peer((source, 20_000 + number), 2 * number + 1, False))
        ours.other, theirs.other = theirs, ours
        return ours, theirs

    def run(self, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; stop early once something holds, and return whether it does."""
        end = self.now + seconds
        while until is None or not until():
            at = min((deadline(host.node) for host in self.hosts.values() if host.up), default=inf)
            if self._queue and self._queue[0][0] <= max(at, self.now):
                at = self._queue[0][0]
                if at > end:
                    break
                self.now = max(self.now, at)
                heappop(self._queue)[2]()
                continue
            if at > end:
                break
            self._tick(at)
        else:
            return True
        self.now = end
        return until is not None and until()

    def _tick(self, at: float) -> None:
        if at > self.now:
            self.now = at
            for host in self.hosts.values():
                host.turns = 0
        for host in self.hosts.values():
            if host.up and deadline(host.node) <= self.now:
                host.turns += 1
                assert host.turns < 50, f"{host.node.config.tag} wants to be called again and again"
                host.node.tick(self.now)
                host.flush()


@pytest.fixture
def net() -> Net:
    """Return a network without nodes; :meth:`Net.node` starts one."""
    return Net()


@pytest.fixture
def trio(net: Net) -> tuple[Host, Host, Host]:
    """Return three nodes of one network, each linked to each; the first leads, and is on IRC."""
    hosts = net.node("one", 1, found=True), net.node("two", 2, (1,)), net.node("three", 3, (1, 2))
    assert net.run(30.0, lambda: all(len(host.node._context.registry) == 3 for host in hosts))
    assert net.run(30.0, lambda: hosts[0].online and all(host.node.leader == hosts[0].node.id for host in hosts))
    net.run(0.1)
    return hosts


class Cohort:
    """A node that follows leader 7; 8 is a node too. A test plays them, over one link to 7.

    :ivar end: 7's end of the link.
    """

    LEADER = 7
    OTHER = 8

    def __init__(self, net: Net, **options: Any) -> None:
        self.net = net
        self.played = net.play(9)
        self.host = net.node("cohort", 1, (9,), **options)
        assert net.run(
            60.0, lambda: any(isinstance(one, Knock) for end in self.played.accepted for one in end.received)
        )
        self.end = self.played.accepted[0]
        (ind,) = (one.ind for one in self.end.take(Knock) if isinstance(one, Knock))
        self.end.send(Meet(ind, 7), Meet(ind, 8), Welcome(ind), Hello(ind, 7), Hello(ind, 8))
        assert self.host.node.id == ind
        self.numbers = count(1)
        self.ping()
        assert self.host.node.leader == 7
        self.end.take()

    @property
    def node(self) -> HydraNode:
        """The node."""
        return self.host.node

    def ping(self, term: int = 1, leader: int = 7) -> str:
        """The leader is alive."""
        val = f"v{next(self.numbers)}"
        self.end.send(Ping(term, val, leader))
        return val

    def wait(self, seconds: float) -> None:
        """Let time pass without PINGs; the link stays alive."""
        end = self.net.now + seconds
        while self.net.now < end:
            self.end.put(Keepalive())
            self.net.run(min(4.0, end - self.net.now))


@pytest.fixture
def cohort(net: Net) -> Cohort:
    """Return a node that follows a leader whom the test plays."""
    return Cohort(net)


@pytest.fixture
def make_cohort(net: Net) -> Callable[..., Cohort]:
    """Return what makes a node that follows a leader whom the test plays, with options of its own."""
    return lambda **options: Cohort(net, **options)


class Leader:
    """A node that leads 7 and 8, whom a test plays; each has a link, and answers PINGs.

    :ivar ends: the links of 7 and 8.
    """

    def __init__(self, net: Net, **options: Any) -> None:
        self.net = net
        self.host = net.node("leader", 1, found=True, **{"irc_rate": 10.0, "irc_burst": 10, **options})
        net.run(0.01)
        assert self.host.node.role is Role.LEADER
        self.ends: dict[int, End] = {}
        for ind in (7, 8):
            end = self.ends[ind] = net.join(self.host, ind)
            for old in self.ends.values():
                if old is not end:
                    old.send(Meet(ind, 7))
            assert ind in self.host.node._context.registry
            assert isinstance(end.owner, Actor)
            end.owner.pongs_as = ind
        net.run(6.0)
        assert self.host.node.lease_until is not None
        for end in self.ends.values():
            end.take()

    @property
    def node(self) -> HydraNode:
        """The node."""
        return self.host.node

    def seconds_silent(self, *nodes: int) -> None:
        """Let nodes answer no more PINGs; their links stay alive."""
        for node in nodes:
            owner = self.ends[node].owner
            assert isinstance(owner, Actor)
            owner.pongs_as = None


@pytest.fixture
def leader(net: Net) -> Leader:
    """Return a node that leads two others whom the test plays."""
    return Leader(net)


@pytest.fixture
def make_leader(net: Net) -> Callable[..., Leader]:
    """Return what makes a node that leads two others whom the test plays, with options of its own."""
    return lambda **options: Leader(net, **options)
