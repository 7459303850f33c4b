"""What a comparison finds, as runs of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

MISSING, DUPLICATE, DIVERGENCE, ORDER, CLOCK = "missing", "duplicate", "divergence", "order", "clock"
"""Values of ``kind``."""

DECLARED, DAMAGED, BEFORE, AFTER, NOBODY = "lost", "damaged", "before", "after", "nobody"
"""Reasons for what is missing: the journal says that it is lost for good, its bytes are bad, it lies before the
journal's beginning or beyond its watermark, or no journal has it."""

TWICE, PAYLOAD, SEGMENT, EPOCH, BACKWARDS = "stored-twice", "payload", "segment", "epoch", "backwards"
"""Reasons of the other kinds."""


class FindingRun(NamedTuple):
    """Numbers of which the same is to be said."""

    kind: str
    reason: str
    journal: str | None
    """``None`` if it concerns all of them."""
    first: int
    last: int
    numbers: int
    """How many are concerned; there may be others between them."""
    detail: str | None = None


class ShareEdge(NamedTuple):
    """How a journal's records of one range begin and end, so that neighbours across ranges can be compared."""

    journal: str
    first: int
    last: int
    records: int
    """How many the journal has in the range."""
    first_time: int
    """When the first was received, UTC microseconds since 1970."""
    last_time: int


class FindingRunMerger:
    """Puts runs together that lie next to each other and say the same.

    Those of one kind, reason and journal have to be added in ascending order. What waits to be taken is kept in memory.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[str, str, str | None], FindingRun] = {}
        self._ready: list[FindingRun] = []

    def add(
        self, kind: str, reason: str, journal: str | None, first: int, last: int, detail: str | None = None
    ) -> None:
        """Add the numbers from ``first`` to ``last``."""
        self.join(FindingRun(kind, reason, journal, first, last, last - first + 1, detail))

    def join(self, run: FindingRun) -> None:
        """Add a run."""
        key = run[:3]
        before = self._open.get(key)
        if before is not None:
            if before.last + 1 >= run.first and before.detail == run.detail:
                run = run._replace(
                    first=before.first, last=max(before.last, run.last), numbers=before.numbers + run.numbers
                )
            else:
                self._ready.append(before)
        self._open[key] = run

    def take(self) -> list[FindingRun]:
        """Return those to which nothing can be added any more."""
        ready, self._ready = self._ready, []
        return ready

    def close(self) -> list[FindingRun]:
        """Return all that are left."""
        ready = [*self._ready, *self._open.values()]
        self._ready, self._open = [], {}
        return ready

    def __len__(self) -> int:
        return len(self._ready)


def merge_runs(runs: Iterable[FindingRun]) -> Iterator[FindingRun]:
    """Return runs, however they were cut, put together and sorted."""
    whole = FindingRunMerger()
    for run in sorted(runs, key=_run_order):
        whole.join(run)
    return iter(sorted(whole.close(), key=_run_order))


def clock_regression(microseconds: int) -> str:
    """Return the detail of a clock that went back."""
    return f"by {microseconds / 1_000_000:.6f} s"


CLOCK_REGRESSION_FORMAT = "by %.6f s"
"""The same as a format for Spark."""


def _run_order(run: FindingRun) -> tuple[str, str, str, int]:
    return run.kind, run.reason, run.journal or "", run.first
