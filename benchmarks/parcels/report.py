"""Printed report."""

from __future__ import annotations

from statistics import median

from text_table import number, table

from parcels.failover import SIZE
from parcels.figures import Results
from parcels.wanted import ECHO, ETCD_ONE, ETCD_OWN, ETCD_SHARED, SEQUENTIAL, SYNCOBJ_MANY, growth, wants


def micro(value: float | None) -> str:
    """Format seconds as microseconds."""
    return number(None if value is None else value * 1e6)


def print_loads(results: Results) -> None:
    """Print a table for each size."""
    for size in sorted(results.rounds):
        print(f"{size} nodes, 128 bytes\n")
        rows = []
        for load in results.rounds[size]:
            shown = number(results.median(size, load))
            rows.append([load, shown, *(micro(results.median(size, load, figure)) for figure in ("p50", "p99"))])
            for figure in ("node_us_per_event", "client_us_per_event"):
                rows[-1].append(number(results.median(size, load, figure), 1))
            for others in ([ETCD_ONE], [ETCD_SHARED, ETCD_OWN], [SYNCOBJ_MANY]):
                ratio = results.ratio(size, load, others) if load.startswith("ours") else None
                rows[-1].append(number(ratio, 2))
        head = ["", "ops/s", "p50 µs", "p99 µs", "CPU µs/op: nodes", "client"]
        table([*head, "/ etcd 1 client", "/ etcd 64 clients", "/ PySyncObj 4,096"], rows)
    sizes = sorted(results.rounds)
    floors = [
        f"{ours / floor:.1f} at {size}"
        for size in sizes
        if (ours := results.median(size, SEQUENTIAL, "p50")) and (floor := results.median(size, ECHO, "p50"))
    ]
    if floors:
        print(f"Our p50 with 1 client, in TCP echos of bare Twisted: {', '.join(floors)} nodes.")
    lost = {figure: int(results.total(SYNCOBJ_MANY, figure)) for figure in ("lost", "failed")}
    print(f"PySyncObj: {lost['lost']:,} callbacks were never called, {lost['failed']:,} said that it failed.\n")


def print_failover(results: Results) -> None:
    """Print failovers."""
    if not results.failover:
        return
    print(f"Seconds from the end of the node that orders, of {SIZE}, to the next answer by another\n")
    rows = [
        [whose, str(len(times)), number(median(times), 3), number(max(times), 3)]
        for whose, times in results.failover.items()
    ]
    table(["", "times", "median", "longest"], rows)


def print_growth(results: Results) -> None:
    """Print the cost of an event."""
    sizes, costs, power = growth(results)
    if power is None:
        return
    rows = [[str(size), number(cost, 1), number(cost / size, 1)] for size, cost in zip(sizes, costs, strict=True)]
    table(["nodes", "CPU µs of all for an event", "of each"], rows)


def print_wants(results: Results) -> None:
    """Print targets and results."""
    rows = [
        [want.what, want.nodes, number(want.value, 2), want.target, "met" if want.met else "MISSED", want.note]
        for want in wants(results)
        if want.value is not None or want.note == "never"
    ]
    table(["wanted", "nodes", "is", "should be", "", "note"], rows)
