"""Pytest plugin that records the outcome and the duration of each test."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest


@dataclass
class Report:
    """Outcomes and durations of the tests of a run.

    :ivar outcomes: number of tests that passed, failed, were skipped or were deselected by markers.
    :ivar skipped: number of skipped tests by reason.
    :ivar seconds: duration of each test with its setup and teardown.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @classmethod
    def read(cls, path: Path) -> Report:
        """Return the report in a file; an empty one if the run ended before it was written."""
        if not path.exists():
            return cls()
        found = json.loads(path.read_text())
        return cls(Counter(found["outcomes"]), Counter(found["skipped"]), found["seconds"])

    def __add__(self, other: Report) -> Report:
        return Report(self.outcomes + other.outcomes, self.skipped + other.skipped, {**self.seconds, **other.seconds})


class Reporter:
    """Plugin that collects a report and writes it at the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.report = Report()

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        """Count deselected tests."""
        self.report.outcomes["deselected"] += len(items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record duration and outcome of a test; a failing teardown counts in addition."""
        self.report.seconds[report.nodeid] += report.duration
        if report.when == "call" or not report.passed:
            self.report.outcomes[report.outcome] += 1
        self._keep_reason(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Count a module that is skipped as a whole as one test."""
        self.report.outcomes["skipped"] += report.skipped
        self._keep_reason(report)

    def _keep_reason(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.skipped and isinstance(report.longrepr, tuple):
            self.report.skipped[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_sessionfinish(self) -> None:
        """Write the report."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(vars(self.report)))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--report", metavar="FILE", type=Path, help="write outcomes and durations to FILE, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin if a report is requested."""
    path = config.getoption("--report")
    if path is not None:
        config.pluginmanager.register(Reporter(path), "reporter")
