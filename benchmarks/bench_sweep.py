"""Overhead of Spark in a sweep: the same networks in a plain loop, with multiprocessing, and on Spark.

All variants are measured in one run, in turn, and compute the same rows, which is checked. Sessions and pools are
started and warmed up before the clock starts. Seconds depend on the machine; compare the ratios of one run. Medians
over rounds. ``efficiency`` is the seconds with one worker, divided by those with several and by their number;
``overhead`` is the time of a network beyond that of the plain loop, on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

from results import add_option, write

from fyrehose_twisted.experiments.sweep.grid import Cell, Grid, make_grid
from fyrehose_twisted.experiments.sweep.network import run_network
from fyrehose_twisted.experiments.sweep.rows import DURATION_COLUMNS, simulate_row
from fyrehose_twisted.process.progress import ProgressBar

SIZES = {
    "small": {"n": 200, "keys": 2, "subscribers": 20, "replicas": 200},
    "medium": {"n": 1_000, "keys": 10, "subscribers": 50, "replicas": 40},
}
QUICK = {"small": {"n": 100, "keys": 1, "subscribers": 10, "replicas": 20}}
LOOP, PROCESSES, SPARK = "plain loop", "multiprocessing", "Spark"


def row(cell: Cell) -> dict[str, Any]:
    """Simulate one network."""
    return simulate_row(cell, run_network)


def digest(rows: list[dict[str, Any]]) -> str:
    """Return a digest of rows regardless of order, without their durations."""
    bare = [{name: value for name, value in one.items() if name not in DURATION_COLUMNS} for one in rows]
    return sha256(json.dumps(sorted(bare, key=lambda one: (one["cell"], one["replica"]))).encode()).hexdigest()


def in_a_loop(cells: list[Cell], workers: int, rounds: int) -> list[Any]:
    """Return the seconds of each round, and the digest of the rows."""
    row(cells[0])
    return [timed(lambda: list(map(row, cells))) for _ in range(rounds)]


def in_processes(cells: list[Cell], workers: int, rounds: int) -> list[Any]:
    """Run the same in processes, which get about four times as many parts as there are processes."""
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        list(pool.map(row, cells[: 4 * workers]))
        size = max(1, len(cells) // (4 * workers))
        return [timed(lambda: list(pool.map(row, cells, chunksize=size))) for _ in range(rounds)]


def on_spark(cells: list[Cell], workers: int, rounds: int) -> list[Any]:
    """Run the same as a sweep does, including its output files."""
    from fyrehose_twisted.experiments.sweep.results import SweepResults
    from fyrehose_twisted.experiments.sweep.sweep import sweep
    from fyrehose_twisted.spark.session import make_session

    spark = make_session("sweep", f"local[{workers}]", {"spark.driver.memory": "1g"})
    grid = make_grid({}, Path())
    try:
        with tempfile.TemporaryDirectory(prefix="bench-sweep-") as made:
            measured = []
            for number in range(rounds + 1):
                results = SweepResults(Path(made, str(number)))
                with results.open_for_writing(grid, {}):
                    some = cells if number else cells[: 4 * workers]
                    seconds, _ = timed(lambda one=results, some=some: sweep(spark, some, one, quiet=True))
                if number:
                    measured.append((seconds, results.read().to_pylist()))
            return measured
    finally:
        spark.stop()


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the duration of ``work`` and its result."""
    began = time.perf_counter()
    found = work()
    return time.perf_counter() - began, found


WAYS = {LOOP: in_a_loop, PROCESSES: in_processes, SPARK: on_spark}


def grid_of(said: dict[str, Any]) -> Grid:
    """Return the grid of one size."""
    return make_grid(said, Path())


def child(said: str) -> None:
    """Run the measurement that ``said`` names in this process, and print it."""
    way, size, workers, rounds = json.loads(said)
    cells = list(grid_of(size).cells())
    found = WAYS[way](cells, workers, rounds)
    print(
        json.dumps([[seconds, digest(rows), sum(one["error"] is not None for one in rows)] for seconds, rows in found])
    )


def measure(way: str, size: dict[str, Any], workers: int, rounds: int) -> list[Any]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--child", json.dumps([way, size, workers, rounds])]
    ran = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: list[Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Measure all variants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one short round of everything, to see that it runs")
    parser.add_argument("--rounds", type=int, default=5, help="[%(default)s]")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="the most to measure [%(default)s]")
    add_option(parser, "sweep")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child)
        return
    sizes, rounds = (QUICK, 1) if options.quick else (SIZES, options.rounds)
    beside = [(way, workers) for workers in sorted({1, options.workers}) for way in (PROCESSES, SPARK)]
    ways = [(LOOP, 1), *beside]
    print(f"{os.cpu_count()} cores, medians of {rounds} rounds.")
    rows: dict[str, dict[str, float]] = {}
    for name, size in sizes.items():
        seconds: dict[tuple[str, int], list[float]] = defaultdict(list)
        outcomes = set()
        turns = [one for _ in range(rounds) for one in ways]
        for way, workers in ProgressBar(turns, unit=" measurements", desc=name, leave=False):
            for took, outcome, errors in measure(way, size, workers, 1):
                if errors:
                    sys.exit(f"{errors} networks failed; run fyrehose-experiments sweep with this grid to see why")
                seconds[way, workers].append(took)
                outcomes.add(outcome)
        if len(outcomes) != 1:
            sys.exit("the ways do not compute the same rows")
        show(name, size, seconds)
        count = len(grid_of(size))
        for workers in sorted({1, options.workers}):
            rates = {way: count / median(took) for (way, of), took in seconds.items() if of == workers or way == LOOP}
            rows[f"{name}, {workers} worker{'s' * (workers > 1)}"] = rates
    write(options.json, {"sweeps": rows}, f"medians of {rounds} rounds")


def show(name: str, size: dict[str, Any], seconds: dict[tuple[str, int], list[float]]) -> None:
    """Print a table."""
    count = len(grid_of(size))
    described = ", ".join(f"{key}={value}" for key, value in size.items())
    print(f"\n{name}: {count:,} networks, {described}")
    print(f"{'':<20}{'workers':>8}{'seconds':>10}{'networks/s':>12}{'efficiency':>12}{'overhead':>14}")
    loop = median(seconds[LOOP, 1])
    for (way, workers), took in seconds.items():
        middle = median(took)
        efficiency = f"{median(seconds[way, 1]) / middle / workers:.2f}"
        over = f"{(middle * workers - loop) / count * 1e3:,.1f} ms"
        print(f"{way:<20}{workers:>8}{middle:>10.2f}{count / middle:>12.1f}{efficiency:>12}{over:>14}")


if __name__ == "__main__":
    main()
