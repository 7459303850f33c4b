"""The tables of the page about metrics list all metrics of the services, and no others."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from prometheus_client.registry import Collector
from twisted.internet.task import Clock

from fyrehose_twisted.freenet.node.status import NodeStatus as FreenetState
from fyrehose_twisted.freenet.node.status import StreamStatus
from fyrehose_twisted.freenet.service.metrics import FreenetCollector
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.node.member.status import MemberStatus
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.protocol.relay import RelayProtocol
from fyrehose_twisted.fyrehose.service.member.metrics import MemberCollector
from fyrehose_twisted.fyrehose.service.metrics import BackboneCollector, ClientCollector, RelayCollector
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile
from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.status import NodeStatus as HydraState
from fyrehose_twisted.hydra.node.status import PeerStatus
from fyrehose_twisted.hydra.service.metrics import HydraCollector
from fyrehose_twisted.journal.metrics import JournalCollector
from fyrehose_twisted.journal.store import open_journal
from fyrehose_twisted.net.metrics import InfoCollector
from fyrehose_twisted.net.udp import DatagramPort
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.status import NodeStatus
from fyrehose_twisted.parcels.web import Callbacks, WebConfig, site
from fyrehose_twisted.parcels.web.metrics import CallbackCollector, NodeCollector
from fyrehose_twisted.record import Record
from fyrehose_twisted.spark.metrics import QueryMetrics
from fyrehose_twisted.web.metrics import SiteCollector

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "howto" / "metrics.md").read_text(encoding="utf-8")

Collectors = list[Collector]


class Row(NamedTuple):
    """Metric with its description; the name of a counter ends in ``_total``."""

    name: str
    type: str
    labels: frozenset[str]


def table(section: str) -> dict[str, Row]:
    """Return the table of a section."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    found = {}
    for name, kind, labels, unit, meaning in re.findall(
        r"^\| `([a-z_*]+)` \| (.*?) \| (.*?)\| (.*?) \| (.*?) \|$", text, re.M
    ):
        assert unit, name
        assert meaning, name
        found[name] = Row(name, kind, frozenset(re.findall(r"`([a-z_]+)`", labels)))
    return found


def rows(collectors: Collectors) -> dict[str, Row]:
    """Return the metrics of collectors; values are not needed."""
    found = {}
    for collector in collectors:
        for family in collector.collect():
            labels = frozenset(family._labelnames) | {name for sample in family.samples for name in sample.labels}
            name = family.name + "_total" * (family.type == "counter")
            assert name not in found
            assert family.documentation
            found[name] = Row(name, family.type, labels)
    return found


def started(protocol: Any) -> Any:
    """Return a protocol that runs on a port without a socket."""
    clock = protocol.reactor = Clock()
    port: Any = DatagramPort(0, protocol, "127.0.0.1", clock)  # type: ignore[arg-type]
    port.send = lambda datagrams, peers: None
    port.getHost = lambda: SimpleNamespace(host="127.0.0.1", port=7)
    protocol.makeConnection(port)
    return protocol


def backbone(directory: Path) -> Collectors:
    state = SequenceFile(directory / "state", "fyrehose://orders")
    collectors: Collectors = [BackboneCollector(started(BackboneProtocol(state=state, settle_time=0)))]
    state.close()
    return collectors


def relay(directory: Path) -> Collectors:
    protocol = started(RelayProtocol())
    started(protocol.upstream)
    return [RelayCollector(protocol, "fyrehose://orders", "127.0.0.1:2323")]


def group(directory: Path) -> Collectors:
    member = MemberStatus("a", "orders", "serving", 1, "a", True, 0.5, 1, 1, 1, 2, False, (), {"elections": 1})
    node = SimpleNamespace(status=lambda now: member)
    protocol = SimpleNamespace(
        member_node=node, links=SimpleNamespace(now=lambda: 0.0), takeovers=1, skipped=1, takeover_seconds=0.1
    )
    service = SimpleNamespace(protocol=protocol, problems=lambda: {"silent": 1})
    return [InfoCollector("backbone", stream="fyrehose://orders", member="a"), MemberCollector(service)]


