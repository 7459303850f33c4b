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
        """Yield the current metrics."""
        queue, lines, journals = self._publish_queue, self._lines, self._publish_queue.journals
        yield info_metric("frontend")
        counters = (
            ("published", "Messages published", queue.published),
            ("published_bytes", "Bytes of published messages", queue.published_bytes),
            ("unkept", "Published messages that too few journals synced in time", journals.not_kept),
            ("refused_line_connections", "Line connections refused above the limit", lines.refused),
        )
        yield from counter_families("fyrehose_frontend", counters)
        description = "Messages that failed or whose outcome is unknown, by reason"
        yield labelled_counter("fyrehose_frontend_failed", description, "reason", queue.failed)
        description = "Events on line connections"
        yield labelled_counter("fyrehose_frontend_line_events", description, "what", lines.counters)
        unsynced = "Bytes published and not yet synced by enough journals"
        gauges = (
            ("backbone", "1 if the backbone replies", queue.is_connected),
            ("batches", "Batches in progress: requests, and groups of lines", len(queue)),
            ("waiting_bytes", "Bytes queued for the backbone", queue.waiting_bytes),
            ("unsynced_bytes", unsynced, journals.unsynced_bytes),
            ("journals", "Durable journals known to the backbone, at most 16", journals.count),
            ("keys", "Idempotency keys remembered", len(self._keys)),
            ("line_connections", "Open line connections", len(lines)),
        )
        yield from gauge_families("fyrehose_frontend", gauges)
