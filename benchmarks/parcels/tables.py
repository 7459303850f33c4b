"""Results of the parcels benchmark as tables for the docs."""

from __future__ import annotations

from statistics import median
from typing import Any

from results import Tables

from parcels import failover, wanted
from parcels.figures import Results

OURS, SYNCED, NO_FSYNC, FSYNC, SYNCOBJ = "parcels", "parcels --sync", "etcd, no fsync", "etcd, fsync", "PySyncObj"
ETCD_MANY = (wanted.ETCD_SHARED, wanted.ETCD_OWN)
ETCD_MANY_FSYNC = (wanted.ETCD_SHARED_FSYNC, wanted.ETCD_OWN_FSYNC)
LOADS: dict[str, dict[str, tuple[str, ...]]] = {
    "1 client": {
        OURS: (wanted.SEQUENTIAL,),
        SYNCED: (wanted.SYNCED_ONE,),
        NO_FSYNC: (wanted.ETCD_ONE,),
        FSYNC: (wanted.ETCD_ONE_FSYNC,),
        SYNCOBJ: (wanted.SYNCOBJ_ONE_AT_ONCE,),
    },
    "64 clients, one connection": {
        OURS: (wanted.ONE_CONNECTION,),
        SYNCED: (wanted.SYNCED_MANY,),
        NO_FSYNC: ETCD_MANY,
        FSYNC: ETCD_MANY_FSYNC,
    },
    "64 clients, 64 connections": {
        OURS: (wanted.OWN_CONNECTIONS,),
        NO_FSYNC: ETCD_MANY,
        FSYNC: ETCD_MANY_FSYNC,
    },
    "256 in flight": {OURS: (wanted.PIPELINED[256],)},
    "512 in flight": {OURS: (wanted.PIPELINED[512],), SYNCOBJ: (wanted.SYNCOBJ_MANY,)},
}
"""Loads of each system; the best rate counts."""
HTTP = {
    "1 client": {OURS: wanted.HTTP_ONE, "bare twisted.web": wanted.BARE_ONE},
    "64 clients": {OURS: wanted.HTTP_MANY, "bare twisted.web": wanted.BARE_MANY},
}
REFERENCES = {
    "one sequential client": "1 client",
    "one at each of both": "1 client at each node",
    "concurrent clients": "many in flight",
}


def best(results: Results, size: int, loads: tuple[str, ...]) -> tuple[float | None, float | None]:
    """Return the best rate of ``loads`` and its median latency in ms."""
    rates = [(rate, load) for load in loads if (rate := results.median(size, load)) is not None]
    if not rates:
        return None, None
    rate, load = max(rates)
    p50 = results.median(size, load, "p50")
    return rate, None if p50 is None else p50 * 1e3


def tables(results: Results) -> Tables:
    """Return the tables of everything that was measured."""
    found: dict[str, dict[str, dict[str, Any]]] = {"parcels": {}, "parcels-latency": {}}
    sizes = sorted(results.rounds)
    for label, systems in LOADS.items():
        for size in sizes:
            pairs = {system: best(results, size, loads) for system, loads in systems.items()}
            found["parcels"][f"{label}, {size} nodes"] = {system: rate for system, (rate, _) in pairs.items()}
            found["parcels-latency"][f"{label}, {size} nodes"] = {system: p50 for system, (_, p50) in pairs.items()}
    found["parcels-http"] = {
        f"{label}, {size} nodes": {system: results.median(size, load) for system, load in systems.items()}
        for label, systems in HTTP.items()
        for size in sizes
    }
    nodes, costs, _ = wanted.growth(results)
    found["parcels-cpu"] = {
        f"{size} nodes": {"all nodes": cost, "each node": cost / size} for size, cost in zip(nodes, costs, strict=True)
    }
    found["parcels-reference"] = {
        REFERENCES[what]: {OURS: results.median(2, load), "reference": theirs}
        for what, (load, theirs) in wanted.REFERENCE.items()
    }
    found["parcels-failover"] = failovers(results)
    full = {
        name: {row: cells for row, cells in rows.items() if cells.get(OURS, 0) is not None}
        for name, rows in found.items()
    }
    return {name: rows for name, rows in full.items() if rows}


def failovers(results: Results) -> dict[str, dict[str, Any]]:
    """Return seconds of failovers."""
    rows: dict[str, dict[str, Any]] = {}
    for label, systems in (
        ("`kill -9`", {OURS: failover.OURS_KILLED, "etcd": failover.ETCD, SYNCOBJ: failover.SYNCOBJ}),
        ("silent", {OURS: failover.OURS_SILENT}),
    ):
        times = {system: results.failover[whose] for system, whose in systems.items() if results.failover.get(whose)}
        for name, of in (("median", median), ("longest", max)):
            if times:
                rows[f"{label}, {name}"] = {system: of(each) for system, each in times.items()}
    return rows
