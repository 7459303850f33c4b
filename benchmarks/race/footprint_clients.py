"""Clients of the footprint benchmark, each in a process of its own that imports nothing else."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

SIZE = 128
SUBJECT = "footprint"


def report(started: float) -> None:
    """Print the figures of this process."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"start, ms": started * 1_000, "memory, MiB": int(fields["VmRSS"].split()[0]) / 1024}), flush=True)


def run_ours(port: int, messages: int) -> None:
    """Publish and receive messages with the library."""
    from twisted.internet import defer, reactor, task

    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    started = time.process_time()

    class Client(PublisherProtocol):
        count = 0
        done: defer.Deferred[None] = defer.Deferred()

        def messages_received(self, received: Any) -> None:
            self.count += len(received)
            if self.count == messages:
                self.done.callback(None)

    async def work() -> None:
        client = await join(reactor, Client(), f"127.0.0.1:{port}")
        for first in range(0, messages, 100):
            await client.publish_many([bytes(SIZE)] * min(100, messages - first))
        await client.done
        report(started)
        await client.leave()

    task.react(lambda _: defer.Deferred.fromCoroutine(work()))


def run_nats(port: int, messages: int) -> None:
    """Publish and receive messages with nats-py."""
    import asyncio

    import nats

    started = time.process_time()

    async def work() -> None:
        connection = await nats.connect(f"nats://127.0.0.1:{port}")
        done, count = asyncio.Event(), 0

        async def received(message: Any) -> None:
            nonlocal count
            count += 1
            if count == messages:
                done.set()

        await connection.subscribe(SUBJECT, cb=received)
        for first in range(0, messages, 100):
            for _ in range(min(100, messages - first)):
                await connection.publish(SUBJECT, bytes(SIZE))
            await connection.flush()
        await done.wait()
        report(started)
        await connection.close()

    asyncio.run(work())


def run_twisted(port: int, messages: int) -> None:
    """Import Twisted's reactor and what a DatagramProtocol needs."""
    from twisted.internet import protocol, reactor

    assert protocol.DatagramProtocol is not reactor
    report(time.process_time())


if __name__ == "__main__":
    {"fyrehose": run_ours, "NATS": run_nats, "Twisted": run_twisted}[sys.argv[1]](*map(int, sys.argv[2:]))
