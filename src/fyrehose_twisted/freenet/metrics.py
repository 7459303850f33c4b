"""A freenet node's counters for Prometheus. They are read when asked for, and cost nothing otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.freenet.stream import Phase
from fyrehose_twisted.net.metrics import choices, counted, gauges


class FreenetCollector(Collector):
    """Turns the state of a running node into metrics named ``fyrehose_freenet_*``.

    :param service: the :class:`~fyrehose_twisted.freenet.service.FreenetService`.
    """

    def __init__(self, service: Any) -> None:
        self._service = service

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        state = self._service.state()
        if state is None:
            return
        found = Counter(stream.phase for stream in state.streams)
        phases = {phase.value: float(found[phase.value]) for phase in Phase}
        yield choices("fyrehose_freenet_streams", "Streams by phase", "phase", phases)
        subscribers = sum(len(stream.subscribers) for stream in state.streams)
        rows = (
            ("location", "Where on the ring the node is", state.location),
            ("neighbours", "Neighbours with an open link", sum(one.linked for one in state.neighbours)),
            ("roots", "Streams of which this node is the root", sum(one.is_root for one in state.streams)),
            ("local", "Streams that this node's application has", sum(one.local for one in state.streams)),
            ("subscribers", "Neighbours below this node, over all streams", subscribers),
            ("requests", "Requests that are waited for", state.requests),
        )
        yield from gauges("fyrehose_freenet", rows)
        yield counted("fyrehose_freenet", state.counts)
