"""CPU time of nodes and scenarios, compiled beside interpreted: ``make compiled`` first.

Each round runs in a new process of each environment, in turn. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median
from time import process_time

# OpenBLAS starts threads for numpy, which are unused here and would count as CPU time.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from results import add_option, write

from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import Messages
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RoundRobinForward
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.wire.codec import decode, encode
from fyrehose_twisted.fyrehose.wire.packets import Deliver, Keepalive, KeepaliveAck, Push
from fyrehose_twisted.sim.runs.scenario_ref import load

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = {"interpreted": ROOT / ".venv/bin/python", "compiled": ROOT / ".venv-compiled/bin/python"}
BACKBONE = ("192.0.2.1", 2323)
SUBSCRIBERS = [("192.0.2.2", 5_000 + number) for number in range(4)]
START = 1_700_000_000.0
DATA = bytes(128)


def joined_client() -> Client:
    """Return a connected client that subscribes from message 1."""
    client = Client(BACKBONE, ClientConfig(start=1), Random(1), START)
    client.tick(START)
    for effect in client.drain().effects:
        for datagram in effect.iter_datagrams():
            packet = decode(datagram)
            if isinstance(packet, Keepalive):
                client.receive_batch(Batch.pack([(encode(KeepaliveAck(packet.token)), BACKBONE)]), START)
    while client.drain().events:
        pass
    return client


def drained(client: Client) -> int:
    """Take what the client delivers; return the number of messages."""
    count = 0
    while events := client.drain().events:
        for event in events:
            if isinstance(messages := getattr(event, "messages", None), Messages):
                count += sum(1 for _ in messages)
    client.next_deadline()
    return count


def set_aside() -> None:
    """Make the collector ignore what exists, such as all batches that are to arrive, which no service holds."""
    gc.collect()
    gc.freeze()


def backbone(batches: int, rows: int) -> float:
    """Return CPU seconds in which a backbone numbers messages and sends them to four subscribers."""
    node = Backbone(BackboneConfig(), RoundRobinForward(), now=START)
    now = START + 10.0
    node.tick(now)
    node.receive_batch(Batch.pack([(encode(Keepalive(token=bytes(16))), address) for address in SUBSCRIBERS]), now)
    node.drain()
    arriving = [Batch.pack([(encode(Push(DATA)), SUBSCRIBERS[0])] * rows) for _ in range(batches)]
    set_aside()
    before = process_time()
    for batch in arriving:
        now += 1e-4
        node.receive_batch(batch, now)
        node.drain()
        node.next_deadline()
    return process_time() - before


def subscriber(batches: int, rows: int) -> float:
    """Return CPU seconds in which a client delivers messages."""
    client, now, delivered = joined_client(), START, 0
    arriving = [
        Batch.pack([(encode(Deliver(first + row, DATA)), BACKBONE) for row in range(rows)])
        for first in range(1, batches * rows + 1, rows)
    ]
    set_aside()
    before = process_time()
    for batch in arriving:
        now += 1e-3
        client.receive_batch(batch, now)
        delivered += drained(client)
    taken = process_time() - before
    assert delivered == batches * rows
    return taken


def publisher(batches: int, rows: int) -> float:
    """Return CPU seconds in which a client publishes messages and receives them."""
    client, now, last, taken = joined_client(), START, 0, 0.0
    for _ in range(batches):
        now += 1e-3
        before = process_time()
        client.publish_many([DATA] * rows, now)
        client.tick(now)
        effects = client.drain().effects
        taken += process_time() - before
        answers = []
        for packet in (decode(datagram) for effect in effects for datagram in effect.iter_datagrams()):
            if isinstance(packet, Push):
                last += 1
                answers.append((encode(Deliver(last, packet.data)), BACKBONE))
        batch = Batch.pack(answers)
        before = process_time()
        client.receive_batch(batch, now)
        drained(client)
        taken += process_time() - before
    return taken


def scenario(name: str) -> Callable[[], float]:
    """Return a function that runs a scenario and returns CPU seconds per simulated hour."""

    def run() -> float:
        before = process_time()
        outcome = load(name)(1).run()
        return (process_time() - before) / outcome.simulated_seconds * 3_600

    return run


CASES: dict[str, tuple[float, Callable[[], float]]] = {
    f"{name}, {label}, µs a message": (1e6 / (batches * rows), lambda node=node, b=batches, r=rows: node(b, r))  # type: ignore[misc]
    for name, node in (("backbone", backbone), ("subscriber", subscriber), ("publish and return", publisher))
    for label, batches, rows in (("single", 20_000, 1), ("bursts of 64", 2_000, 64))
} | {
    f"{name}.storm, CPU seconds an hour": (1.0, scenario(f"fyrehose_twisted.{name}.simulation.scenarios:Storm"))
    for name in ("fyrehose", "hydra", "freenet", "parcels")
}


def main() -> None:
    """Run the cases in both environments and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="processes of each environment; default: %(default)s")
    add_option(parser, "compiled")
    parser.add_argument("--case", help="run one case once and print its figure", choices=list(CASES))
    options = parser.parse_args()
    if options.case:
        factor, run = CASES[options.case]
        print(json.dumps(factor * run()))
        return
    table: dict[str, dict[str, float]] = {}
    print("| CPU time | interpreted | compiled | ratio |\n| --- | --- | --- | --- |")
    for case in CASES:
        found: dict[str, list[float]] = {name: [] for name in ENVIRONMENTS}
        for _ in range(options.rounds):
            for name, python in ENVIRONMENTS.items():
                command = [python, __file__, "--case", case]
                done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
                found[name].append(json.loads(done.stdout))
        table[case] = {name: median(found[name]) for name in ENVIRONMENTS}
        first, second = table[case].values()
        print(f"| {case} | {first:.2f} | {second:.2f} | {second / first:.2f} |", flush=True)
    write(options.json, {"compiled": table}, f"medians of {options.rounds} rounds, each in processes of their own")


if __name__ == "__main__":
    sys.exit(main())
