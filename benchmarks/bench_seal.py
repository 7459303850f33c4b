"""Sealed payloads beside plain ones: CPU time of publisher and subscriber in bursts, and the round trip of one message.

A publisher and a subscriber, a process each, share a backbone. In bursts, the publisher publishes batches as fast as
they are acknowledged. Its CPU time includes its own stream, which it receives like every publisher and does not open.
For the round trip, one process publishes a message, receives it, opens it, and only then publishes the next one.

CPU times depend on the machine; compare the ratios of one run. Medians over rounds that alternate between the variants.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from random import SystemRandom
from statistics import median
from typing import Any

from race.machine import describe
from race.servers import start_ours
from results import add_option, write

from fyrehose_twisted.process.progress import ProgressBar
from fyrehose_twisted.sealing.key_file import create_key_ring, create_signing_key
from fyrehose_twisted.sealing.key_ring import KeyRing, check_stream_uri
from fyrehose_twisted.sealing.keys import KEY_SIZE, SealKey
from fyrehose_twisted.sealing.signing import SigningKey

PLAIN, CHACHA, AES, SIGNED = "plain", "ChaCha20-Poly1305", "AES-256-GCM", "AES-256-GCM, signed"
VARIANTS = (PLAIN, CHACHA, AES, SIGNED)
PUBLISHER, SUBSCRIBER, TRIP = "publisher, µs", "subscriber, µs", "round trip, µs"
ROWS = (PUBLISHER, SUBSCRIBER, TRIP)
BATCH = 256
PATIENCE = 120.0


def make_keys(directory: Path) -> None:
    """Create the key files of the variants."""
    signing = SigningKey.generate()
    create_signing_key(directory / "signing", signing)
    for variant in VARIANTS[1:]:
        algorithm = "chacha20-poly1305" if variant == CHACHA else "aes-256-gcm"
        key = SealKey(algorithm, SystemRandom().randbytes(KEY_SIZE))
        publishers = {"bench": signing.public} if variant == SIGNED else {}
        create_key_ring(directory / variant, KeyRing(check_stream_uri("bench"), [key], publishers))


def run_role(options: argparse.Namespace) -> None:
    """Run a publisher or subscriber in this process, and print its figure."""
    from twisted.internet import task
    from twisted.internet.defer import Deferred

    from fyrehose_twisted.fyrehose.config import ClientConfig
    from fyrehose_twisted.fyrehose.protocol.publisher import PublisherProtocol
    from fyrehose_twisted.fyrehose.service.connect import join
    from fyrehose_twisted.sealing.key_source import KeySource

    data = bytes(options.size)

    class Client(PublisherProtocol):
        """Client that counts what it receives."""

        def __init__(self) -> None:
            super().__init__(ClientConfig(journal=False))
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

    def made() -> Client:
        client = Client()
        if options.variant != PLAIN:
            signing = options.keys / "signing" if options.variant == SIGNED else None
            keys = KeySource(options.keys / options.variant, signing_key_path=signing)
            client.sealer = None if options.role == "subscriber" else keys.sealer
            client.opener = None if options.role == "publisher" else keys.opener
        return client

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
        arrived = client.arrived
        await arrived
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
        client = await join(reactor, made(), options.backbone)
        role = {"publisher": publish_bursts, "subscriber": receive, "single": round_trips}[options.role]
        print(json.dumps(1e6 * await role(client)), flush=True)
        await client.leave(at_once=True)

    from twisted.internet import reactor

    task.react(lambda reactor: Deferred.fromCoroutine(run(reactor)))


def start(role: str, variant: str, port: int, keys: Path, messages: int, size: int) -> subprocess.Popen[str]:
    """Start a process with a role."""
    command = [sys.executable, __file__, "--role", role, "--variant", variant, "--backbone", f"127.0.0.1:{port}"]
    command += ["--keys", str(keys), "--messages", str(messages), "--size", str(size)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def measure(variant: str, port: int, keys: Path, options: argparse.Namespace) -> dict[str, float]:
    """Measure a variant once."""
    count = options.messages // BATCH * BATCH
    subscriber = start("subscriber", variant, port, keys, count, options.size)
    assert subscriber.stdout is not None
    subscriber.stdout.readline()
    publisher = start("publisher", variant, port, keys, count, options.size)
    sent, received = publisher.communicate(timeout=PATIENCE)[0], subscriber.communicate(timeout=PATIENCE)[0]
    single = start("single", variant, port, keys, options.singles, options.size)
    trip = single.communicate(timeout=PATIENCE)[0]
    return {row: float(text) for row, text in zip(ROWS, (sent, received, trip), strict=True)}


def report(results: dict[str, list[dict[str, float]]], options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Print medians and ratios to plain payloads; return the table for the docs."""
    rows = {row: {name: median(each[row] for each in rounds) for name, rounds in results.items()} for row in ROWS}
    print(f"{options.size}-byte messages, medians of {options.rounds} rounds; {describe()}\n")
    print(f"{'':<18}" + "".join(f"{name:>30}" for name in VARIANTS))
    for row, cells in rows.items():
        print(f"{row:<18}" + "".join(f"{cells[name]:>20.2f} ({cells[name] / cells[PLAIN]:.2f}x)" for name in VARIANTS))
    return rows


def main() -> None:
    """Run the rounds and print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=50_000, help="in bursts, each round [%(default)s]")
    parser.add_argument("--singles", type=int, default=2_000, help="one at a time, each round [%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of a message [%(default)s]")
    add_option(parser, "seal")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    parser.add_argument("--variant", help=argparse.SUPPRESS)
    parser.add_argument("--backbone", help=argparse.SUPPRESS)
    parser.add_argument("--keys", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.role:
        run_role(options)
        return
    results: dict[str, list[dict[str, float]]] = {variant: [] for variant in VARIANTS}
    with (
        tempfile.TemporaryDirectory() as name,
        ProgressBar(total=options.rounds * len(VARIANTS), desc="measured") as bar,
    ):
        directory = Path(name)
        make_keys(directory)
        for _ in range(options.rounds):
            for variant in VARIANTS:
                backbone = start_ours(directory)
                try:
                    results[variant].append(measure(variant, backbone.ports[0], directory, options))
                finally:
                    backbone.stop()
                bar.update(1)
    table = report(results, options)
    write(options.json, {"seal": table}, f"medians of {options.rounds} rounds, {options.size}-byte messages")


if __name__ == "__main__":
    main()
