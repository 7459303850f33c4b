"""Relays compared with a backbone: CPU time of a delivery, latency of each level, and trees with many subscribers.

cost: CPU time of a relay for each delivery, beside that of a backbone with the same subscribers, in bursts and with
single messages. Subscribers are raw sockets, and the measured server has a core for itself.

levels: latency of single messages with none to three relays between backbone and subscriber.

tree: subscribers of the library at the relays of one backbone, and at one backbone alone: CPU time of a message, the
highest rate at which nothing is lost, and the time between the first and the last receipt. Servers and subscribers
share the machine.

simulated: a tree of more than a hundred thousand nodes on the simulated network, whose links lose packets. Each
subscriber must receive every message. It takes minutes and gigabytes, so it runs only if chosen with --only, and its
results have a file of their own.

Rates depend on the machine; compare the ratios of one run. Medians over rounds that alternate.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Nodes multiply no matrices, and the threads of numpy's OpenBLAS count as CPU time of the start of each process.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from parcels.children import in_child
from relay import cost, crowds, levels, simulated, spread, tables
from relay.tables import Rows
from results import add_option, given, write

from fyrehose_twisted.process.progress import ProgressBar

COST, LEVELS, TREE, SIMULATED = "cost", "levels", "tree", "simulated"
PARTS = (COST, LEVELS, TREE, SIMULATED)
SIMULATION_PATIENCE = 3_600.0
Measured = tuple[dict[str, Rows], dict[str, Any]]
"""Tables for the docs, and everything else that was measured."""


def measure_cost(options: argparse.Namespace, directory: Path) -> Measured:
    """Measure CPU times of deliveries."""
    load = cost.Load(options.size, options.seconds, options.rate)
    with ProgressBar("costs", total=sum(1 for _ in cost.jobs(options.rounds)), unit="measurements") as bar:
        costs, lost = cost.measure(directory, options.rounds, load, lambda: bar.update(1))
    print(f"\nµs of CPU time for each delivery. {lost:,.0f} deliveries were lost.")
    rounds = {" ".join(map(str, case)): values for case, values in costs.items()}
    return {"relay-cost": tables.cost_rows(costs)}, {"cost": rounds, "lost": lost}


def measure_levels(options: argparse.Namespace, directory: Path) -> Measured:
    """Measure latencies."""
    with ProgressBar("levels", total=options.rounds * len(levels.DEPTHS), unit="measurements") as bar:
        found = levels.measure(
            directory, options.rounds, options.messages, options.size, options.pause, lambda: bar.update(1)
        )
    print("\nµs from the publication to the receipt of a single message.")
    return {"relay-levels": tables.level_rows(found)}, {"levels": found}


def measure_tree(options: argparse.Namespace, directory: Path) -> Measured:
    """Measure trees with many subscribers."""
    size = crowds.Size(options.relays, options.subscribers, options.processes, options.size)
    with ProgressBar("spreads", total=options.rounds * len(crowds.LAYOUTS), unit="measurements") as bar:
        spreads = spread.measure(directory, options.rounds, size, options.spread_messages, lambda: bar.update(1))
    with ProgressBar("trees", total=options.rounds * len(crowds.LAYOUTS), unit="measurements") as bar:
        found = crowds.measure(
            directory, options.rounds, size, options.tree_seconds, options.tree_rate, lambda: bar.update(1)
        )
    print(f"\n{size.subscribers:,} subscribers at {size.relays} relays, and at one backbone alone.")
    missing = sum(each.calm.missing for rounds in found.values() for each in rounds)
    print(f"{missing:,} deliveries were lost at {options.tree_rate:g} messages/s.")
    return {"relay-tree": tables.tree_rows(found, spreads)}, {"trees": found, "spreads": spreads}


def measure_simulated(options: argparse.Namespace, directory: Path) -> Measured:
    """Measure a simulated tree."""
    fan_out = tuple(int(count) for count in options.fan_out.split("x"))
    figures = in_child(
        *(simulated.measure, fan_out, options.simulated_messages, options.simulated_size, options.loss / 100),
        patience=SIMULATION_PATIENCE,
    )
    print(f"\nSimulated tree of {options.fan_out} with {options.loss:g} % loss on each link.")
    rows = tables.simulated_rows(figures, options.simulated_messages)
    return {"relay-simulated": rows}, {"simulated": figures}


MEASURES: dict[str, Callable[[argparse.Namespace, Path], Measured]] = {
    COST: measure_cost,
    LEVELS: measure_levels,
    TREE: measure_tree,
    SIMULATED: measure_simulated,
}


def show(rows: Rows) -> None:
    """Print a table."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    width = max(map(len, rows)) + 2
    last = f"{'ratio':>8}" if len(columns) == 2 else ""
    print(f"{'':<{width}}" + "".join(f"{column:>{max(len(column) + 2, 14)}}" for column in columns) + last)
    for name, cells in rows.items():
        text = "".join(f"{shown(cells.get(column)):>{max(len(column) + 2, 14)}}" for column in columns)
        print(f"{name:<{width}}{text}{ratio(cells):>8}".rstrip())


