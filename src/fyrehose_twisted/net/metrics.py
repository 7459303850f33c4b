"""Where Prometheus reads the counters of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.metrics import MetricsPage
from fyrehose_twisted.web.site import Render, Route, WebSite


def metrics_site(collector: Collector, pages: Mapping[str, Render] | None = None) -> WebSite:
    """Return a web site that serves ``/metrics``.

    :param pages: other pages to serve beside it, by path.
    """
    from twisted.internet import reactor

    config = SiteConfig(max_body=1, max_connections=64, any_name_off_loopback=True)
    routes = {"/metrics": MetricsPage([collector]).get, **(pages or {})}
    return WebSite([Route(path, {b"GET": get}) for path, get in routes.items()], config, reactor)


class InfoCollector(Collector):
    """What a service is, as labels of ``fyrehose_info``, whose value is 1.

    :param labels: such as ``stream``; one without a value is left out.
    """

    def __init__(self, service: str, **labels: str | None) -> None:
        self._service = service
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yield the one metric."""
        yield info_metric(self._service, **self._labels)


def info_metric(service: str, **labels: str | None) -> Metric:
    """Return ``fyrehose_info``; see :class:`InfoCollector`."""
    given = {"service": service, "version": _version(), **{name: value for name, value in labels.items() if value}}
    family = GaugeMetricFamily("fyrehose_info", "What the service is", labels=list(given))
    family.add_metric(list(given.values()), 1)
    return family


def label_gauge(name: str, description: str, label: str, value: str | None) -> Metric:
    """Return a gauge of 1 whose label says ``value``; nothing has it where ``value`` is ``None``."""
    return enum_gauge(name, description, label, {} if value is None else {value: 1})


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # Slow to import, and not needed by who is not read.

    try:
        return version("fyrehose_twisted")
    except PackageNotFoundError:
        return "unknown"  # It runs from a source tree that was never installed.


def gauge_families(prefix: str, rows: Iterable[tuple[str, str, float]]) -> Iterator[Metric]:
    """Yield gauges: name, description and value of each."""
    for name, description, value in rows:
        yield GaugeMetricFamily(f"{prefix}_{name}", description, value=value)


def enum_gauge(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return one gauge with a value for each of the values of a label."""
    family = GaugeMetricFamily(name, description, labels=[label])
    for one, value in values.items():
        family.add_metric([one], value)
    return family


def counter_family(prefix: str, counters: Mapping[str, int]) -> Metric:
    """Return what a node counted, by name."""
    family = CounterMetricFamily(f"{prefix}_counted", "What was counted since the start", labels=["what"])
    for what, count in sorted(counters.items()):
        family.add_metric([what], count)
    return family
