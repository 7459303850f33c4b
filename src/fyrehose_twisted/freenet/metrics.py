"""A freenet node's counters for Prometheus. They are read when asked for, and cost nothing otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.twisted import MetricsResource
from twisted.web.resource import Resource
from twisted.web.server import Site

from fyrehose_twisted.freenet.stream import Phase


class FreenetCollector(Collector):
    """Turns the state of a running node into metrics named ``fyrehose_freenet_*``.

    :param service: the :class:`~fyrehose_twisted.freenet.service.FreenetService`.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        state = self._service.state()
        if state is None:
            return
        phases = GaugeMetricFamily("fyrehose_freenet_streams", "Streams by phase", labels=["phase"])
        found = Counter(stream.phase for stream in state.streams)
        for phase in Phase:
            phases.add_metric([phase.value], found[phase.value])
        yield phases
        subscribers = sum(len(stream.subscribers) for stream in state.streams)
        for name, description, value in (
            ("location", "Where on the ring the node is", state.location),
            ("neighbours", "Neighbours with an open link", sum(one.linked for one in state.neighbours)),
            ("roots", "Streams of which this node is the root", sum(one.is_root for one in state.streams)),
            ("local", "Streams that this node's application has", sum(one.local for one in state.streams)),
            ("subscribers", "Neighbours below this node, over all streams", subscribers),
            ("requests", "Requests that are waited for", state.requests),
        ):
            yield GaugeMetricFamily(f"fyrehose_freenet_{name}", description, value=value)
        counted = CounterMetricFamily("fyrehose_freenet_counted", "What was counted since the start", labels=["what"])
        for what, count in sorted(state.counts.items()):
            counted.add_metric([what], count)
        yield counted


def metrics_site(service: Any) -> Site:
    """Return a web site that serves ``/metrics``."""
    registry = CollectorRegistry()
    registry.register(FreenetCollector(service))
    root = Resource()
    root.putChild(b"metrics", MetricsResource(registry))
    return Site(root)
