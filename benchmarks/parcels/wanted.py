"""Targets of the parcels cluster, and whether they are met."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from parcels.failover import OURS_KILLED, OURS_SILENT
from parcels.figures import Results, exponent

SEQUENTIAL, SPLIT = "ours, 1 client", "ours, 1 client at each node"
ONE_CONNECTION, OWN_CONNECTIONS = "ours, 64 clients, one connection", "ours, 64 clients, 64 connections"
SYNCED_ONE, SYNCED_MANY = "ours, --sync, 1 client", "ours, --sync, 64 clients, one connection"
FLIGHTS = (256, 512, 1_024, 4_096)
PIPELINED = {flight: f"ours, {flight:,} in flight" for flight in FLIGHTS}
HTTP_ONE, HTTP_MANY = "ours, HTTP, 1 client", "ours, HTTP, 64 clients"
BARE_ONE, BARE_MANY = "bare twisted.web, 1 client", "bare twisted.web, 64 clients"
ECHO = "bare Twisted, TCP echo"
ETCD_ONE, ETCD_ONE_FSYNC = "etcd, no fsync, 1 client", "etcd, fsync, 1 client"
ETCD_SHARED, ETCD_OWN = "etcd, no fsync, 64 clients, one connection", "etcd, no fsync, 64 clients, 64 connections"
ETCD_SHARED_FSYNC, ETCD_OWN_FSYNC = "etcd, fsync, 64 clients, one connection", "etcd, fsync, 64 clients, 64 connections"
SYNCOBJ_ONE, SYNCOBJ_MANY = "PySyncObj, 1 in flight", "PySyncObj, 4,096 in flight"
SYNCOBJ_ONE_AT_ONCE = "PySyncObj, 1 in flight, no batches"
REFERENCE = {
    "one sequential client": (SEQUENTIAL, 90.2),
    "one at each of both": (SPLIT, 181.0),
    "concurrent clients": (PIPELINED[4_096], 1_850.0),
}
"""Events/s of the reference with two nodes as published by its authors, on another machine."""
LINEAR = 1.05
"""Exponent up to which growth counts as linear; medians of a few rounds differ by this much between runs."""


class Want(NamedTuple):
    """A target: description, number of nodes, result (``None`` if not measured), and bound."""

    what: str
    nodes: str
    value: float | None
    target: str
    met: bool
    note: str = ""


def _at_least(what: str, size: int, value: float | None, target: float, note: str = "") -> Want:
    return Want(what, str(size), value, f">= {target:g}", value is not None and value >= target, note)


def enough_in_flight(results: Results, size: int) -> tuple[str | None, float | None, float | None]:
    """Return the load with the fewest events in flight that beats PySyncObj, and the ratios of rates and p50."""
    for load in (ONE_CONNECTION, *PIPELINED.values()):
        ratio = results.ratio(size, load, [SYNCOBJ_MANY])
        if ratio is not None and ratio > 1:
            return load, ratio, results.ratio(size, load, [SYNCOBJ_MANY], "p50")
    return None, None, None


def growth(results: Results) -> tuple[list[int], list[float], float | None]:
    """Return sizes, CPU µs of all nodes per event with the most in flight, and the exponent of their growth."""
    pairs = [
        (size, cost)
        for size in sorted(results.rounds)
        if (cost := results.median(size, PIPELINED[FLIGHTS[-1]], "node_us_per_event")) is not None
    ]
    sizes, costs = [size for size, _ in pairs], [cost for _, cost in pairs]
    return sizes, costs, exponent(sizes, costs) if len(pairs) > 1 else None


def wants(results: Results) -> Iterator[Want]:
    """Yield all targets for the results."""
    for size in sorted(results.rounds):
        yield _at_least("1 client / etcd without fsync", size, results.ratio(size, SEQUENTIAL, [ETCD_ONE]), 1)
    for size in sorted(results.rounds):
        for load, kind, same in (
            (ONE_CONNECTION, "one connection", ETCD_SHARED),
            (OWN_CONNECTIONS, "64 connections", ETCD_OWN),
        ):
            ratio, alike = results.ratio(size, load, [ETCD_SHARED, ETCD_OWN]), results.ratio(size, load, [same])
            note = "" if alike is None else f"{alike:.2f} of etcd's with {kind}"
            yield _at_least(f"64 clients, {kind} / etcd's best without fsync", size, ratio, 2, note)
    for size in sorted(results.rounds):
        if results.ratio(size, ONE_CONNECTION, [SYNCOBJ_MANY]) is None:
            continue
        load, ratio, p50 = enough_in_flight(results, size)
        note = f"with {load}" if load else "never"
        yield Want("pipelined / PySyncObj", str(size), ratio, "> 1", load is not None, note)
        met = p50 is not None and p50 <= 0.1
        yield Want("p50 then / PySyncObj's", str(size), p50, "<= 0.1", met, note)
    for what, (load, theirs) in REFERENCE.items():
        rate = results.median(2, load)
        if rate is not None:
            yield _at_least(f"{what} / reference's {theirs:,}", 2, rate / theirs, 20, load)
    for size in sorted(results.rounds):
        for ours, bare in ((HTTP_ONE, BARE_ONE), (HTTP_MANY, BARE_MANY)):
            yield _at_least(f"{ours.removeprefix('ours, ')} / bare", size, results.ratio(size, ours, [bare]), 0.7)
    for whose, limit in ((OURS_KILLED, 1.0), (OURS_SILENT, 6.0)):
        if times := results.failover.get(whose):
            note = f"the longest of {len(times)}; median {median(times):.3f}"
            yield Want(f"fail-over, {whose}, s", "3", max(times), f"< {limit:g}", max(times) < limit, note)
    sizes, costs, power = growth(results)
    note = ", ".join(f"{size} nodes: {cost:.1f} µs" for size, cost in zip(sizes, costs, strict=True))
    met = power is not None and power <= LINEAR
    yield Want("CPU of all nodes for an event ~ nodes^", "all", power, f"<= {LINEAR:g}", met, note)
