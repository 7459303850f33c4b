"""Carriers of node links, on real sockets and real pipes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
import pytest_twisted
from integration.running.clock import SkippingClock
from twisted.internet import reactor as installed_reactor
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, gatherResults, succeed
from twisted.internet.error import (
    CannotListenError,
    ConnectError,
    ConnectingCancelledError,
    ConnectionAborted,
    ConnectionDone,
    ConnectionLost,
    ConnectionRefusedError,
    TimeoutError,
)
from twisted.internet.interfaces import IConsumer, IStreamClientEndpoint, IStreamServerEndpoint, ITransport
from twisted.internet.protocol import Factory, Protocol
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.hydra.transports.fifo import FifoEndpoint
from fyrehose_twisted.hydra.transports.udp.endpoint import UdpPort
from fyrehose_twisted.interfaces import IStreamCodec, IStreamDecoder
from fyrehose_twisted.net.connection import ConnectionFactory, NodeConnection
from fyrehose_twisted.net.udp import any_interface

reactor: Any = installed_reactor

LINES = 20_000
MAX_PING = 600.0
"""Seconds of silence that end a link; tests advance the clock instead of waiting."""
DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""
SECRET = b"a secret of more than 16 bytes"

OTHER_SIDE = """
import sys
from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from fyrehose_twisted.hydra.transports.fifo import FifoEndpoint
from fyrehose_twisted.hydra.transports.udp.endpoint import UdpPort
from fyrehose_twisted.net.boottime import BoottimeReactor

class Echo(Protocol):
    def dataReceived(self, data):
        self.transport.write(data)

clock, (kind, place, max_ping) = BoottimeReactor(reactor), sys.argv[1:]
if kind == "udp":
    endpoint = UdpPort(clock, "127.0.0.1", max_ping=float(max_ping)).client_endpoint("127.0.0.1", int(place))
else:
    endpoint = FifoEndpoint(clock, place, max_ping=float(max_ping))
endpoint.connect(Factory.forProtocol(Echo))
reactor.run()
"""


class End(Protocol):
    """Protocol that writes many lines with backpressure, and waits for as many."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.total = self.written = self.wanted = 0
        self.paused = False
        self.pause_count = 0
        self.lost: Deferred[BaseException] = Deferred()
        self.problem: BaseException | None = None
        self._complete: Deferred[None] | None = None

    def connectionMade(self) -> None:
        assert self.transport is not None
        self.transport.registerProducer(self, True)

    def dataReceived(self, data: bytes) -> None:
        self.got.append(data)
        if self._complete is not None and self.lines >= self.wanted:
            complete, self._complete = self._complete, None
            complete.callback(None)

    def connectionLost(self, reason: Any = None) -> None:
        self.problem = reason.value
        self.lost.callback(reason.value)

    @property
    def lines(self) -> int:
        self.got = [b"".join(self.got)]
        return sum(1 for line in self.got[0].splitlines() if line)

    def say(self, total: int) -> None:
        self.total += total
        self.resumeProducing()

    def wait_for(self, lines: int) -> Deferred[None]:
        self.wanted = lines
        if self.lines >= lines:
            return succeed(None)
        self._complete = Deferred()
        return self._complete

    def close(self) -> None:
        transport: Any = self.transport
        transport.unregisterProducer()
        transport.loseConnection()

    def resumeProducing(self) -> None:
        self.paused = False
        while not self.paused and self.written < self.total:
            assert self.transport is not None
            first, self.written = self.written, min(self.total, self.written + 50)
            self.transport.write(b"".join(said(number) for number in range(first, self.written)))

    def pauseProducing(self) -> None:
        self.paused = True
        self.pause_count += 1

    def stopProducing(self) -> None:
        self.total = 0


def said(number: int) -> bytes:
    return b"SEND 1804289383 @+hydra/n=%d PRIVMSG #channel :this is what is said\r\n" % number


