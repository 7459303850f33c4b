"""Detection of resources leaked by tests."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LEAKING = """
import io, os, signal, socket, subprocess, sys, threading
from pathlib import Path
import pytest
from fyrehose_twisted.process.progress import ProgressBar
from twisted.internet.defer import fail

KEPT, STOP = [], threading.Event()

def test_descriptor():
    KEPT.append(open(os.devnull))

def test_socket_that_nothing_refers_to():
    cycle = [socket.create_server(("127.0.0.1", 0))]
    cycle.append(cycle)

def test_thread():
    threading.Thread(target=STOP.wait, name="waiting", daemon=True).start()

def test_process():
    KEPT.append(subprocess.Popen(["sleep", "60"]))

def test_process_that_has_ended():
    KEPT.append(subprocess.Popen(["true"]))
    os.waitid(os.P_PID, KEPT[-1].pid, os.WEXITED | os.WNOWAIT)

def test_process_of_a_process():
    shell = 'sleep 61 </dev/null >/dev/null 2>&1 & echo $!'
    KEPT.append(int(subprocess.run(["sh", "-c", shell], stdout=subprocess.PIPE, text=True).stdout))

@pytest.fixture(scope="module")
def opened():
    with open(os.devnull) as file:
        yield file

def test_fixture_of_a_module(opened):
    assert opened

def test_what_ends_in_a_moment():
    thread = threading.Thread(target=lambda: threading.Event().wait(0.05))
    thread.start()

def test_signal():
    signal.signal(signal.SIGUSR1, lambda number, frame: None)

def test_failure_that_nobody_handles():
    cycle = [fail(ValueError("nobody minds"))]
    cycle.append(cycle)

def test_bar_that_nothing_refers_to():
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    cycle = [ProgressBar(desc="unclosed work", file=terminal)]
    cycle.append(cycle)

def test_end():
    assert len(KEPT) == 4
    KEPT[1].kill()
    KEPT[1].wait()
    KEPT[2].wait()
"""


def test_a_test_that_leaks_resources_fails(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE))
    # Installed plugins may change the order of the tests, which depend on one another.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest("def pytest_configure():\n    import suite.leaks\n    suite.leaks.PATIENCE = 0.5")
    pytester.makepyfile(test_leaking=LEAKING)
    plugins = ("-p", "pytest_twisted", "-p", "suite.leaks")
    ran = pytester.runpytest_subprocess(*plugins, "-W", "error", "-rE", "--import-mode=importlib")
    said = ran.stdout.str()
    named = set(re.findall(r"ERROR at teardown of (\w+)", said))
    assert named == {
        "test_descriptor",
        "test_socket_that_nothing_refers_to",
        "test_thread",
        "test_process",
        "test_process_that_has_ended",
        "test_signal",
        "test_failure_that_nobody_handles",
        "test_bar_that_nothing_refers_to",
        "test_end",
    }, said
    ran.assert_outcomes(passed=12, errors=9)
    assert re.search(r"garbage unclosed <socket", said)
    assert re.search(r"unhandled error in a Deferred: nobody minds\n", said)
    assert re.search(r"open progress bar unclosed work\n", said)
    assert re.search(r"test_process: sleep 60\n", said)
    orphan = re.search(r"process (\d+) of [^\n]*::test_process_of_a_process: sleep 61\n", said)
    assert orphan
    os.kill(int(orphan[1]), signal.SIGKILL)
    assert re.search(r"thread \d+: waiting\n", said)
    assert re.search(r"descriptor \d+: /dev/null\n", said)
