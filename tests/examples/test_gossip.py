"""Gossip example, with and without the bug that its docstring suggests."""

from __future__ import annotations

from pathlib import Path

import pytest

from fyrehose_twisted.sim.runs.runner import run_seeds
from fyrehose_twisted.sim.runs.scenario_ref import load
from fyrehose_twisted.sim.scenario import Scenario

GOSSIP = Path(__file__).parents[2] / "examples" / "gossip.py"


@pytest.fixture
def rumours() -> type[Scenario]:
    return load(f"{GOSSIP}:Rumours")


def test_gossip_example_spreads_rumours_despite_faults(rumours: type[Scenario]) -> None:
    summary = run_seeds(rumours, range(10), jobs=0)
    assert summary.failures == []
    assert (summary.operations, summary.faults) == (400, 200)


def test_gossip_example_loses_rumours_that_are_sent_once(
    rumours: type[Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(rumours.spread.__globals__, "EACH_ONCE", True)  # type: ignore[attr-defined]
    summary = run_seeds(rumours, range(10), jobs=0)
    assert {outcome.violation.invariant for outcome in summary.failures if outcome.violation} == {"everybody knows"}
