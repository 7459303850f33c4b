from __future__ import annotations

import pytest
from suite.scenarios import check_names, check_random_seeds, has_enough_activity

from fyrehose_twisted.parcels.simulation.scenarios import SCENARIOS, Amnesia, LaggingNodes, Storm, Strangers
from fyrehose_twisted.sim.pytest_plugin import Simulate
from fyrehose_twisted.sim.scenario import Scenario

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_all_invariants_hold_in_every_scenario(scenario: type[Scenario], simulate: Simulate) -> None:
    (outcome,) = simulate(scenario, seeds=[1])  # New seeds are left to the soak test.
    assert outcome.counters["events"] > 0, outcome
    assert outcome.counters["acknowledged"] > 0, outcome


def test_storm_has_enough_faults_and_operations(simulate: Simulate) -> None:
    (outcome,) = simulate(Storm, seeds=[5])
    assert has_enough_activity(outcome), outcome
    for what in ("acknowledged", "fetched", "states taken", "not taken"):
        assert outcome.counters[what] > 0, outcome.counters
    assert outcome.counters["terms"] > 3


def test_lagging_node_reports_skipped_events(simulate: Simulate) -> None:
    (outcome,) = simulate(LaggingNodes, seeds=[4])
    assert outcome.counters["skipped"] > 0
    assert outcome.counters["states taken"] > 3


def test_operator_reforms_the_cluster_after_amnesia(simulate: Simulate) -> None:
    (outcome,) = simulate(Amnesia, seeds=[2])
    assert outcome.counters["reformed"] == 1
    assert outcome.counters["acknowledged"] > 0


def test_scenarios_run_with_encoded_parcels(simulate: Simulate) -> None:
    class Bytes(Strangers):
        name = "parcels.bytes"
        bytes_travel = 1.0
        duration = 40.0

    simulate(Bytes, seeds=[1])


def test_scenario_names_begin_with_parcels_and_are_unique() -> None:
    check_names(SCENARIOS, "parcels")


@pytest.mark.soak
def test_scenarios_hold_for_random_seeds() -> None:
    check_random_seeds(SCENARIOS)
