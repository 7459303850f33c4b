"""Blocking publisher of Spark's workers, against real services."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import time
from typing import Any

import pytest
from integration.running.backbone import RunningBackbone, StartBackbone
from integration.running.journal import StartJournal

from fyrehose_twisted.errors import PublishTimeout
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.spark.sink import threaded_client
from fyrehose_twisted.spark.sink.identity import wrap_by_position
from fyrehose_twisted.spark.sink.publisher import BlockingPublisher

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def lines(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_blocking_publisher_delivers_each_message_once_in_order(
    backbone: RunningBackbone, start: Callable[..., Any]
) -> None:
    subscriber = start("fyrehose", "sub", "-b", backbone.text, "--count", 5_001)
    backbone.wait_for_clients(1)
    with BlockingPublisher(backbone.text) as publisher:
        publisher.publish(wrap_by_position(b"test", 0, lines(5_000)))
        publisher.flush()
        assert publisher.published == 5_000
        assert publisher.sequence_range[0] == 1
    # A repeated task publishes the same messages; the subscriber next receives later ones.
    with BlockingPublisher(backbone.text) as publisher:
        publisher.publish(wrap_by_position(b"test", 0, lines(5_000)))
        publisher.publish(wrap_by_position(b"test", 1, [b"the end"]))
        publisher.flush()
    assert subscriber.finish() == 0, subscriber
    assert subscriber.outputs[1] == b"\n".join([*lines(5_000), b"the end", b""])
    assert backbone.sequence >= 10_001


@pytest.mark.extended
def test_blocking_publisher_delivers_through_a_lossy_network(
    backbone: RunningBackbone, start: Callable[..., Any], start_journal: StartJournal
) -> None:
    journal = start_journal(backbone, "kept")
    relay = start("python", EXAMPLES / "lossy_relay.py", "--backbone", backbone.text, "--port", 0, "--loss", "0.05")
    through = relay.wait_for(r"relaying 127.0.0.1:(\d+)")
    with BlockingPublisher(f"127.0.0.1:{through[1]}") as publisher:
        publisher.publish(wrap_by_position(b"test", 0, lines(2_000)))
        publisher.flush()
        assert publisher.published == 2_000
        last = publisher.sequence_range[1]
    journal.wait_for(last)
    assert set(journal.lines()) == set(lines(2_000))


@pytest.mark.extended
def test_messages_in_flight_of_a_blocking_publisher_survive_a_backbone_restart(start_backbone: StartBackbone) -> None:
    backbone = start_backbone("--state", "numbers")
    with BlockingPublisher(backbone.text) as publisher:
        publisher.publish(wrap_by_position(b"test", 0, lines(100)))
        publisher.flush()
        backbone.kill()
        publisher.publish(wrap_by_position(b"test", 1, [bytes(MAX_ENVELOPED)]))
        start_backbone("--state", "numbers", port=backbone.address[1])
        publisher.flush()
        assert publisher.published == 101
        assert publisher.sequence_range[1] > 100


def test_blocking_publisher_fails_when_the_backbone_stays_dead(
    start_backbone: StartBackbone, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, killed = start_backbone(), float("inf")

    def hurried() -> float:
        """Return the time, which runs 600 times as fast once the backbone was killed."""
        now = time()
        return now + 600.0 * max(0.0, now - killed)

    monkeypatch.setattr(threaded_client, "time", hurried)
    with BlockingPublisher(backbone.text, publish_timeout=600.0) as publisher:
        publisher.publish(wrap_by_position(b"test", 0, lines(10)))
        publisher.flush()
        backbone.kill()
        killed = time()
        publisher.publish(wrap_by_position(b"test", 1, lines(10)))
        with pytest.raises(PublishTimeout, match=rf"message 10, .* backbone {backbone.text} within 600 s; 10 did"):
            publisher.flush()
