"""Replicated counter example."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
from integration.running.cluster import RunningCluster, StartCluster
from integration.running.programs import Start

EXAMPLES = Path(__file__).parents[2] / "examples"
STATE = "--state-class", "counter.Counter"


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nodes import the example."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES), prepend=":")


def state(cluster: RunningCluster, name: str) -> tuple[int, bytes]:
    return cluster[name].ask("/state?linearizable=1")


@pytest.mark.extended
@pytest.mark.usefixtures("counting")
def test_counter_survives_its_nodes_and_reaches_new_ones(
    make_nodes: StartCluster, start: Start, tmp_path: Path
) -> None:
    cluster: Any = make_nodes("east", "west", "north", options=lambda node: [*STATE])
    for node in cluster.values():
        node.start()
    cluster.wait_to_work()
    for event in (b"5", b"7", b"no number", b"1e3", b"9" * 19, b"-2"):
        last = cluster["east"].publish(event)
    for name in cluster:
        assert state(cluster, name) == (200, b"10")

    # A node that is killed has the state again, without its own files; `--join-events 0` leaves it no events to count.
    cluster["west"].program.signal(signal.SIGKILL).finish()
    assert cluster["east"].publish(b"100") == last + 1
    cluster["west"].start()
    cluster.wait_to_work()
    assert state(cluster, "west") == (200, b"110")

    # Of two changes that expect the same last event, one counts.
    answers = [cluster["north"].ask(f"/events?expect={last + 1}", b"1000")[0] for _ in range(2)]
    assert answers == [201, 409]
    program = start("fyrehose", "parcels", "state", "--linearizable", "--http", cluster["west"].url)
    assert program.finish() == 0
    assert program.out == "1110"
    saved = tmp_path / "saved"
    program = start("fyrehose", "parcels", "state", "--http", cluster["west"].url, "--output", saved)
    assert program.finish() == 0
    assert saved.read_bytes() == b"1110"


def test_node_refuses_what_is_no_state(start: Start) -> None:
    program = start("twistd", "-n", "parcels-node", "--name=east", "--state-class=collections.Counter")
    assert program.finish() == 1
    assert "--state-class collections.Counter is not a subclass of fyrehose_twisted.parcels.replicated_state" in (
        program.out + program.err
    )
