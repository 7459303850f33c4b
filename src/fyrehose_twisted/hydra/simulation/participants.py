"""Who takes part in a simulated network: nodes on hosts, their guardians, an IRC server, people who talk there, and the
reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.effects import Address, Dial, Peer, Write
from fyrehose_twisted.errors import LocalError
from fyrehose_twisted.hydra.config import TERMS_A_SECOND, NodeConfig
from fyrehose_twisted.hydra.events import AskIrc, CloseIrc, IdChanged, Left, OpenIrc, Outcome, Role, Said, ToIrc
from fyrehose_twisted.hydra.node.durable_state import Vow
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.simulation.multi_transport import Wired
from fyrehose_twisted.hydra.wire.messages import (
    GUARDIAN_TAG,
    LEGACY_TAG,
    Drop,
    Hello,
    Keepalive,
    Knock,
    Message,
    Nominate,
    Ping,
    Pledge,
    Pong,
)
from fyrehose_twisted.interfaces import Drained, ILinkNode
from fyrehose_twisted.sim.crash_mode import Boot, Crash
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import Observer

NodeClass = Callable[..., HydraNode]

REACH = 0.01
"""Seconds to an IRC server, and back again."""
GOODBYE = 2.5 * REACH
"""Seconds until an IRC server has read a goodbye and lets go."""
LINGER = 1.0
"""Seconds that a node waits for that."""
DIALLING = 15.0
"""Seconds that a node tries to get through to an IRC server."""
LOCKED = b"#locked"
"""A channel in which nodes may not speak."""


@implementer(ILinkNode)
class _Actor:
    """Somebody who is no node: it dials, and takes what comes."""

    def __init__(self, targets: Sequence[Address], again: float) -> None:
        self.peers: list[Peer] = []
        self._targets = targets
        self._again = again
        self._due: dict[Address, float] = dict.fromkeys(targets, -inf)
        self._effects: list[Any] = []

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.peers.append(peer)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._due[address] = now + self._again

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.peers.remove(peer)
        if peer.dialled:
            self._due[peer.address] = now + self._again

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        for address, due in self._due.items():
            if due <= now:
                self._due[address] = inf
                self._effects.append(Dial(address))

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        due = min(self._due.values(), default=inf)
        return None if due == inf else due

    def drain(self) -> Drained:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        effects, self._effects = self._effects, []
        return Drained(None, effects, [])

    def write(self, peer: Peer, *messages: Message) -> None:
        """Send messages."""
        self._effects.append(Write(messages, peer))


class Guardian(_Actor):
    """A process beside a node (rule S7): it says that the node is dead, and only when it is."""

    def __init__(self, targets: Sequence[Address], scale: float) -> None:
        super().__init__(targets, 0.5 * scale)
        self.id: int | None = None
        self._every = 4.0 * scale
        self._alive_at = -inf
        self._bound: set[Peer] = set()

    def watches(self, node: int | None) -> None:
        """The node has another id."""
        self.id = node
        self._bound.clear()
        for peer in list(self.peers):
            if node is None:
                continue
            self.write(peer, Knock(node, GUARDIAN_TAG))

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        super().connected(peer, now)
        if self.id is not None:
            self.write(peer, Knock(self.id, GUARDIAN_TAG))

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        super().disconnected(peer, reason, now)
        self._bound.discard(peer)

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if isinstance(message, Hello) and message.ind == self.id:
            self._bound.add(peer)

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        super().tick(now)
        if self._alive_at <= now:
            self._alive_at = now + self._every
            for peer in self.peers:
                self.write(peer, Keepalive())

    def next_deadline(self) -> float:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        return min(self._alive_at, super().next_deadline() or inf)

    def died(self, now: float) -> None:
        """The node's process is gone."""
        if self.id is not None:
            for peer in self._bound:
                self.write(peer, Drop(self.id, "guardian"))
        self.id = None


