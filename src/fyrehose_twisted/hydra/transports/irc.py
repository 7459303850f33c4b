"""A link between two nodes over NOTICEs between two nicks, on a connection to IRC of its own.

Both ends dial: each connects to a server of the same network under its nick and waits until the other one is there.
"""

from __future__ import annotations

from collections.abc import Iterable
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
from fyrehose_twisted.hydra.transports.notice_stream import TOKEN, FragmentSession, Stage
from fyrehose_twisted.hydra.wire.irc_line import Line, Login, fold, readable, wire
from fyrehose_twisted.net.addresses import show_place
from fyrehose_twisted.process.secret import check_secret

CROWDED = 960
"""Bytes that wait, above which whoever writes is told to pause: at one NOTICE a second they take long."""
ROOMY = 240
"""Bytes that wait, below which it may go on."""

CLOSED = ("closed", "closed here")
"""Why a session is over where nothing went wrong."""


@implementer(IAddress)
class IrcAddress(NamedTuple):
    """Who is at one end of a link over IRC."""

    server: str
    nick: str

    @property
    def host(self) -> str:
        """What its connections are counted by."""
        return f"irc:{self.server}:{self.nick}"


@implementer(IStreamClientEndpoint)
class IrcEndpoint:
    """Connects to the node that has another nick.

    The Deferred of :meth:`connect` fires when the other end is there too, and fails if this one cannot be on IRC. It
    waits as long as it takes; cancel it to give up.

    :param nick: of this end; it does without no other.
    :param peer: nick of the other end.
    :param secret: what both ends know; without one, whoever has the nick of the other end is believed.
    :param password: that of the server.
    :param rate: NOTICEs a second.
    :param burst: NOTICEs that may go at once after a pause.
    :param endpoint: what connects to the server, if TLS needs more than to be there.
    :param max_ping: MAX_PING in seconds; three times that without a NOTICE, the connection is over.

    :raises ConfigurationError: if that is no link, or the secret is too short.
    """

    def __init__(
        self,
        reactor: Any,
        host: str,
        port: int,
        nick: str,
        peer: str,
        *,
        tls: bool = False,
        password: str | None = None,
        rate: float = 1.0,
        burst: int = 4,
        secret: bytes | None = None,
        max_ping: float = 10.0,
        endpoint: IStreamClientEndpoint | None = None,
    ) -> None:
        if fold(nick) == fold(peer):
            raise ConfigurationError(f"a link over IRC has {nick!r} at both ends; each needs a nick of its own")
        if not rate > 0 or burst < 1:
            raise ConfigurationError(f"{rate} NOTICEs a second, {burst} at once, cannot be kept to")
        Login(peer)
        self._login = Login(nick, password=password)
        self._reactor = reactor
        self._server = show_place((host, port))
        self._peer = peer
        self._rate = rate
        self._burst = burst
        self._secret = None if secret is None else check_secret(secret)
        self._max_ping = max_ping
        text = f"tls:{quoteStringArgument(host)}:{port}" if tls else self._server
        self._endpoint = irc_endpoint(reactor, text) if endpoint is None else endpoint

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:  # noqa: N803
        """Twisted: connect, and let a protocol of the factory speak on it."""
        session = FragmentSession(
            fold(wire(self._login.nick)).encode("latin-1"),
            fold(wire(self._peer)).encode("latin-1"),
            token_bytes(TOKEN),
            self._reactor.seconds(),
            secret=self._secret,
            rate=self._rate,
            burst=self._burst,
            silence=3 * self._max_ping,
        )
        address = IrcAddress(self._server, self._peer)
        courier = _Courier(self._login, self._reactor, address, session, self._max_ping, protocolFactory)
        courier.dial(self._endpoint)
        return courier.when_connected


