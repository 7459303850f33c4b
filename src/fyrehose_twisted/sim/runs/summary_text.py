"""What came of runs, in words."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fyrehose_twisted.sim.runs.runner import Summary
    from fyrehose_twisted.sim.scenario import Outcome


def many(count: int, noun: str) -> str:
    """Return ``1 seed``, ``1,204 seeds`` or ``1.2 million seeds``."""
    number = f"{count:,}" if count < 1_000_000 else f"{count / 1e6:,.1f} million"
    return f"{number} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a duration, in hours once it is long."""
    if seconds >= 3 * 3_600:
        return f"{seconds / 3_600:,.0f} hours"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.3f} s"


def of_one(outcome: Outcome) -> str:
    """Return what came of one run."""
    run = f"{outcome.scenario}, seed {outcome.seed}"
    if outcome.violation is not None:
        return f"{run}: {outcome.violation}"
    return (
        f"{run}: {duration(outcome.simulated)} simulated in {duration(outcome.took)}"
        f" ({outcome.simulated / max(outcome.took, 1e-6):,.0f} times real time), {_counts(outcome)},"
        f" {_datagrams(outcome.counts)}: everything held"
    )


def of_many(summary: Summary, cores: int) -> str:
    """Return what came of many runs on so many cores."""
    broke = f"{many(len(summary.failures), 'seed')} broke" if summary.failures else "everything held"
    return (
        f"{summary.scenario}: {many(summary.count, 'seed')}, {duration(summary.simulated)} simulated in"
        f" {duration(summary.took)} on {many(cores, 'core')}: {many(round(summary.rate), 'simulated hour')} an hour,"
        f" {_counts(summary)}: {broke if summary.count else 'nothing was run'}"
    )


def _counts(of: Outcome | Summary) -> str:
    return f"{many(of.operations, 'operation')}, {many(of.faults, 'fault')}"


def _datagrams(counts: Counter[str]) -> str:
    dropped = counts["dropped"]
    return f"{many(counts['sent'], 'datagram')} of which {dropped:,} {'was' if dropped == 1 else 'were'} dropped"
