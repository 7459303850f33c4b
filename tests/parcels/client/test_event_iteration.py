"""Iteration over events, and its pauses."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from fyrehose_twisted.errors import EventsMissing
from fyrehose_twisted.parcels.client.event_iteration import EventIteration
from fyrehose_twisted.parcels.client.sse_client import STREAM_TIMEOUT, EventFollower

CLUSTER = "0123456789abcdef"


class Node:
    """Node whose streams the test writes."""

    def __init__(self) -> None:
        self.readers: list[Any] = []
        self.transports: list[StringTransport] = []

    def open_stream(self, node: str, seen: object) -> Deferred[Any]:
        return succeed(self)

    def deliverBody(self, reader: Any) -> None:  # noqa: N802
        self.readers.append(reader)
        self.transports.append(StringTransport())
        reader.makeConnection(self.transports[-1])

    def send(self, *numbers: int, size: int = 100) -> None:
        for number in numbers:
            item = {"sequence": number, "publisher": "a", "data": b64encode(bytes(size)).decode()}
            self.write(f"data: {json.dumps(item)}\nid: {CLUSTER}-{number}\n\n")

    def write(self, text: str) -> None:
        self.readers[-1].dataReceived(text.encode())

    @property
    def state(self) -> str:
        return str(self.transports[-1].producerState)


class Bench:
    def __init__(self, limit: int) -> None:
        self.clock, self.node = Clock(), Node()
        self.events = EventIteration(self.follow, max_waiting=limit)
        self.taken: list[Any] = []

    def follow(self, listener: Any) -> EventFollower:
        return EventFollower(["http://a"], self.node.open_stream, listener, 1, self.clock, 1.0)

    def take(self) -> Any:
        taken: list[Any] = []
        Deferred.fromCoroutine(anext(self.events)).addBoth(taken.append)
        return taken[0]


def test_the_node_is_not_read_while_too_much_waits() -> None:
    bench = Bench(250)
    bench.node.send(1, 2)
    assert bench.node.state == "producing"
    bench.node.send(3)
    assert bench.node.state == "paused"
    assert [bench.take().sequence for _ in range(2)] == [1, 2]
    assert bench.node.state == "paused"
    bench.take()
    assert bench.node.state == "producing"
    bench.events.stop()


def test_a_stream_that_is_not_read_is_not_taken_for_silent() -> None:
    bench = Bench(50)
    bench.node.send(1)
    for _ in range(3):
        bench.clock.advance(STREAM_TIMEOUT)
    assert not bench.node.transports[0].disconnecting
    bench.take()
    waiting: list[Any] = []
    Deferred.fromCoroutine(anext(bench.events)).addBoth(waiting.append)
    assert bench.node.state == "producing"
    bench.clock.advance(STREAM_TIMEOUT)
    assert bench.node.transports[0].disconnected
    bench.events.stop()
    assert waiting[0].check(StopAsyncIteration)


def test_the_next_stream_is_paused_as_well() -> None:
    bench = Bench(50)
    bench.node.send(1)
    bench.node.readers[0].connectionLost()
    bench.clock.advance(1.0)
    assert len(bench.node.transports) == 2
    assert bench.node.state == "paused"
    bench.events.stop()


def test_skipped_events_are_raised_in_their_place() -> None:
    bench = Bench(1_000)
    bench.node.send(1)
    bench.node.write(f'event: skipped\ndata: {{"last": 4}}\nid: {CLUSTER}-4\n\n')
    bench.node.send(5)
    assert bench.take().sequence == 1
    failure = bench.take()
    with pytest.raises(EventsMissing, match="events 2 to 4 are not held by any node any longer"):
        failure.raiseException()
    assert bench.take().sequence == 5
    bench.events.stop()
    assert bench.take().check(StopAsyncIteration)
