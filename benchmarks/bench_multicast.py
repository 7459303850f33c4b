"""Multicast compared with unicast, OpenPGM and NORM: CPU time of the sender, repairs, and bursts.

Each subscriber is in a network namespace of its own, on a bridge that the benchmark makes and that ends with it.
Requires root.

cost: CPU time of the sender for each message, with single messages at a rate that all systems keep up with, and the
highest rate, doubled from that one, at which everything arrives. All systems receive what they publish from a socket.
Bare senders in C are the floor: one datagram to the group, and one to each subscriber. Subscribers are sockets that are
counted in C. The sender has a core for itself. The other one has the publisher, the subscribers, and the work of
the network, such as to clone a packet for each subscriber. "One core" is the floor if the sender does that, too.

rest: CPU time of the sender in a second without messages.

repair: REQUESTs and repairs with subscribers of the library that lose packets: the same ones, or each its own.

bursts: CPU time and system calls of a backbone for each message of bursts, with and without segmentation offload.

Rates depend on the machine; compare the ratios of one run. Medians over rounds that alternate.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

# Threads of numpy's OpenBLAS count as CPU time of the start of each process.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from bench_relay import show
from multicast import bursts, cost, ours, repair, tables
from multicast.cores import CORES, bind_other
from multicast.rivals import NORM, PGM, Programs
from multicast.segment import refusal
from multicast.tables import Rows
from race.machine import describe
from race.servers import Missing
from results import add_option, given, write

from fyrehose_twisted.process.progress import ProgressBar

COST, REST, REPAIR, BURSTS = "cost", "rest", "repair", "bursts"
PARTS = (COST, REST, REPAIR, BURSTS)
PACKAGES = {PGM: "libpgm-5.3-0", NORM: "libnorm1"}
"""Debian packages of the libraries."""
Measured = tuple[dict[str, Rows], dict[str, Any]]
"""Tables for the docs, and everything else that was measured."""


def numbers(text: str) -> list[int]:
    """Parse whole numbers, separated by commas. :raises ValueError: if one is not positive."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def measure_cost(options: argparse.Namespace, programs: Programs, directory: Path) -> Measured:
    """Measure CPU times of senders."""
    systems = [system for system in cost.SYSTEMS if is_measured(system, programs)]
    total = len(options.subscribers) * options.rounds * len(options.sizes) * (len(systems) + 1)
    load = cost.Load(options.rate, options.seconds)
    with ProgressBar("costs", total=total, unit="measurements") as bar:
        found = cost.measure(
            *(directory, options.rounds, options.subscribers, options.sizes, load, programs, systems),
            lambda: bar.update(1),
            rates=not options.no_rates,
        )
    print(f"\nµs of CPU time of the sender for each message, at {options.rate:g} messages/s.")
    print(f"{found.lost:,} deliveries were lost.")
    for failure in found.failures:
        print(f"Not measured: {failure}")
    made = {"multicast-cost": tables.case_rows(found.messages)}
    if found.rates:
        made["multicast-rates"] = tables.case_rows(found.rates)
    rounds = {kind: _listed(values) for kind, values in (("cost", found.messages), ("rates", found.rates))}
    return made, {**rounds, "lost": found.lost, "failures": found.failures}


def measure_rest(options: argparse.Namespace, programs: Programs, directory: Path) -> Measured:
    """Measure CPU times without messages."""
    systems = [system for system in cost.WITH_TIMERS if is_measured(system, programs)]
    total = len(options.subscribers) * options.rounds * len(systems)
    with ProgressBar("rests", total=total, unit="measurements") as bar:
        found = cost.measure_rest(
            *(directory, options.rounds, options.subscribers, options.seconds, programs, systems), lambda: bar.update(1)
        )
    print("\nms of CPU time of the sender in a second without messages.")
    return {"multicast-rest": tables.rest_rows(found)}, {"rest": {f"{n} {name}": v for (n, name), v in found.items()}}


def is_measured(system: str, programs: Programs) -> bool:
    """Return whether a system is there."""
    return system not in programs.missing and (system != ours.MULTICAST or ours.is_there())


