"""Prometheus metrics of journals on disk. Values are computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.store import Journal

_COUNTERS = {
    "taken": "Records that it was given and keeps",
    "duplicates": "Records that it held already",
    "replaced": "Records that took the place of another under the same number",
    "conflicts": "Records refused because another is held for good under their number",
    "late": "Records refused because their number is given up, or lies before the beginning",
    "spent": "Records refused because their number is below the watermark, and what was held under it went missing",
}

_GAUGES = {
    "epoch": "The epoch that it is in",
    "first": "The lowest number of that epoch that it may hold",
    "next": "The durable watermark: all numbers of that epoch below it are held or given up",
    "last": "The highest number of that epoch that it holds or has given up",
    "held": "Records that it holds",
    "lost": "Numbers that are given up for good, as far as it goes back",
    "bytes": "Bytes of its segments",
    "free_bytes": "Bytes that its disk has left",
    "segments": "Its segments",
    "damaged_segments": "Segments in which something damaged was found",
    "newest_timestamp_seconds": "When the newest of its records was received, since 1970",
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
        description = "Times that what was written was made durable"
        commits = CounterMetricFamily("fyrehose_journal_commits", description, labels=["stream"])
        for journal in journals:
            commits.add_metric([journal.stream], journal.commits)
        yield commits
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
    directory = journal.directory
    if isinstance(directory, LocalDirectory):
        with suppress(OSError):
            state["free_bytes"] = directory.room()
    if newest:
        state["newest_timestamp_seconds"] = newest / 1_000_000
    epoch = max(journal.epochs(), default=None)
    bounds = None if epoch is None else journal.bounds(epoch)
    if epoch is not None and bounds is not None:
        state |= {"epoch": epoch, "first": bounds.first, "next": bounds.next, "last": bounds.last}
    return state
