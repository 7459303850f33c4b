"""Results of the benchmark of relays as tables for the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

from relay.cost import FAN_OUTS, KINDS, SYSTEMS, Costs, line
from relay.crowds import LAYOUTS, TREE, Found
from relay.levels import Latencies
from relay.spread import Spread

Rows = dict[str, dict[str, float | None]]
GROUPS = {"backbone": 0, "relays": 1, "subscribers": 2}
"""Groups of processes, and their places in CPU times."""
FIRST_TO_LAST = "first to last datagram, ms"


def cost_rows(costs: Costs) -> Rows:
    """Return µs of CPU time for each delivery, and for each message in addition to its deliveries."""
    middle = {case: median(rounds) for case, rounds in costs.items()}
    rows: Rows = {}
    for kind in KINDS:
        for fan_out in FAN_OUTS:
            cells: dict[str, float | None] = {system: middle[kind, fan_out, system] for system in SYSTEMS}
            rows[f"{kind}, {fan_out} subscriber{'s' if fan_out > 1 else ''}"] = cells
    for kind in KINDS:
        # The cost of a message with its deliveries, as a line over their number.
        rows[f"{kind}, a message besides deliveries"] = {
            system: line([(fan_out, fan_out * middle[kind, fan_out, system]) for fan_out in FAN_OUTS])[0]
            for system in SYSTEMS
        }
    return rows


def level_rows(latencies: Latencies) -> Rows:
    """Return medians over rounds, and the difference to the depth before."""
    rows: Rows = {}
    before: float | None = None
    for depth, rounds in latencies.items():
        middle = median(each.median for each in rounds) * 1e6
        rows[name_of(depth)] = {
            "median": middle,
            "99 %": median(each.p99 for each in rounds) * 1e6,
            "added to the median": None if before is None else middle - before,
        }
        before = middle
    medians = [row["median"] or 0.0 for row in rows.values()]
    rows["each level"] = {"added to the median": (medians[-1] - medians[0]) / (len(medians) - 1)}
    return rows


def name_of(depth: int) -> str:
    """Return what is between a publisher and a subscriber."""
    return "backbone" if not depth else f"{depth} relay{'s' if depth > 1 else ''}"


def tree_rows(found: Mapping[str, Sequence[Found]], spreads: Mapping[str, Sequence[Spread]]) -> Rows:
    """Return medians over rounds for both layouts."""
    rows: Rows = {}

    def add(row: str, layout: str, value: float) -> None:
        rows.setdefault(row, {})[layout] = value

    for layout in LAYOUTS:
        stamped = spreads.get(layout, ())
        if stamped:
            add(FIRST_TO_LAST, layout, median(each.between for each in stamped) * 1e3)
            add("publication to last datagram, ms", layout, median(each.last for each in stamped) * 1e3)
    for layout in LAYOUTS:
        rounds = found.get(layout, ())
        if not rounds:
            continue
        for name, group in GROUPS.items():
            if name != "relays" or layout == TREE:
                add(f"{name} at rest, CPU of a second, ms", layout, median(each.rest[group] for each in rounds) * 1e3)
        for name, group in GROUPS.items():
            if name != "relays" or layout == TREE:
                used = median(each.calm.cpu[group] * each.calm.rate / each.calm.messages for each in rounds)
                add(f"{name} at {rounds[0].calm.rate:g} messages/s, CPU of a second, ms", layout, used * 1e3)
        add("first to last callback, ms", layout, median(each.calm.spread for each in rounds) * 1e3)
        fastest = [each.highest for each in rounds if each.highest is not None]
        if fastest:
            shares = [step.cpu[GROUPS["subscribers"]] / sum(step.cpu) for step in fastest]
            add("messages/s without loss", layout, median(step.rate for step in fastest))
            add("share of the subscribers in all CPU time", layout, median(shares))
        add("memory of the relay or backbone that serves them, MiB", layout, rounds[-1].resident / 2**20)
    return rows


def simulated_rows(figures: Mapping[str, float], messages: int) -> Rows:
    """Return what a simulated tree has taken."""
    rows = {
        "relays": figures["relays"],
        "subscribers": figures["subscribers"],
        "messages received by each": messages,
        "deliveries to subscribers": figures["deliveries"],
        "datagrams": figures["datagrams"],
        "lost on links": figures["lost"],
        "messages repaired for subscribers": figures["repaired"],
        "messages repaired for relays": figures["repaired, relays"],
        "REQUESTs of subscribers": figures["requests"],
        "of these, for what the relay has requested itself": figures["awaited"],
        "REQUESTs passed to the next level": figures["passed"],
        "simulated seconds": figures["virtual"],
        "last receipt after the last message, simulated s": figures["virtual, last"],
        "CPU seconds": figures["CPU"],
        "memory, GiB": figures["resident"] / 2**30,
    }
    return {name: {TREE: value} for name, value in rows.items()}
