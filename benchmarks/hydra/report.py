"""Tables of the results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from text_table import table

from hydra.failovers import CUT_OFF, KILLED, NO_SERVER, TERMINATED, UNGUARDED, Failover

KINDS = (KILLED, TERMINATED, CUT_OFF, NO_SERVER, UNGUARDED)
QUICK = (KILLED, TERMINATED, CUT_OFF, NO_SERVER)
WANTED_SECONDS, WANTED_RATE = 2.0, 10_000


def spread(values: Sequence[float]) -> tuple[str, str, str]:
    """Return the median, the 95th percentile and the maximum."""
    ordered = sorted(values)
    return f"{median(ordered):.3f}", f"{ordered[round(0.95 * (len(ordered) - 1))]:.3f}", f"{ordered[-1]:.3f}"


def by_kind(failovers: Iterable[Failover]) -> dict[tuple[float, str], list[Failover]]:
    """Return failovers by kind."""
    found: dict[tuple[float, str], list[Failover]] = {}
    for failover in failovers:
        found.setdefault((failover.scale, failover.kind), []).append(failover)
    return dict(sorted(found.items(), key=lambda item: (-item[0][0], KINDS.index(item[0][1]))))


def print_failovers(failovers: list[Failover], others: dict[str, list[float]]) -> None:
    """Print durations of failovers, and their ratios to other systems."""
    rows: list[Sequence[object]] = []
    for (scale, kind), those in by_kind(failovers).items():
        seconds = [failover.seconds for failover in those]
        ratios = [f"{median(seconds) / median(values):.2f}" for values in others.values()]
        rows.append((f"timescale {scale:g}, {kind}", len(those), *spread(seconds), *ratios))
    for name, values in others.items():
        rows.append((name, len(values), *spread(values), *("" for _ in others)))
    print("Seconds until the next leader is in the channel (others: until another node commits something)")
    table(("", "times", "median", "95 %", "longest", *(f"to {name}" for name in others)), rows)


def print_lines(failovers: list[Failover]) -> None:
    """Print the outcomes of lines."""
    names = ("talked", "lost", "lost at another time", "heard by one only", "heard twice", "reported as missed")
    said = ("to be said", "outcome said", "outcome uncertain", "outcome refused", "outcome nothing")
    said += ("said, never seen", "uncertain, but seen", "refused, but seen", "said twice")
    groups = {f"timescale {scale:g}, {kind}": those for (scale, kind), those in by_kind(failovers).items()}
    groups[f"all {len(failovers)}"] = failovers
    for title, columns in (("Lines from IRC", names), ("Lines for IRC, once at most", said)):
        print(title)
        rows = []
        for name, those in groups.items():
            total: Counter[str] = sum((failover.lines for failover in those), Counter())
            rows.append((name, *(f"{total[column]:,}" for column in columns)))
        table(("", *(column.removeprefix("outcome ") for column in columns)), rows)


def print_rates(rates: dict[str, list[dict[str, float]]]) -> None:
    """Print lines a second, and the cost of a line at each node."""
    print("Lines a second, and µs of CPU of each node for a line (a leads, c is at the far end)")
    rows = []
    for name, turns in rates.items():
        middle = {key: median(turn[key] for turn in turns) for key in turns[0]}
        costs = [f"{middle[node]:.1f}" if node in middle else "" for node in "abc"]
        rows.append((name, f"{middle['rate']:,.0f}", *costs, len(turns)))
    table(("", "lines/s", "a", "b", "c", "rounds"), rows)


def print_wants(failovers: list[Failover], rates: dict[str, list[dict[str, float]]]) -> bool:
    """Print targets and results; return whether all targets are met."""
    found: list[tuple[str, str, bool]] = []
    for (scale, kind), those in by_kind(failovers).items():
        if scale == 1.0 and kind in QUICK:
            middle = median(failover.seconds for failover in those)
            found.append((f"{kind}: median below {WANTED_SECONDS:g} s", f"{middle:.2f}", middle < WANTED_SECONDS))
    for what in ("said twice", "heard twice") if failovers else ():
        count = sum(failover.lines[what] for failover in failovers)
        found.append((f"{what}: 0", f"{count:,}", count == 0))
    if "relay" in rates:
        rate = median(turn["rate"] for turn in rates["relay"])
        found.append((f"relay: {WANTED_RATE:,} lines/s", f"{rate:,.0f}", rate > WANTED_RATE))
    if found:
        table(("wanted", "measured", ""), [(want, value, "yes" if well else "NO") for want, value, well in found])
    return all(well for _, _, well in found)


def as_json(failovers: list[Failover]) -> list[dict[str, Any]]:
    """Return failovers for a JSON file."""
    return [failover._asdict() for failover in failovers]
