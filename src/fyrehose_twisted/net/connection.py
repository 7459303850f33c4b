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
class LinkLimits:
    """What connections may take.

    :ivar accepted: connections that others have opened, at once.
    :ivar per_source: of these, from one address.
    :ivar first: seconds until an accepted connection must have brought a whole message.
    :ivar idle: seconds that it may bring none afterwards.
    :ivar closing: seconds that a connection may take to go away; then it is cut off.
    :ivar crowded: bytes that wait to be written, above which the node is told ``blocked``.
    :ivar unread: bytes that wait to be written, above which a connection is cut off.
    :ivar dial: seconds until a connection must be open.
    """

    accepted: int = 256
    per_source: int = 64
    first: float = 30.0
    idle: float = 120.0
    closing: float = 5.0
    crowded: int = 262_144
    unread: int = 16 * 2**20
    dial: float = 3.0


class LinkOwner(Protocol):
    """Whoever a link reports to."""

    def link_opened(self, link: Link) -> None:
        """The connection is open."""

    def link_received(self, link: Link, messages: Sequence[Any]) -> None:
        """Messages arrived."""

    def link_crowded(self, link: Link) -> None:
        """Much waits to be written, or does not any longer."""

    def link_ended(self, link: Link, reason: str) -> None:
        """It is over, and not because this side hung up."""

    def link_gone(self, link: Link) -> None:
        """Twisted has let go of it."""


