"""The table of a sweep: one row for each network."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

from fyrehose_twisted.experiments.sweep.grid import Cell
from fyrehose_twisted.experiments.sweep.metrics import METRICS
from fyrehose_twisted.experiments.sweep.settings import DEFAULTS

Measurements = dict[str, Any]
RunNetwork = Callable[[Cell], Measurements]
"""Simulates a network, and returns what was measured."""

KEY_COLUMNS = ("cell", "replica")
"""The columns that say which network a row is of."""
VIOLATION, ERROR = "violation", "error"
DURATION_COLUMNS = ("took_topology", "took")
"""Seconds that the links of a network took, and all of it. They are another each time; all else is the same."""

_TYPES = {bool: "boolean", int: "bigint", float: "double", str: "string"}
_COLUMNS = {
    "grid": "string",
    "cell": "bigint",
    "replica": "bigint",
    "topology_seed": "bigint",
    "experiment_seed": "bigint",
    **{name: _TYPES[type(value)] for name, value in DEFAULTS.items()},
    **dict.fromkeys(METRICS, "double"),
    VIOLATION: "string",
    ERROR: "string",
    **dict.fromkeys(DURATION_COLUMNS, "double"),
}
SCHEMA = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
"""The table as Spark wants to know it. Where there was nothing to measure, a metric is null."""


def arrow_schema() -> Any:
    """Return the same as an Arrow schema."""
    import pyarrow

    kinds = {"boolean": pyarrow.bool_(), "bigint": pyarrow.int64(), "double": pyarrow.float64()}
    return pyarrow.schema([(name, kinds.get(kind, pyarrow.string())) for name, kind in _COLUMNS.items()])


def simulate_row(cell: Cell, run: RunNetwork) -> dict[str, Any]:
    """Simulate a network and return its row. If that fails, the row says how."""
    began = perf_counter()
    row = blank_row(cell)
    try:
        found = run(cell)
        for name, value in found.items():
            if name not in _COLUMNS:
                raise LookupError(f"{name} was measured, and there is no column for it")
            row[name] = None if isinstance(value, float) and math.isnan(value) else value
    except Exception as error:
        row = blank_row(cell) | {ERROR: _describe_error(error)}
    return row | {"took": perf_counter() - began}


def blank_row(cell: Cell) -> dict[str, Any]:
    """Return the row of a network of which nothing is known but its settings."""
    seeds = cell.seeds()
    which = (cell.grid, cell.number, cell.replica, seeds.topology, seeds.experiment)
    known = dict(zip(list(_COLUMNS)[: len(which)], which, strict=True)) | cell.settings.values()
    return dict.fromkeys(_COLUMNS) | known


def to_arrow_batch(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as one Arrow batch."""
    import pyarrow

    return pyarrow.RecordBatch.from_pylist(list(rows), schema=arrow_schema())


def _describe_error(error: Exception) -> str:
    """Return what an error says, and where in our code it was raised."""
    said = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    return f"{said} ({frames[-1].name}, line {frames[-1].lineno})" if frames else said
