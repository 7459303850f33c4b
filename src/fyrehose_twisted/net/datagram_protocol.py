"""Base class of the Twisted protocols of datagram nodes."""

from __future__ import annotations

from typing import Any

from twisted.internet import error
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.driver import NodeDriver
from fyrehose_twisted.effects import Send
from fyrehose_twisted.host_addresses import address_from_socket
from fyrehose_twisted.interfaces import IBatchReceiver, IDatagramNode, IDatagramSender
from fyrehose_twisted.net.gso import MAX_DATAGRAM


@implementer(IBatchReceiver)
class DatagramNodeProtocol(DatagramProtocol):
    """Protocol that runs a datagram node on a UDP port.

    Use it on a :class:`~fyrehose_twisted.net.udp.DatagramPort`. With ``reactor.listenUDP``, pass
    ``maxPacketSize=65536``: Twisted's default truncates longer datagrams, and a datagram that fills the buffer is
    dropped as truncated.

    :param reactor: clock of the node; the installed reactor by default.
    :ivar stopped: Deferred that fires with ``None`` when the protocol has stopped, or fails with the error that
        stopped it.
    """

    log = Logger()
    noisy = False

    def __init__(self, reactor: Any = None) -> None:
        if reactor is None:
            from twisted.internet import reactor
        self.reactor = reactor
        self.driver: NodeDriver | None = None
        self.stopped: Deferred[Any] = Deferred()
        self._error: Exception | None = None
        self._asked: Any = None
        self._sends_bursts = False
        self._closing: list[Deferred[None]] | None = None

    def make_node(self, now: float) -> IDatagramNode:
        """Return the node to run. Called once the port is bound."""
        raise NotImplementedError(f"{type(self).__name__} does not override make_node()")

    def event_received(self, event: Any) -> None:
        """Handle an event of the node."""

    def persist(self, mark: Any) -> None:
        """Make state of the node durable."""

    def startProtocol(self) -> None:
        """Twisted: start the node; the port is bound."""
        self.driver = NodeDriver(
            self.make_node(float(self.reactor.seconds())),
            self.reactor,
            perform=self._send,
            on_event=self.event_received,
            persist=self.persist,
            on_failure=self.fail,
        )
        self.driver.flush()

    def stopProtocol(self) -> None:
        """Twisted: stop the node; the port is closed."""
        if self.driver is not None:
            self.driver.stop()
        if self._error is None:
            self.stopped.callback(None)
        else:
            self.stopped.errback(self._error)
            # The error was logged already; do not log it again as unhandled.
            self.stopped.addErrback(lambda failure: None)

    def fail(self, error: Exception) -> None:
        """Stop because of ``error``."""
        self.log.critical("stopping: {error}", error=error)
        self._error = error
        if self.driver is not None:
            self.driver.stop()
        self.close()

    def close(self) -> Deferred[None]:
        """Close the port; the Deferred fires when the protocol has stopped, at once if it does not run."""
        port: Any = self.transport
        if port is None:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        if self._closing is not None:  # Twisted's own port must not be stopped twice.
            self._closing.append(closed)
            return closed
        self._closing = [closed]
        maybeDeferred(port.stopListening).addCallback(self._closed)
        return closed

    def _closed(self, result: object) -> None:
        closing, self._closing = self._closing, None
        for closed in closing or ():
            closed.callback(None)

    def datagramReceived(self, datagram: bytes, addr: Any) -> None:
        """Twisted: process one datagram."""
        cut = len(datagram) >= min(getattr(self.transport, "maxPacketSize", 65_536), MAX_DATAGRAM + 1)
        self.batch_received(Batch.pack([(datagram, address_from_socket(addr))], truncated=(0,) if cut else ()))

    def batch_received(self, batch: Batch) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IBatchReceiver.batch_received`."""
        if self.driver is not None:
            self.driver.receive_batch(batch)

    def _send(self, effect: Send) -> None:
        transport: Any = self.transport
        if transport is not self._asked:
            self._asked, self._sends_bursts = transport, IDatagramSender.providedBy(transport)
        if self._sends_bursts:
            transport.send(effect.datagrams, effect.peers)
            return
        for peer in effect.peers:
            for datagram in effect.iter_datagrams():
                try:
                    transport.write(bytes(datagram), peer)
                except (OSError, error.MessageLengthError, error.InvalidAddressError) as problem:
                    self.log.debug("not sent to {peer}: {problem}", peer=peer, problem=problem)