class Reference(_Actor):
    """The reference, as it was observed: it leads a term of its own, follows a higher one, and votes for anybody."""

    def __init__(self, own: int, targets: Sequence[Address], rng: Random) -> None:
        super().__init__(targets, 2.0)
        self.own = own
        self._rng = rng
        self._term = 0
        self._ping_at = 10.0
        self._number = 1

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        super().connected(peer, now)
        self.write(peer, Knock(self.own, LEGACY_TAG))

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if isinstance(message, Ping):
            if message.term > self._term:
                self._term = message.term
            elif message.term == self._term:
                self.write(peer, Pong(message.val, message.id, 1))
        elif isinstance(message, Nominate):
            self.write(peer, Pledge(message.term, message.id, self.own))
        if self._rng.random() < 0.02:
            self._number += 1
            self.write(peer, Ping(self._term, str(self._number), self.own), Nominate(self._term + 1, self.own))


@dataclass(eq=False)
class Connection:
    """A connection to IRC.

    :ivar held_up: what is under way to the server and does not get there: lines, and numbers of questions.
    :ivar held_back: what the server said, and does not get here.
    """

    host: Host
    boot: int
    term: int
    held_up: list[bytes | int] = field(default_factory=list)
    held_back: list[Callable[[HydraNode, float], None]] = field(default_factory=list)


@dataclass(eq=False)
class Wish:
    """A line that an application wanted said.

    :ivar handed: how often it was handed to IRC.
    :ivar read: how often those in the channel read it.
    """

    line: bytes
    retry: bool
    outcome: Outcome | None = None
    handed: int = 0
    read: int = 0
    host: Host | None = None


@dataclass
class Disk:
    """What a node keeps.

    :ivar vow: what it promised; ``None`` without a state file.
    """

    keeps: bool
    vow: Vow = field(default_factory=Vow)


