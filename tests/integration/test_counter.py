"""Replicated counter example."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
from integration.running.cluster import StartCluster
from integration.running.programs import AwaitTrue, Start

EXAMPLE = Path(__file__).parents[2] / "examples" / "counter.py"
DEADLINE = 120.0


@pytest.mark.extended
def test_replicas_of_the_counter_example_agree(
    start: Start, start_cluster: StartCluster, await_true: AwaitTrue, tmp_path: Path
) -> None:
    cluster = start_cluster("east", "west", "north")
    nodes = [word for node in cluster.values() for word in ("--node", f"http://127.0.0.1:{node.http_port}")]

    def counter(*words: object) -> Any:
        return start(sys.executable, EXAMPLE, *words, *nodes, of_ours=False)

    def change(*words: object) -> int:
        program = counter(*words)
        assert program.finish() == 0
        return int(program.out)

    def snapshots() -> list[Any]:
        """Return the snapshots of the replicas; they print a change before they store it."""
        paths = [tmp_path / name for name in ("first", "second", "late")]
        return [json.loads(path.read_text()) if path.exists() else None for path in paths]

    def replica(name: str) -> Any:
        return counter("replica", "--snapshot", tmp_path / name)

    first, second = replica("first"), replica("second")
    for program in (first, second):
        program.wait_for("event 0: 0\n")
    assert change("add", 5) == 1
    seven = last = change("add", 7, "--key", "seven")
    for program in (first, second):
        program.wait_for(f"event {last}: 12\n")

    # Other events of the cluster are no changes, even if malformed.
    for data in (b"no json", b"\xff", b"[" * 5_000, b'{"add": %s}' % (b"9" * 4_300), b'{"add": 1%s}' % (b" " * 200)):
        request = Request(f"http://127.0.0.1:{cluster['east'].http_port}/events", data=data)
        with urlopen(request, timeout=DEADLINE) as response:
            assert response.status in (200, 201)
    assert change("add", 1, "--key", "one") == last + 6
    assert change("add", -1) == last + 7
    for program in (first, second):
        program.wait_for(f"event {last + 6}: 13\nevent {last + 7}: 12\n")
    assert change("add", 1, "--key", "one") == last + 6
    last += 7

    # A killed replica receives the changes later. A repeated change counts once.
    second.signal(signal.SIGKILL).finish()
    assert change("add", 7, "--key", "seven") == seven
    assert change("add", -2) == last + 1
    second = replica("second")
    second.wait_for(rf"event {last}: 12\nevent {last + 1}: 10\n")

    # Of two conflicting sets based on the same state, one takes effect.
    change("set", 100, "--if-at", last + 1)
    change("set", 200, "--if-at", last + 1)
    change("add", 1)
    late = replica("late")
    for program in (first, second, late):
        program.wait_for(rf"event {last + 4}: 101\n")
    expected = {"count": 101, "sequence": last + 4, "changed_at": last + 4}
    await_true(lambda: snapshots() == [expected] * 3, snapshots)


def test_counter_example_refuses_an_oversize_change(start: Start) -> None:
    program = start(sys.executable, EXAMPLE, "add", "9" * 200, of_ours=False)
    assert program.finish() == 1
    assert program.err == "counter: the change has 209 bytes; the limit is 200\n"


@pytest.mark.extended
@pytest.mark.parametrize(
    "state", ["", "no json", "[]", "7", '{"count": 1, "what": 2}', '{"count": 1.5}', '{"count": true}', "[" * 100_000]
)
def test_counter_example_refuses_an_invalid_snapshot(start: Start, tmp_path: Path, state: str) -> None:
    snapshot = tmp_path / "snapshot"
    snapshot.write_text(state)
    program = start(sys.executable, EXAMPLE, "replica", "--snapshot", snapshot, of_ours=False)
    assert program.finish() == 1
    assert program.outputs[2].startswith(b"counter: %s is not a snapshot of a counter: " % bytes(snapshot))
    assert b"Traceback" not in program.outputs[2]
