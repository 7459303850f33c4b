"""Report of ``tree-experiment --replicas``: means over networks with other seeds, with confidence intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import IO

from fyrehose_twisted.experiments.report.trial_report import (
    METRIC_DESCRIPTIONS,
    TrialReport,
    format_value,
    replace_non_finite,
    write_rows,
)
from fyrehose_twisted.experiments.sweep.interval import Interval, confidence_interval
from fyrehose_twisted.experiments.sweep.metrics import METRICS, RENAMED_METRICS
from fyrehose_twisted.wording import pluralize


class ReplicaReport:
    """Report on trials that differ in their seeds only. It keeps the rows, not the networks."""

    def __init__(self) -> None:
        self._rows: list[dict[str, object]] = []
        self._metrics: dict[str, list[float]] = {name: [] for name in METRIC_DESCRIPTIONS}

    @property
    def violations(self) -> list[str]:
        """Violated invariant of each trial that violated any."""
        return [str(row["violation"]) for row in self._rows if row["violation"] is not None]

    def add(self, report: TrialReport) -> None:
        """Add a trial."""
        self._rows.append(report.row())
        for name, value in report.metrics.items():
            if isfinite(value):
                self._metrics[name].append(value)

    def intervals(self) -> dict[str, Interval | None]:
        """Return mean and confidence interval of each metric over the trials that have a value; ``None`` if none has.

        Metrics are in the order of :data:`~fyrehose_twisted.experiments.report.trial_report.METRIC_DESCRIPTIONS`.
        """
        found: dict[str, Interval | None] = {}
        for name, values in self._metrics.items():
            limits = METRICS[RENAMED_METRICS.get(name, name)]
            found[name] = confidence_interval(values, limits.minimum, limits.maximum) if values else None
        return found

    def write_csv(self, out: IO[str], *, heading: bool = True) -> None:
        """Write a heading and a row per trial; missing values are empty."""
        write_rows(self._rows, out, heading=heading)

    def write_json(self, out: IO[str]) -> None:
        """Write an object with ``rows``, one per trial, and ``intervals``, by metric; missing values are ``null``."""
        intervals = {name: None if one is None else one._asdict() for name, one in self.intervals().items()}
        rows = [replace_non_finite(row) for row in self._rows]
        json.dump({"rows": rows, "intervals": intervals}, out, indent=1, allow_nan=False)
        out.write("\n")

    def lines(self) -> Iterator[str]:
        """Return the first topology, and the interval of each metric, as lines of text."""
        others = pluralize(len(self._rows) - 1, "more network")
        yield f"{self._rows[0]['topology']} and {others} with other seeds"
        yield ""
        width = max(map(len, METRIC_DESCRIPTIONS))
        yield f"{'':{width}}  {'networks':>8}  {'mean':>11}  {'95 % confidence interval':>27}"
        for name, found in self.intervals().items():
            if found is None:
                yield f"{name:{width}}  {0:>8}  {'-':>11}  {'-':>27}  {METRIC_DESCRIPTIONS[name]}"
                continue
            if found.low is None or found.high is None:
                between = "-"
            else:
                between = f"{format_value(found.low)} to {format_value(found.high)}"
            mean = format_value(found.mean)
            yield f"{name:{width}}  {found.networks:>8}  {mean:>11}  {between:>27}  {METRIC_DESCRIPTIONS[name]}"
        yield ""

    def summary(self) -> str:
        """Return a summary in one sentence."""
        reach = self.intervals()["reach"]
        reached = "no subscribers" if reach is None else f"a mean reach of {format_value(reach.mean)}"
        if self.violations:
            holds = f"but in {pluralize(len(self.violations), 'network')}, {self.violations[0]}"
        elif self._rows[0]["loss"]:
            holds = "trees were not checked, since messages were lost"
        else:
            holds = "all trees hold"
        return f"{pluralize(len(self._rows), 'network')} with {reached}; {holds}."
