"""Trees on networks: comparison with the reference figures, and the cost of simulating them.

Reference: the two tables of trees and of repairs, on networks of the library and on networks drawn like the
reference's, with 95 % intervals over networks.

Repair: nodes die at one moment. In turn, as in the reference, one orphan resubscribes after the other; together, each
does after its jitter, once with subtrees and once each member by itself. One by one, each node dies once the trees are
complete again.

Speed: messages a second of the nodes themselves, whole networks, and one of 100,000 nodes with 100 subscribers on
each of 40 keys: CPU seconds and peak memory, in a process of its own. Beside it the same topology in networkx, at
graph level: the union of the shortest paths to the nearest node.

Growth: the requests of a subscription and the seconds for a network, from a thousand nodes to a hundred thousand,
beside n log² n.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from itertools import product
from math import isnan, log2, sqrt
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from freenet import tables
from freenet.trees import KEYS, REPAIRS, SUBSCRIBERS, TREES, WAYS, Way, grow, measure_repair, measure_trees
from race.machine import describe
from results import add_option, write
from text_table import table

from fyrehose_twisted.experiments import Policy, Topology
from fyrehose_twisted.process.progress import ProgressBar

PARTS = ("reference", "repair", "speed", "growth")
WANTED_SECONDS, WANTED_MEMORY = 120.0, 4096.0
"""For 100,000 nodes: seconds, and MiB."""
SIZES = (1_000, 3_162, 10_000, 31_623, 100_000)
UNDISTURBED = {"first_probe": 1e9, "restart_interval": 1e9}
"""In the reference a root has no time to probe for a better one."""
KINDS = ("as the reference", "our links", "looking roots")
"""Networks drawn like the reference's; drawn by the library; and the former with probing roots."""
# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
_T = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}


def interval(values: list[float]) -> str:
    """Return a mean over networks and its 95 % interval."""
    if len(values) < 2:
        return f"{mean(values):.3g}"
    half = _T.get(len(values) - 1, 1.96) * stdev(values) / sqrt(len(values))
    digits = 3 if mean(values) < 10 else 1
    return f"{mean(values):.{digits}f} ± {half:.{digits}f}"


def draw(kind: str, links: str, n: int, seed: int) -> Topology:
    """Return a network of degree 10."""
    if links == "random":
        return Topology.random(n, 10, seed)
    return Topology.kleinberg(n, 10, seed, draw="exact" if kind == "our links" else "reference")


