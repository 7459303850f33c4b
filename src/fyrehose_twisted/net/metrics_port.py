"""Metrics port of a service without an HTTP port of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from twisted.python.failure import Failure

from fyrehose_twisted.net.addresses import loopback_endpoint
from fyrehose_twisted.net.listening import ListeningEndpoint, ListeningPorts
from fyrehose_twisted.net.metrics import metrics_site
from fyrehose_twisted.web.site import Render

EXAMPLE = "tcp:9100"


class MetricsPort(ListeningPorts):
    """Listening port that serves ``/metrics`` while a service runs.

    :param description: server endpoint of ``--metrics``; TCP without an interface listens on loopback. ``None`` for no
        port.
    :param pages: additional pages by path.
    :raises ConfigurationError: if ``description`` is not an endpoint.
    """

    def __init__(self, reactor: Any, description: str | None, pages: Mapping[str, Render] | None = None) -> None:
        super().__init__(reactor, EXAMPLE, "metrics")
        self._collector = _CombinedCollector()
        if description is not None:
            endpoint = loopback_endpoint(reactor, description)
            self.add_port(ListeningEndpoint("metrics", description, endpoint, metrics_site(self._collector, pages)))

    def listen(self, *collectors: Collector, on_failure: Callable[[Failure], object]) -> None:
        """Serve the metrics of ``collectors`` until :meth:`close`.

        :param on_failure: called with an :class:`~fyrehose_twisted.errors.OperationalError` if the port cannot be
            bound.
        """
        self._collector.collectors = collectors
        self.bind()
        self.report_failures(lambda error: on_failure(Failure(error)))

    def log_listening(self, listening: ListeningEndpoint, port: Any, address: str) -> None:
        """See :meth:`~fyrehose_twisted.net.listening.ListeningPorts.log_listening`."""
        self.log.info("metrics at http://{place}/metrics", place=address)


class _CombinedCollector(Collector):
    """Collector that combines several collectors."""

    def __init__(self) -> None:
        self.collectors: tuple[Collector, ...] = ()

    def collect(self) -> Iterator[Metric]:
        for collector in self.collectors:
            yield from collector.collect()
