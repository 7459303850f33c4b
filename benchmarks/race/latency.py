"""Round trips at a fixed rate, each client in its usual event loop.

All follow the same timetable: message n is due at start + n
rate, and all due messages are published when the loop
wakes up. The time is counted from the publishing call, and travels in the message.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from statistics import quantiles
from typing import Any, NamedTuple

from race.bulk import SUBJECT, Target
from race.servers import AIO, CLIENT_CORE, NATS, OURS, REDIS, UVLOOP, ZEROMQ, pin, run_on_loop

STAMP = struct.Struct("<q")
GRACE = 1.0
"""Seconds to wait at the end for messages in flight."""


class Pace(NamedTuple):
    """Rate, duration and payload."""

    rate: float
    seconds: float
    warm_up: float
    size: int


class Timetable:
    """Due messages, and the round trips of returned ones."""

    def __init__(self, pace: Pace) -> None:
        self.pace = pace
        self.start = time.perf_counter()
        self.published = self.returned = 0
        self.total = int(pace.rate * (pace.warm_up + pace.seconds))
        self.ignored = int(pace.rate * pace.warm_up)
        self.times: list[int] = []
        self.padding = bytes(pace.size - STAMP.size)
        self.ends = self.start + pace.warm_up + pace.seconds + GRACE

    def due(self) -> int:
        """Return the number of due messages."""
        reached = int((time.perf_counter() - self.start) * self.pace.rate) + 1
        return min(reached, self.total) - self.published

    def wait(self) -> float:
        """Return the seconds until the next message is due."""
        return max(self.start + self.published / self.pace.rate - time.perf_counter(), 0.0)

    def message(self) -> bytes:
        """Return the next message, to be published at once."""
        self.published += 1
        return STAMP.pack(time.perf_counter_ns()) + self.padding

    def back(self, data: bytes) -> None:
        """Record a returned message."""
        now = time.perf_counter_ns()
        self.returned += 1
        if self.returned > self.ignored:
            self.times.append(now - STAMP.unpack_from(data)[0])

    @property
    def publishing(self) -> bool:
        """Return whether there is more to publish."""
        return self.published < self.total

    @property
    def waiting(self) -> bool:
        """Return whether messages are still expected to return."""
        return self.returned < self.total and time.perf_counter() < self.ends

    def figures(self) -> dict[str, float]:
        """Return median and 99th percentile in seconds, and the number of lost messages."""
        cuts = [cut / 1e9 for cut in quantiles(self.times, n=100)]
        return {"p50": cuts[49], "p99": cuts[98], "lost": self.total - self.returned}


async def time_ours(target: Target, pace: Pace) -> dict[str, float]:
    """Publish and subscribe with the library."""
    from twisted.internet import reactor
    from twisted.internet.defer import Deferred
    from twisted.internet.task import deferLater

    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    class Timed(PublisherProtocol):
        timetable: Timetable | None = None
        first: Deferred[None] = Deferred()

        def messages_received(self, messages: Any) -> None:
            if self.timetable is None:
                self.first.callback(None)
                return
            for message in messages:
                self.timetable.back(message.data)

        def publish_due(self) -> None:
            assert self.timetable is not None
            for _ in range(self.timetable.due()):
                self.publish(self.timetable.message())
            if self.timetable.publishing:
                clock: Any = reactor
                clock.callLater(self.timetable.wait(), self.publish_due)

    publisher = await join(reactor, Timed(reactor=reactor), f"127.0.0.1:{target.ports[0]}")
    publisher.publish(b"first")
    await publisher.first
    timetable = publisher.timetable = Timetable(pace)
    publisher.publish_due()
    while timetable.waiting:
        await deferLater(reactor, 0.05, lambda: None)  # type: ignore[arg-type]
    await publisher.leave()
    return timetable.figures()


async def time_asyncio(target: Target, pace: Pace) -> dict[str, float]:
    """Publish and subscribe with the library on asyncio."""
    from fyrehose_twisted import aio

    async with aio.connect(f"127.0.0.1:{target.ports[0]}") as stream:
        await stream.publish(b"first")
        await anext(stream)
        timetable = Timetable(pace)

        async def listen() -> None:
            async for message in stream:
                timetable.back(message.data)

        async def publish(data: bytes) -> None:
            stream.submit(data)

        listening = asyncio.create_task(listen())
        await keep_timetable(timetable, publish)
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
    return timetable.figures()


async def keep_timetable(timetable: Timetable, publish: Callable[[bytes], Any]) -> None:
    """Publish in asyncio until all messages have returned."""
    while timetable.publishing:
        for _ in range(timetable.due()):
            await publish(timetable.message())
        await asyncio.sleep(timetable.wait())
    while timetable.waiting:
        await asyncio.sleep(0.05)


async def time_nats(target: Target, pace: Pace) -> dict[str, float]:
    """Publish and subscribe with one connection of nats-py."""
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{target.ports[0]}")
    timetable: Timetable | None = None

    async def received(message: Any) -> None:
        assert timetable is not None
        timetable.back(message.data)

    await connection.subscribe(SUBJECT.decode(), cb=received)
    await connection.flush()
    timetable = Timetable(pace)
    await keep_timetable(timetable, lambda data: connection.publish(SUBJECT.decode(), data))
    await connection.close()
    return timetable.figures()


async def time_redis(target: Target, pace: Pace) -> dict[str, float]:
    """Publish and subscribe with redis-py in asyncio, on two connections as it requires."""
    import redis.asyncio

    async with redis.asyncio.Redis(port=target.ports[0]) as connection, connection.pubsub() as pubsub:
        await pubsub.subscribe(SUBJECT.decode())
        await pubsub.get_message(timeout=1)
        timetable = Timetable(pace)

        async def listen() -> None:
            async for message in pubsub.listen():
                timetable.back(message["data"])

        listening = asyncio.create_task(listen())
        await keep_timetable(timetable, lambda data: connection.publish(SUBJECT.decode(), data))
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
        return timetable.figures()


def time_zeromq(target: Target, pace: Pace) -> dict[str, float]:
    """Publish and subscribe with pyzmq's own poller, which is faster than its asyncio support."""
    import zmq

    context = zmq.Context()
    publisher, subscriber = context.socket(zmq.PUB), context.socket(zmq.SUB)
    publisher.connect(f"tcp://127.0.0.1:{target.ports[0]}")
    subscriber.connect(f"tcp://127.0.0.1:{target.ports[1]}")
    subscriber.subscribe(b"")
    while not subscriber.poll(20):
        publisher.send(b"first")
    while subscriber.poll(100):
        subscriber.recv()
    timetable = Timetable(pace)
    while timetable.publishing or timetable.waiting:
        for _ in range(timetable.due()):
            publisher.send(timetable.message())
        # The poller counts in milliseconds, rounded up, like the other event loops.
        patience = timetable.wait() if timetable.publishing else 0.05
        if subscriber.poll(int(patience * 1_000) + 1):
            with suppress(zmq.Again):
                while True:
                    timetable.back(subscriber.recv(zmq.DONTWAIT))
    context.destroy(linger=0)
    return timetable.figures()


def measure(target: Target, pace: Pace) -> dict[str, float]:
    """Measure round trips."""
    pin(CLIENT_CORE)
    if target.system == OURS:
        from twisted.internet import reactor

        from race.library import run_in_reactor

        return run_in_reactor(reactor, time_ours(target, pace))
    if target.system == ZEROMQ:
        return time_zeromq(target, pace)
    timed = {AIO: time_asyncio, NATS: time_nats, REDIS: time_redis, UVLOOP: time_asyncio}[target.system]
    return run_on_loop(target.system, timed(target, pace))
