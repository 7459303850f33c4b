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
        """Yield the metrics as they are now."""
        queue, lines, journals = self._publish_queue, self._lines, self._publish_queue.journals
        yield info_metric("frontend")
        yield CounterMetricFamily(
            "fyrehose_frontend_published", "Messages that came back from the backbone", value=queue.published
        )
        yield CounterMetricFamily(
            "fyrehose_frontend_published_bytes", "Bytes of these messages", value=queue.published_bytes
        )
        failed = CounterMetricFamily(
            "fyrehose_frontend_failed", "Messages not published, as far as is known", labels=["reason"]
        )
        for reason, count in sorted(queue.failed.items()):
            failed.add_metric([reason], count)
        yield failed
        yield CounterMetricFamily(
            "fyrehose_frontend_unkept", "Messages that too few journals had synced in time", value=journals.not_kept
        )
        yield GaugeMetricFamily("fyrehose_frontend_backbone", "Whether the backbone answers", value=queue.is_connected)
        yield GaugeMetricFamily("fyrehose_frontend_batches", "Requests and runs of lines under way", value=len(queue))
        yield GaugeMetricFamily(
            "fyrehose_frontend_waiting_bytes", "Bytes that wait to be sent", value=queue.waiting_bytes
        )
        yield GaugeMetricFamily(
            "fyrehose_frontend_unsynced_bytes",
            "Bytes published and not yet synced by a durable journal that is waited for",
            value=journals.unsynced_bytes,
        )
        yield GaugeMetricFamily("fyrehose_frontend_journals", "Durable journals of the backbone", value=journals.count)
        yield GaugeMetricFamily(
            "fyrehose_frontend_keys", "Requests with an idempotency key that are remembered", value=len(self._keys)
        )
        yield GaugeMetricFamily("fyrehose_frontend_line_connections", "Connections for lines", value=len(lines))
        yield CounterMetricFamily(
            "fyrehose_frontend_refused_line_connections", "Those refused, being too many", value=lines.refused
        )
        counted = CounterMetricFamily(
            "fyrehose_frontend_line_events", "What happened on connections for lines", labels=["what"]
        )
        for what, count in sorted(lines.counters.items()):
            counted.add_metric([what], count)
        yield counted