def measure_repair(options: argparse.Namespace, programs: Programs, directory: Path) -> Measured:
    """Measure repairs."""
    size = repair.Size(
        *(options.repair_subscribers, options.repair_messages, options.repair_rate, options.sizes[0]),
        options.loss / 100,
    )
    cases = repair.CASES if ours.is_there() else (repair.UNICAST_OWN,)
    with ProgressBar("repairs", total=options.rounds * len(cases), unit="measurements") as bar:
        found = repair.measure(directory, options.rounds, size, cases, lambda: bar.update(1))
    print(
        f"\n{size.messages} messages to {size.subscribers} subscribers, with {options.loss:g} % of the packets dropped."
    )
    return {"multicast-repair": tables.repair_rows(found)}, {"repair": found}


def measure_bursts(options: argparse.Namespace, programs: Programs, directory: Path) -> Measured:
    """Measure bursts."""
    if not ours.is_there():
        return {}, {}
    load = bursts.Load(options.burst_rate, options.seconds)
    total = options.rounds * len(options.sizes) * len(bursts.KINDS)
    with ProgressBar("bursts", total=total, unit="measurements") as bar:
        found = bursts.measure(
            *(directory, options.rounds, options.burst_subscribers, options.sizes, load, programs),
            lambda: bar.update(1),
        )
    lost = sum(each.lost for rounds in found.values() for each in rounds)
    print(f"\nFor each message of bursts of {bursts.BURST} messages. {lost:,} deliveries were lost.")
    kept = {f"{size} {kind}": rounds for (size, kind), rounds in found.items()}
    return {"multicast-bursts": tables.burst_rows(found)}, {"bursts": kept}


MEASURES: dict[str, Callable[[argparse.Namespace, Programs, Path], Measured]] = {
    COST: measure_cost,
    REST: measure_rest,
    REPAIR: measure_repair,
    BURSTS: measure_bursts,
}


def _listed(rounds: dict[tuple[int, int, str], list[float]]) -> dict[str, list[float]]:
    return {f"{system}, {tables.name_of(count, size)}": values for (count, size, system), values in rounds.items()}


def machine(missing: Sequence[str]) -> dict[str, str]:
    """Describe the machine, with the versions of the libraries as the distribution tells them."""
    wanted = ("processor", "cores", "system", "Python", "gcc")
    facts = {name: fact for name, fact in describe().items() if name in wanted} | {"cores": str(len(CORES))}
    for system, package in PACKAGES.items():
        if system not in missing:
            command = ["dpkg-query", "--show", "--showformat=${Version}", package]
            try:
                facts[system] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            except (OSError, subprocess.CalledProcessError):
                facts[system] = "of another system than Debian"
    return facts


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="part to run [all]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--sizes", type=numbers, default="100,1000", help="bytes of DATA [%(default)s]")
    parser.add_argument("--subscribers", type=numbers, default="1,16,200", help="for costs [%(default)s]")
    parser.add_argument("--rate", type=float, default=200.0, help="single messages/s for costs [%(default)g]")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement [%(default)g]")
    parser.add_argument("--no-rates", action="store_true", help="do not look for the highest rates")
    parser.add_argument("--repair-subscribers", type=int, default=200, help="[%(default)s]")
    parser.add_argument("--repair-messages", type=int, default=1_000, help="[%(default)s]")
    parser.add_argument("--repair-rate", type=float, default=25.0, help="messages/s [%(default)g]")
    parser.add_argument("--loss", type=float, default=1.0, help="%% of the packets to drop [%(default)g]")
    parser.add_argument("--burst-subscribers", type=int, default=16, help="[%(default)s]")
    parser.add_argument("--burst-rate", type=float, default=50.0, help="bursts/s [%(default)g]")
    add_option(parser, "multicast")
    options = parser.parse_args()
    if (problem := refusal()) is not None:
        raise SystemExit(problem)
    if not ours.is_there():
        print("This version of fyrehose has no multicast, so its other rows are measured alone.")
    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    bind_other()
    found: dict[str, Rows] = {}
    kept: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        try:
            programs = Programs(Path(directory))
        except Missing as missing:
            raise SystemExit(f"gcc is {missing}") from None
        for system, advice in programs.missing.items():
            print(f"{system} is {advice}")
        for part in (part for part in PARTS if part in (options.only or PARTS)):
            rows, more = MEASURES[part](options, programs, Path(directory))
            for table in rows.values():
                show(table)
            found |= rows
            kept |= more
    how = f"medians of {options.rounds} round{'s' if options.rounds > 1 else ''}"
    write(options.json, found, how, machine(list(programs.missing)), options=given(options), **kept)


if __name__ == "__main__":
    main()