@implementer(IPushProducer)
class Link(protocol.Protocol):
    """Messages in and out of one connection.

    What the transport has no room for waits here, so that it is known how much that is. Alone it is of use, too: then
    :attr:`owner` is ``None``, and a subclass does something in its hooks.

    :param codec: how messages become bytes.
    :ivar owner: told of everything; :class:`~fyrehose_twisted.net.stream_driver.Links`, mostly.
    :ivar peer: what the node calls it.
    :ivar source: address of the other end, without the port.
    :ivar waiting: bytes that wait here to be written.
    :ivar over: whether nothing is read or taken to be written any more.
    """

    log = Logger()

    def __init__(self, codec: IStreamCodec, limits: LinkLimits | None = None) -> None:
        self.codec = codec
        self.limits = LinkLimits() if limits is None else limits
        self.owner: LinkOwner | None = None
        self.peer: Peer | None = None
        self.source = ""
        self.waiting = 0
        self.over = False
        self.overflowed = False
        """Whether too much waited to be written."""
        self.fault: str | None = None
        """Short name of what was wrong with the bytes that came."""
        self.since = 0.0
        """When it was opened, brought its last message, or was hung up, whatever was last; kept by its owner."""
        self.heard = False
        """Whether a whole message has come."""
        self._decoder: IStreamDecoder = codec.decoder()
        self._queue: deque[bytes] = deque()
        self._paused = False
        self._plain = False
        """Whether the transport is a socket, without TLS."""

    # What subclasses change

    def connection_ready(self) -> None:
        """The connection is open."""

    def messages_received(self, messages: Sequence[Any]) -> None:
        """Messages have come, in order; by default they are the owner's."""
        if self.owner is not None:
            self.owner.link_received(self, messages)

    def connection_ended(self, reason: str) -> None:
        """The connection is over, and not because :meth:`hang_up` was called."""

    # Out

    def send(self, messages: Sequence[Any]) -> None:
        """Write messages, in order. A connection that is over takes them in silence.

        :raises UnencodableMessage: if one does not fit the wire; then none is written.
        """
        self.write(b"".join(map(self.codec.encode, messages)))

    def write(self, data: bytes) -> None:
        """Write messages that are bytes already."""
        if self.over:
            return
        if not self._paused:
            self._put(data)
            return
        self._queue.append(data)
        before, self.waiting = self.waiting, self.waiting + len(data)
        if self.waiting > self.limits.unread:
            self.overflowed = True
            self.cut_off("does not read")
        elif before <= self.limits.crowded < self.waiting and self.owner is not None:
            self.owner.link_crowded(self)

    def hang_up(self) -> None:
        """Close it once what was written has left."""
        if not self.over:
            self.over = True
            if not self._queue:
                self._close()

    def cut_off(self, reason: str) -> None:
        """End it at once, whatever waits; whoever listens is told ``reason``."""
        self._end(reason)
        self._forget()
        self._transport.abortConnection()

    def malformed(self, problem: RemoteError) -> None:
        """End it, for what came is none of the protocol."""
        self.fault = getattr(problem, "reason", "malformed")
        self.cut_off(f"malformed: {problem}")

    def failed(self) -> None:
        """End it, because of the exception that is being handled: a mistake of ours."""
        self.log.failure("the connection with {source} failed", source=self.source)
        self.cut_off("failed here")

    # What Twisted calls

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        with suppress(AttributeError):  # Not every transport is TCP.
            self._transport.setTcpNoDelay(True)
            self._transport.setTcpKeepAlive(True)
        self._transport.registerProducer(self, True)
        self._plain = isinstance(self.transport, tcp.Connection)
        if self.owner is not None:
            self.owner.link_opened(self)
        if not self.over:
            self.connection_ready()

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes have come."""
        try:
            while not self.over:
                messages = self._decoder.feed(data)
                if not messages:
                    return
                self.heard = True
                self.messages_received(messages)
                # Decoders hold back what is wrong until all that came before it was taken.
                data = b""
        except RemoteError as problem:
            self.malformed(problem)
        except Exception:
            self.failed()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Twisted: the connection has ended."""
        self._end(describe(reason.value))
        self._forget()
        if self.owner is not None:
            self.owner.link_gone(self)

    def pauseProducing(self) -> None:
        """Twisted: the transport has no room for more."""
        self._paused = True

    def resumeProducing(self) -> None:
        """Twisted: it has room."""
        self._paused = False
        crowded = self.waiting > self.limits.crowded
        while self._queue and not self._paused:
            pieces, size = [], 0
            while self._queue and size < WRITE_AT_ONCE:
                pieces.append(self._queue.popleft())
                size += len(pieces[-1])
            self.waiting -= size
            self._transport.write(b"".join(pieces))
        if crowded and self.waiting <= self.limits.crowded and self.owner is not None and not self.over:
            self.owner.link_crowded(self)
        if self.over and not self._queue:
            self._close()

    def stopProducing(self) -> None:
        """Twisted: nothing can be written any more."""
        self._forget()

    # Within

    @property
    def _transport(self) -> Any:
        return self.transport

    def _put(self, data: bytes) -> None:
        """Write now what the kernel has room for.

        Twisted writes once the reactor says that there is room, which nearly always there is, and costs three system
        calls and a turn.
        """
        transport = self._transport
        if self._plain and not transport.dataBuffer and not transport._tempDataBuffer and not transport.disconnecting:
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

    def _end(self, reason: str) -> None:
        if self.over:
            return
        self.over = True
        if self.owner is not None:
            self.owner.link_ended(self, reason)
        self.connection_ended(reason)

    def _forget(self) -> None:
        self._queue.clear()
        self.waiting = 0


class LinkFactory(protocol.Factory):
    """Makes links for connections that are dialled.

    :param build: returns what speaks on one.
    """

    noisy = False

    def __init__(self, build: Callable[[], Link]) -> None:
        self._build = build

    def buildProtocol(self, addr: Any) -> Link:
        """Twisted: a connection is open."""
        return self._build()


def describe(problem: BaseException | None) -> str:
    """Return in a few words why a connection ended or did not open."""
    match problem:
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
            return "; ".join(map(_reason, reasons))[:200]
    return (getattr(problem, "strerror", None) or str(problem) or type(problem).__name__)[:200]


def _reason(reason: object) -> str:
    match reason:
        case Failure():  # twisted.web's
            return describe(reason.value)
        case [*_, last]:  # pyOpenSSL's (library, function, reason)
            return str(last)
    return str(reason)
