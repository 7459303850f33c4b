"""Table of a sweep, with one row per network."""

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
"""Function that simulates a network and returns its measurements."""

KEY_COLUMNS = ("cell", "replica")
"""Columns that identify the network of a row."""
VIOLATION, ERROR = "violation", "error"
DURATION_COLUMNS = ("took_topology", "took")
"""Seconds for the links of a network, and for all of it. They vary between runs; all other columns do not."""

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
"""Schema of the table in the notation of Spark. Metrics without data are null."""


def arrow_schema() -> Any:
    """Return the schema of the table for Arrow."""
    import pyarrow

    kinds = {"boolean": pyarrow.bool_(), "bigint": pyarrow.int64(), "double": pyarrow.float64()}
    return pyarrow.schema([(name, kinds.get(kind, pyarrow.string())) for name, kind in _COLUMNS.items()])


def simulate_row(cell: Cell, run: RunNetwork) -> dict[str, Any]:
    """Simulate a network and return its row, which contains the error if the simulation fails."""
    began = perf_counter()
    row = blank_row(cell)
    try:
        measurements = run(cell)
        for name, value in measurements.items():
            if name not in _COLUMNS:
                raise LookupError(f"{name} was measured, but there is no column for it")
            row[name] = None if isinstance(value, float) and math.isnan(value) else value
    except Exception as error:
        row = blank_row(cell) | {ERROR: _describe_error(error)}
    return row | {"took": perf_counter() - began}


def blank_row(cell: Cell) -> dict[str, Any]:
    """Return the row of a network without measurements."""
    seeds = cell.seeds()
    identity = (cell.grid, cell.number, cell.replica, seeds.topology, seeds.experiment)
    known = dict(zip(list(_COLUMNS)[: len(identity)], identity, strict=True)) | cell.settings.values()
    return dict.fromkeys(_COLUMNS) | known


def to_arrow_batch(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as one Arrow batch."""
    import pyarrow

    return pyarrow.RecordBatch.from_pylist(list(rows), schema=arrow_schema())


def _describe_error(error: Exception) -> str:
    """Return the text of an error, and the place where it was raised."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    frames = traceback.extract_tb(error.__traceback__)
    return f"{text} ({frames[-1].name}, line {frames[-1].lineno})" if frames else text
