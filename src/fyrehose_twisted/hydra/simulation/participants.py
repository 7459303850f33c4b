"""Participants of a simulated network: nodes, guardians, an IRC server with users, and legacy nodes."""

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
from fyrehose_twisted.hydra.config import TERMS_PER_SECOND, NodeConfig
from fyrehose_twisted.hydra.events import (
    AskIrc,
    CloseIrc,
    IdChanged,
    LeftNetwork,
    LineOutcome,
    OpenIrc,
    Outcome,
    Role,
    ToIrc,
)
from fyrehose_twisted.hydra.node.durable_state import DurableState
from fyrehose_twisted.hydra.node.node import HydraNode
from fyrehose_twisted.hydra.simulation.multi_transport import MultiTransportNode
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
from fyrehose_twisted.interfaces import ILinkNode, Outputs
from fyrehose_twisted.sim.crash_mode import Boot, CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network import Network
from fyrehose_twisted.sim.observer import Observer

NodeFactory = Callable[..., HydraNode]

IRC_DELAY = 0.01
"""One-way delay to the IRC server in seconds."""
QUIT_DELAY = 2.5 * IRC_DELAY
"""Seconds from QUIT until the IRC server closes the connection."""
LINGER = 1.0
"""Seconds that a node waits for that close."""
IRC_DIAL_TIMEOUT = 15.0
"""Timeout of a connect to the IRC server in seconds."""
LOCKED_CHANNEL = b"#locked"
"""A channel that rejects messages of nodes."""


@implementer(ILinkNode)
class _ScriptedPeer:
    """Base class of participants that are no nodes; it dials and ignores messages."""

    def __init__(self, targets: Sequence[Address], redial_delay: float) -> None:
        self.peers: list[Peer] = []
        self._targets = targets
        self._redial_delay = redial_delay
        self._due: dict[Address, float] = dict.fromkeys(targets, -inf)
        self._effects: list[Any] = []

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.peers.append(peer)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._due[address] = now + self._redial_delay

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self.peers.remove(peer)
        if peer.dialled:
            self._due[peer.address] = now + self._redial_delay

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

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        effects, self._effects = self._effects, []
        return Outputs(None, effects, [])

    def write(self, peer: Peer, *messages: Message) -> None:
        """Send messages."""
        self._effects.append(Write(messages, peer))


class SimulatedGuardian(_ScriptedPeer):
    """Guardian process of a node (rule S7), which sends its DROP after its death only."""

    def __init__(self, targets: Sequence[Address], scale: float) -> None:
        super().__init__(targets, 0.5 * scale)
        self.id: int | None = None
        self._keepalive_interval = 4.0 * scale
        self._keepalive_at = -inf
        self._bound: dict[Peer, None] = {}  # A set would be iterated in the order of hashes of strings.

    def set_node_id(self, node: int | None) -> None:
        """Set the id of the node."""
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
        self._bound.pop(peer, None)

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if isinstance(message, Hello) and message.ind == self.id:
            self._bound[peer] = None

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        super().tick(now)
        if self._keepalive_at <= now:
            self._keepalive_at = now + self._keepalive_interval
            for peer in self.peers:
                self.write(peer, Keepalive())

    def next_deadline(self) -> float:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        return min(self._keepalive_at, super().next_deadline() or inf)

    def died(self, now: float) -> None:
        """Send the DROP after the death of the node's process."""
        if self.id is not None:
            for peer in self._bound:
                self.write(peer, Drop(self.id, "guardian"))
        self.id = None


class LegacyNode(_ScriptedPeer):
    """A peer that behaves like the reference implementation.

    It leads a term of its own, follows a leader of a higher term, and votes for any nominee.
    """

    def __init__(self, own_id: int, targets: Sequence[Address], rng: Random) -> None:
        super().__init__(targets, 2.0)
        self.own_id = own_id
        self._rng = rng
        self._term = 0
        self._ping_at = 10.0
        self._number = 1

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        super().connected(peer, now)
        self.write(peer, Knock(self.own_id, LEGACY_TAG))

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if isinstance(message, Ping):
            if message.term > self._term:
                self._term = message.term
            elif message.term == self._term:
                self.write(peer, Pong(message.val, message.id, 1))
        elif isinstance(message, Nominate):
            self.write(peer, Pledge(message.term, message.id, self.own_id))
        if self._rng.random() < 0.02:
            self._number += 1
            self.write(peer, Ping(self._term, str(self._number), self.own_id), Nominate(self._term + 1, self.own_id))


