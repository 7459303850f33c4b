"""The library's own publisher and subscribers in one process, on one reactor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from math import log
from random import Random
from typing import Any

from twisted.internet.defer import Deferred, gatherResults

from fyrehose_twisted.datagrams import Batch, DatagramRun
from fyrehose_twisted.fyrehose.events import Message
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
from fyrehose_twisted.fyrehose.service.connect import join
from fyrehose_twisted.fyrehose.wire.packets import PacketType
from race.bulk import HOLD, Cell, Target
from race.servers import CLIENT_CORE, cpu_seconds, pin

BATCH_MESSAGES = 256
QUEUED_BATCHES = 32
"""Batches given to the publisher and not yet published; its window limits those in flight."""


class Loss:
    """Random loss of DELIVERs on their way in, with knowledge of the batch format.

    Segmentation offload closes the gap that a lost datagram leaves, and so does this class.
    """

    def __init__(self, share: float, seed: int) -> None:
        self._rng = Random(seed)
        self._share = share
        self._spared = self._gap()

    def take_from(self, batch: Batch) -> None:
        """Remove messages from ``batch``."""
        runs: list[DatagramRun] = []
        for run in batch.runs:
            rows, stop = run.rows, run.stop
            if batch.buffer[run.start] == PacketType.DELIVER:
                at = self._spared
                while at < rows:
                    place = run.start + at * run.size
                    batch.view[place : stop - run.size] = batch.view[place + run.size : stop]
                    rows, stop = rows - 1, stop - run.size
                    at += self._gap()
                self._spared = at - rows
            if rows:
                runs.append(run._replace(rows=rows, stop=stop))
        batch.runs = runs

    def _gap(self) -> int:
        return int(log(1.0 - self._rng.random()) / log(1.0 - self._share))


class Counting(SubscriberProtocol):
    """Subscriber that counts messages.

    :ivar loss: drops some arrivals; each subscriber needs its own, or all lose the same messages and none has them.
    """

    loss: Loss | None = None
    count = 0

    def messages_received(self, messages: Sequence[Message]) -> None:
        self.count += len(messages)

    def batch_received(self, batch: Any) -> None:
        if self.loss is not None:
            self.loss.take_from(batch)
        super().batch_received(batch)


class CountingPublisher(Counting, PublisherProtocol):
    """Counting subscriber that publishes as well.

    :ivar published: number of returned messages.
    """

    stopping = False
    published = waiting = 0

    def go(self, size: int) -> None:
        """Publish until :attr:`stopping`."""
        self.datas = [bytes(size)] * BATCH_MESSAGES
        for _ in range(QUEUED_BATCHES):
            self._next_batch()

    def _next_batch(self) -> None:
        if self.stopping:
            return
        self.waiting += 1
        self._publish_batch().addCallback(self._batch_published)

    def _publish_batch(self) -> Deferred[list[int]]:
        publish_many = getattr(self, "publish_many", None)
        if publish_many is not None:
            batch: Deferred[list[int]] = publish_many(self.datas)
            return batch
        return gatherResults([self.publish(data) for data in self.datas])

    def _batch_published(self, sequences: list[int]) -> None:
        self.waiting -= 1
        self.published += len(sequences)
        self._next_batch()


class Race:
    """One publisher and its subscribers."""

    def __init__(self, reactor: Any, target: Target, cell: Cell, loss: float) -> None:
        self.reactor = reactor
        self.target = target
        self.cell = cell
        self.publisher = CountingPublisher(reactor=reactor)
        self.clients: list[Counting] = [self.publisher]
        self.clients += [Counting(reactor=reactor) for _ in range(cell.fan_out - 1)]
        if loss:
            for number, each in enumerate(self.clients):
                each.loss = Loss(loss, number)

    async def run(self) -> dict[str, float]:
        """Measure."""
        for each in self.clients:
            await join(self.reactor, each, f"{self.target.host}:{self.target.ports[0]}")
        self.publisher.go(self.cell.size)
        await self._sleep(self.cell.warm_up)
        started = self._reading()
        await self._sleep(self.cell.seconds)
        readings = zip(started, self._reading(), strict=True)
        time_used, cpu, deliveries, client_cpu, repaired = (after - before for before, after in readings)
        self.publisher.stopping = True
        lost = await self._finish()
        node = self.publisher.node
        figures = {
            "messages_per_second": deliveries / self.cell.fan_out / time_used,
            "deliveries_per_cpu_second": deliveries / cpu,
            "broker_load": cpu / time_used,
            "client_load": client_cpu / time_used,
            "repairs_per_second": repaired / time_used,
            "lost": lost,
            "repaired": self._repaired(),
            "retransmitted": 0 if node is None else node.send_queue.retransmissions,
            "delivered": sum(each.count for each in self.clients),
        }
        for each in self.clients:
            await each.leave()
        return figures

    def _reading(self) -> tuple[float, float, int, float, int]:
        deliveries, repaired = sum(each.count for each in self.clients), self._repaired()
        return time.monotonic(), cpu_seconds(self.target.pid), deliveries, time.process_time(), repaired

    def _repaired(self) -> int:
        return sum(each.node.counters.repaired for each in self.clients if each.node is not None)

    async def _finish(self) -> int:
        """Wait until all subscribers have everything; return the number of missing deliveries."""
        counts: list[int] = []
        deadline = 0.0
        while True:
            before, counts = counts, [each.count for each in self.clients]
            missing = sum(self.publisher.published - count for count in counts)
            if not self.publisher.waiting and not missing:
                return 0
            if counts != before:
                deadline = time.monotonic() + HOLD
            elif time.monotonic() > deadline:
                return missing + self.publisher.waiting * BATCH_MESSAGES * len(counts)
            await self._sleep(0.02)

    def _sleep(self, seconds: float) -> Deferred[None]:
        slept: Deferred[None] = Deferred()
        self.reactor.callLater(seconds, slept.callback, None)
        return slept


def measure(target: Target, cell: Cell, loss: float = 0.0) -> dict[str, float]:
    """Run the library's load on its backbone."""
    pin(CLIENT_CORE)
    from twisted.internet import reactor

    return run_in_reactor(reactor, Race(reactor, target, cell, loss).run())


def run_in_reactor(reactor: Any, coroutine: Any) -> dict[str, float]:
    """Run the reactor until ``coroutine`` has ended, and return its figures."""
    outcome: list[Any] = []
    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(coroutine).addBoth(outcome.append).addBoth(_stop, reactor))
    reactor.run()
    figures: dict[str, float] | Any = outcome[0]
    if not isinstance(figures, dict):
        figures.raiseException()
    return figures


def _stop(result: object, reactor: Any) -> None:
    reactor.stop()
