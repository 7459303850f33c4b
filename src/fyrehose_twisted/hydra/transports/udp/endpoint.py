"""Twisted endpoints and transports for streams over one UDP socket."""

from __future__ import annotations

from collections import Counter
from typing import Any

from twisted.internet import error
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import (
    IConsumer,
    IDelayedCall,
    IListeningPort,
    IProtocol,
    IProtocolFactory,
    IStreamClientEndpoint,
    IStreamServerEndpoint,
    ITransport,
)
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address
from fyrehose_twisted.host_addresses import format_address, host_version
from fyrehose_twisted.hydra.transports.transport import ProducerTransport
from fyrehose_twisted.hydra.transports.udp.demux import SessionDemux
from fyrehose_twisted.hydra.transports.udp.session import CloseReason, UdpSession
from fyrehose_twisted.interfaces import IBatchReceiver
from fyrehose_twisted.net.addresses import resolve_address
from fyrehose_twisted.net.udp import DatagramPort, any_interface


@implementer(ITransport, IConsumer)
class UdpTransport(ProducerTransport):
    """Transport of one stream."""

    def __init__(self, port: UdpPort, session: UdpSession) -> None:
        super().__init__()
        self.connected = True
        self.protocol: Any = None
        self.factory: IProtocolFactory | None = None
        """Factory that dialled, which is notified of the end."""
        self._port = port
        self._session = session

    def write(self, data: bytes) -> None:
        """Twisted: send bytes."""
        if not self.connected or self.disconnecting or not data:
            return
        self._session.write(data, self._port.now())
        self._port.schedule(self._session)
        self._update_producer()

    def abortConnection(self) -> None:
        """Twisted: abort the stream."""
        if self.connected:
            self.disconnecting = True
            self._session.end(CloseReason.ABORTED, self._port.now())
            self._port.schedule(self._session)

    def getPeer(self) -> IPv4Address | IPv6Address:
        """Twisted: return the address of the peer."""
        return _to_twisted_address(self._session.address)

    def getHost(self) -> IPv4Address | IPv6Address:
        """Twisted: return the local address."""
        return self._port.getHost()

    def session_updated(self, data: bytes, ended: CloseReason | None) -> None:
        """Handle output of the session: received bytes, freed buffer space, or its end."""
        if data and self.connected:
            try:
                self.protocol.dataReceived(data)
            except Exception:
                self._port.log.failure("the protocol of a session failed")
                self.abortConnection()
        if ended is None:
            self._update_producer()
        elif self.connected:
            self._stop_producer()
            self.protocol.connectionLost(Failure(to_twisted_error(ended)))
            if self.factory is not None:
                self.factory.doStop()

    def _close(self) -> None:
        self._session.close(self._port.now())
        self._port.schedule(self._session)

    def _unsent(self) -> int:
        return self._session.waiting


