"""Links between two nodes over NOTICEs between two nicks, on dedicated IRC connections.

Both ends dial. Each connects to a server of the same IRC network under its nick and waits for the other nick.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from secrets import token_bytes
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred
from twisted.internet.endpoints import quoteStringArgument
from twisted.internet.error import ConnectError, ConnectionDone, ConnectionLost
from twisted.internet.interfaces import (
    IAddress,
    IConsumer,
    IDelayedCall,
    IProducer,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
    ITransport,
)
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.hydra.irc.client import IrcClient, irc_endpoint
from fyrehose_twisted.hydra.transports.notice_stream import TOKEN_SIZE, NoticeState, NoticeStream
from fyrehose_twisted.hydra.wire.irc_line import IrcLogin, ParsedLine, casefold, for_display, to_wire
from fyrehose_twisted.net.addresses import format_address
from fyrehose_twisted.process.secret import check_secret

HIGH_WATERMARK = 960
"""Unsent bytes above which a producer is paused; low because a link sends one NOTICE per second."""
LOW_WATERMARK = 240
"""Unsent bytes below which it is resumed."""

QUIT_TIMEOUT = 10.0
"""Seconds for the server to close the connection after QUIT. A busy one first passes on the rest of the stream."""
CLEAN_CLOSE_REASONS = ("closed", "closed here")
"""End reasons of sessions without an error."""


@implementer(IAddress)
class IrcAddress(NamedTuple):
    """Address of one end of a link over IRC."""

    server: str
    nick: str

    @property
    def host(self) -> str:
        """Host part, for limits per source."""
        return f"irc:{self.server}:{self.nick}"


@dataclass(frozen=True, kw_only=True)
class IrcLinkConfig:
    """Configuration of one end of a link over IRC.

    :ivar host: host of the IRC server.
    :ivar port: port of the IRC server.
    :ivar nick: nick of this end; the link fails if it is taken.
    :ivar peer: nick of the other end.
    :ivar tls: connect to the server over TLS.
    :ivar password: server password.
    :ivar rate: NOTICEs per second.
    :ivar burst: NOTICEs sent at once after a pause.
    :ivar secret: shared secret; without one, any holder of the peer's nick is trusted.
    :ivar other_secrets: secrets that the peer may use instead.
    :ivar max_ping: MAX_PING in seconds; the session ends after three times that without a NOTICE.
    :raises ConfigurationError: if a value is invalid, or the secret is too short.
    """

    host: str
    port: int
    nick: str
    peer: str
    tls: bool = False
    password: str | None = field(default=None, repr=False)
    rate: float = 1.0
    burst: int = 4
    secret: bytes | None = field(default=None, repr=False)
    other_secrets: tuple[bytes, ...] = field(default=(), repr=False)
    max_ping: float = 10.0

    def __post_init__(self) -> None:
        if casefold(self.nick) == casefold(self.peer):
            raise ConfigurationError(f"both ends of a link over IRC have the nick {self.nick!r}; give each its own")
        if not self.rate > 0 or self.burst < 1:
            raise ConfigurationError(f"{self.rate} NOTICEs per second with a burst of {self.burst} is out of range")
        IrcLogin(self.peer)
        self.login()
        if self.secret is not None:
            check_secret(self.secret)
        for secret in self.other_secrets:
            check_secret(secret)

    @property
    def server(self) -> str:
        """Address of the server."""
        return format_address((self.host, self.port))

    def login(self) -> IrcLogin:
        """Return the registration data."""
        return IrcLogin(self.nick, password=self.password)


@implementer(IStreamClientEndpoint)
class IrcEndpoint:
    """Client endpoint for a link to the node with another nick.

    The Deferred of :meth:`connect` fires when the peer is on IRC too, and fails if this end cannot connect. It waits
    without a limit; cancel it to give up.

    :param endpoint: endpoint of the server, for TLS with more than default settings.
    """

    def __init__(self, reactor: Any, config: IrcLinkConfig, *, endpoint: IStreamClientEndpoint | None = None) -> None:
        self._reactor = reactor
        self._config = config
        text = f"tls:{quoteStringArgument(config.host)}:{config.port}" if config.tls else config.server
        self._endpoint = irc_endpoint(reactor, text) if endpoint is None else endpoint

    def set_secrets(self, secret: bytes, *others: bytes) -> None:
        """Replace the secrets for later connects."""
        self._config = replace(self._config, secret=secret, other_secrets=others)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Twisted: connect and hand the link to a protocol of the factory."""
        config, login = self._config, self._config.login()
        session = NoticeStream(
            casefold(to_wire(login.nick)).encode("latin-1"),
            casefold(to_wire(config.peer)).encode("latin-1"),
            token_bytes(TOKEN_SIZE),
            self._reactor.seconds(),
            secret=config.secret,
            other_secrets=config.other_secrets,
            rate=config.rate,
            burst=config.burst,
            silence=3 * config.max_ping,
        )
        address = IrcAddress(config.server, config.peer)
        courier = _NoticeTunnel(login, self._reactor, address, session, config.max_ping, protocolFactory)
        courier.dial(self._endpoint)
        return courier.when_connected


