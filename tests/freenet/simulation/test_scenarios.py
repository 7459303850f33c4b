from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from suite.seeds import seeds

from fyrehose_twisted.freenet.simulation.scenarios import SCENARIOS, Calm, Crowd, Storm
from fyrehose_twisted.sim.pytest_plugin import Simulate
from fyrehose_twisted.sim.runs.runner import soak
from fyrehose_twisted.sim.scenario import RunOutcome, Scenario

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_all_invariants_hold_in_every_scenario(scenario: type[Scenario], simulate: Simulate) -> None:
    (outcome,) = simulate(scenario, seeds=[1])  # Fresh ones are for the soak.
    for what in ("packets published", "packets delivered"):
        assert outcome.counters[what] > 0, outcome


def worth_its_seed(outcome: RunOutcome) -> bool:
    return outcome.simulated_seconds >= 300 and outcome.faults >= 5 and outcome.operations >= 100


@seeds([4], more=range(5))
def test_a_storm_has_enough_faults_and_operations(simulate: Simulate, seeds: Sequence[int]) -> None:
    outcomes = simulate(Storm, seeds=seeds)
    assert all(map(worth_its_seed, outcomes)), outcomes
    for what in ("parents lost", "rooted", "volunteered", "packets missed", "not published"):
        assert sum(outcome.counters[what] for outcome in outcomes) > 0, what


@seeds([0], more=range(5))
def test_no_packets_are_missed_without_faults(simulate: Simulate, seeds: Sequence[int]) -> None:
    class Small(Calm):
        name = "freenet.small"
        sizes = (4,)

    for outcome in simulate(Small, seeds=seeds):
        counts = outcome.counters
        assert counts["parents lost"] == counts["cycles"] == counts["overloads"] == counts["not published"] == 0
        assert counts["packets delivered"] >= counts["packets published"] > 30


@seeds([0], more=range(2))
def test_scenarios_run_with_encoded_messages(simulate: Simulate, seeds: Sequence[int]) -> None:
    class Bytes(Crowd):
        name = "freenet.bytes"
        encoding_probability = 1.0

    simulate(Bytes, seeds=seeds)


@pytest.mark.parametrize("scenario", [Crowd, Storm], ids=lambda scenario: scenario.name)
def test_equal_seeds_have_equal_runs(scenario: type[Scenario]) -> None:
    first, second, other = (scenario(seed).run() for seed in (9, 9, 4))
    assert (first.counters, first.simulated_seconds) == (second.counters, second.simulated_seconds)
    assert (first.counters, first.simulated_seconds) != (other.counters, other.simulated_seconds)


def test_scenario_names_begin_with_freenet_and_are_unique() -> None:
    names = [scenario.name for scenario in SCENARIOS]
    assert len(set(names)) == len(names)
    assert all(name.startswith("freenet.") for name in names)


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
