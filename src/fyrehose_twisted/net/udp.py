"""A UDP port that reads and writes many datagrams at a time and never cuts one."""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Sequence
from errno import errorcode
from typing import Any

from twisted.internet import udp
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.effects import Address, Datagram
from fyrehose_twisted.interfaces import IBatchReceiver, IDatagramSender
from fyrehose_twisted.net.batch import Batch

LARGEST_DATAGRAM = 65_507
"""Bytes that UDP over IPv4 can carry."""

KERNEL_BUFFER = 4 * 2**20
"""Bytes asked of the kernel for each direction of a socket."""

BATCH_BYTES = 4 * 65_536
BATCH_DATAGRAMS = 512
WAITING_BYTES = 8 * 2**20
"""What may wait for the kernel to take it, before more is dropped and counted."""


@implementer(IDatagramSender)
class DatagramPort(udp.Port):
    """A port whose protocol provides :class:`~fyrehose_twisted.interfaces.IBatchReceiver`.

    While the kernel does not take what is sent, nothing is read: what arrives waits in the receive buffer.

    :ivar send_errors: datagrams that could not be sent, by the name of the error, e.g. ``ENETUNREACH``.
    :ivar receive_buffer: what the kernel gives for received datagrams, in bytes.
    """

    log = Logger()

    def __init__(self, port: int, protocol: Any, interface: str, reactor: IReactorFDSet) -> None:
        super().__init__(port, protocol, interface, maxPacketSize=BATCH_BYTES // 4, reactor=reactor)
        self.send_errors: Counter[str] = Counter()
        self.receive_buffer = 0
        self._receiver = IBatchReceiver(protocol)
        self._buffer = bytearray(BATCH_BYTES)
        self._view = memoryview(self._buffer)
        self._waiting: deque[tuple[bytes, Address]] = deque()
        self._waiting_bytes = 0
        self._stopping: list[Deferred[None]] = []
        self._unbound: socket.socket | None = None

    def bind(self) -> None:
        """Bind the socket, read nothing yet.

        :raises twisted.internet.error.CannotListenError: if the address cannot be bound.
        """
        self._bindSocket()

    def _bindSocket(self) -> None:  # noqa: N802  # Twisted's; it forgets to close what it could not bind.
        try:
            super()._bindSocket()
        except CannotListenError:
            if self._unbound is not None:
                self._unbound.close()
            raise
        finally:
            self._unbound = None

    def start(self) -> None:
        """Start the protocol and read; :meth:`bind` comes first."""
        self._connectToProtocol()

    def createInternetSocket(self) -> socket.socket:
        """Ask for large kernel buffers, because a burst that overflows them is lost."""
        created: socket.socket = super().createInternetSocket()
        self._unbound = created
        created.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        created.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)
        # Linux doubles what it is asked for, to account for its own overhead, and reports the double.
        self.receive_buffer = created.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        return created

    def doRead(self) -> None:
        """Read what is there, up to a batch, and hand it over in one call."""
        offsets: list[int] = []
        sizes: list[int] = []
        peers: list[Address] = []
        position, view = 0, self._view
        receive = self.socket.recvfrom_into
        # There is always room for a byte more than a datagram can have, so none is ever cut.
        while position < BATCH_BYTES - LARGEST_DATAGRAM and len(sizes) < BATCH_DATAGRAMS:
            try:
                size, peer = receive(view[position:])
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                # An ICMP error about something sent earlier; there may be datagrams behind it.
                self.send_errors[errorcode.get(error.errno or 0, "unknown")] += 1
                break
            offsets.append(position)
            sizes.append(size)
            peers.append(peer)
            position += size
        if not sizes:
            return
        try:
            self._receiver.batch_received(Batch(self._buffer, offsets, sizes, peers))
        except Exception:
            self.log.failure("{count} datagrams were not handled", count=len(sizes))

    def send(self, datagrams: Sequence[Datagram], peers: Sequence[Address]) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramSender.send`."""
        if self._waiting:
            self._wait([bytes(datagram) for datagram in datagrams], peers)
            return
        send = self.socket.sendto
        for index, peer in enumerate(peers):
            for number, datagram in enumerate(datagrams):
                try:
                    send(datagram, peer)
                except BlockingIOError:
                    copies = [bytes(late) for late in datagrams]
                    self._wait(copies[number:], (peer,))
                    self._wait(copies, peers[index + 1 :])
                    return
                except OSError as error:
                    self.send_errors[errorcode.get(error.errno or 0, "unknown")] += 1

    def doWrite(self) -> None:
        """Send what waited, then go on reading."""
        while self._waiting:
            datagram, peer = self._waiting[0]
            try:
                self.socket.sendto(datagram, peer)
            except BlockingIOError:
                return
            except OSError as error:
                self.send_errors[errorcode.get(error.errno or 0, "unknown")] += 1
            self._waiting.popleft()
            self._waiting_bytes -= len(datagram)
        self.stopWriting()
        self.startReading()

    def stopListening(self) -> Deferred[None] | None:
        """Stop; the Deferred fires when the port is closed. Harmless if it is stopping already, as Twisted's is not."""
        if not self.connected:
            return None
        stopped: Deferred[None] = Deferred()
        self._stopping.append(stopped)
        if len(self._stopping) == 1:
            self._loseConnection()
        return stopped

    def connectionLost(self, reason: Any = None) -> None:
        """Let go of what waited."""
        self._waiting.clear()
        self._waiting_bytes = 0
        if self.protocol.transport is None:  # Bound and never started: Twisted would stop what does not run.
            self.protocol = DatagramProtocol()
            self.protocol.numPorts = 1
        super().connectionLost(reason)
        stopping, self._stopping = self._stopping, []
        for stopped in stopping:
            stopped.callback(None)

    def _wait(self, datagrams: Sequence[bytes], peers: Sequence[Address]) -> None:
        for index, peer in enumerate(peers):
            if self._waiting_bytes >= WAITING_BYTES:
                self.send_errors["EAGAIN"] += len(datagrams) * (len(peers) - index)
                break
            for datagram in datagrams:
                if self._waiting_bytes + len(datagram) > WAITING_BYTES:
                    self.send_errors["EAGAIN"] += 1
                    continue
                self._waiting.append((datagram, peer))
                self._waiting_bytes += len(datagram)
        self.stopReading()
        self.startWriting()


def listen(reactor: Any, port: int, protocol: Any, interface: str = "127.0.0.1") -> DatagramPort:
    """Bind a :class:`DatagramPort` and start reading.

    :raises twisted.internet.error.CannotListenError: if the address cannot be bound.
    """
    datagram_port = DatagramPort(port, protocol, interface, reactor)
    datagram_port.startListening()
    return datagram_port


def local_host_towards(peer: Address) -> str:
    """Return the address of this host from which packets to ``peer`` leave. Sends nothing.

    :raises OSError: if there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        host: str = probe.getsockname()[0]
        return host
