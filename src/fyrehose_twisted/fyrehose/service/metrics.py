"""Prometheus collectors of backbones and clients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.relay.downstream import RelayDownstream
from fyrehose_twisted.fyrehose.node.relay.upstream import RelayUpstream
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.fyrehose.protocol.relay import RelayProtocol
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Flags
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.net.metrics import counter_families, gauge_families, info_metric, labelled_counter
from fyrehose_twisted.net.udp import DatagramPort

_BACKBONE_COUNTERS = {
    "datagrams": "Datagrams received",
    "published": "Messages numbered",
    "published_bytes": "DATA bytes of numbered messages",
    "delivered": "Messages sent to subscribers, counted for each of them",
    "delivered_bytes": "DATA bytes of these messages, counted for each subscriber",
    "keepalives": "KEEPALIVEs received",
    "requests": "REQUESTs received",
    "repeated": "Duplicate PUSHes, answered with the existing number",
    "answered": "REQUESTs answered entirely from memory",
    "routed": "REQUESTs forwarded to clients, in whole or in part",
    "beyond": "REQUESTs for numbers above the last assigned",
    "forwards": "FORWARDs sent",
    "fetched": "Messages of clients passed on to clients of the other IP version",
    "multicast": "Messages sent to the multicast group, once for all that hear it",
    "repaired_for_all": "Messages sent to the multicast group again, because several clients had lost them",
    "gathered": "Messages not sent to a client again, because they were on their way to the group",
}

_RELAY_COUNTERS = {
    "datagrams": "Datagrams received from clients",
    "published": "Messages of the stream passed on to clients",
    "published_bytes": "DATA bytes of these messages",
    "delivered": "Messages sent to subscribers, counted for each of them",
    "delivered_bytes": "DATA bytes of these messages, counted for each subscriber",
    "keepalives": "KEEPALIVEs received",
    "requests": "REQUESTs received",
    "repeated": "Retransmitted PUSHes answered from memory",
    "answered": "REQUESTs answered from memory, in whole or in part",
    "beyond": "REQUESTs for numbers above the last one known",
    "forwards": "FORWARDs sent to journals",
    "multicast": "Messages sent to the multicast group, once for all that hear it",
    "repaired_for_all": "Messages sent to the multicast group again, because several clients had lost them",
    "gathered": "Messages not sent to a client again, because they were on their way to the group",
}

_RELAY_OWN_COUNTERS = {
    "returned": "DELIVERs returned to publishers that do not subscribe, or had repeated a PUSH",
    "requests_passed": "REQUESTs passed to the parent",
    "requests_joined": "REQUESTs for what had just been requested for another client",
    "requests_awaited": "REQUESTs for what the relay waited for itself",
    "repairs_passed": "Messages passed to the clients that had requested them",
}

_CLIENT_COUNTERS = {
    "received": "Messages received, including repairs and duplicates",
    "delivered": "Messages delivered to the application, in order",
    "duplicates": "Duplicates received",
    "repeats": "Messages suppressed because they were published twice",
    "opened": "Sealed messages opened and delivered",
    "repaired": "Missing messages repaired",
    "lost": "Numbers given up: no client that was asked holds them",
    "skipped": "Numbers left unused by backbones that took over",
    "leader_changes": "Changes of the leading backbone, or of its term",
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
        member = self._protocol.member if isinstance(self._protocol, MemberProtocol) else None
        stream = getattr(self._protocol.state, "stream", None)
        yield info_metric("backbone", stream=stream, member=None if member is None else member.name)
        node = self._protocol.node
        if node is None:
            return
        yield from counter_families("fyrehose_backbone", _counter_rows(_BACKBONE_COUNTERS, node.counters))
        yield labelled_counter("fyrehose_backbone_dropped", "Packets refused, by reason", "reason", node.drops.counts)
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            yield from _port_metrics("fyrehose_backbone", port)
        sent_again = "Messages retransmitted from memory", node.repair_dispatcher.retransmitted
        yield from counter_families("fyrehose_backbone", [("retransmitted", *sent_again)])
        yield from gauge_families("fyrehose_backbone", _backbone_gauges(node))


def _served_gauges(node: Backbone) -> Iterator[tuple[str, str, float]]:
    clients = node.clients
    yield "clients", "Connected clients", len(clients)
    for name, flag in (("subscribers", Flags.NOSUBSCRIBE), ("journals", Flags.NOJOURNAL)):
        yield name, f"Connected clients that are {name}", sum(not client.flags & flag for client in clients)
    durable = sum(bool(client.flags & Flags.DURABLE) for client in clients)
    yield "durable_journals", "Connected clients that are durable journals", durable
    relays = sum(bool(client.flags & Flags.RELAY) for client in clients)
    yield "relays", "Connected clients that are relays", relays
    yield "listeners", "Connected clients that hear the multicast group", node.listener_count
    yield "mac_clients", "Connected clients that get MACs in their messages", node.mac_clients
    yield "retransmit_bytes", "Bytes of recent messages in memory", node.repair_dispatcher.buffered_bytes


def _backbone_gauges(node: Backbone) -> Iterator[tuple[str, str, float]]:
    yield from _served_gauges(node)
    rate = node.repair_dispatcher.backpressure.effective_rate or 0.0
    yield "rate_limit_bytes", "Publish rate limit in bytes per second, 0 for none", rate
    yield "sequence", "Last assigned number", node.sequencer.last


class RelayCollector(Collector):
    """Collector of the metrics ``fyrehose_relay_*`` of a running relay. Those of a client describe its other side.

    :param backbone: addresses of its parents.
    """

    def __init__(self, protocol: RelayProtocol, stream: str | None, backbone: str) -> None:
        self._protocol = protocol
        self._stream = stream
        self._backbone = backbone

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        yield info_metric("relay", stream=self._stream, backbone=self._backbone)
        node, parent = self._protocol.node, self._protocol.upstream.node
        if node is None:
            return
        rows = (
            *_counter_rows(_RELAY_COUNTERS, node.counters),
            *_counter_rows(_RELAY_OWN_COUNTERS, node.relay_counters),
            ("pushed", "PUSHes passed to the parent", node.pushed),
            ("retransmitted", "Messages retransmitted from memory", node.repair_dispatcher.retransmitted),
        )
        yield from counter_families("fyrehose_relay", rows)
        yield labelled_counter("fyrehose_relay_dropped", "Packets refused, by reason", "reason", node.drops.counts)
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            yield from _port_metrics("fyrehose_relay", port)
        yield from gauge_families("fyrehose_relay", _relay_gauges(node, parent))


def _relay_gauges(node: RelayDownstream, parent: RelayUpstream | None) -> Iterator[tuple[str, str, float]]:
    yield from _served_gauges(node)
    yield "sequence", "Last number known to be given", node.sequencer.last
    if parent is not None:
        yield "depth", "Relays between the backbone and the clients, including this one", parent.depth


class ClientCollector(Collector):
    """Collector of the metrics ``fyrehose_client_*`` of a running client."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        node = self._protocol.node
        if node is None:
            return
        yield from _client_info(self._protocol)
        rows = (
            *_counter_rows(_CLIENT_COUNTERS, node.counters),
            ("resent", "PUSHes retransmitted", node.send_queue.retransmissions),
            ("answered", "Messages sent to other clients as repairs", node.repair_responder.sent),
        )
        yield from counter_families("fyrehose_client", rows)
        yield labelled_counter("fyrehose_client_dropped", "Packets refused, by reason", "reason", node.drops.counts)
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            yield from _port_metrics("fyrehose_client", port)
        yield from gauge_families("fyrehose_client", _client_gauges(node))


