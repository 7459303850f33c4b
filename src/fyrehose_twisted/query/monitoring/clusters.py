"""Clusters of watched nodes: members, leader and remaining fault tolerance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fyrehose_twisted.query.monitoring.figures import ServiceFigures, active_label, label, total
from fyrehose_twisted.query.monitoring.findings import ATTENTION, DOWN, HealthFinding

SETTLING = 15.0
"""Seconds that an election or the joining of a node may take."""

_NAME_LABELS = {"backbone": "stream", "hydra": "network", "parcels": "cluster"}
"""Label of ``fyrehose_info`` with the name of the cluster, by kind of service."""


class ClusterView(NamedTuple):
    """One hydra network, parcels cluster or group of backbones, as its watched nodes see it."""

    kind: str
    name: str
    watched: int
    """Nodes that are watched."""
    up: int
    """Of those, nodes that answer."""
    members: int
    """Members; 0 if unknown."""
    alive: int
    """Members that the others hear from."""
    quorum: int
    """Nodes required for a quorum; 0 if unknown."""
    leaders: tuple[str, ...]

    @property
    def title(self) -> str:
        """Name of the cluster as a subject of findings."""
        return f"{self.kind} {self.name}".strip()

    @property
    def may_fail(self) -> int | None:
        """Number of further nodes that may fail; negative without a quorum, ``None`` if unknown."""
        return self.alive - self.quorum if self.quorum else None


def clusters(services: Iterable[ServiceFigures]) -> list[ClusterView]:
    """Return the clusters that the watched services belong to."""
    found: dict[tuple[str, str], list[ServiceFigures]] = {}
    for service in services:
        # A backbone without a group has no member name.
        if service.kind in _NAME_LABELS and (service.kind != "backbone" or label(service.metrics, "member")):
            name = label(service.metrics, _NAME_LABELS[service.kind])
            found.setdefault((service.kind, name), []).append(service)
    return [_cluster(kind, name, nodes) for (kind, name), nodes in sorted(found.items())]


def _cluster(kind: str, name: str, nodes: list[ServiceFigures]) -> ClusterView:
    up = [node for node in nodes if node.scrape.up]
    # Use the node with the most living members: a partitioned node counts only itself.
    alive, members, quorum = max((_member_counts(node) for node in up), default=(0, 0, 0))
    leaders = {leader for node in up if (leader := active_label(node.metrics, f"{kind}_leader", "leader"))}
    return ClusterView(kind, name, len(nodes), len(up), members, alive, quorum, tuple(sorted(leaders)))


def _member_counts(one: ServiceFigures) -> tuple[int, int, int]:
    """Return living members, members and quorum, as one node counts them."""
    quorum = int(total(one.metrics, f"{one.kind}_quorum") or 0)
    if one.kind == "hydra":
        # A network drops nodes that it does not hear from, so all its nodes are alive.
        nodes = int(total(one.metrics, "hydra_nodes") or 0)
        return nodes, nodes, quorum
    living = {"connected": "true"} if one.kind == "backbone" else {"alive": "true"}
    alive = int(total(one.metrics, f"{one.kind}_members", **living) or 0)
    return alive, int(total(one.metrics, f"{one.kind}_members") or 0), quorum


def assess_cluster(cluster: ClusterView) -> Iterator[HealthFinding]:
    """Yield the findings about a cluster."""
    title, left = cluster.title, cluster.may_fail
    if not cluster.up:
        yield HealthFinding(title, DOWN, "no-node", "none of its watched nodes answers")
        return
    if left is not None and left < 0:
        text = f"{cluster.alive} of {cluster.quorum} nodes required for a majority are alive"
        yield HealthFinding(title, DOWN, "quorum", text, SETTLING)
    elif cluster.alive < cluster.members:
        text = f"{cluster.alive} of {cluster.members} members are alive"
        yield HealthFinding(title, ATTENTION, "members", text + (f"; {left} more may fail" if left is not None else ""))
    elif left == 0 and max(cluster.members, cluster.watched) > 2:
        # A cluster of two nodes never has one to spare.
        yield HealthFinding(title, ATTENTION, "spare", "no further node may fail")
    if len(cluster.leaders) > 1:
        text = f"nodes name different leaders: {', '.join(cluster.leaders[:4])}"
        yield HealthFinding(title, ATTENTION, "leaders", text, SETTLING)
    elif not cluster.leaders:
        yield HealthFinding(title, DOWN, "leader", "no node leads", SETTLING)