class Accepted(Factory):
    """Factory that reports accepted connections."""

    protocol = End
    noisy = False

    def __init__(self) -> None:
        self.ends: list[End] = []
        self._waiting: list[Deferred[End]] = []

    def buildProtocol(self, addr: Any) -> Any:
        end = End()
        end.factory = self
        self.ends.append(end)
        if self._waiting:
            reactor.callLater(0, self._waiting.pop(0).callback, end)
        return end

    def next(self) -> Deferred[End]:
        self._waiting.append(Deferred())
        return self._waiting[-1]


@pytest.fixture
def make_clock(skipping_clock: type[SkippingClock]) -> Iterator[Callable[[], Any]]:
    """Return a factory of clocks that the test advances."""
    clocks: list[Any] = []

    def made() -> Any:
        clocks.append(skipping_clock())
        return clocks[-1]

    yield made
    for clock in clocks:
        assert not clock.getDelayedCalls()


@pytest.fixture
def clock(make_clock: Callable[[], Any]) -> Any:
    """Return a clock that the test advances."""
    return make_clock()


@pytest.fixture
def port(clock: SkippingClock) -> Iterator[Callable[..., UdpPort]]:
    """Return a factory of UDP ports on loopback."""
    ports: list[UdpPort] = []

    def made(clock: SkippingClock = clock, **more: Any) -> UdpPort:
        ports.append(UdpPort(clock, "127.0.0.1", max_ping=MAX_PING, **more))
        ports[-1].start()
        return ports[-1]

    yield made
    for one in ports:
        pytest_twisted.blockon(one.stop())


