"""Example of backbones that take over from one another."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.extended

EXAMPLE = Path(__file__).parents[2] / "examples" / "takeover.py"


def test_takeover_example_loses_nothing_when_the_leader_is_killed_twice() -> None:
    ran = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    killed = re.findall(r"(\w+) leads and has numbered [\d,]+ messages; it is killed with -9", ran.stdout)
    successors = re.findall(r"(\w+) leads and numbers messages", ran.stdout)
    assert len(killed) == len(successors) == 2
    assert all(one != other for one, other in zip(killed, successors, strict=True))
    assert re.findall(r"(\w+) is back and stands by", ran.stdout) == killed
    found = re.search(r"\n([\d,]+) of ([\d,]+) messages were acknowledged", ran.stdout)
    assert found is not None
    assert found[1] == found[2]
    assert "Nothing was lost, no number was used twice" in ran.stdout


def test_takeover_example_reports_a_message_that_a_subscriber_does_not_have() -> None:
    broken = (
        f"import sys; sys.path.insert(0, {str(EXAMPLE.parent)!r});"
        "import takeover; from contextlib import ExitStack;"
        "from twisted.internet.defer import ensureDeferred;"
        "from twisted.internet.task import react;"
        "takeover.KILLS = 0;"
        "received = takeover.Subscriber.messages_received;"
        "alter = lambda self, messages: received(self, [one._replace(data=b'x') for one in messages]);"
        "takeover.Subscriber.messages_received = alter;"
        "stack = ExitStack().__enter__();"
        "run = lambda reactor: ensureDeferred(takeover.main(reactor, stack, 0.005));"
        "exec('try:\\n react(run)\\nfinally:\\n stack.close()')"
    )
    ran = subprocess.run([sys.executable, "-c", broken], capture_output=True, text=True, timeout=180, check=False)
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "takeover: subscriber 1 does not have the acknowledged messages" in ran.stderr
