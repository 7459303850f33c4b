"""Backpressure of ``fyrehose parcels publish`` from a slow cluster or a slow reader of the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from fyrehose_twisted.parcels.cli import publish as pub
from fyrehose_twisted.parcels.cli.publish import EventPublisher


class Publisher:
    """Publisher whose events are ordered only when a test says so."""

    def __init__(self) -> None:
        self.under_way: list[Deferred[int]] = []

    def publish(self, event: bytes) -> Deferred[int]:
        self.under_way.append(Deferred())
        return self.under_way[-1]


@pytest.fixture
def publisher() -> Publisher:
    """Return a publisher whose events a test orders."""
    return Publisher()


@pytest.fixture
def lines(publisher: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[EventPublisher]:
    """Return the command's line reader, limited to two lines or nine bytes in flight."""
    monkeypatch.setattr(pub, "MAX_IN_FLIGHT_EVENTS", 2)
    monkeypatch.setattr(pub, "MAX_IN_FLIGHT_BYTES", 9)
    lines = EventPublisher(publisher.publish, None)
    yield lines
    lines.stop("the test has ended")  # Closes its progress bar.


def room(lines: EventPublisher) -> Deferred[None]:
    return Deferred.fromCoroutine(lines.when_room())


def test_input_pauses_at_the_limit_of_events_in_flight(lines: EventPublisher, publisher: Publisher) -> None:
    assert room(lines).called
    lines.publish(b"a")
    assert room(lines).called
    lines.publish(b"b")
    waiting = room(lines)
    assert not waiting.called
    publisher.under_way[0].callback(1)
    assert waiting.called


def test_input_pauses_at_the_limit_of_bytes_in_flight(lines: EventPublisher, publisher: Publisher) -> None:
    lines.publish(b"nine byte")
    waiting = room(lines)
    assert not waiting.called
    publisher.under_way[0].callback(1)
    assert waiting.called


def test_input_pauses_while_the_reader_of_the_numbers_is_slow(lines: EventPublisher) -> None:
    lines.pauseProducing()
    waiting = room(lines)
    assert not waiting.called
    lines.resumeProducing()
    assert waiting.called


def test_input_resumes_when_the_output_is_closed(lines: EventPublisher) -> None:
    lines.pauseProducing()
    waiting = room(lines)
    lines.stopProducing()
    assert waiting.called


def test_input_resumes_when_the_command_ends(lines: EventPublisher) -> None:
    lines.pauseProducing()
    waiting = room(lines)
    lines.end_with("interrupted")
    assert waiting.called
