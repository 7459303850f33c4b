"""Results of the measurements."""

from __future__ import annotations

from collections.abc import Iterable
from math import log
from statistics import linear_regression, median
from typing import Any

Figures = dict[str, float]


def rates(times: list[float], seconds: float) -> Figures:
    """Return throughput and percentiles, in seconds, of operations that took ``times`` within ``seconds``."""
    ordered = sorted(times) or [float("nan")]
    return {
        "rate": len(times) / seconds,
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[int(len(ordered) * 0.99)],
        "count": len(times),
    }


def exponent(sizes: Iterable[int], costs: Iterable[float]) -> float:
    """Return the exponent of the growth of costs: the slope of a line through the logarithms."""
    return linear_regression([log(size) for size in sizes], [log(cost) for cost in costs]).slope


class Results:
    """Figures of all rounds, by size of the cluster and by load.

    :ivar failover: seconds of every failover, by system.
    :ivar missing: programs that are not installed, with advice.
    :ivar failures: errors.
    :ivar notes: further remarks.
    :ivar took: seconds of each part over all rounds.
    """

    def __init__(self) -> None:
        self.rounds: dict[int, dict[str, list[Figures | None]]] = {}
        self.failover: dict[str, list[float]] = {}
        self.missing: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.notes: list[str] = []
        self.took: dict[str, float] = {}

    def add(self, turn: int, size: int, load: str, figures: Figures) -> None:
        """Add the figures of round ``turn``, counted from 0."""
        rounds = self.rounds.setdefault(size, {}).setdefault(load, [])
        rounds += [None] * (turn + 1 - len(rounds))
        rounds[turn] = figures

    def values(self, size: int, load: str, figure: str = "rate") -> list[float | None]:
        """Return a figure of every round, in order."""
        rounds = self.rounds.get(size, {}).get(load, [])
        return [None if figures is None else figures.get(figure) for figures in rounds]

    def median(self, size: int, load: str, figure: str = "rate") -> float | None:
        """Return the median of a figure, ``None`` without one."""
        values = [value for value in self.values(size, load, figure) if value is not None]
        return median(values) if values else None

    def total(self, load: str, figure: str) -> float:
        """Return the sum of a figure over all rounds and sizes."""
        return sum(value or 0 for size in self.rounds for value in self.values(size, load, figure))

    def ratio(self, size: int, load: str, others: Iterable[str], figure: str = "rate") -> float | None:
        """Return the median of the ratios of each round of ``load`` to the best of ``others``."""
        columns = [self.values(size, other, figure) for other in others]
        ratios = []
        for turn, ours in enumerate(self.values(size, load, figure)):
            theirs = [column[turn] for column in columns if turn < len(column) and column[turn] is not None]
            best = max(theirs, default=None) if figure == "rate" else min(theirs, default=None)
            if ours is not None and best:
                ratios.append(ours / best)
        return median(ratios) if ratios else None

    def as_json(self) -> dict[str, Any]:
        """Return all results, for a JSON file."""
        return {
            "missing": self.missing,
            "failures": self.failures,
            "notes": self.notes,
            "took_seconds": self.took,
            "rounds": self.rounds,
            "failover_seconds": self.failover,
        }
