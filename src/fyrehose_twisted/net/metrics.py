"""Prometheus metrics of services."""

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

    :param pages: additional pages by path.
    """
    from twisted.internet import reactor

    config = SiteConfig(max_body=1, max_connections=64, any_name_off_loopback=True)
    routes = {"/metrics": MetricsPage([collector]).get, **(pages or {})}
    return WebSite([Route(path, {b"GET": get}) for path, get in routes.items()], config, reactor)


class LabelledCollector(Collector):
    """Collector of the metrics of similar collectors, with a label that tells them apart.

    :param label: name of the label. Samples that have it keep their value.
    :param collectors: collectors by the value of the label.
    """

    def __init__(self, label: str, collectors: Mapping[str, Collector]) -> None:
        self._label = label
        self._collectors = collectors

    def collect(self) -> Iterator[Metric]:
        """Yield each metric once, with the samples of all collectors."""
        families: dict[str, Metric] = {}
        for value, collector in self._collectors.items():
            for family in collector.collect():
                merged = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    merged.samples.append(sample._replace(labels={self._label: value, **sample.labels}))
        yield from families.values()


class InfoCollector(Collector):
    """Collector of ``fyrehose_info``, a gauge of 1 whose labels describe the service.

    :param labels: labels such as ``stream``; those without a value are omitted.
    """

    def __init__(self, service: str, **labels: str | None) -> None:
        self._service = service
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        """Yield the metric."""
        yield info_metric(self._service, **self._labels)


def info_metric(service: str, **labels: str | None) -> Metric:
    """Return ``fyrehose_info``; see :class:`InfoCollector`."""
    given = {"service": service, "version": _version(), **{name: value for name, value in labels.items() if value}}
    family = GaugeMetricFamily("fyrehose_info", "Service and version", labels=list(given))
    family.add_metric(list(given.values()), 1)
    return family


def label_gauge(name: str, description: str, label: str, value: str | None) -> Metric:
    """Return an info-style gauge labelled ``value``; no sample if ``None``."""
    return enum_gauge(name, description, label, {} if value is None else {value: 1})


@cache
def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # Slow to import, and needed only for a scrape.

    try:
        return version("fyrehose_twisted")
    except PackageNotFoundError:
        return "unknown"  # Source tree without an installation.


def gauge_families(prefix: str, rows: Iterable[tuple[str, str, float]]) -> Iterator[Metric]:
    """Yield gauges from rows of name, description and value."""
    for name, description, value in rows:
        yield GaugeMetricFamily(f"{prefix}_{name}", description, value=value)


def counter_families(prefix: str, rows: Iterable[tuple[str, str, float]]) -> Iterator[Metric]:
    """Yield counters from rows of name, description and value."""
    for name, description, value in rows:
        yield CounterMetricFamily(f"{prefix}_{name}", description, value=value)


def enum_gauge(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return a gauge with one sample per label value."""
    family = GaugeMetricFamily(name, description, labels=[label])
    for label_value, value in values.items():
        family.add_metric([label_value], value)
    return family


def counter_family(prefix: str, counters: Mapping[str, int]) -> Metric:
    """Return the counters of a node as one family, labelled by name."""
    return labelled_counter(f"{prefix}_counted", "Events since the start, by name", "what", counters)


def labelled_counter(name: str, description: str, label: str, counts: Mapping[str, int]) -> Metric:
    """Return a counter with one sample per label value."""
    family = CounterMetricFamily(name, description, labels=[label])
    for one, count in sorted(counts.items()):
        family.add_metric([one], count)
    return family
