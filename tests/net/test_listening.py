"""Ports that are bound, told of, and let go of."""

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
    """Listens when it is told to."""

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
    made = ListeningPorts(None, "tcp:7000", "test")
    for number, endpoint in enumerate(endpoints):
        made.add_port(ListeningEndpoint(f"option-{number}", f"tcp:{number}", endpoint, Factory()))
    return made


def outcome(coroutine: Any) -> list[Any]:
    done: list[Any] = []
    Deferred.fromCoroutine(coroutine).addBoth(done.append)
    return done


def taken() -> Deferred[Any]:
    return fail(CannotListenError("127.0.0.1", 7_000, OSError(98, "Address already in use")))


def test_what_is_listened_on() -> None:
    made = entrances(Ready(succeed(Port())), Ready(succeed(Port(UNIXAddress(b"here")))))
    assert outcome(made.wait_bound()) == [None]
    assert made.all_bound
    assert made.addresses == {"option-0": ["127.0.0.1:7000"], "option-1": ["here"]}
    assert str(made) == "127.0.0.1:7000, here"


def test_a_port_in_use_is_told_with_its_option() -> None:
    port = Port()
    made = entrances(Ready(succeed(port)), Ready(taken()))
    (failure,) = outcome(made.wait_bound())
    assert failure.check(OperationalError)
    assert str(failure.value) == "--option-1: cannot listen on tcp:1: Address already in use"
    assert not made.all_bound
    told: list[Exception] = []
    made.report_failures(told.append)
    made.report_failures(told.append)
    assert list(map(str, told)) == [str(failure.value)]
    assert outcome(made.close()) == [None]
    assert (port.stopped, made.addresses) == (1, {})


def test_it_closes_while_it_is_still_binding() -> None:
    endpoint = Endpoint()
    made = entrances(endpoint)
    made.bind()
    told: list[Exception] = []
    made.report_failures(told.append)
    binding = outcome(made.wait_bound())
    assert outcome(made.close()) == [None]
    assert (endpoint.cancelled, told, len(binding)) == (1, [], 1)
    # And it can be bound again.
    made.bind()
    assert not made.all_bound
    endpoint.waiting[1].callback(Port())
    assert (made.all_bound, made.addresses) == (True, {"option-0": ["127.0.0.1:7000"]})


def test_nobody_comes_in_before_there_is_somebody_to_speak_to() -> None:
    made, inner = entrances(), Factory.forProtocol(lambda: Factory)  # type: ignore[arg-type]
    assert made.gate.buildProtocol(None) is None
    made.open(inner)
    assert made.gate.buildProtocol(None) is not None
    assert outcome(made.close()) == [None]
    assert made.gate.buildProtocol(None) is None


def test_what_is_no_endpoint() -> None:
    with pytest.raises(ConfigurationError, match="--listen 'nonsense' is not an endpoint such as tcp:7000"):
        entrances().add("listen", "nonsense", Factory())
