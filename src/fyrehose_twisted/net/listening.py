"""Listening ports of a service: for nodes, clients, control commands and metrics."""

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
"""Function of Twisted, which has no annotations."""


class ListeningEndpoint(NamedTuple):
    """Server endpoint to listen on.

    :ivar option: option that specified the endpoint.
    """

    option: str
    description: str
    endpoint: Any
    factory: Any


class ListeningPorts:
    """Listening ports of a service, with a gate that stays closed until the node runs.

    :param example: example of an endpoint, for error messages.
    :param name: log name of the gate.
    :ivar hosts_by_option: bound addresses by option.
    :ivar gate: factory that refuses connections until :meth:`open` is called.
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
        """Add an endpoint by its description.

        :raises ConfigurationError: if ``description`` is not an endpoint.
        """
        try:
            endpoint = _from_string(self._reactor, description)
        except ConfigurationError as error:
            raise ConfigurationError(f"--{option} {description!r}: {error}") from error
        except Exception as error:  # Endpoint parsers raise arbitrary exceptions.
            raise ConfigurationError(
                f"--{option} {description!r} is not an endpoint such as {self._example} ({error})"
            ) from error
        self.add_port(ListeningEndpoint(option, description, endpoint, factory))

    def add_port(self, listening: ListeningEndpoint) -> None:
        """Add an endpoint."""
        self._listening_ports.append(listening)

    def bind(self) -> None:
        """Start to listen on all endpoints not yet bound."""
        for entrance in self._listening_ports:
            if entrance not in self._ports:
                self._ports[entrance] = maybeDeferred(entrance.endpoint.listen, entrance.factory)
                self._ports[entrance].addCallback(self._port_bound, entrance)

    def report_failures(self, report: Callable[[Exception], object]) -> None:
        """Report endpoints that cannot be bound."""

        def explain(failure: Failure, entrance: ListeningEndpoint) -> None:
            error: Any = failure.value
            if not failure.check(CancelledError):
                report(_listen_error(error, entrance))

        for entrance, port in self._ports.items():
            port.addErrback(explain, entrance)

    async def wait_bound(self) -> None:
        """Bind all endpoints and wait until they are bound.

        :raises OperationalError: if an endpoint cannot be bound.
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
        """Whether all endpoints are bound."""
        return sum(map(len, self.hosts_by_option.values())) == len(self._listening_ports)

    @property
    def addresses(self) -> dict[str, list[str]]:
        """Bound addresses by option, formatted for people."""
        return {option: [_format_host(host) for host in hosts] for option, hosts in self.hosts_by_option.items()}

    def __str__(self) -> str:
        return ", ".join(place for places in self.addresses.values() for place in places)

    def open(self, factory: Any) -> None:
        """Open the gate: pass connections to ``factory``."""
        self.gate.inner = factory

    async def close(self) -> None:
        """Stop listening. Open connections stay open."""
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
        """Log a bound address."""
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
    other.callback(result)  # The result may be a Failure.
    return result


class GatedFactory(Factory):
    """Factory that refuses connections until it has an inner factory."""

    noisy = False

    def __init__(self, name: str) -> None:
        self.inner: Any = None
        self._name = name

    def logPrefix(self) -> str:
        """Twisted: return the log prefix."""
        return self._name

    def buildProtocol(self, addr: Any) -> Any:
        """Twisted: return the protocol of a new connection."""
        return None if self.inner is None else self.inner.buildProtocol(addr)
