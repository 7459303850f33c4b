"""Throughput on links that lose packets, of fyrehose over UDP and of NATS over TCP, in one run.

link: two network namespaces joined by virtual Ethernet without segmentation offload, where a packet is a packet. The
packet filter drops a share of the packets at either end. One process has a publisher and two subscribers.

loopback: four subscribers of fyrehose, each of which loses other messages than the rest; the link itself loses none.

The broker has one core and all clients another. Medians over rounds that alternate between all cases; ratios are those
of medians. The cost of a repaired message is the CPU time used beyond that of as many messages without loss, divided by
the number of repairs. It needs root.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench_race import (
    NATS_PY,
    PACKAGES,
    ChildFailed,
    Figures,
    in_child,
    outcome,
    ratio_of,
    scaled,
    verdict,
)
from race import library, nats_clients
from race.bulk import Cell, Target
from race.link import Link
from race.machine import describe
from race.servers import NATS, OURS, Broker, Missing, Place, start_nats, start_ours
from results import DIRECTORY, write
from text_table import number, table

from fyrehose_twisted.process.progress import ProgressBar

LINK, LOOPBACK = "link", "loopback"
LOADS = ("broker_load", "client_load")
LINK_FAN_OUT, LOOPBACK_FAN_OUT = 2, 4
LOSSES = (0.0, 0.01, 0.05)
TARGETS = {0.0: 1.5, 0.01: 1.2, 0.05: 1.0}
"""Messages/s on the link, of NATS's."""
LOOPBACK_TARGET = 0.8
"""Messages/s with loss, of those without."""


class Case(NamedTuple):
    """One measurement."""

    network: str
    loss: float
    system: str

    def __str__(self) -> str:
        return f"{self.network}, {self.loss:.0%} lost, {self.system}"


class Results:
    """Figures of every round, by case.

    :ivar failures: measurements that failed, with the error.
    """

    def __init__(self) -> None:
        self.rounds: dict[Case, list[Figures]] = {}
        self.failures: dict[str, str] = {}

    def median(self, case: Case, figure: str) -> float | None:
        """Return the median of a figure, ``None`` without one."""
        values = [each[figure] for each in self.rounds.get(case, ()) if figure in each]
        return median(values) if values else None

    def rate(self, network: str, loss: float, system: str) -> float | None:
        """Return the median of messages/s."""
        return self.median(Case(network, loss, system), "messages_per_second")

    def message_cost(self, case: Case, load: str) -> float | None:
        """Return the CPU seconds for each message."""
        return ratio_of(self.median(case, load), self.median(case, "messages_per_second"))

    def repair_cost(self, network: str, loss: float, load: str) -> float | None:
        """Return the additional CPU seconds for each repaired message; ``load`` is that of broker or clients."""
        lossy, clean = Case(network, loss, OURS), Case(network, 0.0, OURS)
        used, usual = self.message_cost(lossy, load), self.message_cost(clean, load)
        share = ratio_of(self.median(lossy, "repairs_per_second"), self.median(lossy, "messages_per_second"))
        return None if used is None or usual is None or not share else (used - usual) / share


class Networks:
    """The link, and a broker of each system on each network.

    :param offload: leave segmentation offload on.
    """

    def __init__(self, directory: Path, systems: list[str], *, offload: bool) -> None:
        self._stack = ExitStack()
        self._link = Link(offload=offload)
        self._stack.callback(self._link.close)
        starters: dict[str, Callable[[Path, Place], Broker]] = {OURS: start_ours, NATS_PY: start_nats}
        self._brokers: dict[tuple[str, str], Broker] = {}
        for system in systems:
            with self._link.clients.entered():
                self._start(LINK, system, starters[system], directory, Place(self._link.host, self._link.brokers.enter))
        self._start(LOOPBACK, OURS, start_ours, directory, Place())

    def _start(
        self, network: str, system: str, start: Callable[[Path, Place], Broker], directory: Path, place: Place
    ) -> None:
        home = directory / f"{network}.{system}"
        home.mkdir()
        broker = self._brokers[network, system] = start(home, place)
        self._stack.callback(broker.stop)

    def measure(self, case: Case, options: argparse.Namespace) -> Figures:
        """Run one measurement."""
        broker = self._brokers[case.network, case.system]
        broker.check()
        fan_out = LINK_FAN_OUT if case.network == LINK else LOOPBACK_FAN_OUT
        cell = Cell(fan_out, options.size, options.seconds, options.warm_up, 0)
        target = Target(case.system, broker.ports, broker.process.pid, broker.host)
        if case.network == LOOPBACK:
            return outcome(*in_child(library.measure, target, cell, case.loss))
        self._link.lose(case.loss)
        load = library.measure if case.system == OURS else nats_clients.measure
        with self._link.clients.entered():
            child = in_child(load, target, cell)
        return outcome(*child)

    def close(self) -> None:
        """Stop the brokers and remove the link."""
        self._stack.close()


