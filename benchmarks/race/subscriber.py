"""Messages per second of one Python subscriber with its whole client library, alone on a core.

The broker shares the other core with a publisher that never lets the subscriber fall further behind than a window: the
subscriber reports the number of received messages in shared memory.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import socket
import time
from contextlib import suppress
from typing import Any

from fyrehose_twisted.fyrehose.wire.codec import encode_push
from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE, wrap
from race.bulk import CHUNK_BYTES, LARGEST_BURST, MAX_SEGMENTS, SUBJECT, UDP_SEGMENT, WIRES, Target, bare_socket
from race.servers import (
    BROKER_CORE,
    CLIENT_CORE,
    NATS,
    ON_ASYNCIO,
    OURS,
    REDIS,
    ZEROMQ,
    cpu_seconds,
    pin,
    run_on_loop,
)

TELL_EVERY = 64
"""Messages after which a subscriber with a callback per message reports its progress."""
PUBLISHER_PATIENCE = 0.5
"""Seconds without progress after which messages in flight count as lost."""


class Shared:
    """A page shared by publisher and subscriber: number of received messages, and the stop flag."""

    def __init__(self, path: str) -> None:
        with open(path, "a+b") as file:
            file.truncate(mmap.PAGESIZE)
            self.words = memoryview(mmap.mmap(file.fileno(), mmap.PAGESIZE)).cast("Q")

    @property
    def count(self) -> int:
        """Return the number of messages received by the subscriber."""
        return self.words[0]

    @count.setter
    def count(self, count: int) -> None:
        self.words[0] = count

    @property
    def stopped(self) -> bool:
        """Return whether the measurement is over."""
        return bool(self.words[1])

    def stop(self) -> None:
        """End the measurement."""
        self.words[1] = 1


class BulkPublisher:
    """Publishes prepared pieces of data on a raw connection."""

    def __init__(self, target: Target, size: int) -> None:
        wire = WIRES[target.system](size)
        publication = wire.publication()
        self.count = max(CHUNK_BYTES // 4 // len(publication), 1)
        self.chunk = publication * self.count
        self.connection = socket.create_connection(("127.0.0.1", target.ports[0]), timeout=10)
        wire.handshake(self.connection, subscribe=False)

    def publish(self) -> int:
        """Publish a piece; return its number of messages."""
        self.connection.sendall(self.chunk)
        return self.count


class BurstPublisher:
    """Publishes bursts of PUSHes in envelopes, like the library's publishers, on a raw socket."""

    COUNTER_AT = ENVELOPE_SIZE - 8

    def __init__(self, target: Target, size: int) -> None:
        self.identity = os.urandom(8)
        self.payload = bytes(size)
        push = self._push(0)
        self.count = min(MAX_SEGMENTS, LARGEST_BURST // len(push))
        self.burst = bytearray().join(self._push(number) for number in range(self.count))
        self.step = len(push)
        self.first = 0
        self.places = [row * self.step + len(push) - size - 8 for row in range(self.count)]
        self.socket = bare_socket()
        self.socket.connect(("127.0.0.1", target.ports[0]))
        self.socket.setsockopt(socket.SOL_UDP, UDP_SEGMENT, self.step)

    def _push(self, number: int) -> bytes:
        return encode_push(wrap(self.identity, number, self.payload))

    def publish(self) -> int:
        """Publish a burst; return its number of messages."""
        burst, number = self.burst, self.first
        for place in self.places:
            burst[place : place + 8] = number.to_bytes(8)
            number += 1
        self.socket.send(burst)
        self.first = number
        return self.count


def publish(target: Target, size: int, window: int, shared: Shared) -> dict[str, float]:
    """Publish until the end, ``window`` messages ahead of the subscriber; return the number of lost messages."""
    pin(BROKER_CORE)
    publisher: Any = (BurstPublisher if target.system in (OURS, *ON_ASYNCIO) else BulkPublisher)(target, size)
    sent, seen, moved_at, written_off = 0, 0, time.monotonic(), 0
    while not shared.stopped:
        count = shared.count
        if count != seen:
            seen, moved_at = count, time.monotonic()
        elif time.monotonic() > moved_at + PUBLISHER_PATIENCE:
            # The subscriber has just joined, or messages were lost and will not arrive.
            written_off += sent - count if count else 0
            sent, moved_at = count, time.monotonic()
        if sent - count < window:
            sent += publisher.publish()
        else:
            time.sleep(0.0001)
    return {"written_off": written_off}


async def subscribe_ours(target: Target, shared: Shared) -> dict[str, float]:
    """Subscribe with the library."""
    from twisted.internet import reactor

    from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    class Touching(SubscriberProtocol):
        count = touched = lost = 0

        def messages_received(self, messages: Any) -> None:
            touched = 0
            for message in messages:
                touched += len(message.data)
            self.touched += touched
            self.count += len(messages)
            shared.count = self.count

        def messages_lost(self, first: int, last: int) -> None:
            self.lost += last - first + 1

    subscriber = await join(reactor, Touching(reactor=reactor), f"127.0.0.1:{target.ports[1]}")
    while not shared.stopped:
        await sleep_in_reactor(reactor, 0.05)
    counters = subscriber.node.counters if subscriber.node is not None else None
    repaired = 0 if counters is None else counters.repaired
    figures = {"touched": subscriber.touched, "lost": subscriber.lost, "repaired": repaired, "had": subscriber.count}
    await subscriber.leave()
    return figures


async def subscribe_asyncio(target: Target, shared: Shared) -> dict[str, float]:
    """Subscribe with the library on asyncio, message by message."""
    from fyrehose_twisted import aio
    from fyrehose_twisted.errors import MessagesMissing

    count = touched = lost = 0
    async with aio.connect(f"127.0.0.1:{target.ports[1]}") as stream:

        async def listen() -> None:
            nonlocal count, touched, lost
            while True:
                try:
                    async for message in stream:
                        touched += len(message.data)
                        count += 1
                        if not count % TELL_EVERY:
                            shared.count = count
                except MessagesMissing as missing:
                    lost += missing.last - missing.first + 1

        listening = asyncio.create_task(listen())
        while not shared.stopped:
            await asyncio.sleep(0.05)
        node = stream.protocol.node
        repaired = 0 if node is None else node.counters.repaired
        listening.cancel()
        with suppress(asyncio.CancelledError):
            await listening
    return {"touched": touched, "lost": lost, "repaired": repaired, "had": count}


def sleep_in_reactor(reactor: Any, seconds: float) -> Any:
    """Return a Deferred that fires later."""
    from twisted.internet.task import deferLater

    return deferLater(reactor, seconds, lambda: None)


async def subscribe_nats(target: Target, shared: Shared) -> dict[str, float]:
    """Subscribe with nats-py, by a callback."""
    import nats

    count = touched = 0

    async def received(message: Any) -> None:
        nonlocal count, touched
        touched += len(message.data)
        count += 1
        if not count % TELL_EVERY:
            shared.count = count

    connection = await nats.connect(f"nats://127.0.0.1:{target.ports[1]}")
    await connection.subscribe(SUBJECT.decode(), cb=received, pending_msgs_limit=-1, pending_bytes_limit=-1)
    while not shared.stopped:
        await asyncio.sleep(0.05)
    await connection.close()
    return {"touched": touched, "had": count}


def subscribe_redis(target: Target, shared: Shared) -> dict[str, float]:
    """Subscribe with redis-py, which uses hiredis if it is installed."""
    import redis

    count = touched = 0
    with redis.Redis(port=target.ports[1]) as connection, connection.pubsub(ignore_subscribe_messages=True) as pubsub:
        pubsub.subscribe(SUBJECT.decode())
        while not shared.stopped:
            message = pubsub.get_message(timeout=0.05)
            if message is not None:
                touched += len(message["data"])
                count += 1
                if not count % TELL_EVERY:
                    shared.count = count
    return {"touched": touched, "had": count}


def subscribe_zeromq(target: Target, shared: Shared) -> dict[str, float]:
    """Subscribe with pyzmq."""
    import zmq

    count = touched = 0
    context = zmq.Context()
    subscriber = context.socket(zmq.SUB)
    subscriber.setsockopt(zmq.RCVHWM, 0)
    subscriber.setsockopt(zmq.RCVTIMEO, 50)
    subscriber.connect(f"tcp://127.0.0.1:{target.ports[1]}")
    subscriber.subscribe(b"")
    receive = subscriber.recv
    while not shared.stopped:
        with suppress(zmq.Again):
            for _ in range(TELL_EVERY):
                touched += len(receive())
                count += 1
        shared.count = count
    context.destroy(linger=0)
    return {"touched": touched, "had": count}


def subscribe(target: Target, shared: Shared) -> dict[str, float]:
    """Subscribe until the end; return the number of messages whose data was read."""
    pin(CLIENT_CORE)
    if target.system == OURS:
        from twisted.internet import reactor

        from race.library import run_in_reactor

        return run_in_reactor(reactor, subscribe_ours(target, shared))
    if target.system == NATS:
        return asyncio.run(subscribe_nats(target, shared))
    if target.system in ON_ASYNCIO:
        return run_on_loop(target.system, subscribe_asyncio(target, shared))
    return {REDIS: subscribe_redis, ZEROMQ: subscribe_zeromq}[target.system](target, shared)


def watch(shared: Shared, pid: int, warm_up: float, seconds: float) -> dict[str, float]:
    """Measure the subscriber with ``pid``, then stop it; return its rates."""
    deadline = time.monotonic() + 10
    while not shared.count:
        if time.monotonic() > deadline:
            shared.stop()
            raise TimeoutError("the subscriber gets nothing")
        time.sleep(0.01)
    time.sleep(warm_up)
    started = time.monotonic(), cpu_seconds(pid), shared.count
    time.sleep(seconds)
    time_used, cpu, count = (
        b - a for a, b in zip(started, (time.monotonic(), cpu_seconds(pid), shared.count), strict=True)
    )
    shared.stop()
    return {"messages_per_second": count / time_used, "messages_per_cpu_second": count / cpu}
