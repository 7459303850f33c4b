"""What the runner of the suites says of its processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from suite.run import said_of_end


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", ["part 1: pytest ended with SIGKILL after 'tests/test_x.py ..'"]),
        ("raise SystemExit(4)", ["part 1: pytest ended with status 4 after 'tests/test_x.py ..'"]),
        ("raise SystemExit(1)", []),
        ("", []),
    ],
)
def test_a_part_that_reports_no_failures_says_how_it_ended(program: str, said: list[str]) -> None:
    ended = subprocess.run([sys.executable, "-S", "-c", program], check=False).returncode
    assert ended in (0, 1, 4, -signal.SIGKILL)
    assert said_of_end("part 1", ended, "tests/test_x.py ..") == said
