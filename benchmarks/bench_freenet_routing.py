"""Greedy routing on networks of Kleinberg's model: path lengths, their growth, and the cost of simulating them.

Table: routes between drawn nodes, on several networks of each kind, beside the reference figures; once on networks of
the library, with the stated number of links and P ~ 1/d, and once on networks drawn like the reference's.

Growth: mean hops with a lattice and 10 links a node, from a thousand nodes to a million, and the lines a + b log² n,
a + b log n and a + b √n through them.

Million: a million nodes, drawing links and tens of thousands of routes, in a process of its own for each: CPU seconds
and peak memory.

Swap: a network with shuffled locations, and how far swapping restores routing.

Beside: general graph libraries on the same links and for the same routes, and the generator of networkx.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
from freenet import rivals, tables
from freenet.reference import TABLE
from freenet.report import print_beside, print_growth, print_million, print_swap, print_table
from parcels.other_load import Busy, idle, share_of_others
from race.machine import describe
from results import DIRECTORY, write

from fyrehose_twisted.experiments import Topology
from fyrehose_twisted.experiments.measures.routing_stats import GreedyStudy, study
from fyrehose_twisted.process.progress import ProgressBar

PARTS = ("table", "growth", "million", "swap", "beside")
TOO_BUSY = 0.1
"""Cores used by other processes above which the figures are unreliable."""
SIZES = (1_000, 3_162, 10_000, 31_623, 100_000, 316_228, 1_000_000)


def measure_table(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the networks of the table."""
    rows: list[dict[str, Any]] = []
    with ProgressBar(total=4 * len(TABLE) * options.networks, unit=" networks") as progress:
        for reference in TABLE:
            for kind, draw in (("ours", "exact"), ("as the reference", "reference")):
                row: dict[str, Any] = {"kind": kind, "n": reference.n, "degree": reference.degree}
                for lattice in (True, False):
                    for seed in range(options.seed, options.seed + options.networks):
                        topology = Topology.kleinberg(reference.n, reference.degree, seed, lattice, draw=draw)
                        found = study(topology, 2_000, seed)
                        prefix = "" if lattice else "without, "
                        for name, value in _figures(found).items():
                            row.setdefault(prefix + name, []).append(value)
                        row.setdefault(prefix + "links a node", []).append(2 * topology.links / topology.n)
                        progress.update()
                rows.append(row)
    return rows


def _figures(found: GreedyStudy) -> dict[str, float]:
    within = {f"within {most}": figure.value for most, figure in found.within.items()}
    return {"success": found.success.value, "hops": found.hops.value, "p95": found.p95.value, **within}


