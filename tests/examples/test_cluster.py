"""Cluster example."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

pytestmark = pytest.mark.extended

EXAMPLE = Path(__file__).parents[2] / "examples" / "cluster.py"


def test_cluster_example_keeps_acknowledged_events_when_the_leader_is_killed() -> None:
    ran = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    first, second = re.findall(r"(\w+) is the leader", ran.stdout)
    assert first != second
    assert f"killed {first} with -9" in ran.stdout
    assert re.findall(r"s  (\w+) has 990 events, each under the number that was acknowledged", ran.stdout) == [
        "Ada",
        "Boole",
        "Curie",
    ]
    assert "\n990 events were acknowledged by three nodes" in ran.stdout


def test_cluster_example_reports_a_wrong_event() -> None:
    broken = (
        f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r});"
        "import cluster; from contextlib import ExitStack;"
        "from twisted.internet.defer import ensureDeferred;"
        "from twisted.internet.task import react;"
        "note = cluster.Cluster.note;"
        "cluster.Cluster.note = lambda self, number, event: note(self, number, event + b'!');"
        "stack = ExitStack().__enter__();"
        "run = lambda reactor: ensureDeferred(cluster.main(reactor, stack, False));"
        "exec('try:\\n react(run)\\nfinally:\\n stack.close()')"
    )
    ran = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "cluster: Ada does not have the acknowledged events" in ran.stderr


def test_cluster_example_serves_until_it_is_interrupted() -> None:
    command = [sys.executable, str(EXAMPLE), "--serve"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running,
        ExitStack() as stack,
    ):
        # Leaving Popen waits for the process, also when an assertion fails.
        stack.callback(running.kill)
        assert running.stdout is not None
        assert running.stderr is not None
        said = ""
        while "Ctrl-C ends it" not in said:
            line = running.stdout.readline()
            assert line, running.stderr.read()
            said += line
        found = re.search(r"curl -d 'hello' (http://\S+)", said)
        assert found is not None
        with urlopen(found[1], b"hello", timeout=30) as answer:
            assert json.load(answer)["sequence"] == 1
        directory = re.search(r"journals are in (\S+)\. ", said)
        assert directory is not None
        assert Path(directory[1], "Ada.log").exists()
        running.send_signal(signal.SIGINT)
        _, problems = running.communicate(timeout=60)
    assert problems == ""
    assert not Path(directory[1]).exists()
