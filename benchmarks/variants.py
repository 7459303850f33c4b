"""Variants of a stream beside the plain one: what a message costs in bursts and singly.

A publisher and a subscriber have a process each.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from race.machine import describe
from results import write

from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.process.progress import ProgressBar

PLAIN = "plain"
SUBSCRIBER, TRIP = "subscriber, µs", "round trip, µs"
BATCH = 256
PATIENCE = 120.0


def add_role_options(parser: argparse.ArgumentParser) -> None:
    """Add the options with which a benchmark starts itself for a role."""
    for option in ("--role", "--variant", "--backbone"):
        parser.add_argument(option, help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=Path, help=argparse.SUPPRESS)


def run_role(
    options: argparse.Namespace,
    config: ClientConfig,
    prepare: Callable[[Any], None] = lambda client: None,
    make_payload: Callable[[bytes], bytes] = lambda data: data,
) -> None:
    """Run a publisher or subscriber in this process, and print its figure.

    :param prepare: called with the protocol before it joins.
    :param make_payload: returns what is published for the data of a message.
    """
    from twisted.internet import task
    from twisted.internet.defer import Deferred

    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join

    data = bytes(options.size)

    class Client(PublisherProtocol):
        """Client that counts what it receives."""

        def __init__(self) -> None:
            super().__init__(config)
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
            client.publish_many([make_payload(data) for _ in range(BATCH)])
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
            client.publish(make_payload(data))
            await arrived
            times.append(time.perf_counter() - begun)
        return median(times)

    async def run(reactor: Any) -> None:
        client = Client()
        prepare(client)
        await join(reactor, client, options.backbone)
        role = {"publisher": publish_bursts, "subscriber": receive, "single": round_trips}[options.role]
        print(json.dumps(1e6 * await role(client)), flush=True)
        await client.leave(at_once=True)

    from twisted.internet import reactor

    task.react(lambda reactor: Deferred.fromCoroutine(run(reactor)))


def start(options: argparse.Namespace, role: str, variant: str, port: int, keys: Path) -> subprocess.Popen[str]:
    """Start the benchmark that runs in this process again, for a role."""
    messages = options.singles if role == "single" else options.messages // BATCH * BATCH
    command = [sys.executable, sys.argv[0], "--role", role, "--variant", variant, "--backbone", f"127.0.0.1:{port}"]
    command += ["--keys", str(keys), "--messages", str(messages), "--size", str(options.size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure_bursts(
    options: argparse.Namespace, variant: str, port: int, keys: Path, on_ready: Callable[[], None] = lambda: None
) -> tuple[float, float]:
    """Return the microseconds of CPU time that a message of a burst takes at the publisher and at the subscriber.

    :param on_ready: called when the subscriber has joined, before anything is published.
    """
    subscriber = start(options, "subscriber", variant, port, keys)
    assert subscriber.stdout is not None
    subscriber.stdout.readline()
    on_ready()
    publisher = start(options, "publisher", variant, port, keys)
    return float(publisher.communicate(timeout=PATIENCE)[0]), float(subscriber.communicate(timeout=PATIENCE)[0])


def measure_singles(options: argparse.Namespace, variant: str, port: int, keys: Path) -> float:
    """Return the microseconds that a single message takes to come back."""
    return float(start(options, "single", variant, port, keys).communicate(timeout=PATIENCE)[0])


def measure_rounds(
    options: argparse.Namespace,
    name: str,
    variants: Sequence[str],
    measure: Callable[[str, Path], dict[str, float]],
    prepare: Callable[[Path], None] = lambda directory: None,
) -> None:
    """Measure all variants in each round, print medians and ratios to the plain one, and write the table.

    :param measure: measures a variant once, with a directory for its files.
    :param prepare: called with that directory before the first round.
    """
    results: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}
    with (
        tempfile.TemporaryDirectory() as place,
        ProgressBar(total=options.rounds * len(variants), desc="measured") as bar,
    ):
        directory = Path(place)
        prepare(directory)
        for _ in range(options.rounds):
            for variant in variants:
                results[variant].append(measure(variant, directory))
                bar.update(1)
    rows = {
        row: {variant: median(each[row] for each in rounds) for variant, rounds in results.items()}
        for row in results[PLAIN][0]
    }
    print(f"{options.size}-byte messages, medians of {options.rounds} rounds; {describe()}\n")
    print(f"{'':<18}" + "".join(f"{variant:>30}" for variant in variants))
    for row, cells in rows.items():
        print(f"{row:<18}" + "".join(f"{cells[one]:>20.2f} ({cells[one] / cells[PLAIN]:.2f}x)" for one in variants))
    write(options.json, {name: rows}, f"medians of {options.rounds} rounds, {options.size}-byte messages")
