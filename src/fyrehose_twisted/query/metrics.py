"""Prometheus metrics of the query service. Values are computed at each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from fyrehose_twisted.net.metrics import info_metric
from fyrehose_twisted.query.monitoring.scraper import MetricsScraper
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.records.live import LiveStreams
from fyrehose_twisted.query.records.scans import ScanScheduler
from fyrehose_twisted.query.resources import OverviewStreams


class SiteState(Protocol):
    """State of a site from which its metrics are computed."""

    sources: JournalDirectory
    live_streams: LiveStreams
    scans: ScanScheduler
    scraper: MetricsScraper
    overviews: OverviewStreams


class QueryCollector(Collector):
    """Collector of the metrics ``fyrehose_query_*`` of a site."""

    def __init__(self, site: SiteState) -> None:
        self._site = site

    def collect(self) -> Iterator[Metric]:
        """Yield the current metrics."""
        site = self._site
        yield info_metric("query")
        yield GaugeMetricFamily("fyrehose_query_sources", "Journals served", value=len(site.sources))
        problems = len(site.sources.problems) + sum(bool(source.problem) for source in site.sources)
        yield GaugeMetricFamily("fyrehose_query_problems", "Unreadable journals", value=problems)
        damaged = CounterMetricFamily("fyrehose_query_damaged", "Damaged places skipped", labels=["stream"])
        followers = GaugeMetricFamily("fyrehose_query_followers", "Clients following the stream", labels=["stream"])
        newest = GaugeMetricFamily("fyrehose_query_next", "Watermark of the newest epoch", labels=["stream"])
        for source in site.sources:
            damaged.add_metric([source.stream], source.damages)
            followers.add_metric([source.stream], site.live_streams.follower_count(source.name))
            newest.add_metric([source.stream], source.end().position)
        refused = CounterMetricFamily(
            "fyrehose_query_refused", "Sealed records read and not shown, by reason", labels=["stream", "reason"]
        )
        for (stream, reason), count in getattr(site.sources.strip_framing, "refused", {}).items():
            refused.add_metric([stream, reason], count)
        yield refused
        yield damaged
        yield followers
        yield newest
        yield GaugeMetricFamily("fyrehose_query_searches", "Searches running", value=len(site.scans))
        yield GaugeMetricFamily("fyrehose_query_waiting_searches", "Searches queued", value=site.scans.waiting)
        yield GaugeMetricFamily("fyrehose_query_overviews", "Open dashboards", value=len(site.overviews))
        watched = GaugeMetricFamily("fyrehose_query_watched", "1 if the watched service replies", labels=["name"])
        answered = GaugeMetricFamily(
            "fyrehose_query_watched_timestamp_seconds",
            "Unix time of the last reply of the watched service",
            labels=["name"],
        )
        for scrape in site.scraper.results:
            watched.add_metric([scrape.name], scrape.up)
            if scrape.heard_at:
                answered.add_metric([scrape.name], scrape.heard_at)
        yield watched
        yield answered