def measure_reference(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Build the trees of the reference's table."""
    rows = []
    todo = [(row, kind) for row, kind in product(TREES, KINDS) if row.n <= options.largest]
    with ProgressBar(total=len(todo) * options.networks, unit=" networks") as progress:
        for row, kind in todo:
            found: dict[str, Any] = {"n": row.n, "links": row.links, "policy": row.policy, "kind": kind}
            for seed in range(options.seed, options.seed + options.networks):
                policy = Policy(**row.policy, **({} if kind == "looking roots" else UNDISTURBED))
                figures = measure_trees(draw(kind, row.links, row.n, seed), policy, seed)
                for name, value in figures.items():
                    found.setdefault(name, []).append(value)
                progress.update()
            rows.append(found)
    return rows


def measure_repairs(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Repair the trees of the reference's table in each way."""
    rows = []
    ways: list[tuple[int, float, dict[str, Any], Way]] = [
        (row.n, row.killed, {"accept": row.accept, **({} if way == "together" else UNDISTURBED)}, way)
        for row in REPAIRS
        for way in WAYS
    ]
    ways += [
        (n, share, {"on_parent_lost": "teardown"}, "together")
        for n, share in ((1_000, 0.1), (1_000, 0.3), (10_000, 0.1))
    ]
    ways = [way for way in ways if way[0] <= options.largest]
    with ProgressBar(total=len(ways) * options.networks, unit=" networks") as progress:
        for n, killed, policy, way in ways:
            found: dict[str, Any] = {"n": n, "killed": killed, "policy": policy, "way": way}
            for seed in range(options.seed, options.seed + options.networks):
                topology = draw("as the reference", "Kleinberg", n, seed)
                figures = measure_repair(topology, Policy(**policy), killed, seed, way)
                for name, value in figures.items():
                    found.setdefault(name, []).append(value)
                progress.update()
            rows.append(found)
    return rows


def measure_speed(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Simulate large networks, each in a process of its own, and measure networkx."""
    rows = []
    for n, degree in ((10_000, 10), (options.largest, 20)):
        for who in ("ours", "networkx"):
            tries = [_apart({"who": who, "n": n, "degree": degree, "seed": options.seed}) for _ in range(options.times)]
            rows.append({"who": who, "n": n, "degree": degree, "tries": tries})
    return rows


def measure_growth(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Simulate networks of growing size."""
    rows = []
    for n in (size for size in SIZES if size <= options.largest):
        tries = [
            _apart({"who": "ours", "n": n, "degree": 10, "seed": seed})
            for seed in range(options.seed, options.seed + options.times)
        ]
        rows.append({"n": n, "tries": tries})
    return rows


def _apart(what: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, str(Path(__file__)), "--child", json.dumps(what)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode:
        return {"missing": ran.stderr.strip().splitlines()[-1][:100]}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def child(what: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement in this process and return its figures."""
    topology = Topology.kleinberg(what["n"], what["degree"], what["seed"])
    began = time.process_time()
    found = _ours(topology, what["seed"]) if what["who"] == "ours" else _networkx(topology, what["seed"])
    found["seconds"] = time.process_time() - began
    found["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


def _ours(topology: Topology, seed: int) -> dict[str, Any]:
    experiment, keys = grow(topology, Policy(), seed)
    grown = time.process_time()
    messages = experiment.messages
    for _ in range(5):
        for key in keys:
            experiment.publish(experiment.subscribers(key)[0], key, b"x" * 100)
        experiment.run()
    found = experiment.metrics()
    return {
        "messages": messages,
        "later": found["subscribe_requests_later"],
        "delivered": found["delivery_ratio"],
        "published_seconds": time.process_time() - grown,
        "published_messages": experiment.messages - messages,
    }


def _networkx(topology: Topology, seed: int) -> dict[str, Any]:
    import random

    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(topology.n))
    graph.add_edges_from(topology.edges().tolist())
    rng = random.Random(seed)
    members = 0
    for _ in range(KEYS):
        root = rng.randrange(topology.n)
        nodes = rng.sample(range(topology.n), SUBSCRIBERS)
        ways = networkx.single_source_shortest_path(graph, root)
        members += len({one for node in nodes if node in ways for one in ways[node]})
    return {"members": members}


def print_reference(rows: list[dict[str, Any]]) -> None:
    """Print trees beside those of the reference."""
    names = ("roots", "reach", "first", "later", "depth", "deepest", "stretch", "members")
    shown = []
    for row in rows:
        known = next(one for one in TREES if (one.n, one.links, one.policy) == (row["n"], row["links"], row["policy"]))
        label = f"{known.n:,} {known.links} HTL {known.policy['max_htl']}"
        label += f" {known.policy.get('p_max', 0.1):g}/{known.policy.get('p_min', 0.2):g}"
        label += " keep" if "htl_on_closer" in known.policy else ""
        if row["kind"] == KINDS[0]:
            values = [getattr(known, name) for name in names]
            shown.append((label, "the reference", *("" if isnan(value) else f"{value:g}" for value in values)))
        shown.append((label, row["kind"], *(interval(row[name]) for name in names)))
    print("Trees, subscriptions one after the other: means over networks and their intervals of 95 %")
    table(("network", "drawn", *names), shown)


def print_repairs(rows: list[dict[str, Any]]) -> None:
    """Print repairs beside those of the reference."""
    shown = []
    for row in rows:
        policy = row["policy"]
        how = policy.get("on_parent_lost") or f"by {policy['accept']} location"
        label = f"{row['n']:,}, {row['killed']:.0%}, {how}"
        known = [
            one for one in REPAIRS if (one.n, one.killed, one.accept) == (row["n"], row["killed"], policy.get("accept"))
        ]
        if known and row["way"] == WAYS[0]:
            shown.append(
                (label, "the reference", f"{known[0].messages}", "", "", f"{known[0].roots}", f"{known[0].reach}")
            )
        figures = [interval(row[name]) for name in ("messages", "restarted", "seconds", "roots", "reach")]
        shown.append((label, row["way"], *figures))
    print("Repairs: messages and notices for each lost parent, seconds, and the trees afterwards")
    table(("nodes, killed, policy", "repaired", "messages", "notices", "seconds", "roots", "reach"), shown)


def print_speed(rows: list[dict[str, Any]]) -> bool:
    """Print durations; return whether the largest network stays within its limits."""
    shown, well = [], True
    for row in rows:
        tries = [one for one in row["tries"] if "missing" not in one]
        label = f"{row['n']:,} nodes, degree {row['degree']}", row["who"]
        if not tries:
            shown.append((*label, row["tries"][0]["missing"], "", "", ""))
            continue
        seconds, memory = median(one["seconds"] for one in tries), median(one["memory"] for one in tries)
        rates = ("", "")
        if row["who"] == "ours":
            grown = [one["seconds"] - one["published_seconds"] for one in tries]
            rates = (
                f"{median(one['messages'] / took for one, took in zip(tries, grown, strict=True)):,.0f}",
                f"{median(one['published_messages'] / one['published_seconds'] for one in tries):,.0f}",
            )
            well = well and seconds <= WANTED_SECONDS and memory <= WANTED_MEMORY
        shown.append((*label, f"{seconds:.1f}", f"{memory:,.0f}", *rates))
    print(f"{SUBSCRIBERS} subscribers on each of {KEYS} keys, medians: seconds of CPU, MiB, messages a second")
    table(("network", "who", "seconds", "MiB", "subscribing", "publishing"), shown)
    print(f"Wanted: {WANTED_SECONDS:g} s and {WANTED_MEMORY:,.0f} MiB: {'kept' if well else 'NOT KEPT'}")
    return well


def print_growth(rows: list[dict[str, Any]]) -> None:
    """Print the growth of requests and seconds."""
    sizes = [row["n"] for row in rows]
    later = [median(one["later"] for one in row["tries"]) for row in rows]
    seconds = [median(one["seconds"] for one in row["tries"]) for row in rows]
    shown = [
        (f"{n:,}", f"{hops:.2f}", f"{hops / log2(n) ** 2:.4f}", f"{took:.2f}", f"{took / (n * log2(n) ** 2) * 1e6:.3f}")
        for n, hops, took in zip(sizes, later, seconds, strict=True)
    ]
    print("Growth, degree 10: requests of a later subscription, and seconds of CPU for the whole experiment")
    table(("nodes", "requests", "by log² n", "seconds", "µs by n log² n"), shown)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", choices=PARTS, action="append", help="what to measure [all]")
    parser.add_argument("--networks", type=int, default=5, metavar="N", help="networks of each kind [%(default)s]")
    parser.add_argument("--times", type=int, default=3, metavar="N", help="runs of what is timed [%(default)s]")
    parser.add_argument("--largest", type=int, default=100_000, metavar="N", help="nodes at most [%(default)s]")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="the first seed [%(default)s]")
    add_option(parser, "freenet_trees")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(json.loads(options.child))))
        return 0
    parts = options.only or PARTS
    print(
        ", ".join(f"{name} {value}" for name, value in describe().items() if name in ("processor", "cores", "Python"))
    )
    well, told = True, dict[str, Any]()
    if "reference" in parts:
        print_reference(rows := measure_reference(options))
        told |= tables.reference(rows, interval)
    if "repair" in parts:
        print_repairs(rows := measure_repairs(options))
        told |= tables.repairs(rows, interval)
    if "speed" in parts:
        well = print_speed(rows := measure_speed(options)) and well
        told |= tables.speed(rows)
    if "growth" in parts:
        print_growth(rows := measure_growth(options))
        told |= tables.growth(rows)
    write(options.json, told, f"{options.networks} networks with 95 % confidence intervals, or {options.times} runs")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
