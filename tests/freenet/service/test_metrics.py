"""Prometheus metrics of a freenet node."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry

from fyrehose_twisted.freenet.node.packet_window import NUMBER_SPACE
from fyrehose_twisted.freenet.node.status import NodeStatus, StreamStatus
from fyrehose_twisted.freenet.service.metrics import MAX_STREAM_SERIES, FreenetCollector


def stream(key: int, **fields: Any) -> StreamStatus:
    """Return the status of a stream with defaults for all but ``fields``."""
    nothing = StreamStatus(key.to_bytes(2), 0.5, "searching", None, False, None, (), False, None)
    return nothing._replace(**fields)


def values(streams: Sequence[StreamStatus]) -> dict[tuple[str, ...], float]:
    """Return the samples by the last part of the name and the labels."""
    state = NodeStatus(None, 1, 0.25, (), streams, 0, {})
    registry = CollectorRegistry()
    registry.register(FreenetCollector(SimpleNamespace(state=lambda: state)))
    return {
        (sample.name.removeprefix("fyrehose_freenet_"), *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_the_metrics_of_a_stopped_node_are_only_its_info() -> None:
    registry = CollectorRegistry()
    registry.register(FreenetCollector(SimpleNamespace(state=lambda: None)))
    assert [family.name for family in registry.collect()] == ["fyrehose_info"]


def test_the_metrics_of_a_stream_are_exported() -> None:
    told = values([stream(0xAB, phase="settled", is_root=True, subscribers=(1, 2), newest=41)])
    assert told["stream_phase", "00ab", "settled"] == told["stream_root", "00ab"] == 1
    assert told["stream_phase", "00ab", "restarting"] == told["stream_phase", "00ab", "searching"] == 0
    assert told["stream_subscribers", "00ab"] == 2
    assert told["stream_next", "00ab"] == 42


def test_the_next_number_of_a_stream_without_packets_is_not_known() -> None:
    assert ("stream_next", "0001") not in values([stream(1)])


def test_consecutive_packet_numbers_differ_in_the_metrics() -> None:
    told = values([stream(1, newest=2**62), stream(2, newest=2**62 + 1), stream(3, newest=NUMBER_SPACE - 1)])
    assert [told["stream_next", f"000{key}"] for key in (1, 2, 3)] == [1, 2, 0]


def test_the_number_of_stream_series_is_limited_but_local_streams_are_exported() -> None:
    streams = [stream(key, local=key > 995) for key in range(1_000)]
    told = values(streams)
    keys = {labels[1] for labels in told if labels[0] == "stream_root"}
    assert len(keys) == MAX_STREAM_SERIES
    assert keys == {f"{key:04x}" for key in (*range(MAX_STREAM_SERIES - 4), 996, 997, 998, 999)}
    assert told["streams", "searching"] == 1_000
