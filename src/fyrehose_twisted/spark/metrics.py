"""Prometheus metrics of the lag of streaming queries."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.spark.listener import offset_positions

_EPOCH_GAUGES = {
    "lag": "Numbers below the journal's watermark that the query has not read; epochs not yet started do not count",
    "next": "Next number to read",
}


class QueryMetrics(StreamingQueryListener, Collector):
    """Collector that exports the reports of queries after each batch as metrics ``fyrehose_spark_*``."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._reports: dict[str, dict[str, Any]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no figures before the first batch."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the last report remains valid."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Record the progress of a query."""
        self.record(json.loads(event.progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Drop the figures of an ended query, so that its lag does not appear constant."""
        self.forget(str(event.id))

    def record(self, report: dict[str, Any]) -> None:
        """Record a report, a :class:`~pyspark.sql.streaming.StreamingQueryProgress` as JSON."""
        number = str(report["id"])
        self._rows[number] = self._rows.get(number, 0) + int(report.get("numInputRows") or 0)
        self._reports[number] = report

    def forget(self, number: str) -> None:
        """Drop the figures of a query."""
        self._reports.pop(number, None)
        self._rows.pop(number, None)

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        reports = [(number, report, str(report.get("name") or number)) for number, report in [*self._reports.items()]]
        labels = ["query", "journal", "stream", "epoch"]
        gauges = {
            name: GaugeMetricFamily(f"fyrehose_spark_{name}", text, labels=labels)
            for name, text in _EPOCH_GAUGES.items()
        }
        seconds = GaugeMetricFamily("fyrehose_spark_batch_seconds", "Duration of the last batch", labels=["query"])
        rows = CounterMetricFamily("fyrehose_spark_rows", "Rows read since the query started", labels=["query"])
        for number, report, query in reports:
            seconds.add_metric([query], (report.get("durationMs") or {}).get("triggerExecution", 0) / 1_000)
            rows.add_metric([query], self._rows.get(number, 0))
            for source in report.get("sources") or ():
                ends, latest = offset_positions(source.get("endOffset")), offset_positions(source.get("latestOffset"))
                for key, next in sorted((ends or {}).items()):
                    gauges["next"].add_metric([query, *key], next)
                    gauges["lag"].add_metric([query, *key], max(0, (latest or {}).get(key, next) - next))
        yield from gauges.values()
        yield seconds
        yield rows


@contextmanager
def query_metrics(spark: SparkSession, port: int, host: str = "127.0.0.1") -> Iterator[int]:
    """Serve metrics of a session's queries at ``http://HOST:PORT/metrics`` during the block; yield the port.

    :param port: port to listen on; 0 for a free one.
    :raises OperationalError: if the server cannot listen there.
    """
    metrics, registry = QueryMetrics(), CollectorRegistry()
    registry.register(metrics)
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise OperationalError(
            f"metrics cannot be served at {format_address((host, port))}: {error.strerror or error}"
        ) from error
    spark.streams.addListener(metrics)
    try:
        yield int(server.server_port)
    finally:
        with suppress(Exception):  # The session may have been stopped meanwhile.
            spark.streams.removeListener(metrics)
        server.shutdown()
        server.server_close()
        thread.join()
