"""Prometheus metrics of journals on disk. Values are computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.journal.tier.directory import free_space

_COUNTERS = {
    "taken": "Records stored",
    "duplicates": "Records received that were already stored",
    "replaced": "Records that replaced another with the same number",
    "conflicts": "Records refused because another with the same number is final",
    "late": "Records refused because their number is given up or below the first",
    "spent": "Records refused below the watermark, in place of records that were damaged or deleted",
}

_TIER_COUNTERS = {
    "moved": "Segments moved to object storage",
    "moved_bytes": "Size of the segments moved to object storage",
    "removed": "Objects removed from object storage, after retention or an interrupted upload",
    "failures": "Attempts to move segments to object storage that failed or left a segment behind",
    "fetched_bytes": "Bytes fetched from object storage for repairs and for readers of the served journal",
    "fetch_failures": "Attempts to fetch from object storage that failed",
}

_GAUGES = {
    "epoch": "Newest epoch",
    "first": "Lowest number of the newest epoch that may be stored",
    "next": "Durable watermark: all lower numbers of the newest epoch are stored or given up",
    "last": "Highest number of the newest epoch that is stored or given up",
    "held": "Records stored, over all epochs",
    "lost": "Numbers given up, within the range that is stored",
    "bytes": "Size of the segments",
    "free_bytes": "Free space on the disk",
    "segments": "Segments",
    "damaged_segments": "Segments with damage",
    "newest_timestamp_seconds": "Unix time at which the newest record was received",
}


class JournalCollector(Collector):
    """Collector of the metrics ``fyrehose_journal_*`` of open journals, with the label ``stream``.

    :param journals: open journals, iterated at each scrape.
    """

    def __init__(self, journals: Iterable[Journal]) -> None:
        self._journals = journals
        self._highest: dict[tuple[str, str], int] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        journals = list(self._journals)
        for name, description in _COUNTERS.items():
            counter = CounterMetricFamily(f"fyrehose_journal_{name}", description, labels=["stream"])
            for journal in journals:
                counter.add_metric([journal.stream], self._monotonic(journal, name))
            yield counter
        description = "Commits (fsync)"
        commits = CounterMetricFamily("fyrehose_journal_commits", description, labels=["stream"])
        for journal in journals:
            commits.add_metric([journal.stream], journal.commits)
        yield commits
        for name, description in _TIER_COUNTERS.items():
            counter = CounterMetricFamily(f"fyrehose_journal_tier_{name}", description, labels=["stream"])
            for journal in journals:
                counter.add_metric([journal.stream], getattr(journal.tier_counters, name))
            yield counter
        states = [(journal.stream, _gauge_values(journal)) for journal in journals]
        for name, description in _GAUGES.items():
            gauge = GaugeMetricFamily(f"fyrehose_journal_{name}", description, labels=["stream"])
            for stream, state in states:
                if name in state:
                    gauge.add_metric([stream], state[name])
            yield gauge

    def _monotonic(self, journal: Journal, name: str) -> int:
        """Return a counter as its highest value so far.

        A journal counts back records that it drops before writing them, which Prometheus would take for a restart.
        """
        key = journal.stream, name
        self._highest[key] = max(self._highest.get(key, 0), getattr(journal.counters, name))
        return self._highest[key]


def _gauge_values(journal: Journal) -> dict[str, float]:
    catalog = journal.catalog
    segments = list(catalog.segments.values())
    newest = max((segment.newest for segment in segments), default=0)
    state: dict[str, float] = {
        "held": sum(ranges.count for ranges in catalog.held.values()),
        "lost": sum(ranges.count for ranges in catalog.lost.values()),
        "bytes": sum(segment.end for segment in segments),
        "segments": len(segments),
        "damaged_segments": sum(bool(segment.damages) for segment in segments),
    }
    with suppress(OSError):
        room = free_space(journal.directory)
        if room is not None:
            state["free_bytes"] = room
    if newest:
        state["newest_timestamp_seconds"] = newest / 1_000_000
    epoch = max(journal.epochs(), default=None)
    bounds = None if epoch is None else journal.bounds(epoch)
    if epoch is not None and bounds is not None:
        state |= {"epoch": epoch, "first": bounds.first, "next": bounds.next, "last": bounds.last}
    return state