class _Courier(IrcClient):
    """The connection to IRC of one link: what waits for the other end, and then carries the session."""

    def __init__(
        self,
        login: Login,
        reactor: Any,
        address: IrcAddress,
        session: FragmentSession,
        max_ping: float,
        factory: IProtocolFactory,
    ) -> None:
        super().__init__(login, reactor, server=address.server, ping_every=max_ping, answer_within=max_ping / 2)
        self.address = address
        self.session = session
        self.when_connected: Deferred[IProtocol] = Deferred(lambda _: self.leave("given up"))
        self.link: IrcTransport | None = None
        self._factory = factory
        self._peer = wire(address.nick)
        self._due: IDelayedCall | None = None
        self._running = False
        self.hooks["303"] = self._present

    # The connection to IRC

    def signed_on(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self.settled()
        self.nick_taken()
        self.session.tick(self.clock.seconds())
        self.run()

    def nick_taken(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self.nick != wire(self.login.nick):
            self.cut_off(f"the server named it {readable(self.nick)}")

    def line_received(self, line: Line) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if (
            line.command == "NOTICE"
            and len(line.params) == 2
            and "!" in line.prefix
            and self.fold(line.nick) == self.fold(self._peer)
            and self.is_own(line.params[0])
        ):
            self.session.receive(line.params[1].encode("latin-1"), self.clock.seconds())

    def data_over(self) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        self.run()

    def pinging(self) -> None:
        """Ask the server for the other end, which it answers whether that is there or not."""
        self.send("ISON", self._peer)

    def _present(self, line: Line) -> None:
        there = {self.fold(nick) for nick in line.params[-1].split()}
        if self.session.stage is Stage.OPEN and self.fold(self._peer) not in there:
            self.session.end("the other end is not on IRC any more", self.clock.seconds())

    def ended(self, reason: str) -> None:
        """See :class:`~fyrehose_twisted.hydra.irc.client.IrcClient`."""
        if self._due is not None and self._due.active():
            self._due.cancel()
        self.session.end(reason, self.clock.seconds())
        if self.link is not None:
            done = self.session.why in CLOSED
            self.link.lost(Failure(ConnectionDone(reason) if done else ConnectionLost(self.session.why)))
        if not self.when_connected.called:
            self.when_connected.errback(Failure(ConnectError(string=reason)))

    # The session

    def run(self) -> None:
        """Do what the session wants."""
        if self._running:
            return  # Somebody wrote when told of data: the outer call goes on.
        self._running = True
        try:
            while self._carry_out():
                pass
        except Exception:
            self.log.failure("the link over IRC with {peer} failed", peer=self.address.nick)
            self.end_now("failed here")
        finally:
            self._running = False
        self._arm()

    def end_now(self, why: str) -> None:
        """End it at once, whatever waits."""
        self.session.end(why, self.clock.seconds())
        self._send(self.session.drain().messages)
        self.cut_off(why)

    def _send(self, messages: Iterable[bytes]) -> None:
        for message in messages:
            self.send("NOTICE", self._peer, ":" + message.decode())

    def _carry_out(self) -> bool:
        messages, data = self.session.drain()
        self._send(messages)
        if self.link is None and self.session.stage is Stage.OPEN and not self.over:
            self._open()
        if self.link is not None:
            if data and not self.over:
                self.link.protocol.dataReceived(data)
            self.link.look_at_room()
        if self.session.stage is Stage.OVER and not self.over:
            self.leave(self.session.why)
        return bool(messages or data) and not self.over

    def _open(self) -> None:
        protocol = self._factory.buildProtocol(self.address)
        if protocol is None:
            self.session.end("refused here", self.clock.seconds())
            return
        self.link = IrcTransport(self, protocol)
        protocol.makeConnection(self.link)
        self.when_connected.callback(protocol)

    def _arm(self) -> None:
        due = None if self.over else self.session.next_deadline()
        if self._due is not None and self._due.active():
            self._due.cancel()
        self._due = None
        if due is not None and self.registered:
            self._due = self.clock.callLater(max(0.001, due - self.clock.seconds()), self._tick)

    def _tick(self) -> None:
        self._due = None
        self.session.tick(self.clock.seconds())
        self.run()


@implementer(ITransport, IConsumer)
class IrcTransport:
    """The transport of whatever speaks on a link over IRC.

    :ivar disconnecting: whether it is closed once all that waits has been sent.
    """

    def __init__(self, courier: _Courier, protocol: Any) -> None:
        self.protocol = protocol
        self.disconnecting = False
        self._courier = courier
        self._producer: Any = None
        self._streaming = False
        self._paused = False
        self._lost = False

    def write(self, data: bytes) -> None:
        """Twisted: send bytes."""
        if self._lost or not data:
            return
        self._courier.session.write(data, self._courier.clock.seconds())
        self._courier.run()

    def writeSequence(self, data: Iterable[bytes]) -> None:
        """Twisted: send bytes."""
        self.write(b"".join(data))

    def loseConnection(self) -> None:
        """Twisted: close it once everything has been sent, and nothing is produced any more."""
        self.disconnecting = True
        if self._producer is None and not self._lost:
            self._courier.session.finish(self._courier.clock.seconds())
            self._courier.run()

    def abortConnection(self) -> None:
        """Twisted: close it now."""
        self.disconnecting = True
        if not self._lost:
            self._courier.end_now("aborted here")

    def getPeer(self) -> IrcAddress:
        """Twisted: who is at the other end."""
        return self._courier.address

    def getHost(self) -> IrcAddress:
        """Twisted: who is at this end."""
        return IrcAddress(self._courier.address.server, self._courier.login.nick)

    def registerProducer(self, producer: IProducer, streaming: bool) -> None:
        """Twisted: somebody produces what is to be written."""
        if self._producer is not None:
            raise RuntimeError("a producer is registered already")
        if self._lost:
            producer.stopProducing()
            return
        self._producer, self._streaming, self._paused = producer, streaming, False
        if not streaming:
            self._producer.resumeProducing()

    def unregisterProducer(self) -> None:
        """Twisted: nobody does any more."""
        self._producer = None
        if self.disconnecting:
            self.loseConnection()

    def look_at_room(self) -> None:
        """Tell the producer to pause, or to go on."""
        waiting, producer = self._courier.session.waiting, self._producer
        if producer is None:
            return
        if self._streaming and not self._paused and waiting > CROWDED:
            self._paused = True
            producer.pauseProducing()
        elif waiting <= ROOMY and (self._paused or not self._streaming):
            self._paused = False
            producer.resumeProducing()

    def lost(self, reason: Failure) -> None:
        """It is over."""
        self._lost = True
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.stopProducing()
        self.protocol.connectionLost(reason)
