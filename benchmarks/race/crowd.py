"""Many subscribers at a fixed rate of messages: dependence of the broker's cost per delivery on their number.

Fyrehose subscribers are raw sockets that send a KEEPALIVE each second, evenly spread; NATS subscribers are raw
connections. One process has them all, and publishes too.
"""

from __future__ import annotations

import heapq
import resource
import time
from typing import NamedTuple

from race.bulk import WIRES, Cell, Load, Target, TcpLoad, UdpLoad
from race.servers import CLIENT_CORE, pin

KEEPALIVE_INTERVAL = 1.0


class Crowd(NamedTuple):
    """Number of subscribers and their load."""

    subscribers: int
    rate: float
    size: int
    seconds: float
    warm_up: float


class UdpCrowd(UdpLoad):
    """Subscribers of a backbone, each with its own time of its KEEPALIVE."""

    def connect(self) -> None:
        self.due: list[tuple[float, int]] = []
        super().connect()
        interval = KEEPALIVE_INTERVAL / len(self.subscribers)
        now = time.monotonic()
        self.due = [(now + number * interval, descriptor) for number, descriptor in enumerate(self.subscribers)]

    def keep_alive(self) -> None:
        if not self.due:
            super().keep_alive()
            return
        now = time.monotonic()
        while self.due[0][0] <= now:
            due, descriptor = self.due[0]
            self.subscribers[descriptor].sendto(self.KEEPALIVE, self.address)
            heapq.heapreplace(self.due, (due + KEEPALIVE_INTERVAL, descriptor))

    def read(self, descriptor: int) -> None:
        # There is rarely more than one burst, and a second call to detect that would double the cost.
        size, _, _, _ = self.subscribers[descriptor].recvmsg_into([self.buffer], 64)
        if self.buffer[0] == 1:
            self.received[descriptor] += size // self.step
        else:
            self.acknowledged.add(descriptor)

    def publish(self) -> None:
        self.publisher.send(self.push)
        self.sent += 1


class TcpCrowd(TcpLoad):
    """Subscribers of a broker on TCP."""

    def publish(self) -> None:
        self.publisher.sendall(self.wire.publication())
        self.sent += 1


def measure(target: Target, crowd: Crowd) -> dict[str, float]:
    """Publish at the rate and measure the broker's cost per delivery."""
    pin(CLIENT_CORE)
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    cell = Cell(crowd.subscribers, crowd.size, crowd.seconds, crowd.warm_up, crowd.size)
    load: Load = (TcpCrowd if target.system in WIRES else UdpCrowd)(target, cell)
    try:
        load.connect()
        return _run(load, crowd)
    finally:
        load.close()


def _run(load: Load, crowd: Crowd) -> dict[str, float]:
    start = time.monotonic()
    begins, ends = start + crowd.warm_up, start + crowd.warm_up + crowd.seconds
    started: tuple[float, float, int] | None = None
    while (now := time.monotonic()) < ends:
        if started is None and now >= begins:
            started = load.reading()
        while load.sent < (now - start) * crowd.rate:
            load.publish()
        load.drain(max(start + load.sent / crowd.rate - time.monotonic(), 0.0))
    assert started is not None
    time_used, cpu, deliveries = (b - a for a, b in zip(started, load.reading(), strict=True))
    missing = load.finish()
    return {
        "microseconds_per_delivery": cpu / deliveries * 1e6,
        "messages_per_second": deliveries / crowd.subscribers / time_used,
        "broker_load": cpu / time_used,
        "lost": missing,
    }
