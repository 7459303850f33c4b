"""Metrics port of a service, and its common metrics."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from twisted.internet.defer import Deferred
from twisted.internet.error import CannotListenError
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, OperationalError
from fyrehose_twisted.net.metrics import InfoCollector, label_gauge
from fyrehose_twisted.net.metrics_port import MetricsPort


class SampleCollector(Collector):
    def __init__(self, name: str) -> None:
        self._name = name

    def collect(self) -> Any:
        yield GaugeMetricFamily(self._name, "One", value=1)


class PortInUseReactor(MemoryReactorClock):
    """A reactor whose ports are all in use."""

    def listenTCP(self, *arguments: Any, **options: Any) -> Any:
        raise CannotListenError("127.0.0.1", 9100, OSError(98, "Address already in use"))


def text_of(collector: Collector) -> str:
    registry = CollectorRegistry()
    registry.register(collector)
    return "".join(line + "\n" for line in generate_latest(registry).decode().splitlines() if line[0] != "#")


def close(port: MetricsPort) -> list[object]:
    done: list[object] = []
    Deferred.fromCoroutine(port.close()).addBoth(done.append)
    return done


def test_a_service_without_a_metrics_endpoint_does_not_listen() -> None:
    reactor = MemoryReactorClock()
    port = MetricsPort(reactor, None)
    port.listen(SampleCollector("a"), on_failure=pytest.fail)
    assert reactor.tcpServers == []
    assert close(port) == [None]


@pytest.mark.parametrize(
    ("description", "interface"),
    [("9100", "127.0.0.1"), ("tcp:9100", "127.0.0.1"), ("tcp:9100:interface=10.0.0.5", "10.0.0.5")],
)
def test_the_metrics_port_listens_on_loopback_by_default(description: str, interface: str) -> None:
    reactor = MemoryReactorClock()
    with capturedLogs() as logged:
        MetricsPort(reactor, description).listen(SampleCollector("a"), SampleCollector("b"), on_failure=pytest.fail)
    ((number, _, _, where),) = reactor.tcpServers
    assert (number, where) == (9100, interface)
    assert [event["log_format"].format(**event)[:18] for event in logged] == ["metrics at http://"]


def test_an_invalid_metrics_endpoint_is_refused_before_listening() -> None:
    with pytest.raises(ConfigurationError, match="'nonsense' is not an endpoint such as tcp:9100"):
        MetricsPort(MemoryReactorClock(), "nonsense")


def test_a_metrics_port_in_use_is_reported() -> None:
    failures: list[Failure] = []
    port = MetricsPort(PortInUseReactor(), "tcp:9100")
    port.listen(SampleCollector("a"), on_failure=failures.append)
    assert isinstance(failures[0].value, OperationalError)
    assert str(failures[0].value) == "--metrics: cannot listen on tcp:9100: Address already in use"
    assert close(port) == [None]


def test_closing_the_metrics_port_twice_is_harmless() -> None:
    reactor = MemoryReactorClock()
    port = MetricsPort(reactor, "tcp:9100")
    port.listen(SampleCollector("a"), on_failure=pytest.fail)
    assert close(port) == close(port) == [None]


def test_the_info_metric_describes_the_service() -> None:
    told = text_of(InfoCollector("backbone", stream="fyrehose://orders", network=None))
    release = version("fyrehose_twisted")
    assert told == f'fyrehose_info{{service="backbone",stream="fyrehose://orders",version="{release}"}} 1.0\n'


@pytest.mark.parametrize(("leader", "told"), [("b", 'fyrehose_leader{leader="b"} 1.0\n'), (None, "")])
def test_an_info_metric_without_a_value_has_no_sample(leader: str | None, told: str) -> None:
    class Leader(Collector):
        def collect(self) -> Any:
            yield label_gauge("fyrehose_leader", "Who leads", "leader", leader)

    assert text_of(Leader()) == told
