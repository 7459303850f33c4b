"""Planted bugs that the simulator must find."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from fyrehose_twisted.interfaces import Outputs
from fyrehose_twisted.sim.invariants import InvariantViolated
from fyrehose_twisted.sim.scenario import Scenario

SEEDS = 500
"""Seeds of which at least one must reveal each bug."""

Patch = pytest.MonkeyPatch


@dataclass(frozen=True)
class Bug:
    """A bug and the invariants that must detect it.

    :ivar plant: function that puts the bug into the code under test.
    :ivar invariants: names, one of which must be the first violated.
    :ivar seed: a fast seed of the scenario that reveals the bug.
    :ivar message: text that the violation must contain.
    """

    plant: Callable[[Patch], None]
    invariants: tuple[str, ...]
    scenario: type[Scenario]
    seed: int
    message: str = ""

    def run(self, seed: int) -> InvariantViolated | None:
        """Run the scenario with the bug; return the violation, which must be the expected one."""
        found = self.scenario(seed).run().violation
        if found is not None:
            what = f"{self.plant.__name__}, {self.scenario.__name__} with seed {seed}: {found}"
            assert found.invariant in self.invariants, f"expected one of {self.invariants} of {what}"
            assert self.message in found.description, f"expected {self.message!r} of {what}"
            # A wrong call of a patched function raises too, and reveals nothing.
            assert f"{self.plant.__name__}.<locals>" not in found.description, f"no longer fits the code: {what}"
        return found


def persist_after_sending(patch: Patch, node: type) -> None:
    """Plant the bug that ``node`` persists what a drain depends on only with the next one."""
    original: Callable[[Any], Outputs] = node.drain  # type: ignore[attr-defined]

    def drain(self: Any) -> Outputs:
        persist, effects, events = original(self)
        late, self.late = getattr(self, "late", None), persist
        return Outputs(late, effects, events)

    patch.setattr(node, "drain", drain)


def each(bugs: Sequence[Bug]) -> pytest.MarkDecorator:
    """Return a decorator that runs a test once per bug."""
    return pytest.mark.parametrize("bug", bugs, ids=[bug.plant.__name__ for bug in bugs])


def check_seed(bug: Bug, patch: Patch) -> None:
    """Fail unless the recorded seed reveals the bug."""
    bug.plant(patch)
    if bug.run(bug.seed) is None:
        file, name = os.environ["PYTEST_CURRENT_TEST"].partition("::")[0], bug.plant.__name__
        pytest.fail(
            f"{bug.scenario.__name__} with seed {bug.seed} no longer shows {name}. Search for a seed that does:\n"
            f"  SOAK_SECONDS=3600 .venv/bin/python -m pytest -m soak -rP {file} -k {name}\n"
            "and record it in BUGS.",
            pytrace=False,
        )


def search(bug: Bug, patch: Patch) -> None:
    """Print the first seed that reveals the bug; fail if none does."""
    bug.plant(patch)
    for seed in range(SEEDS):
        found = bug.run(seed)
        if found is not None:
            print(f"seed={seed}: {found}")
            return
    pytest.fail(
        f"{bug.scenario.__name__} shows {bug.plant.__name__} with none of {SEEDS} seeds: see whether the bug still fits"
        " the code, or take a harder scenario",
        pytrace=False,
    )
