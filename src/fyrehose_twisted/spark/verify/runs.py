"""Findings of a comparison as runs of numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

MISSING, DUPLICATE, DIVERGENCE, ORDER, CLOCK = "missing", "duplicate", "divergence", "order", "clock"
"""Values of ``kind``."""

DECLARED, DAMAGED, BEFORE, AFTER, NOBODY = "lost", "damaged", "before", "after", "nobody"
"""Reasons for missing numbers: declared lost by the journal, damaged, before the journal's beginning, beyond its
watermark, or in no journal."""

TWICE, PAYLOAD, SEGMENT, EPOCH, BACKWARDS = "stored-twice", "payload", "segment", "epoch", "backwards"
"""Reasons of the other kinds."""


class FindingRun(NamedTuple):
    """Run of numbers with the same finding."""

    kind: str
    reason: str
    journal: str | None
    """``None`` if the finding concerns all journals."""
    first: int
    last: int
    numbers: int
    """Count of affected numbers; the run may contain others."""
    detail: str | None = None


class ShareEdge(NamedTuple):
    """First and last record of a journal in a range, for comparison with adjacent ranges."""

    journal: str
    first: int
    last: int
    records: int
    """Number of the journal's records in the range."""
    first_time: int
    """Receive time of the first record, in UTC microseconds since 1970; likewise ``last_time``."""
    last_time: int


class FindingRunMerger:
    """Merger of adjacent runs with the same finding.

    Runs of one kind, reason and journal must be added in ascending order. Runs are kept in memory until taken.
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
        """Remove and return the complete runs."""
        ready, self._ready = self._ready, []
        return ready

    def close(self) -> list[FindingRun]:
        """Remove and return all remaining runs."""
        ready = [*self._ready, *self._open.values()]
        self._ready, self._open = [], {}
        return ready

    def __len__(self) -> int:
        return len(self._ready)


def merge_runs(runs: Iterable[FindingRun]) -> Iterator[FindingRun]:
    """Merge adjacent runs and return them sorted."""
    whole = FindingRunMerger()
    for run in sorted(runs, key=_run_order):
        whole.join(run)
    return iter(sorted(whole.close(), key=_run_order))


def clock_regression(microseconds: int) -> str:
    """Return the detail of a clock regression."""
    return f"by {microseconds / 1_000_000:.6f} s"


CLOCK_REGRESSION_FORMAT = "by %.6f s"
"""Spark format string of the same detail."""


def _run_order(run: FindingRun) -> tuple[str, str, str, int]:
    return run.kind, run.reason, run.journal or "", run.first
