from __future__ import annotations

import re
import subprocess
import sys
from html import unescape
from pathlib import Path
from random import Random
from typing import Any

import pyarrow
import pytest
from integration.running.browser import OpenBrowser

from fyrehose_twisted.experiments.sweep.grid import Cell, make_grid
from fyrehose_twisted.experiments.sweep.results import SweepResults
from fyrehose_twisted.experiments.sweep.rows import simulate_row, to_arrow_batch

pytestmark = pytest.mark.extended

MAIN = "from fyrehose_twisted.experiments.sweep.cli.parser import main; main()"
NAME = "<script>alert(1)</script>"
GRID: dict[str, Any] = {
    "replicas": 10,
    "grid": [
        {"name": "trees", "topology": ["kleinberg", "random"], "n": [1_000, 3_000, 10_000]},
        {"name": NAME, "kill": [0.1, 0.3], "accept": ["root", "own"], "on_parent_lost": ["graft", "teardown"]},
    ],
}


def measure(cell: Cell) -> dict[str, Any]:
    rng, one = Random(f"{cell.number}/{cell.replica}"), cell.settings
    bad = (one.topology == "random") + (one.policy.accept == "own") * one.kill * 3
    return {
        "roots_per_key": 1 + rng.expovariate(3 / (0.1 + bad)),
        "reach": 1 - min(1.0, rng.expovariate(20 / (0.1 + bad))),
        "depth_mean": rng.gauss(5, 0.3) * (one.n / 1_000) ** 0.25,
        "stretch": 1 + rng.expovariate(1),
        **({"repair_requests": rng.gauss(8, 1), "repair_time_p50": rng.expovariate(1)} if one.kill else {}),
    }


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page written by the command."""
    root = tmp_path_factory.mktemp("sweep")
    grid, results = make_grid(GRID, root), SweepResults(root / "sweep")
    with results.open_for_writing(grid, {"numpy": "2"}):
        rows = [simulate_row(cell, measure) for cell in grid.cells()]
        results.add(pyarrow.Table.from_batches([to_arrow_batch(rows)]))
    out = root / "sweep.html"
    command = [sys.executable, "-c", MAIN, "report", str(results.directory), "-o", str(out)]
    ran = subprocess.run(command, capture_output=True, timeout=600, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, f"{out}\n"), ran.stderr
    return out


def test_sweep_page_draws_the_figures_of_its_table(open_browser: OpenBrowser, page: Path) -> None:
    shown = open_browser().show_figures(page.as_uri(), 1200, 900)
    dom = shown.run("document.documentElement.outerHTML")
    dom = re.sub(r"<(script|style)\b.*?</\1>", "", dom, flags=re.DOTALL)
    assert "alert(1)" not in re.sub(r"&lt;script&gt;alert\(1\)&lt;/script&gt;", "", dom)
    drawn = dict(re.findall(r'<figure class="card" id="([^"]+)">(.*?)</figure>', dom, re.DOTALL))
    metrics = ["roots_per_key", "reach", "depth_mean", "stretch"]
    repaired = [f"{name}-1" for name in (*metrics, "repair_time_p50", "repair_requests")]
    assert list(drawn) == [*(f"{name}-0" for name in metrics), *repaired]
    for name, svg in drawn.items():
        lines, values = (2, 3) if name.endswith("-0") else (4, 2)
        assert len(re.findall(r'class="point\b', svg)) == lines * values, name
        assert len(re.findall(r'class="js-fill" [^>]*d="M', svg)) == lines, name
        assert len(re.findall("<button", svg)) == lines, name
    text = re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]+>", " ", dom)))
    for said in (
        "140 networks in 2 grids",
        "None failed, and no invariant was broken.",
        "60 networks of 60. Lines go over n.",
        f"Grid {NAME}",
        "accept=own, on_parent_lost=teardown",
        "Share of the living subscribers that are in the largest tree of their key.",
        "Time to repair, median, in numbers",
    ):
        assert said in text, said


def test_sweep_page_has_two_colour_schemes_and_fits_a_phone(open_browser: OpenBrowser, page: Path) -> None:
    for name, width, height, dark in (
        ("light", 1200, 2600, False),
        ("dark", 1200, 2600, True),
        ("phone", 400, 3600, False),
    ):
        shown = open_browser().show_figures(page.as_uri(), width, height, dark=dark)
        assert shown.run("document.documentElement.scrollWidth") <= width
        png = shown.keep(f"sweep-{name}").read_bytes()
        assert (int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")) == (width, height)
        assert len(png) > 100_000
