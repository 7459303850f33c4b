"""Clients of the measured systems, each in a process of its own, with or without time stamps.

Arguments: a JSON object with the fields of :class:`Task`. A line "ready" on standard output means that a subscriber
listens, "running" that a publisher has published all messages of the warm-up.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# OpenBLAS starts threads for numpy, which are unused here and disturb the measurement.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).parents[1]))

from race.bulk import SUBJECT
from race.servers import NATS, pin

from stages.stamps import Stamps, stamp_loop, stamp_sends

PARCELS = "parcels"
GRACE = 2.0
"""Seconds to wait at the end for messages in flight."""


class Task(NamedTuple):
    """What a client has to do.

    :ivar core: core to bind the process to, if any.
    :ivar rate: messages/s; 0 to publish the next once the last has returned.
    :ivar publishes: whether it publishes; a client that does receives its own messages, too.
    :ivar out: path of the time stamps.
    :ivar stamped: whether to stamp wake-ups and sends; the beginning and the end of a message always are.
    """

    system: str
    port: int
    publishes: bool
    core: int | None
    messages: int
    warm_up: int
    rate: float
    size: int
    out: str
    stamped: bool


class Progress:
    """Numbered messages of one client."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.stamps = Stamps()
        self.stamps.ends.extend([0] * task.messages)
        self.published = 0
        self.received = 0
        self._padding = bytes(task.size - 8)
        self._deadline = float("inf")
        self._start = 0.0

    def begin(self) -> None:
        """Start the timetable: at the first message."""
        self._start = time.perf_counter()
        self._deadline = self._start + self.task.messages / self.task.rate + GRACE if self.task.rate else float("inf")

    def due(self) -> int:
        """Return the number of due messages."""
        reached = int((time.perf_counter() - self._start) * self.task.rate) + 1
        return min(reached, self.task.messages) - self.published

    def wait(self) -> float:
        """Return the seconds until the next message is due."""
        return max(self._start + self.published / self.task.rate - time.perf_counter(), 0.0)

    def message(self) -> bytes:
        """Return the next message, to be published at once."""
        number = self.published
        self.published += 1
        if self.published == self.task.warm_up:
            print("running", flush=True)
        data = number.to_bytes(8, "big") + self._padding
        self.stamps.begins.append(time.perf_counter_ns())
        return data

    def arrived(self, data: bytes) -> None:
        """Stamp a received message."""
        now = time.perf_counter_ns()
        if not self._start:
            self.begin()
        self.stamps.ends[int.from_bytes(data[:8], "big")] = now
        self.received += 1

    @property
    def publishing(self) -> bool:
        """Return whether there is more to publish."""
        return self.task.publishes and self.published < self.task.messages

    @property
    def waiting(self) -> bool:
        """Return whether messages are still expected."""
        return self.received < self.task.messages and time.perf_counter() < self._deadline


async def run_fyrehose(reactor: Any, progress: Progress) -> None:
    """Publish or subscribe with the library."""
    from twisted.internet.task import deferLater

    from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    class Subscriber(SubscriberProtocol):
        def messages_received(self, messages: Any) -> None:
            for message in messages:
                if len(message.data) == progress.task.size:
                    progress.arrived(message.data)

    class Publisher(Subscriber, PublisherProtocol):
        def publish_due(self) -> None:
            for _ in range(progress.due()):
                self.publish(progress.message())
            if progress.publishing:
                self.reactor.callLater(progress.wait(), self.publish_due)

    kind = Publisher if progress.task.publishes else Subscriber
    client: Any = await join(reactor, kind(reactor=reactor), f"127.0.0.1:{progress.task.port}")
    print("ready", flush=True)
    if progress.task.publishes:
        await client.publish(b"first")
        progress.begin()
        client.publish_due()
    while progress.publishing or progress.waiting:
        await deferLater(reactor, 0.05, lambda: None)
    await client.leave(at_once=True)


async def run_nats(progress: Progress) -> None:
    """Publish or subscribe with nats-py."""
    import nats

    task, subject = progress.task, SUBJECT.decode()
    connection = await nats.connect(f"nats://127.0.0.1:{task.port}")

    async def received(message: Any) -> None:
        progress.arrived(message.data)

    await connection.subscribe(subject, cb=received)
    await connection.flush()
    print("ready", flush=True)
    if task.publishes:
        progress.begin()
    while progress.publishing:
        for _ in range(progress.due()):
            await connection.publish(subject, progress.message())
        await asyncio.sleep(progress.wait())
    while progress.waiting:
        await asyncio.sleep(0.05)
    await connection.close()


async def run_parcels(reactor: Any, progress: Progress) -> None:
    """Publish one event after another."""
    from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher

    publisher = ParcelsPublisher([("127.0.0.1", progress.task.port)])
    await publisher.publish(b"first")
    print("ready", flush=True)
    while progress.publishing:
        data = progress.message()
        await publisher.publish(data)
        progress.arrived(data)
    await publisher.close()


def run_in_reactor(work: Callable[[Any], Any], stamps: Stamps | None) -> None:
    """Run a coroutine function with the reactor."""
    from twisted.internet import reactor
    from twisted.internet.task import react

    if stamps is not None:
        stamp_loop(reactor, "_poller", stamps)
    from twisted.internet.defer import Deferred

    react(lambda clock: Deferred.fromCoroutine(work(clock)), _reactor=reactor)


async def run_in_asyncio(progress: Progress, stamps: Stamps | None) -> None:
    """Run nats-py."""
    if stamps is not None:
        selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
        stamp_loop(selector, "_selector", stamps)
    await run_nats(progress)


def main() -> None:
    """Do the task and write the stamps."""
    task = Task(**json.loads(sys.argv[1]))
    if task.core is not None:
        pin(task.core)
    progress = Progress(task)
    stamps = progress.stamps if task.stamped else None
    if stamps is not None:
        stamp_sends(stamps)
    try:
        if task.system == NATS:
            asyncio.run(run_in_asyncio(progress, stamps))
        else:
            work = run_parcels if task.system == PARCELS else run_fyrehose
            run_in_reactor(lambda reactor: work(reactor, progress), stamps)
    finally:
        progress.stamps.save(Path(task.out))


if __name__ == "__main__":
    main()
