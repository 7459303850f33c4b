"""The ``program`` fixture."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

Program = Callable[[str, str], Path]


def test_an_installed_program_is_found(program: Program) -> None:
    assert program("sh", "dash").name == "sh"


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_a_missing_program_skips_the_test_or_fails_it_in_ci(
    program: Program, monkeypatch: pytest.MonkeyPatch, ci: str, outcome: type[BaseException]
) -> None:
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="no-such-program is missing: apt install some-package"):
        program("no-such-program", "some-package")