class Cast(Observer):
    """A network, an IRC server, and everybody around.

    :ivar hosts: those that run nodes.
    :ivar guardians: each node's guardian, where it has one.
    :ivar online: who is connected to IRC; the ghost of a host that is down may be.
    :ivar deaf: hosts between which and IRC nothing gets through.
    :ivar wishes: what applications wanted said, by token.
    """

    def __init__(self, network: Network, rng: Random, make: NodeClass = HydraNode) -> None:
        self.network = network
        self.rng = rng
        self.hosts: list[Host] = []
        self.guardians: dict[Host, Host] = {}
        self.online: list[Connection] = []
        self.deaf: set[Host] = set()
        self.wishes: dict[int, Wish] = {}
        self.server_up = True
        self.talked = 0
        self.heard = 0
        self._make = make
        self._tokens = count(1)
        self._byline: dict[bytes, Wish] = {}
        self._dialling: dict[Host, Connection] = {}
        """What tries to get through to IRC, or did."""

    def add(self, name: str, address: Address, config: NodeConfig, disk: Disk, *, wired: bool = False) -> Host:
        """Add a host that runs a node.

        :param wired: whether it may have links over UDP and IRC, and not only over TCP.
        """
        seed = Random(self.rng.getrandbits(64))

        def start(boot: Boot) -> HydraNode | Wired:
            node = make(boot)
            return Wired(node, address, Random(seed.getrandbits(64)), lambda: host.now) if wired else node

        def make(boot: Boot) -> HydraNode:
            rng = Random(seed.getrandbits(64))
            if not disk.keeps:
                return self._make(replace(config, first_term=int(boot.now) * TERMS_A_SECOND), rng, boot.now)
            if boot.after is Crash.POWER:
                # The clock of the machine begins anew, so what it says of the past means nothing.
                disk.vow = disk.vow._replace(promised=0, until=0.0)
                return self._make(config, rng, boot.now, vow=disk.vow, remembers=False)
            return self._make(config, rng, boot.now, vow=disk.vow, remembers=True)

        host = self.network.add(name, address, start)
        if disk.keeps:

            def keep(vow: Vow) -> None:
                disk.vow = vow

            host.on_persist = keep
        self.hosts.append(host)
        return host

    def add_guardian(self, host: Host, address: Address, targets: Sequence[Address], scale: float) -> Host:
        """Add a guardian; it lives as long as the machine does."""
        guardian = self.network.add(f"{host.name}-guardian", address, lambda boot: Guardian(targets, scale))
        self.guardians[host] = guardian
        return guardian

    def add_reference(self, name: str, address: Address, targets: Sequence[Address]) -> Host:
        """Add a host that runs the reference."""
        own = self.rng.randrange(1, 2**31)
        rng = Random(self.rng.getrandbits(64))
        return self.network.add(name, address, lambda boot: Reference(own, targets, rng))

    # What people and applications do

    def talk(self) -> None:
        """Somebody says something in the channel."""
        self.talked += 1
        line = b":somebody!u@h PRIVMSG #c :line %d" % self.talked
        for connection in list(self.online):
            host = connection.host
            if host not in self.deaf:
                self._tell(connection, lambda node, now: self._hear(node, [line], now))

    def say(self, host: Host, node: HydraNode, now: float, *, retry: bool) -> None:
        """An application on a node wants a line said."""
        token = next(self._tokens)
        channel = b"#c" if token % 8 else LOCKED
        wish = self.wishes[token] = Wish(b"PRIVMSG %s :said %d" % (channel, token), retry, host=host)
        self._byline[wish.line] = wish
        try:
            node.say(wish.line, token, now, retry=retry)
        except LocalError:
            wish.outcome = Outcome.REFUSED

    def break_server(self, seconds: float) -> None:
        """The IRC server is gone for a while."""
        self.server_up = False
        for connection in list(self.online):
            self._cut(connection, "the server is gone")
        self.network.call_in(seconds, self._mend_server)

    def deafen(self, host: Host, seconds: float) -> None:
        """What a host and IRC send each other is lost for a while, and neither is told."""
        if host not in self.deaf:
            self.deaf.add(host)
            self.network.call_in(seconds, partial(self._mend_path, host))

    def leave(self, host: Host, seconds: float) -> None:
        """Whoever runs a node stops it in order, and starts it again."""
        if host.running:
            host.do(lambda node, now: node.leave(now))
            self.network.call_in(3.0, partial(self._stop_left, host, host.boots))
            self.network.call_in(3.0 + seconds, host.start)

    # Observer

    def told(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host not in self.hosts:
            return
        match event:
            case OpenIrc(term):
                connection = self._dialling[host] = Connection(host, host.boots, term)
                self.network.call_in(self.rng.uniform(0.02, 0.3), partial(self._open, connection))
            case CloseIrc(_, polite):
                self._dialling.pop(host, None)
                open_ones = [one for one in self.online if one.host is host and one.boot == host.boots]
                if open_ones and polite and host.node._course.may_relay(host.now):
                    # What is said until the server has read the goodbye still comes.
                    delay = LINGER if host in self.deaf else GOODBYE
                    self.network.call_in(delay, partial(self._cut, open_ones[0], "closed here"))
                    return
                self.online = [one for one in self.online if one not in open_ones]
                self.network.call_in(0.001, partial(self._closed, host, host.boots, "closed here"))
            case AskIrc(number):
                self._send(host, number)
            case ToIrc(line, until, _):
                self._hand(host, line, until, event)
            case Said(token, outcome, _):
                self.wishes[token].outcome = outcome  # type: ignore[index]  # Tokens are ours.
            case IdChanged(node):
                guardian = self.guardians.get(host)
                if guardian is not None and guardian.up:
                    guardian.do(lambda watcher, now: watcher.watches(node))
            case Left():
                self.network.call_in(0.01, partial(self._stop_left, host, host.boots))

    def stopped(self, host: Host, how: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host not in self.hosts:
            return
        boot = host.boots
        guardian = self.guardians.get(host)
        if how == Crash.KILLED.value:
            # The kernel closes the sockets, and tells the guardian.
            self.online = [one for one in self.online if one.host is not host]
            if guardian is not None and guardian.up:
                watched = guardian.node.id

                def tell() -> None:
                    if guardian.up and guardian.node.id == watched:
                        guardian.do(lambda watcher, now: watcher.died(now))

                self.network.call_in(self.rng.uniform(0.001, 0.05), tell)
        else:
            if guardian is not None:
                guardian.stop(Crash.POWER)
            # Its ghost lingers until the server misses an answer.
            self.network.call_in(30.0, partial(self._bury, host, boot))

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        guardian = self.guardians.get(host)
        if guardian is not None and not guardian.up:
            guardian.start()

    # Within

    def _hear(self, node: HydraNode, lines: list[bytes], now: float) -> None:
        self.heard += len(lines)
        node.irc_received(lines, now)

    def _hand(self, host: Host, line: bytes, until: float, event: ToIrc) -> None:
        handed = host.now < until and self._send(host, line)
        if handed:
            wish = self._byline.get(line)
            if wish is not None:
                wish.handed += 1
        host.node.irc_handed(event, handed, host.now)

    def _send(self, host: Host, what: bytes | int) -> bool:
        """Send a line, or a question, to IRC; return whether there is a connection."""
        found = [one for one in self.online if one.host is host and one.boot == host.boots]
        if found:
            self.network.call_in(REACH, partial(self._arrive, found[0], what))
        return bool(found)

    def _arrive(self, connection: Connection, what: bytes | int) -> None:
        """A line, or a question, is as far as the server, unless nothing gets there."""
        if connection.host in self.deaf:
            connection.held_up.append(what)
        elif isinstance(what, int):
            self._answer(connection, lambda node, now: node.irc_answered(what, now))
        elif what.split(b" ")[1] == LOCKED:
            line = b":irc.example 404 leader %s :Cannot send to channel" % LOCKED
            self._answer(connection, lambda node, now: node.irc_received([line], now))
        elif self.server_up:
            wish = self._byline.get(what)
            if wish is not None:
                wish.read += 1

    def _answer(self, connection: Connection, what: Callable[[HydraNode, float], None]) -> None:
        def arrive() -> None:
            if connection.host in self.deaf:
                connection.held_back.append(what)
            else:
                self._tell(connection, what)

        self.network.call_in(REACH, arrive)

    def _tell(self, connection: Connection, what: Callable[[HydraNode, float], None]) -> None:
        host = connection.host

        def tell(node: HydraNode, now: float) -> None:
            if connection in self.online:
                what(node, now)

        if host.up and host.boots == connection.boot:
            host.do(tell)

    def _mend_path(self, host: Host) -> None:
        """What was held up goes on its way, unless the connection was cut off."""
        self.deaf.discard(host)
        for connection in [one for one in self.online if one.host is host]:
            held_back, connection.held_back = connection.held_back, []
            for answer in held_back:
                self._tell(connection, answer)
            held_up, connection.held_up = connection.held_up, []
            for what in held_up:
                self._arrive(connection, what)

    def _open(self, connection: Connection) -> None:
        host = connection.host
        if not host.up or host.boots != connection.boot or host.node._parts.speaking.state != "opening":
            return
        if host in self.deaf:
            self.network.call_in(DIALLING, partial(self._not_through, connection))
            return
        if not self.server_up:
            host.do(lambda node, now: node.irc_closed("refused", now))
            return
        self.online.append(connection)
        host.do(lambda node, now: node.irc_opened(now, b"leader!u@h"))

    def _not_through(self, connection: Connection) -> None:
        if self._dialling.get(connection.host) is connection:
            self._closed(connection.host, connection.boot, "no answer")

    def _closed(self, host: Host, boot: int, reason: str) -> None:
        if host.up and host.boots == boot:
            host.do(lambda node, now: node.irc_closed(reason, now))

    def _cut(self, connection: Connection, reason: str) -> None:
        if connection in self.online:
            self.online.remove(connection)
            self._closed(connection.host, connection.boot, reason)

    def _bury(self, host: Host, boot: int) -> None:
        self.online = [one for one in self.online if one.host is not host or one.boot != boot]

    def _mend_server(self) -> None:
        self.server_up = True

    def _stop_left(self, host: Host, boot: int) -> None:
        if host.up and host.boots == boot and host.node.role is Role.GONE:
            host.stop(Crash.KILLED)
