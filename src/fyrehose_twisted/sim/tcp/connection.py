"""One end of a stream connection, and what the node there is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any, Protocol

from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IStreamCodec
from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.network_core import NetworkCore
from fyrehose_twisted.sim.observer import Packet
from fyrehose_twisted.sim.tcp.flow_control import Pipe
from fyrehose_twisted.sim.tcp.receive_buffer import Inbox
from fyrehose_twisted.sim.tcp.route import RouteStreams
from fyrehose_twisted.sim.tcp.segments import NOTHING, Mark, Segment, StreamLimits, cut_to_travel


class State(Enum):
    """What the machine at one end knows of a connection."""

    DIALLING = "dialling"
    ACCEPTING = "accepting"
    """The machine has accepted it; the handshake is not over, or the node has not been told."""
    OPEN = "open"
    CLOSING = "closing"
    """The node hung up; what it wrote is still on its way."""
    GONE = "gone"


class EndThrottle(Protocol):
    """A limit to how fast a node reads."""

    def read_later(self, end: End, inbox: Inbox) -> None:
        """Let the ``inbox`` of ``end`` be read when it is its turn."""


class EndStreams(RouteStreams, Protocol):
    """The stream connections of a network that an end is one of.

    :ivar limits: the sizes and times of connections.
    """

    limits: StreamLimits

    @property
    def throttles(self) -> Sequence[EndThrottle]:
        """The throttles in force."""

    def ends(self, host: Host) -> dict[int, End]:
        """Return the ends on ``host``, by the number of the peer that each leads to."""

    def codec_of(self, host: Host) -> IStreamCodec | None:
        """Return how messages of ``host`` become bytes."""

    def packet(self, host: Host, to: Address, data: Any) -> Packet:
        """Count a message that ``host`` writes."""

    def throttle_of(self, end: End) -> EndThrottle | None:
        """Return what slows the reading of ``end``."""

    def send_reset(self, end: End) -> None:
        """Tell the other end that here nothing is known of the connection."""


class End:
    """One end of a connection.

    :ivar streams: the connections of the network.
    :ivar peer: what the node calls it.
    :ivar other: the other end, even if that is gone; ``None`` until a dial is answered.
    :ivar out: what it sends through, and ``inbox`` what it receives with, from when they are needed.
    """

    __slots__ = (
        "_full",
        "_known",
        "_reason",
        "_told_full",
        "host",
        "inbox",
        "other",
        "out",
        "peer",
        "state",
        "streams",
    )

    def __init__(self, streams: EndStreams, host: Host, peer: Peer, state: State, other: End | None = None) -> None:
        self.streams = streams
        self.host = host
        self.peer = peer
        self.state = state
        self.other = other
        self.out: Pipe | None = None
        self.inbox: Inbox | None = None
        self._known = False
        self._full = False
        self._told_full = False
        self._reason: tuple[str, str] | None = None
        streams.ends(host)[peer.number] = self

    def __repr__(self) -> str:
        return f"<{self.state.value} end {self.peer.number} of {self.host.name}>"

    @property
    def network(self) -> NetworkCore:
        """The network that the connection is on."""
        return self.streams.network

    @property
    def codec(self) -> IStreamCodec | None:
        """How messages become bytes; ``None`` if they travel as objects."""
        return self.streams.codec_of(self.host)

    @property
    def gone(self) -> bool:
        """Whether the machine knows nothing of the connection any more; the node may still have to be told."""
        return self.state is State.GONE

    @property
    def usable(self) -> bool:
        """Whether the node takes it for open."""
        return self.state is State.OPEN and self._known

    @property
    def reads(self) -> bool:
        """Whether the node reads from it now."""
        return (self.state is State.OPEN or self.state is State.ACCEPTING) and self.host.running

    @property
    def reads_at_once(self) -> bool:
        """Whether the node reads from it now, and nothing slows it."""
        return self.reads and not self.streams.throttles

    @property
    def to(self) -> Address:
        """Where the host at the other end listens; an accepted connection comes from elsewhere, see
        :class:`~fyrehose_twisted.effects.Peer`."""
        return self.peer.address if self.other is None else self.other.host.address

    # Sending

    def write(self, messages: Sequence[Any]) -> None:
        """Send messages."""
        streams, host, to = self.streams, self.host, self.to
        out = self.out or self.pipe()
        codec = self.codec
        if codec is None:
            size = streams.limits.object_size
            for message in messages:
                out.put(Segment(streams.packet(host, to, message), size))
        elif messages:
            packets = [streams.packet(host, to, codec.encode(message)) for message in messages]
            for segment in cut_to_travel(packets, streams.limits.segment, out.dice):
                out.put(segment)

    def pipe(self) -> Pipe:
        """Return what it sends through."""
        if self.out is None:
            assert self.other is not None, "nobody has answered yet"
            self.out = Pipe(self.streams, self, self.other, self.streams.limits)
        return self.out

    def hang_up(self) -> None:
        """Close it once what was written has arrived. The node hears no more of it."""
        self.state = State.CLOSING
        self._linked("closed")
        if self.inbox is not None:
            self.inbox.discard("closed")
        self.pipe().put(Segment(Mark.BYE, 0))

    def buffered(self, size: int) -> None:
        """So many bytes wait to be sent."""
        counts, limits = self.network.counts, self.streams.limits
        if size > counts["stream_buffered"]:
            counts["stream_buffered"] = size
        if size < limits.low if self._full else size > limits.high:
            self._full = not self._full
            # Later: a node that writes is not called back before everything else that it wants is done.
            self.network.call_in(0.0, self.look)

    # Receiving

    def reached(self) -> bool:
        """Say whether something that has come this far is taken; where nothing is known of it, that is answered."""
        if self.host.dark:
            return False
        if self.gone:
            self.streams.send_reset(self)
        return not self.gone

    def arrived(self, segments: list[Segment]) -> None:
        """Segments have arrived."""
        only, inbox = segments[0], self.inbox
        # A message on its own is what nearly all are where they travel as objects.
        if inbox is None and len(segments) == 1 and isinstance(only.data, Packet) and self.reads_at_once:
            self.make_room(only.size)
            self.hand_over(only.data.data, only.data)
            return
        if inbox is None:
            inbox = self.inbox = Inbox(self)
        inbox.keep(segments)
        if self.state is not State.CLOSING:
            self.look()
        elif inbox.discard("closed"):
            self.closed()
        if not inbox.needed:
            self.inbox = None

    def make_room(self, size: int) -> None:
        """So many bytes were read."""
        if size and self.other is not None and self.other.out is not None:
            self.other.out.make_room(size)

    def hand_over(self, message: Any, packet: Any) -> None:
        """Hand a message to the node, which came as ``packet``; either may be :data:`NOTHING`."""
        host = self.host
        if packet is not NOTHING:
            network = self.network
            network.counts["arrived"] += 1
            for observe in network.observers.arrived:
                observe(packet, host)
        if message is not NOTHING:
            host.feed(host.node.receive, message, self.peer)

    def look(self) -> None:
        """Let the node know what it does not know yet, unless its host stands still."""
        host = self.host
        if self.state is State.OPEN and not self._known and host.running:
            self._opened()
        if self.inbox is not None and self.inbox.readable:
            throttle = self.streams.throttle_of(self)
            if throttle is None:
                self.inbox.read()
            else:
                throttle.read_later(self, self.inbox)
        if self._full is not self._told_full and self.usable and host.running:
            self._told_full = self._full
            self._linked("blocked" if self._full else "unblocked")
            host.feed(host.node.blocked if self._full else host.node.unblocked, self.peer)
        if self._reason is not None and host.running:
            self._ended(*self._reason)

    def answered(self) -> None:
        """What was dialled has accepted."""
        self.state = State.OPEN
        self.network.counts["connections"] += 1
        self.pipe().put(Segment(Mark.HELLO, 0))
        self.look()

    def greeted(self) -> None:
        """The dialler knows that it was accepted, and so the connection is open."""
        self.state = State.OPEN
        self._opened()

    def closed(self) -> None:
        """The other side hung up, and all that it wrote has been read."""
        other = self.other
        self.end("closed")
        if other is not None:
            other.end("closed")

    def malformed(self, error: RemoteError) -> None:
        """The bytes are none of the protocol."""
        self.streams.send_reset(self)
        self.end(f"malformed: {error}", "reset")

    # The end

    def end(self, reason: str, what: str | None = None) -> None:
        """The machine knows that the connection is over, or will not open; the node is told if it does not.

        :param what: the reason as one of the words that observers are told, if it is none.
        """
        before = self.state
        if before is State.GONE:
            return
        self._leave(reason if what is None else what)
        if before is State.DIALLING or before is State.OPEN:
            self._reason = reason, reason if what is None else what
            self.look()
        else:
            self.streams.ends(self.host).pop(self.peer.number, None)

    def forget(self, why: str) -> None:
        """The machine loses its memory of the connection."""
        self._reason = None
        if not self.gone:
            self._leave(why)
        self.streams.ends(self.host).pop(self.peer.number, None)

    def _leave(self, why: str) -> None:
        dialled, self.state = self.state is State.DIALLING, State.GONE
        if self.inbox is not None:
            self.inbox.discard(why)
            self.inbox = None
        if self.out is not None:
            self.out.sender_gone(why)
        other = self.other
        if other is None:
            return
        if other.out is not None:
            other.out.receiver_gone(why)
        # Nothing comes back any more for a node that hung up, nor for a machine whose handshake came to nothing.
        if dialled or (other.state is State.CLOSING and other.out is not None and other.out.idle):
            other.forget(why)

    # Telling

    def _opened(self) -> None:
        self._known = True
        self._linked("connected" if self.peer.dialled else "accepted")
        self.host.feed(self.host.node.connected, self.peer)

    def _ended(self, reason: str, what: str) -> None:
        self._reason = None
        self.streams.ends(self.host).pop(self.peer.number, None)
        node = self.host.node
        if self._known:
            self._linked(what)
            self.host.feed(node.disconnected, self.peer, reason)
        elif self.peer.dialled:
            self._linked(what)
            self.host.feed(node.dial_failed, self.peer.address, reason)

    def _linked(self, what: str) -> None:
        for observe in self.network.observers.linked:
            observe(self.host, self.to, what)
