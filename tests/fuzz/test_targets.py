"""Fuzz targets with their seeds, regressions and mutants."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from fuzz import run
from fuzz.findings import REGRESSIONS, regressions, shrink
from fuzz.mutation import mutated
from fuzz.targets import Target, load, names
from fuzz.worker import options, run_blindly

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = 60
"""Number of mutants per target in every test run, besides its seeds."""

TARGETS = pytest.mark.parametrize("name", names())


@TARGETS
def test_fuzz_target_accepts_its_seeds_and_some_mutants(name: str) -> None:
    target = load(name)
    seeds = list(target.seeds())
    assert seeds
    assert max(map(len, seeds)) <= target.longest
    for data in seeds:
        target.one(data)
    rng = Random(1)
    for _ in range(MUTANTS):
        target.one(mutated(seeds, rng, target.longest))


@TARGETS
def test_fuzz_target_accepts_empty_input(name: str) -> None:
    load(name).one(b"")


@pytest.mark.parametrize(
    ("name", "data"),
    [pytest.param(name, data, id=f"{name}-{which}") for name in names() for which, data in regressions(name).items()],
)
def test_fuzz_target_accepts_its_regression_inputs(name: str, data: bytes) -> None:
    load(name).one(data)


def test_every_regression_directory_has_a_target() -> None:
    assert {path.name for path in REGRESSIONS.iterdir()} <= set(names())


@pytest.mark.soak
@TARGETS
def test_fuzz_target_accepts_many_mutants(name: str) -> None:
    target, seed = load(name), secrets.randbits(32)
    print(f"seed {seed}")
    inputs, rng = [*target.seeds(), *regressions(name).values()], Random(seed)
    until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "60")) / (3 * len(names()))
    while time.monotonic() < until:
        data = mutated(inputs, rng, target.longest)
        try:
            target.one(data)
        except Exception:
            print(f"{name} failed on {shrink(target.one, data, 5).hex()}")
            raise


def fails(data: bytes) -> None:
    assert b"\xff" not in data, "this one is planted"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Target:
    """Return a target that fails on some inputs."""
    target = Target("planted", fails, lambda: [b"seed"], 64)
    for module in ("fuzz.targets", "fuzz.run"):
        monkeypatch.setattr(f"{module}.load", lambda name: target)
    return target


class TestAFinding:
    def test_failing_input_is_saved_and_shown_with_the_command_to_keep_it(
        self, planted: Target, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        findings = tmp_path / "findings"
        findings.mkdir()
        asked = options(["planted", f"--corpus={tmp_path / 'corpus'}", f"--findings={findings}", "--seconds=60"])
        with pytest.raises(AssertionError, match="planted"):
            run_blindly(asked)
        [found] = findings.iterdir()
        assert b"\xff" in found.read_bytes()
        capsys.readouterr()
        run.describe(run.Outcome("planted", status=1, findings=[found]))
        told = capsys.readouterr().out
        assert "input, 1 bytes: ff\n" in told
        assert "mkdir -p fuzz/regressions/planted && echo ff > fuzz/regressions/planted/NAME.hex\n" in told

    def test_failing_input_is_shrunk_to_its_minimum(self) -> None:
        assert shrink(fails, b"a" * 100 + b"\xff" + b"b" * 33) == b"\xff"
        assert shrink(fails, b"nothing is wrong with this") == b"nothing is wrong with this"


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "fuzz.run", "--jobs=1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


class TestTheCommand:
    def test_fuzz_command_reports_the_number_of_inputs(self) -> None:
        done = fuzz("--without-atheris", "--seconds=1", "hydra_spec")
        assert done.returncode == 0, done.stderr
        assert "hydra_spec " in done.stdout
        assert done.stdout.endswith("for 1 targets, 1 s each; nothing was found.\n")

    def test_fuzz_command_lists_its_targets_and_refuses_others(self) -> None:
        assert fuzz("--list").stdout.split() == names()
        done = fuzz("nothing")
        assert done.returncode == 2
        assert "there is no target 'nothing'" in done.stderr

    def test_fuzz_command_replays_an_input_file(self, tmp_path: Path) -> None:
        path = tmp_path / "input.hex"
        path.write_text("0102")
        assert fuzz("hydra_spec", "--input", str(path)).stdout == "hydra_spec: nothing is wrong with these 2 bytes\n"
