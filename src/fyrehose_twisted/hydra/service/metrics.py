"""Prometheus metrics of a hydra node, collected at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.net.metrics import counter_family, enum_gauge, gauge_families, info_metric, label_gauge


class HydraCollector(Collector):
    """Collector of the metrics ``fyrehose_hydra_*`` from the status of a running node.

    :param service: the :class:`~fyrehose_twisted.hydra.service.service.HydraService`.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        state = self._service.state()
        if state is None:
            return
        yield info_metric("hydra", network=state.network)
        tags = {node.id: node.tag for node in state.nodes}
        leader = None if state.leader is None else tags.get(state.leader, str(state.leader))
        yield label_gauge("fyrehose_hydra_leader", "1 for the tag of the leader", "leader", leader)
        roles = {role.value: float(state.role is role) for role in Role}
        yield enum_gauge("fyrehose_hydra_role", "1 for the role of this node", "role", roles)
        rows = (
            ("term", "Highest known term", state.term),
            ("leader_known", "1 if a leader is known", state.leader is not None),
            ("lease_seconds", "Time left of the lease of this node, 0 for none", state.lease or 0.0),
            ("nodes", "Nodes of the network, including this one", len(state.nodes)),
            ("quorum", "Votes required to win an election", state.quorum),
            ("links", "Open links", sum(link.open for link in state.links)),
            ("irc_open", "1 if this node is connected to IRC", state.irc == "open"),
            ("waiting", "Lines for IRC queued on this node", state.waiting),
            ("expected", "Number of the next line from IRC", state.expected),
        )
        yield from gauge_families("fyrehose_hydra", rows)
        yield counter_family("fyrehose_hydra", state.counts)
