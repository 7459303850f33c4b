from __future__ import annotations

from collections.abc import Sequence

import pytest
from suite.scenarios import check_names, check_random_seeds, has_enough_activity
from suite.seeds import seeds

from fyrehose_twisted.hydra.simulation.scenarios import SCENARIOS, Calm, Carriers, Storm
from fyrehose_twisted.sim.pytest_plugin import Simulate
from fyrehose_twisted.sim.scenario import Scenario

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_all_invariants_hold_in_every_scenario(scenario: type[Scenario], simulate: Simulate) -> None:
    (outcome,) = simulate(scenario, seeds=[1])  # New seeds are left to the soak test.
    for what in ("lines received", "lines said"):
        assert outcome.counters[what] > 0, outcome


@seeds([9], more=range(10))
def test_storm_has_enough_faults_and_operations(simulate: Simulate, seeds: Sequence[int]) -> None:
    outcomes = simulate(Storm, seeds=seeds)
    assert all(has_enough_activity(outcome, faults=10) for outcome in outcomes), outcomes
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
    check_names(SCENARIOS, "hydra")


@pytest.mark.soak
def test_scenarios_hold_for_random_seeds() -> None:
    check_random_seeds(SCENARIOS)
