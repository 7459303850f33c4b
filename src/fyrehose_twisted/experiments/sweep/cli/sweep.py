"""``fyrehose-experiments sweep``: simulate the networks of a grid."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.sweep.cost import WAVE_SECONDS, estimate
from fyrehose_twisted.experiments.sweep.grid import Grid, read_grid
from fyrehose_twisted.spark.session import add_session_options, require_spark, spark_session
from fyrehose_twisted.wording import pluralize

DESCRIPTION = (
    "Simulate all networks that a file describes, on Spark. A repeated call with the same directory resumes the sweep."
    " Exit status: 0 for success, 1 if networks failed or broke an invariant (see their rows), 3 if the sweep could not"
    " run."
)
EXIT_FAILED = 1


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Add the command to ``commands``, the result of :meth:`argparse.ArgumentParser.add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "sweep", help="Simulate the networks of a grid.", description=DESCRIPTION
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="grid in TOML")
    parser.add_argument("--out", type=Path, metavar="DIR", help="output directory [the name of FILE without .toml]")
    parser.add_argument(
        "--workers", type=_parse_count, metavar="N", help="number of cores of this machine to use [all]"
    )
    parser.add_argument(
        "--wave",
        type=_parse_seconds,
        default=WAVE_SECONDS,
        metavar="SECONDS",
        help="approximate time between writes, which bounds the loss if the sweep is killed [%(default)g]",
    )
    parser.add_argument("--retry", action="store_true", help="simulate failed networks again")
    parser.add_argument("--dry-run", action="store_true", help="show the work to do, and exit")
    add_session_options(parser)
    # No default, so that a given --master can be detected.
    parser.set_defaults(run=run, master=None)
    return parser


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status.

    :raises ConfigurationError: if the grid is invalid, or the directory belongs to something else.
    :raises OperationalError: if the directory cannot be used.
    """
    from fyrehose_twisted.experiments.sweep.results import SweepResults
    from fyrehose_twisted.experiments.sweep.sweep import count_networks, software_versions, sweep, unfinished_cells

    if options.workers and options.master:
        raise ConfigurationError("--workers applies to this machine only; remove it, or remove --master")
    grid = read_grid(options.file)
    if options.dry_run:
        print("\n".join(_describe(grid, options.workers)))
        return 0
    require_spark()  # Before anything is written.
    options.master = options.master or f"local[{options.workers or '*'}]"
    out: Path = options.out or options.file.with_suffix("")
    if out.exists() and not out.is_dir():
        raise ConfigurationError(f"{out} is not a directory; give one with --out")
    results = SweepResults(out)
    with results.open_for_writing(grid, software_versions()) as warnings:
        for line in warnings:
            print(f"fyrehose-experiments: {line}", file=sys.stderr)
        retried = results.drop_errors() if options.retry else 0
        cells = unfinished_cells(grid, results)
        began = time.monotonic()
        if cells:
            with spark_session("fyrehose sweep", options) as spark, _interruptible():
                began = time.monotonic()
                sweep(spark, cells, results, quiet=options.quiet, wave_seconds=options.wave)
        seconds = time.monotonic() - began
        counts = count_networks(results)
    rate = f", {len(cells) / seconds:,.3g} a second" if cells else ""
    print(
        f"{pluralize(counts.networks, 'network')}: {counts.networks - len(cells):,} were there,"
        f" {len(cells):,} simulated in {seconds:,.1f} s{f' ({retried:,} of them again)' if retried else ''}{rate};"
        f" {counts.failed:,} failed, {counts.violated:,} broke an invariant. Table: {results.table}"
    )
    return EXIT_FAILED if counts.failed or counts.violated else 0


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGINT raise KeyboardInterrupt, as it does without Spark.

    Spark's handler first asks Java to cancel its jobs over a connection in use, and raises the resulting error.
    """

    def interrupt(number: int, frame: object) -> NoReturn:
        # Py4J would log a traceback for each interrupted call.
        logging.disable()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _describe(grid: Grid, workers: int | None) -> list[str]:
    """Return a description of the work of a sweep, as lines."""
    lines = []
    for part in grid.parts:
        lines.append(f"grid {part.name}" if part.name else "grid")
        width = max(map(len, part.axes), default=0)
        lines += [f"  {name:<{width}}  {', '.join(map(_format_value, values))}" for name, values in part.axes.items()]
        lines.append(f"  {pluralize(len(part.combinations), 'cell')} of {pluralize(grid.replicas, 'replica')}")
    total = sum(map(estimate, grid.cells()))
    cores = workers or os.cpu_count() or 1
    lines.append(
        f"{pluralize(len(grid), 'network')}, about {_format_duration(total)} on one core, "
        f"{_format_duration(total / cores)} on {cores};"
        f" seed {grid.seed}"
    )
    return lines


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _format_duration(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size * 2:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:,.1f} s"


def _parse_count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 0 < int(text) < 2**31):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return seconds