@implementer(IBatchReceiver)
class UdpPort(DatagramProtocol):
    """UDP socket of all links of a node, dialled and accepted.

    It is bound on first use, or by :meth:`start`.

    :param reactor: reactor, whose clock drives the sessions.
    :param interface: address to bind; ``::`` for all of both IP versions. By default all of this host.
    :param port: port to bind, 0 for any.
    :param secret: shared secret.
    :param max_ping: seconds of silence after which a link ends.
    :param accepted: largest number of accepted links.
    :param per_source: largest number of accepted links per host.
    """

    noisy = False
    log = Logger()

    def __init__(
        self,
        reactor: Any,
        interface: str | None = None,
        port: int = 0,
        secret: bytes | None = None,
        max_ping: float = 10.0,
        *,
        accepted: int = 256,
        per_source: int = 64,
    ) -> None:
        self.reactor = reactor
        self.demux = SessionDemux(secret, max_ping=max_ping, accepted=accepted, per_source=per_source)
        self._bind_address = port, any_interface() if interface is None else interface
        self._port: DatagramPort | None = None
        self._factory: IProtocolFactory | None = None
        self._dials: dict[UdpSession, tuple[IProtocolFactory, Deferred[IProtocol]]] = {}
        self._transports: dict[UdpSession, UdpTransport] = {}
        self._timer: IDelayedCall | None = None
        self._flush_call: IDelayedCall | None = None
        self._flushing = False

    @property
    def counters(self) -> Counter[str]:
        """Counters since the start, including errors of the socket."""
        counted = Counter(self.demux.counters)
        if self._port is not None:
            counted.update({f"send_{name}": number for name, number in self._port.send_errors.items()})
        return counted

    def __len__(self) -> int:
        return len(self.demux.sessions)

    def now(self) -> float:
        """Return the time on the clock of the sessions."""
        return float(self.reactor.seconds())

    def start(self) -> None:
        """Bind the socket, unless bound.

        :raises twisted.internet.error.CannotListenError: if the address cannot be bound.
        """
        if self._port is None:
            number, interface = self._bind_address
            port = DatagramPort(number, self, interface, self.reactor)
            port.startListening()
            self._port = port

    def stop(self) -> Deferred[None]:
        """Abort all sessions and close the socket."""
        for session in tuple(self.demux.sessions.values()):
            session.end(CloseReason.ABORTED, self.now())
            self.demux.schedule(session)
        self.stop_accepting()
        self._flush()
        for timer in self._timer, self._flush_call:
            if timer is not None and timer.active():
                timer.cancel()
        self._timer = self._flush_call = None
        port, self._port = self._port, None
        return (port.stopListening() if port is not None else None) or succeed(None)

    def getHost(self) -> IPv4Address | IPv6Address:
        """Return the bound address."""
        assert self._port is not None, "not bound"
        host: IPv4Address | IPv6Address = self._port.getHost()
        return host

    def client_endpoint(self, host: str, port: int) -> UdpClientEndpoint:
        """Return an endpoint for an address, or for a name, which is resolved at each connect."""
        return UdpClientEndpoint(self, (host, port))

    def server_endpoint(self) -> UdpServerEndpoint:
        """Return the endpoint for listening."""
        return UdpServerEndpoint(self)

    # For endpoints and transports

    def dial(self, address: Address, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a stream. It fails at once if the socket cannot send to this IP version."""
        self.start()
        assert self._port is not None, "it has just been started"
        if host_version(address[0]) not in self._port.ip_versions:
            bound = self._port.getHost()
            reason = f"the UDP port at {format_address((bound.host, bound.port))} cannot send to {address[0]}"
            return fail(error.ConnectError(string=reason))
        session = self.demux.dial(address, self.now())

        def give_up(dial: Deferred[IProtocol]) -> None:
            del self._dials[session]
            factory.doStop()
            session.end(CloseReason.ABORTED, self.now())
            self.schedule(session)
            dial.errback(error.ConnectingCancelledError(_to_twisted_address(address)))

        dial: Deferred[IProtocol] = Deferred(give_up)
        factory.doStart()
        self._dials[session] = factory, dial
        self._flush()
        return dial

    def accept(self, factory: IProtocolFactory) -> None:
        """Accept streams of peers."""
        if self._factory is not None:
            raise RuntimeError("the port is already listening")
        self.start()
        self._factory = factory
        self.demux.accepting = True
        factory.doStart()

    def stop_accepting(self) -> None:
        """Stop accepting streams."""
        factory, self._factory = self._factory, None
        self.demux.accepting = False
        if factory is not None:
            factory.doStop()

    def schedule(self, session: UdpSession) -> None:
        """Schedule a session for the next reactor turn."""
        self.demux.schedule(session)
        if self._flush_call is None and not self._flushing:
            self._flush_call = self.reactor.callLater(0, self._flush_now)

    # Twisted callbacks

    def batch_received(self, batch: Batch) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IBatchReceiver`."""
        now, receive = self.now(), self.demux.receive
        for datagram, peer, truncated in batch:
            if not truncated:
                receive(bytes(datagram), peer, now)
        self._flush()

    # Helpers

    def _flush_now(self) -> None:
        self._flush_call = None
        self._flush()

    def _tick(self) -> None:
        self._timer = None
        self.demux.tick(self.now())
        self._flush()

    def _flush(self) -> None:
        if self._flushing:
            return
        self._flushing = True
        try:
            replies, turns = self.demux.drain()
            if self._port is not None:
                for datagram, address in replies:
                    self._port.send((datagram,), (address,))
                for session, drained in turns:
                    if drained.datagrams:
                        self._port.send(drained.datagrams, (session.address,))
            for session, drained in turns:
                try:
                    self._update_session(session, drained.data, drained.close_reason)
                except Exception:
                    self.log.failure("the report of a session failed")
        finally:
            self._flushing = False
        if self.demux.scheduled and self._flush_call is None:
            self._flush_call = self.reactor.callLater(0, self._flush_now)
        self._schedule_tick()

    def _update_session(self, session: UdpSession, data: bytes, ended: CloseReason | None) -> None:
        transport = self._transports.get(session)
        if transport is None and session.opened and (session in self._dials or ended is None):
            transport = self._open(session)
        if transport is not None:
            transport.session_updated(data, ended)
        if ended is not None:
            self._transports.pop(session, None)
            dialled = self._dials.pop(session, None)
            if dialled is not None:
                dialled[0].doStop()
                dialled[1].errback(to_twisted_error(ended))

    def _open(self, session: UdpSession) -> UdpTransport | None:
        dialled = self._dials.pop(session, None)
        factory = self._factory if dialled is None else dialled[0]
        transport = UdpTransport(self, session)
        try:
            protocol = None if factory is None else factory.buildProtocol(transport.getPeer())
        except Exception:
            self.log.failure("the protocol of a session could not be created")
            protocol = None
        if protocol is None:
            session.end(CloseReason.ABORTED, self.now())
            self.demux.schedule(session)
            if dialled is not None:
                dialled[0].doStop()
                dialled[1].errback(error.ConnectionAborted())
            return None
        transport.protocol = protocol
        self._transports[session] = transport
        protocol.makeConnection(transport)
        if dialled is not None:
            transport.factory = dialled[0]
            dialled[1].callback(protocol)
        return transport

    def _schedule_tick(self) -> None:
        deadline = self.demux.next_deadline()
        if deadline is None or self._port is None:
            return
        # A timer that fires too early costs less than rescheduling it each time.
        if self._timer is not None and self._timer.active():
            if self._timer.getTime() <= deadline:
                return
            self._timer.cancel()
        self._timer = self.reactor.callLater(max(0.0, deadline - self.now()), self._tick)


@implementer(IStreamClientEndpoint)
class UdpClientEndpoint:
    """Client endpoint for one address."""

    def __init__(self, port: UdpPort, address: Address) -> None:
        self._port = port
        self._address = address

    def connect(self, factory: IProtocolFactory) -> Deferred[IProtocol]:
        """Twisted: open a stream."""
        return Deferred.fromCoroutine(self._connect(factory))

    async def _connect(self, factory: IProtocolFactory) -> IProtocol:
        address = await resolve_address(self._port.reactor, self._address)
        return await self._port.dial(address, factory)


@implementer(IStreamServerEndpoint)
class UdpServerEndpoint:
    """Server endpoint that accepts streams."""

    def __init__(self, port: UdpPort) -> None:
        self._port = port

    def listen(self, factory: IProtocolFactory) -> Deferred[IListeningPort]:
        """Twisted: accept streams."""
        try:
            self._port.accept(factory)
        except Exception:
            return fail(Failure())
        return succeed(UdpListener(self._port))


@implementer(IListeningPort)
class UdpListener:
    """Listening port. Closing it leaves open streams and the socket open."""

    def __init__(self, port: UdpPort) -> None:
        self._port = port

    def startListening(self) -> None:
        """Twisted: do nothing, as the socket is bound already."""

    def stopListening(self) -> Deferred[None]:
        """Twisted: stop accepting streams."""
        self._port.stop_accepting()
        return succeed(None)

    def getHost(self) -> IPv4Address | IPv6Address:
        """Twisted: return the bound address."""
        return self._port.getHost()


def _to_twisted_address(address: Address) -> IPv4Address | IPv6Address:
    return (IPv6Address if host_version(address[0]) == 6 else IPv4Address)("UDP", *address)


def to_twisted_error(ended: CloseReason) -> Exception:
    """Return the Twisted exception for a close reason."""
    match ended:
        case CloseReason.CLOSED:
            return error.ConnectionDone()
        case CloseReason.ABORTED:
            return error.ConnectionAborted()
        case CloseReason.SILENT:
            return error.TimeoutError()
        case CloseReason.REFUSED:
            return error.ConnectionRefusedError()
    return error.ConnectionLost(ended.value)
