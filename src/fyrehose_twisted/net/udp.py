"""A UDP port that reads and writes many datagrams at a time and never cuts one."""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any

from twisted.internet import udp
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.protocol import DatagramProtocol
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Burst, Datagram
from fyrehose_twisted.interfaces import IBatchReceiver, IDatagramSender
from fyrehose_twisted.net.gso import RECEIVE_BYTES, SegmentingSocket, coalesce

KERNEL_BUFFER = 4 * 2**20
"""Bytes asked of the kernel for each direction of a socket."""

UNTUNED_BUFFER = 212_992
"""Bytes that Linux gives unless it is told to give more."""

BATCH_BYTES = 16 * RECEIVE_BYTES
"""What is received in one go, and handed over, before others have their turn."""

MAX_QUEUED_BYTES = 8 * 2**20
"""What may wait for the kernel to take it, before more is dropped and counted."""


@implementer(IDatagramSender)
class DatagramPort(udp.Port):
    """A port whose protocol provides :class:`~fyrehose_twisted.interfaces.IBatchReceiver`.

    While the kernel does not take what is sent, nothing is read: what arrives waits in the receive buffer.

    :param offload: send and receive bursts, where the kernel can; see :mod:`fyrehose_twisted.net.gso`.
    :param inherited: a bound socket to use instead of binding one; its buffers are left as they are.
    :ivar send_errors: datagrams that could not be sent, by the name of the error, e.g. ``ENETUNREACH``.
    :ivar receive_buffer: what the kernel gives for received datagrams, in bytes.
    """

    log = Logger()

    def __init__(
        self,
        port: int,
        protocol: Any,
        interface: str,
        reactor: IReactorFDSet,
        *,
        offload: bool = True,
        activated_socket: socket.socket | None = None,
    ) -> None:
        super().__init__(port, protocol, interface, maxPacketSize=RECEIVE_BYTES, reactor=reactor)
        self.send_errors: Counter[str] = Counter()
        self.receive_buffer = 0
        self._receiver = IBatchReceiver(protocol)
        self._buffer = bytearray(BATCH_BYTES)
        self._offload = offload
        self.segmenting_socket: SegmentingSocket  # Made with the socket, when the port is bound.
        self._send_queue: deque[tuple[Burst, Address]] = deque()
        self._queued_bytes = 0
        self._alone = False
        self._stopping: list[Deferred[None]] = []
        self._unbound: socket.socket | None = None
        self._activated_socket = activated_socket

    def bind(self) -> None:
        """Bind the socket, read nothing yet.

        :raises twisted.internet.error.CannotListenError: if the address cannot be bound.
        """
        self._bindSocket()

    def _bindSocket(self) -> None:  # noqa: N802  # Twisted's; it forgets to close what it could not bind.
        if self._activated_socket is not None:
            self._preexistingSocket: Any = self._prepare(self._activated_socket)
            self._activated_socket = None
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
        return self._prepare(created)

    def _prepare(self, created: socket.socket) -> socket.socket:
        # Linux doubles what it is asked for, to account for its own overhead, and reports the double.
        self.receive_buffer = created.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        self.segmenting_socket = SegmentingSocket(created, offload=self._offload, errors=self.send_errors)
        return created

    def doRead(self) -> None:
        """Read what is there, up to a batch, and hand it over in one call.

        On a port on which datagrams come alone, the first is handed over before it is asked whether there are more.
        """
        alone = self._alone and self._hand_over(self.segmenting_socket.receive_batch(self._buffer, calls=1))
        if alone and (self._send_queue or self._stopping):
            return
        batch = self.segmenting_socket.receive_batch(self._buffer)
        self._alone = len(batch) <= (0 if alone else 1)
        self._hand_over(batch)

    def _hand_over(self, batch: Batch) -> bool:
        if not batch.runs:
            return False
        try:
            self._receiver.batch_received(batch)
        except Exception:
            self.log.failure("datagrams that were not handled: {count}", count=len(batch))
        return True

    def send(self, datagrams: Sequence[Datagram | Burst], peers: Sequence[Address]) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramSender.send`."""
        bursts = coalesce(datagrams, self.segmenting_socket.segments)
        if self._send_queue:
            self._enqueue(_copies(bursts), peers)
            return
        send = self.segmenting_socket.send
        for index, peer in enumerate(peers):
            for number, burst in enumerate(bursts):
                left = send(burst, peer)
                if left is not None:
                    copies = _copies(bursts)
                    self._enqueue([*_copies([left]), *copies[number + 1 :]], (peer,))
                    self._enqueue(copies, peers[index + 1 :])
                    return

    def doWrite(self) -> None:
        """Send what waited, then go on reading."""
        while self._send_queue:
            burst, peer = self._send_queue.popleft()
            left = self.segmenting_socket.send(burst, peer)
            self._queued_bytes -= len(burst.data)
            if left is not None:
                self._send_queue.appendleft((left, peer))
                self._queued_bytes += len(left.data)
                return
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
        self._send_queue.clear()
        self._queued_bytes = 0
        if self.protocol.transport is None:  # Bound and never started: Twisted would stop what does not run.
            self.protocol = DatagramProtocol()
            self.protocol.numPorts = 1
        super().connectionLost(reason)
        stopping, self._stopping = self._stopping, []
        for stopped in stopping:
            stopped.callback(None)

    def _enqueue(self, bursts: Sequence[Burst], peers: Sequence[Address]) -> None:
        for peer in peers:
            for burst in bursts:
                if self._queued_bytes + len(burst.data) > MAX_QUEUED_BYTES:
                    self.send_errors["EAGAIN"] += max(1, -(-len(burst.data) // burst.size))
                    continue
                self._send_queue.append((burst, peer))
                self._queued_bytes += len(burst.data)
        self.stopReading()
        self.startWriting()


def _copies(bursts: Sequence[Burst]) -> list[Burst]:
    return [Burst(bytes(burst.data), burst.size) for burst in bursts]


def listen(reactor: Any, port: int, protocol: Any, interface: str = "127.0.0.1") -> DatagramPort:
    """Bind a :class:`DatagramPort` and start reading.

    :raises twisted.internet.error.CannotListenError: if the address cannot be bound.
    """
    datagram_port = DatagramPort(port, protocol, interface, reactor)
    datagram_port.startListening()
    return datagram_port


def source_address_for(peer: Address) -> str:
    """Return the address of this host from which packets to ``peer`` leave. Sends nothing.

    :raises OSError: if there is no route.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(peer)
        host: str = probe.getsockname()[0]
        return host
