"""Results of the freenet benchmarks as tables for the docs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan, log2
from statistics import mean, median
from typing import Any

import numpy as np
from results import Tables, Value

from freenet.figures import fit, over_networks
from freenet.reference import TABLE
from freenet.trees import EVERY_LINK, REPAIRS, TREES, TreeRow

Rows = list[dict[str, Any]]
Interval = Callable[[list[float]], str]
KINDS = {"as the reference": "reference", "our links": "our links", "looking roots": "probing"}
WAYS = {"in-turn": "in turn", "one by one": "one by one", "together": "together"}


def network(row: TreeRow) -> str:
    """Return what distinguishes a network from the others of the table."""
    links = "" if row.links == "Kleinberg" else f", {row.links}"
    chances = "each link" if EVERY_LINK.items() <= row.policy.items() else "0.1 and 0.2"
    if "htl_on_closer" in row.policy:
        chances = f'"{row.policy["htl_on_closer"]}"'
    return f"{row.n:,}{links}, HTL {row.policy['max_htl']}, {chances}"


def reference(rows: Rows, interval: Interval) -> Tables:
    """Return trees beside published ones."""
    names = ("roots", "reach", "first", "later", "depth", "deepest", "stretch", "members")
    found: dict[str, dict[str, Value]] = {}
    for row in rows:
        known = next(one for one in TREES if (one.n, one.links, one.policy) == (row["n"], row["links"], row["policy"]))
        values = {name: getattr(known, name) for name in names}
        found.setdefault(f"{network(known)}: published", {name: f"{v:g}" for name, v in values.items() if not isnan(v)})
        found[f"{network(known)}: {KINDS[row['kind']]}"] = {name: interval(row[name]) for name in names}
    return {"freenet-reference": found}


def repairs(rows: Rows, interval: Interval) -> Tables:
    """Return repairs of networks of 1,000 nodes beside published ones."""
    found: dict[str, dict[str, Value]] = {}
    names = {"messages": "messages per lost parent", "seconds": "seconds", "roots": "roots", "reach": "reach"}
    for row in (row for row in rows if row["n"] == 1_000):
        accept = row["policy"].get("accept")
        how = {"root": "location of the root", "own": "own location", None: "`teardown`"}[accept]
        label = f"{row['killed']:.0%}".replace("%", " %") + f", {how}"
        for known in REPAIRS:
            if (known.n, known.killed, known.accept) == (row["n"], row["killed"], accept):
                cells = {names[name]: f"{getattr(known, name):g}" for name in ("messages", "roots", "reach")}
                found.setdefault(f"{label}: published", dict[str, Value](cells))
        found[f"{label}: {WAYS[row['way']]}"] = {told: interval(row[name]) for name, told in names.items()}
    return {"freenet-repairs": found}


def speed(rows: Rows) -> Tables:
    """Return seconds, memory and rates of large experiments."""
    times: dict[str, dict[str, Value]] = {}
    memory: dict[str, dict[str, Value]] = {}
    rates: dict[str, dict[str, Value]] = {}
    for row in rows:
        tries = [one for one in row["tries"] if "missing" not in one]
        who, nodes = {"ours": "this library"}.get(row["who"], row["who"]), f"{row['n']:,} nodes"
        if not tries:
            continue
        label = f"{nodes}, degree {row['degree']}"
        times.setdefault(label, {})[who] = median(one["seconds"] for one in tries)
        memory.setdefault(f"{nodes}, memory, MiB", {})[who] = median(one["memory"] for one in tries)
        if row["who"] == "ours":
            rates[label] = {
                "subscribing": median(one["messages"] / (one["seconds"] - one["published_seconds"]) for one in tries),
                "publishing": median(one["published_messages"] / one["published_seconds"] for one in tries),
            }
    return {"freenet-speed": times | memory, "freenet-rates": rates}


def growth(rows: Rows) -> Tables:
    """Return requests and seconds by the number of nodes."""
    found: dict[str, dict[str, Value]] = {}
    for row in rows:
        requests = median(one["later"] for one in row["tries"])
        seconds = median(one["seconds"] for one in row["tries"])
        cells = {"requests": requests, "requests / log₂² n": requests / log2(row["n"]) ** 2, "CPU seconds": seconds}
        found[f"{row['n']:,}"] = dict[str, Value](cells)
    return {"freenet-growth": found}


def routing(rows: Rows) -> Tables:
    """Return greedy routes beside published ones."""
    names = {"hops": "hops", "within 10": "within 10", "without, success": "success without"}
    names["without, hops"] = "hops without"
    found: dict[str, dict[str, Value]] = {}
    for row in rows:
        known = next(one for one in TABLE if (one.n, one.degree) == (row["n"], row["degree"]))
        label = f"{row['n']:,}, degree {row['degree']}"
        published = (known.hops, known.within_10, known.success, known.hops_without)
        found.setdefault(f"{label}: published", dict(zip(names.values(), (f"{v:g}" for v in published), strict=True)))
        links = f"{mean(row['links a node']):.1f}, {mean(row['without, links a node']):.1f}"
        figures = {told: over_networks(row[name]) for name, told in names.items()}
        kind = "our links" if row["kind"] == "ours" else "reference"
        found[f"{label}: {kind}"] = {"links": links, **figures}
    return {"freenet-routing": found}


def lines(rows: Rows) -> Tables:
    """Return lines through the mean hops."""
    if len(rows) < 4:
        return {}
    sizes, hops = [row["n"] for row in rows], [mean(row["hops"]) for row in rows]
    found: dict[str, dict[str, Value]] = {}
    growths: Sequence[tuple[str, Callable[[Any], Any]]] = (
        ("log₂² n", lambda n: np.log2(n) ** 2),
        ("log₂ n", np.log2),
        ("√n", np.sqrt),
    )
    for name, each in growths:
        offset, slope, beside = map(float, fit(sizes, hops, each))
        found[name] = {"a": offset, "b": slope, "hops beside it": beside}
    return {"freenet-fit": found}


def million(rows: Rows) -> Tables:
    """Return the cost of large networks."""
    routes = f"{rows[0]['routes']:,} routes, s"
    found: dict[str, dict[str, Value]] = {"generate, s": {}, routes: {}, "memory, MiB": {}}
    for degree in sorted({row["degree"] for row in rows}):
        those = [row for row in rows if row["degree"] == degree]
        for label, name in zip(found, ("drawing", "routing", "memory"), strict=True):
            found[label][f"degree {degree}"] = median(row[name] for row in those)
    return {"freenet-million": found}
