"""Results of the benchmarks as JSON files, from which ``make bench-docs`` makes the tables and plots of the docs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from fyrehose_twisted import driver

Value = float | str | None
Tables = Mapping[str, Mapping[str, Mapping[str, Value]]]
"""Figures by name of the table, row and column; ``None`` is left out."""

HARDWARE = ("processor", "cores", "system", "Python")
COMPILED = not str(driver.__file__).endswith(".py")
DIRECTORY = Path("build/bench/compiled" if COMPILED else "build/bench")
"""Results of compiled nodes have a directory of their own, as each build runs all benchmarks."""


def add_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add ``--json``, the file for the results of the benchmark ``name``."""
    parser.add_argument("--json", type=Path, default=DIRECTORY / f"{name}.json", metavar="FILE", help="[%(default)s]")


def write(path: Path, tables: Tables, how: str, machine: Mapping[str, str] | None = None, **more: Any) -> None:
    """Write tables for the docs, and everything else that a benchmark keeps.

    :param how: the measurement in a few words, such as "medians of 3 rounds of 0.5 s".
    :param machine: machine and versions, as the benchmark describes them.
    """
    if machine is None:
        from race.machine import describe

        machine = {
            name: fact for name, fact in describe().items() if name in ("processor", "cores", "system", "Python")
        }
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = {name: {row: known(cells) for row, cells in rows.items()} for name, rows in tables.items()}
    path.write_text(
        json.dumps({"machine": machine, "how": how, "tables": kept, **more}, indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
    print(f"Everything that was measured is in {path}.")


def given(options: argparse.Namespace) -> dict[str, Any]:
    """Return options for a file of results, without paths."""
    return {name: value for name, value in vars(options).items() if not isinstance(value, Path)}


def known(cells: Mapping[str, Value]) -> dict[str, Value]:
    """Return the cells that have a value, with five digits."""
    return {
        column: float(f"{value:.5g}") if isinstance(value, int | float) else value
        for column, value in cells.items()
        if value is not None
    }


def medians(rounds: Sequence[Sequence[float]]) -> list[float]:
    """Return the median of each column."""
    return [median(column) for column in zip(*rounds, strict=True)]
