from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pyarrow
import pytest

from fyrehose_twisted.experiments.sweep.grid import read_grid
from fyrehose_twisted.experiments.sweep.network import run_network
from fyrehose_twisted.experiments.sweep.results import SweepResults
from fyrehose_twisted.experiments.sweep.rows import DURATION_COLUMNS, simulate_row, to_arrow_batch

MAIN = "from fyrehose_twisted.experiments.sweep.cli.parser import main; main()"
DEADLINE = 120.0
GRID = """
replicas = 10
n = [60, 120]
keys = 2
subscribers = 10
degree = 6

[[grid]]
name = "trees"

[[grid]]
name = "repair"
kill = [0.1, 0.3]
accept = ["root", "own"]
"""

Sweep = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def sweep(tmp_path: Path) -> Sweep:
    """Return a function that starts a sweep: ``sweep(out, workers, *options)``."""
    path = tmp_path / "grid.toml"
    path.write_text(GRID)

    def begin(out: Path, workers: int, *options: str) -> subprocess.Popen[str]:
        arguments = ["sweep", str(path), "--out", str(out), "--workers", str(workers), "--quiet", *options]
        command = [sys.executable, "-c", MAIN, *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return begin


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=DEADLINE)
    assert (process.returncode, err) == (0, ""), out
    return out


@pytest.mark.soak(seconds=120)
def test_killed_sweep_resumes_with_results_independent_of_the_cores(sweep: Sweep, tmp_path: Path) -> None:
    out = tmp_path / "killed"
    process = sweep(out, 2, "--wave", "0.2")
    until = monotonic() + DEADLINE
    # The first wave is complete, others are not.
    while not list(out.glob("networks/wave=*")):
        assert process.poll() is None, process.communicate()
        assert monotonic() < until
        sleep(0.02)
    process.kill()
    process.communicate()
    before = {path: path.read_bytes() for path in out.glob("networks/wave=*/*.parquet")}
    there = len(SweepResults(out).finished_networks())
    assert 0 < there < 100
    said = finish(sweep(out, 1))
    assert said.startswith(f"100 networks: {there} were there, {100 - there} simulated in ")
    assert {path: path.read_bytes() for path in before} == before
    # Two cores ran a part of it, one core the rest, and a loop all of it.
    rows = [simulate_row(cell, run_network) for cell in read_grid(tmp_path / "grid.toml").cells()]
    looped = pyarrow.Table.from_batches([to_arrow_batch(rows)])
    assert looped.column("error").null_count == 100
    assert (
        SweepResults(out)
        .read()
        .drop_columns(list(DURATION_COLUMNS))
        .equals(looped.drop_columns(list(DURATION_COLUMNS)))
    )
