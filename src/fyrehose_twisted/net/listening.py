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
from fyrehose_twisted.net.addresses import format_address
from fyrehose_twisted.net.connection import describe_failure

_from_string: Any = serverFromString
"""Twisted's, which is not annotated."""


class ListeningEndpoint(NamedTuple):
    """One place to listen on.

    :ivar option: which option named it.
    """

    option: str
    description: str
    endpoint: Any
    factory: Any


class ListeningPorts:
    """Binds ports and lets others in once there is somebody to speak to.

    :param example: an endpoint, for who wrote something else.
    :param name: what to call in the log what other nodes come in by.
    :ivar hosts_by_option: addresses that are listened on, by option.
    :ivar gate: lets other nodes in, once :meth:`open` was called.
    """

    log = Logger()

    def __init__(self, reactor: Any, example: str, name: str) -> None:
        self.hosts_by_option: dict[str, list[Any]] = {}
        self.gate = GatedFactory(name)
        self._reactor = reactor
        self._example = example
        self._listening_ports: list[ListeningEndpoint] = []
        self._ports: dict[ListeningEndpoint, Deferred[Any]] = {}

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
        self.add_port(ListeningEndpoint(option, description, endpoint, factory))

    def add_port(self, listening: ListeningEndpoint) -> None:
        """Listen there, too."""
        self._listening_ports.append(listening)

    def bind(self) -> None:
        """Listen on what is not listened on yet."""
        for entrance in self._listening_ports:
            if entrance not in self._ports:
                self._ports[entrance] = maybeDeferred(entrance.endpoint.listen, entrance.factory)
                self._ports[entrance].addCallback(self._port_bound, entrance)

    def report_failures(self, report: Callable[[Exception], object]) -> None:
        """Tell what cannot be listened on."""

        def explain(failure: Failure, entrance: ListeningEndpoint) -> None:
            error: Any = failure.value
            if not failure.check(CancelledError):
                report(_listen_error(error, entrance))

        for entrance, port in self._ports.items():
            port.addErrback(explain, entrance)

    async def wait_bound(self) -> None:
        """Listen on what is not listened on yet, and wait until all are.

        :raises OperationalError: if one cannot be listened on.
        """
        self.bind()
        for entrance, port in self._ports.items():
            bound: Deferred[Any] = Deferred()
            port.addBoth(_forward_result, bound)
            try:
                await bound
            except CancelledError:
                raise
            except Exception as error:
                raise _listen_error(error, entrance) from error

    @property
    def all_bound(self) -> bool:
        """Whether all of them are listened on."""
        return sum(map(len, self.hosts_by_option.values())) == len(self._listening_ports)

    @property
    def addresses(self) -> dict[str, list[str]]:
        """What is listened on, by option, as people write it."""
        return {option: [_format_host(host) for host in hosts] for option, hosts in self.hosts_by_option.items()}

    def __str__(self) -> str:
        return ", ".join(place for places in self.addresses.values() for place in places)

    def open(self, factory: Any) -> None:
        """Let other nodes in."""
        self.gate.inner = factory

    async def close(self) -> None:
        """Stop listening. What is open stays so."""
        self.gate.inner = None
        ports, self._ports = self._ports, {}
        for port in ports.values():
            port.cancel()
            port.addErrback(lambda failure: None)
            listening = await port
            if listening is not None:
                await maybeDeferred(listening.stopListening)
        self.hosts_by_option.clear()

    def log_listening(self, listening: ListeningEndpoint, port: Any, address: str) -> None:
        """Log that ``address`` is listened on."""
        self.log.info("--{option}: listening on {place}", option=listening.option, place=address)

    def _port_bound(self, port: Any, listening: ListeningEndpoint) -> Any:
        host = port.getHost()
        self.hosts_by_option.setdefault(listening.option, []).append(host)
        self.log_listening(listening, port, _format_host(host))
        return port


def _format_host(host: Any) -> str:
    if hasattr(host, "port"):
        return format_address((host.host, host.port))
    name = getattr(host, "name", b"")
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)


def _listen_error(error: BaseException, entrance: ListeningEndpoint) -> OperationalError:
    reason = describe_failure(getattr(error, "socketError", error))
    return OperationalError(f"--{entrance.option}: cannot listen on {entrance.description}: {reason}")


def _forward_result(result: Any, other: Deferred[Any]) -> Any:
    other.callback(result)  # A Failure, too.
    return result


class GatedFactory(Factory):
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
