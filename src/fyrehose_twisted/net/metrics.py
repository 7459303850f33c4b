"""Where Prometheus reads the counters of a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.twisted import MetricsResource
from twisted.web.resource import Resource
from twisted.web.server import Site


def metrics_site(collector: Collector) -> Site:
    """Return a web site that serves ``/metrics``."""
    registry = CollectorRegistry()
    registry.register(collector)
    root = Resource()
    root.putChild(b"metrics", MetricsResource(registry))
    return Site(root)


def gauges(prefix: str, rows: Iterable[tuple[str, str, float]]) -> Iterator[Metric]:
    """Yield gauges: name, description and value of each."""
    for name, description, value in rows:
        yield GaugeMetricFamily(f"{prefix}_{name}", description, value=value)


def choices(name: str, description: str, label: str, values: Mapping[str, float]) -> Metric:
    """Return one gauge with a value for each of the values of a label."""
    family = GaugeMetricFamily(name, description, labels=[label])
    for one, value in values.items():
        family.add_metric([one], value)
    return family


def counted(prefix: str, counts: Mapping[str, int]) -> Metric:
    """Return what a node counted, by name."""
    family = CounterMetricFamily(f"{prefix}_counted", "What was counted since the start", labels=["what"])
    for what, count in sorted(counts.items()):
        family.add_metric([what], count)
    return family
