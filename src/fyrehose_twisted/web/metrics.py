"""Route ``/metrics`` and the metrics of a site. Values are computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import query_params
from fyrehose_twisted.web.response import HttpResponse

if TYPE_CHECKING:
    from fyrehose_twisted.web.site import WebSite


class SiteCollector(Collector):
    """Collector of the metrics ``PREFIX_*`` of one site.

    :param prefix: prefix of the metric names, such as ``fyrehose_parcels_web``.
    """

    def __init__(self, prefix: str, site: WebSite) -> None:
        self._prefix = prefix
        self._site = site

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        prefix, site, streams = self._prefix, self._site, self._site.streams
        labels = ["route", "method", "status"]
        requests = CounterMetricFamily(f"{prefix}_requests", "Requests answered", labels=labels)
        for (route, method, status), count in sorted(site.requests.items()):
            requests.add_metric([route, method.decode(), str(status)], count)
        yield requests
        yield GaugeMetricFamily(f"{prefix}_connections", "Open connections", value=site.connections)
        yield CounterMetricFamily(
            f"{prefix}_refused_connections", "Connections refused above the limit", value=site.refused
        )
        if site.clients.limits is not None:
            yield GaugeMetricFamily(f"{prefix}_clients", "Clients with a rate limit budget", value=len(site.clients))
            limited = CounterMetricFamily(
                f"{prefix}_limited", "Requests refused by the client's limits", labels=["what"]
            )
            for budget, count in sorted(site.clients.refused.items()):
                limited.add_metric([budget], count)
            yield limited
        if streams is not None:
            yield GaugeMetricFamily(f"{prefix}_streams", "Open streams", value=len(streams))
            ended = CounterMetricFamily(f"{prefix}_streams_ended", "Streams ended, by reason", labels=["reason"])
            for reason, count in sorted(streams.ended.items()):
                ended.add_metric([reason], count)
            yield ended
            yield CounterMetricFamily(f"{prefix}_skips", "Gaps in streams", value=streams.skips)


class MetricsPage:
    """Handler that responds with the metrics of ``collectors``. The sequence may grow later."""

    def __init__(self, collectors: Sequence[Collector]) -> None:
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all collectors."""
        for collector in self._collectors:
            yield from collector.collect()

    def get(self, request: WebRequest) -> HttpResponse:
        """Respond in the Prometheus text format."""
        query_params(request)
        return HttpResponse(200, generate_latest(self), type=CONTENT_TYPE_LATEST.encode())
