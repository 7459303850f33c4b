"""Data of a report: for each grid and metric, lines over one of the varied settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import prod
from typing import Any, NamedTuple

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.experiments.sweep.interval import Interval, confidence_interval
from fyrehose_twisted.experiments.sweep.metrics import METRICS
from fyrehose_twisted.experiments.sweep.results import SweepResults
from fyrehose_twisted.experiments.sweep.rows import ERROR, VIOLATION
from fyrehose_twisted.experiments.sweep.settings import DEFAULTS, Value

DEFAULT_METRICS = (
    "roots_per_key",
    "reach",
    "subscribe_messages_first",
    "subscribe_messages_later",
    "depth_mean",
    "depth_max",
    "stretch",
    "delivery_ratio",
    "repair_time_p50",
    "repair_time_p99",
    "repair_requests",
    "repair_restarted",
    "lost_in_repair",
)
"""Default metrics of a report."""


class Point(NamedTuple):
    """Point of a line: value of the axis setting, and mean of a metric over the replicas of a cell."""

    x: Value
    interval: Interval


class Series(NamedTuple):
    """Line: all points that have the same settings except for the axis.

    :ivar settings: varied settings, by name.
    """

    settings: dict[str, Value]
    points: list[Point]


class Panel(NamedTuple):
    """One metric of one grid."""

    metric: str
    axis: str
    series: list[Series]


@dataclass(frozen=True)
class GridReport:
    """Data of one grid.

    :ivar axes: values of each setting in the file.
    :ivar axis: setting of the horizontal axis.
    :ivar varied: settings that distinguish the lines.
    :ivar networks: number of finished networks.
    :ivar expected: number of all networks.
    :ivar panels: metrics that have values.
    :ivar unmeasured: metrics that have no values.
    """

    name: str
    axes: Mapping[str, Sequence[Value]]
    axis: str
    varied: tuple[str, ...]
    networks: int
    expected: int
    panels: list[Panel]
    unmeasured: tuple[str, ...]


@dataclass(frozen=True)
class SweepData:
    """Data of a report.

    :ivar where: directory of the sweep.
    :ivar errors: number of failed networks by error.
    :ivar violations: number of networks with a broken invariant, by invariant.
    :ivar took: seconds of one core that all networks took.
    """

    where: str
    seed: int
    replicas: int
    versions: Mapping[str, str]
    conditions: tuple[str, ...]
    parts: list[GridReport]
    errors: Counter[str]
    violations: Counter[str]
    took: float

    @property
    def networks(self) -> int:
        """Number of networks that have a row."""
        return sum(part.networks for part in self.parts)


def load_sweep_data(
    results: SweepResults, *, axis: str = "", metrics: Sequence[str] = (), where: Sequence[str] = ()
) -> SweepData:
    """Read the data of a report.

    :param axis: setting of the horizontal axis; by default ``n``, or another numeric setting with more values.
    :param metrics: metrics to show; by default :data:`DEFAULT_METRICS`.
    :param where: conditions of the form ``NAME=VALUE`` that all shown networks must meet.
    :raises ConfigurationError: if there is no sweep, no network, or a name is unknown.
    """
    manifest = results.manifest()
    shown = tuple(metrics) or DEFAULT_METRICS
    for name in shown:
        _require_known(name, METRICS, "metric")
    conditions = [_parse_condition(text) for text in where]
    rows = [
        row for row in results.read().to_pylist() if all(format_value(row[name]) == value for name, value in conditions)
    ]
    if not rows:
        such = f" with {' and '.join(where)}" if where else ""
        raise ConfigurationError(f"{results.directory} has no network{such} yet")
    if axis:
        _require_varied(axis, manifest["grids"])
    parts = []
    for grid in manifest["grids"]:
        grid_rows = [row for row in rows if row["grid"] == grid["name"]]
        if grid_rows:
            parts.append(_grid_report(grid, grid_rows, manifest["replicas"], axis, shown))
    return SweepData(
        str(results.directory),
        manifest["seed"],
        manifest["replicas"],
        manifest["versions"],
        tuple(where),
        parts,
        Counter(row[ERROR] for row in rows if row[ERROR] is not None),
        Counter(row[VIOLATION] for row in rows if row[VIOLATION] is not None),
        sum(row["took"] or 0.0 for row in rows),
    )


def _require_varied(axis: str, grids: Sequence[Mapping[str, Any]]) -> None:
    _require_known(axis, DEFAULTS, "setting")
    known = {name for part in grids for name, values in part["axes"].items() if len(values) > 1}
    if axis not in known:
        raise ConfigurationError(f"{axis} has one value only; these have several: {', '.join(sorted(known))}")


def format_value(value: Value) -> str:
    """Return a value in the notation of a grid file, with text unquoted."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _grid_report(
    grid: Mapping[str, Any], rows: list[dict[str, Any]], replicas: int, requested: str, shown: Sequence[str]
) -> GridReport:
    axes: dict[str, list[Value]] = grid["axes"]
    # Rows contain absolute paths of files, so the values come from the rows, which are in the order of the grid.
    values = {name: list(dict.fromkeys(row[name] for row in rows)) for name in axes}
    varied = [name for name in axes if len(values[name]) > 1]
    axis = requested if requested in varied else _choose_axis({name: values[name] for name in varied or axes or ["n"]})
    others = tuple(name for name in varied if name != axis)
    panels = [panel for name in shown if (panel := _panel(name, axis, others, rows)).series]
    measured = [panel.metric for panel in panels]
    expected = prod(map(len, axes.values())) * replicas
    unmeasured = tuple(name for name in shown if name not in measured)
    return GridReport(grid["name"], axes, axis, others, len(rows), expected, panels, unmeasured)


def _choose_axis(values: Mapping[str, Sequence[Value]]) -> str:
    """Return the setting with the most values; numbers precede words, and ``n`` precedes others with as many values."""

    def rank(name: str) -> tuple[bool, int, bool]:
        is_number = not isinstance(values[name][0], bool | str)
        return is_number, len(values[name]), name == "n"

    return max(values, key=rank)


def _panel(metric: str, axis: str, others: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Panel:
    found: dict[tuple[Value, ...], dict[Value, list[float]]] = {}
    for row in rows:
        if row[metric] is not None:
            line = found.setdefault(tuple(row[name] for name in others), {})
            line.setdefault(row[axis], []).append(row[metric])
    known = METRICS[metric]
    series = []
    for settings, line in found.items():
        points = [Point(x, confidence_interval(numbers, known.minimum, known.maximum)) for x, numbers in line.items()]
        if not isinstance(points[0].x, bool | str):
            points.sort(key=lambda point: point.x)
        series.append(Series(dict(zip(others, settings, strict=True)), points))
    return Panel(metric, axis, series)


def _parse_condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigurationError(f"{text!r} is not of the form NAME=VALUE, such as n=1000")
    if name != "grid":
        _require_known(name, DEFAULTS, "setting")
    return name, value


def _require_known(name: str, known: Iterable[str], what: str) -> None:
    known = list(known)
    if name not in known:
        close = get_close_matches(name, known, 1, 0.5)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
        raise ConfigurationError(f"there is no {what} {name!r}; {hint}")
