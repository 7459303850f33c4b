"""Simulated TCP connections between hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from itertools import count
from typing import Any

from fyrehose_twisted.effects import Address, Close, Dial, Peer, Write
from fyrehose_twisted.interfaces import ILinkNode, IStreamCodec
from fyrehose_twisted.sim.crash_mode import CrashMode
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.tcp.connection import ConnectionEnd, ConnectionState
from fyrehose_twisted.sim.tcp.handshake import Handshake, accept
from fyrehose_twisted.sim.tcp.route import SplitMix64, StreamRoute
from fyrehose_twisted.sim.tcp.segments import StreamLimits
from fyrehose_twisted.sim.tcp.throttle import Throttle

EPHEMERAL_PORTS = range(49_152, 65_536)
"""Source addresses of accepted connections. Internally the simulator identifies connections by host instead."""


class StreamConnections:
    """Stream connections of a network. Its hosts run nodes that provide
    :class:`~fyrehose_twisted.interfaces.ILinkNode`; hosts accept dials without further setup.

    A connection delivers data in order and retransmits lost data after 0.2 s, then with doubled timeouts. A node whose
    data is not acknowledged for :attr:`StreamLimits.timeout` is told ``disconnected`` with the reason ``timed out``;
    the other side is not notified. Other reasons are ``closed``, ``reset``, ``malformed: ...`` if a decoder raised, and
    ``refused`` for a dial.

    The crash of a process resets its connections. A power loss does not: the peers detect it on their next write, to
    which the restarted host answers with a reset.

    Messages lost with their connection are dropped as ``reset``, ``timed out``, ``closed`` or ``down``. Messages that a
    node writes after the notified end of the connection are dropped as ``gone``.

    Observers get ``connection_changed`` with ``dialled``, ``connected``, ``accepted``, ``refused``, ``reset``,
    ``closed``, ``timed out``, ``blocked`` or ``unblocked``, when the node is notified or requests the change.

    :ivar codec: codec of messages. With ``None``, messages travel as objects, which is faster; the receiver then gets
        the same object that was written.
    :ivar codecs: codecs of single hosts by address, which override ``codec``.
    :ivar limits: limits; to be set before the first connection.
    :ivar throttles: throttles in force; see :meth:`throttle_reads`.
    """

    def __init__(self, network: NetworkCore) -> None:
        self.codec: IStreamCodec | None = None
        self.codecs: dict[Address, IStreamCodec | None] = {}
        self.limits = StreamLimits()
        self.connection_numbers = count(1)
        self.throttles: list[Throttle] = []
        self.network = network
        self._ends: defaultdict[int, dict[int, ConnectionEnd]] = defaultdict(dict)  # by the index of the host
        self._dialler_of: dict[Address, Host] = {}
        self._refusing: Counter[Address] = Counter()
        self._route_rngs: dict[tuple[int, Address], SplitMix64] = {}

    # Effects of nodes

    def perform(self, host: Host, effect: Dial | Write | Close) -> None:
        """Carry out an effect of the node of ``host``.

        :raises TypeError: if ``effect`` is of another type, or a node dials without providing ``ILinkNode``.
        """
        if isinstance(effect, Write):
            end = self.connection_ends(host).get(effect.peer.number)
            if end is not None and end.is_open:
                end.write(effect.messages)
            else:
                self._drop_writes(host, effect)
        elif isinstance(effect, Close):
            end = self.connection_ends(host).get(effect.peer.number)
            if end is not None and end.is_open:
                end.close()
        elif isinstance(effect, Dial):
            if not ILinkNode.providedBy(host.node):
                raise TypeError(f"the {type(host.node).__name__} on {host.name} dials, but is not an ILinkNode")
            end = ConnectionEnd(
                self, host, Peer(effect.address, next(self.connection_numbers), dialled=True), ConnectionState.DIALLING
            )
            for observe in self.network.observers.connection_changed:
                observe(host, effect.address, "dialled")
            Handshake(self, end).dial()
        else:
            raise TypeError(f"{host.name} has an unsupported effect {type(effect).__name__}")

    def packet(self, host: Host, to: Address, data: Any) -> SimPacket:
        """Count a message written by ``host``."""
        network = self.network
        packet = SimPacket(next(network.packet_numbers), host, to, data, network.scheduler.now)
        network.counters["sent"] += 1
        for observe in network.observers.sent.of(data):
            observe(packet)
        return packet

    def _drop_writes(self, host: Host, effect: Write) -> None:
        codec, to = self.codec_of(host), self._peer_address(effect.peer)
        for message in effect.messages:
            data = message if codec is None else codec.encode(message)
            self.network.drop(self.packet(host, to, data), "gone")

    def _peer_address(self, peer: Peer) -> Address:
        """Return the listening address of the other host of a connection that may be gone."""
        if peer.dialled:
            return peer.address
        host = self.network.only_host_at(peer.address[0]) or self._dialler_of.get(peer.address)
        return peer.address if host is None else host.address

    # For hosts

    def host_stopped(self, host: Host, crash: CrashMode) -> None:
        """End the connections of ``host``: its node has stopped. A surviving kernel still sends pending writes of
        connections that the node had closed."""
        for end in list(self.connection_ends(host).values()):
            if crash is CrashMode.KILLED:
                if end.state is ConnectionState.CLOSING:
                    continue
                if not end.is_gone:
                    self.send_reset(end)
            end.forget("down")

    def host_resumed(self, host: Host) -> None:
        """Deliver queued data: the node of ``host`` has resumed."""
        for end in list(self.connection_ends(host).values()):
            end.update_node()

    # For scenarios and faults

    def connect(self, source: Host, destination: Host) -> None:
        """Create a connection as if ``source`` had dialled ``destination``. Both must be up.

        :raises ConfigurationError: if one has a codec and the other has none.
        """
        dialler = ConnectionEnd(
            self, source, Peer(destination.address, next(self.connection_numbers), dialled=True), ConnectionState.OPEN
        )
        acceptor = accept(self, destination, dialler)
        acceptor.state = ConnectionState.OPEN
        self.network.counters["connections"] += 1
        dialler.update_node()
        acceptor.update_node()

    def peers(self, host: Host) -> list[Peer]:
        """Return the connections that are open for the node of ``host``."""
        return [end.peer for end in self.connection_ends(host).values() if end.is_open]

    def reset(self, one: Host, other: Host) -> None:
        """Reset the connections between two hosts on both sides at once."""
        for end in self.ends_between(one, other) + self.ends_between(other, one):
            end.terminate("reset")
            if end.other is not None:
                end.other.terminate("reset")

    def half_open(self, one: Host, other: Host) -> None:
        """Reset the connections between two hosts on the side of ``other``; ``one`` detects it on its next write."""
        for end in self.ends_between(other, one):
            end.terminate("reset")

    def ends_between(self, one: Host, other: Host) -> list[ConnectionEnd]:
        """Return the ends on ``one`` of its open connections to ``other``."""
        ends = [end for end in self.connection_ends(one).values() if end.other is not None and end.other.host is other]
        return [end for end in ends if end.state is ConnectionState.OPEN]

    def refuse_dials(self, host: Host) -> None:
        """Make ``host`` refuse dials until :meth:`accept_dials` was called equally often."""
        self._refusing[host.address] += 1

    def accept_dials(self, host: Host) -> None:
        """Undo one :meth:`refuse_dials`."""
        self._refusing[host.address] -= 1

    def refuses_dials(self, host: Host) -> bool:
        """Return whether ``host`` refuses dials."""
        return self._refusing[host.address] > 0

    def throttle_reads(self, host: Host, rate: float, source: Address | None = None) -> Throttle:
        """Limit the reads of the node of ``host`` to ``rate`` bytes per second until :meth:`remove_throttle`.

        If several throttles apply to a connection, the latest one counts.

        :param source: address of the only throttled sender; ``None`` throttles all connections, served in turn.
        """
        throttle = Throttle(host, rate, source)
        self.throttles.append(throttle)
        return throttle

    def remove_throttle(self, throttle: Throttle) -> None:
        """Remove a throttle of :meth:`throttle_reads`."""
        self.throttles.remove(throttle)
        throttle.release()

    # For connections

    def connection_ends(self, host: Host) -> dict[int, ConnectionEnd]:
        """Return the ends on ``host`` by peer number."""
        return self._ends[host.index]

    def codec_of(self, host: Host) -> IStreamCodec | None:
        """Return the codec of ``host``."""
        return self.codecs.get(host.address, self.codec) if self.codecs else self.codec

    def route_rng(self, source: Host, to: Address) -> SplitMix64:
        """Return the random number generator of the direction from ``source`` to ``to``."""
        dice = self._route_rngs.get((source.index, to))
        if dice is None:
            seed = f"{self.network.seed}/{source.name}/{to[0]}:{to[1]}/streams"
            dice = self._route_rngs[source.index, to] = SplitMix64(seed)
        return dice

    def make_accepted_peer(self, dialler: Host) -> Peer:
        """Return the peer for a new connection from ``dialler``."""
        number, ip = next(self.connection_numbers), dialler.address[0]
        peer = Peer((ip, EPHEMERAL_PORTS.start + number % len(EPHEMERAL_PORTS)), number, dialled=False)
        if self.network.only_host_at(ip) is None:
            self._dialler_of[peer.address] = dialler
        return peer

    def throttle_of(self, end: ConnectionEnd) -> Throttle | None:
        """Return the throttle of ``end``, if any."""
        for throttle in reversed(self.throttles):
            if throttle.applies_to(end):
                return throttle
        return None

    def send_reset(self, end: ConnectionEnd) -> None:
        """Send a reset for an unknown connection. A lost reset is not retransmitted."""
        other = end.other
        if other is None or other.is_gone:
            return
        route = StreamRoute(self, end.host, other.host.address)
        if not route.is_lost():
            self.network.call_in(route.latency(), partial(_reset_arrived, other))


def _reset_arrived(end: ConnectionEnd) -> None:
    """Handle an arrived reset. A host without power has no ends."""
    end.terminate("refused" if end.state is ConnectionState.DIALLING else "reset")
