"""Load by the library's TCP client, in one process with a number of clients and of events in flight."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from parcels.children import run_in_reactor
from parcels.figures import Figures, rates
from parcels.nodes import Unfit, cpu_of

SIZE = 128
"""Bytes of an event."""


class Load(NamedTuple):
    """Parameters of a load.

    :ivar places: target addresses; connection n goes to place n modulo their number.
    :ivar connections: publishers, each with a connection.
    :ivar flight: events in flight, over all connections.
    :ivar pids: ids of the nodes.
    """

    places: Sequence[tuple[str, int]]
    connections: int
    flight: int
    seconds: float
    warm_up: float
    pids: Sequence[int]


class Outcome(NamedTuple):
    """Result of a load: figures, the first number, and all events in the order of their numbers."""

    figures: Figures
    first: int
    events: list[bytes]


class Stream:
    """Publisher that sends the next event once one is acknowledged, and records numbers and times."""

    def __init__(self, publishers: Sequence[Any], load: Load, done: Any) -> None:
        self._clock = time.perf_counter
        self._load = load
        self._done = done
        self._tag = os.urandom(8)
        self._padding = bytes(SIZE - 16)
        self._count = 0
        self._left = load.flight
        self.numbers: list[tuple[int, int]] = []
        self.times: list[float] = []
        self.begin = self._clock() + load.warm_up
        self.end = self.begin + load.seconds
        self._cpu: list[tuple[float, float]] = []
        for slot in range(load.flight):
            self._publish(publishers[slot % len(publishers)])

    def _publish(self, publisher: Any) -> None:
        index, self._count = self._count, self._count + 1
        data = self._tag + index.to_bytes(8) + self._padding
        publisher.publish(data).addCallbacks(
            self._answered, self._failed, callbackArgs=(publisher, index, self._clock())
        )

    def _answered(self, number: int, publisher: Any, index: int, since: float) -> None:
        now = self._clock()
        self.numbers.append((number, index))
        if now < self.end:
            if now >= self.begin:
                if not self._cpu:
                    self._begun(now)
                self.times.append(now - since)
            self._publish(publisher)
            return
        if len(self._cpu) < 2:
            self._ended(now)
        self._left -= 1
        if not self._left:
            self._done.callback(None)

    def _failed(self, failure: Any) -> None:
        if not self._done.called:
            self._done.errback(failure)

    def _begun(self, now: float) -> None:
        self.begin = now
        self._cpu.append((cpu_of(self._load.pids), time.process_time()))

    def _ended(self, now: float) -> None:
        self.end = now
        self._cpu.append((cpu_of(self._load.pids), time.process_time()))

    def outcome(self) -> Outcome:
        """:raises Unfit: unless the numbers are distinct and without gaps."""
        if not self.times or len(self._cpu) < 2:
            raise Unfit("the time was too short for a single event")
        self.numbers.sort()
        first = self.numbers[0][0]
        if [number for number, _ in self.numbers] != list(range(first, first + len(self.numbers))):
            raise Unfit("the numbers of the events have holes, or are not distinct")
        if sorted(index for _, index in self.numbers) != list(range(self._count)):
            raise Unfit("not every event has one number")
        figures = rates(self.times, self.end - self.begin)
        nodes, clients = (after - before for before, after in zip(*self._cpu, strict=True))
        figures["node_us_per_event"] = nodes / len(self.times) * 1e6
        figures["client_us_per_event"] = clients / len(self.times) * 1e6
        events = [self._tag + index.to_bytes(8) + self._padding for _, index in self.numbers]
        return Outcome(figures, first, events)


def publish(load: Load) -> Outcome:
    """Publish, and return the result. For a process of its own."""

    async def work(reactor: Any) -> Outcome:
        from twisted.internet.defer import Deferred

        from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher

        count = len(load.places)
        publishers = [ParcelsPublisher([load.places[index % count]]) for index in range(load.connections)]
        done: Deferred[None] = Deferred()
        stream = Stream(publishers, load, done)
        await done
        outcome = stream.outcome()
        for publisher in publishers:
            await publisher.close()
        return outcome

    outcome: Outcome = run_in_reactor(work)
    return outcome


def echo(place: tuple[str, int], seconds: float, warm_up: float) -> Figures:
    """Measure round trips of 128 bytes, as a lower bound. For a process of its own."""

    async def work(reactor: Any) -> Figures:
        from twisted.internet.defer import Deferred
        from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
        from twisted.internet.protocol import Protocol

        class Pinger(Protocol):
            def __init__(self) -> None:
                self.done: Deferred[None] = Deferred()
                self.times: list[float] = []
                self.begin = time.perf_counter() + warm_up
                self.missing = 0

            def connectionMade(self) -> None:
                self.transport.setTcpNoDelay(True)
                self.send()

            def send(self) -> None:
                self.missing = SIZE
                self.since = time.perf_counter()
                self.transport.write(bytes(SIZE))

            def dataReceived(self, data: bytes) -> None:
                self.missing -= len(data)
                if self.missing:
                    return
                now = time.perf_counter()
                if now >= self.begin:
                    self.times.append(now - self.since)
                if now < self.begin + seconds:
                    self.send()
                else:
                    self.end = now
                    self.done.callback(None)

        pinger = await connectProtocol(TCP4ClientEndpoint(reactor, *place), Pinger())
        await pinger.done
        return rates(pinger.times, pinger.end - pinger.begin)

    figures: Figures = run_in_reactor(work)
    return figures
