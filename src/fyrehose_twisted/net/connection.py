"""Stream connection of a node, dialled or accepted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from twisted.internet import defer, error, protocol
from twisted.internet.interfaces import IPushProducer
from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder
from fyrehose_twisted.tcp_write import write_at_once

WRITE_AT_ONCE = 262_144
"""Bytes of the send queue passed to the transport in one write."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Limits of connections.

    :ivar max_accepted: maximum number of accepted connections.
    :ivar max_per_source: maximum number of accepted connections from one address.
    :ivar first_message_timeout: seconds in which an accepted connection must deliver a complete message.
    :ivar idle_timeout: maximum seconds between later messages of an accepted connection.
    :ivar close_timeout: seconds that a close may take before the connection is aborted.
    :ivar high_watermark: queued bytes above which the node receives ``blocked``.
    :ivar max_unsent: queued bytes above which the connection is aborted.
    :ivar dial_timeout: seconds that a dial may take.
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
    """Receiver of the events of a connection."""

    def connection_opened(self, connection: NodeConnection) -> None:
        """Handle an opened connection."""

    def connection_received(self, connection: NodeConnection, messages: Sequence[Any]) -> None:
        """Process received messages."""

    def connection_pressure_changed(self, connection: NodeConnection) -> None:
        """Handle a crossing of the high watermark in either direction."""

    def connection_closed(self, connection: NodeConnection, reason: str) -> None:
        """Handle the end of a connection that this side did not close."""

    def connection_released(self, connection: NodeConnection) -> None:
        """Handle the release of the connection by Twisted."""


@implementer(IPushProducer)
class NodeConnection(protocol.Protocol):
    """One connection that carries messages.

    It queues what the transport does not accept, so that the queue can be limited. Without an :attr:`owner`, a subclass
    overrides the hooks.

    :param codec: codec of the messages.
    :ivar owner: receiver of events, usually a :class:`~fyrehose_twisted.net.stream_driver.StreamDriver`.
    :ivar peer: identity of the connection for the node.
    :ivar source: remote address without the port.
    :ivar unsent_bytes: bytes in the send queue.
    :ivar is_closed: whether the connection no longer reads or accepts writes.
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
        """Whether the send queue exceeded its limit."""
        self.malformed_reason: str | None = None
        """Short name of the protocol error of the peer."""
        self.has_failed_tls = False
        """Whether TLS ended the connection before the first message, for instance for want of a certificate."""
        self.last_activity_at = 0.0
        """Time of the latest open, received message or close; maintained by the owner."""
        self.has_received = False
        """Whether a complete message was received."""
        self._decoder: IStreamDecoder = codec.decoder()
        self._queue: deque[bytes] = deque()
        self._paused = False
        """Whether the transport is a socket without TLS."""

    # Hooks for subclasses

    def connection_ready(self) -> None:
        """Handle the opened connection."""

    def messages_received(self, messages: Sequence[Any]) -> None:
        """Process received messages in order. By default the owner gets them."""
        if self.owner is not None:
            self.owner.connection_received(self, messages)

    def connection_ended(self, reason: str) -> None:
        """Handle the end of the connection unless :meth:`close` was called."""

    # Sending

    def send(self, messages: Sequence[Any]) -> None:
        """Write messages in order. A closed connection discards them silently.

        :raises UnencodableMessage: if a message does not fit the wire format; none is written then.
        """
        self.write(b"".join(map(self.codec.encode, messages)))

    def write(self, data: bytes) -> None:
        """Write encoded messages."""
        if self.is_closed:
            return
        if not self._paused:
            write_at_once(self._transport, data)
            return
        self._queue.append(data)
        before, self.unsent_bytes = self.unsent_bytes, self.unsent_bytes + len(data)
        if self.unsent_bytes > self.limits.max_unsent:
            self.has_overflowed = True
            self.abort("does not read")
        elif before <= self.limits.high_watermark < self.unsent_bytes and self.owner is not None:
            self.owner.connection_pressure_changed(self)

    def close(self) -> None:
        """Close the connection after pending writes."""
        if not self.is_closed:
            self.is_closed = True
            if not self._queue:
                self._close()

    def abort(self, reason: str) -> None:
        """End the connection at once and discard the send queue. The owner gets ``reason``."""
        self._finish(reason)
        self._clear_queue()
        self._transport.abortConnection()

    def malformed(self, problem: RemoteError) -> None:
        """Abort the connection because of malformed input."""
        self.malformed_reason = getattr(problem, "reason", "malformed")
        self.abort(f"malformed: {problem}")

    def abort_on_exception(self) -> None:
        """Abort the connection because of the exception being handled, a bug on this side."""
        self.log.failure("the connection with {source} failed", source=self.source)
        self.abort("failed here")

    # Twisted callbacks

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        with suppress(AttributeError):  # Not every transport is TCP.
            self._transport.setTcpNoDelay(True)
            self._transport.setTcpKeepAlive(True)
        self._transport.registerProducer(self, True)
        if self.owner is not None:
            self.owner.connection_opened(self)
        if not self.is_closed:
            self.connection_ready()

    def dataReceived(self, data: bytes) -> None:
        """Twisted: process received bytes."""
        try:
            while not self.is_closed:
                messages = self._decoder.feed(data)
                if not messages:
                    return
                self.has_received = True
                self.messages_received(messages)
                # A decoder raises for malformed bytes only after the messages before them were returned.
                data = b""
        except RemoteError as problem:
            self.malformed(problem)
        except Exception:
            self.abort_on_exception()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        self.has_failed_tls = not self.has_received and _is_tls_error(reason.value)
        self._finish(describe_failure(reason.value))
        self._clear_queue()
        if self.owner is not None:
            self.owner.connection_released(self)

    def pauseProducing(self) -> None:
        """Twisted: the transport buffer is full."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Twisted: the transport accepts data again."""
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
        """Twisted: the transport accepts no more data."""
        self._clear_queue()

    # Internals

    @property
    def _transport(self) -> Any:
        return self.transport

    def _close(self) -> None:
        self._transport.unregisterProducer()  # Otherwise Twisted would wait for this producer.
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
    """Factory for dialled connections.

    :param build: returns a new connection.
    """

    noisy = False

    def __init__(self, build: Callable[[], NodeConnection]) -> None:
        self._build = build

    def buildProtocol(self, addr: Any) -> NodeConnection:
        """Twisted: return the protocol of a new connection."""
        return self._build()


def describe_failure(failure: BaseException | None) -> str:
    """Return a short reason why a connection ended or failed to open."""
    match failure:
        case None | error.ConnectionDone():
            return "closed"
        case error.ConnectionRefusedError():
            return "refused"
        case error.TimeoutError() | defer.TimeoutError() | TimeoutError() | error.ConnectingCancelledError():
            # An endpoint is cancelled on timeout.
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


def _is_tls_error(failure: BaseException | None) -> bool:
    # pyOpenSSL may not be installed.
    return type(failure).__module__.partition(".")[0] == "OpenSSL"


def _failure_reason(reason: object) -> str:
    match reason:
        case Failure():  # twisted.web's
            return describe_failure(reason.value)
        case [*_, last]:  # pyOpenSSL's (library, function, reason)
            return str(last)
    return str(reason)
