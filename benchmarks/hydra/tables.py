"""Results of the hydra benchmark as tables for the docs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median
from typing import Any

from hydra.failovers import Failover
from hydra.report import by_kind, spread

LINES = {
    "sent by clients on IRC": "talked",
    "received by no node around a failover": "lost",
    "received by no node at other times": "lost at another time",
    "received by only one of the other two nodes": "heard by one only",
    "received twice": "heard twice",
    "requested to send": "to be said",
    "reported as said": "outcome said",
    "reported as said, but never seen": "said, never seen",
    "reported as uncertain": "outcome uncertain",
    "reported as uncertain, but seen": "uncertain, but seen",
    "seen twice": "said twice",
}
RELAYS = {
    "from IRC to the far end": "relay",
    "from the far end to IRC, acknowledged": "say",
    "ngircd alone, one client to another": "ngircd alone",
}


def tables(
    failovers: Sequence[Failover], others: dict[str, list[float]], rates: dict[str, list[dict[str, float]]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the tables of everything that was measured."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    if failovers:
        found["hydra"] = {}
        for (scale, kind), those in by_kind(failovers).items():
            name = kind if scale == 1.0 else f"{kind}, a tenth of the timers"
            middle, most, longest = map(float, spread([failover.seconds for failover in those]))
            peers = {other: median(seconds) for other, seconds in others.items() if seconds}
            found["hydra"][name] = {"median": middle, "95 %": most, "longest": longest, **peers}
        total: Counter[str] = sum((failover.lines for failover in failovers), Counter())
        found["hydra-lines"] = {name: {"lines": total[counted]} for name, counted in LINES.items()}
    if rates:
        found["hydra-relay"] = {}
        for name, kind in RELAYS.items():
            turns = rates.get(kind, [])
            middles = {key: median(turn[key] for turn in turns) for key in (turns[0] if turns else {})}
            row = {"lines/s": middles.get("rate"), **{f"µs at *{node}*": middles.get(node) for node in "abc"}}
            found["hydra-relay"][name] = row
    return found
