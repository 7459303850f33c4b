"""Tables of the results of bench_freenet_routing.py."""

from __future__ import annotations

from statistics import mean, median
from typing import Any

import numpy as np
from text_table import table

from freenet import rivals
from freenet.figures import fit, one_network, over_networks
from freenet.reference import TABLE

WANTED_SECONDS, WANTED_MEMORY = 60.0, 1024.0
"""For a million nodes with 10 links: seconds, routes included, and MiB."""


def print_table(rows: list[dict[str, Any]]) -> bool:
    """Print the table; return whether the reference figures agree with networks drawn like the reference's."""
    names = ["hops", "p95", "within 10", "within 18", "without, success", "without, hops"]
    shown, well = [], True
    for row in rows:
        reference = next(known for known in TABLE if (known.n, known.degree) == (row["n"], row["degree"]))
        figures = [over_networks(row[name]) for name in names]
        links = f"{mean(row['links a node']):.1f}, {mean(row['without, links a node']):.1f}"
        shown.append((f"{row['n']:,}, {row['degree']}, {row['kind']}", links, *figures))
        if row["kind"] != "ours":
            shown.append((f"{row['n']:,}, {row['degree']}, the reference", "", *map(str, reference[2:])))
            for name, value in zip(names, reference[2:], strict=True):
                low, high = one_network(row[name]) if len(row[name]) > 2 else (-1.0, 1e9)
                # The reference is rounded, and hops of single routes are whole numbers.
                slack = 1.0 if name == "p95" else 0.05 if "hops" in name else 0.005
                if not low - slack <= value <= high + slack:
                    well = False
                    print(f"NOT REPRODUCED {row['n']:,}, {row['degree']}, {name}: {value}, not {low:.3f} to {high:.3f}")
    print("Greedy routes to a node, means over networks with intervals of 95 %: with a lattice, then without")
    table(("nodes, degree", "links", *names), shown)
    return well


def print_growth(rows: list[dict[str, Any]]) -> None:
    """Print the growth of hops, and the fitted lines."""
    print("Greedy routes with a lattice and 10 links a node: means over networks")
    names = ("hops", "p95", "within 10", "within 18")
    table(("nodes", *names), [(f"{row['n']:,}", *(over_networks(row[name]) for name in names)) for row in rows])
    if len(rows) < 4:
        return
    sizes, hops = [row["n"] for row in rows], [mean(row["hops"]) for row in rows]
    lines = []
    for name, growth in (("log² n", lambda n: np.log2(n) ** 2), ("log n", np.log2), ("√n", np.sqrt)):
        offset, slope, beside = fit(sizes, hops, growth)
        lines.append((f"a + b {name}", f"{offset:.3f}", f"{slope:.5f}", f"{beside:.3f}"))
    print("Lines through the mean hops (logarithms are to 2)")
    table(("", "a", "b", "hops beside it"), lines)


def print_million(rows: list[dict[str, Any]]) -> bool:
    """Print the cost of large networks; return whether it meets the target."""
    print("One large network, without a lattice: medians of seconds of CPU, and MiB")
    shown, well = [], True
    for degree in sorted({row["degree"] for row in rows}):
        those = [row for row in rows if row["degree"] == degree]
        middle = {name: median(row[name] for row in those) for name in those[0]}
        seconds = middle["drawing"] + middle["routing"]
        shown.append(
            (
                f"{middle['n']:,} nodes, degree {degree}",
                f"{middle['drawing']:.2f}",
                f"{middle['routing']:.2f}",
                f"{middle['routes'] / middle['routing']:,.0f}",
                f"{middle['memory']:.0f}",
                f"{middle['success']:.3f}",
                f"{middle['hops']:.2f}",
            )
        )
        if degree == 10:
            well = seconds <= WANTED_SECONDS and middle["memory"] <= WANTED_MEMORY
    table(("", "drawing", "routing", "routes/s", "MiB", "success", "hops"), shown)
    print(f"WANTED with degree 10: {WANTED_SECONDS:g} s, {WANTED_MEMORY:g} MiB: {'yes' if well else 'NO'}\n")
    return well


def print_swap(rows: list[dict[str, Any]]) -> None:
    """Print how far swapping restores routing."""
    print("Swapping after locations were dealt anew (a round is an attempt for each node): 4,000 routes")
    table(
        ("nodes, degree", "rounds", "s of CPU", "success", "hops"),
        [
            (
                f"{row['n']:,}, {row['degree']}",
                row["rounds"],
                "" if row["seconds"] != row["seconds"] else f"{row['seconds']:.1f}",
                f"{row['success']:.3f}",
                f"{row['hops']:.2f}",
            )
            for row in rows
        ],
    )


def print_beside(rows: list[dict[str, Any]]) -> None:
    """Print the ratios of other libraries to this one."""
    print("Others on the same links, for the same routes, which all end alike: medians, and ours as a multiple")
    shown: list[tuple[object, ...]] = []
    middle = {
        (row["n"], row["name"], figure): median(
            one[figure] for one in rows if (one["n"], one["name"]) == (row["n"], row["name"])
        )
        for row in rows
        if "rate" in row
        for figure in ("building", "rate")
    }
    for n, name in dict.fromkeys((n, name) for n, name, _ in middle):
        building, rate = middle[n, name, "building"], middle[n, name, "rate"]
        ours_building, ours_rate = middle[n, "this library", "building"], middle[n, "this library", "rate"]
        times = (f"{building / ours_building:.1f}", f"{ours_rate / rate:.1f}") if name != "this library" else ("", "")
        shown.append((f"{n:,} nodes, {name}", f"{building:.3f}", times[0], f"{rate:,.0f}", times[1]))
    table(("", "building, s", "ours faster", "routes/s", "ours faster"), shown)
    for row in rows:
        if "ours" in row:
            print(
                f"Kleinberg's network of {row['n']:,} nodes: networkx draws it in {row['networkx']:.2f} s, "
                f"this library in {row['ours']:.3f} s, {row['networkx'] / row['ours']:,.0f} times as fast.\n"
            )
    missing = [name for name in ("networkx", "igraph") if not any(name in key for key in rivals.available())]
    for name in missing:
        print(f"{name} is not installed: pip install {name}")
