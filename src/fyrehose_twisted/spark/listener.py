"""Progress lines on standard error for the batches of a streaming query."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TextIO

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from fyrehose_twisted.spark.connect import is_connect
from fyrehose_twisted.spark.session import QUIET
from fyrehose_twisted.wording import pluralize

EMPTY_INTERVAL = 10.0
"""Minimum seconds between lines for batches without rows."""
DELIVERY_TIMEOUT = 10_000
"""Milliseconds to wait for the last report of a query."""


@contextmanager
def stream_progress(spark: SparkSession, label: str = "batch") -> Iterator[None]:
    """Show each batch of queries that run in the block, unless the session was opened with ``--quiet``."""
    if spark.conf.get(QUIET, "false") == "true":
        yield
        return
    listener = BatchListener(label)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        with suppress(Exception):  # The session may have been stopped meanwhile.
            # Another thread delivers the last report of a query after its end.
            if not is_connect(spark):
                spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(DELIVERY_TIMEOUT)
            spark.streams.removeListener(listener)


class BatchListener(StreamingQueryListener):
    """Listener that writes a line for each batch: its number, rows, rows/s and lag behind the journals."""

    def __init__(self, label: str = "batch", file: TextIO | None = None) -> None:
        self._label = label
        self._file = sys.stderr if file is None else file
        self._silent_until = 0.0

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write the line of a batch."""
        report = json.loads(event.progress.json)
        now = time.monotonic()
        if not report.get("numInputRows") and now < self._silent_until:
            return
        self._silent_until = now + EMPTY_INTERVAL
        # A closed standard error must not end a query.
        with suppress(OSError, ValueError):
            self._file.write(f"{self._label} {format_progress(report)}\n")
            self._file.flush()


def format_progress(report: Mapping[str, Any]) -> str:
    """Format the progress of a query, a :class:`~pyspark.sql.streaming.StreamingQueryProgress` as JSON.

    The lag in seconds is the time to catch up at the rate of this batch.
    """
    rows = int(report.get("numInputRows") or 0)
    duration = (report.get("durationMs") or {}).get("triggerExecution", 0) / 1_000
    rate = rows / duration if duration > 0 else 0.0
    parts = [f"{report.get('batchId', 0)}: {pluralize(rows, 'row')}", f"{rate:,.0f} rows/s"]
    behind = [offset_lag(source.get("endOffset"), source.get("latestOffset")) for source in report.get("sources", ())]
    if behind and None not in behind:
        numbers = sum(one for one in behind if one is not None)
        lag = f"{pluralize(numbers, 'number')} behind"
        if numbers and rate:
            lag += f" ({numbers / rate:,.1f} s)"
        parts.append(lag)
    return ", ".join(parts)


def offset_lag(end: Any, latest: Any) -> int | None:
    """Return the count of numbers between two offsets of the source; ``None`` if an offset is not of this source."""
    ends, latests = offset_positions(end), offset_positions(latest)
    if ends is None or latests is None:
        return None
    # Epochs not read yet are skipped: their lag counts from their beginning, which no offset contains.
    return sum(max(0, next - ends[key]) for key, next in latests.items() if key in ends)


def offset_positions(offset: Any) -> dict[tuple[str, str, str], int] | None:
    """Return the next number by journal, stream and epoch in an offset; ``None`` if it is not of this source."""
    try:
        if isinstance(offset, str):
            offset = json.loads(offset)
        return {
            (journal, stream, epoch): int(next)
            for journal, streams in offset["journals"].items()
            for stream, epochs in streams.items()
            for epoch, next in epochs.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