class _NoticeTunnel(IrcClient):
    """IRC connection of one link, which waits for the peer and then carries the session."""

    def __init__(
        self,
        login: IrcLogin,
        reactor: Any,
        address: IrcAddress,
        session: NoticeStream,
        max_ping: float,
        factory: IProtocolFactory,
    ) -> None:
        super().__init__(login, reactor, server=address.server, ping_interval=max_ping, ping_timeout=max_ping / 2)
        self.address = address
        self.session = session
        self.when_connected: Deferred[IProtocol] = Deferred(lambda _: self.quit("given up"))
        self.link: IrcTransport | None = None
        self._factory = factory
        self._peer = to_wire(address.nick)
        self._session_timer: IDelayedCall | None = None
        self._pumping = False
        self.hooks["303"] = self._ison_received

    # IRC connection

    def signed_on(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self.setup_done()
        self.identity_changed()
        self.session.tick(self.clock.seconds())
        self.pump()

    def identity_changed(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self.nick != to_wire(self.login.nick):
            self.abort(f"the server changed the nick to {for_display(self.nick)}")

    def line_received(self, line: ParsedLine) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if (
            not self.leaving
            and line.command == "NOTICE"
            and len(line.params) == 2
            and "!" in line.prefix
            and self.casefold(line.nick) == self.casefold(self._peer)
            and self.is_own(line.params[0])
        ):
            self.session.receive(line.params[1].encode("latin-1"), self.clock.seconds())

    def batch_ended(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self.pump()

    def send_ping(self) -> None:
        """Send an ISON for the peer as keepalive; the server answers in any case."""
        self.send("ISON", self._peer)

    def _ison_received(self, line: ParsedLine) -> None:
        there = {self.casefold(nick) for nick in line.params[-1].split()}
        if self.session.state is NoticeState.OPEN and self.casefold(self._peer) not in there:
            self.session.end("the peer is no longer on IRC", self.clock.seconds())

    def ended(self, reason: str) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self._session_timer is not None and self._session_timer.active():
            self._session_timer.cancel()
        self.session.end(reason, self.clock.seconds())
        if self.link is not None:
            done = self.session.end_reason in CLEAN_CLOSE_REASONS
            self.link.connection_lost(
                Failure(ConnectionDone(reason) if done else ConnectionLost(self.session.end_reason))
            )
        if not self.when_connected.called:
            self.when_connected.errback(Failure(ConnectError(string=reason)))

    # Session

    def pump(self) -> None:
        """Carry out the output of the session."""
        if self._pumping:
            return  # Reentered from a protocol that wrote on received data; the outer call continues.
        self._pumping = True
        try:
            while self._pump_once():
                pass
        except Exception:
            self.log.failure("the link over IRC with {peer} failed", peer=self.address.nick)
            self.abort_session("failed here")
        finally:
            self._pumping = False
        self._schedule_tick()

    def abort_session(self, reason: str) -> None:
        """End the session at once, discarding unsent data."""
        self.session.end(reason, self.clock.seconds())
        self._send(self.session.drain().messages)
        self.abort(reason)

    def _send(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self.send("NOTICE", self._peer, ":" + message.decode())

    def _pump_once(self) -> bool:
        messages, data = self.session.drain()
        self._send(messages)
        if self.link is None and self.session.state is NoticeState.OPEN and not self.is_closed:
            self._open()
        if self.link is not None:
            if data and not self.is_closed:
                self.link.protocol.dataReceived(data)
            self.link.update_producer()
        if self.session.state is NoticeState.OVER and not (self.is_closed or self.leaving):
            self.quit(self.session.end_reason, QUIT_TIMEOUT)
        return bool(messages or data) and not self.is_closed

    def _open(self) -> None:
        protocol = self._factory.buildProtocol(self.address)
        if protocol is None:
            self.session.end("refused here", self.clock.seconds())
            return
        self.link = IrcTransport(self, protocol)
        protocol.makeConnection(self.link)
        self.when_connected.callback(protocol)

    def _schedule_tick(self) -> None:
        due = None if self.is_closed else self.session.next_deadline()
        if self._session_timer is not None and self._session_timer.active():
            self._session_timer.cancel()
        self._session_timer = None
        if due is not None and self.registered:
            self._session_timer = self.clock.callLater(max(0.001, due - self.clock.seconds()), self._tick)

    def _tick(self) -> None:
        self._session_timer = None
        self.session.tick(self.clock.seconds())
        self.pump()


@implementer(ITransport, IConsumer)
class IrcTransport:
    """Transport of a protocol on a link over IRC.

    :ivar disconnecting: whether the link closes once its data is sent.
    """

    def __init__(self, tunnel: _NoticeTunnel, protocol: Any) -> None:
        self.protocol = protocol
        self.disconnecting = False
        self._tunnel = tunnel
        self._producer: Any = None
        self._streaming = False
        self._paused = False
        self._closed = False

    def write(self, data: bytes) -> None:
        """Twisted: send data."""
        if self._closed or not data:
            return
        self._tunnel.session.write(data, self._tunnel.clock.seconds())
        self._tunnel.pump()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Twisted: send several chunks."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Twisted: close once everything is sent and the producer is done."""
        self.disconnecting = True
        if self._producer is None and not self._closed:
            self._tunnel.session.close(self._tunnel.clock.seconds())
            self._tunnel.pump()

    def abortConnection(self) -> None:
        """Twisted: abort the link."""
        self.disconnecting = True
        if not self._closed:
            self._tunnel.abort_session("aborted here")

    def getPeer(self) -> IrcAddress:
        """Twisted: return the address of the peer."""
        return self._tunnel.address

    def getHost(self) -> IrcAddress:
        """Twisted: return the local address."""
        return IrcAddress(self._tunnel.address.server, self._tunnel.login.nick)

    def registerProducer(self, producer: IProducer, streaming: bool) -> None:
        """Twisted: pause and resume a producer by the watermarks."""
        if self._producer is not None:
            raise RuntimeError("a producer is registered already")
        if self._closed:
            producer.stopProducing()
            return
        self._producer, self._streaming, self._paused = producer, streaming, False
        if not streaming:
            self._producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """Twisted: remove the producer."""
        self._producer = None
        if self.disconnecting:
            self.loseConnection()

    def update_producer(self) -> None:
        """Pause or resume the producer."""
        waiting, producer = self._tunnel.session.waiting, self._producer
        if producer is None:
            return
        if self._streaming and not self._paused and waiting > HIGH_WATERMARK:
            self._paused = True
            producer.pauseProducing()
        elif waiting <= LOW_WATERMARK and (self._paused or not self._streaming):
            self._paused = False
            producer.resumeProducing()

    def connection_lost(self, reason: Failure) -> None:
        """Report the end of the link to the protocol."""
        self._closed = True
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
        self.protocol.connectionLost(reason)
