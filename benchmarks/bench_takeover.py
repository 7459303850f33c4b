"""Takeovers of three members as a subscriber sees them, and three members compared with one backbone.

takeover: a publisher publishes every 5 ms, and a subscriber measures the longest time between two messages when the
leader is killed with -9, stopped (SIGSTOP), terminated (SIGTERM), or told to hand over. All systems have three members
on loopback, default timers, and clients in one process. fyrehose must deliver every message. JetStream has a stream
with three replicas and a durable consumer; etcd has a watch on a follower, and syncs nothing to disk. Their clients are
connected to members that live on.

rate: the load of bench_backbone.py on one backbone and on three members in turn.

Medians over rounds that alternate between the systems.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

from bench_backbone import Result, Server, free_port, run
from parcels.nodes import Node, Unfit
from race.machine import describe
from race.servers import Missing
from results import add_option, write
from takeover import etcd, jetstream, ours
from takeover.pauses import FAULTS

from fyrehose_twisted.process.progress import ProgressBar

Rows = dict[str, dict[str, float]]
Pause = Callable[[Path, str, Random], float]
SYSTEMS: dict[str, Pause] = {"fyrehose": ours.pause, "JetStream": jetstream.pause, "etcd": etcd.pause}
FORGOTTEN = 6.0
"""Seconds after which a server sends no more messages to the clients of the round before."""
ONE, THREE = "one backbone", "three members"
RATES = (
    ("messages/s", 1.0),
    ("deliveries per CPU-second", 1.0),
    ("round trip, median, µs", 1e6),
    ("round trip, 99 %, µs", 1e6),
    ("lost, %", 100.0),
)


class Member(Server):
    """A backbone as a server of bench_backbone.

    Each is in a session of its own, because the kernel shares the processor between sessions.
    """

    def __init__(self, name: str, node: Node, port: int) -> None:
        self.name = name
        self.process = node.process
        self.address = ("127.0.0.1", port)


def measure_takeovers(rounds: int, names: list[str]) -> Rows:
    """Measure the pauses, print them and return the table for the docs."""
    rng = Random()
    pauses: dict[tuple[str, str], list[float]] = {}
    problems: dict[str, str] = {}
    jobs = [(fault, name) for _ in range(rounds) for fault in FAULTS for name in names]
    for fault, name in ProgressBar(jobs, unit=" takeovers", desc="measured"):
        if name in problems:
            continue
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
            try:
                pauses.setdefault((fault, name), []).append(SYSTEMS[name](Path(directory), fault, rng))
            except Missing as missing:
                problems[name] = str(missing)
            except Unfit as unfit:
                print(f"{name}, {fault}: {unfit}", file=sys.stderr)
    print(f"\nLongest pause of a subscriber in seconds, median and maximum of {rounds} takeovers\n")
    shown = [name for name in names if name not in problems]
    print(f"{'':<12}" + "".join(f"{name:>20}" for name in shown))
    for fault in FAULTS:
        cells = [pauses.get((fault, name), []) for name in shown]
        texts = [f"{median(cell):.3f} ({max(cell):.3f})" if cell else "failed" for cell in cells]
        print(f"{fault:<12}" + "".join(f"{text:>20}" for text in texts))
    for name, problem in problems.items():
        print(f"{name} was skipped; {problem}")
    return {
        f"{fault}, {label}": {name: of(pauses[fault, name]) for name in shown if pauses.get((fault, name))}
        for fault in FAULTS
        for label, of in (("median", median), ("longest", max))
    }


def measure_rates(options: argparse.Namespace) -> Rows:
    """Measure the rates, print them and return the table for the docs."""
    results: dict[str, list[Result]] = {ONE: [], THREE: []}
    port = free_port()
    with tempfile.TemporaryDirectory() as directory, ours.Group(Path(directory)) as group:
        state = [f"--state={directory}/state", "--start-at=1", "--settle-time=0", "--port", str(port)]
        one = Node("one", [*ours.TWISTD, *state], Path(directory))
        try:
            leader = group.nodes[group.leader]
            servers = [Member(ONE, one, port), Member(THREE, leader, group.ports[group.leader])]
            for number in ProgressBar(range(options.rounds), unit=" rounds", desc="measured"):
                for server in servers[:: 1 if number % 2 else -1]:
                    time.sleep(FORGOTTEN)
                    results[server.name].append(run(server, options))
        finally:
            one.stop()
    print(f"\n{options.size}-byte messages, {options.subscribers} subscribers, window {options.window}; medians of")
    print(f"{options.rounds} rounds of {options.seconds:g} s. CPU time is that of the leader.\n")
    print(f"{'':<28}{ONE:>16}{THREE:>16}{'ratio':>8}")
    rows: Rows = {}
    for index, (label, scale) in enumerate(RATES):
        alone, together = (median(result[index] for result in results[name]) * scale for name in (ONE, THREE))
        rows[label] = {THREE: together, ONE: alone}
        print(f"{label:<28}{alone:>16,.1f}{together:>16,.1f}" + (f"{together / alone:>8.2f}" if alone else ""))
    return rows


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--takeovers", type=int, default=5, help="of each kind and system [%(default)s]")
    parser.add_argument("--rounds", type=int, default=9, help="of the rates [%(default)s]")
    parser.add_argument("--seconds", type=float, default=3.0, help="of throughput, each round [%(default)g]")
    parser.add_argument("--size", type=int, default=128, help="bytes of DATA [%(default)s]")
    parser.add_argument("--subscribers", type=int, default=4)
    parser.add_argument("--window", type=int, default=256, help="messages under way [%(default)s]")
    parser.add_argument("--round-trips", type=int, default=1_000)
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="to measure takeovers of [all]")
    parser.add_argument("--only", choices=("takeover", "rate"))
    add_option(parser, "takeover")
    options = parser.parse_args()
    print(", ".join(f"{name} {version}" for name, version in describe().items() if version))
    tables: dict[str, Rows] = {}
    if options.only != "rate":
        tables["takeover"] = measure_takeovers(options.takeovers, options.system or list(SYSTEMS))
    if options.only != "takeover":
        tables["group"] = measure_rates(options)
    how = f"{options.takeovers} takeovers of each kind; rates are medians of {options.rounds} rounds"
    write(options.json, tables, how, {name: version for name, version in describe().items() if version})


if __name__ == "__main__":
    main()
