"""Pytest plugin for scenarios. Enable it in a test file or in the top-level conftest.py with
``pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]``.

PYTEST_DONT_REWRITE: avoids a warning when a test imports :class:`Simulate`; this module has no assertions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Protocol

import pytest

from fyrehose_twisted.sim.runs import runner
from fyrehose_twisted.sim.runs.scenario_ref import LOCAL
from fyrehose_twisted.sim.scenario import RunOutcome, Scenario

SEED_VARIABLE = "SIMULATE_SEED"


class Simulate(Protocol):
    """Type of the fixture :func:`simulate`."""

    def __call__(
        self, scenario: type[Scenario], *, seeds: Iterable[int], jobs: int = 0, split_seed: int = 0
    ) -> list[RunOutcome]:
        """Run ``scenario`` with each of ``seeds``; fail the test if an invariant breaks.

        :param jobs: number of worker processes; 0 to run in this process.
        :param split_seed: seed of batch boundaries.
        :param seeds: at least one seed; without seeds the test fails.
        :returns: outcomes in order of ``seeds``.
        """


@pytest.fixture
def simulate(request: pytest.FixtureRequest) -> Simulate:
    """Run a scenario with many seeds: ``simulate(Storm, seeds=range(25))``."""

    def simulated(
        scenario: type[Scenario], *, seeds: Iterable[int], jobs: int = 0, split_seed: int = 0
    ) -> list[RunOutcome]:
        taken: list[int] = []
        found: dict[int, RunOutcome] = {}

        def wanted() -> Iterator[int]:
            for seed in seeds:
                taken.append(seed)
                yield seed

        with closing(runner.run_each(scenario, wanted(), jobs=jobs, split_seed=split_seed)) as outcomes:
            for outcome in outcomes:
                if outcome.violation is not None:
                    pytest.fail(
                        _failure_text(outcome, _replay_text(scenario, outcome.seed, split_seed, request)), pytrace=False
                    )
                found[outcome.seed] = outcome
        if not taken:
            pytest.fail(f"no seeds to run {scenario.name} with, so nothing was tested", pytrace=False)
        return [found[seed] for seed in taken]

    return simulated


@pytest.fixture
def fresh_seed(request: pytest.FixtureRequest) -> int:
    """Return a new random seed, printed when it is drawn. ``SIMULATE_SEED=N`` sets it to ``N``."""
    given = os.environ.get(SEED_VARIABLE)
    if given and not given.isdecimal():
        pytest.fail(f"{SEED_VARIABLE} is {given!r}, which is not a whole number", pytrace=False)
    seed = int(given) if given else runner.random_seed()
    if not given:
        _print_now(request.config, f"fyrehose: seed {seed} for {request.node.name}")
    request.node.add_report_section("setup", "seed", f"{seed}; to have it again, set {SEED_VARIABLE}={seed}")
    return seed


def _print_now(config: pytest.Config, line: str) -> None:
    """Print a line at once, because the output of a test that hangs or is killed is lost."""
    plugins = config.pluginmanager
    capturing = plugins.getplugin("capturemanager")
    with nullcontext() if capturing is None else capturing.global_and_fixture_disabled():
        if plugins.getplugin("terminalreporter") is None:  # As in the workers of pytest-xdist.
            print(line, file=sys.stderr, flush=True)
            return
        terminal = config.get_terminal_writer()
        if terminal.width_of_current_line:
            terminal.line()
        terminal.line(line, flush=True)


def _failure_text(outcome: RunOutcome, replay: str) -> str:
    notes = "".join(getattr(outcome.violation, "__notes__", ()))
    return f"{notes}{outcome.scenario}, seed {outcome.seed}: {outcome.violation}\nReplay it: {replay}"


def _replay_text(scenario: type[Scenario], seed: int, split_seed: int, request: pytest.FixtureRequest) -> str:
    if LOCAL in scenario.__qualname__:
        return f"simulate({scenario.__name__}, seeds=[{seed}], split_seed={split_seed})"
    split = ("--split-seed", str(split_seed)) if split_seed else ()
    module = sys.modules[scenario.__module__]
    ours = scenario.__module__.partition(".")[0] == __name__.partition(".")[0]
    if ours and scenario in getattr(module, "SCENARIOS", ()):
        called = scenario.name
    elif module.__file__ == str(request.path):
        # By path, because a test file may not be importable by name.
        called = f"{os.path.relpath(request.path, request.config.invocation_params.dir)}:{scenario.__qualname__}"
    else:
        called = f"{scenario.__module__}:{scenario.__qualname__}"
    return runner.replay_command(called, seed, *split)
