"""Prometheus collector of the frontend."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.fyrehose.frontend.idempotency import IdempotencyKeys
from fyrehose_twisted.fyrehose.frontend.line_protocol import LineFactory
from fyrehose_twisted.fyrehose.frontend.publish_queue import PublishQueue
from fyrehose_twisted.net.metrics import info_metric


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
        yield CounterMetricFamily("fyrehose_frontend_published", "Messages published", value=queue.published)
        yield CounterMetricFamily(
            "fyrehose_frontend_published_bytes", "Bytes of published messages", value=queue.published_bytes
        )
        failed = CounterMetricFamily(
            "fyrehose_frontend_failed", "Messages that failed or whose outcome is unknown, by reason", labels=["reason"]
        )
        for reason, count in sorted(queue.failed.items()):
            failed.add_metric([reason], count)
        yield failed
        yield CounterMetricFamily(
            "fyrehose_frontend_unkept",
            "Published messages that too few journals synced in time",
            value=journals.not_kept,
        )
        yield GaugeMetricFamily("fyrehose_frontend_backbone", "1 if the backbone replies", value=queue.is_connected)
        yield GaugeMetricFamily(
            "fyrehose_frontend_batches", "Batches in progress: requests, and groups of lines", value=len(queue)
        )
        yield GaugeMetricFamily(
            "fyrehose_frontend_waiting_bytes", "Bytes queued for the backbone", value=queue.waiting_bytes
        )
        yield GaugeMetricFamily(
            "fyrehose_frontend_unsynced_bytes",
            "Bytes published and not yet synced by enough journals",
            value=journals.unsynced_bytes,
        )
        yield GaugeMetricFamily(
            "fyrehose_frontend_journals", "Durable journals known to the backbone, at most 16", value=journals.count
        )
        yield GaugeMetricFamily("fyrehose_frontend_keys", "Idempotency keys remembered", value=len(self._keys))
        yield GaugeMetricFamily("fyrehose_frontend_line_connections", "Open line connections", value=len(lines))
        yield CounterMetricFamily(
            "fyrehose_frontend_refused_line_connections",
            "Line connections refused above the limit",
            value=lines.refused,
        )
        counted = CounterMetricFamily("fyrehose_frontend_line_events", "Events on line connections", labels=["what"])
        for what, count in sorted(lines.counters.items()):
            counted.add_metric([what], count)
        yield counted
