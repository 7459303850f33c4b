"""Three nats-servers with a stream of three replicas, and the pause of a durable consumer with nats-py."""

from __future__ import annotations

import asyncio
import time
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from parcels.children import in_child
from parcels.nodes import Cluster, Node, Unfit, free_ports
from race.servers import Missing, program

from takeover.pauses import CALM, EVERY, PATIENCE, TRANSFER, Receipts, send_signal

SIZE = 3
STREAM = "ticks"


class Servers(Cluster):
    """A cluster of nats-servers.

    :ivar ports: TCP ports for clients.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(SIZE, directory)

    def start(self) -> None:
        """Start all servers."""
        server = program("nats-server", "nats-server")
        if find_spec("nats") is None:
            raise Missing("not installed: pip install nats-py")
        free = free_ports(2 * SIZE)
        self.ports, routes = free[:SIZE], free[SIZE:]
        others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        for index, (port, route) in enumerate(zip(self.ports, routes, strict=True)):
            config = self.directory / f"s{index}.conf"
            config.write_text(
                f"server_name: s{index}\nlisten: 127.0.0.1:{port}\n"
                f'jetstream {{ store_dir: "{self.directory}/s{index}" }}\n'
                f"cluster {{ name: c, listen: 127.0.0.1:{route}, routes: [{others}] }}\n"
            )
            self.nodes.append(Node(f"s{index}", [server, "-c", str(config)], self.directory))


def pause(directory: Path, fault: str, rng: Random) -> float:
    """Return the seconds without a message when the leader of the stream has a fault."""
    with Servers(directory) as servers:
        return float(in_child(_run, servers, fault, rng.uniform(*CALM), patience=3 * PATIENCE))


def _run(servers: Servers, fault: str, calm: float) -> float:
    return asyncio.run(_watch(servers, fault, calm))


async def _watch(servers: Servers, fault: str, calm: float) -> float:
    import nats
    from nats.js.api import AckPolicy, ConsumerConfig

    leader = await _create_stream(servers)
    # No client is connected to the leader, whose end would cost a reconnection as well.
    urls = [f"nats://127.0.0.1:{port}" for index, port in enumerate(servers.ports) if index != leader]
    subscriber, publisher = [await nats.connect(url, max_reconnect_attempts=-1) for url in urls]
    receipts = Receipts()

    async def received(message: Any) -> None:
        receipts.add()

    consumer = ConsumerConfig(ack_policy=AckPolicy.NONE, num_replicas=SIZE)
    await subscriber.jetstream(timeout=PATIENCE).subscribe(STREAM, durable="reader", config=consumer, cb=received)

    async def publish() -> None:
        number = 0
        while True:
            number += 1
            await publisher.publish(STREAM, b"%0128d" % number)
            await asyncio.sleep(EVERY)

    publishing = asyncio.create_task(publish())
    while not receipts.times:
        await asyncio.sleep(0.01)
    await asyncio.sleep(calm)
    since = time.monotonic()
    if fault == TRANSFER:
        await publisher.request(f"$JS.API.STREAM.LEADER.STEPDOWN.{STREAM}", b"", timeout=PATIENCE)
    else:
        send_signal(fault, servers.nodes[leader].pid)
    while not receipts.are_steady(since):
        if time.monotonic() > since + PATIENCE:
            raise Unfit(f"JetStream did not come back within {PATIENCE:g} s")
        await asyncio.sleep(0.05)
    publishing.cancel()
    return receipts.longest_pause(since)


async def _create_stream(servers: Servers) -> int:
    """Create the stream once the servers are one cluster; return the index of its leader."""
    import nats

    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            connection = await nats.connect(f"nats://127.0.0.1:{servers.ports[0]}", allow_reconnect=False)
            context = connection.jetstream(timeout=5)
            await context.add_stream(name=STREAM, subjects=[STREAM], num_replicas=SIZE)
            found = (await context.stream_info(STREAM)).cluster
            replicas = found.replicas or [] if found is not None else []
            await connection.close()
            if found is not None and found.leader and sum(bool(one.current) for one in replicas) == SIZE - 1:
                return int(found.leader[1:])
        except Exception:
            # Not one cluster yet, for which nats-py has many exceptions.
            pass
        await asyncio.sleep(0.2)
    raise Unfit("the servers did not become one cluster")
