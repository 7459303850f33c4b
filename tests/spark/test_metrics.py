"""Prometheus metrics of streaming queries."""

from __future__ import annotations

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from suite.journals import WriteJournal

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.spark.metrics import QueryMetrics, query_metrics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAM = "fyrehose://test"


def offset(next: int, epoch: int = 0) -> dict[str, Any]:
    return {"journals": {"mine": {STREAM: {str(epoch): next}}}}


def report(end: Any, latest: Any, rows: int = 10, **more: Any) -> dict[str, Any]:
    sources = [{"endOffset": end, "latestOffset": latest}]
    return {"id": "a-b", "numInputRows": rows, "durationMs": {"triggerExecution": 1_500}, "sources": sources, **more}


def told(metrics: QueryMetrics) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(metrics)
    lines = generate_latest(registry).decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_metrics_of_a_streaming_query() -> None:
    metrics = QueryMetrics()
    metrics.record(report(offset(11), offset(41), name="ticks"))
    metrics.record(report(offset(21), offset(41), name="ticks"))
    labels = f'{{epoch="0",journal="mine",query="ticks",stream="{STREAM}"}}'
    assert told(metrics) == {
        f"fyrehose_spark_lag{labels}": 20,
        f"fyrehose_spark_next{labels}": 21,
        'fyrehose_spark_batch_seconds{query="ticks"}': 1.5,
        'fyrehose_spark_rows_total{query="ticks"}': 20,
    }
    metrics.forget("a-b")
    assert told(metrics) == {}


@pytest.mark.parametrize("other", [None, "{}", "garbage", {"topic": {"0": 5}}])
def test_sources_of_other_formats_have_no_lag(other: Any) -> None:
    metrics = QueryMetrics()
    metrics.record(report(other, other))
    assert {name.partition("{")[0] for name in told(metrics)} == {
        "fyrehose_spark_batch_seconds",
        "fyrehose_spark_rows_total",
    }


def test_an_epoch_not_begun_has_no_lag() -> None:
    metrics = QueryMetrics()
    metrics.record(report(offset(11), {"journals": {"mine": {STREAM: {"0": 11, "1": 500}}}}))
    assert [value for name, value in told(metrics).items() if "_lag" in name] == [0]


def test_a_spark_metrics_port_in_use_is_an_error(spark: SparkSession) -> None:
    with query_metrics(spark, 0) as port:
        taken = query_metrics(spark, port)
        with pytest.raises(OperationalError, match=f"127.0.0.1:{port}"):
            taken.__enter__()


def test_the_lag_of_a_streaming_query_is_served(
    spark: SparkSession, write_journal: WriteJournal, tmp_path: Path
) -> None:
    path = write_journal(range(1, 101))
    frame = spark.readStream.format("fyrehose").options(
        startingOffsets="earliest", maxOffsetsPerTrigger="30", name="mine"
    )
    seen: list[str] = []
    with query_metrics(spark, 0) as port:

        def look(batch: Any, number: int) -> None:
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(10_000)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                seen.append(answer.read().decode())

        writer = frame.load(str(path)).writeStream.queryName("ticks").foreachBatch(look)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
    lags = [
        line.rpartition(" ")[2] for text in seen for line in text.splitlines() if line.startswith("fyrehose_spark_lag")
    ]
    assert lags == ["70.0", "40.0", "10.0"]
    labels = f'{{epoch="0",journal="mine",query="ticks",stream="{STREAM}"}}'
    assert f"fyrehose_spark_next{labels} 31.0" in seen[1]
