"""Failover of a cluster of three nodes on this machine after its leader is killed.

Each node is a ``twistd parcels-node`` process. The example publishes events at different nodes, over TCP and HTTP. It
kills the leader with -9, continues to publish, and restarts the node. At the end, every acknowledged event must exist
once, with its number and in the same order on all nodes.

    python examples/cluster.py            # runs the failover and exits
    python examples/cluster.py --serve    # starts the nodes and shows commands to try
"""

from __future__ import annotations

import argparse
import random
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import deferLater, react

from fyrehose_twisted.parcels import ParcelsClient, ParcelsPublisher

NAMES = "Ada", "Boole", "Curie"
EVENTS = 300
PATIENCE = 60.0
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - STARTED:6.2f} s  {text}", flush=True)


def free_ports(count: int) -> list[int]:
    """Return free loopback ports, below the range of ephemeral ports."""
    found: list[int] = []
    for port in random.sample(range(10_000, 32_000), 22_000):
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
        if len(found) == count:
            return found
    raise SystemExit("cluster: no ports are free")


class Node:
    """A node in a process of its own, configured with the ports of the others."""

    def __init__(self, name: str, port: int, http: int, others: list[int], directory: Path) -> None:
        self.name, self.port, self.url, self.directory = name, port, f"http://127.0.0.1:{http}", directory
        self._options = [f"--name={name}", f"--listen=tcp:{port}", f"--http=tcp:{http}", f"--journal={name}"]
        self._options += [f"--peer=127.0.0.1:{other}" for other in others]
        self._options += ["--bootstrap"] if name == NAMES[0] else []
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, again if it was killed."""
        twistd = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", f"--logfile={self.name}.log"]
        # In a session of its own, so that Ctrl-C is for us alone.
        self._process = subprocess.Popen(
            [*twistd, "parcels-node", *self._options], cwd=self.directory, start_new_session=True
        )

    def kill(self) -> None:
        """Kill it with -9; it may be dead already."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Cluster:
    """The nodes, and who publishes to them."""

    def __init__(self, reactor: Any, stack: ExitStack) -> None:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        free = free_ports(2 * len(NAMES))
        ports, http = free[: len(NAMES)], free[len(NAMES) :]
        self.nodes = {
            name: Node(name, port, web, [other for other in ports if other != port], directory)
            for name, port, web in zip(NAMES, ports, http, strict=True)
        }
        self.reactor = reactor
        self.client = ParcelsClient([node.url for node in self.nodes.values()], publisher="over-http")
        self.publisher = ParcelsPublisher([("127.0.0.1", port) for port in reversed(ports)], name="over-tcp")
        self.published: dict[int, bytes] = {}
        for node in self.nodes.values():
            stack.callback(node.kill)

    async def working(self) -> dict[str, Any]:
        """Wait until all nodes work; return the cluster status of the first."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            health = await self.client.health()
            if all(one.get("mode") == "Wrk" for one in health.values()):
                state = await self.client.cluster()
                if sum(member["alive"] for member in state["members"]) == len(NAMES):
                    return state
            await deferLater(self.reactor, 0.1)
        raise SystemExit("cluster: the nodes did not form a cluster in time")

    async def publish(self, condition: str) -> None:
        """Publish over TCP and HTTP concurrently, and report the result."""
        before = time.monotonic()
        events = [b"%d, %s" % (number, condition.encode()) for number in range(EVENTS)]
        tcp = self.publisher.publish_many(events)
        for event in events[::10]:
            self.note(await self.client.publish(event), event)
        for number, event in zip(await tcp, events, strict=True):
            self.note(number, event)
        took, total = time.monotonic() - before, EVENTS + len(events[::10])
        say(f"{total} events {condition} are ordered, up to number {max(self.published)}, after {took:.2f} s")

    def note(self, number: int, event: bytes) -> None:
        """Record an acknowledged event."""
        if number in self.published:
            raise SystemExit(f"cluster: number {number} was assigned twice")
        self.published[number] = event

    async def check(self) -> None:
        """Check that each node has every event with its number."""
        for node in self.nodes.values():
            client, until = ParcelsClient([node.url]), time.monotonic() + PATIENCE
            found = await client.events(1, max(self.published))
            # Acknowledged events are on two nodes. The third may lag.
            while len(found) < len(self.published) and time.monotonic() < until:
                await deferLater(self.reactor, 0.05)
                found = await client.events(1, max(self.published))
            await client.close()
            if {event.sequence: event.data for event in found} != self.published:
                raise SystemExit(f"cluster: {node.name} does not have the acknowledged events")
            say(f"{node.name} has {len(found)} events, each under the number that was acknowledged")

    async def close(self) -> None:
        """Close the clients."""
        await self.publisher.close()
        await self.client.close()


async def main(reactor: Any, stack: ExitStack, serve: bool) -> None:
    """Run the example; exit with status 1 on any failure."""
    cluster = Cluster(reactor, stack)
    for node in cluster.nodes.values():
        node.start()
    say(f"started {', '.join(NAMES)}")
    leader = cluster.nodes[(await cluster.working())["leader"]]
    say(f"the cluster is up; {leader.name} is the leader")
    if serve:
        await wait(reactor, cluster)
        return
    await cluster.publish("with all three")
    leader.kill()
    say(f"killed {leader.name} with -9")
    await cluster.publish(f"without {leader.name}")
    successor = (await cluster.client.cluster())["leader"]
    say(f"{successor} is the leader now")
    leader.start()
    await cluster.working()
    say(f"{leader.name} is back")
    await cluster.publish("with all three again")
    await cluster.check()
    await cluster.close()
    print(f"\n{len(cluster.published)} events were acknowledged by three nodes, over TCP and HTTP, and through kill -9")
    print("of the leader. No number was assigned twice, none is missing, and all nodes have the same order.")


async def wait(reactor: Any, cluster: Cluster) -> None:
    """Show commands to try, and keep the nodes running until interrupted."""
    first, second, _ = cluster.nodes.values()
    print(f"\n  curl -d 'hello' {first.url}/events                        # publish")
    print(f"  curl -N -H 'Accept: text/event-stream' {second.url}/events?from=1")
    print(f"  curl {second.url}/cluster                              # members, neighbours, counters")
    print(f"  date | fyrehose parcels publish --node 127.0.0.1:{first.port}")
    print(f"  fyrehose parcels follow --http {first.url} --http {second.url} --from 1")
    print(f"\nLogs and journals are in {first.directory}. Ctrl-C ends it.", flush=True)
    interrupted: Deferred[None] = Deferred()
    reactor.addSystemEventTrigger("before", "shutdown", interrupted.callback, None)
    await interrupted


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="keep the nodes running until Ctrl-C")
    arguments = parser.parse_args()
    # Enter the stack outside of the reactor, so that no node outlives an interrupted start.
    with ExitStack() as stack:
        react(lambda reactor: ensureDeferred(main(reactor, stack, arguments.serve)))
