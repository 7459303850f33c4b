"""Prometheus metrics and clients page of a member."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fyrehose.service.member.conftest import MemberBench
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector

from fyrehose_twisted.fyrehose.node.member.status import MemberStatus, OtherMember
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.service.clients_page import ClientsPage
from fyrehose_twisted.fyrehose.service.member.metrics import MemberCollector
from fyrehose_twisted.fyrehose.service.metrics import BackboneCollector


def leading(bench: MemberBench) -> MemberStatus:
    """Return the status of a member that leads b, which has not connected, and w, which has no vote yet."""
    others = (("a", True, True), ("b", False, True), ("w", True, False))
    return replace(
        bench.protocol.running[0].status(1_000.0),
        term=3,
        leader="a",
        leads=True,
        lease_left=0.5,
        last=17,
        bound=400,
        kept=16,
        quorum=2,
        members=tuple(
            OtherMember(name, ("10.0.0.1", 2323), ("10.0.0.1", 2324), name == "w", connected, votes)
            for name, connected, votes in others
        ),
        counters={"elections": 5},
    )


def values(collector: Collector) -> dict[str, float]:
    """Return samples by name and labels."""
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        sample.name + "".join(f"{{{name}={value}}}" for name, value in sample.labels.items()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def collector(bench: MemberBench) -> MemberCollector:
    return MemberCollector(SimpleNamespace(protocol=bench.protocol, problems=bench.problems))


def test_member_without_a_group_knows_no_leader(bench: MemberBench) -> None:
    samples = values(collector(bench))
    assert samples["fyrehose_backbone_leading"] == samples["fyrehose_backbone_quorum"] == 0
    assert not any("_leader{" in name for name in samples)
    assert "fyrehose_backbone_takeover_seconds" not in samples


@pytest.mark.interpreted
def test_metrics_of_a_leader(bench: MemberBench, monkeypatch: pytest.MonkeyPatch) -> None:
    status = leading(bench)
    monkeypatch.setattr(bench.protocol.running[0], "status", lambda now: status)
    bench.take_over()
    samples = values(collector(bench))
    assert {name.removeprefix("fyrehose_backbone_"): value for name, value in samples.items()} == {
        "leader{leader=a}": 1,
        "members{connected=true}": 1,
        "members{connected=false}": 1,
        "leading": 1,
        "term": 3,
        "quorum": 2,
        "witness": 0,
        "lease_seconds": 0.5,
        "bound": 400,
        "kept": 16,
        "elections_total": 5,
        "takeovers_total": 1,
        "takeover_seconds": 0.25,
        "skipped_total": 8,
        "peer_problems_total{reason=silent}": 2,
    }


def test_member_that_was_not_started_has_no_metrics(bench: MemberBench) -> None:
    stopped: Any = SimpleNamespace(protocol=SimpleNamespace(member_node=None, links=None))
    assert values(MemberCollector(stopped)) == {}


def test_info_metric_names_the_member_only_in_a_group(bench: MemberBench) -> None:
    (info,) = (name for name in values(BackboneCollector(bench.protocol)) if name.startswith("fyrehose_info"))
    assert "{member=a}" in info
    (info,) = (name for name in values(BackboneCollector(BackboneProtocol())) if name.startswith("fyrehose_info"))
    assert "member" not in info


def clients_page(bench: MemberBench) -> dict[str, Any]:
    request: Any = SimpleNamespace(args={})
    response = ClientsPage(bench.protocol).get(request)
    content: dict[str, Any] = json.loads(response.body)
    return content


@pytest.mark.interpreted
def test_clients_page_of_a_member_names_the_leader(bench: MemberBench, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = {"name": "a", "state": "stands by", "term": 0, "leader": None, "leader_address": None}
    assert clients_page(bench)["member"] == alone
    status = leading(bench)
    monkeypatch.setattr(bench.protocol.running[0], "status", lambda now: status)
    told = {"name": "a", "state": "leads", "term": 3, "leader": "a", "leader_address": "10.0.0.1:2323"}
    assert clients_page(bench)["member"] == told


def test_clients_page_of_a_witness_says_that_it_votes() -> None:
    assert clients_page(MemberBench(witness=True))["member"]["state"] == "votes"