def shown(value: float | None) -> str:
    """Return a figure."""
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:,.3g}"


def ratio(cells: Mapping[str, float | None]) -> str:
    """Return the ratio of the first of two figures to the second."""
    ours, theirs = ([*cells.values(), None] if len(cells) == 2 else [None, None])[:2]
    return f"{ours / theirs:.2f}" if ours is not None and theirs else ""


def main() -> None:
    """Measure and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="part to run [all but simulated]")
    parser.add_argument("--rounds", type=int, default=3, help="[%(default)s]")
    parser.add_argument("--size", type=int, default=128, help="bytes of DATA [%(default)s]")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement of costs [%(default)g]")
    parser.add_argument("--rate", type=float, default=200.0, help="single messages/s for costs [%(default)g]")
    parser.add_argument("--messages", type=int, default=1_000, help="for each latency [%(default)s]")
    parser.add_argument("--pause", type=float, default=0.002, help="seconds between them [%(default)g]")
    parser.add_argument("--relays", type=int, default=10, help="of the tree [%(default)s]")
    parser.add_argument("--subscribers", type=int, default=1_000, help="of the tree in total [%(default)s]")
    parser.add_argument("--processes", type=int, default=2, help="with subscribers [%(default)s]")
    parser.add_argument("--tree-seconds", type=float, default=3.0, help="at each rate in the tree [%(default)g]")
    parser.add_argument("--tree-rate", type=float, default=5.0, help="messages/s for its CPU times [%(default)g]")
    parser.add_argument("--spread-messages", type=int, default=20, help="timed at raw sockets [%(default)s]")
    parser.add_argument("--fan-out", default="10x10x10x100", help="of the simulated tree, from the top [%(default)s]")
    parser.add_argument("--simulated-messages", type=int, default=20, help="[%(default)s]")
    parser.add_argument("--simulated-size", type=int, default=100, help="bytes of their DATA [%(default)s]")
    parser.add_argument("--loss", type=float, default=1.0, help="%% of packets, on each simulated link [%(default)g]")
    add_option(parser, "relay")
    options = parser.parse_args()
    chosen = options.only or [COST, LEVELS, TREE]
    found: dict[str, Rows] = {}
    kept: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        for part in (part for part in PARTS if part in chosen):
            rows, more = MEASURES[part](options, Path(directory))
            for table in rows.values():
                show(table)
            if part == SIMULATED:
                path = options.json.with_stem(f"{options.json.stem}_simulated")
                write(path, rows, f"one run of {options.fan_out}", options=given(options), **more)
            else:
                found |= rows
                kept |= more
    if found:
        how = f"medians of {options.rounds} round{'s' if options.rounds > 1 else ''}"
        write(options.json, found, how, options=given(options), **kept)


if __name__ == "__main__":
    main()
