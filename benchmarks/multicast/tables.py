"""Results of the benchmark of multicast as tables for the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from multicast import bursts, repair

Rows = dict[str, dict[str, float | None]]


def name_of(subscribers: int, size: int) -> str:
    """Return the name of a row."""
    return f"{subscribers} subscriber{'s' if subscribers > 1 else ''}, {size:,} bytes"


def case_rows(rounds: Mapping[tuple[int, int, str], Sequence[float]]) -> Rows:
    """Return medians over rounds, with a row for each number of subscribers and size, and a column for each system."""
    rows: Rows = {}
    for (subscribers, size, system), values in rounds.items():
        rows.setdefault(name_of(subscribers, size), {})[system] = median(values)
    return rows


def rest_rows(rounds: Mapping[tuple[int, str], Sequence[float]]) -> Rows:
    """Return milliseconds of CPU time of a second without messages: medians over rounds."""
    rows: Rows = {}
    for (subscribers, system), values in rounds.items():
        rows.setdefault(f"{subscribers} subscriber{'s' if subscribers > 1 else ''}", {})[system] = median(values) * 1e3
    return rows


def repair_rows(found: Mapping[str, Sequence[repair.Found]]) -> Rows:
    """Return what was requested and repaired: medians over rounds."""
    rows: Rows = {}
    for case, rounds in found.items():
        columns: dict[str, list[float | None]] = {}
        for each in rounds:
            for name, value in _repair_figures(each).items():
                columns.setdefault(name, []).append(value)
        for name, values in columns.items():
            known = [value for value in values if value is not None]
            rows.setdefault(name, {})[case] = median(known) if known else None
    return rows


def _repair_figures(found: repair.Found) -> dict[str, float | None]:
    requests, sent, group, ignored = (found.counters[name] for name in repair.COUNTED)
    times = sorted(found.times)
    return {
        "packets dropped": found.lost,
        "REQUESTs": requests,
        "repairs to one subscriber": sent - group,
        "repairs to the group": group,
        "REQUESTs of what was on its way to the group": ignored,
        "REQUESTs for a dropped packet": requests / found.lost if found.lost else None,
        "DELIVERs for a dropped packet": sent / found.lost if found.lost else None,
        "all have a repaired message after, ms": median(times) * 1e3 if times else None,
        "all have all of them after, ms": times[-1] * 1e3 if times else None,
        "deliveries that never came": found.missing,
    }


def burst_rows(found: Mapping[tuple[int, str], Sequence[bursts.Found]]) -> Rows:
    """Return CPU time and calls of bursts: medians over rounds."""
    rows: Rows = {}
    for (size, kind), rounds in found.items():
        rows.setdefault(f"{size:,} bytes: CPU time, µs", {})[kind] = median(each.message for each in rounds)
    for (size, kind), rounds in found.items():
        rows.setdefault(f"{size:,} bytes: calls", {})[kind] = median(each.calls for each in rounds)
    return rows
