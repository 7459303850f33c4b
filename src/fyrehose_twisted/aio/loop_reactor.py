"""What the shells of this library need of a reactor, on an asyncio event loop.

It offers a clock, readiness of sockets, TCP and name lookups of one event loop. It is not Twisted's reactor: it is not
installed, has no life cycle, and neither runs nor stops the loop.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from twisted.internet import main, tcp
from twisted.internet.address import IPv4Address, IPv6Address
from twisted.internet.defer import Deferred, succeed
from twisted.internet.error import AlreadyCalled, AlreadyCancelled, ConnectionDone, ConnectionLost, DNSLookupError
from twisted.internet.interfaces import (
    IAddress,
    IDelayedCall,
    IHalfCloseableDescriptor,
    IHostnameResolver,
    IHostResolution,
    IReactorFDSet,
    IReactorPluggableNameResolver,
    IReactorTCP,
    IReactorTime,
    IResolutionReceiver,
)
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.net.addresses import ip_version

_log = Logger()


class _Descriptor(Protocol):
    """Socket of a Twisted transport."""

    def fileno(self) -> int: ...

    def doRead(self) -> Exception | None: ...

    def doWrite(self) -> Exception | None: ...

    def connectionLost(self, reason: Failure) -> None: ...


@implementer(IReactorTime, IReactorFDSet, IReactorTCP, IReactorPluggableNameResolver)
class LoopReactor:
    """Reactor interfaces of an event loop.

    :param loop: a loop that can watch sockets, such as asyncio's default on Unix, or uvloop.
    :raises ConfigurationError: if it cannot.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.nameResolver: IHostnameResolver = _LoopResolver(loop)
        self._readers: dict[_Descriptor, int] = {}
        self._writers: dict[_Descriptor, int] = {}
        _check_watches_sockets(loop)

    # Time

    def seconds(self) -> float:
        """Twisted: return the time, UTC seconds since 1970."""
        return time.time()

    def callLater(self, delay: float, callable: Callable[..., object], *args: object, **kwargs: object) -> LoopCall:
        """Twisted: call a function after ``delay`` seconds."""
        return LoopCall(self.loop, delay, callable, args, kwargs)

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Twisted: return the pending calls, which only the event loop knows."""
        return ()

    # Sockets

    def addReader(self, reader: Any) -> None:
        """Twisted: call ``doRead`` whenever the socket is readable."""
        if reader not in self._readers:
            self._readers[reader] = descriptor = reader.fileno()
            self.loop.add_reader(descriptor, self._handle, reader, True)

    def addWriter(self, writer: Any) -> None:
        """Twisted: call ``doWrite`` whenever the socket is writable."""
        if writer not in self._writers:
            self._writers[writer] = descriptor = writer.fileno()
            self.loop.add_writer(descriptor, self._handle, writer, False)

    def removeReader(self, reader: Any) -> None:
        """Twisted: undo :meth:`addReader`."""
        descriptor = self._readers.pop(reader, None)
        if descriptor is not None:
            self.loop.remove_reader(descriptor)

    def removeWriter(self, writer: Any) -> None:
        """Twisted: undo :meth:`addWriter`."""
        descriptor = self._writers.pop(writer, None)
        if descriptor is not None:
            self.loop.remove_writer(descriptor)

    def removeAll(self) -> list[Any]:
        """Twisted: stop watching all sockets, and return what watched them."""
        watched = list(dict.fromkeys((*self._readers, *self._writers)))
        for descriptor in watched:
            self.removeReader(descriptor)
            self.removeWriter(descriptor)
        return watched

    def getReaders(self) -> list[Any]:
        """Twisted: return what :meth:`addReader` was called with."""
        return list(self._readers)

    def getWriters(self) -> list[Any]:
        """Twisted: return what :meth:`addWriter` was called with."""
        return list(self._writers)

    def _handle(self, watched: _Descriptor, is_read: bool) -> None:
        try:
            lost = watched.doRead() if is_read else watched.doWrite()
        except Exception as error:
            _log.failure("{watched} failed", watched=watched)
            lost = error
        if lost is not None:
            self._disconnect(watched, lost, is_read)

    def _disconnect(self, watched: _Descriptor, why: Exception, is_read: bool) -> None:
        self.removeReader(watched)
        reason = Failure(why if isinstance(why, ConnectionDone | ConnectionLost) else main.CONNECTION_LOST)
        if is_read and isinstance(why, ConnectionDone) and IHalfCloseableDescriptor.providedBy(watched):
            IHalfCloseableDescriptor(watched).readConnectionLost(reason)
            return
        self.removeWriter(watched)
        watched.connectionLost(reason)

    # TCP

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        """Twisted: listen on a port."""
        listening = tcp.Port(port, factory, backlog, interface, self)
        listening.startListening()
        return listening

    def connectTCP(
        self, host: str, port: int, factory: Any, timeout: float = 30, bindAddress: tuple[str, int] | None = None
    ) -> Any:
        """Twisted: connect to an IP address."""
        connector = tcp.Connector(host, port, factory, timeout, bindAddress, self)
        connector.connect()
        return connector

    # Names

    def installNameResolver(self, resolver: IHostnameResolver) -> IHostnameResolver:
        """Twisted: replace the resolver."""
        previous, self.nameResolver = self.nameResolver, resolver
        return previous

    def resolve(self, name: str, timeout: Sequence[int] = ()) -> Deferred[str]:
        """Twisted: return a Deferred of an IPv4 address of a host."""
        if ip_version(name) == 4:
            return succeed(name)
        found: Deferred[str] = Deferred()
        self.nameResolver.resolveHostName(_FirstAddress(found, name), name, addressTypes=[IPv4Address])
        return found


def _check_watches_sockets(loop: asyncio.AbstractEventLoop) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unwatched:
        try:
            loop.remove_reader(unwatched.fileno())
        except NotImplementedError:
            raise ConfigurationError(
                f"the event loop {type(loop).__name__} cannot watch sockets; use asyncio.SelectorEventLoop"
            ) from None


@implementer(IDelayedCall)
class LoopCall:
    """Pending call. Moving it to a later time costs little, as a timer of asyncio cannot be moved."""

    __slots__ = ("_at", "_call", "_handle", "_loop", "_timer_at", "_was_called")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        delay: float,
        function: Callable[..., object],
        arguments: tuple[object, ...],
        keywords: dict[str, object],
    ) -> None:
        self._loop = loop
        self._call = function, arguments, keywords
        self._was_called = False
        self._at = self._timer_at = loop.time() + delay
        self._handle: asyncio.Handle | None
        if delay <= 0:
            self._handle = loop.call_soon(self._fire)
        else:
            self._handle = loop.call_at(self._at, self._fire)

    def getTime(self) -> float:
        """Twisted: return when the function is called, UTC seconds since 1970."""
        return time.time() + self._at - self._loop.time()

    def cancel(self) -> None:
        """Twisted: cancel the call."""
        self._check()
        handle, self._handle = self._handle, None
        if handle is not None:
            handle.cancel()

    def delay(self, secondsLater: float) -> None:
        """Twisted: move the call by some seconds."""
        self._check()
        self._move(self._at + secondsLater)

    def reset(self, secondsFromNow: float) -> None:
        """Twisted: move the call to a time from now."""
        self._check()
        self._move(self._loop.time() + secondsFromNow)

    def active(self) -> bool:
        """Twisted: return whether the call is still to come."""
        return self._handle is not None

    def _check(self) -> None:
        if self._was_called:
            raise AlreadyCalled
        if self._handle is None:
            raise AlreadyCancelled

    def _move(self, at: float) -> None:
        self._at = at
        if at < self._timer_at and self._handle is not None:
            self._handle.cancel()
            self._start_timer()

    def _start_timer(self) -> None:
        self._timer_at = self._at
        self._handle = self._loop.call_at(self._at, self._fire)

    def _fire(self) -> None:
        if self._at > self._timer_at:
            self._start_timer()
            return
        self._handle = None
        self._was_called = True
        function, arguments, keywords = self._call
        function(*arguments, **keywords)


@implementer(IHostnameResolver)
class _LoopResolver:
    """Name lookups by the event loop, whose threads do not hold it up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lookups: set[asyncio.Task[None]] = set()

    def resolveHostName(
        self,
        resolutionReceiver: IResolutionReceiver,
        hostName: str,
        portNumber: int = 0,
        addressTypes: Sequence[type[IAddress]] | None = None,
        transportSemantics: str = "TCP",
    ) -> IHostResolution:
        """Twisted: look up a host."""
        lookup = self._loop.create_task(self._look_up(resolutionReceiver, hostName, portNumber, addressTypes))
        self._lookups.add(lookup)  # The loop itself keeps tasks only weakly.
        lookup.add_done_callback(self._lookups.discard)
        resolution = _Resolution(hostName, lookup)
        resolutionReceiver.resolutionBegan(resolution)
        return resolution

    async def _look_up(
        self, receiver: IResolutionReceiver, host: str, port: int, kinds: Sequence[type[IAddress]] | None
    ) -> None:
        wanted = (IPv4Address, IPv6Address) if kinds is None else kinds
        try:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError:
            found = []
        for family, _, _, _, name in found:
            kind = IPv6Address if family == socket.AF_INET6 else IPv4Address
            if kind in wanted:
                receiver.addressResolved(kind("TCP", *name))
        receiver.resolutionComplete()


@implementer(IHostResolution)
class _Resolution:
    def __init__(self, name: str, lookup: asyncio.Task[None]) -> None:
        self.name = name
        self._lookup = lookup

    def cancel(self) -> None:
        """Twisted: stop."""
        self._lookup.cancel()


@implementer(IResolutionReceiver)
class _FirstAddress:
    """Receiver of the addresses of a host, which takes the first."""

    def __init__(self, found: Deferred[str], host: str) -> None:
        self._found, self._host = found, host

    def resolutionBegan(self, resolutionInProgress: IHostResolution) -> None:
        """Twisted: the lookup has begun."""

    def addressResolved(self, address: Any) -> None:
        """Twisted: an address was found."""
        if not self._found.called:
            self._found.callback(str(address.host))

    def resolutionComplete(self) -> None:
        """Twisted: there are no more."""
        if not self._found.called:
            self._found.errback(DNSLookupError(f"no address for {self._host!r}"))
