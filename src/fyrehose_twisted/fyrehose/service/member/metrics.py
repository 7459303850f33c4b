"""Prometheus metrics of a member, collected at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.net.metrics import counter_families, enum_gauge, gauge_families, label_gauge, labelled_counter


class MemberCollector(Collector):
    """Collector of the metrics ``fyrehose_backbone_*`` that only members of a group have.

    :param service: the :class:`~fyrehose_twisted.fyrehose.service.member.service.MemberService`.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        protocol = self._service.protocol
        node, links = protocol.member_node, protocol.links
        if node is None or links is None:
            return
        status = node.status(links.now())
        yield label_gauge("fyrehose_backbone_leader", "1 for the name of the leader", "leader", status.leader)
        counted = Counter(str(one.connected).lower() for one in status.members if one.votes)
        members = {"true": counted["true"], "false": counted["false"]}
        yield enum_gauge("fyrehose_backbone_members", "Members of the group, with this one", "connected", members)
        yield from gauge_families(
            "fyrehose_backbone",
            (
                ("leading", "1 if this member leads its group", status.leads),
                ("term", "Term of the group", status.term),
                ("quorum", "Members that have to agree, 0 before there is a group", status.quorum),
                ("witness", "1 if this member only votes", status.witness),
                ("lease_seconds", "Seconds left of the lease of this member, 0 if it does not lead", status.lease_left),
                ("bound", "Highest number that the leader may give", status.bound),
                ("kept", "Highest number that publishers may have been told to be durable", status.kept),
            ),
        )
        if protocol.takeover_seconds is not None:
            about = "Seconds for which the latest takeover of this member waited for clients"
            yield from gauge_families("fyrehose_backbone", [("takeover_seconds", about, protocol.takeover_seconds)])
        yield from counter_families(
            "fyrehose_backbone",
            (
                ("elections", "Elections that this member stood for", status.counters.get("elections", 0)),
                ("takeovers", "Terms in which this member numbered messages", protocol.takeovers),
                ("skipped", "Numbers skipped by takeovers of this member", protocol.skipped),
            ),
        )
        yield labelled_counter(
            "fyrehose_backbone_peer_problems",
            "Problems with other members, by reason",
            "reason",
            self._service.problems(),
        )
