"""Prometheus collectors of a node and its callbacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.net.metrics import counter_families, enum_gauge, gauge_families, info_metric, label_gauge
from fyrehose_twisted.parcels.node.status import NodeStatus
from fyrehose_twisted.parcels.wire.messages import Mode

if TYPE_CHECKING:
    from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks

_PREFIX = "fyrehose_parcels"


class NodeCollector(Collector):
    """Collector of a node's status, as metrics named ``fyrehose_parcels_*``."""

    def __init__(self, node: IOrderedEvents) -> None:
        self._node: Any = node

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        state: NodeStatus = self._node.state()
        yield info_metric("parcels", cluster=state.cluster)
        yield label_gauge(f"{_PREFIX}_leader", "1 for the name of the leader", "leader", state.leader)
        gauges = (
            ("sequence", "Number of the last event delivered", state.sequence),
            ("oldest", "Number of the oldest event stored", state.oldest),
            ("term", "Current term", state.term),
            ("quorum", "Members required for a majority", state.quorum),
            ("leading", "1 if this node is the leader", state.leader == state.name),
        )
        yield from gauge_families(_PREFIX, gauges)
        members = {str(alive).lower(): sum(one.alive == alive for one in state.members) for alive in (True, False)}
        description = "Members of the cluster, by whether they were heard from in the last 5 s"
        yield enum_gauge(f"{_PREFIX}_members", description, "alive", members)
        votes = {str(votes).lower(): sum(one.votes == votes for one in state.neighbours) for votes in (True, False)}
        yield enum_gauge(f"{_PREFIX}_neighbours", "Known nodes, by whether they vote", "votes", votes)
        modes = {mode.value: float(mode.value == state.mode) for mode in Mode}
        yield enum_gauge(f"{_PREFIX}_mode", "1 for the current mode of this node", "mode", modes)
        for name, value in sorted(state.counters.items()):
            words = name.replace("_", " ").replace("-", " ").capitalize()
            clean = re.sub(r"[^a-zA-Z0-9_]", "_", name)
            yield CounterMetricFamily(f"{_PREFIX}_{clean}", f"{words}, since the node started", value=value)


class CallbackCollector(Collector):
    """Collector of callback counters, as metrics named ``fyrehose_parcels_web_*``."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        callbacks = self._callbacks
        gauges = (
            ("callbacks", "Registered callbacks", len(callbacks)),
            ("suspended_callbacks", "Suspended callbacks", callbacks.suspended),
        )
        counters = (
            ("deliveries", "Events delivered to callbacks", callbacks.delivered),
            ("failed_attempts", "Failed delivery attempts", callbacks.failed_attempts),
            ("dead_letters", "Events that were given up for a callback", callbacks.dead),
        )
        yield from gauge_families(f"{_PREFIX}_web", gauges)
        yield from counter_families(f"{_PREFIX}_web", counters)
