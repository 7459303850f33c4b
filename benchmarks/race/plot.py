"""Plot of the race: broker on top, the other parts below, with a line or a mark for each target."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.lines
import matplotlib.patches
import matplotlib.ticker
from matplotlib.figure import Figure

from race.machine import describe
from race.servers import C_RELAY, NATS, OURS, REDIS, ZEROMQ

# Okabe and Ito's palette for colour-blind readers; the hatches are for print.
COLOURS = {OURS: "#0072B2", NATS: "#E69F00", REDIS: "#D55E00", ZEROMQ: "#009E73", C_RELAY: "#BBBBBB"}
HATCHES = {NATS: "//", REDIS: "\\\\", ZEROMQ: "..", C_RELAY: ""}
GOAL = {"color": "black", "linewidth": 1.4, "linestyle": (0, (3, 2))}
CLIENTS = {OURS: OURS, NATS: "nats-py", REDIS: "redis-py", ZEROMQ: "pyzmq"}


def draw(results: Any, options: argparse.Namespace) -> list[Path]:
    """Write the plot as SVG and PNG; return the paths."""
    matplotlib.rcParams["svg.hashsalt"] = "race"
    figure = Figure(figsize=(14, 8.4), layout="constrained")
    upper, lower = figure.subfigures(2, 1, height_ratios=(1.15, 1))
    _draw_broker(upper, results, options)
    panels = lower.subplots(1, 4)
    _draw_subscriber(panels[0], results)
    _draw_latency(panels[1], results)
    _draw_repair(panels[2], results)
    _draw_crowd(panels[3], results)
    facts = describe()
    figure.suptitle(
        f"{facts['processor']}, {facts['cores']} cores, {facts['system']}, Python {facts['Python']}", size=9
    )
    paths = [options.directory / f"race.{kind}" for kind in ("svg", "png")]
    for path in paths:
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)
    return paths


def _bar(axes: Any, place: float, value: float | None, system: str, width: float = 0.8, **style: Any) -> None:
    if value is not None:
        look = {"color": COLOURS[system], "hatch": HATCHES.get(system), "edgecolor": "white", "linewidth": 0.5}
        axes.bar(place, value, width, **look | style)


def _tidy(axes: Any, title: str, unit: str, places: Sequence[float], labels: Sequence[str]) -> None:
    axes.set_title(title, size=10)
    axes.set_ylabel(unit, size=9)
    axes.set_xticks(list(places), list(labels), size=9)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_broker(part: Any, results: Any, options: argparse.Namespace) -> None:
    systems = list(COLOURS)
    width = 0.84 / len(systems)
    panels = part.subplots(1, len(options.size), squeeze=False)[0]
    for axes, size in zip(panels, options.size, strict=True):
        for group, fan_out in enumerate(options.fan_out):
            case = f"{fan_out} x {size}"
            for row, system in enumerate(systems):
                value = results.median("broker", case, system, "deliveries_per_cpu_second")
                place = group + (row - (len(systems) - 1) / 2) * width
                _bar(axes, place, None if value is None else value / 1e6, system, width)
            best = results.best_peer(case)
            if best is not None:
                axes.hlines(1.5 * best[1] / 1e6, group - 0.46, group + 0.46, **GOAL)
        names = [f"fan-out {fan_out}" for fan_out in options.fan_out]
        _tidy(axes, f"broker, {size:,} bytes", "million deliveries / CPU-second", range(len(names)), names)
    keys = [matplotlib.patches.Patch(facecolor=COLOURS[s], hatch=HATCHES.get(s), edgecolor="white") for s in systems]
    keys.append(matplotlib.lines.Line2D([], [], **GOAL))
    labels = [*(f"{s} (the limit)" if s == C_RELAY else s for s in systems), "target"]
    part.legend(keys, labels, loc="outside upper center", ncols=len(labels), frameon=False, fontsize=9)


def _draw_subscriber(axes: Any, results: Any) -> None:
    for place, system in enumerate(CLIENTS):
        rate = results.median("subscriber", "", system, "messages_per_second")
        _bar(axes, place, None if rate is None else rate / 1e6, system)
    nats = results.median("subscriber", "", NATS, "messages_per_second")
    if nats is not None:
        axes.axhline(5 * nats / 1e6, **GOAL)
    _tidy(axes, "one Python subscriber", "million messages/s", range(len(CLIENTS)), list(CLIENTS.values()))


def _draw_latency(axes: Any, results: Any) -> None:
    for place, system in enumerate(CLIENTS):
        for offset, figure, alpha in ((-0.2, "p50", 1.0), (0.2, "p99", 0.6)):
            seconds = results.median("latency", "", system, figure)
            _bar(axes, place + offset, None if seconds is None else seconds * 1e6, system, 0.38, alpha=alpha)
            if seconds is not None:
                axes.text(place + offset, seconds * 1e6, figure, ha="center", va="bottom", size=7)
            if system == NATS and seconds is not None:
                axes.axhline(seconds * 1e6, **GOAL)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(matplotlib.ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_minor_locator(matplotlib.ticker.NullLocator())
    _tidy(axes, "round trip at 1,000 messages/s (less is better)", "µs", range(len(CLIENTS)), list(CLIENTS.values()))


def _draw_repair(axes: Any, results: Any) -> None:
    cases = list(results.rounds.get("repair", {}))
    rates = [results.median("repair", case, OURS, "messages_per_second") for case in cases]
    for place, rate in enumerate(rates):
        _bar(axes, place, None if rate is None else rate / 1e3, OURS)
    if rates and rates[0] is not None:
        axes.axhline(0.7 * rates[0] / 1e3, **GOAL)
    _tidy(axes, "repair, 4 subscribers", "thousand messages/s", range(len(cases)), cases)


def _draw_crowd(axes: Any, results: Any) -> None:
    cases = list(results.rounds.get("crowd", {}))
    for group, system in enumerate((OURS, NATS)):
        for row, case in enumerate(cases):
            cost = results.median("crowd", case, system, "microseconds_per_delivery")
            place = group + (row - (len(cases) - 1) / 2) * 0.4
            _bar(axes, place, cost, system, 0.38, alpha=1.0 if not row else 0.6)
            if cost is not None:
                axes.text(place, cost, case, ha="center", va="bottom", size=7)
            if cost is not None and not row:
                axes.hlines(cost, group - 0.4, group + 0.4, **GOAL)
    _tidy(axes, "crowd: few and many (less is better)", "broker's µs / delivery", (0, 1), (OURS, NATS))


def draw_loss(rates: dict[str, dict[float, float]], path: Path) -> list[Path]:
    """Write a plot of messages/s by loss, by system, as SVG and PNG beside ``path``; return the paths."""
    matplotlib.rcParams["svg.hashsalt"] = "loss"
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    losses = sorted({loss for each in rates.values() for loss in each})
    width = 0.8 / len(rates)
    for row, (system, by_loss) in enumerate(rates.items()):
        colour = OURS if system == OURS else NATS
        for group, loss in enumerate(losses):
            rate = by_loss.get(loss)
            _bar(axes, group + (row - (len(rates) - 1) / 2) * width, rate and rate / 1e3, colour, width)
    keys = [
        matplotlib.patches.Patch(facecolor=COLOURS[OURS if s == OURS else NATS], hatch=HATCHES.get(s), label=s)
        for s in rates
    ]
    axes.legend(handles=keys, frameon=False, fontsize=8)
    labels = [f"{loss:.0%} lost" for loss in losses]
    _tidy(axes, "two subscribers, no segmentation offload", "thousand messages/s", range(len(losses)), labels)
    paths = [path.with_suffix(f".{kind}") for kind in ("svg", "png")]
    for each in paths:
        figure.savefig(each, dpi=110, metadata={"Date": None} if each.suffix == ".svg" else None)
    return paths
