"""One stream connection of a node, whoever opened it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet import defer, error, protocol, tcp
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder

WRITE_AT_ONCE = 262_144
"""Bytes of what waits that are given to the transport together."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What connections may take.

    :ivar max_accepted: connections that others have opened, at once.
    :ivar max_per_source: of these, from one address.
    :ivar first_message_timeout: seconds until an accepted connection must have brought a whole message.
    :ivar idle_timeout: seconds that it may bring none afterwards.
    :ivar close_timeout: seconds that a connection may take to go away; then it is cut off.
    :ivar high_watermark: bytes that wait to be written, above which the node is told ``blocked``.
    :ivar max_unsent: bytes that wait to be written, above which a connection is cut off.
    :ivar dial_timeout: seconds until a connection must be open.
    """

    max_accepted: int = 256
    max_per_source: int = 64
    first_message_timeout: float = 30.0
    idle_timeout: float = 120.0
    close_timeout: float = 5.0
    high_watermark: int = 262_144
    max_unsent: int = 16 * 2**20
    dial_timeout: float = 3.0


class ConnectionOwner(Protocol):
    """Whoever a link reports to."""

    def connection_opened(self, connection: NodeConnection) -> None:
        """The connection is open."""

    def connection_received(self, connection: NodeConnection, messages: Sequence[Any]) -> None:
        """Messages arrived."""

    def connection_pressure_changed(self, connection: NodeConnection) -> None:
        """Much waits to be written, or does not any longer."""

    def connection_closed(self, connection: NodeConnection, reason: str) -> None:
        """It is over, and not because this side hung up."""

    def connection_released(self, connection: NodeConnection) -> None:
        """Twisted has let go of it."""


@implementer(IPushProducer)
class NodeConnection(protocol.Protocol):
    """Messages in and out of one connection.

    What the transport has no room for waits here, so that it is known how much that is. Alone it is of use, too: then
    :attr:`owner` is ``None``, and a subclass does something in its hooks.

    :param codec: how messages become bytes.
    :ivar owner: told of everything; :class:`~fyrehose_twisted.net.stream_driver.StreamDriver`, mostly.
    :ivar peer: what the node calls it.
    :ivar source: address of the other end, without the port.
    :ivar unsent_bytes: bytes that wait here to be written.
    :ivar is_closed: whether nothing is read or taken to be written any more.
    """

    log = Logger()

    def __init__(self, codec: IStreamCodec, limits: ConnectionLimits | None = None) -> None:
        self.codec = codec
        self.limits = ConnectionLimits() if limits is None else limits
        self.owner: ConnectionOwner | None = None
        self.peer: Peer | None = None
        self.source = ""
        self.unsent_bytes = 0
        self.is_closed = False
        self.has_overflowed = False
        """Whether too much waited to be written."""
        self.malformed_reason: str | None = None
        """Short name of what was wrong with the bytes that came."""
        self.last_activity_at = 0.0
        """When it was opened, brought its last message, or was hung up, whatever was last; kept by its owner."""
        self.has_received = False
        """Whether a whole message has come."""
        self._decoder: IStreamDecoder = codec.decoder()
        self._queue: deque[bytes] = deque()
        self._paused = False
        self._is_plain_socket = False
        """Whether the transport is a socket, without TLS."""

    # What subclasses change

    def connection_ready(self) -> None:
        """The connection is open."""

    def messages_received(self, messages: Sequence[Any]) -> None:
        """Messages have come, in order; by default they are the owner's."""
        if self.owner is not None:
            self.owner.connection_received(self, messages)

    def connection_ended(self, reason: str) -> None:
        """The connection is over, and not because :meth:`close` was called."""

    # Out

    def send(self, messages: Sequence[Any]) -> None:
        """Write messages, in order. A connection that is over takes them in silence.

        :raises UnencodableMessage: if one does not fit the wire; then none is written.
        """
        self.write(b"".join(map(self.codec.encode, messages)))

    def write(self, data: bytes) -> None:
        """Write messages that are bytes already."""
        if self.is_closed:
            return
        if not self._paused:
            self._write_now(data)
            return
        self._queue.append(data)
        before, self.unsent_bytes = self.unsent_bytes, self.unsent_bytes + len(data)
        if self.unsent_bytes > self.limits.max_unsent:
            self.has_overflowed = True
            self.abort("does not read")
        elif before <= self.limits.high_watermark < self.unsent_bytes and self.owner is not None:
            self.owner.connection_pressure_changed(self)

    def close(self) -> None:
        """Close it once what was written has left."""
        if not self.is_closed:
            self.is_closed = True
            if not self._queue:
                self._close()

    def abort(self, reason: str) -> None:
        """End it at once, whatever waits; whoever listens is told ``reason``."""
        self._finish(reason)
        self._clear_queue()
        self._transport.abortConnection()

    def malformed(self, problem: RemoteError) -> None:
        """End it, for what came is none of the protocol."""
        self.malformed_reason = getattr(problem, "reason", "malformed")
        self.abort(f"malformed: {problem}")

    def abort_on_exception(self) -> None:
        """End it, because of the exception that is being handled: a mistake of ours."""
        self.log.failure("the connection with {source} failed", source=self.source)
        self.abort("failed here")

    # What Twisted calls

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        with suppress(AttributeError):  # Not every transport is TCP.
            self._transport.setTcpNoDelay(True)
            self._transport.setTcpKeepAlive(True)
        self._transport.registerProducer(self, True)
        self._is_plain_socket = isinstance(self.transport, tcp.Connection)
        if self.owner is not None:
            self.owner.connection_opened(self)
        if not self.is_closed:
            self.connection_ready()

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes have come."""
        try:
            while not self.is_closed:
                messages = self._decoder.feed(data)
                if not messages:
                    return
                self.has_received = True
                self.messages_received(messages)
                # Decoders hold back what is wrong until all that came before it was taken.
                data = b""
        except RemoteError as problem:
            self.malformed(problem)
        except Exception:
            self.abort_on_exception()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        self._finish(describe_failure(reason.value))
        self._clear_queue()
        if self.owner is not None:
            self.owner.connection_released(self)

    def pauseProducing(self) -> None:
        """Twisted: the transport has no room for more."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Twisted: it has room."""
        self._paused = False
        crowded = self.unsent_bytes > self.limits.high_watermark
        while self._queue and not self._paused:
            pieces, size = [], 0
            while self._queue and size < WRITE_AT_ONCE:
                pieces.append(self._queue.popleft())
                size += len(pieces[-1])
            self.unsent_bytes -= size
            self._transport.write(b"".join(pieces))
        if (
            crowded
            and self.unsent_bytes <= self.limits.high_watermark
            and self.owner is not None
            and not self.is_closed
        ):
            self.owner.connection_pressure_changed(self)
        if self.is_closed and not self._queue:
            self._close()

    def stopProducing(self) -> None:
        """Twisted: nothing can be written any more."""
        self._clear_queue()

    # Within

    @property
    def _transport(self) -> Any:
        return self.transport

    def _write_now(self, data: bytes) -> None:
        """Write now what the kernel has room for.

        Twisted writes once the reactor says that there is room, which nearly always there is, and costs three system
        calls and a turn.
        """
        transport = self._transport
        if (
            self._is_plain_socket
            and not transport.dataBuffer
            and not transport._tempDataBuffer
            and not transport.disconnecting
        ):
            sent = transport.writeSomeData(data)
            if sent == len(data):
                return
            if isinstance(sent, int):
                data = data[sent:]
        # What fails is left to Twisted, which finds out why.
        transport.write(data)

    def _close(self) -> None:
        self._transport.unregisterProducer()  # Or Twisted would wait for what it produces.
        self._transport.loseConnection()

    def _finish(self, reason: str) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.owner is not None:
            self.owner.connection_closed(self, reason)
        self.connection_ended(reason)

    def _clear_queue(self) -> None:
        self._queue.clear()
        self.unsent_bytes = 0


