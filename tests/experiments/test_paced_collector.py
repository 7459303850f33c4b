"""Collection of cyclic garbage at the pace at which networks grow."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from fyrehose_twisted.experiments import Policy, Topology, TreeExperiment
from fyrehose_twisted.experiments.paced_collector import COLLECTOR, MIN_CREATED, PacedCollector

KEY = b"k" * 20
RUNS = 40


@pytest.fixture(autouse=True)
def looks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the collector look now whether objects are frozen, as these tests freeze and thaw them."""
    monkeypatch.setattr(COLLECTOR, "_runs", 0)


@pytest.fixture
def collections() -> Iterator[list[int]]:
    """Generations that the collector went through."""
    found: list[int] = []

    def called(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            found.append(info["generation"])

    gc.callbacks.append(called)
    yield found
    gc.callbacks.remove(called)


def run_often(experiment: TreeExperiment) -> None:
    """Simulate in many short runs, which create nodes."""
    for node in range(RUNS):
        experiment.subscribe(node, KEY)
        experiment.run()


def test_short_runs_do_not_go_through_all_nodes_again_and_again(collections: list[int]) -> None:
    gc.unfreeze()
    experiment = TreeExperiment(Topology.kleinberg(2_000, 10, 1), Policy(), seed=1)
    collections.clear()
    run_often(experiment)
    assert len(collections) < RUNS / 10


def test_what_the_application_froze_stays_frozen() -> None:
    experiment = TreeExperiment(Topology.kleinberg(200, 5, 1), Policy(), seed=1)
    gc.freeze()
    frozen = gc.get_freeze_count()
    try:
        run_often(experiment)
        assert gc.get_freeze_count() == pytest.approx(frozen, rel=0.1)  # Less what has been freed.
    finally:
        gc.unfreeze()


def test_unused_cycles_are_collected_once_they_have_doubled_the_objects() -> None:
    gc.unfreeze()
    gc.collect()
    collector, run = PacedCollector(), 20_000
    before = len(gc.get_objects())
    limit = max(MIN_CREATED, before) + run
    for _ in range(0, 3 * limit, run):
        with collector.paused():
            for _ in range(run):
                cycle: list[object] = []
                cycle.append(cycle)
        assert len(gc.get_objects()) < 1.1 * (before + limit)


def test_a_collector_that_was_off_stays_off() -> None:
    collector = PacedCollector()
    gc.disable()
    try:
        with collector.paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
    with collector.paused():
        assert not gc.isenabled()
    assert gc.isenabled()
