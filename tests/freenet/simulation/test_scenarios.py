from __future__ import annotations

from collections.abc import Sequence

import pytest
from suite.scenarios import check_names, check_random_seeds, has_enough_activity
from suite.seeds import seeds

from fyrehose_twisted.freenet.simulation.scenarios import SCENARIOS, Calm, Crowd, Storm
from fyrehose_twisted.sim.pytest_plugin import Simulate
from fyrehose_twisted.sim.scenario import Scenario

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_all_invariants_hold_in_every_scenario(scenario: type[Scenario], simulate: Simulate) -> None:
    (outcome,) = simulate(scenario, seeds=[1])  # Fresh ones are for the soak.
    for what in ("packets published", "packets delivered"):
        assert outcome.counters[what] > 0, outcome


@seeds([4], more=range(5))
def test_a_storm_has_enough_faults_and_operations(simulate: Simulate, seeds: Sequence[int]) -> None:
    outcomes = simulate(Storm, seeds=seeds)
    assert all(has_enough_activity(outcome, seconds=300, faults=5, operations=100) for outcome in outcomes), outcomes
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
    check_names(SCENARIOS, "freenet")


@pytest.mark.soak
def test_scenarios_hold_for_random_seeds() -> None:
    check_random_seeds(SCENARIOS)
