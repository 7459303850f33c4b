"""Examples about links and locations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

EXAMPLES = Path(__file__).parents[2] / "examples"


def table(name: str, *options: str) -> list[list[str]]:
    command = [sys.executable, str(EXAMPLES / name), *options]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return [line.split() for line in ran.stdout.splitlines()[1:]]


def test_small_world_links_route_and_random_ones_do_not() -> None:
    rows = table("topology_study.py", "200", "--rounds", "60", "--replicas", "2")
    assert [row[:2] for row in rows] == [["200", name] for name in ("density", "random", "small-world")]
    routed = {row[1]: float(row[9].partition("±")[0]) for row in rows}
    hops = {row[1]: float(row[10].partition("±")[0]) for row in rows}
    assert routed["random"] < 0.6 < 0.95 < routed["small-world"]
    assert hops["small-world"] < hops["density"]
    assert all("±" in cell for cell in rows[2][2:])


def test_a_few_attackers_gather_the_locations_of_nodes_that_swap() -> None:
    rows = table("swapping_attack.py", "--nodes", "300", "--rounds", "60", "--attackers", "0", "3")
    honest, attacked = ([float(cell.rstrip("%")) for cell in row] for row in rows)
    assert honest[1] < 8 < 40 < attacked[1]
    assert honest[2] < attacked[2]
    (defended,) = table("swapping_attack.py", "--nodes", "300", "--rounds", "60", "--attackers", "3", "--reset", "0.05")
    assert float(defended[1].rstrip("%")) < attacked[1] / 2