def client(directory: Path) -> Collectors:
    protocol = PublisherProtocol(ClientConfig(start=1))
    protocol.backbone = "127.0.0.1", 2323
    node = started(protocol).node
    node.keepalive.round_trip = 0.001
    node.group.term = 1
    return [InfoCollector("client", stream="fyrehose://orders", backbone="127.0.0.1:2323"), ClientCollector(protocol)]


def journal(directory: Path) -> Collectors:
    opened = open_journal(directory, "fyrehose://orders")
    opened.append([Record("fyrehose://orders", 0, 1, 1, b"")])
    opened.commit()
    opened.close()
    return [InfoCollector("journal", stream="fyrehose://orders"), JournalCollector([opened])]


def hydra(directory: Path) -> Collectors:
    nodes = (PeerStatus(1, "a", 0, "", None),)
    links: tuple[Any, ...] = ()
    state = HydraState(
        *("orders", "a", 1, Role.LEADER, "", 1, 1, 1, 1, nodes, links, 7.5, None, "open", 0, 1, {"said": 1})
    )
    return [HydraCollector(SimpleNamespace(state=lambda: state))]


def parcels(directory: Path) -> Collectors:
    counters = {**asdict(Counters()), "dropped_stray": 1, "links_accepted": 1}
    state = NodeStatus("a", 1, "0" * 16, "orders", "0" * 16, "Wrk", "", "a", 1, 1, 1, 1, (), (), counters)
    node: Any = SimpleNamespace(state=lambda: state, listen=lambda listener: None)
    callbacks = Callbacks(node, SimpleNamespace(), WebConfig(), Clock(), rng=Random(1))  # type: ignore[arg-type]
    made = site(node, reactor=Clock(), callbacks=callbacks)
    return [NodeCollector(node), SiteCollector("fyrehose_parcels_web", made), CallbackCollector(callbacks)]


def freenet(directory: Path) -> Collectors:
    stream = StreamStatus(b"\xab", 0.5, "settled", None, True, 0.5, (), True, 1)
    state = FreenetState(1, 1, 0.5, (), (stream,), 0, {"loops": 1})
    return [FreenetCollector(SimpleNamespace(state=lambda: state))]


def spark(directory: Path) -> Collectors:
    offset = {"journals": {"0a0b0c0d": {"fyrehose://orders": {"0": 5}}}}
    metrics = QueryMetrics()
    metrics.record({"id": "1", "sources": [{"endOffset": offset, "latestOffset": offset}]})
    return [metrics]


SERVICES: dict[str, Callable[[Path], Collectors]] = {
    "Backbone": backbone,
    "Relay": relay,
    "Group of backbones": group,
    "Client": client,
    "Journal": journal,
    "Hydra": hydra,
    "Parcels": parcels,
    "Freenet": freenet,
    "Spark": spark,
}
"""Collectors by section of the page."""


@pytest.mark.parametrize("section", SERVICES)
def test_each_table_of_the_metrics_page_is_complete(section: str, tmp_path: Path) -> None:
    documented, told = table(section), rows(SERVICES[section](tmp_path))
    whole = {name: row for name, row in documented.items() if "*" not in name}
    families = documented.keys() - whole.keys()
    assert {name: row for name, row in told.items() if not any(fnmatchcase(name, some) for some in families)} == whole
    for some in families:
        found = [row._replace(name=some) for name, row in told.items() if fnmatchcase(name, some)]
        assert set(found) == {documented[some]}


def test_every_table_of_the_metrics_page_is_checked() -> None:
    sections = re.findall(r"^## (.+)\n(?:(?!## ).*\n)*?\| metric \|", PAGE, re.MULTILINE)
    assert sections == list(SERVICES)
