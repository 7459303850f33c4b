"""Simulated network for node tests: hydra nodes, scripted peers and a clock that jumps between deadlines."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any, TypeVar

from suite.stepped_network import DELAY, SteppedNetwork

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.hydra.config import LinkTarget, NodeConfig
from fyrehose_twisted.hydra.events import AskIrc, CloseIrc, OpenIrc, Role, ToIrc
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.wire.messages import Hello, Keepalive, Knock, Meet, Message, Ping, Pong, Welcome
from fyrehose_twisted.interfaces import Outputs

PORT = 6_174
EventT = TypeVar("EventT")


class End:
    """One end of a link, owned by a node or by a scripted peer."""

    def __init__(self, net: Net, owner: Host | ScriptedPeer, peer: Peer) -> None:
        self.net = net
        self.owner = owner
        self.peer = peer
        self.other: End
        self.open = True
        self.received: list[Message] = []
        self.hung_up = False

    def send(self, *messages: Message) -> None:
        """Send messages and run until they have arrived."""
        self.put(*messages)
        self.net.run(2 * DELAY)

    def put(self, *messages: Message) -> None:
        """Send messages without advancing the clock."""
        if self.open:
            self.net.later(DELAY, lambda: self.other.arrive(messages))

    def close(self) -> None:
        """Close this end."""
        if self.open:
            self.open = False
            self.net.later(DELAY, self.other.ended)

    def arrive(self, messages: tuple[Message, ...]) -> None:
        """Handle messages from the other end."""
        if self.open and not self.net.is_cut(self.owner, self.other.owner):
            self.owner.arrived(self, messages)

    def ended(self) -> None:
        """Handle the close of the other end."""
        if self.open:
            self.open = False
            self.hung_up = True
            self.owner.ended(self)

    def take(self, *kinds: type) -> list[Any]:
        """Return messages received since the last call, without keepalives.

        :param kinds: return only these classes; empty for all.
        """
        taken, self.received = self.received, []
        return [
            message
            for message in taken
            if not isinstance(message, Keepalive) and (not kinds or isinstance(message, kinds))
        ]


class ScriptedPeer:
    """A peer that a test scripts. By default it only records messages and answers keepalives.

    :ivar pongs_as: node id for its answers to PINGs; ``None`` to leave PINGs unanswered.
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.accepted: list[End] = []
        self.pongs_as: int | None = None
        self.answered: set[str] = set()

    def arrived(self, end: End, messages: tuple[Message, ...]) -> None:
        """Record messages and answer them."""
        for message in messages:
            end.received.append(message)
            if isinstance(message, Ping) and self.pongs_as is not None and message.val not in self.answered:
                self.answered.add(message.val)
                # Returning the PING tags later messages on this link with its term.
                end.put(message, Pong(message.val, self.pongs_as, 0, "played"))
            elif isinstance(message, Keepalive):
                end.put(Keepalive())

    def ended(self, end: End) -> None:
        """Handle the close of the other end."""


class Host:
    """A node under test with its events, links and simulated IRC connection.

    :ivar irc: outcome of IRC connects: ``works``, ``fails``, or ``waits`` for the test.
    :ivar answers: whether the IRC server acknowledges lines.
    :ivar irc_lines: lines written to IRC, each with its time.
    """

    def __init__(self, net: Net, node: HydraNode, address: Address) -> None:
        self.net = net
        self.node = node
        self.address = address
        self.events: list[Any] = []
        self.ends: dict[int, End] = {}
        self.dialled: list[tuple[float, Address]] = []
        self.outputs: list[Outputs] = []
        self.durable: DurableState | None = None
        self.up = True
        self.turns = 0
        self.irc = "works"
        self.answers = True
        self.irc_online = False
        self.irc_lines: list[tuple[float, bytes]] = []

    @property
    def id(self) -> int:
        """Id of the node, which must have one."""
        assert self.node.id is not None
        return self.node.id

    def arrived(self, end: End, messages: tuple[Message, ...]) -> None:
        """Pass messages to the node."""
        if self.up:
            for message in messages:
                self.node.receive(message, end.peer, self.net.now)
            self.flush()

    def ended(self, end: End) -> None:
        """Tell the node that a link closed."""
        self.ends.pop(end.peer.number, None)
        if self.up:
            self.node.disconnected(end.peer, "closed", self.net.now)
            self.flush()

    def flush(self) -> None:
        """Carry out the outputs of the node until it has none left."""
        while self.up:
            drained = self.node.drain()
            self.outputs.append(drained)
            if drained.persist is not None:
                self.durable = drained.persist
            for effect in drained.effects:
                self._carry_out(effect)
            self.events.extend(drained.events)
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
            handed = self.irc_online and now < event.deadline
            if handed:
                self.irc_lines.append((now, event.line))
            node.irc_handed(event, handed, now)
        elif isinstance(event, AskIrc):
            if self.irc_online and self.answers:
                node.irc_answered(event.number, now)
        elif self.irc == "waits":
            return
        elif isinstance(event, OpenIrc):
            if self.irc == "works":
                self.irc_online = True
                node.irc_opened(now, b"bot!u@h")
            else:
                node.irc_closed("refused", now)
        elif isinstance(event, CloseIrc):
            self.irc_online = False
            node.irc_closed("closed", now)

    def of(self, kind: type[EventT]) -> list[EventT]:
        """Return the events of one class."""
        return [event for event in self.events if isinstance(event, kind)]

    def call(self, method: str, *arguments: Any, **options: Any) -> None:
        """Call a method of the node with the current time and carry out its outputs."""
        getattr(self.node, method)(*arguments, self.net.now, **options)
        self.flush()

    def kill(self) -> None:
        """Kill the process: close its links and its listener."""
        self.up = False
        self.net.listening.pop(self.address, None)
        for end in list(self.ends.values()):
            end.close()
        self.ends.clear()