def cases(options: argparse.Namespace, systems: list[str]) -> Iterator[Case]:
    """Yield the measurements of one round."""
    if LINK in options.network:
        yield from (Case(LINK, loss, system) for loss in options.loss for system in systems)
    if LOOPBACK in options.network:
        yield from (Case(LOOPBACK, loss, OURS) for loss in (0.0, 0.01))


def measure(options: argparse.Namespace, directory: Path, systems: list[str]) -> Results:
    """Run all measurements."""
    results = Results()
    networks = Networks(directory, systems, offload=options.offload)
    try:
        todo = [case for _ in range(options.rounds) for case in cases(options, systems)]
        with ProgressBar(todo, unit=" measurements") as progress:
            for case in progress:
                progress.set_description(str(case))
                try:
                    results.rounds.setdefault(case, []).append(networks.measure(case, options))
                except ChildFailed as failure:
                    results.failures[str(case)] = str(failure)
    finally:
        networks.close()
    return results


def microseconds(value: float | None, digits: int = 0) -> str:
    """Format a time for a table."""
    return number(None if value is None else value * 1e6, digits)


def print_link(results: Results, options: argparse.Namespace) -> None:
    """Print throughput on the link, and the cost of a message and of a repair."""
    print(f"Link, {LINK_FAN_OUT} subscribers, {options.size} bytes, thousand messages/s\n")
    rows, costs = [], []
    for loss in options.loss:
        ours, nats = (results.rate(LINK, loss, system) for system in (OURS, NATS_PY))
        case, target, ratio = Case(LINK, loss, OURS), TARGETS.get(loss), ratio_of(ours, nats)
        rows.append(
            [
                f"{loss:.0%}",
                *(number(scaled(rate), 1) for rate in (ours, nats)),
                number(ratio, 2) if target is None else f"{verdict(ratio, target)} (>= {target:g})",
                *(number(results.median(case, load), 2) for load in LOADS),
                number(results.median(case, "repairs_per_second")),
                number(results.median(case, "lost")),
            ]
        )
        used = [results.message_cost(Case(LINK, loss, system), load) for load in LOADS for system in (OURS, NATS_PY)]
        repairs = [results.repair_cost(LINK, loss, load) for load in LOADS]
        costs.append([f"{loss:.0%}", *(microseconds(each, 1) for each in used), *map(microseconds, repairs)])
    loads = ("load of backbone", "load of clients")
    table(["lost", OURS, NATS_PY, "fyrehose / NATS", *loads, "repairs/s", "never came"], rows)
    print("CPU time in µs, which other work on the machine affects less\n")
    head = ("backbone", "nats-server", "clients", "NATS clients")
    table(["a message", *head, "a repair: backbone", "a repair: clients"], costs)


def print_loopback(results: Results, options: argparse.Namespace) -> None:
    """Print throughput on loopback with and without loss."""
    print(f"Loopback, {LOOPBACK_FAN_OUT} subscribers of fyrehose, {options.size} bytes\n")
    rates = [results.rate(LOOPBACK, loss, OURS) for loss in (0.0, 0.01)]
    rows = []
    for loss, rate in zip((0.0, 0.01), rates, strict=True):
        case = Case(LOOPBACK, loss, OURS)
        costs = (results.repair_cost(LOOPBACK, loss, load) for load in ("broker_load", "client_load"))
        repairs = results.median(case, "repairs_per_second")
        rows.append([f"{loss:.0%}", number(rate), number(repairs), *map(microseconds, costs)])
    table(["lost", "messages/s", "repairs/s", "backbone, CPU µs a repair", "clients, CPU µs a repair"], rows)
    print(f"with / without loss, >= {LOOPBACK_TARGET:g}: {verdict(ratio_of(rates[1], rates[0]), LOOPBACK_TARGET)}.\n")


