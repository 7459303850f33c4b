"""MACs in DELIVERs: CPU time of backbone and subscriber in bursts, and the round trip of one message.

A publisher and a subscriber, a process each, share a backbone with a secret. They want MACs, or do not. In bursts, the
publisher publishes batches as fast as they are acknowledged. For the round trip, one process publishes a message,
receives it, and only then publishes the next one.

CPU times depend on the machine; compare the ratios of one run. Medians over rounds that alternate between the variants.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from race.machine import describe
from race.servers import cpu_seconds, free_port
from results import add_option, write

from fyrehose_twisted.fyrehose.config import ClientConfig, MacPolicy
from fyrehose_twisted.process.progress import ProgressBar

PLAIN, MACS = "plain", "MACs"
VARIANTS = (PLAIN, MACS)
BACKBONE, SUBSCRIBER, TRIP = "backbone, µs", "subscriber, µs", "round trip, µs"
ROWS = (BACKBONE, SUBSCRIBER, TRIP)
SECRET = b"known to the backbone and its clients"
BATCH = 256
PATIENCE = 120.0


def run_role(options: argparse.Namespace) -> None:
    """Run a publisher or subscriber in this process, and print its figure."""
    from twisted.internet import task
    from twisted.internet.defer import Deferred

    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    data, mac = bytes(options.size), MacPolicy.REQUIRE if options.variant == MACS else MacPolicy.OFF

    class Client(PublisherProtocol):
        """Client that counts what it receives."""

        def __init__(self) -> None:
            super().__init__(ClientConfig(journal=False, secret=SECRET, mac=mac))
            self.count = 0
            self.begun = 0.0
            self.arrived: Deferred[None] = Deferred()
            self.wanted = options.messages

        def messages_received(self, messages: Sequence[Any]) -> None:
            if not self.count:
                self.begun = time.process_time()
            # Messages are made when they are looked at.
            self.count += sum(len(message.data) == len(data) for message in messages)
            if self.count >= self.wanted:
                arrived, self.arrived = self.arrived, Deferred()
                arrived.callback(None)

    async def publish_bursts(client: Client) -> float:
        begun = time.process_time()
        for _ in range(options.messages // BATCH):
            await client.when_room()
            client.publish_many([data] * BATCH)
        while client.pending:
            await task.deferLater(reactor, 0.002, lambda: None)
        return (time.process_time() - begun) / options.messages

    async def receive(client: Client) -> float:
        print("ready", flush=True)
        await client.arrived
        return (time.process_time() - client.begun) / options.messages

    async def round_trips(client: Client) -> float:
        times = []
        for number in range(options.messages):
            client.wanted, arrived, begun = number + 1, client.arrived, time.perf_counter()
            client.publish(data)
            await arrived
            times.append(time.perf_counter() - begun)
        return median(times)

    async def run(reactor: Any) -> None:
        client = await join(reactor, Client(), options.backbone)
        role = {"publisher": publish_bursts, "subscriber": receive, "single": round_trips}[options.role]
        print(json.dumps(1e6 * await role(client)), flush=True)
        await client.leave(at_once=True)

    from twisted.internet import reactor

    task.react(lambda reactor: Deferred.fromCoroutine(run(reactor)))


def start(role: str, variant: str, port: int, messages: int, size: int) -> subprocess.Popen[str]:
    """Start a process with a role."""
    command = [sys.executable, __file__, "--role", role, "--variant", variant, "--backbone", f"127.0.0.1:{port}"]
    command += ["--messages", str(messages), "--size", str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def start_backbone(directory: Path, port: int) -> subprocess.Popen[bytes]:
    """Start a backbone with the secret."""
    secret = directory / "secret"
    secret.touch(0o600)
    secret.write_bytes(SECRET)
    command = [str(Path(sys.executable).parent / "twistd"), "-n", "--pidfile=", "fyrehose-backbone"]
    command += [f"--state={directory / 'state'}.{port}", "--start-at=1", "--settle-time=0", f"--port={port}"]
    command += [f"--secret-file={secret}"]
    with (directory / f"backbone.{port}.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def measure(variant: str, directory: Path, options: argparse.Namespace) -> dict[str, float]:
    """Measure a variant once."""
    port = free_port(socket.SOCK_DGRAM)
    backbone = start_backbone(directory, port)
    try:
        count = options.messages // BATCH * BATCH
        subscriber = start("subscriber", variant, port, count, options.size)
        assert subscriber.stdout is not None
        subscriber.stdout.readline()
        before = cpu_seconds(backbone.pid)
        publisher = start("publisher", variant, port, count, options.size)
        publisher.communicate(timeout=PATIENCE)
        received = subscriber.communicate(timeout=PATIENCE)[0]
        used = 1e6 * (cpu_seconds(backbone.pid) - before) / count
        single = start("single", variant, port, options.singles, options.size)
        trip = single.communicate(timeout=PATIENCE)[0]
        return {BACKBONE: used, SUBSCRIBER: float(received), TRIP: float(trip)}
    finally:
        backbone.terminate()
        backbone.wait()


def report(results: dict[str, list[dict[str, float]]], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Print medians and ratios to those without MACs; return the table for the docs."""
    rows = {row: {name: median(each[row] for each in rounds) for name, rounds in results.items()} for row in ROWS}
    print(f"{options.size}-byte messages, medians of {options.rounds} rounds; {describe()}\n")
    print(f"{'':<18}" + "".join(f"{name:>30}" for name in VARIANTS))
    for row, cells in rows.items():
        print(f"{row:<18}" + "".join(f"{cells[name]:>20.2f} ({cells[name] / cells[PLAIN]:.2f}x)" for name in VARIANTS))
    return rows


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--messages", type=int, default=100_000, help="in bursts, each round [%(default)s]")
    parser.add_argument("--singles", type=int, default=2_000, help="one at a time, each round [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    add_option(parser, "mac")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--backbone", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        run_role(options)
        return
    results: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    with (
        tempfile.TemporaryDirectory() as name,
        ProgressBar(total=options.rounds * len(VARIANTS), desc="measured") as bar,
    ):
        for _ in range(options.rounds):
            for variant in VARIANTS:
                results[variant].append(measure(variant, Path(name), options))
                bar.update(1)
    table = report(results, options)
    write(options.json, {"mac": table}, f"medians of {options.rounds} rounds, {options.size}-byte messages")


if __name__ == "__main__":
    main()
