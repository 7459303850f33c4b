"""Where a node is reached: other nodes, commands on this machine, and whoever reads metrics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.hydra.carriers.proving import Proving, proved_factory
from fyrehose_twisted.hydra.carriers.udp import UdpDoor, UdpPort
from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.net.dialling import show_place
from fyrehose_twisted.net.link import describe
from fyrehose_twisted.options import parse_listen

_from_string: Any = serverFromString
"""Twisted's, which is not annotated."""
EXAMPLE = "tcp:6174"


class _Entrance(NamedTuple):
    option: str
    description: str
    endpoint: Any
    factory: Any


class Doors:
    """Binds ports and lets others in once there is somebody to speak to.

    :param listen: where other nodes come in: server endpoints, or ``udp:PORT:interface=ADDRESS``.
    :param secret: what other nodes have to know.
    :ivar udp: the UDP port, if there is one.
    :ivar places: what is listened on, by option.
    :raises ConfigurationError: if something is no endpoint.
    """

    log = Logger()

    def __init__(
        self,
        reactor: Any,
        listen: Sequence[str],
        secret: bytes | None,
        timers: Timers,
        *,
        proving: Proving | None = None,
    ) -> None:
        self.udp: UdpPort | None = None
        self.places: dict[str, list[str]] = {}
        self._reactor = reactor
        self._door = _Door()
        self._entrances: list[_Entrance] = []
        self._ports: dict[_Entrance, Deferred[Any]] = {}
        proved = self._door if proving is None else proved_factory(self._door, proving, reactor)
        for text in listen:
            listening = parse_listen("listen", text, EXAMPLE, datagrams=True)
            if not listening.datagrams:
                self.add("listen", listening.description, proved)
                continue
            if self.udp is not None:
                raise ConfigurationError(f"--listen {text}: there is a UDP port already; a node has one at most")
            assert listening.address is not None
            interface, port = listening.address
            self.udp = UdpPort(reactor, interface, port, secret, timers.max_ping)
            self._entrances.append(_Entrance("listen", listening.description, self.udp.server_endpoint(), self._door))

    def add(self, option: str, description: str, factory: Any) -> None:
        """Listen there, too.

        :raises ConfigurationError: if ``description`` is no endpoint.
        """
        description = parse_listen(option, description, EXAMPLE).description
        try:
            endpoint = _from_string(self._reactor, description)
        except Exception as error:  # What parsers of endpoints raise is their own affair.
            raise ConfigurationError(
                f"--{option} {description!r} is not an endpoint such as {EXAMPLE} ({error})"
            ) from error
        self._entrances.append(_Entrance(option, description, endpoint, factory))

    def bind(self) -> None:
        """Listen on what is not listened on yet."""
        for entrance in self._entrances:
            if entrance not in self._ports:
                self._ports[entrance] = maybeDeferred(entrance.endpoint.listen, entrance.factory)
                self._ports[entrance].addCallback(self._bound, entrance)

    def failed(self, tell: Callable[[Exception], object]) -> None:
        """Tell what cannot be listened on."""

        def explain(failure: Failure, entrance: _Entrance) -> None:
            error = failure.value
            reason = describe(getattr(error, "socketError", error))
            tell(OperationalError(f"--{entrance.option}: cannot listen on {entrance.description}: {reason}"))

        for entrance, port in self._ports.items():
            port.addErrback(explain, entrance)

    def open(self, factory: Any) -> None:
        """Let other nodes in."""
        self._door.inner = factory

    async def end(self) -> None:
        """Let go of the UDP port, once all links are closed."""
        if self.udp is not None:
            await self.udp.stop()

    async def close(self) -> None:
        """Stop listening. What is open stays so."""
        self._door.inner = None
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.addErrback(lambda failure: None)
            listening = await port
            if listening is not None:
                await maybeDeferred(listening.stopListening)

    def _bound(self, port: Any, entrance: _Entrance) -> Any:
        host: Any = port.getHost()
        if hasattr(host, "port"):
            place = show_place((host.host, host.port))
        else:
            name = getattr(host, "name", b"")
            place = name.decode(errors="replace") if isinstance(name, bytes) else str(name)
        self.places.setdefault(entrance.option, []).append(place)
        kind = "UDP " if isinstance(port, UdpDoor) else ""
        self.log.info("--{option}: listening on {kind}{place}", option=entrance.option, kind=kind, place=place)
        return port


class _Door(Factory):
    """Lets other nodes in, once there is a node."""

    noisy = False

    def __init__(self) -> None:
        self.inner: Any = None

    def logPrefix(self) -> str:
        """Twisted: what to call it in the log."""
        return "hydra"

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: somebody has connected."""
        return None if self.inner is None else self.inner.buildProtocol(addr)