class ClientInfoCollector(Collector):
    """Collector of ``fyrehose_client_info``, by which a client is found in the list of its backbone."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol

    def collect(self) -> Iterator[Metric]:
        """Yield the metric once the client has a socket."""
        yield from _client_info(self._protocol)


def _client_info(protocol: ClientProtocol) -> Iterator[Metric]:
    port: object = protocol.transport
    if protocol.node is None or not isinstance(port, DatagramPort):
        return
    address = protocol.config.address
    if address == ANY_ADDRESS:
        bound = port.getHost()
        address = bound.host, bound.port
    family = GaugeMetricFamily(
        "fyrehose_client_info", "Address, and backbone that serves the client", labels=("address", "backbone")
    )
    family.add_metric((format_address(address), format_address(protocol.node.backbone)), 1)
    yield family


def _client_gauges(node: Client) -> Iterator[tuple[str, str, float]]:
    yield "connected", "1 if the backbone replied in the last 5 s", node.keepalive.connected
    yield "requires_macs", "1 if messages without a MAC of the backbone are refused", not node.macs.accepts_plain
    yield "hears_group", "1 if messages come by the multicast group of the backbone", node.listening.hears
    if node.keepalive.round_trip is not None:
        yield "round_trip_seconds", "Round-trip time of the latest KEEPALIVE", node.keepalive.round_trip
    if node.group.term:
        yield "term", "Term of the backbone that leads", node.group.term
    yield "missing", "Numbers missing and not given up", node.missing_count
    yield "waiting_bytes", "Bytes buffered behind missing messages or a slow application", node.buffered_bytes
    yield "pending", "Own messages not yet confirmed", len(node.send_queue)
    yield "keeping", "Own messages waiting for journals to sync them", len(node.durability)
    if node.next_sequence is not None:
        yield "sequence", "Number of the last message delivered", node.next_sequence - 1


def _counter_rows(descriptions: Mapping[str, str], counters: object) -> Iterator[tuple[str, str, float]]:
    return ((name, description, getattr(counters, name)) for name, description in descriptions.items())


def _port_metrics(prefix: str, port: DatagramPort) -> Iterator[Metric]:
    yield labelled_counter(f"{prefix}_send_errors", "Datagrams not sent", "errno", port.send_errors)
    size = port.receive_buffer
    yield GaugeMetricFamily(f"{prefix}_receive_buffer_bytes", "Receive buffer size of the socket", value=size)
