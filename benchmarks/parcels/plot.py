"""Plot of the figures: throughput by load, latency against throughput, failover, and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import matplotlib
import matplotlib.ticker
from matplotlib.figure import Figure

from parcels.failover import ETCD, OURS_KILLED, OURS_SILENT, SYNCOBJ
from parcels.figures import Results
from parcels.wanted import (
    BARE_MANY,
    BARE_ONE,
    ETCD_ONE,
    ETCD_ONE_FSYNC,
    ETCD_OWN,
    ETCD_OWN_FSYNC,
    ETCD_SHARED,
    ETCD_SHARED_FSYNC,
    FLIGHTS,
    HTTP_MANY,
    HTTP_ONE,
    ONE_CONNECTION,
    OWN_CONNECTIONS,
    PIPELINED,
    SEQUENTIAL,
    SYNCOBJ_MANY,
    SYNCOBJ_ONE_AT_ONCE,
    growth,
)

# Okabe and Ito's palette, as in the race.
OURS_COLOUR, ETCD_COLOUR, FSYNC_COLOUR, SYNCOBJ_COLOUR, BARE_COLOUR = (
    "#0072B2",
    "#E69F00",
    "#F0E442",
    "#D55E00",
    "#BBBBBB",
)
GOAL = {"color": "black", "linewidth": 1.4, "linestyle": (0, (3, 2))}
Bars = Mapping[str, tuple[Sequence[str], str]]
ONE_CLIENT: Bars = {
    "ours": ([SEQUENTIAL], OURS_COLOUR),
    "etcd, no fsync": ([ETCD_ONE], ETCD_COLOUR),
    "etcd, fsync": ([ETCD_ONE_FSYNC], FSYNC_COLOUR),
    "PySyncObj, no batches": ([SYNCOBJ_ONE_AT_ONCE], SYNCOBJ_COLOUR),
}
MANY_CLIENTS: Bars = {
    "ours, one connection": ([ONE_CONNECTION], OURS_COLOUR),
    "ours, 64 connections": ([OWN_CONNECTIONS], "#56B4E9"),
    "etcd's best, no fsync": ([ETCD_SHARED, ETCD_OWN], ETCD_COLOUR),
    "etcd's best, fsync": ([ETCD_SHARED_FSYNC, ETCD_OWN_FSYNC], FSYNC_COLOUR),
}
OVER_HTTP: Bars = {
    "ours, 1": ([HTTP_ONE], OURS_COLOUR),
    "bare twisted.web, 1": ([BARE_ONE], BARE_COLOUR),
    "ours, 64": ([HTTP_MANY], "#56B4E9"),
    "bare twisted.web, 64": ([BARE_MANY], "#888888"),
}


def draw(results: Results, directory: Path, machine: Mapping[str, str]) -> list[Path]:
    """Write the plot as SVG and PNG; return the paths."""
    matplotlib.rcParams["svg.hashsalt"] = "parcels"
    figure = Figure(figsize=(14, 8.4), layout="constrained")
    panels = figure.subplots(2, 3)
    sizes = sorted(results.rounds)
    _bars(panels[0, 0], results, sizes, ONE_CLIENT, "1 client, one event in flight")
    _bars(panels[0, 1], results, sizes, MANY_CLIENTS, "64 clients, one in flight each")
    _bars(panels[0, 2], results, sizes, OVER_HTTP, "HTTP, 1 and 64 clients")
    _pipelined(panels[1, 0], results, sizes)
    _failover(panels[1, 1], results)
    _growth(panels[1, 2], results)
    figure.suptitle(
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, Python {machine['Python']}", size=9
    )
    paths = [directory / f"parcels.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _tidy(axes: Any, title: str, unit: str) -> None:
    axes.set_title(title, size=10)
    axes.set_ylabel(unit, size=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _bars(axes: Any, results: Results, sizes: Sequence[int], bars: Bars, title: str) -> None:
    width = 0.84 / len(bars)
    for row, (label, (loads, colour)) in enumerate(bars.items()):
        places = [group + (row - (len(bars) - 1) / 2) * width for group in range(len(sizes))]
        heights = [max((results.median(size, load) or 0.0) for load in loads) for size in sizes]
        axes.bar(places, heights, width, color=colour, label=label, edgecolor="white", linewidth=0.5)
    axes.set_xticks(range(len(sizes)), [f"{size} nodes" for size in sizes], size=9)
    # Above the bars, wherever these end.
    axes.margins(y=0.35)
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="upper center")
    _tidy(axes, title, "events/s")


def _pipelined(axes: Any, results: Results, sizes: Sequence[int]) -> None:
    styles = ("-", "--", ":")
    for size, style in zip(sizes, styles, strict=False):
        loads = [ONE_CONNECTION, *(PIPELINED[flight] for flight in FLIGHTS)]
        points = [
            (p50 * 1e3, rate)
            for load in loads
            if (p50 := results.median(size, load, "p50")) and (rate := results.median(size, load))
        ]
        if points:
            axes.plot(*zip(*points, strict=True), style, marker="o", color=OURS_COLOUR, label=f"ours, {size} nodes")
        p50, rate = (results.median(size, SYNCOBJ_MANY, figure) for figure in ("p50", "rate"))
        if p50 and rate:
            axes.plot(p50 * 1e3, rate, "s", color=SYNCOBJ_COLOUR, label=f"PySyncObj, {size} nodes")
            axes.annotate(str(size), (p50 * 1e3, rate), size=8, textcoords="offset points", xytext=(5, 3))
    axes.set_xscale("log")
    axes.set_xlabel("p50, ms", size=9)
    axes.set_ylim(0)
    axes.xaxis.set_major_formatter("{x:g}")
    if axes.lines:
        axes.legend(fontsize=8, frameon=False, loc="lower center", ncols=2)
    _tidy(axes, "64 to 4,096 in flight; PySyncObj 4,096", "events/s")


def _failover(axes: Any, results: Results) -> None:
    colours = {OURS_KILLED: OURS_COLOUR, OURS_SILENT: OURS_COLOUR, ETCD: ETCD_COLOUR, SYNCOBJ: SYNCOBJ_COLOUR}
    limits = {OURS_KILLED: 1.0, OURS_SILENT: 6.0}
    names = [name for name in colours if name in results.failover]
    for place, name in enumerate(names):
        times = results.failover[name]
        axes.bar(place, median(times), 0.7, color=colours[name], alpha=0.6)
        axes.plot([place] * len(times), times, ".", color="black", markersize=5)
        if name in limits:
            axes.hlines(limits[name], place - 0.4, place + 0.4, **GOAL)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.set_ylim(0.1, 10)
    axes.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names], size=8)
    _tidy(axes, "fail-over of 3 nodes (less is better)", "seconds")


def _growth(axes: Any, results: Results) -> None:
    sizes, costs, _ = growth(results)
    if sizes:
        axes.plot(sizes, costs, "-o", color=OURS_COLOUR, label="ours, 4,096 in flight")
        axes.plot(sizes, [costs[0] * size / sizes[0] for size in sizes], label="in proportion", **GOAL)
        axes.set_ylim(0)
        axes.set_xticks(sizes, [f"{size} nodes" for size in sizes], size=9)
        axes.legend(fontsize=8, frameon=False)
    _tidy(axes, "CPU of all nodes for an event (less is better)", "µs")
