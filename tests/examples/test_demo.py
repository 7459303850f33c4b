"""The demo does what it says, on a few of the flights."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_demo() -> None:
    command = [sys.executable, str(DEMO), "--flights", "3000", "--seed", "7", "--no-spark"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WRONG" not in ran.stdout
    assert re.search(r"delivered in order +3,000, 3,000, 3,000\n", ran.stdout)
    assert re.search(r"delivered in order +3,500, 3,500, 3,500\n", ran.stdout)
    assert re.search(r"numbers given twice +0\n", ran.stdout)
    assert "make demo: 3,500 flights were published" in ran.stdout


def test_it_says_when_something_is_wrong() -> None:
    broken = (
        "import sys; sys.argv = ['demo.py', '--flights', '300'];"
        f"sys.path.insert(0, {str(DEMO.parent)!r});"
        "import demo, argparse;"
        "from twisted.internet.defer import ensureDeferred;"
        "from twisted.internet.task import react;"
        "demo.Demo.note_published = lambda self, message: self.source.update(b'something else');"
        "options = argparse.Namespace(flights=300, loss=0.0, seed=1, no_spark=True);"
        "react(lambda reactor: ensureDeferred(demo.main(reactor, options)))"
    )
    ran = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert re.search(r"unlike the source +3  WRONG", ran.stdout)


@pytest.mark.soak(seconds=120)
def test_demo_with_spark(tmp_path: Path) -> None:
    command = [sys.executable, str(DEMO), "--flights", "3000", "--seed", "7", "--out", str(tmp_path / "out")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "WRONG" not in ran.stdout
    assert re.search(r"counted by Spark +3,500 flights of \d+ carriers", ran.stdout)
    assert (tmp_path / "out" / "report.html").stat().st_size > 1_000_000
