"""Interfaces of a reactor on an event loop."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from suite.loops import LOOPS, Run
from twisted.internet.address import IPv6Address
from twisted.internet.defer import Deferred
from twisted.internet.error import (
    AlreadyCalled,
    AlreadyCancelled,
    ConnectionDone,
    ConnectionRefusedError,
    DNSLookupError,
)
from twisted.internet.interfaces import (
    IDelayedCall,
    IHalfCloseableProtocol,
    IHostnameResolver,
    IHostResolution,
    IReactorFDSet,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
    IResolutionReceiver,
)
from twisted.internet.protocol import Factory, Protocol, connectionDone
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fyrehose_twisted.aio.endpoints import LoopEndpoint
from fyrehose_twisted.aio.futures import result_of
from fyrehose_twisted.aio.loop_reactor import LoopReactor
from fyrehose_twisted.errors import ConfigurationError


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


def test_it_provides_what_it_says() -> None:
    async def main() -> None:
        reactor = LoopReactor(asyncio.get_running_loop())
        for interface in (IReactorTime, IReactorFDSet, IReactorTCP, IReactorPluggableNameResolver):
            assert verifyObject(interface, reactor)
        assert verifyObject(IHostnameResolver, reactor.nameResolver)
        call = reactor.callLater(1, print)
        assert verifyObject(IDelayedCall, call)
        call.cancel()

    asyncio.run(main())


def test_calls_are_made_when_they_are_due_and_can_be_moved_and_cancelled(run: Run) -> None:
    async def main() -> list[str]:
        reactor = LoopReactor(asyncio.get_running_loop())
        made: list[str] = []
        done = asyncio.get_running_loop().create_future()
        earlier = reactor.callLater(60, made.append, "moved to an earlier time")
        later = reactor.callLater(0.01, made.append, "moved to a later time")
        delayed = reactor.callLater(0.01, made.append, "delayed")
        cancelled = reactor.callLater(0, made.append, "cancelled")
        at_once = reactor.callLater(0, made.append, "at once")
        earlier.reset(0.02)
        later.reset(0.06)
        delayed.delay(0.03)
        cancelled.cancel()
        assert abs(later.getTime() - reactor.seconds() - 0.06) < 0.05
        assert (at_once.active(), cancelled.active()) == (True, False)
        reactor.callLater(0.08, done.set_result, None)
        await done
        assert (at_once.active(), later.active()) == (False, False)
        with pytest.raises(AlreadyCalled):
            at_once.cancel()
        with pytest.raises(AlreadyCancelled):
            cancelled.reset(1)
        return made

    assert run(main()) == ["at once", "moved to an earlier time", "delayed", "moved to a later time"]


@implementer(IHalfCloseableProtocol)
class Echo(Protocol):
    """Server that answers with what it got once the peer has closed its half."""

    def __init__(self) -> None:
        self.data = b""

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def readConnectionLost(self) -> None:
        transport: Any = self.transport
        transport.write(self.data)
        transport.loseConnection()

    def writeConnectionLost(self) -> None:
        """Twisted: the other half is closed."""


class Client(Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.lost: Deferred[Failure] = Deferred()

    def dataReceived(self, data: bytes) -> None:
        self.data += data

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.lost.callback(reason.value)


def test_tcp_works_both_ways_with_large_data_and_half_closed_connections(run: Run) -> None:
    async def main() -> None:
        reactor = LoopReactor(asyncio.get_running_loop())
        port = reactor.listenTCP(0, Factory.forProtocol(Echo), interface="127.0.0.1")
        endpoint = LoopEndpoint(reactor, ("localhost", port.getHost().port))
        client: Any = await result_of(endpoint.connect(Factory.forProtocol(Client)))
        client.transport.write(b"x" * 2_000_000)
        client.transport.loseWriteConnection()
        reason = await result_of(client.lost)
        assert isinstance(reason, ConnectionDone)
        assert client.data == b"x" * 2_000_000
        await result_of(port.stopListening())
        assert (reactor.getReaders(), reactor.getWriters()) == ([], [])

    run(main())


def test_what_fails_while_it_reads_is_logged_and_disconnected(run: Run) -> None:
    class Failing(Protocol):
        def dataReceived(self, data: bytes) -> None:
            raise ZeroDivisionError("on purpose")

    async def main() -> None:
        reactor = LoopReactor(asyncio.get_running_loop())
        port = reactor.listenTCP(0, Factory.forProtocol(Failing), interface="127.0.0.1")
        client: Any = await result_of(
            LoopEndpoint(reactor, ("127.0.0.1", port.getHost().port)).connect(Factory.forProtocol(Client))
        )
        client.transport.write(b"x")
        await result_of(client.lost)
        port.stopListening()

    with capturedLogs() as logged:
        run(main())
    assert [event["log_failure"].type for event in logged if "log_failure" in event] == [ZeroDivisionError]


def test_a_refused_connection_and_an_unknown_name_are_told(run: Run) -> None:
    async def main(host: str, port: int) -> None:
        reactor = LoopReactor(asyncio.get_running_loop())
        await result_of(LoopEndpoint(reactor, (host, port)).connect(Factory.forProtocol(Client)))

    with pytest.raises(ConnectionRefusedError):
        run(main("127.0.0.1", 1))
    with pytest.raises(DNSLookupError, match="nobody"):
        run(main("nobody.invalid", 1))


def test_addresses_of_a_name_are_tried_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        reactor = LoopReactor(loop)
        port = reactor.listenTCP(0, Factory.forProtocol(Echo), interface="127.0.0.1")
        number = port.getHost().port

        async def found(*arguments: object, **options: object) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, number)) for host in ("127.0.0.2", "127.0.0.1")]

        monkeypatch.setattr(loop, "getaddrinfo", found)
        client: Any = await result_of(LoopEndpoint(reactor, ("both", number)).connect(Factory.forProtocol(Client)))
        assert client.transport.getPeer().host == "127.0.0.1"
        client.transport.loseConnection()
        await result_of(client.lost)
        await result_of(port.stopListening())

    asyncio.run(main())


def test_removed_descriptors_are_watched_no_longer(run: Run) -> None:
    async def main() -> None:
        reactor = LoopReactor(asyncio.get_running_loop())
        port = reactor.listenTCP(0, Factory.forProtocol(Echo), interface="127.0.0.1")
        assert reactor.getReaders() == [port]
        assert reactor.removeAll() == [port]
        assert not reactor.getReaders()
        assert await result_of(reactor.resolve("127.0.0.1")) == "127.0.0.1"
        assert await result_of(reactor.resolve("localhost")) == "127.0.0.1"
        with pytest.raises(DNSLookupError):
            await result_of(reactor.resolve("nobody.invalid"))
        await result_of(port.stopListening())

    run(main())


def test_only_addresses_of_the_wanted_kind_are_told(run: Run) -> None:
    @implementer(IResolutionReceiver)
    class Receiver:
        def __init__(self) -> None:
            self.found: list[str] = []
            self.done = asyncio.get_running_loop().create_future()

        def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
            assert resolutionInProgress.name == "127.0.0.1"

        def addressResolved(self, address: Any) -> None:
            self.found.append(address.host)

        def resolutionComplete(self) -> None:
            self.done.set_result(None)

    async def main(kinds: list[Any] | None) -> list[str]:
        receiver = Receiver()
        resolver = LoopReactor(asyncio.get_running_loop()).nameResolver
        resolver.resolveHostName(receiver, "127.0.0.1", addressTypes=kinds)
        await receiver.done
        return receiver.found

    assert run(main(None)) == ["127.0.0.1"]
    assert run(main([IPv6Address])) == []


def test_a_loop_that_cannot_watch_sockets_is_refused() -> None:
    class Proactor(asyncio.SelectorEventLoop):
        def remove_reader(self, fd: Any) -> bool:
            raise NotImplementedError

    loop = Proactor()
    with pytest.raises(ConfigurationError, match=r"Proactor cannot watch sockets; use asyncio\.SelectorEventLoop"):
        LoopReactor(loop)
    loop.close()