@dataclass(eq=False)
class IrcConnection:
    """A simulated IRC connection.

    :ivar delayed_requests: lines and PING numbers that are held back on the way to the server.
    :ivar delayed_replies: lines of the server that are held back on the way to the node.
    """

    host: Host
    boot: int
    term: int
    delayed_requests: list[bytes | int] = field(default_factory=list)
    delayed_replies: list[Callable[[HydraNode, float], None]] = field(default_factory=list)


@dataclass(eq=False)
class RequestedLine:
    """A line submitted by an application.

    :ivar send_count: number of times it was written to IRC.
    :ivar read_count: number of times it appeared in the channel.
    """

    line: bytes
    retry: bool
    outcome: Outcome | None = None
    send_count: int = 0
    read_count: int = 0
    host: Host | None = None


@dataclass
class StateDisk:
    """Persistent state of a node.

    :ivar durable: votes and promises in the state file.
    """

    has_state_file: bool
    durable: DurableState = field(default_factory=DurableState)


class Participants(Observer):
    """All participants of one simulated network and its IRC server.

    :ivar hosts: hosts that run nodes.
    :ivar guardians: guardian hosts by node host.
    :ivar irc_connections: connections to the IRC server, including ghosts of hosts that are down.
    :ivar cut_off_from_irc: hosts that are partitioned from the IRC server.
    :ivar requested_lines: lines submitted by applications, by token.
    """

    def __init__(self, network: Network, rng: Random, make: NodeFactory = HydraNode) -> None:
        self.network = network
        self.rng = rng
        self.hosts: list[Host] = []
        self.guardians: dict[Host, Host] = {}
        self.irc_connections: list[IrcConnection] = []
        self.cut_off_from_irc: set[Host] = set()
        self.requested_lines: dict[int, RequestedLine] = {}
        self.server_up = True
        self.lines_talked = 0
        self.lines_heard = 0
        self._make = make
        self._tokens = count(1)
        self._requested_by_line: dict[bytes, RequestedLine] = {}
        self._dialling: dict[Host, IrcConnection] = {}
        """Latest connection attempt by host."""

    def add(
        self, name: str, address: Address, config: NodeConfig, disk: StateDisk, *, multi_transport: bool = False
    ) -> Host:
        """Add a host that runs a node.

        :param multi_transport: whether it may have links over UDP and IRC in addition to TCP.
        """
        seed = Random(self.rng.getrandbits(64))

        def start(boot: Boot) -> HydraNode | MultiTransportNode:
            node = make(boot)
            return (
                MultiTransportNode(node, address, Random(seed.getrandbits(64)), lambda: host.now)
                if multi_transport
                else node
            )

        def make(boot: Boot) -> HydraNode:
            rng = Random(seed.getrandbits(64))
            if not disk.has_state_file:
                return self._make(replace(config, first_term=int(boot.now) * TERMS_PER_SECOND), rng, boot.now)
            if boot.last_crash is CrashMode.POWER:
                # The machine's clock restarts, so earlier times are meaningless.
                disk.durable = disk.durable._replace(promised=0, until=0.0)
                return self._make(config, rng, boot.now, durable=disk.durable, remembers=False)
            return self._make(config, rng, boot.now, durable=disk.durable, remembers=True)

        host = self.network.add(name, address, start)
        if disk.has_state_file:

            def keep(vow: DurableState) -> None:
                disk.durable = vow

            host.on_persist = keep
        self.hosts.append(host)
        return host

    def add_guardian(self, host: Host, address: Address, targets: Sequence[Address], scale: float) -> Host:
        """Add a guardian, which runs as long as the machine."""
        guardian = self.network.add(f"{host.name}-guardian", address, lambda boot: SimulatedGuardian(targets, scale))
        self.guardians[host] = guardian
        return guardian

    def add_legacy_node(self, name: str, address: Address, targets: Sequence[Address]) -> Host:
        """Add a host that runs a legacy node."""
        own = self.rng.randrange(1, 2**31)
        rng = Random(self.rng.getrandbits(64))
        return self.network.add(name, address, lambda boot: LegacyNode(own, targets, rng))

    # Users, applications and operators

    def talk(self) -> None:
        """Let an IRC user say a line in the channel."""
        self.lines_talked += 1
        line = b":somebody!u@h PRIVMSG #c :line %d" % self.lines_talked
        for connection in list(self.irc_connections):
            host = connection.host
            if host not in self.cut_off_from_irc:
                self._call_node(connection, lambda node, now: self._receive_lines(node, [line], now))

    def say(self, host: Host, node: HydraNode, now: float, *, retry: bool) -> None:
        """Submit a line on a node."""
        token = next(self._tokens)
        channel = b"#c" if token % 8 else LOCKED_CHANNEL
        wish = self.requested_lines[token] = RequestedLine(b"PRIVMSG %s :said %d" % (channel, token), retry, host=host)
        self._requested_by_line[wish.line] = wish
        try:
            node.say(wish.line, token, now, retry=retry)
        except LocalError:
            wish.outcome = Outcome.REFUSED

    def break_server(self, seconds: float) -> None:
        """Stop the IRC server for a while."""
        self.server_up = False
        for connection in list(self.irc_connections):
            self._cut(connection, "the server is gone")
        self.network.call_in(seconds, self._restore_server)

    def cut_off_irc(self, host: Host, seconds: float) -> None:
        """Partition a host from the IRC server for a while, without closing its connection."""
        if host not in self.cut_off_from_irc:
            self.cut_off_from_irc.add(host)
            self.network.call_in(seconds, partial(self._restore_path, host))

    def leave(self, host: Host, seconds: float) -> None:
        """Stop a node gracefully and restart it later."""
        if host.running:
            host.perform(lambda node, now: node.leave(now))
            self.network.call_in(3.0, partial(self._stop_left, host, host.boots))
            self.network.call_in(3.0 + seconds, host.start)

    # Observer

    def event_emitted(self, host: Host, event: object) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host not in self.hosts:
            return
        match event:
            case OpenIrc(term):
                connection = self._dialling[host] = IrcConnection(host, host.boots, term)
                self.network.call_in(self.rng.uniform(0.02, 0.3), partial(self._open, connection))
            case CloseIrc(_, polite):
                self._dialling.pop(host, None)
                open_ones = [one for one in self.irc_connections if one.host is host and one.boot == host.boots]
                if open_ones and polite and host.node._lifecycle.may_relay(host.now):
                    # Lines said before the server reads the QUIT still arrive.
                    delay = LINGER if host in self.cut_off_from_irc else QUIT_DELAY
                    self.network.call_in(delay, partial(self._cut, open_ones[0], "closed here"))
                    return
                self.irc_connections = [one for one in self.irc_connections if one not in open_ones]
                self.network.call_in(0.001, partial(self._closed, host, host.boots, "closed here"))
            case AskIrc(number):
                self._send_to_server(host, number)
            case ToIrc(line, until, _):
                self._send_line(host, line, until, event)
            case LineOutcome(token, outcome, _):
                self.requested_lines[token].outcome = outcome  # type: ignore[index]  # Tokens are ours.
            case IdChanged(node):
                guardian = self.guardians.get(host)
                if guardian is not None and guardian.up:
                    guardian.perform(lambda watcher, now: watcher.set_node_id(node))
            case LeftNetwork():
                self.network.call_in(0.01, partial(self._stop_left, host, host.boots))

    def stopped(self, host: Host, description: str) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        if host not in self.hosts:
            return
        boot = host.boots
        guardian = self.guardians.get(host)
        if description == CrashMode.KILLED.value:
            # The kernel closes the sockets and informs the guardian.
            self.irc_connections = [one for one in self.irc_connections if one.host is not host]
            if guardian is not None and guardian.up:
                watched = guardian.node.id

                def tell() -> None:
                    if guardian.up and guardian.node.id == watched:
                        guardian.perform(lambda watcher, now: watcher.died(now))

                self.network.call_in(self.rng.uniform(0.001, 0.05), tell)
        else:
            if guardian is not None:
                guardian.stop(CrashMode.POWER)
            # Its ghost remains until the server misses a reply.
            self.network.call_in(30.0, partial(self._drop_ghost, host, boot))

    def started(self, host: Host) -> None:
        """See :class:`~fyrehose_twisted.sim.observer.Observer`."""
        guardian = self.guardians.get(host)
        if guardian is not None and not guardian.up:
            guardian.start()

    # Helpers

    def _receive_lines(self, node: HydraNode, lines: list[bytes], now: float) -> None:
        self.lines_heard += len(lines)
        node.irc_received(lines, now)

    def _send_line(self, host: Host, line: bytes, until: float, event: ToIrc) -> None:
        handed = host.now < until and self._send_to_server(host, line)
        if handed:
            wish = self._requested_by_line.get(line)
            if wish is not None:
                wish.send_count += 1
        host.node.irc_handed(event, handed, host.now)

    def _send_to_server(self, host: Host, what: bytes | int) -> bool:
        """Send a line or a PING to the IRC server; return whether there is a connection."""
        found = [one for one in self.irc_connections if one.host is host and one.boot == host.boots]
        if found:
            self.network.call_in(IRC_DELAY, partial(self._server_received, found[0], what))
        return bool(found)

    def _server_received(self, connection: IrcConnection, what: bytes | int) -> None:
        """Handle a line or a PING at the IRC server, unless the host is partitioned from it."""
        if connection.host in self.cut_off_from_irc:
            connection.delayed_requests.append(what)
        elif isinstance(what, int):
            self._send_reply(connection, lambda node, now: node.irc_answered(what, now))
        elif what.split(b" ")[1] == LOCKED_CHANNEL:
            line = b":irc.example 404 leader %s :Cannot send to channel" % LOCKED_CHANNEL
            self._send_reply(connection, lambda node, now: node.irc_received([line], now))
        elif self.server_up:
            wish = self._requested_by_line.get(what)
            if wish is not None:
                wish.read_count += 1

    def _send_reply(self, connection: IrcConnection, what: Callable[[HydraNode, float], None]) -> None:
        def arrive() -> None:
            if connection.host in self.cut_off_from_irc:
                connection.delayed_replies.append(what)
            else:
                self._call_node(connection, what)

        self.network.call_in(IRC_DELAY, arrive)

    def _call_node(self, connection: IrcConnection, what: Callable[[HydraNode, float], None]) -> None:
        host = connection.host

        def tell(node: HydraNode, now: float) -> None:
            if connection in self.irc_connections:
                what(node, now)

        if host.up and host.boots == connection.boot:
            host.perform(tell)

    def _restore_path(self, host: Host) -> None:
        """Release delayed requests and replies, unless the connection was closed."""
        self.cut_off_from_irc.discard(host)
        for connection in [one for one in self.irc_connections if one.host is host]:
            held_back, connection.delayed_replies = connection.delayed_replies, []
            for answer in held_back:
                self._call_node(connection, answer)
            held_up, connection.delayed_requests = connection.delayed_requests, []
            for what in held_up:
                self._server_received(connection, what)

    def _open(self, connection: IrcConnection) -> None:
        host = connection.host
        if not host.up or host.boots != connection.boot or host.node._components.irc_writer.state != "opening":
            return
        if host in self.cut_off_from_irc:
            self.network.call_in(IRC_DIAL_TIMEOUT, partial(self._dial_timed_out, connection))
            return
        if not self.server_up:
            host.perform(lambda node, now: node.irc_closed("refused", now))
            return
        self.irc_connections.append(connection)
        host.perform(lambda node, now: node.irc_opened(now, b"leader!u@h"))

    def _dial_timed_out(self, connection: IrcConnection) -> None:
        if self._dialling.get(connection.host) is connection:
            self._closed(connection.host, connection.boot, "no answer")

    def _closed(self, host: Host, boot: int, reason: str) -> None:
        if host.up and host.boots == boot:
            host.perform(lambda node, now: node.irc_closed(reason, now))

    def _cut(self, connection: IrcConnection, reason: str) -> None:
        if connection in self.irc_connections:
            self.irc_connections.remove(connection)
            self._closed(connection.host, connection.boot, reason)

    def _drop_ghost(self, host: Host, boot: int) -> None:
        self.irc_connections = [one for one in self.irc_connections if one.host is not host or one.boot != boot]

    def _restore_server(self) -> None:
        self.server_up = True

    def _stop_left(self, host: Host, boot: int) -> None:
        if host.up and host.boots == boot and host.node.role is Role.GONE:
            host.stop(CrashMode.KILLED)
