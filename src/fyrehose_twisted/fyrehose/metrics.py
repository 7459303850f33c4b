"""The backbone's counters for Prometheus. They are read when asked for, and cost nothing otherwise."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.fyrehose.messages import Flags
from fyrehose_twisted.fyrehose.protocol import BackboneProtocol
from fyrehose_twisted.net.udp import DatagramPort

_COUNTERS = {
    "datagrams": "Datagrams received",
    "published": "Messages that were given a number",
    "published_bytes": "Bytes of DATA in them",
    "delivered": "DELIVERs sent, one a message and subscriber",
    "delivered_bytes": "Bytes of DATA in them",
    "keepalives": "KEEPALIVEs received",
    "requests": "REQUESTs received",
    "forwards": "FORWARDs sent",
}


class BackboneCollector(Collector):
    """Turns the state of a running backbone into metrics named ``fyrehose_backbone_*``."""

    def __init__(self, protocol: BackboneProtocol) -> None:
        self._protocol = protocol

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        node = self._protocol.node
        if node is None:
            return
        for name, description in _COUNTERS.items():
            yield CounterMetricFamily(f"fyrehose_backbone_{name}", description, value=getattr(node.counters, name))
        drops = CounterMetricFamily("fyrehose_backbone_dropped", "Packets refused, by reason", labels=["reason"])
        for reason, count in node.drops.counts.items():
            drops.add_metric([reason], count)
        yield drops
        port: object = self._protocol.transport
        if isinstance(port, DatagramPort):
            errors = CounterMetricFamily("fyrehose_backbone_send_errors", "Datagrams not sent", labels=["errno"])
            for errno, count in port.send_errors.items():
                errors.add_metric([errno], count)
            yield errors
        clients = node.clients
        yield GaugeMetricFamily("fyrehose_backbone_clients", "Clients alive", value=len(clients))
        for name, flag in (("subscribers", Flags.NOSUBSCRIBE), ("journals", Flags.NOJOURNAL)):
            yield GaugeMetricFamily(
                f"fyrehose_backbone_{name}",
                f"Clients alive that are {name}",
                value=sum(not client.flags & flag for client in clients),
            )
        yield GaugeMetricFamily("fyrehose_backbone_sequence", "The last number given", value=node.numbering.last)
