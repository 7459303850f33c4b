"""Progress bars on a terminal, and no output elsewhere."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from fyrehose_twisted.process.progress import ProgressBar

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from fyrehose_twisted.process.progress import ProgressBar
for _ in ProgressBar(range(50), desc="outer", unit=" steps"):
    for _ in ProgressBar(range(20), desc="inner", leave=False, mininterval=0):
        pass
    ProgressBar.write("said meanwhile", file=sys.stdout)
"""

INTERRUPTED = """
import sys
from fyrehose_twisted.process.progress import ProgressBar

def interrupted(at):
    lines = iter(range(at))

    def trace(frame, event, _):
        if event == "line" and next(lines, None) is None:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        bar = ProgressBar(total=3, leave=False)
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    bar.close()
    return False

ProgressBar(total=3, leave=False).close()  # What only the first one imports is not interrupted.
at = 0
while interrupted(at):
    at += 1
print(at)
"""


def test_progress_is_not_written_to_a_pipe() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, timeout=60, check=True)
    assert ran.stderr == b""
    assert ran.stdout == b"said meanwhile\n" * 50


def test_progress_on_a_terminal_is_redrawn_in_place(shown_on_terminal: Any) -> None:
    status, _, seen = shown_on_terminal([sys.executable, "-c", PROGRAM])
    assert status == 0
    assert seen.count("\r") > 50
    assert re.search(r"outer: 100%\|.+\| 50/50 ", seen)
    assert "inner: " in seen


def test_progress_works_with_a_closed_standard_error() -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, PROGRAM],
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert ran.stdout == b"said meanwhile\n" * 50


def test_progress_writes_nothing_to_a_file() -> None:
    file = io.StringIO()
    with ProgressBar(total=60, desc="work", mininterval=0, bar_format="{desc}: {n_fmt} are done", file=file) as bar:
        for _ in range(60):
            bar.update()
            bar.set_postfix_str("something")
    assert file.getvalue() == ""


def test_a_signal_may_arrive_while_a_progress_bar_is_created() -> None:
    ran = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=60, check=True)
    assert int(ran.stdout) > 50
    assert ran.stderr == ""


def test_only_the_progress_module_creates_progress_bars() -> None:
    files = [file for folder in ("src", "examples", "benchmarks", "fuzz") for file in (ROOT / folder).rglob("*.py")]
    bars = {str(file.relative_to(ROOT)) for file in files if re.search(r"import tqdm|tqdm\(", file.read_text())}
    assert bars == {"src/fyrehose_twisted/process/progress.py"}
    sessions = {
        file.name
        for file in files
        if "SparkSession.builder" in (text := file.read_text()) and "showConsole" not in text
    }
    assert not sessions, "Spark shows progress of its own, with carriage returns, unless showConsoleProgress is false"
