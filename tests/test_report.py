"""Report of a test process for the runner."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from suite.report import Report

TESTS = """
import pytest

def test_passes(): pass
def test_fails(): assert False
def test_is_skipped(): pytest.skip("no moon")
@pytest.mark.skip("no sun")
def test_is_marked(): pass
@pytest.fixture
def broken():
    yield
    raise ValueError
def test_teardown_fails(broken): pass
def test_is_left_out(): pass
"""


def test_outcomes_reasons_and_durations_are_reported(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    pytester.makepyfile(test_some=TESTS, test_others="import pytest\npytest.importorskip('unheard_of')")
    path = pytester.path / "build" / "report.json"
    pytester.runpytest_subprocess("-p", "suite.report", f"--report={path}", "--deselect=test_some.py::test_is_left_out")
    found = Report.read(path)
    assert found.outcomes == {"passed": 2, "failed": 2, "skipped": 3, "deselected": 1}
    reason = "could not import 'unheard_of': No module named 'unheard_of'"
    assert found.skipped == {"no moon": 1, "no sun": 1, reason: 1}
    assert len(found.seconds) == 5
    assert all(seconds > 0 for seconds in found.seconds.values())
    assert (found + found).outcomes["passed"] == 4


def test_an_interrupted_run_has_an_empty_report(tmp_path: Path) -> None:
    assert Report.read(tmp_path / "missing.json") == Report(Counter(), Counter(), {})
