"""Plot of the stages: a bar for each case, its parts in the order in which a message passes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from stages.figures import CaseFigures

# Okabe and Ito's palette for colour-blind readers.
COLOURS = {
    "publisher": "#0072B2",
    "client": "#0072B2",
    "server": "#E69F00",
    "leader": "#E69F00",
    "follower": "#CC79A7",
    "subscriber": "#009E73",
    "kernel": "#CCCCCC",
}
KEYS = {
    "publisher or client": "#0072B2",
    "server or leader": "#E69F00",
    "follower": "#CC79A7",
    "subscriber": "#009E73",
    "kernel": "#CCCCCC",
}
NARROW = 0.03
"""Part of the longest bar below which a stage has no number."""


def draw(cases: Sequence[CaseFigures], directory: Path, machine: Mapping[str, str]) -> list[Path]:
    """Write the plot as SVG and PNG; return the paths."""
    matplotlib.rcParams["svg.hashsalt"] = "stages"
    matplotlib.rcParams["svg.fonttype"] = "none"
    figure = Figure(figsize=(10, 1.6 + 0.55 * len(cases)), layout="constrained")
    axes = figure.subplots()
    longest = max(sum(row.median for row in case.rows[:-1]) for case in cases)
    for place, case in enumerate(cases):
        _draw_bar(axes, place, case, longest)
    axes.set_yticks(range(len(cases)), [case.name for case in cases], size=9)
    axes.invert_yaxis()
    axes.set_xlabel("µs, medians", size=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    keys = [Patch(facecolor=colour, edgecolor="white") for colour in KEYS.values()]
    figure.legend(keys, list(KEYS), loc="outside upper center", ncols=len(KEYS), frameon=False, fontsize=9)
    axes.set_title(f"{machine['processor']}, {machine['cores']} cores, {machine['system']}", size=9)
    paths = [directory / f"stages.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _draw_bar(axes: Any, place: int, case: CaseFigures, longest: float) -> None:
    left = 0.0
    for row in case.rows[:-1]:
        colour = COLOURS[row.stage.partition(":")[0].partition(",")[0]]
        axes.barh(place, row.median, 0.7, left, color=colour, edgecolor="white", linewidth=0.8)
        if row.median > NARROW * longest:
            axes.text(left + row.median / 2, place, f"{row.median:.0f}", ha="center", va="center", size=8)
        left += row.median
