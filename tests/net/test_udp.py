"""DatagramPort on real sockets."""

from __future__ import annotations

import errno
import select
import socket
import sys
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as installed_reactor
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import DatagramProtocol
from twisted.internet.task import deferLater
from twisted.logger import capturedLogs
from zope.interface import implementer

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Burst
from fyrehose_twisted.interfaces import IBatchReceiver
from fyrehose_twisted.net import gso, udp
from fyrehose_twisted.net.gso import MAX_DATAGRAM, RECEIVE_BYTES
from fyrehose_twisted.net.udp import DatagramPort, listen, source_address_for

reactor: Any = installed_reactor

DEADLINE = 120.0
"""Seconds after which a test fails."""


@implementer(IBatchReceiver)
class Receiver(DatagramProtocol):
    noisy = False

    def __init__(self) -> None:
        self.batches: list[list[tuple[bytes, Address]]] = []
        self.on_batch: Callable[[], None] = lambda: None
        self._wanted = 0
        self._enough: Deferred[None] = Deferred()

    @property
    def datagrams(self) -> list[bytes]:
        return [datagram for batch in self.batches for datagram, _ in batch]

    def batch_received(self, batch: Batch) -> None:
        assert not any(run.truncated for run in batch.runs)
        self.batches.append([(bytes(datagram), peer) for datagram, peer, _ in batch])
        if len(self.datagrams) >= self._wanted and not self._enough.called:
            self._enough.callback(None)
        self.on_batch()

    def received(self, count: int) -> Deferred[None]:
        self._wanted, self._enough = count, Deferred()
        if len(self.datagrams) >= count:
            self._enough.callback(None)
        return self._enough.addTimeout(DEADLINE, reactor)


