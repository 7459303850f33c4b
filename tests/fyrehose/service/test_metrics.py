"""Prometheus metrics of a backbone and of a client."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.registry import Collector
from twisted.internet.task import Clock

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Send
from fyrehose_twisted.fyrehose.config import ClientConfig, OutboxConfig
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service import client_tap
from fyrehose_twisted.fyrehose.service.metrics import BackboneCollector, ClientCollector
from fyrehose_twisted.fyrehose.service.state_file import SequenceFile
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Forward, Keepalive, KeepaliveAck, Packet, Request
from fyrehose_twisted.net.udp import DatagramPort

BACKBONE = ("192.0.2.1", 2323)
OTHER = ("192.0.2.8", 7)


class Port(DatagramPort):
    """A port without a socket."""

    def __init__(self, protocol: Any, clock: Clock) -> None:
        super().__init__(0, protocol, "192.0.2.2", clock)  # type: ignore[arg-type]
        self.sent: list[Packet] = []
        self.send_errors["ENETUNREACH"] = 3
        self.receive_buffer = 212_992

    def getHost(self) -> Any:
        return SimpleNamespace(host="192.0.2.2", port=7)

    def send(self, datagrams: Any, peers: Any) -> None:
        self.sent += [decode(bytes(datagram)) for datagram in Send(datagrams, peers).iter_datagrams()]


class Running:
    """A protocol started on a port without a socket, with a fake clock."""

    def __init__(self, protocol: Any) -> None:
        self.clock = protocol.reactor = Clock()
        self.clock.advance(1_000.0)
        self.protocol = protocol
        self.port = Port(protocol, self.clock)
        protocol.makeConnection(self.port)

    def receive(self, packet: Packet, peer: tuple[str, int] = BACKBONE) -> None:
        self.protocol.batch_received(Batch.pack([(encode(packet), peer)]))

    def answer(self) -> None:
        """Acknowledge the latest KEEPALIVE as the backbone."""
        self.clock.advance(0)
        sent = [packet for packet in self.port.sent if isinstance(packet, Keepalive)]
        self.receive(KeepaliveAck(sent[-1].token))


@pytest.fixture
def client() -> Running:
    protocol = PublisherProtocol(ClientConfig(start=1, outbox=OutboxConfig(raw=True, timeout=2.0)))
    protocol.backbone = BACKBONE
    return Running(protocol)


def values(collector: Collector) -> dict[str, float]:
    """Return samples by name and labels."""
    registry = CollectorRegistry()
    registry.register(collector)
    return {
        sample.name + "".join(f"{{{name}={value}}}" for name, value in sample.labels.items()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_a_client_that_was_not_started_has_no_metrics() -> None:
    assert values(ClientCollector(PublisherProtocol(reactor=Clock()))) == {}


def test_metrics_of_a_client_before_the_backbone_answers(client: Running) -> None:
    samples = values(ClientCollector(client.protocol))
    assert samples["fyrehose_client_connected"] == 0
    assert samples["fyrehose_client_sequence"] == 0
    assert "fyrehose_client_round_trip_seconds" not in samples
    assert samples["fyrehose_client_receive_buffer_bytes"] == 212_992
    assert samples["fyrehose_client_send_errors_total{errno=ENETUNREACH}"] == 3


def test_a_client_searching_its_start_position_has_no_sequence_metric() -> None:
    protocol = PublisherProtocol(ClientConfig())
    protocol.backbone = BACKBONE
    assert "fyrehose_client_sequence" not in values(ClientCollector(Running(protocol).protocol))


def test_metrics_of_received_repaired_and_delivered_messages(client: Running) -> None:
    client.clock.advance(0.25)
    client.answer()
    for sequence in (1, 2, 5, 2):
        client.receive(Deliver(sequence, b"four"))
    client.clock.advance(0.05)
    assert [packet for packet in client.port.sent if isinstance(packet, Request)][-1].last == 4
    samples = values(ClientCollector(client.protocol))
    assert samples["fyrehose_client_connected"] == 1
    assert 0 <= samples["fyrehose_client_round_trip_seconds"] <= 0.25
    assert samples["fyrehose_client_received_total"] == 4
    assert samples["fyrehose_client_duplicates_total"] == 1
    assert samples["fyrehose_client_delivered_total"] == samples["fyrehose_client_sequence"] == 2
    assert samples["fyrehose_client_missing"] == 2
    assert samples["fyrehose_client_waiting_bytes"] > 4
    requests = samples["fyrehose_client_requests_total"]
    assert requests > 0

    client.receive(Deliver(3, b"four"), OTHER)
    client.receive(Deliver(4, b"four"), OTHER)
    samples = values(ClientCollector(client.protocol))
    assert samples["fyrehose_client_repaired_total"] == 2
    assert samples["fyrehose_client_missing"] == samples["fyrehose_client_waiting_bytes"] == 0
    assert samples["fyrehose_client_delivered_total"] == samples["fyrehose_client_sequence"] == 5


def test_metrics_of_answered_forwards_and_drops(client: Running) -> None:
    client.answer()
    client.receive(Deliver(1, b"one"))
    client.receive(Forward(OTHER, 1, 1))
    client.receive(Forward(OTHER, 1, 1), OTHER)
    samples = values(ClientCollector(client.protocol))
    assert samples["fyrehose_client_answered_total"] == 1
    assert samples["fyrehose_client_dropped_total{reason=foreign_forward}"] == 1


def test_metrics_of_published_messages(client: Running) -> None:
    client.answer()
    failed: list[Any] = []
    client.protocol.publish(b"one")
    client.protocol.publish(b"two").addErrback(failed.append)
    assert values(ClientCollector(client.protocol))["fyrehose_client_pending"] == 2
    client.receive(Deliver(1, b"one"))
    for _ in range(30):
        client.clock.advance(0.1)
    samples = values(ClientCollector(client.protocol))
    assert samples["fyrehose_client_published_total"] == 1
    assert samples["fyrehose_client_publish_failed_total"] == len(failed) == 1
    assert samples["fyrehose_client_pending"] == 0
    assert samples["fyrehose_client_pushes_total"] == 2 + samples["fyrehose_client_resent_total"] > 2


def test_metrics_of_lost_messages(client: Running) -> None:
    client.answer()
    client.receive(Deliver(3, b"three"))
    for _ in range(200):
        client.clock.advance(0.1)
        client.answer()
    samples = values(ClientCollector(client.protocol))
    assert samples["fyrehose_client_lost_total"] == 2
    assert samples["fyrehose_client_sequence"] == 3
    assert samples["fyrehose_client_missing"] == 0


def test_metrics_of_a_backbone_with_its_state_file(tmp_path: Path) -> None:
    state = SequenceFile(tmp_path / "state", "fyrehose://orders")
    protocol = BackboneProtocol(state=state, settle_time=0)
    what = f"fyrehose_info{{service=backbone}}{{version={version('fyrehose_twisted')}}}"
    assert values(BackboneCollector(protocol)) == {what + "{stream=fyrehose://orders}": 1}
    Running(protocol)
    samples = values(BackboneCollector(protocol))
    assert samples["fyrehose_backbone_receive_buffer_bytes"] == 212_992
    assert samples["fyrehose_backbone_send_errors_total{errno=ENETUNREACH}"] == 3
    state.close()
    forgetful = values(BackboneCollector(Running(BackboneProtocol(settle_time=0)).protocol))
    assert forgetful[what] == 1


def test_an_invalid_metrics_endpoint_is_reported_before_the_service_starts() -> None:
    options = client_tap.Options()
    options.parseOptions(["--protocol", "fyrehose_twisted.fyrehose.SubscriberProtocol", "--metrics", "x"])
    with pytest.raises(SystemExit, match=r"^fyrehose-client: 'x' is not an endpoint such as tcp:9100"):
        client_tap.makeService(options)
