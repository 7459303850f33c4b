"""Where a service is reached: by other nodes, clients, commands on this machine, and whoever reads metrics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.addresses import show_place
from fyrehose_twisted.net.connection import describe

_from_string: Any = serverFromString
"""Twisted's, which is not annotated."""


class Entrance(NamedTuple):
    """One place to listen on.

    :ivar option: which option named it.
    """

    option: str
    description: str
    endpoint: Any
    factory: Any


class Entrances:
    """Binds ports and lets others in once there is somebody to speak to.

    :param example: an endpoint, for who wrote something else.
    :param name: what to call in the log what other nodes come in by.
    :ivar hosts: addresses that are listened on, by option.
    :ivar door: lets other nodes in, once :meth:`open` was called.
    """

    log = Logger()

    def __init__(self, reactor: Any, example: str, name: str) -> None:
        self.hosts: dict[str, list[Any]] = {}
        self.door = Door(name)
        self._reactor = reactor
        self._example = example
        self._entrances: list[Entrance] = []
        self._ports: dict[Entrance, Deferred[Any]] = {}

    def add(self, option: str, description: str, factory: Any) -> None:
        """Listen there, too.

        :raises ConfigurationError: if ``description`` is no endpoint.
        """
        try:
            endpoint = _from_string(self._reactor, description)
        except Exception as error:  # What parsers of endpoints raise is their own affair.
            raise ConfigurationError(
                f"--{option} {description!r} is not an endpoint such as {self._example} ({error})"
            ) from error
        self.add_entrance(Entrance(option, description, endpoint, factory))

    def add_entrance(self, entrance: Entrance) -> None:
        """Listen there, too."""
        self._entrances.append(entrance)

    def bind(self) -> None:
        """Listen on what is not listened on yet."""
        for entrance in self._entrances:
            if entrance not in self._ports:
                self._ports[entrance] = maybeDeferred(entrance.endpoint.listen, entrance.factory)
                self._ports[entrance].addCallback(self._bound, entrance)

    def failed(self, tell: Callable[[Exception], object]) -> None:
        """Tell what cannot be listened on."""

        def explain(failure: Failure, entrance: Entrance) -> None:
            error: Any = failure.value
            if not failure.check(CancelledError):
                tell(_explained(error, entrance))

        for entrance, port in self._ports.items():
            port.addErrback(explain, entrance)

    async def bound(self) -> None:
        """Listen on what is not listened on yet, and wait until all are.

        :raises OperationalError: if one cannot be listened on.
        """
        self.bind()
        for entrance, port in self._ports.items():
            bound: Deferred[Any] = Deferred()
            port.addBoth(_shared, bound)
            try:
                await bound
            except CancelledError:
                raise
            except Exception as error:
                raise _explained(error, entrance) from error

    @property
    def all_bound(self) -> bool:
        """Whether all of them are listened on."""
        return sum(map(len, self.hosts.values())) == len(self._entrances)

    @property
    def places(self) -> dict[str, list[str]]:
        """What is listened on, by option, as people write it."""
        return {option: [_shown(host) for host in hosts] for option, hosts in self.hosts.items()}

    def __str__(self) -> str:
        return ", ".join(place for places in self.places.values() for place in places)

    def open(self, factory: Any) -> None:
        """Let other nodes in."""
        self.door.inner = factory

    async def close(self) -> None:
        """Stop listening. What is open stays so."""
        self.door.inner = None
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.cancel()
            port.addErrback(lambda failure: None)
            listening = await port
            if listening is not None:
                await maybeDeferred(listening.stopListening)
        self.hosts.clear()

    def say(self, entrance: Entrance, port: Any, place: str) -> None:
        """Log that ``place`` is listened on."""
        self.log.info("--{option}: listening on {place}", option=entrance.option, place=place)

    def _bound(self, port: Any, entrance: Entrance) -> Any:
        host = port.getHost()
        self.hosts.setdefault(entrance.option, []).append(host)
        self.say(entrance, port, _shown(host))
        return port


def _shown(host: Any) -> str:
    if hasattr(host, "port"):
        return show_place((host.host, host.port))
    name = getattr(host, "name", b"")
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _explained(error: BaseException, entrance: Entrance) -> OperationalError:
    reason = describe(getattr(error, "socketError", error))
    return OperationalError(f"--{entrance.option}: cannot listen on {entrance.description}: {reason}")


def _shared(result: Any, other: Deferred[Any]) -> Any:
    other.callback(result)  # A Failure, too.
    return result


class Door(Factory):
    """Lets other nodes in, once there is a node."""

    noisy = False

    def __init__(self, name: str) -> None:
        self.inner: Any = None
        self._name = name

    def logPrefix(self) -> str:
        """Twisted: what to call it in the log."""
        return self._name

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: somebody has connected."""
        return None if self.inner is None else self.inner.buildProtocol(addr)