class Blocking:
    """A socket that accepts a limited number of datagrams, like one with a full send buffer."""

    def __init__(self, real: socket.socket, room: int) -> None:
        self.room = room
        self.refusals = 0
        self._real = real

    def sendto(self, data: bytes, peer: Address) -> int:
        if self.room == 0:
            self.refusals += 1
            raise BlockingIOError
        self.room -= 1
        return self._real.sendto(data, peer)

    def sendmsg(self, buffers: list[bytes], control: Any, flags: int, peer: Address) -> int:
        if self.room == 0:
            self.refusals += 1
            raise BlockingIOError
        self.room -= 1
        return self._real.sendmsg(buffers, control, flags, peer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest.fixture(params=[True, False], ids=["bursts", "one by one"])
def ports(request: pytest.FixtureRequest) -> Iterator[Callable[[], DatagramPort]]:
    made: list[DatagramPort] = []

    def make() -> DatagramPort:
        port = DatagramPort(0, Receiver(), "127.0.0.1", reactor, offload=request.param)
        port.startListening()
        made.append(port)
        return port

    yield make
    pytest_twisted.blockon(gatherResults([port.stopListening() for port in made if port.connected]))


needs_ipv6 = pytest.mark.skipif(udp.any_interface() != "::", reason="this host has no IPv6")


@pytest.fixture
def port_at() -> Iterator[Callable[..., DatagramPort]]:
    """Return a factory of ports at an interface."""
    made: list[DatagramPort] = []

    def make(interface: str, number: int = 0) -> DatagramPort:
        port = DatagramPort(number, Receiver(), interface, reactor)
        port.bind()
        made.append(port)
        port.start()
        return port

    yield make
    pytest_twisted.blockon(gatherResults([port.stopListening() for port in made if port.connected]))


def settle() -> None:
    """Wait until earlier datagrams over loopback have arrived, by sending one behind them."""
    with socket.socket(type=socket.SOCK_DGRAM) as last:
        last.bind(("127.0.0.1", 0))
        last.sendto(b"", last.getsockname())
        assert select.select([last], [], [], DEADLINE)[0]


def address(port: DatagramPort) -> Address:
    host = port.getHost()
    return host.host, host.port


@pytest_twisted.ensureDeferred
async def test_waiting_datagrams_are_one_batch(ports: Callable[[], DatagramPort]) -> None:
    receiving, sending = ports(), ports()
    datagrams = [b"%d" % number * number for number in range(100)]
    sending.send(datagrams, [address(receiving), address(receiving)])
    settle()
    await receiving.protocol.received(200)
    assert receiving.protocol.datagrams == datagrams + datagrams
    assert len(receiving.protocol.batches) == 1
    assert {peer for _, peer in receiving.protocol.batches[0]} == {address(sending)}
    assert not sending.send_errors


@pytest_twisted.ensureDeferred
async def test_a_udp_batch_ends_at_its_datagram_limit(
    ports: Callable[[], DatagramPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gso, "MAX_BATCH_DATAGRAMS", 128)  # An untuned socket cannot buffer the real number.
    receiving, sending = ports(), ports()
    sending.send([b"x"] * 300, [address(receiving)])
    settle()
    await receiving.protocol.received(300)
    assert [len(batch) for batch in receiving.protocol.batches] == [128, 128, 44]


@pytest.mark.parametrize("sizes", [[MAX_DATAGRAM] * 4, [0, MAX_DATAGRAM, 0, 1, MAX_DATAGRAM, 20_000, 0]])
@pytest_twisted.ensureDeferred
async def test_datagrams_of_every_size_are_received(sizes: list[int], ports: Callable[[], DatagramPort]) -> None:
    receiving, sending = ports(), ports()
    pattern = bytes(range(251)) * 262
    datagrams = [pattern[number : number + size] for number, size in enumerate(sizes)]
    for datagram in datagrams:
        sending.send([datagram], [address(receiving)])
    await receiving.protocol.received(len(datagrams))
    assert receiving.protocol.datagrams == datagrams


@pytest_twisted.ensureDeferred
async def test_memoryviews_can_be_sent(ports: Callable[[], DatagramPort]) -> None:
    receiving, sending = ports(), ports()
    buffer = bytearray(b"abcdef")
    sending.send([memoryview(buffer)[1:3], buffer], [address(receiving)])
    buffer[:] = b"??????"
    await receiving.protocol.received(2)
    assert receiving.protocol.datagrams == [b"bc", b"abcdef"]


@pytest_twisted.ensureDeferred
async def test_send_errors_are_counted_by_errno(ports: Callable[[], DatagramPort]) -> None:
    receiving, sending = ports(), ports()
    good = address(receiving)
    sending.send([b"1"], [("127.0.0.1", 0), good])
    sending.send([b"2"], [("240.0.0.1", 9), ("0.0.0.0", 0), good])
    sending.send([bytes(MAX_DATAGRAM + 1), b"3"], [good])
    await receiving.protocol.received(3)
    assert receiving.protocol.datagrams == [b"1", b"2", b"3"]
    assert sending.send_errors["EMSGSIZE"] == 1
    # The error of an unroutable address depends on the system; that of port 0 does not.
    assert sending.send_errors["EINVAL"] >= 1
    assert 3 <= sum(sending.send_errors.values()) <= 4


@pytest_twisted.ensureDeferred
async def test_datagrams_are_queued_while_the_send_buffer_is_full(ports: Callable[[], DatagramPort]) -> None:
    """Datagrams are queued in order and reading pauses, until the buffer has space."""
    receiving, other, sending = ports(), ports(), ports()
    blocking = sending.segmenting_socket.socket = Blocking(sending.socket, 3)
    buffer = bytearray(b"0")
    # Each is longer than the previous one, so that they do not form a burst.
    datagrams = [b"%d" % number * (number + 1) for number in range(1, 5)]
    sending.send([memoryview(buffer), *datagrams], [address(receiving), address(other)])
    buffer[:] = b"?"
    sending.send([b"behind"], [address(receiving)])
    assert blocking.refusals == 1
    assert sending not in reactor.getReaders()
    assert sending in reactor.getWriters()

    receiving.send([b"for later"], [address(sending)])
    await receiving.protocol.received(3)
    assert receiving.protocol.datagrams == [b"0", *datagrams[:2]]
    assert sending.protocol.datagrams == []
    blocking.room = 1_000
    await gatherResults([receiving.protocol.received(6), other.protocol.received(5), sending.protocol.received(1)])
    assert receiving.protocol.datagrams == [b"0", *datagrams, b"behind"]
    assert other.protocol.datagrams == [b"0", *datagrams]
    assert sending.protocol.datagrams == [b"for later"]
    assert sending not in reactor.getWriters()
    assert not sending.send_errors


def test_the_queue_of_unsent_datagrams_is_limited(
    ports: Callable[[], DatagramPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp, "MAX_QUEUED_BYTES", 100)
    sending = ports()
    blocking = sending.segmenting_socket.socket = Blocking(sending.socket, 0)
    sending.send([bytes(40), bytes(60), bytes(70), bytes(60)], [("127.0.0.1", 9)])
    # The last is shorter than the previous one, so they form one burst or two datagrams.
    assert sending.send_errors == {"EAGAIN": 2}
    blocking.room = 2
    sending.doWrite()
    assert sending not in reactor.getWriters()
    assert sending in reactor.getReaders()


def test_a_send_error_does_not_block_queued_datagrams(ports: Callable[[], DatagramPort]) -> None:
    sending = ports()
    blocking = sending.segmenting_socket.socket = Blocking(sending.socket, 0)
    sending.send([bytes(MAX_DATAGRAM + 1), b"x"], [("127.0.0.1", 9)])
    blocking.room = 2
    sending.doWrite()
    assert sending.send_errors == {"EMSGSIZE": 1}
    assert blocking.room == 0
    assert sending in reactor.getReaders()


@pytest_twisted.ensureDeferred
async def test_an_exception_of_a_datagram_protocol_is_logged(ports: Callable[[], DatagramPort]) -> None:
    receiving, sending = ports(), ports()

    def fail() -> None:
        receiving.protocol.on_batch = lambda: None
        raise ValueError("a mistake")

    receiving.protocol.on_batch = fail
    with capturedLogs() as logged:
        sending.send([b"1"], [address(receiving)])
        await receiving.protocol.received(1)
        sending.send([b"2"], [address(receiving)])
        await receiving.protocol.received(2)
    failures = [event["log_failure"].value for event in logged if "log_failure" in event]
    assert [str(error) for error in failures] == ["a mistake"]


@pytest_twisted.ensureDeferred
async def test_stopping_a_udp_port_twice_stops_it_once(ports: Callable[[], DatagramPort]) -> None:
    port = ports()
    bound = address(port)
    with capturedLogs() as logged:
        first, second = port.stopListening(), port.stopListening()
        await gatherResults([first, second])
        # A second stop in Twisted would fail a reactor turn later.
        await deferLater(reactor, 0)
    assert not [event for event in logged if "log_failure" in event]
    assert port.stopListening() is None
    again = listen(reactor, bound[1], Receiver())
    assert address(again) == bound
    await again.stopListening()


@pytest_twisted.ensureDeferred
async def test_a_udp_port_can_be_stopped_with_queued_datagrams(ports: Callable[[], DatagramPort]) -> None:
    port = ports()
    port.socket = Blocking(port.socket, 0)
    port.send([b"never sent"], [("127.0.0.1", 9)])
    await port.stopListening()
    assert port not in reactor.getWriters()


def test_binding_a_udp_port_in_use_is_an_error(ports: Callable[[], DatagramPort]) -> None:
    with pytest.raises(CannotListenError):
        listen(reactor, address(ports())[1], Receiver())


@pytest_twisted.ensureDeferred
async def test_a_udp_port_can_be_bound_without_reading() -> None:
    port = DatagramPort(0, Receiver(), "127.0.0.1", reactor)
    port.bind()
    assert address(port)[1]
    assert port not in reactor.getReaders()
    port.start()
    assert port in reactor.getReaders()
    await port.stopListening()


def test_the_granted_receive_buffer_is_reported(ports: Callable[[], DatagramPort]) -> None:
    port = ports()
    given = port.socket.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) // 2
    assert port.receive_buffer == given > 0


def test_the_source_address_for_loopback_is_loopback() -> None:
    assert source_address_for(("127.0.0.1", 9)) == "127.0.0.1"
    with pytest.raises(OSError, match="denied"):
        source_address_for(("255.255.255.255", 9))


class Failing:
    """A socket that reports an asynchronous send error before each datagram but the first."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real
        self._reads = 0

    def recvfrom_into(self, buffer: memoryview) -> tuple[int, Address]:
        self._reads += 1
        if self._reads % 2 == 0:
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        size, peer = self._real.recvfrom_into(buffer)
        return size, peer

    def recvmsg_into(self, buffers: list[memoryview], room: int) -> Any:
        self._reads += 1
        if self._reads % 2 == 0:
            raise OSError(errno.EHOSTUNREACH, "No route to host")
        return self._real.recvmsg_into(buffers, room)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


@pytest_twisted.ensureDeferred
async def test_an_asynchronous_send_error_loses_no_received_datagrams(ports: Callable[[], DatagramPort]) -> None:
    receiving, sending = ports(), ports()
    receiving.segmenting_socket.socket = Failing(receiving.socket)
    receiving.segmenting_socket._many = None
    sending.send([b"1", b"22", b"333"], [address(receiving)])
    await receiving.protocol.received(3)
    assert receiving.protocol.datagrams == [b"1", b"22", b"333"]
    assert receiving.send_errors["EHOSTUNREACH"] >= 2
    assert receiving in reactor.getReaders()


def test_sent_datagrams_free_space_in_the_queue(
    ports: Callable[[], DatagramPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp, "MAX_QUEUED_BYTES", 100)
    sending = ports()
    blocking = sending.segmenting_socket.socket = Blocking(sending.socket, 0)
    for _ in range(3):
        sending.send([bytes(60), bytes(40)], [("127.0.0.1", 9)])
        blocking.room = 2
        sending.doWrite()
    assert not sending.send_errors


def test_datagrams_beyond_the_queue_are_counted_per_peer(
    ports: Callable[[], DatagramPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp, "MAX_QUEUED_BYTES", 100)
    sending = ports()
    sending.segmenting_socket.socket = Blocking(sending.socket, 0)
    sending.send([bytes(40), bytes(60)], [("127.0.0.1", 9), ("127.0.0.1", 10), ("127.0.0.1", 11)])
    assert sending.send_errors == {"EAGAIN": 4}


@pytest_twisted.ensureDeferred
async def test_a_bound_port_that_was_never_started_can_be_stopped() -> None:
    port = DatagramPort(0, Receiver(), "127.0.0.1", reactor)
    port.bind()
    bound = address(port)
    stopped = port.stopListening()
    if stopped is not None:
        await stopped.addTimeout(DEADLINE, reactor)
    again = listen(reactor, bound[1], Receiver())
    assert address(again) == bound
    await again.stopListening()


@pytest_twisted.ensureDeferred
async def test_datagrams_of_several_peers_are_one_batch_and_sent_in_bursts(
    ports: Callable[[], DatagramPort],
) -> None:
    receiving, peers = ports(), [ports(), ports()]
    sent = []
    for number in range(40):
        peer = peers[number // 5 % 2]
        peer.send([b"%02d" % number], [address(receiving)])
        sent.append((b"%02d" % number, address(peer)))
    settle()
    watched = receiving.segmenting_socket.socket = Blocking(receiving.socket, 1_000)
    receiving.protocol.on_batch = lambda: receiving.send(receiving.protocol.datagrams, [*map(address, peers)])
    await gatherResults([peer.protocol.received(40) for peer in peers])
    assert receiving.protocol.batches == [sent]
    assert [peer.protocol.datagrams for peer in peers] == [[datagram for datagram, _ in sent]] * 2
    assert 1_000 - watched.room == (2 if receiving.segmenting_socket.segments > 1 else 80)


@pytest_twisted.ensureDeferred
async def test_a_udp_batch_ends_when_its_buffer_cannot_hold_a_full_datagram(
    ports: Callable[[], DatagramPort], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp, "BATCH_BYTES", RECEIVE_BYTES + 1_000)
    receiving, sending = ports(), ports()
    for number in range(5):
        sending.send([b"%600d" % number], [address(receiving)])
    settle()
    await receiving.protocol.received(5)
    assert [len(batch) for batch in receiving.protocol.batches] == [2, 2, 1]
    assert receiving.protocol.datagrams == [b"%600d" % number for number in range(5)]


class Older(Blocking):
    """A blocking socket that sends at most 64 datagrams at once, like an older kernel."""

    def sendmsg(self, buffers: list[bytes], control: Any, flags: int, peer: Address) -> int:
        if len(buffers[0]) > 64 * int.from_bytes(control[0][2], sys.byteorder):
            raise OSError(errno.EINVAL, "Invalid argument")
        return super().sendmsg(buffers, control, flags, peer)


@pytest_twisted.ensureDeferred
async def test_the_unsent_rest_of_a_burst_is_queued(ports: Callable[[], DatagramPort]) -> None:
    """The rest is copied, since its buffer may be reused, and is sent before other datagrams."""
    receiving, other, sending = ports(), ports(), ports()
    older = sending.segmenting_socket.socket = Older(sending.socket, 1)
    datagrams = [b"%03d" % number for number in range(100)]
    buffer = bytearray(b"".join(datagrams))
    sending.send([Burst(memoryview(buffer), 3), b"behind"], [address(receiving), address(other)])
    buffer[:] = b"?" * 300
    sending.send([b"later"], [address(receiving)])
    assert older.refusals == 1
    older.room = 3  # In bursts: the rest, the datagram behind it, and a part of those for the other peer.
    sending.doWrite()
    assert (older.refusals, older.room) == (2, 0)
    older.room = 1_000
    await gatherResults([receiving.protocol.received(102), other.protocol.received(101)])
    assert receiving.protocol.datagrams == [*datagrams, b"behind", b"later"]
    assert other.protocol.datagrams == [*datagrams, b"behind"]
    assert sending._queued_bytes == 0
    assert not sending.send_errors


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize(
    ("pause", "batches"), [(inf, [1, 1, 2, 3, 1, 1, 1, 1, 2]), (0.0, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])]
)
async def test_a_single_datagram_is_delivered_without_waiting_for_others(
    ports: Callable[[], DatagramPort], monkeypatch: pytest.MonkeyPatch, pause: float, batches: list[int]
) -> None:
    monkeypatch.setattr(udp, "PAUSE", pause)
    receiving, sending = ports(), ports()
    count = 0
    for waiting in (1, 3, 3, 1, 1, 2, 2):
        for _ in range(waiting):
            count += 1
            sending.send([b"%d" % count], [address(receiving)])
        settle()
        await receiving.protocol.received(count)
        await deferLater(reactor, 0)  # Until the read has finished.
    assert receiving.protocol.datagrams == [b"%d" % number for number in range(1, count + 1)]
    assert [len(batch) for batch in receiving.protocol.batches] == batches


@pytest_twisted.ensureDeferred
async def test_reading_pauses_while_the_send_buffer_is_full(
    ports: Callable[[], DatagramPort],
) -> None:
    receiving, sending = ports(), ports()
    sending.send([b"alone"], [address(receiving)])
    await receiving.protocol.received(1)
    await deferLater(reactor, 0)  # Until the read has finished.
    blocking = receiving.segmenting_socket.socket = Blocking(receiving.socket, 0)
    receiving.protocol.on_batch = lambda: receiving.send([b"answer"], [address(sending)])
    for datagram in (b"1", b"2"):
        sending.send([datagram], [address(receiving)])
    settle()
    await receiving.protocol.received(2)
    await deferLater(reactor, 0)
    assert receiving.protocol.datagrams == [b"alone", b"1"]
    assert receiving not in reactor.getReaders()
    blocking.room = 10
    await sending.protocol.received(2)
    assert receiving.protocol.datagrams == [b"alone", b"1", b"2"]


@pytest_twisted.ensureDeferred
async def test_guard_is_asked_before_each_system_call(ports: Callable[[], DatagramPort]) -> None:
    """Also before those for the queue, and what it refuses is discarded."""
    receiving, sending = ports(), ports()
    answers = [True, False, True, True, False, True]
    sending.guard(lambda: answers.pop(0))
    # Each is longer than the previous one, so that they do not form a burst.
    sending.send([b"1", b"22", b"333"], [address(receiving)])
    await receiving.protocol.received(2)
    blocking = sending.segmenting_socket.socket = Blocking(sending.socket, 0)
    sending.send([b"4", b"55", b"666"], [address(receiving)])
    assert receiving.protocol.datagrams == [b"1", b"333"]
    blocking.room = 1_000
    answers[:] = [True, False, True]
    sending.doWrite()
    await receiving.protocol.received(4)
    assert receiving.protocol.datagrams == [b"1", b"333", b"4", b"666"]
    assert answers == []


@needs_ipv6
@pytest_twisted.ensureDeferred
async def test_a_port_of_both_ip_versions_exchanges_bursts_with_peers_of_either(
    port_at: Callable[..., DatagramPort],
) -> None:
    both, four, six = port_at("::"), port_at("127.0.0.1"), port_at("::1")
    number = both.getHost().port
    four.send([b"4"] * 50, [("127.0.0.1", number)])
    six.send([b"6"] * 50, [("::1", number)])
    await both.protocol.received(100)
    received = [row for batch in both.protocol.batches for row in batch]
    assert set(received) == {(b"4", address(four)), (b"6", address(six))}, "peers have their own addresses"
    both.send([b"back"] * 50, [peer for _, peer in dict.fromkeys(received)])
    await gatherResults([four.protocol.received(50), six.protocol.received(50)])
    assert {peer for batch in four.protocol.batches for _, peer in batch} == {("127.0.0.1", number)}
    assert {peer for batch in six.protocol.batches for _, peer in batch} == {("::1", number)}
    assert not both.send_errors


@needs_ipv6
@pytest.mark.parametrize(("interface", "host"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
@pytest_twisted.ensureDeferred
async def test_a_port_of_one_ip_version_can_send_to_the_other_and_receives_nothing_from_there(
    interface: str, host: str, port_at: Callable[..., DatagramPort]
) -> None:
    sending, here, there = port_at(interface), port_at(interface), port_at(host)
    sending.send([b"lost"], [address(there)])
    assert sending.ip_versions == ((4,) if interface == "127.0.0.1" else (6,))
    assert sum(sending.send_errors.values()) == 1
    assert sending.send_to_other_version()
    assert sending.ip_versions == (4, 6)
    sending.send([b"repair"] * 50, [address(here), address(there)])
    await gatherResults([here.protocol.received(50), there.protocol.received(50)])
    [(_, peer), *_] = there.protocol.batches[0]
    assert peer[0] == host, "on loopback, the other socket is not open to other hosts"
    there.send([b"unasked"], [peer])
    settle()
    assert sending.protocol.datagrams == []


@needs_ipv6
@pytest_twisted.ensureDeferred
async def test_a_full_send_buffer_of_the_other_ip_version_does_not_stop_the_port(
    port_at: Callable[..., DatagramPort],
) -> None:
    sending, here, there = port_at("127.0.0.1"), port_at("127.0.0.1"), port_at("::1")
    assert sending.send_to_other_version()
    assert sending._other_socket is not None
    real = sending._other_socket.socket
    sending._other_socket.socket = Blocking(real, 1)
    sending.send([b"1", b"22", b"333"], [address(there), address(here)])
    await gatherResults([here.protocol.received(3), there.protocol.received(1)])
    assert sending.send_errors == {"EAGAIN": 2}
    assert sending not in reactor.getWriters()
    sending._other_socket.socket = real


@needs_ipv6
def test_an_ipv6_address_leaves_the_port_of_ipv4_free(port_at: Callable[..., DatagramPort]) -> None:
    number = port_at("::1").getHost().port
    assert port_at("127.0.0.1", number).getHost().port == number
    with pytest.raises(CannotListenError):
        port_at("::", number)


@pytest.mark.parametrize(
    ("version", "text", "expected"),
    [
        (6, "00000000000000000000000000000001 01 80 10 80       lo", False),
        (6, "fe80000000000000deadbeefdeadbeef 02 40 20 80     eth0", False),
        (6, "20010db8000000000000000000000002 02 40 00 80     eth0", True),
        (6, "", False),
        (4, "Iface\tDestination\tGateway", False),
        (4, "Iface\tDestination\tGateway\neth0\t0009A8C0\t00000000", True),
    ],
)
def test_a_host_has_an_ip_version_if_others_can_reach_it(
    version: int, text: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(udp.Path, "read_text", lambda self, encoding: text)
    assert udp.has_ip_version(version) is expected


@pytest.mark.parametrize("routed", [True, False])
def test_without_files_of_linux_a_route_tells_whether_a_host_has_an_ip_version(
    routed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_text(path: object, encoding: str) -> str:
        raise FileNotFoundError

    def source(peer: Address) -> str:
        if not routed:
            raise OSError(errno.ENETUNREACH, "unreachable")
        return "192.0.2.1"

    monkeypatch.setattr(udp.Path, "read_text", read_text)
    monkeypatch.setattr(udp, "source_address_for", source)
    assert udp.has_ip_version(6) is routed