@pytest.fixture
def other_side() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Return a function that starts a process which dials and echoes lines."""
    processes: list[subprocess.Popen[bytes]] = []

    def started(kind: str, place: object) -> subprocess.Popen[bytes]:
        processes.append(subprocess.Popen([sys.executable, "-c", OTHER_SIDE, kind, str(place), str(MAX_PING)]))
        return processes[-1]

    yield started
    for process in processes:
        process.kill()
        process.wait()


def timed(waiting: Deferred[Any]) -> Deferred[Any]:
    return waiting.addTimeout(DEADLINE, reactor)


def dial(port: UdpPort, target: UdpPort, end: type[Protocol] = End) -> Deferred[Any]:
    endpoint = port.client_endpoint("127.0.0.1", target.getHost().port)
    assert verifyObject(IStreamClientEndpoint, endpoint)
    return timed(endpoint.connect(Factory.forProtocol(end)))


def turn() -> Deferred[None]:
    """Return a Deferred that fires in the next turn of the reactor."""
    turned: Deferred[None] = Deferred()
    reactor.callLater(0, turned.callback, None)
    return turned


def udp_pair(one: UdpPort, other: UdpPort) -> Deferred[tuple[End, End]]:
    """Dial one port from the other."""
    endpoint, accepted = other.server_endpoint(), Accepted()
    assert verifyObject(IStreamServerEndpoint, endpoint)
    endpoint.listen(accepted)
    return gatherResults([dial(one, other), timed(accepted.next())])


def fifo_pair(clock: SkippingClock, directory: Path) -> Deferred[tuple[End, End]]:
    """Open both sides of a link."""
    endpoints = [FifoEndpoint(clock, str(directory), max_ping=MAX_PING) for _ in range(2)]
    return gatherResults([timed(endpoint.connect(Factory.forProtocol(End))) for endpoint in endpoints])


@pytest.mark.parametrize("kind", ["udp", "udp with a secret", "fifo"])
@pytest_twisted.inlineCallbacks
def test_carrier_transfers_many_lines_both_ways_and_closes(
    kind: str, clock: SkippingClock, port: Callable[..., UdpPort], tmp_path: Path
) -> Any:
    if kind == "fifo":
        one, other = yield fifo_pair(clock, tmp_path / "link")
    else:
        secret = SECRET if "secret" in kind else None
        one, other = yield udp_pair(port(secret=secret), port(secret=secret))
        assert verifyObject(ITransport, one.transport)
        assert verifyObject(IConsumer, one.transport)
        assert one.transport.getPeer() == other.transport.getHost()
        assert one.transport.getHost() == other.transport.getPeer()
    done = gatherResults([timed(end.wait_for(LINES)) for end in (one, other)])
    one.say(LINES)
    other.say(LINES)
    yield done
    expected = b"".join(map(said, range(LINES)))
    for end in (one, other):
        assert b"".join(end.got).replace(b"\r\n\r\n", b"\r\n") == expected
        assert end.pause_count > 0
    one.close()
    problem = yield timed(other.lost)
    assert isinstance(problem, ConnectionDone)
    problem = yield timed(one.lost)
    assert isinstance(problem, ConnectionDone)


@implementer(IStreamDecoder)
class Words:
    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        *lines, self.rest = (self.rest + data).split(b"\r\n")
        return [line for line in lines if line]


@implementer(IStreamCodec)
class WordCodec:
    def encode(self, message: bytes) -> bytes:
        return message + b"\r\n"

    def decoder(self) -> Words:
        return Words()


class Talk(NodeConnection):
    """Connection as used by nodes, with all requirements on its transport."""

    def __init__(self) -> None:
        super().__init__(WordCodec())
        self.got: list[bytes] = []
        self.ended: list[str] = []
        self.gone: Deferred[None] = Deferred()

    def messages_received(self, messages: Sequence[bytes]) -> None:
        self.got += messages

    def connection_ended(self, reason: str) -> None:
        self.ended.append(reason)

    def connectionLost(self, reason: Any = None) -> None:
        super().connectionLost(reason)
        self.gone.callback(None)


@pytest.mark.parametrize("kind", ["udp", "fifo"])
@pytest_twisted.inlineCallbacks
def test_node_connections_run_on_each_carrier(
    kind: str, clock: SkippingClock, port: Callable[..., UdpPort], tmp_path: Path
) -> Any:
    if kind == "udp":
        one, other = port(), port()
        other.server_endpoint().listen(ConnectionFactory(lambda: others.append(Talk()) or others[-1]))  # type: ignore[func-returns-value]
        endpoints = [one.client_endpoint("127.0.0.1", other.getHost().port)]
    else:
        endpoints = [FifoEndpoint(clock, str(tmp_path / "link"), max_ping=MAX_PING) for _ in range(2)]
    others: list[Talk] = []
    talks = yield gatherResults([timed(endpoint.connect(ConnectionFactory(Talk))) for endpoint in endpoints])
    messages = [said(number)[:-2] for number in range(LINES)]
    talks[0].send(messages)
    talks[0].close()
    yield timed(talks[0].gone)
    (other_end,) = talks[1:] or others
    yield timed(other_end.gone)
    assert other_end.got == messages
    assert (talks[0].ended, other_end.ended) == ([], ["closed"])
    assert talks[0].unsent_bytes == 0


@pytest.mark.parametrize("kind", ["udp", "fifo"])
@pytest_twisted.inlineCallbacks
def test_killed_process_ends_the_link_of_its_peer(
    kind: str,
    clock: SkippingClock,
    port: Callable[..., UdpPort],
    tmp_path: Path,
    other_side: Callable[..., subprocess.Popen[bytes]],
) -> Any:
    accepted = Accepted()
    if kind == "udp":
        listening = port()
        listening.server_endpoint().listen(accepted)
        waiting = accepted.next()
        process = other_side("udp", listening.getHost().port)
    else:
        process = other_side("fifo", tmp_path / "link")
        waiting = FifoEndpoint(clock, str(tmp_path / "link"), max_ping=MAX_PING).connect(accepted)
    end = yield timed(waiting)
    end.say(500)
    yield timed(end.wait_for(500))
    process.send_signal(signal.SIGKILL)
    process.wait()
    clock.skip(MAX_PING / 2)
    for _ in range(10):
        yield turn()
    assert end.problem is None  # Half the timeout of silence has no effect.
    clock.skip(MAX_PING / 2)
    problem = yield timed(end.lost)
    assert isinstance(problem, TimeoutError)


@pytest_twisted.inlineCallbacks
def test_restarted_process_ends_the_previous_fifo_link(
    clock: SkippingClock, tmp_path: Path, other_side: Callable[..., subprocess.Popen[bytes]]
) -> Any:
    process = other_side("fifo", tmp_path / "link")
    endpoint = FifoEndpoint(clock, str(tmp_path / "link"), max_ping=MAX_PING)
    end = yield timed(endpoint.connect(Accepted()))
    process.send_signal(signal.SIGKILL)
    process.wait()
    other_side("fifo", tmp_path / "link")
    problem = yield timed(end.lost)  # The clock was not advanced, so it is not the silence that ends the link.
    assert isinstance(problem, ConnectionLost)
    end = yield timed(endpoint.connect(Accepted()))
    end.say(100)
    yield timed(end.wait_for(100))
    end.transport.abortConnection()
    problem = yield timed(end.lost)
    assert isinstance(problem, ConnectionAborted)


@pytest_twisted.inlineCallbacks
def test_aborted_udp_link_ends_at_the_peer(port: Callable[..., UdpPort]) -> Any:
    one, other = yield udp_pair(port(), port())
    one.transport.abortConnection()
    problems = yield timed(gatherResults([one.lost, other.lost]))
    assert [type(problem) for problem in problems] == [ConnectionAborted, ConnectionLost]


@pytest_twisted.inlineCallbacks
def test_rebound_udp_port_ends_its_previous_links(port: Callable[..., UdpPort], free_port: Callable[[], int]) -> Any:
    place = free_port()  # A port that the kernel assigns to no other process while it is unbound.
    listening, first = port(), port(port=place)
    _, accepted = yield udp_pair(first, listening)
    # As after a kill: no peer is notified.
    first._port.send = lambda datagrams, peers: None  # type: ignore[union-attr, method-assign]
    yield first.stop()
    assert accepted.problem is None
    second = port(port=place)
    yield dial(second, listening)
    problem = yield timed(accepted.lost)
    assert isinstance(problem, ConnectionLost)
    assert "restarted" in str(problem)
    yield second.stop()


@pytest.mark.skipif(any_interface() != "::", reason="this host has no IPv6")
@pytest.mark.parametrize("host", ["::1", "127.0.0.1"])
@pytest_twisted.inlineCallbacks
def test_one_udp_port_accepts_links_of_both_ip_versions(
    host: str, port: Callable[..., UdpPort], clock: SkippingClock
) -> Any:
    here, there = UdpPort(clock, max_ping=MAX_PING), UdpPort(clock, "::", max_ping=MAX_PING)
    there.start()
    accepted = Accepted()
    there.server_endpoint().listen(accepted)
    dialled = here.client_endpoint(host, there.getHost().port).connect(Factory.forProtocol(End))
    one, other = yield gatherResults([timed(dialled), timed(accepted.next())])
    assert one.transport.getPeer().host == host
    assert other.transport.getPeer().host == host, "not an IPv4-mapped address"
    assert type(other.transport.getPeer()) is (IPv6Address if host == "::1" else IPv4Address)
    yield gatherResults([here.stop(), there.stop()])


@pytest_twisted.inlineCallbacks
def test_an_ipv4_port_fails_to_dial_an_ipv6_address_at_once(port: Callable[..., UdpPort]) -> Any:
    with pytest.raises(ConnectError, match=r"the UDP port at 127\.0\.0\.1:\d+ cannot send to ::1"):
        yield port().client_endpoint("::1", 9).connect(Factory.forProtocol(End))


@pytest_twisted.inlineCallbacks
def test_unanswered_or_refused_udp_dials_fail(port: Callable[..., UdpPort], clock: SkippingClock) -> Any:
    one, other = port(), port(secret=SECRET, accepted=0)
    other.server_endpoint().listen(Accepted())
    unanswered = dial(one, other)
    while not other.counters["unproved"]:
        yield turn()
    clock.skip(MAX_PING)
    with pytest.raises(TimeoutError):
        yield unanswered
    third = port(secret=SECRET)
    with pytest.raises(ConnectionRefusedError):
        yield dial(third, other)
    given_up = third.client_endpoint("127.0.0.1", one.getHost().port).connect(Factory.forProtocol(End))
    given_up.cancel()
    with pytest.raises(ConnectingCancelledError):
        yield given_up
    assert len(one) == len(other) == 0
    with pytest.raises(RuntimeError, match="the port is already listening"):
        yield other.server_endpoint().listen(Accepted())


@pytest_twisted.inlineCallbacks
def test_stopped_udp_listener_refuses_dials_and_keeps_open_links(
    port: Callable[..., UdpPort], make_clock: Callable[[], Any]
) -> Any:
    one, other, impatient = port(), port(), make_clock()
    late = port(clock=impatient)
    accepted = Accepted()
    door = yield other.server_endpoint().listen(accepted)
    waiting = timed(accepted.next())
    end = yield dial(one, other)
    yield waiting
    yield door.stopListening()
    unanswered = dial(late, other)
    # Later data has arrived, and therefore so has the dial, which stays unanswered.
    end.say(100)
    yield timed(accepted.ends[0].wait_for(100))
    impatient.skip(MAX_PING)
    with pytest.raises(TimeoutError):
        yield unanswered
    assert len(accepted.ends) == 1


@pytest_twisted.inlineCallbacks
def test_udp_dial_resolves_names_and_a_port_in_use_is_reported(
    port: Callable[..., UdpPort], clock: SkippingClock
) -> Any:
    other = port()
    accepted = Accepted()
    other.server_endpoint().listen(accepted)
    end = yield timed(port().client_endpoint("localhost", other.getHost().port).connect(Factory.forProtocol(End)))
    assert end.transport.getPeer().host == "127.0.0.1"
    taken = UdpPort(clock, "127.0.0.1", other.getHost().port)
    with pytest.raises(CannotListenError):
        yield taken.server_endpoint().listen(Accepted())


@pytest_twisted.inlineCallbacks
def test_garbage_datagrams_do_not_disturb_a_udp_link(port: Callable[..., UdpPort]) -> Any:
    one, other = port(secret=SECRET), port(secret=SECRET)
    end, accepted = yield udp_pair(one, other)
    rng = Random(7)
    target = ("127.0.0.1", other.getHost().port)
    waiting = timed(accepted.wait_for(LINES))
    end.say(LINES)
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as stranger:
        for number in range(20_000):
            kind = bytes((rng.randrange(9),)) if number % 2 else b""
            stranger.sendto(kind + rng.randbytes(rng.choice((0, 1, 24, 39, 55, 200, 1_400))), target)
            if number % 200 == 0:
                yield turn()
    yield waiting
    assert b"".join(accepted.got) == b"".join(map(said, range(LINES)))
    assert len(other) == 1
    assert other.counters["malformed"] > 1_000
    assert other.counters["unknown"] > 500
    assert other.counters["unproved"] > 500
    assert accepted.problem is None


@pytest_twisted.inlineCallbacks
def test_fifo_links_leak_no_descriptors(port: Callable[..., UdpPort], clock: SkippingClock, tmp_path: Path) -> Any:
    yield fifo_once(clock, tmp_path / "link")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        yield fifo_once(clock, tmp_path / "link")
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest_twisted.inlineCallbacks
def fifo_once(clock: SkippingClock, directory: Path) -> Any:
    one, other = yield fifo_pair(clock, directory)
    one.close()
    yield timed(gatherResults([one.lost, other.lost]))
