"""Prometheus collectors of a node and its callbacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.net.metrics import info_metric, label_gauge
from fyrehose_twisted.parcels.node.status import NodeStatus
from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks
from fyrehose_twisted.parcels.wire.messages import Mode

_PREFIX = "fyrehose_parcels_"


class NodeCollector(Collector):
    """Collector of a node's status, as metrics named ``fyrehose_parcels_*``."""

    def __init__(self, node: IOrderedEvents) -> None:
        self._node: Any = node

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        state: NodeStatus = self._node.state()
        yield info_metric("parcels", cluster=state.cluster)
        yield label_gauge(_PREFIX + "leader", "1 for the name of the leader", "leader", state.leader)
        yield _gauge("sequence", "Number of the last event delivered", state.sequence)
        yield _gauge("oldest", "Number of the oldest event stored", state.oldest)
        yield _gauge("term", "Current term", state.term)
        yield _gauge("quorum", "Members required for a majority", state.quorum)
        yield _gauge("leading", "1 if this node is the leader", state.leader == state.name)
        members = GaugeMetricFamily(
            _PREFIX + "members",
            "Members of the cluster, by whether they were heard from in the last 5 s",
            labels=["alive"],
        )
        for alive in (True, False):
            members.add_metric([str(alive).lower()], sum(member.alive == alive for member in state.members))
        yield members
        neighbours = GaugeMetricFamily(_PREFIX + "neighbours", "Known nodes, by whether they vote", labels=["votes"])
        for votes in (True, False):
            found = sum(neighbour.votes == votes for neighbour in state.neighbours)
            neighbours.add_metric([str(votes).lower()], found)
        yield neighbours
        modes = GaugeMetricFamily(_PREFIX + "mode", "1 for the current mode of this node", labels=["mode"])
        for mode in Mode:
            modes.add_metric([mode.value], mode.value == state.mode)
        yield modes
        for name, value in sorted(state.counters.items()):
            words = name.replace("_", " ").replace("-", " ").capitalize()
            clean = re.sub(r"[^a-zA-Z0-9_]", "_", name)
            yield CounterMetricFamily(_PREFIX + clean, f"{words}, since the node started", value=value)


class CallbackCollector(Collector):
    """Collector of callback counters, as metrics named ``fyrehose_parcels_web_*``."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        callbacks = self._callbacks
        yield _gauge("web_callbacks", "Registered callbacks", len(callbacks))
        yield _gauge("web_suspended_callbacks", "Suspended callbacks", callbacks.suspended)
        yield _counter("web_deliveries", "Events delivered to callbacks", callbacks.delivered)
        yield _counter("web_failed_attempts", "Failed delivery attempts", callbacks.failed_attempts)
        yield _counter("web_dead_letters", "Events that were given up for a callback", callbacks.dead)


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(_PREFIX + name, what, value=value)


def _counter(name: str, what: str, value: float) -> Metric:
    return CounterMetricFamily(_PREFIX + name, what, value=value)