def measure_growth(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure networks of growing size."""
    rows = []
    with ProgressBar([size for size in SIZES if size <= options.largest], unit=" sizes") as sizes:
        for n in sizes:
            found = [
                study(Topology.kleinberg(n, 10, seed, lattice=True), options.routes, seed)
                for seed in range(options.seed, options.seed + options.growth_networks)
            ]
            rows.append({"n": n, **{name: [_figures(one)[name] for one in found] for name in _figures(found[0])}})
    return rows


def one_large(n: int, degree: int, routes: int, seed: int) -> dict[str, float]:
    """Draw a large network and route on it, in this process; return the cost."""
    began = time.process_time()
    topology = Topology.kleinberg(n, degree, seed)
    made = time.process_time()
    found = study(topology, routes, seed)
    routed = time.process_time()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"drawing": made - began, "routing": routed - made, "memory": memory, **_figures(found)}


def measure_million(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure large networks in processes of their own."""
    rows = []
    for degree in (10, 20):
        for _ in range(options.rounds):
            job = f"{options.largest},{degree},{options.routes},{options.seed}"
            command = [sys.executable, __file__, "--one-large", job]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            rows.append({"n": options.largest, "degree": degree, "routes": options.routes, **json.loads(said)})
    return rows


def measure_swap(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Shuffle locations and swap them."""
    rows = []
    for n, degree in ((1_000, 10), (1_000, 20), (options.swap_nodes, 20)):
        drawn = Topology.kleinberg(n, degree, options.seed)
        dealt = np.random.Generator(np.random.PCG64(options.seed)).permutation(drawn.locations)
        lost = replace(drawn, locations=dealt)
        rows.append(
            {"n": n, "degree": degree, "rounds": "as drawn", "seconds": nan, **_figures(study(drawn, 4_000, 1))}
        )
        rows.append(
            {"n": n, "degree": degree, "rounds": "dealt anew", "seconds": nan, **_figures(study(lost, 4_000, 1))}
        )
        for rounds in options.swap_rounds:
            began = time.process_time()
            swapped = lost.swap(rounds, options.seed)
            seconds = time.process_time() - began
            rows.append(
                {"n": n, "degree": degree, "rounds": rounds, "seconds": seconds, **_figures(study(swapped, 4_000, 1))}
            )
    return rows


def measure_beside(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure other libraries on the same links and routes."""
    rows = []
    for n in options.beside_sizes:
        topology = Topology.kleinberg(n, 10, options.seed, lattice=True)
        ends = np.random.Generator(np.random.PCG64(options.seed)).integers(0, n, (2, options.beside_routes))
        ended: dict[str, Any] = {}
        for _ in range(options.rounds):
            for name, measured in rivals.available().items():
                timed = measured(topology, ends[0], ends[1])
                rate = options.beside_routes / timed.routing
                rows.append({"n": n, "name": name, "building": timed.building, "rate": rate})
                ended[name] = (timed.hops, timed.last)
        if any(found != ended["this library"] for found in ended.values()):
            raise SystemExit(f"with {n:,} nodes routes do not end where ours do")
    if "networkx" in "".join(rivals.available()):
        seconds, links = rivals.networkx_generator(2_000, options.seed)
        began = time.perf_counter()
        Topology.kleinberg(2_000, links, options.seed)
        ours = time.perf_counter() - began
        rows.append({"n": 2_000, "name": "generators", "networkx": seconds, "ours": ours})
    return rows


def parse() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few and small of everything, in about half a minute")
    parser.add_argument("--only", action="append", choices=PARTS, help="do this part; may be repeated [all]")
    parser.add_argument("--networks", type=int, help="of each kind in the table [20]")
    parser.add_argument("--growth-networks", type=int, help="of each size [3]")
    parser.add_argument("--routes", type=int, help="on each large network [50000]")
    parser.add_argument("--largest", type=int, help="nodes of the largest network [1000000]")
    parser.add_argument("--rounds", type=int, help="of what is timed [3]")
    parser.add_argument("--swap-nodes", type=int, help="of the largest network that is swapped [10000]")
    parser.add_argument("--swap-rounds", type=int, nargs="+", help="[30 300 1000]")
    parser.add_argument("--beside-sizes", type=int, nargs="+", help="nodes of networks for others [10000 100000]")
    parser.add_argument("--beside-routes", type=int, help="on each of these [20000]")
    parser.add_argument("--seed", type=int, default=1, help="[%(default)s]")
    parser.add_argument("--directory", type=Path, default=DIRECTORY, help="for results [%(default)s]")
    parser.add_argument("--one-large", help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name, (full, quick) in {
        "networks": (20, 4),
        "growth_networks": (3, 1),
        "routes": (50_000, 5_000),
        "largest": (1_000_000, 100_000),
        "rounds": (3, 1),
        "swap_nodes": (10_000, 2_000),
        "swap_rounds": ([30, 300, 1_000], [30]),
        "beside_sizes": ([10_000, 100_000], [10_000]),
        "beside_routes": (20_000, 2_000),
    }.items():
        if getattr(options, name) is None:
            setattr(options, name, quick if options.quick else full)
    return options


def main() -> None:
    """Measure, print, and write the results."""
    options = parse()
    if options.one_large:
        print(json.dumps(one_large(*map(int, options.one_large.split(",")))))
        return
    machine = {name: fact for name, fact in describe().items() if name in ("processor", "cores", "system", "Python")}
    machine["numpy"] = np.__version__
    before, since = idle(1.0), Busy.now()
    measures = (measure_table, measure_growth, measure_million, measure_swap, measure_beside)
    prints = (print_table, print_growth, print_million, print_swap, print_beside)
    found: dict[str, list[dict[str, Any]]] = {}
    took = {}
    for part, measure in zip(PARTS, measures, strict=True):
        if part in (options.only or PARTS):
            began = time.monotonic()
            found[part] = measure(options)
            took[part] = time.monotonic() - began
    busy, stolen = share_of_others(since)
    print()
    for name, fact in machine.items():
        print(f"{name}: {fact}")
    print("It took:", ", ".join(f"{part} {seconds:.0f} s" for part, seconds in took.items()))
    print(f"Before, other processes used {before:.2f} cores; meanwhile {busy:.2f}, and the host {stolen:.2f}.")
    if max(before, busy, stolen) > TOO_BUSY:
        print("WARNING: the machine is not idle, and rates are worth little.")
    print()
    well = [show(found[part]) for part, show in zip(PARTS, prints, strict=True) if part in found]
    told: dict[str, Any] = {}
    for part, make in zip(PARTS, (tables.routing, tables.lines, tables.million), strict=False):
        if part in found:
            told |= make(found[part])
    how = f"means of {options.networks} networks with 95 % confidence intervals"
    write(options.directory / "freenet_routing.json", told, how, machine, took=took, **found)
    if False in well:
        sys.exit(1)


if __name__ == "__main__":
    main()
