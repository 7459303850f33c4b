"""One end of a stream connection and its events for the node."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IStreamCodec
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import SimPacket
from fyrehose_twisted.sim.tcp.flow_control import SendBuffer
from fyrehose_twisted.sim.tcp.receive_buffer import ReceiveBuffer
from fyrehose_twisted.sim.tcp.route import RouteStreams
from fyrehose_twisted.sim.tcp.segments import NO_VALUE, ControlSegment, StreamLimits, TcpSegment, split_into_segments


class ConnectionState(Enum):
    """State of a connection end in the kernel of its host."""

    DIALLING = "dialling"
    ACCEPTING = "accepting"
    """Accepted, but the handshake is incomplete or the node is not informed yet."""
    OPEN = "open"
    CLOSING = "closing"
    """Closed by the node; its writes are still in flight."""
    GONE = "gone"


class EndThrottle(Protocol):
    """Limit of the read rate of a node."""

    def enqueue(self, end: ConnectionEnd, inbox: ReceiveBuffer) -> None:
        """Schedule a read of the receive buffer of ``end``."""


class EndStreams(RouteStreams, Protocol):
    """Interface of the stream connections of a network to one end.

    :ivar limits: the sizes and times of connections.
    """

    limits: StreamLimits

    @property
    def throttles(self) -> Sequence[EndThrottle]:
        """The throttles in force."""

    def connection_ends(self, host: Host) -> dict[int, ConnectionEnd]:
        """Return the ends on ``host`` by peer number."""

    def codec_of(self, host: Host) -> IStreamCodec | None:
        """Return the codec of ``host``."""

    def packet(self, host: Host, to: Address, data: Any) -> SimPacket:
        """Count a message written by ``host``."""

    def throttle_of(self, end: ConnectionEnd) -> EndThrottle | None:
        """Return the throttle of ``end``, if any."""

    def send_reset(self, end: ConnectionEnd) -> None:
        """Send a reset to the other end."""


class ConnectionEnd:
    """One end of a stream connection.

    :ivar streams: the connections of the network.
    :ivar peer: identity of the connection for the node.
    :ivar other: other end, even if that is gone; ``None`` until a dial is answered.
    :ivar send_buffer: send buffer; like ``inbox``, the receive buffer, created on first use.
    """

    __slots__ = (
        "_blocked",
        "_close_reason",
        "_node_blocked",
        "_node_informed",
        "host",
        "other",
        "peer",
        "receive_buffer",
        "send_buffer",
        "state",
        "streams",
    )

    def __init__(
        self, streams: EndStreams, host: Host, peer: Peer, state: ConnectionState, other: ConnectionEnd | None = None
    ) -> None:
        self.streams = streams
        self.host = host
        self.peer = peer
        self.state = state
        self.other = other
        self.send_buffer: SendBuffer | None = None
        self.receive_buffer: ReceiveBuffer | None = None
        self._node_informed = False
        self._blocked = False
        self._node_blocked = False
        self._close_reason: tuple[str, str] | None = None
        streams.connection_ends(host)[peer.number] = self

    def __repr__(self) -> str:
        return f"<{self.state.value} end {self.peer.number} of {self.host.name}>"

    @property
    def network(self) -> NetworkCore:
        """Network of the connection."""
        return self.streams.network

    @property
    def codec(self) -> IStreamCodec | None:
        """Codec of the messages; ``None`` if they travel as objects."""
        return self.streams.codec_of(self.host)

    @property
    def is_gone(self) -> bool:
        """Whether the kernel has dropped the connection. The node may not be informed yet."""
        return self.state is ConnectionState.GONE

    @property
    def is_open(self) -> bool:
        """Whether the connection is open for the node."""
        return self.state is ConnectionState.OPEN and self._node_informed

    @property
    def is_reading(self) -> bool:
        """Whether the node currently reads from it."""
        return (self.state is ConnectionState.OPEN or self.state is ConnectionState.ACCEPTING) and self.host.running

    @property
    def is_reading_unthrottled(self) -> bool:
        """Whether the node currently reads from it without a throttle."""
        return self.is_reading and not self.streams.throttles

    @property
    def to(self) -> Address:
        """Listening address of the other host. The source of an accepted connection differs; see
        :class:`~fyrehose_twisted.effects.Peer`."""
        return self.peer.address if self.other is None else self.other.host.address

    # Sending

    def write(self, messages: Sequence[Any]) -> None:
        """Queue messages for sending."""
        streams, host, to = self.streams, self.host, self.to
        out = self.send_buffer or self.ensure_send_buffer()
        codec = self.codec
        if codec is None:
            size = streams.limits.object_size
            for message in messages:
                out.send(TcpSegment(streams.packet(host, to, message), size))
        elif messages:
            packets = [streams.packet(host, to, codec.encode(message)) for message in messages]
            for segment in split_into_segments(packets, streams.limits.segment, out.rng):
                out.send(segment)

    def ensure_send_buffer(self) -> SendBuffer:
        """Return the send buffer; create it if needed."""
        if self.send_buffer is None:
            assert self.other is not None, "the dial is not answered yet"
            self.send_buffer = SendBuffer(self.streams, self, self.other, self.streams.limits)
        return self.send_buffer

    def close(self) -> None:
        """Close after the pending writes. The node gets no further events."""
        self.state = ConnectionState.CLOSING
        self._notify_observers("closed")
        if self.receive_buffer is not None:
            self.receive_buffer.discard("closed")
        self.ensure_send_buffer().send(TcpSegment(ControlSegment.BYE, 0))

    def buffered_bytes_changed(self, size: int) -> None:
        """Handle a change of the number of queued bytes."""
        counts, limits = self.network.counters, self.streams.limits
        if size > counts["stream_buffered"]:
            counts["stream_buffered"] = size
        if size < limits.low if self._blocked else size > limits.high:
            self._blocked = not self._blocked
            # Deferred, so that the node is called only after all its effects were carried out.
            self.network.call_in(0.0, self.update_node)

    # Receiving

    def accepts_segments(self) -> bool:
        """Return whether arriving segments are accepted; an unknown connection is answered with a reset."""
        if self.host.powered_off:
            return False
        if self.is_gone:
            self.streams.send_reset(self)
        return not self.is_gone

    def arrived(self, segments: list[TcpSegment]) -> None:
        """Process arrived segments."""
        only, inbox = segments[0], self.receive_buffer
        # Fast path: a single message object.
        if inbox is None and len(segments) == 1 and isinstance(only.data, SimPacket) and self.is_reading_unthrottled:
            self.bytes_read(only.size)
            self.deliver(only.data.data, only.data)
            return
        if inbox is None:
            inbox = self.receive_buffer = ReceiveBuffer(self)
        inbox.add(segments)
        if self.state is not ConnectionState.CLOSING:
            self.update_node()
        elif inbox.discard("closed"):
            self.peer_closed()
        if not inbox.has_state:
            self.receive_buffer = None

    def bytes_read(self, size: int) -> None:
        """Handle bytes read by the node."""
        if size and self.other is not None and self.other.send_buffer is not None:
            self.other.send_buffer.bytes_read(size)

    def deliver(self, message: Any, packet: Any) -> None:
        """Deliver a message that arrived as ``packet``; either may be :data:`NO_VALUE`."""
        host = self.host
        if packet is not NO_VALUE:
            network = self.network
            network.counters["arrived"] += 1
            for observe in network.observers.arrived.of(packet.data):
                observe(packet, host)
        if message is not NO_VALUE:
            host.deliver(host.node.receive, message, self.peer)

    def update_node(self) -> None:
        """Inform the node of changes unless its host is paused."""
        host = self.host
        if self.state is ConnectionState.OPEN and not self._node_informed and host.running:
            self._notify_connected()
        if self.receive_buffer is not None and self.receive_buffer.readable:
            throttle = self.streams.throttle_of(self)
            if throttle is None:
                self.receive_buffer.read()
            else:
                throttle.enqueue(self, self.receive_buffer)
        if self._blocked is not self._node_blocked and self.is_open and host.running:
            self._node_blocked = self._blocked
            self._notify_observers("blocked" if self._blocked else "unblocked")
            host.deliver(host.node.blocked if self._blocked else host.node.unblocked, self.peer)
        if self._close_reason is not None and host.running:
            self._notify_disconnected(*self._close_reason)

    def dial_accepted(self) -> None:
        """Handle the acceptance of a dial."""
        self.state = ConnectionState.OPEN
        self.network.counters["connections"] += 1
        self.ensure_send_buffer().send(TcpSegment(ControlSegment.HELLO, 0))
        self.update_node()

    def handshake_done(self) -> None:
        """Complete the handshake: the connection is open."""
        self.state = ConnectionState.OPEN
        self._notify_connected()

    def peer_closed(self) -> None:
        """Handle a close by the peer after all its data was read."""
        other = self.other
        self.terminate("closed")
        if other is not None:
            other.terminate("closed")

    def decode_failed(self, error: RemoteError) -> None:
        """Handle malformed bytes."""
        self.streams.send_reset(self)
        self.terminate(f"malformed: {error}", "reset")

    # The end

    def terminate(self, reason: str, change: str | None = None) -> None:
        """End the connection, or give up opening it, and inform the node if it does not know.

        :param change: change reported to observers; ``reason`` by default.
        """
        before = self.state
        if before is ConnectionState.GONE:
            return
        self._enter_gone(reason if change is None else change)
        if before is ConnectionState.DIALLING or before is ConnectionState.OPEN:
            self._close_reason = reason, reason if change is None else change
            self.update_node()
        else:
            self.streams.connection_ends(self.host).pop(self.peer.number, None)

    def forget(self, reason: str) -> None:
        """Drop the state of the connection."""
        self._close_reason = None
        if not self.is_gone:
            self._enter_gone(reason)
        self.streams.connection_ends(self.host).pop(self.peer.number, None)

    def _enter_gone(self, reason: str) -> None:
        dialled, self.state = self.state is ConnectionState.DIALLING, ConnectionState.GONE
        if self.receive_buffer is not None:
            self.receive_buffer.discard(reason)
            self.receive_buffer = None
        if self.send_buffer is not None:
            self.send_buffer.sender_gone(reason)
        other = self.other
        if other is None:
            return
        if other.send_buffer is not None:
            other.send_buffer.receiver_gone(reason)
        # No more data comes back after a close by the node or a failed handshake.
        if dialled or (
            other.state is ConnectionState.CLOSING and other.send_buffer is not None and other.send_buffer.idle
        ):
            other.forget(reason)

    # Notifications

    def _notify_connected(self) -> None:
        self._node_informed = True
        self._notify_observers("connected" if self.peer.dialled else "accepted")
        self.host.deliver(self.host.node.connected, self.peer)

    def _notify_disconnected(self, reason: str, change: str) -> None:
        self._close_reason = None
        self.streams.connection_ends(self.host).pop(self.peer.number, None)
        node = self.host.node
        if self._node_informed:
            self._notify_observers(change)
            self.host.deliver(node.disconnected, self.peer, reason)
        elif self.peer.dialled:
            self._notify_observers(change)
            self.host.deliver(node.dial_failed, self.peer.address, reason)

    def _notify_observers(self, change: str) -> None:
        for observe in self.network.observers.connection_changed:
            observe(self.host, self.to, change)
