"""Prometheus collectors of backbones and clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol
from fyrehose_twisted.fyrehose.wire.packets import Flags
from fyrehose_twisted.net.metrics import gauge_families, info_metric
from fyrehose_twisted.net.udp import DatagramPort

_BACKBONE_COUNTERS = {
    "datagrams": "Datagrams received",
    "published": "Messages numbered",
    "published_bytes": "DATA bytes of numbered messages",
    "delivered": "DELIVERs sent, one per message and subscriber",
    "delivered_bytes": "DATA bytes of DELIVERs sent",
    "keepalives": "KEEPALIVEs received",
    "requests": "REQUESTs received",
    "repeated": "Duplicate PUSHes, answered with the existing number",
    "answered": "REQUESTs answered entirely from memory",
    "routed": "REQUESTs forwarded to clients, in whole or in part",
    "beyond": "REQUESTs for numbers above the last assigned",
    "forwards": "FORWARDs sent",
}

_CLIENT_COUNTERS = {
    "received": "Messages received, including repairs and duplicates",
    "delivered": "Messages delivered to the application, in order",
    "duplicates": "Duplicates received",
    "repeats": "Messages suppressed because they were published twice",
    "repaired": "Missing messages repaired",
    "lost": "Numbers given up: no client that was asked holds them",
    "requests": "REQUESTs sent",
    "pushes": "PUSHes sent, including retransmissions",
    "published": "Own messages published",
    "publish_failed": "Own messages not confirmed in time",
    "unkept": "Own messages that too few journals synced in time",
}


class BackboneCollector(Collector):
    """Collector of the metrics ``fyrehose_backbone_*`` of a running backbone."""

    def __init__(self, protocol: BackboneProtocol) -> None:
        self._protocol = protocol

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        yield info_metric("backbone", stream=getattr(self._protocol.state, "stream", None))
        node = self._protocol.node
        if node is None:
            return
        for name, description in _BACKBONE_COUNTERS.items():
            yield CounterMetricFamily(f"fyrehose_backbone_{name}", description, value=getattr(node.counters, name))
        yield _labelled_counter("fyrehose_backbone_dropped", "Packets refused, by reason", "reason", node.drops.counts)
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            yield from _port_metrics("fyrehose_backbone", port)
        clients = node.clients
        yield GaugeMetricFamily("fyrehose_backbone_clients", "Connected clients", value=len(clients))
        for name, flag in (("subscribers", Flags.NOSUBSCRIBE), ("journals", Flags.NOJOURNAL)):
            yield GaugeMetricFamily(
                f"fyrehose_backbone_{name}",
                f"Connected clients that are {name}",
                value=sum(not client.flags & flag for client in clients),
            )
        durable = sum(bool(client.flags & Flags.DURABLE) for client in clients)
        yield GaugeMetricFamily(
            "fyrehose_backbone_durable_journals", "Connected clients that are durable journals", value=durable
        )
        resending = node.repair_dispatcher
        yield CounterMetricFamily(
            "fyrehose_backbone_retransmitted", "Messages retransmitted from memory", value=resending.retransmitted
        )
        yield GaugeMetricFamily(
            "fyrehose_backbone_retransmit_bytes",
            "Bytes of recent messages in memory",
            value=resending.buffered_bytes,
        )
        yield GaugeMetricFamily(
            "fyrehose_backbone_rate_limit_bytes",
            "Publish rate limit in bytes per second, 0 for none",
            value=resending.backpressure.effective_rate or 0.0,
        )
        yield GaugeMetricFamily("fyrehose_backbone_sequence", "Last assigned number", value=node.sequencer.last)


class ClientCollector(Collector):
    """Collector of the metrics ``fyrehose_client_*`` of a running client."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        node = self._protocol.node
        if node is None:
            return
        for name, description in _CLIENT_COUNTERS.items():
            yield CounterMetricFamily(f"fyrehose_client_{name}", description, value=getattr(node.counters, name))
        yield CounterMetricFamily(
            "fyrehose_client_resent", "PUSHes retransmitted", value=node.send_queue.retransmissions
        )
        yield CounterMetricFamily(
            "fyrehose_client_answered", "Messages sent to other clients as repairs", value=node.repair_responder.sent
        )
        yield _labelled_counter("fyrehose_client_dropped", "Packets refused, by reason", "reason", node.drops.counts)
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            yield from _port_metrics("fyrehose_client", port)
        yield from gauge_families("fyrehose_client", _client_gauges(node))


def _client_gauges(node: Client) -> Iterator[tuple[str, str, float]]:
    yield "connected", "1 if the backbone replied in the last 5 s", node.keepalive.connected
    if node.keepalive.round_trip is not None:
        yield "round_trip_seconds", "Round-trip time of the latest KEEPALIVE", node.keepalive.round_trip
    yield "missing", "Numbers missing and not given up", node.missing_count
    yield "waiting_bytes", "Bytes buffered behind missing messages or a slow application", node.buffered_bytes
    yield "pending", "Own messages not yet confirmed", len(node.send_queue)
    yield "keeping", "Own messages waiting for journals to sync them", len(node.durability)
    if node.next_sequence is not None:
        yield "sequence", "Number of the last message delivered", node.next_sequence - 1


def _port_metrics(prefix: str, port: DatagramPort) -> Iterator[Metric]:
    yield _labelled_counter(f"{prefix}_send_errors", "Datagrams not sent", "errno", port.send_errors)
    size = port.receive_buffer
    yield GaugeMetricFamily(f"{prefix}_receive_buffer_bytes", "Receive buffer size of the socket", value=size)


def _labelled_counter(name: str, description: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, description, labels=[label])
    for value, count in sorted(counts.items()):
        family.add_metric([value], count)
    return family
