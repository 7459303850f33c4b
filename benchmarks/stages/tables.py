"""Stages as tables for the docs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from race.servers import NATS, OURS

from stages.clients import PARCELS
from stages.figures import CaseFigures
from stages.processes import Case

KERNEL, KERNEL_FOUR_TIMES = "kernel", "kernel, four times"

Rows = dict[str, dict[str, Any]]


def tables(figures: Sequence[CaseFigures], members: Sequence[int], nodes: dict[str, Any]) -> dict[str, Rows]:
    """Return the tables of all cases and nodes that were measured."""
    by_name = {each.name: each for each in figures}
    found: dict[str, Rows] = {"stages": {}, "stages-cpu": {}, "stages-parcels": {}, "nodes": {}}
    for system in (OURS, NATS):
        if (case := by_name.get(Case(system).name)) is not None:
            for row in case.rows:
                found["stages"].setdefault(row.stage, {})[system] = row.median
            for process, counts in case.counts.items():
                found["stages-cpu"].setdefault(process, {})[system] = counts.cpu
    for count in members:
        if (case := by_name.get(Case(PARCELS, members=count).name)) is not None:
            for stage, median in without_kernel(case).items():
                found["stages-parcels"].setdefault(stage, {})[f"{count} nodes"] = median
    for name, each in nodes.items():
        found["nodes"][name] = {
            "warm": each["median"],
            "cold": each["cold"],
            "instructions": each.get("instructions"),
            "cache misses": each.get("first_level"),
        }
    return {name: rows for name, rows in found.items() if rows}


def without_kernel(case: CaseFigures) -> dict[str, float]:
    """Return the medians of the stages, with those of the kernel as one before the whole."""
    stages = {row.stage: row.median for row in case.rows}
    kernel = sum(median for stage, median in stages.items() if stage.startswith(KERNEL))
    whole = stages.pop("all", None)
    own = {stage: median for stage, median in stages.items() if not stage.startswith(KERNEL)}
    return own | ({} if whole is None else {KERNEL_FOUR_TIMES: kernel, "all": whole})
