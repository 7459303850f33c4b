"""Simulated network for node tests: hydra nodes, scripted peers and a clock that jumps between deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any

from suite.stepped_network import DELAY, SteppedEnd, SteppedHost, SteppedNetwork, SteppedOwner

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.hydra.config import LinkTarget, NodeConfig
from fyrehose_twisted.hydra.events import AskIrc, CloseIrc, OpenIrc, Role, ToIrc
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.wire.messages import Hello, Keepalive, Knock, Meet, Message, Ping, Pong, Welcome

PORT = 6_174


class End(SteppedEnd):
    """One end of a link, owned by a node or by a scripted peer."""

    def send(self, *messages: Message) -> None:
        """Send messages and run until they have arrived."""
        self.put(*messages)
        self.net.run(2 * DELAY)

    def put(self, *messages: Message) -> None:
        """Send messages without advancing the clock."""
        if self.open:
            self.net.later(DELAY, lambda: self.other.arrive(messages))

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


class Host(SteppedHost[End]):
    """A node under test with its events, links and simulated IRC connection.

    :ivar irc: outcome of IRC connects: ``works``, ``fails``, or ``waits`` for the test.
    :ivar answers: whether the IRC server acknowledges lines.
    :ivar irc_lines: lines written to IRC, each with its time.
    """

    def __init__(self, net: Net, node: HydraNode, address: Address) -> None:
        super().__init__(net, node, address)
        self.durable: DurableState | None = None
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

    def persist(self, change: DurableState) -> None:
        """Keep the durable state of the node."""
        self.durable = change

    def write(self, peer: Peer, messages: Sequence[Message]) -> None:
        """Send messages of the node."""
        end = self.ends.get(peer.number)
        if end is not None:
            end.put(*messages)

    def react(self, event: Any) -> None:
        """Play IRC's part in an event."""
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


class Net(SteppedNetwork[Host, End]):
    """A network of nodes and scripted peers on one simulated clock."""

    end_type = End

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[set[SteppedOwner]] = []

    def address(self, number: int) -> Address:
        """Return the listening address of a node number."""
        return (f"10.0.0.{number}", PORT)

    def is_cut(self, host: SteppedOwner, other: SteppedOwner) -> bool:
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
        peer = self.listening[self.address(number)] = ScriptedPeer(self)
        return peer

    def link(self, host: Host) -> End:
        """Connect a new scripted peer to a node and return its end."""
        peer = ScriptedPeer(self)
        ours, theirs = self.pair(peer, host, host.address, "10.0.0.99")
        host.connected(theirs)
        self.run(2 * DELAY)
        return ours

    def join(self, host: Host, ind: int) -> End:
        """Join the network of a node as a scripted peer, over a new link."""
        end = self.link(host)
        end.take()
        end.send(Knock(ind, f"played-{ind}"))
        return end


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
