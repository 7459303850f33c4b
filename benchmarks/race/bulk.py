"""Loads of negligible cost: published data is prepared once, and received data is counted by the byte.

They show the capacity of a broker, not that of a client library. All work in the same way: a publisher sends in large
pieces as long as no subscriber is further behind than a window, so that nothing accumulates and nothing is dropped.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from fyrehose_twisted.fyrehose.wire.codec import encode, encode_push
from fyrehose_twisted.fyrehose.wire.packets import Flags, Keepalive
from race.servers import CLIENT_CORE, LOOPBACK, NATS, REDIS, ZEROMQ, cpu_seconds, pin

UDP_SEGMENT, UDP_GRO = 103, 104
MAX_SEGMENTS = 64
LARGEST_BURST = 65_507
KERNEL_BUFFER = 4 * 2**20
SUBJECT = b"race"
CHUNK_BYTES = 65_536
STALL = 0.1
"""Seconds without an arrival after which data in flight no longer blocks the publisher."""
QUIET = 0.05
"""Seconds without an arrival after which nothing is in flight."""
HOLD = 1.0
"""Seconds without an arrival after which the rest counts as lost."""


class Cell(NamedTuple):
    """Parameters of one measurement."""

    fan_out: int
    size: int
    seconds: float
    warm_up: float
    window: int
    """Bytes of payload in flight per subscriber."""


class Target(NamedTuple):
    """Address of the broker.

    :ivar ports: for publishers and for subscribers.
    :ivar pid: process whose CPU time counts.
    """

    system: str
    ports: tuple[int, int]
    pid: int
    host: str = LOOPBACK


class Wire:
    """TCP protocol of a broker, as far as a load needs it."""

    def __init__(self, size: int) -> None:
        self.payload = bytes(size)

    def publication(self) -> bytes:
        """Return the encoded publication of a message."""
        raise NotImplementedError

    def delivery_size(self) -> int:
        """Return the size in bytes of a delivered message."""
        raise NotImplementedError

    def handshake(self, connection: socket.socket, *, subscribe: bool) -> None:
        """Perform the handshake of a connection."""
        raise NotImplementedError


class NatsWire(Wire):
    """NATS with a core subject."""

    def publication(self) -> bytes:
        return b"PUB %s %d\r\n%s\r\n" % (SUBJECT, len(self.payload), self.payload)

    def delivery_size(self) -> int:
        return len(b"MSG %s 1 %d\r\n%s\r\n" % (SUBJECT, len(self.payload), self.payload))

    def handshake(self, connection: socket.socket, *, subscribe: bool) -> None:
        subscription = b"SUB %s 1\r\n" % SUBJECT if subscribe else b""
        connection.sendall(b'CONNECT {"verbose":false,"pedantic":false,"echo":true}\r\n%sPING\r\n' % subscription)
        read_until(connection, b"PONG\r\n")


class RedisWire(Wire):
    """Redis with a channel. Its publisher requests no replies, which saves Redis unread data."""

    def publication(self) -> bytes:
        return b"*3\r\n$7\r\nPUBLISH\r\n" + self._bulk(SUBJECT) + self._bulk(self.payload)

    def delivery_size(self) -> int:
        return len(b"*3\r\n$7\r\nmessage\r\n" + self._bulk(SUBJECT) + self._bulk(self.payload))

    def handshake(self, connection: socket.socket, *, subscribe: bool) -> None:
        if subscribe:
            connection.sendall(b"SUBSCRIBE %s\r\n" % SUBJECT)
            read_until(connection, b":1\r\n")
        else:
            connection.sendall(b"CLIENT REPLY OFF\r\n")

    @staticmethod
    def _bulk(text: bytes) -> bytes:
        return b"$%d\r\n%s\r\n" % (len(text), text)


class ZeroMqWire(Wire):
    """ZMTP 3.0 as PUB and SUB speak it, with a subscription to everything."""

    GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)

    def publication(self) -> bytes:
        size = len(self.payload)
        return (struct.pack(">BB", 0, size) if size < 256 else struct.pack(">BQ", 2, size)) + self.payload

    def delivery_size(self) -> int:
        return len(self.publication())

    def handshake(self, connection: socket.socket, *, subscribe: bool) -> None:
        kind = b"SUB" if subscribe else b"PUB"
        ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind
        connection.sendall(self.GREETING + struct.pack(">BB", 4, len(ready)) + ready)
        read_exactly(connection, len(self.GREETING))
        read_exactly(connection, read_exactly(connection, 2)[1])
        if subscribe:
            connection.sendall(b"\x00\x01\x01")


WIRES: dict[str, type[Wire]] = {NATS: NatsWire, REDIS: RedisWire, ZEROMQ: ZeroMqWire}


def read_until(connection: socket.socket, ending: bytes) -> None:
    """Read until ``ending`` was received."""
    got = b""
    while ending not in got:
        more = connection.recv(4_096)
        if not more:
            raise ConnectionError(f"the broker hung up after {got!r}")
        got += more


def read_exactly(connection: socket.socket, size: int) -> bytes:
    """Read ``size`` bytes."""
    got = b""
    while len(got) < size:
        more = connection.recv(size - len(got))
        if not more:
            raise ConnectionError(f"the broker hung up after {got!r}")
        got += more
    return got


class Load:
    """A publisher and subscribers. Counts are messages since :meth:`probe`."""

    def __init__(self, target: Target, cell: Cell) -> None:
        self.target = target
        self.cell = cell
        self.sent = 0
        self.epoll = select.epoll()
        self.publisher = socket.socket()
        self.subscribers: dict[int, socket.socket] = {}
        self.received: dict[int, int] = {}

    def publish(self) -> None:
        """Send a piece, or the part that the kernel accepts."""
        raise NotImplementedError

    def read(self, descriptor: int) -> None:
        """Read received data of a subscriber."""
        raise NotImplementedError

    def delivered(self) -> dict[int, int]:
        """Return the messages received by each subscriber."""
        return self.received

    def connect(self) -> None:
        """Connect all clients and wait until each receives messages."""
        raise NotImplementedError

    def watch(self, subscriber: socket.socket) -> None:
        """Start reading from a subscriber."""
        subscriber.setblocking(False)
        self.subscribers[subscriber.fileno()] = subscriber
        self.received[subscriber.fileno()] = 0
        self.epoll.register(subscriber, select.EPOLLIN)

    def drain(self, timeout: float) -> None:
        """Receive for at most ``timeout`` seconds."""
        for descriptor, _ in self.epoll.poll(timeout):
            self.read(descriptor)

    def probe(self, publish_one: Callable[[], object]) -> None:
        """Publish until every subscriber receives messages, wait until nothing is in flight, and reset the counts.

        Not every broker confirms a subscription; only a received message proves it.
        """
        deadline = time.monotonic() + 10
        while min(self.delivered().values()) == 0:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.target.system} delivers nothing")
            publish_one()
            self._wait_for(lambda: min(self.delivered().values()) > 0, QUIET)
        self._wait_for(lambda: False, QUIET)
        self.received = dict.fromkeys(self.received, 0)

    def finish(self) -> int:
        """Wait for data in flight; return the number of missing deliveries."""
        self._wait_for(lambda: min(self.delivered().values()) >= self.sent, HOLD)
        return sum(self.sent - count for count in self.delivered().values())

    def _wait_for(self, complete: Callable[[], bool], patience: float) -> None:
        seen, moved_at = -1, 0.0
        while not complete():
            count = sum(self.delivered().values())
            if count != seen:
                seen, moved_at = count, time.monotonic()
            elif time.monotonic() > moved_at + patience:
                break
            self.drain(patience / 4)

    def run(self) -> dict[str, float]:
        """Measure."""
        cell = self.cell
        window = max(cell.window // cell.size, 1)
        begins = time.monotonic() + cell.warm_up
        ends = begins + cell.seconds
        started: tuple[float, float, int] | None = None
        slowest, moved_at, written_off = 0, 0.0, 0
        while (now := time.monotonic()) < ends:
            if started is None and now >= begins:
                started = self.reading()
            before, slowest = slowest, min(self.delivered().values())
            if slowest != before:
                moved_at = now
            elif now > moved_at + STALL:
                written_off, moved_at = self.sent - slowest, now
            if self.sent - slowest - written_off < window:
                self.publish()
                self.drain(0)
            else:
                self.drain(0.01)
        assert started is not None
        time_used, cpu, deliveries = (b - a for a, b in zip(started, self.reading(), strict=True))
        missing = self.finish()
        return {
            "messages_per_second": deliveries / cell.fan_out / time_used,
            "deliveries_per_cpu_second": deliveries / cpu,
            "broker_load": cpu / time_used,
            "lost": missing,
        }

    def reading(self) -> tuple[float, float, int]:
        """Return the time, the CPU seconds of the broker, and the number of delivered messages."""
        return time.monotonic(), cpu_seconds(self.target.pid), sum(self.delivered().values())

    def close(self) -> None:
        """Close the sockets."""
        self.epoll.close()
        for each in (self.publisher, *self.subscribers.values()):
            each.close()


class TcpLoad(Load):
    """Raw connections to a broker on TCP."""

    def __init__(self, target: Target, cell: Cell) -> None:
        super().__init__(target, cell)
        self.wire = WIRES[target.system](cell.size)
        publication = self.wire.publication()
        self.per_chunk = max(CHUNK_BYTES // len(publication), 1)
        self.chunk = memoryview(publication * self.per_chunk)
        self.unsent = self.chunk[:0]
        self.buffer = bytearray(2**20)
        self.step = self.wire.delivery_size()

    def connect(self) -> None:
        for _ in range(self.cell.fan_out):
            subscriber = self._dial(self.target.ports[1])
            self.wire.handshake(subscriber, subscribe=True)
            self.watch(subscriber)
        self.publisher.close()
        self.publisher = self._dial(self.target.ports[0])
        self.wire.handshake(self.publisher, subscribe=False)
        self.probe(lambda: self.publisher.sendall(self.wire.publication()))
        self.publisher.setblocking(False)

    def _dial(self, port: int) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", port), timeout=10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def publish(self) -> None:
        if not self.unsent:
            self.unsent = self.chunk
            self.sent += self.per_chunk
        with suppress(BlockingIOError):
            self.unsent = self.unsent[self.publisher.send(self.unsent) :]

    def read(self, descriptor: int) -> None:
        count = self.subscribers[descriptor].recv_into(self.buffer)
        if not count:
            raise ConnectionError(f"{self.target.system} hung up")
        self.received[descriptor] += count

    def delivered(self) -> dict[int, int]:
        return {descriptor: count // self.step for descriptor, count in self.received.items()}

    def finish(self) -> int:
        while self.unsent:
            self.publish_rest()
        missing = super().finish()
        odd = {count % self.step for count in self.received.values()} - {0, len(b"PING\r\n")}
        if not missing and odd:
            raise RuntimeError(f"{self.target.system} sent {odd} bytes that are no messages")
        return missing

    def publish_rest(self) -> None:
        """Send the rest of a piece that the kernel has not accepted yet."""
        self.publish()
        self.drain(0.01)


def bare_socket() -> socket.socket:
    """Return a UDP socket with room for bursts, bound on loopback."""
    created = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
    created.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)
    created.bind(("127.0.0.1", 0))
    return created


class UdpLoad(Load):
    """Raw sockets that speak the fyrehose wire protocol in bursts; the publisher is one of the subscribers."""

    KEEPALIVE, FAREWELL = (
        encode(Keepalive(flags=flags)) for flags in (Flags.NOJOURNAL, Flags.NOJOURNAL | Flags.NOSUBSCRIBE)
    )

    def __init__(self, target: Target, cell: Cell) -> None:
        super().__init__(target, cell)
        self.address = ("127.0.0.1", target.ports[1])
        push = encode_push(bytes(cell.size))
        self.step = len(push)
        self.per_chunk = min(MAX_SEGMENTS, LARGEST_BURST // self.step)
        self.burst = push * self.per_chunk
        self.push = push
        self.buffer = bytearray(65_536)
        self.keepalive_at = 0.0
        self.acknowledged: set[int] = set()

    def connect(self) -> None:
        for _ in range(self.cell.fan_out):
            subscriber = bare_socket()
            with suppress(OSError):
                subscriber.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
            self.watch(subscriber)
        self.publisher.close()
        self.publisher = bare_socket()
        self.publisher.connect(("127.0.0.1", self.target.ports[0]))
        self.publisher.setsockopt(socket.SOL_UDP, UDP_SEGMENT, self.step)
        deadline = time.monotonic() + 15
        while len(self.acknowledged) < self.cell.fan_out:
            self.keepalive_at = 0.0
            self.drain(0.05)
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.target.system} does not answer")
        self.probe(lambda: self.publisher.send(self.push))

    def keep_alive(self) -> None:
        """Send KEEPALIVEs when they are due."""
        if time.monotonic() >= self.keepalive_at:
            for each in self.subscribers.values():
                each.sendto(self.KEEPALIVE, self.address)
            self.keepalive_at = time.monotonic() + 0.5

    def drain(self, timeout: float) -> None:
        self.keep_alive()
        super().drain(timeout)

    def publish(self) -> None:
        with suppress(BlockingIOError, ConnectionRefusedError):
            self.publisher.send(self.burst)
            self.sent += self.per_chunk

    def read(self, descriptor: int) -> None:
        receive, buffer, count = self.subscribers[descriptor].recvmsg_into, [self.buffer], 0
        for _ in range(16):
            try:
                size, _, _, _ = receive(buffer, 64)
            except BlockingIOError:
                break
            if self.buffer[0] == 1:
                count += size // self.step  # Every message of the load has the same size.
            else:
                self.acknowledged.add(descriptor)
        self.received[descriptor] += count

    def close(self) -> None:
        for each in self.subscribers.values():
            each.sendto(self.FAREWELL, self.address)
        super().close()


def measure(target: Target, cell: Cell) -> dict[str, float]:
    """Run a load on a broker."""
    pin(CLIENT_CORE)
    load: Load = (TcpLoad if target.system in WIRES else UdpLoad)(target, cell)
    try:
        load.connect()
        return load.run()
    finally:
        load.close()