def report(results: Results, options: argparse.Namespace) -> None:
    """Print all results."""
    print()
    for name, fact in describe().items():
        print(f"{name}: {fact}")
    print(f"Medians of {options.rounds} rounds of {options.seconds:g} s.\n")
    if LINK in options.network:
        print_link(results, options)
    if LOOPBACK in options.network:
        print_loopback(results, options)
    for case, failure in results.failures.items():
        print(f"FAILED {case}: {failure.strip().splitlines()[-1]}")


def available(options: argparse.Namespace) -> list[str]:
    """Return the systems to measure, without those that are not installed."""
    module, package = PACKAGES[NATS]
    if NATS_PY in options.system and find_spec(module) is None:
        print(f"{NATS_PY}: not installed: pip install {package}")
        return [OURS]
    return list(options.system)


def tables(results: Results, options: argparse.Namespace) -> dict[str, dict[str, dict[str, float | None]]]:
    """Return the tables for the docs."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    names = {OURS: OURS, NATS_PY: NATS}
    shares = {loss: f"{loss:.0%}".replace("%", " %") if loss else "none" for loss in options.loss}
    if LINK in options.network:
        found["loss"] = {
            share: {name: results.rate(LINK, loss, system) for system, name in names.items()}
            for loss, share in shares.items()
        }
        found["loss-cpu"] = {
            f"{side}, {share} lost": {
                name: scaled_up(results.message_cost(Case(LINK, loss, system), load)) for system, name in names.items()
            }
            for side, load in zip(("server", "clients"), LOADS, strict=True)
            for loss, share in shares.items()
        }
    if LOOPBACK in options.network:
        clean, lossy = "without loss", "1 % lost"
        found["loss-loopback"] = {
            "messages/s": {lossy: results.rate(LOOPBACK, 0.01, OURS), clean: results.rate(LOOPBACK, 0.0, OURS)},
            **{
                f"a repair: {side}, µs": {lossy: scaled_up(results.repair_cost(LOOPBACK, 0.01, load))}
                for side, load in zip(("backbone", "clients"), LOADS, strict=True)
            },
        }
    return found


def scaled_up(seconds: float | None) -> float | None:
    """Return microseconds."""
    return None if seconds is None else seconds * 1e6


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement [%(default)g]")
    parser.add_argument("--warm-up", type=float, default=0.5, help="seconds before it [%(default)g]")
    parser.add_argument("--size", type=int, default=128, help="bytes of payload [%(default)s]")
    parser.add_argument("--loss", type=float, action="append", help="on the link; may be repeated [0, 0.01, 0.05]")
    parser.add_argument("--network", action="append", choices=(LINK, LOOPBACK), help="measure this one only")
    parser.add_argument("--system", action="append", choices=(OURS, NATS_PY), help="measure this one only")
    parser.add_argument("--offload", action="store_true", help="leave segmentation offload on")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for results [%(default)s]")
    options = parser.parse_args()
    options.loss = options.loss or list(LOSSES)
    options.network = options.network or [LINK, LOOPBACK]
    options.system = options.system or [OURS, NATS_PY]
    with tempfile.TemporaryDirectory() as directory:
        try:
            results = measure(options, Path(directory), available(options))
        except Missing as missing:
            print(f"Skipped: {missing}")
            return
    report(results, options)
    rounds = [{**case._asdict(), "rounds": figures} for case, figures in results.rounds.items()]
    how = f"medians of {options.rounds} rounds of {options.seconds:g} s"
    write(options.directory / "loss.json", tables(results, options), how, describe(), rounds=rounds)
    if results.failures:
        sys.exit(1)


if __name__ == "__main__":
    main()
