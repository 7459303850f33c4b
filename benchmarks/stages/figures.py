"""Figures of all rounds: tables, and the form in which they are written."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from text_table import number, table

from stages.chains import Row, rows
from stages.counters import Counts as ProcessCounts
from stages.counts import Counts
from stages.processes import Outcome
from stages.replay import Summary


class CaseFigures:
    """Figures of one case.

    :ivar rows: stages, and the whole.
    :ivar lost: part of the messages that could not be followed.
    :ivar stamped: median of the whole in µs, of all messages with time stamps.
    :ivar plain: the same without time stamps.
    :ivar counts: counts of each process for one message, without time stamps.
    """

    def __init__(self, name: str, stamped: Sequence[Outcome], plain: Sequence[Outcome]) -> None:
        self.name = name
        chains = [each.chains for each in stamped if each.chains is not None]
        self.rows: list[Row] = rows(chains)
        lost, followed = sum(each.lost for each in chains), sum(len(each.times) for each in chains)
        self.lost = lost / max(lost + followed, 1)
        self.stamped, self.plain = (median(each.whole for each in outcomes) for outcomes in (stamped, plain))
        self.counts = {
            name: _medians([each.counts[name] for each in plain if name in each.counts]) for name in plain[0].counts
        }

    def as_json(self) -> dict[str, Any]:
        """Return the figures, for a JSON file."""
        return {
            "stages": [row._asdict() for row in self.rows],
            "not_followed": self.lost,
            "median_with_stamps": self.stamped,
            "median_without_stamps": self.plain,
            "processes": {name: counts._asdict() for name, counts in self.counts.items()},
        }


def _medians(rounds: Sequence[ProcessCounts]) -> ProcessCounts:
    columns = ([value for value in column if value is not None] for column in zip(*rounds, strict=True))
    return ProcessCounts(*(median(known) if known else None for known in columns))  # type: ignore[arg-type]


def print_case(case: CaseFigures) -> None:
    """Print the stages and the processes of one case."""
    stages = [[row.stage, f"{row.median:.1f}", f"{row.p99:.1f}", f"{row.share:.0%}"] for row in case.rows]
    table((case.name, "median, µs", "99 %, µs", "share"), stages)
    print(f"median with time stamps {case.stamped:.1f} µs, without {case.plain:.1f} µs; not followed {case.lost:.1%}\n")
    processes = [
        [name, f"{counts.cpu:.1f}", number(counts.instructions), number(counts.cache_misses)]
        for name, counts in case.counts.items()
    ]
    table(("process, for a message", "CPU, µs", "instructions", "cache misses"), processes)


def print_nodes(times: dict[str, Summary], counts: dict[str, Counts]) -> None:
    """Print the table of the nodes."""
    heads = (
        "node, for a message",
        "median, µs",
        "99 %, µs",
        "CPU, µs",
        "cold, µs",
        "instructions",
        "L1 misses",
        "LL misses",
    )
    lines = [
        [
            name,
            *(f"{figure:.1f}" for figure in summary),
            *(map(number, [None] * 3) if name not in counts else map(number, counts[name])),
        ]
        for name, summary in times.items()
    ]
    table(heads, lines)


def nodes_as_json(times: dict[str, Summary], counts: dict[str, Counts]) -> dict[str, Any]:
    """Return the figures of the nodes, for a JSON file."""
    return {
        name: summary._asdict() | (counts[name]._asdict() if name in counts else {}) for name, summary in times.items()
    }
