"""Checks shared by the scenario tests of all protocols."""

from __future__ import annotations

import os
from collections.abc import Sequence

from fyrehose_twisted.sim.runs.runner import soak
from fyrehose_twisted.sim.scenario import RunOutcome, Scenario


def check_names(scenarios: Sequence[type[Scenario]], protocol: str) -> None:
    """Fail unless the names of ``scenarios`` begin with the protocol's and are unique."""
    names = [scenario.name for scenario in scenarios]
    assert len(set(names)) == len(names)
    assert all(name.startswith(f"{protocol}.") for name in names)


def has_enough_activity(outcome: RunOutcome, *, seconds: float = 600, faults: int = 20, operations: int = 500) -> bool:
    """Tell whether a run was long and eventful enough to be worth its seed."""
    return outcome.simulated_seconds >= seconds and outcome.faults >= faults and outcome.operations >= operations


def check_random_seeds(scenarios: Sequence[type[Scenario]]) -> None:
    """Run fresh seeds of all scenarios for ``SOAK_SECONDS``; fail with the commands that replay violations."""
    summaries = soak(scenarios, float(os.environ.get("SOAK_SECONDS", "60")))
    for name, summary in summaries.items():
        print(
            f"{name}: {summary.count:,} seeds, {summary.simulated_seconds / 3600:,.1f} hours simulated,"
            f" {summary.operations:,} operations, {summary.faults:,} faults"
        )
    simulated = sum(summary.simulated_seconds for summary in summaries.values())
    elapsed = max(summary.real_seconds for summary in summaries.values())
    count = sum(summary.count for summary in summaries.values())
    print(f"{count:,} seeds, {simulated / elapsed:,.0f} simulated hours an hour")
    failures = [outcome for summary in summaries.values() for outcome in summary.failures]
    assert not failures, "\n".join(
        f"fyrehose simulate {outcome.scenario} --seed {outcome.seed}\n  {outcome.violation}" for outcome in failures
    )
