from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from fyrehose_twisted.cli.main import main
from fyrehose_twisted.sim.pytest_plugin import Simulate
from fyrehose_twisted.sim.runs import runner
from fyrehose_twisted.sim.scenario import Scenario

pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]


class Empty(Scenario):
    """A network without hosts that fails only if the seed ends in 5."""

    name = "toy.empty"
    duration = 2.0

    def build(self) -> None:
        if self.seed % 10 == 5:
            self.network.call_in(1.0, self.fail)

    def fail(self) -> None:
        raise LookupError("nobody there")


ALONE = {"SIMULATE_SEED": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
"""Environment of the pytest subprocess, without third-party plugins, which load slowly."""
FAILS = """
from fyrehose_twisted.fyrehose.simulation.scenarios import SCENARIOS, Storm
from fyrehose_twisted.sim.scenario import Scenario
from elsewhere import Elsewhere

class Broken(Scenario):
    name = "toy.broken"
    def build(self):
        raise ValueError("never")

def test_here(simulate):
    simulate(Broken, seeds=[3], split_seed=2)

def test_elsewhere(simulate):
    simulate(Elsewhere, seeds=range(2), jobs=1)

def test_local(simulate):
    class Local(Broken): pass
    simulate(Local, seeds=[4])

def test_registered(simulate, monkeypatch):
    monkeypatch.setattr(Storm, "build", Broken.build)
    simulate(Storm, seeds=[5])

def test_seed(fresh_seed):
    assert fresh_seed < 0

def test_seed_of_another_that_holds(fresh_seed):
    assert fresh_seed >= 0
"""

KILLED = """
import os
pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]

def test_before():
    pass

def test_killed(fresh_seed):
    with open("seed", "w") as file:
        file.write(str(fresh_seed))
    os._exit(9)
"""

ELSEWHERE = """
from fyrehose_twisted.sim.scenario import Scenario

class Elsewhere(Scenario):
    name = "toy.elsewhere"
    def build(self):
        raise ValueError("never")

SCENARIOS = (Elsewhere,)  # Not registered with the command.
"""


def test_simulate_returns_outcomes_in_the_order_of_seeds(simulate: Simulate) -> None:
    for jobs in (0, 2):
        outcomes = simulate(Empty, seeds=iter([7, 3, 4]), jobs=jobs)
        assert [(outcome.seed, outcome.simulated_seconds) for outcome in outcomes] == [(7, 2.0), (3, 2.0), (4, 2.0)]


@pytest.mark.parametrize("jobs", [0, 2])
def test_simulate_without_seeds_is_an_error(simulate: Simulate, jobs: int) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"^no seeds to run toy\.empty with, so nothing was tested$"):
        simulate(Empty, seeds=iter([]), jobs=jobs)


@pytest.mark.parametrize("jobs", [0, 1])
def test_simulate_fails_the_test_at_the_first_violation(simulate: Simulate, jobs: int) -> None:
    with pytest.raises(pytest.fail.Exception) as failed:
        simulate(Empty, seeds=range(10**9), jobs=jobs)
    explained = str(failed.value)
    assert re.search(r"^toy.empty, seed 5: nothing raises: at 1.000000 s, .*: nobody there$", explained, re.MULTILINE)
    path = os.path.relpath(__file__)
    assert explained.endswith(f"\nReplay it: fyrehose simulate {path}:Empty --seed 5")
    assert ('raise LookupError("nobody there")' in explained) == (jobs == 0)
    # The printed command works.
    with pytest.raises(SystemExit) as stopped:
        main(explained.split()[-4:])
    assert stopped.value.code == 1


def test_a_simulation_failure_shows_the_replay_command(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["fyrehose_twisted.sim.pytest_plugin"]')
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_it.py").write_text(FAILS)
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rN", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "5 failed, 1 passed" in ran.stdout
    replays = [line for line in ran.stdout.splitlines() if line.startswith("Replay it: ")]
    assert replays == [
        "Replay it: fyrehose simulate tests/test_it.py:Broken --seed 3 --split-seed 2",
        "Replay it: fyrehose simulate elsewhere:Elsewhere --seed 0",
        "Replay it: simulate(Local, seeds=[4], split_seed=0)",
        "Replay it: fyrehose simulate fyrehose.storm --seed 5",
    ]
    assert "toy.broken, seed 3: nothing raises: at 0.000000 s, whole network: ValueError: never" in ran.stdout
    assert 'raise ValueError("never")' in ran.stdout
    assert "pytest_plugin.py" not in ran.stdout
    (shown,) = re.findall(r"^(\d+); to have it again, set SIMULATE_SEED=(\d+)$", ran.stdout, re.MULTILINE)
    assert shown[0] == shown[1]


@pytest.mark.parametrize("options", ["-q", "-v", "-s", "-q --capture=sys", "-p no:terminal"])
def test_the_fresh_seed_is_shown_before_the_test_runs(tmp_path: Path, options: str) -> None:
    (tmp_path / "test_it.py").write_text(KILLED)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *options.split(), "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 9
    (seed,) = re.findall(r"^fyrehose: seed (\d+) for test_killed$", ran.stdout + ran.stderr, re.MULTILINE)
    assert seed == (tmp_path / "seed").read_text()


class TestFreshSeed:
    def test_fresh_seed_differs_each_time(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("SIMULATE_SEED", raising=False)
        monkeypatch.setattr(runner, "random_seed", lambda: 77)
        assert request.getfixturevalue("fresh_seed") == 77
        monkeypatch.undo()
        assert len({runner.random_seed() for _ in range(20)}) == 20
        assert all(0 <= runner.random_seed() < 2**32 for _ in range(20))

    def test_fresh_seed_is_taken_from_the_environment(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SIMULATE_SEED", "0123")
        assert request.getfixturevalue("fresh_seed") == 123

    def test_an_invalid_fresh_seed_is_reported(
        self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SIMULATE_SEED", "-1")
        with pytest.raises(pytest.fail.Exception, match="SIMULATE_SEED is '-1', which is not a whole number"):
            request.getfixturevalue("fresh_seed")