class ConnectionFactory(protocol.Factory):
    """Makes links for connections that are dialled.

    :param build: returns what speaks on one.
    """

    noisy = False

    def __init__(self, build: Callable[[], NodeConnection]) -> None:
        self._build = build

    def buildProtocol(self, addr: Any) -> NodeConnection:
        """Twisted: a connection is open."""
        return self._build()


def describe_failure(failure: BaseException | None) -> str:
    """Return in a few words why a connection ended or did not open."""
    match failure:
        case None | error.ConnectionDone():
            return "closed"
        case error.ConnectionRefusedError():
            return "refused"
        case error.TimeoutError() | defer.TimeoutError() | TimeoutError() | error.ConnectingCancelledError():
            # An endpoint is cancelled when its time is over.
            return "timed out"
        case error.ConnectionLost() | ConnectionResetError() | error.ConnectionAborted():
            return "reset"
        case error.DNSLookupError():
            return "name not found"
        case error.NoRouteError():
            return "no route"
        case BaseException(args=[[*reasons]]) if reasons:
            return "; ".join(map(_failure_reason, reasons))[:200]
    return (getattr(failure, "strerror", None) or str(failure) or type(failure).__name__)[:200]


def _failure_reason(reason: object) -> str:
    match reason:
        case Failure():  # twisted.web's
            return describe_failure(reason.value)
        case [*_, last]:  # pyOpenSSL's (library, function, reason)
            return str(last)
    return str(reason)
