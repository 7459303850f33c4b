from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from suite.seeds import seeds

from fyrehose_twisted.hydra.simulation.scenarios import SCENARIOS, Calm, Carriers, Storm
from fyrehose_twisted.sim.pytest_plugin import Simulate
from fyrehose_twisted.sim.runs.runner import soak
from fyrehose_twisted.sim.scenario import RunOutcome, Scenario

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_all_invariants_hold_in_every_scenario(scenario: type[Scenario], simulate: Simulate) -> None:
    (outcome,) = simulate(scenario, seeds=[1])  # New seeds are left to the soak test.
    for what in ("lines received", "lines said"):
        assert outcome.counters[what] > 0, outcome


def worth_its_seed(outcome: RunOutcome) -> bool:
    return outcome.simulated_seconds >= 600 and outcome.faults >= 10 and outcome.operations >= 500


@seeds([9], more=range(10))
def test_storm_has_enough_faults_and_operations(simulate: Simulate, seeds: Sequence[int]) -> None:
    outcomes = simulate(Storm, seeds=seeds)
    assert all(map(worth_its_seed, outcomes)), outcomes
    for what in ("elected", "leases lost", "lines missed", "inducted", "dropped: reset"):
        assert sum(outcome.counters[what] for outcome in outcomes) > 0, what


@seeds([0], more=range(5))
def test_every_node_receives_every_line_without_faults(simulate: Simulate, seeds: Sequence[int]) -> None:
    class Trio(Calm):
        name = "hydra.trio"
        sizes = (3,)

    for outcome in simulate(Trio, seeds=seeds):
        counts = outcome.counters
        assert counts["lines missed"] == counts["elected"] == counts["leases lost"] == counts["disagreements"] == 0
        assert counts["lines received"] >= 2 * (counts["lines heard by a leader"] + counts["lines said"]) > 100


@seeds([0], more=range(2))
def test_scenarios_run_with_encoded_messages(simulate: Simulate, seeds: Sequence[int]) -> None:
    class Bytes(Carriers):
        name = "hydra.bytes"
        bytes_travel = 1.0

    simulate(Bytes, seeds=seeds)


def test_scenario_names_begin_with_hydra_and_are_unique() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("hydra.") for name in names)


@pytest.mark.soak
def test_scenarios_hold_for_random_seeds() -> None:
    summaries = soak(SCENARIOS, float(os.environ.get("SOAK_SECONDS", "60")))
    for name, summary in summaries.items():
        print(
            f"{name}: {summary.count:,} seeds, {summary.simulated_seconds / 3600:,.1f} hours simulated,"
            f" {summary.operations:,} operations, {summary.faults:,} faults"
        )
    failures = [outcome for summary in summaries.values() for outcome in summary.failures]
    assert not failures, "\n".join(
        f"fyrehose simulate {outcome.scenario} --seed {outcome.seed}\n  {outcome.violation}" for outcome in failures
    )
