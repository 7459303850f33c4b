"""UDP port that reads and writes datagrams in batches without truncation."""

from __future__ import annotations

import socket
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
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
from fyrehose_twisted.host_addresses import LOOPBACK_OF, host_version, is_loopback
from fyrehose_twisted.interfaces import IBatchReceiver, IDatagramSender
from fyrehose_twisted.net.gso import RECEIVE_BYTES, SegmentingSocket, coalesce, socket_name
from fyrehose_twisted.net.mmsg import peer_address

KERNEL_BUFFER = 4 * 2**20
"""Socket buffer size requested from the kernel for each direction, in bytes."""

UNTUNED_BUFFER = 212_992
"""Default maximum socket buffer size of Linux, in bytes."""

ANY_HOST = "::"
"""Interface that stands for all addresses of both families."""

BATCH_BYTES = 16 * RECEIVE_BYTES
"""Buffer size of a batch, in bytes; limits the work per reactor turn."""

PAUSE = 0.0002
"""Seconds between two reads after which a datagram is taken for a single one."""

MAX_QUEUED_BYTES = 8 * 2**20
"""Maximum size of the send queue, in bytes; datagrams beyond it are dropped and counted."""


@implementer(IDatagramSender)
class DatagramPort(udp.Port):
    """UDP port whose protocol provides :class:`~fyrehose_twisted.interfaces.IBatchReceiver`.

    While the kernel accepts no data, the port does not read; datagrams wait in the receive buffer.

    The interface ``::`` stands for all addresses of both families. IPv4 peers have their IPv4 addresses there, too.

    :param offload: use segmentation and receive offload if available; see :mod:`fyrehose_twisted.net.gso`.
    :param activated_socket: bound socket to use instead of binding one; its buffer sizes stay unchanged.
    :ivar send_errors: datagrams that failed to send, by errno name such as ``ENETUNREACH``.
    :ivar receive_buffer: size of the kernel's receive buffer, in bytes.
    :ivar ip_versions: IP versions of the peers that datagrams can be sent to.
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
        self.ip_versions = (4, 6) if interface == ANY_HOST else (host_version(interface),)
        self._other_socket: SegmentingSocket | None = None
        self._receiver = IBatchReceiver(protocol)
        self._buffer = bytearray(BATCH_BYTES)
        self._offload = offload
        self.segmenting_socket: SegmentingSocket  # Created together with the socket.
        self._may_send: Callable[[], bool] | None = None
        self._send_queue: deque[tuple[Burst, Address]] = deque()
        self._queued_bytes = 0
        self._alone = False
        self._read_at = 0.0
        self._stopping: list[Deferred[None]] = []
        self._unbound: socket.socket | None = None
        self._activated_socket = activated_socket

    def bind(self) -> None:
        """Bind the socket without reading.

        :raises twisted.internet.error.CannotListenError: if the address cannot be bound.
        """
        self._bindSocket()

    def _bindSocket(self) -> None:  # noqa: N802  # Twisted leaks a socket that it cannot bind.
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
        """Start the protocol and begin to read. Call :meth:`bind` first."""
        self._connectToProtocol()

    def createInternetSocket(self) -> socket.socket:
        """Create a socket with large buffers, because bursts that overflow them are lost."""
        created: socket.socket = super().createInternetSocket()
        self._unbound = created
        if created.family == socket.AF_INET6:
            # The default of the kernel may be changed by the operator.
            created.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, self.interface != ANY_HOST)
        created.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        created.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)
        return self._prepare(created)

    def _prepare(self, created: socket.socket) -> socket.socket:
        # Linux doubles the requested size to account for its overhead, and reports the doubled size.
        self.receive_buffer = created.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
        self.segmenting_socket = SegmentingSocket(created, offload=self._offload, errors=self.send_errors)
        return created

    def send_to_other_version(self) -> bool:
        """Send to the peers of the other IP version, too. Return whether this host has addresses of that version.

        They get datagrams from a socket that never reads. Call :meth:`bind` first.
        """
        if self._other_socket is not None or len(self.ip_versions) > 1:
            return True
        host = self.getHost().host
        version = 4 if host_version(host) == 6 else 6
        if not (is_loopback(host) or has_ip_version(version)):
            return False
        other = LOOPBACK_OF[version]
        try:
            created = socket.socket(family_of(other), socket.SOCK_DGRAM)
        except OSError:
            return False
        created.setblocking(False)
        created.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 0)
        if is_loopback(host):
            try:
                created.bind((other, 0))
            except OSError:
                created.close()
                return False
        self._other_socket = SegmentingSocket(created, offload=self._offload, errors=self.send_errors)
        self.ip_versions = (4, 6)
        return True

    def send_to_groups(self, interface: str, ttl: int) -> None:
        """Send to multicast groups from the network interface with this IPv4 address. Call :meth:`bind` first.

        :param ttl: number of networks that a datagram may pass; with 1, routers forward none.
        :raises OSError: if no interface has that address.
        """
        # Linux lets a socket of both families have these IPv4 options, too.
        sock = self.segmenting_socket.socket
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, ttl)
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1)  # Clients on this host listen, too.

    def guard(self, may_send: Callable[[], bool]) -> None:
        """Ask ``may_send`` right before each system call that sends. What it refuses is discarded."""
        self._may_send = may_send

    @property
    def _sender(self) -> Callable[[Burst, Address], Burst | None]:
        """Function that sends a burst and returns the unsent part."""
        if self._may_send is None and self._other_socket is None:
            return self.segmenting_socket.send
        return self._send_checked

    def _send_checked(self, burst: Burst, peer: Address) -> Burst | None:
        if self._may_send is not None and not self._may_send():
            return None
        other = self._other_socket
        if other is None or (":" in peer[0]) != other.is_ipv6:
            return self.segmenting_socket.send(burst, peer)
        left = other.send(burst, peer)
        if left is not None:
            # Only the port's own socket has a queue. What is sent here are repairs, which are requested again.
            self.send_errors["EAGAIN"] += -(-len(left.data) // left.size)
        return None

    def doRead(self) -> None:
        """Read up to one batch and pass it to the protocol in one call.

        If datagrams have been arriving one at a time, the first is delivered before the next read. After a pause, there
        is no next read: if there are more, the reactor calls again at once, and that is no pause.
        """
        began = monotonic()
        after_pause, self._read_at = began - self._read_at > PAUSE, began
        alone = self._alone and self._hand_over(self.segmenting_socket.receive_one(self._buffer))
        if alone and (after_pause or self._send_queue or self._stopping):
            return
        batch = self.segmenting_socket.receive_batch(self._buffer)
        self._alone = len(batch) <= (0 if alone else 1)
        self._hand_over(batch)

    def _hand_over(self, batch: Batch | None) -> bool:
        if batch is None or not batch.runs:
            return False
        try:
            self._receiver.batch_received(batch)
        except Exception:
            self.log.failure("unhandled datagrams: {count}", count=len(batch))
        return True

    def send(self, datagrams: Sequence[Datagram | Burst], peers: Sequence[Address]) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramSender.send`."""
        bursts = coalesce(datagrams, self.segmenting_socket.segments)
        if self._send_queue:
            self._enqueue(_copies(bursts), peers)
            return
        send = self._sender
        for index, peer in enumerate(peers):
            for number, burst in enumerate(bursts):
                left = send(burst, peer)
                if left is not None:
                    copies = _copies(bursts)
                    self._enqueue([*_copies([left]), *copies[number + 1 :]], (peer,))
                    self._enqueue(copies, peers[index + 1 :])
                    return

    def doWrite(self) -> None:
        """Send the queue, then resume reading."""
        while self._send_queue:
            burst, peer = self._send_queue.popleft()
            left = self._sender(burst, peer)
            self._queued_bytes -= len(burst.data)
            if left is not None:
                self._send_queue.appendleft((left, peer))
                self._queued_bytes += len(left.data)
                return
        self.stopWriting()
        self.startReading()

    def stopListening(self) -> Deferred[None] | None:
        """Stop; the Deferred fires when the port is closed. Unlike in Twisted, repeated calls are allowed."""
        if not self.connected:
            return None
        stopped: Deferred[None] = Deferred()
        self._stopping.append(stopped)
        if len(self._stopping) == 1:
            self._loseConnection()
        return stopped

    def connectionLost(self, reason: Any = None) -> None:
        """Discard the send queue."""
        self._send_queue.clear()
        self._queued_bytes = 0
        if self._other_socket is not None:
            self._other_socket.socket.close()
            self._other_socket = None
        if self.protocol.transport is None:  # Bound but never started: Twisted would stop a protocol that does not run.
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
    """Return the local source address for packets to ``peer``. Sends nothing.

    :raises OSError: if there is no route.
    """
    with socket.socket(family_of(peer[0]), socket.SOCK_DGRAM) as probe:
        probe.connect(peer if probe.family == socket.AF_INET else socket_name(peer))
        return peer_address(probe.getsockname())[0]


def has_ip_version(version: int) -> bool:
    """Return whether this host has addresses of an IP version that other hosts can reach."""
    try:
        if version == 4:
            # A heading, and the routes of all devices but loopback.
            return len(Path("/proc/net/route").read_text(encoding="ascii").splitlines()) > 1
        # The fourth column is the scope: 00 for global and unique local addresses.
        return any(line.split()[3] == "00" for line in Path("/proc/net/if_inet6").read_text("ascii").splitlines())
    except FileNotFoundError:
        pass  # Not Linux, or Linux without this IP version.
    try:
        source_address_for(("192.0.2.1" if version == 4 else "2001:db8::1", 9))
    except OSError:
        return False
    return True


def any_interface() -> str:
    """Return the interface that stands for all addresses of this host: of both families, or IPv4 only."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
            probe.bind((ANY_HOST, 0))
    except OSError:
        return "0.0.0.0"
    return ANY_HOST


def family_of(host: str) -> socket.AddressFamily:
    """Return the address family of an IP address."""
    return socket.AF_INET6 if host_version(host) == 6 else socket.AF_INET
