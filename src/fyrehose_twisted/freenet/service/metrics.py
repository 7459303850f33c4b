"""Prometheus metrics of a freenet node, collected at each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.freenet.node.status import StreamStatus
from fyrehose_twisted.freenet.node.stream import StreamPhase
from fyrehose_twisted.net.metrics import counter_family, enum_gauge, gauge_families, info_metric

MAX_STREAM_SERIES = 64
"""Maximum number of streams with metrics of their own. Local streams come first, then the lowest keys."""

NUMBER_MODULUS = 2**48
"""Modulus of exported packet numbers. They start anywhere below 2**62, and Prometheus uses floating point."""

_STREAM_GAUGES = {
    "root": "1 if this node is the root of the stream",
    "subscribers": "Neighbours subscribed to the stream through this node",
    "next": "Highest known packet number of the stream plus 1, modulo 2**48",
}


class FreenetCollector(Collector):
    """Collector of the metrics ``fyrehose_freenet_*`` of a running node.

    :param service: the :class:`~fyrehose_twisted.freenet.service.service.FreenetService`.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        yield info_metric("freenet")
        state = self._service.state()
        if state is None:
            return
        found = Counter(stream.phase for stream in state.streams)
        phases = {phase.value: float(found[phase.value]) for phase in StreamPhase}
        yield enum_gauge("fyrehose_freenet_streams", "Streams by phase", "phase", phases)
        subscribers = sum(len(stream.subscribers) for stream in state.streams)
        rows = (
            ("location", "Location of the node on the ring", state.location),
            ("neighbours", "Neighbours with an open link", sum(one.linked for one in state.neighbours)),
            ("roots", "Streams that this node is the root of", sum(one.is_root for one in state.streams)),
            (
                "local",
                "Streams that applications of this node are subscribed to",
                sum(one.local for one in state.streams),
            ),
            ("subscribers", "Subscribed neighbours, summed over all streams", subscribers),
            ("requests", "Pending requests", state.requests),
        )
        yield from gauge_families("fyrehose_freenet", rows)
        yield counter_family("fyrehose_freenet", state.counts)
        yield from _stream_families(
            sorted(state.streams, key=lambda stream: (not stream.local, stream.key))[:MAX_STREAM_SERIES]
        )


def _stream_families(streams: Sequence[StreamStatus]) -> Iterator[Metric]:
    phases = GaugeMetricFamily(
        "fyrehose_freenet_stream_phase", "1 for the current phase of the stream", labels=["key", "phase"]
    )
    root, subscribers, next_number = (
        GaugeMetricFamily(f"fyrehose_freenet_stream_{name}", description, labels=["key"])
        for name, description in _STREAM_GAUGES.items()
    )
    for stream in streams:
        key = stream.key.hex()
        for phase in StreamPhase:
            phases.add_metric([key, phase.value], stream.phase == phase.value)
        root.add_metric([key], stream.is_root)
        subscribers.add_metric([key], len(stream.subscribers))
        if stream.newest is not None:
            next_number.add_metric([key], (stream.newest + 1) % NUMBER_MODULUS)
    yield from (phases, root, subscribers, next_number)
