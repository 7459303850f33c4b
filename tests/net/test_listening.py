"""Binding, reporting and closing of listening ports."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.protocol import Factory

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.listening import ListeningEndpoint, ListeningPorts


class Port:
    def __init__(self, host: Any = None) -> None:
        self.host = host or IPv4Address("TCP", "127.0.0.1", 7_000)
        self.stopped = 0

    def getHost(self) -> Any:
        return self.host

    def stopListening(self) -> None:
        self.stopped += 1


class Endpoint:
    """An endpoint that listens on request."""

    def __init__(self) -> None:
        self.cancelled = 0
        self.waiting: list[Deferred[Any]] = []

    def listen(self, factory: Any) -> Deferred[Any]:
        self.waiting.append(Deferred(self._cancel))
        return self.waiting[-1]

    def _cancel(self, waiting: Deferred[Any]) -> None:
        self.cancelled += 1


class Ready:
    def __init__(self, result: Deferred[Any]) -> None:
        self.result = result

    def listen(self, factory: Any) -> Deferred[Any]:
        return self.result


def entrances(*endpoints: Any) -> ListeningPorts:
    ports = ListeningPorts(None, "tcp:7000", "test")
    for number, endpoint in enumerate(endpoints):
        ports.add_port(ListeningEndpoint(f"option-{number}", f"tcp:{number}", endpoint, Factory()))
    return ports


def outcome(coroutine: Any) -> list[Any]:
    done: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(done.append)
    return done


def taken() -> Deferred[Any]:
    return fail(CannotListenError("127.0.0.1", 7_000, OSError(98, "Address already in use")))


def test_listening_ports_report_their_addresses() -> None:
    ports = entrances(Ready(succeed(Port())), Ready(succeed(Port(UNIXAddress(b"here")))))
    assert outcome(ports.wait_bound()) == [None]
    assert ports.all_bound
    assert ports.addresses == {"option-0": ["127.0.0.1:7000"], "option-1": ["here"]}
    assert str(ports) == "127.0.0.1:7000, here"


def test_a_listening_port_in_use_is_reported_with_its_option() -> None:
    port = Port()
    ports = entrances(Ready(succeed(port)), Ready(taken()))
    (failure,) = outcome(ports.wait_bound())
    assert failure.check(OperationalError)
    assert str(failure.value) == "--option-1: cannot listen on tcp:1: Address already in use"
    assert not ports.all_bound
    reported: list[Exception] = []
    ports.report_failures(reported.append)
    ports.report_failures(reported.append)
    assert list(map(str, reported)) == [str(failure.value)]
    assert outcome(ports.close()) == [None]
    assert (port.stopped, ports.addresses) == (1, {})


def test_listening_ports_can_be_closed_while_binding() -> None:
    endpoint = Endpoint()
    ports = entrances(endpoint)
    ports.bind()
    reported: list[Exception] = []
    ports.report_failures(reported.append)
    binding = outcome(ports.wait_bound())
    assert outcome(ports.close()) == [None]
    assert (endpoint.cancelled, reported, len(binding)) == (1, [], 1)
    # The ports can be bound again.
    ports.bind()
    assert not ports.all_bound
    endpoint.waiting[1].callback(Port())
    assert (ports.all_bound, ports.addresses) == (True, {"option-0": ["127.0.0.1:7000"]})


def test_connections_are_refused_until_the_gate_opens() -> None:
    ports, inner = entrances(), Factory.forProtocol(lambda: Factory)  # type: ignore[arg-type]
    assert ports.gate.buildProtocol(None) is None
    ports.open(inner)
    assert ports.gate.buildProtocol(None) is not None
    assert outcome(ports.close()) == [None]
    assert ports.gate.buildProtocol(None) is None


def test_an_invalid_listening_endpoint_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--listen 'nonsense' is not an endpoint such as tcp:7000"):
        entrances().add("listen", "nonsense", Factory())


def test_endpoint_whose_files_cannot_be_used_is_reported_as_such() -> None:
    pytest.importorskip("OpenSSL")
    ports = ListeningPorts(object(), "tcp:7878", "node")
    with pytest.raises(ConfigurationError) as raised:
        ports.add("listen", "mtls:0:cert=none:key=k:ca=a", Factory())
    assert str(raised.value) == (
        "--listen 'mtls:0:cert=none:key=k:ca=a': certificate none cannot be read: No such file or directory"
    )