class Net(SteppedNetwork[Host]):
    """A network of nodes and scripted peers on one simulated clock."""

    def __init__(self) -> None:
        super().__init__()
        self.listening: dict[Address, Host | ScriptedPeer] = {}
        self.cuts: list[set[Host | ScriptedPeer]] = []
        self._numbers = count(1)

    def address(self, number: int) -> Address:
        """Return the listening address of a node number."""
        return (f"10.0.0.{number}", PORT)

    def is_cut(self, host: Host | ScriptedPeer, other: Host | ScriptedPeer) -> bool:
        """Return whether a partition separates two hosts."""
        return any((host in cut) != (other in cut) for cut in self.cuts)

    def node(
        self,
        name: str,
        number: int,
        targets: tuple[int, ...] = (),
        *,
        seed: int | None = None,
        durable: DurableState | None = None,
        remembers: bool = True,
        legacy: tuple[int, ...] = (),
        network: str = "test",
        **options: Any,
    ) -> Host:
        """Start a node."""
        links = tuple(LinkTarget(self.address(target), target in legacy) for target in targets)
        config = NodeConfig(network, name, targets=links, **options)
        rng = Random(number if seed is None else seed)
        host = Host(self, HydraNode(config, rng, self.now, durable=durable, remembers=remembers), self.address(number))
        host.durable = durable
        self.listening[host.address] = self.hosts[name] = host
        host.flush()
        return host

    def play(self, number: int) -> ScriptedPeer:
        """Start a scripted peer at the address of a node number."""
        actor = self.listening[self.address(number)] = ScriptedPeer(self)
        return actor

    def link(self, host: Host) -> End:
        """Connect a new scripted peer to a node and return its end."""
        actor = ScriptedPeer(self)
        ours, theirs = self._pair(actor, host, host.address, "10.0.0.99")
        host.ends[theirs.peer.number] = theirs
        host.node.connected(theirs.peer, self.now)
        host.flush()
        self.run(2 * DELAY)
        return ours

    def join(self, host: Host, ind: int) -> End:
        """Join the network of a node as a scripted peer, over a new link."""
        end = self.link(host)
        end.take()
        end.send(Knock(ind, f"played-{ind}"))
        return end

    def dial(self, host: Host, address: Address) -> None:
        """Connect a node to an address."""

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

    def _pair(
        self, dialler: Host | ScriptedPeer, target: Host | ScriptedPeer, address: Address, source: str
    ) -> tuple[End, End]:
        number = next(self._numbers)
        ours = End(self, dialler, Peer(address, 2 * number, True))
        theirs = End(self, target, Peer((source, 20_000 + number), 2 * number + 1, False))
        ours.other, theirs.other = theirs, ours
        return ours, theirs


class Cohort:
    """A node that follows leader 7, with scripted nodes 7 and 8 behind one link.

    :ivar end: node 7's end of the link.
    """

    LEADER = 7
    OTHER = 8

    def __init__(self, net: Net, **options: Any) -> None:
        self.net = net
        self.played = net.play(9)
        self.host = net.node("cohort", 1, (9,), **options)
        assert net.run(
            60.0, lambda: any(isinstance(message, Knock) for end in self.played.accepted for message in end.received)
        )
        self.end = self.played.accepted[0]
        (ind,) = (knock.ind for knock in self.end.take(Knock) if isinstance(knock, Knock))
        self.end.send(Meet(ind, 7), Meet(ind, 8), Welcome(ind), Hello(ind, 7), Hello(ind, 8))
        assert self.host.node.id == ind
        self.numbers = count(1)
        self.ping()
        assert self.host.node.leader == 7
        self.end.take()

    @property
    def node(self) -> HydraNode:
        """Node under test."""
        return self.host.node

    def ping(self, term: int = 1, leader: int = 7) -> str:
        """Send a PING of the leader and return its val."""
        val = f"v{next(self.numbers)}"
        self.end.send(Ping(term, val, leader))
        return val

    def wait(self, seconds: float) -> None:
        """Advance the clock without PINGs, keeping the link alive."""
        end = self.net.now + seconds
        while self.net.now < end:
            self.end.put(Keepalive())
            self.net.run(min(4.0, end - self.net.now))


class Leader:
    """A node that leads the scripted nodes 7 and 8, which have a link each and answer PINGs.

    :ivar ends: links of 7 and 8 by node id.
    """

    def __init__(self, net: Net, **options: Any) -> None:
        self.net = net
        self.host = net.node("leader", 1, bootstrap=True, **{"irc_rate": 10.0, "irc_burst": 10, **options})
        net.run(0.01)
        assert self.host.node.role is Role.LEADER
        self.ends: dict[int, End] = {}
        for ind in (7, 8):
            end = self.ends[ind] = net.join(self.host, ind)
            for old in self.ends.values():
                if old is not end:
                    old.send(Meet(ind, 7))
            assert ind in self.host.node._context.registry
            assert isinstance(end.owner, ScriptedPeer)
            end.owner.pongs_as = ind
        net.run(6.0)
        assert self.host.node.lease_until is not None
        for end in self.ends.values():
            end.take()

    @property
    def node(self) -> HydraNode:
        """Node under test."""
        return self.host.node

    def silence(self, *nodes: int) -> None:
        """Stop nodes from answering PINGs, keeping their links alive."""
        for node in nodes:
            owner = self.ends[node].owner
            assert isinstance(owner, ScriptedPeer)
            owner.pongs_as = None
