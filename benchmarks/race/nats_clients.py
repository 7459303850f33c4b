"""Load by nats-py: publisher and subscribers in one process."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from race.bulk import HOLD, SUBJECT, Cell, Target
from race.servers import CLIENT_CORE, cpu_seconds, pin

BATCH_MESSAGES = 256
WINDOW_MESSAGES = 2_048


class Client:
    """One connection with a subscription."""

    def __init__(self) -> None:
        self.count = 0

    async def connect(self, host: str, port: int) -> None:
        """Connect and subscribe."""
        import nats

        self.connection: Any = await nats.connect(f"nats://{host}:{port}")
        await self.connection.subscribe(SUBJECT.decode(), cb=self._received)
        await self.connection.flush()

    async def _received(self, message: Any) -> None:
        self.count += 1


async def _measure(target: Target, cell: Cell) -> dict[str, float]:
    clients = [Client() for _ in range(cell.fan_out)]
    for each in clients:
        await each.connect(target.host, target.ports[0])

    def reading() -> tuple[float, float, int, float]:
        deliveries = sum(each.count for each in clients)
        return time.monotonic(), cpu_seconds(target.pid), deliveries, time.process_time()

    publish, subject, data, sent = clients[0].connection.publish, SUBJECT.decode(), bytes(cell.size), 0
    begins = time.monotonic() + cell.warm_up
    ends = begins + cell.seconds
    started: tuple[float, float, int, float] | None = None
    while (now := time.monotonic()) < ends:
        if started is None and now >= begins:
            started = reading()
        if sent - min(each.count for each in clients) < WINDOW_MESSAGES:
            for _ in range(BATCH_MESSAGES):
                await publish(subject, data)
            sent += BATCH_MESSAGES
        await asyncio.sleep(0)
    assert started is not None
    time_used, cpu, deliveries, client_cpu = (b - a for a, b in zip(started, reading(), strict=True))
    deadline = time.monotonic() + HOLD
    while min(each.count for each in clients) < sent and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    lost = sum(sent - each.count for each in clients)
    for each in clients:
        await each.connection.close()
    return {
        "messages_per_second": deliveries / cell.fan_out / time_used,
        "deliveries_per_cpu_second": deliveries / cpu,
        "broker_load": cpu / time_used,
        "client_load": client_cpu / time_used,
        "lost": lost,
    }


def measure(target: Target, cell: Cell) -> dict[str, float]:
    """Run nats-py's load on its broker."""
    pin(CLIENT_CORE)
    return asyncio.run(_measure(target, cell))
