"""Experiment example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

EXAMPLE = Path(__file__).parents[2] / "examples" / "tree_experiment.py"


def test_root_locations_keep_trees_in_fewer_parts(tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE), "--nodes", "300", "--runs", "3", "--page", "heal.html"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = re.findall(r"^location of its (\w+) +([\d.]+) +([\d.]+) % +[\d.]+$", ran.stdout, re.MULTILINE)
    assert [row[0] for row in rows] == ["root", "own"]
    (_, fewer, most), (_, more, least) = rows
    assert 1.0 <= float(fewer) < float(more)
    assert 100.0 >= float(most) > float(least)
    assert re.search(
        r"\nWith the root's location \+[\d.]+ % of the subscribers are in the largest tree; .*\n$", ran.stdout
    )
    assert (tmp_path / "heal.html").stat().st_size > 50_000
    assert (tmp_path / "heal.jsonl").exists()
