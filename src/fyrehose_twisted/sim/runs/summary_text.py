"""Text summaries of runs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fyrehose_twisted.sim.runs.runner import RunSummary
    from fyrehose_twisted.sim.scenario import RunOutcome


def pluralize(count: int, noun: str) -> str:
    """Return ``1 seed``, ``1,204 seeds`` or ``1.2 million seeds``."""
    number = f"{count:,}" if count < 1_000_000 else f"{count / 1e6:,.1f} million"
    return f"{number} {noun}{'' if count == 1 else 's'}"


def format_duration(seconds: float) -> str:
    """Return a duration in seconds, or in hours if it is long."""
    if seconds >= 3 * 3_600:
        return f"{seconds / 3_600:,.0f} hours"
    return f"{seconds:,.0f} s" if seconds >= 10 else f"{seconds:.1f} s" if seconds >= 1 else f"{seconds:.3f} s"


def describe_outcome(outcome: RunOutcome) -> str:
    """Return a description of the outcome of one run."""
    run = f"{outcome.scenario}, seed {outcome.seed}"
    if outcome.violation is not None:
        return f"{run}: {outcome.violation}"
    return (
        f"{run}: {format_duration(outcome.simulated_seconds)} simulated in {format_duration(outcome.real_seconds)}"
        f" ({outcome.simulated_seconds / max(outcome.real_seconds, 1e-6):,.0f} times real time), {_counts(outcome)},"
        f" {_datagrams(outcome.counters)}: everything held"
    )


def describe_summary(summary: RunSummary, cores: int) -> str:
    """Return a description of the summary of many runs on ``cores`` cores."""
    broke = f"{pluralize(len(summary.failures), 'seed')} broke" if summary.failures else "everything held"
    return (
        f"{summary.scenario}: {pluralize(summary.count, 'seed')}, {format_duration(summary.simulated_seconds)} "
        "simulated in"
        f" {format_duration(summary.real_seconds)} on {pluralize(cores, 'core')}: "
        f"{pluralize(round(summary.rate), 'simulated hour')} an hour,"
        f" {_counts(summary)}: {broke if summary.count else 'nothing was run'}"
    )


def _counts(result: RunOutcome | RunSummary) -> str:
    return f"{pluralize(result.operations, 'operation')}, {pluralize(result.faults, 'fault')}"


def _datagrams(counts: Counter[str]) -> str:
    dropped = counts["dropped"]
    return f"{pluralize(counts['sent'], 'datagram')} of which {dropped:,} {'was' if dropped == 1 else 'were'} dropped"
