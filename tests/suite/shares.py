"""Distribution of test files over processes by their recorded durations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from heapq import heapify, heapreplace
from pathlib import Path

DURATIONS = Path(__file__).with_name("durations.json")
"""Seconds per file on two idle cores, by suite; written by ``run.py --record``."""


def shares(files: Iterable[str], seconds: Mapping[str, float], count: int) -> list[list[str]]:
    """Split files into ``count`` lists of similar duration; a file without a record counts as average.

    Files are assigned longest first, each to the shortest list. A file is not split, because its module fixtures would
    be set up twice.
    """
    files = list(files)
    known = [seconds[file] for file in files if file in seconds]
    average = sum(known) / len(known) if known else 1.0
    found: list[list[str]] = [[] for _ in range(count)]
    loads = [(0.0, number) for number in range(count)]
    heapify(loads)
    for file in sorted(files, key=lambda file: (-seconds.get(file, average), file)):
        load, number = loads[0]
        found[number].append(file)
        heapreplace(loads, (load + seconds.get(file, average), number))
    return [sorted(share) for share in found]


def recorded() -> dict[str, dict[str, float]]:
    """Return the recorded durations of files, by suite."""
    found: dict[str, dict[str, float]] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return found
