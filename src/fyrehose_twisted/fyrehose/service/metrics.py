"""Prometheus collectors of backbones and clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol
from fyrehose_twisted.fyrehose.wire.packets import Flags
from fyrehose_twisted.net.metrics import counter_families, gauge_families, info_metric, labelled_counter
from fyrehose_twisted.net.udp import DatagramPort

_BACKBONE_COUNTERS = {
    "datagrams": "Datagrams received",
    "published": "Messages that were given a number",
    "published_bytes": "Bytes of DATA in them",
    "delivered": "DELIVERs sent, one a message and subscriber",
    "delivered_bytes": "Bytes of DATA in them",
    "keepalives": "KEEPALIVEs received",
    "requests": "REQUESTs received",
    "repeated": "PUSHes of messages that had a number already, which was told again",
    "answered": "REQUESTs answered from memory alone",
    "routed": "REQUESTs passed on to clients, in whole or in part",
    "beyond": "REQUESTs for numbers that had not been given yet",
    "forwards": "FORWARDs sent",
}

_CLIENT_COUNTERS = {
    "received": "Messages that came, repairs and what came twice included",
    "delivered": "Messages handed over to the application",
    "duplicates": "Messages that came and were here already",
    "repeats": "Messages not handed over because they were published twice",
    "repaired": "Missing messages that came because they were asked for",
    "lost": "Numbers given up, because nobody has them or they were never given",
    "requests": "REQUESTs sent",
    "pushes": "PUSHes sent, those sent again included",
    "published": "Messages of its own that came back with a number",
    "publish_failed": "Messages of its own that did not come back in time",
    "unkept": "Messages of its own that too few journals kept in time",
}


class BackboneCollector(Collector):
    """Collector of the metrics ``fyrehose_backbone_*`` of a running backbone."""

    def __init__(self, protocol: BackboneProtocol) -> None:
        self._protocol = protocol

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        yield info_metric("backbone", stream=getattr(self._protocol.state, "stream", None))
        node = self._protocol.node
        if node is None:
            return
        yield from counter_families("fyrehose_backbone", _counter_rows(_BACKBONE_COUNTERS, node.counters))
        yield labelled_counter("fyrehose_backbone_dropped", "Packets refused, by reason", "reason", node.drops.counts)
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            yield from _port_metrics("fyrehose_backbone", port)
        sent_again = "Messages sent again from memory", node.repair_dispatcher.retransmitted
        yield from counter_families("fyrehose_backbone", [("retransmitted", *sent_again)])
        yield from gauge_families("fyrehose_backbone", _backbone_gauges(node))


def _backbone_gauges(node: Backbone) -> Iterator[tuple[str, str, float]]:
    clients, resending = node.clients, node.repair_dispatcher
    yield "clients", "Clients alive", len(clients)
    for name, flag in (("subscribers", Flags.NOSUBSCRIBE), ("journals", Flags.NOJOURNAL)):
        yield name, f"Clients alive that are {name}", sum(not client.flags & flag for client in clients)
    durable = sum(bool(client.flags & Flags.DURABLE) for client in clients)
    yield "durable_journals", "Clients alive that are durable journals", durable
    yield "retransmit_bytes", "Bytes of the latest messages in memory", resending.buffered_bytes
    rate = resending.backpressure.effective_rate or 0.0
    yield "rate_limit_bytes", "Bytes a second that publishers are slowed down to, 0 for none", rate
    yield "sequence", "The last number given", node.sequencer.last


class ClientCollector(Collector):
    """Turns the state of a running client into metrics named ``fyrehose_client_*``."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        node = self._protocol.node
        if node is None:
            return
        rows = (
            *_counter_rows(_CLIENT_COUNTERS, node.counters),
            ("resent", "PUSHes sent again", node.send_queue.retransmissions),
            ("answered", "Messages sent as repairs", node.repair_responder.sent),
        )
        yield from counter_families("fyrehose_client", rows)
        yield labelled_counter("fyrehose_client_dropped", "Packets refused, by reason", "reason", node.drops.counts)
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            yield from _port_metrics("fyrehose_client", port)
        yield from gauge_families("fyrehose_client", _client_gauges(node))


def _client_gauges(node: Client) -> Iterator[tuple[str, str, float]]:
    yield "connected", "Whether the backbone answered in the last 5 s", node.keepalive.connected
    if node.keepalive.round_trip is not None:
        yield "round_trip_seconds", "Until the latest KEEPALIVE was answered", node.keepalive.round_trip
    yield "missing", "Numbers that are missing now, and not given up", node.missing_count
    yield "waiting_bytes", "Bytes that wait for missing messages, or for the application", node.buffered_bytes
    yield "pending", "Messages of its own that have not come back yet", len(node.send_queue)
    yield "keeping", "Messages of its own that wait until journals keep them", len(node.durability)
    if node.next_sequence is not None:
        yield "sequence", "Number of the last message handed over", node.next_sequence - 1


def _counter_rows(descriptions: Mapping[str, str], counters: object) -> Iterator[tuple[str, str, float]]:
    return ((name, description, getattr(counters, name)) for name, description in descriptions.items())


def _port_metrics(prefix: str, port: DatagramPort) -> Iterator[Metric]:
    yield labelled_counter(f"{prefix}_send_errors", "Datagrams not sent", "errno", port.send_errors)
    size = port.receive_buffer
    yield GaugeMetricFamily(f"{prefix}_receive_buffer_bytes", "What the kernel keeps for bursts", value=size)
