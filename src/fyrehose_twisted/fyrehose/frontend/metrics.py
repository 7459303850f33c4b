"""Prometheus collector of the frontend."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.fyrehose.frontend.idempotency import IdempotencyKeys
from fyrehose_twisted.fyrehose.frontend.line_protocol import LineFactory
from fyrehose_twisted.fyrehose.frontend.publish_queue import PublishQueue
from fyrehose_twisted.net.metrics import counter_families, gauge_families, info_metric, labelled_counter


class FrontendCollector(Collector):
    """Collector of the metrics ``fyrehose_frontend_*``."""

    def __init__(self, publish_queue: PublishQueue, lines: LineFactory, keys: IdempotencyKeys) -> None:
        self._publish_queue = publish_queue
        self._lines = lines
        self._keys = keys

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        queue, lines, journals = self._publish_queue, self._lines, self._publish_queue.journals
        yield info_metric("frontend")
        counters = (
            ("published", "Messages that came back from the backbone", queue.published),
            ("published_bytes", "Bytes of these messages", queue.published_bytes),
            ("unkept", "Messages that too few journals had synced in time", journals.not_kept),
            ("refused_line_connections", "Those refused, being too many", lines.refused),
        )
        yield from counter_families("fyrehose_frontend", counters)
        description = "Messages not published, as far as is known"
        yield labelled_counter("fyrehose_frontend_failed", description, "reason", queue.failed)
        description = "What happened on connections for lines"
        yield labelled_counter("fyrehose_frontend_line_events", description, "what", lines.counters)
        unsynced = "Bytes published and not yet synced by a durable journal that is waited for"
        gauges = (
            ("backbone", "Whether the backbone answers", queue.is_connected),
            ("batches", "Requests and runs of lines under way", len(queue)),
            ("waiting_bytes", "Bytes that wait to be sent", queue.waiting_bytes),
            ("unsynced_bytes", unsynced, journals.unsynced_bytes),
            ("journals", "Durable journals of the backbone", journals.count),
            ("keys", "Requests with an idempotency key that are remembered", len(self._keys)),
            ("line_connections", "Connections for lines", len(lines)),
        )
        yield from gauge_families("fyrehose_frontend", gauges)
