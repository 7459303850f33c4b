"""The frontend's publisher gathers the batches of a turn of the reactor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from fyrehose_twisted.errors import NotConnected
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.publisher import MAX_IN_FLIGHT_BYTES, FrontendPublisher, publisher_config


class Gathering(FrontendPublisher):
    """Publisher that records what it would publish.

    :ivar gone: whether publishing raises.
    """

    def __init__(self) -> None:
        self.clock = Clock()
        super().__init__(publisher_config(FrontendConfig(), None), reactor=self.clock)
        self.transport: Any = object()
        self.gathered: list[list[Sequence[bytes]]] = []
        self.gone = False

    def publish_batches(self, batches: Sequence[tuple[Sequence[bytes], Deferred[list[int]]]]) -> None:
        """Record batches, and number them from 1."""
        if self.gone:
            raise NotConnected("gone")
        self.gathered.append([messages for messages, _ in batches])
        for messages, published in batches:
            published.callback(list(range(1, len(messages) + 1)))


@pytest.fixture
def publisher() -> Gathering:
    """Return a publisher on a fake clock."""
    return Gathering()


def test_batches_of_a_turn_are_published_together(publisher: Gathering) -> None:
    numbers: list[Any] = []
    for batch in ([b"1"], [b"2", b"3"]):
        publisher.publish_many(batch).addCallback(numbers.append)
    assert numbers == []
    publisher.clock.advance(0)
    assert publisher.gathered == [[[b"1"], [b"2", b"3"]]]
    assert numbers == [[1], [1, 2]]
    publisher.publish_many([b"4"])
    publisher.clock.advance(0)
    assert publisher.gathered[1:] == [[[b"4"]]]


def test_each_batch_fails_if_the_publisher_has_stopped(publisher: Gathering) -> None:
    failed: list[Any] = []
    for _ in range(2):
        publisher.publish_many([b"1"]).addErrback(lambda failure: failed.append(failure.value))
    publisher.gone = True
    publisher.stopProtocol()
    assert [type(error) for error in failed] == [NotConnected] * 2
    assert not publisher.clock.getDelayedCalls()


def test_a_turn_gathers_less_than_fits_the_send_queue(publisher: Gathering, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fyrehose_twisted.fyrehose.protocol.publisher.PublisherProtocol._has_room", lambda self: True)
    assert publisher.when_room().called
    publisher.publish_many([bytes(60_000)] * (MAX_IN_FLIGHT_BYTES // 4 // 60_000 + 1))
    monkeypatch.setattr(Gathering, "node", object())
    assert not publisher.when_room().called
    publisher.clock.advance(0)
    assert publisher.when_room().called
