"""Results of the race as tables for the docs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from results import Tables

from race.servers import NATS, OURS, REDIS, ZEROMQ

CLIENTS = {OURS: OURS, NATS: "nats-py", REDIS: "redis-py, hiredis", ZEROMQ: "pyzmq"}


def tables(results: Any) -> Tables:
    """Return the tables of all parts that were measured."""

    def row(part: str, case: str, figure: str, scale: float, names: dict[str, str] | None = None) -> dict[str, Any]:
        systems: Iterable[str] = results.rounds[part][case]
        medians = {(names or {}).get(each, each): results.median(part, case, each, figure) for each in systems}
        return {name: None if value is None else value * scale for name, value in medians.items()}

    def by_case(part: str, figure: str, scale: float, label: str = "{}") -> dict[str, dict[str, Any]]:
        return {cell(label.format(case)): row(part, case, figure, scale) for case in results.rounds[part]}

    found: dict[str, dict[str, dict[str, Any]]] = {}
    if "broker" in results.rounds:
        found["broker"] = by_case("broker", "deliveries_per_cpu_second", 1e-3)
        found["broker-rates"] = by_case("broker", "messages_per_second", 1e-3)
    if "subscriber" in results.rounds:
        found["subscriber"] = {
            name: row("subscriber", "", figure, 1e-3, CLIENTS)
            for name, figure in (("a second", "messages_per_second"), ("a CPU-second", "messages_per_cpu_second"))
        }
    if "latency" in results.rounds:
        found["round-trips"] = {
            name: row("latency", "", figure, 1e6) for name, figure in (("median, µs", "p50"), ("99 %, µs", "p99"))
        }
    if "crowd" in results.rounds:
        found["crowd"] = by_case("crowd", "microseconds_per_delivery", 1.0, "{} subscribers")
        found["crowd-load"] = by_case("crowd", "broker_load", 1.0, "{} subscribers")
    return found


def cell(case: str) -> str:
    """Return a case of the broker with separated thousands."""
    first, times, size = case.partition(" x ")
    return f"{first}{times}{int(size):,}" if times else case
