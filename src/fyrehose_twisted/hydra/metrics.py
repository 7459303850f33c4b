"""A hydra node's counters for Prometheus. They are read when asked for, and cost nothing otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.twisted import MetricsResource
from twisted.web.resource import Resource
from twisted.web.server import Site

from fyrehose_twisted.hydra.events import Role


class HydraCollector(Collector):
    """Turns the state of a running node into metrics named ``fyrehose_hydra_*``.

    :param service: the :class:`~fyrehose_twisted.hydra.service.HydraService`.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        state = self._service.state()
        if state is None:
            return
        roles = GaugeMetricFamily("fyrehose_hydra_role", "1 for the role that the node has", labels=["role"])
        for role in Role:
            roles.add_metric([role.value], state.role is role)
        yield roles
        for name, description, value in (
            ("term", "The highest term that is known", state.term),
            ("leader_known", "Whether somebody leads", state.leader is not None),
            ("lease_seconds", "What is left of the lease of this node", state.lease or 0.0),
            ("nodes", "Nodes that belong to the network, this one included", len(state.nodes)),
            ("links", "Links that are open", sum(link.open for link in state.links)),
            ("irc_open", "Whether this node is on IRC", state.irc == "open"),
            ("waiting", "Lines for IRC that wait here", state.waiting),
            ("expected", "Number of the next line from IRC", state.expected),
        ):
            yield GaugeMetricFamily(f"fyrehose_hydra_{name}", description, value=value)
        counted = CounterMetricFamily("fyrehose_hydra_counted", "What was counted since the start", labels=["what"])
        for what, count in sorted(state.counts.items()):
            counted.add_metric([what], count)
        yield counted


def metrics_site(service: Any) -> Site:
    """Return a web site that serves ``/metrics``."""
    registry = CollectorRegistry()
    registry.register(HydraCollector(service))
    root = Resource()
    root.putChild(b"metrics", MetricsResource(registry))
    return Site(root)
