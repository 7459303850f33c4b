"""Overview of the journals and watched services, as shown by the dashboard."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.backbone_clients import ClientRates
from fyrehose_twisted.query.monitoring.clusters import ClusterView, assess_cluster, clusters
from fyrehose_twisted.query.monitoring.figures import MAIN, ServiceFigures, kind_of, read_figures, trend_key
from fyrehose_twisted.query.monitoring.findings import ATTENTION, ActiveFindings, HealthFinding, RecentEvents, worst
from fyrehose_twisted.query.monitoring.health_rules import (
    Newest,
    assess_disk,
    assess_service,
    assess_stream,
    measure_lag,
    newest_sequences,
)
from fyrehose_twisted.query.monitoring.scraper import MetricsScraper
from fyrehose_twisted.query.monitoring.topology import WatchedService, describe_topology
from fyrehose_twisted.query.monitoring.trends import STEP, Trends
from fyrehose_twisted.query.records.journals import JournalDirectory, JournalSource
from fyrehose_twisted.query.records.live import LiveStreams
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.web.site import WebSite

MAX_STREAMS = 1_000
"""Streams in an overview."""

MAX_FINDINGS = 100
"""Findings in an overview."""

MAX_SERIES = 500
"""Streams and services in the history."""

MAX_RANGES = 1_000
"""Lost or missing ranges listed for each epoch."""


def installed_version() -> str:
    """Return the version of this library."""
    try:
        return version("fyrehose_twisted")
    except PackageNotFoundError:
        return "unknown"


def describe_source(source: JournalSource, *, ranges: bool = False) -> dict[str, Any]:
    """Return the description of a journal.

    :param ranges: whether to list the lost and missing ranges in addition to their counts.
    """
    if ranges:
        return _describe(source, ranges=True)
    # Cached, as counting thousands of segments takes long and most journals have not changed.
    state = source.change_token()
    if source.cached_description is None or source.cached_description[0] != state:
        source.cached_description = state, _describe(source, ranges=False)
    return source.cached_description[1] | {"problem": source.problem}


def _describe(source: JournalSource, *, ranges: bool) -> dict[str, Any]:
    reader = source.reader
    epochs, newest = [], 0
    for epoch in reader.epochs():
        bounds = source.bounds(epoch)
        if bounds is None:
            continue
        held, lost = reader.known_ranges(epoch)
        row: dict[str, Any] = {
            "epoch": epoch,
            "first": bounds.first,
            "next": bounds.next,
            "last": bounds.last,
            "records": held.count,
            "lost": lost.count,
            "missing": bounds.last - bounds.first + 1 - held.count - lost.count,
        }
        if ranges:
            row["lost_ranges"] = list(islice(map(list, lost), MAX_RANGES))
            row["missing_ranges"] = list(islice(_missing(held, lost, bounds), MAX_RANGES))
        epochs.append(row)
    for segment in reader.segments:
        newest = max(newest, segment.newest)
    return {
        "stream": source.stream,
        "name": source.name,
        "records": sum(epoch["records"] for epoch in epochs),
        "bytes": source.size(),
        "segments": len(reader.segments),
        "epochs": epochs,
        "last_received_at": newest or None,
        "damaged": source.damages,
        "problem": source.problem,
    }


def _missing(held: RangeSet, lost: RangeSet, bounds: Bounds) -> Iterator[list[int]]:
    for first, last in held.gaps(bounds.first, bounds.last):
        for low, high in lost.gaps(first, last):
            yield [low, high]


class Overview:
    """Overview of all journals and services, with the history of the last hour.

    :ivar content: last overview, replaced by :meth:`collect`.
    """

    def __init__(
        self,
        sources: JournalDirectory,
        live_streams: LiveStreams,
        scraper: MetricsScraper,
        config: QueryConfig,
        reactor: Any,
    ) -> None:
        self.config = config
        self._sources = sources
        self._live_streams = live_streams
        self._scraper = scraper
        self._reactor = reactor
        self._version = installed_version()
        self._started_at = reactor.seconds()
        self._collected_at = 0.0
        self._trends = Trends()
        self._client_rates = ClientRates()
        self._events = RecentEvents()
        self._findings = ActiveFindings(self._events)
        self.site: WebSite | None = None
        self.content: dict[str, Any] = {}

    @property
    def is_due(self) -> bool:
        """Whether a collection is due for the history, regardless of clients."""
        return not 0 <= self._reactor.seconds() - self._collected_at < STEP

    def collect(self) -> None:
        """Collect a new overview."""
        now = self._collected_at = self._reactor.seconds()
        self._sources.refresh_all()
        services = [read_figures(seen, self._trends, now) for seen in self._scraper.results]
        streams = [self._stream(source, now) for source in islice(self._sources, MAX_STREAMS)]
        streams += [
            {**_EMPTY, "stream": name, "name": name, "problem": problem}
            for name, problem in sorted(self._sources.problems.items())
        ]
        newest = newest_sequences(services, streams)
        for stream in streams:
            stream["behind"] = _stream_lag(stream, newest)
        groups = clusters(services)
        disk = self._disk()
        connected = self._scraper.clients
        self._client_rates.retain(connected)
        clients = {name: self._client_rates.describe(name, one, now) for name, one in connected.items()}
        self._note_losses(services, now)
        self._findings.update(self._assess(services, streams, groups, newest, disk), now)
        self._trends.forget(now)
        self.content = {
            "at": now,
            "version": self._version,
            "started_at": self._started_at,
            "state": worst(self._findings.current),
            "findings": [_finding_json(one) for one in self._findings.current[:MAX_FINDINGS]],
            "streams": [stream | self._state(stream["stream"]) for stream in streams],
            "services": [{**self._service(one, newest), "clients": clients.get(one.scrape.name)} for one in services],
            "topology": describe_topology(self._watched(one, newest, clients) for one in services),
            "clusters": [
                {**one._asdict(), "may_fail": one.may_fail, "title": one.title, **self._state(one.title)}
                for one in groups
            ],
            "disk": disk,
            "events": self._events.list(),
            "query": {} if self.site is None else _site_counters(self.site),
        }

    def history(self) -> dict[str, Any]:
        """Return the rates of streams and services in each step of the last hour."""
        now = self._reactor.seconds()
        series: dict[str, list[float | None]] = {}
        keys = [(f"stream {source.name}", f"stream:{source.name}:records") for source in self._sources]
        for seen in self._scraper.results:
            main = MAIN.get(kind_of(seen.metrics))
            if main is not None:
                keys.append((f"service {seen.name}", trend_key(seen.name, main)))
        for name, key in keys[:MAX_SERIES]:
            trend = self._trends.get(key)
            if trend is not None:
                series[name] = [None if rate is None else float(f"{rate:.3g}") for rate in trend.history(now)]
        return {"at": now, "step": STEP, "series": series}

    def _stream(self, source: JournalSource, now: float) -> dict[str, Any]:
        row = describe_source(source) | {"followers": self._live_streams.follower_count(source.name)}
        lost = float(sum(epoch["lost"] for epoch in row["epochs"]))
        key = f"stream:{source.name}"
        records = self._trends.add(f"{key}:records", now, now, row["records"], counter=False)
        losses = self._trends.get(f"{key}:lost")
        before = 0.0 if losses is None else losses.total
        losses = self._trends.add(f"{key}:lost", now, now, lost, counter=False)
        if losses is not None and losses.total > before:
            self._events.add(now, ATTENTION, source.stream, _LOST, int(losses.total - before))
        row["rate"] = None if records is None else records.rate(now)
        row["lost_lately"] = int(losses.uncertain_increase(now)) if losses is not None else int(lost)
        return row

    def _note_losses(self, services: list[ServiceFigures], now: float) -> None:
        for one in services:
            for name, (text, noun) in _LOSSES.items():
                if one.grown.get(name):
                    self._events.add(now, ATTENTION, one.scrape.name, text, int(one.grown[name]), noun)

    def _assess(
        self,
        services: list[ServiceFigures],
        streams: list[dict[str, Any]],
        groups: list[ClusterView],
        newest: Newest,
        disk: dict[str, Any],
    ) -> Iterator[HealthFinding]:
        least = self.config.min_free_bytes
        for one in services:
            yield from assess_service(one, newest, least)
        for stream in streams:
            yield from assess_stream(stream, newest)
        for group in groups:
            yield from assess_cluster(group)
        yield from assess_disk("this service", disk.get("free"), least)

    def _state(self, subject: str) -> dict[str, Any]:
        found = self._findings.for_subject(subject)
        return {"state": worst(found), "reasons": [one.text for one in found]}

    def _service(self, one: ServiceFigures, newest: Newest) -> dict[str, Any]:
        lag = measure_lag(one, newest)
        return {
            **one.scrape._asdict(),
            **self._state(one.scrape.name),
            "kind": one.kind,
            "age": None if not one.scrape.heard_at else max(0.0, self._reactor.seconds() - one.scrape.heard_at),
            "rates": one.rates,
            "recent": one.recent,
            "behind": None if lag is None else lag[0],
        }

    def _watched(self, one: ServiceFigures, newest: Newest, clients: Mapping[str, dict[str, Any]]) -> WatchedService:
        lag, state = measure_lag(one, newest), self._state(one.scrape.name)
        known = None if lag is None else lag[0]
        return WatchedService(one, state["state"], state["reasons"], known, clients.get(one.scrape.name))

    def _disk(self) -> dict[str, Any]:
        try:
            found = os.statvfs(self._sources.directory)
        except OSError:
            return {}
        return {"free": found.f_bavail * found.f_frsize, "total": found.f_blocks * found.f_frsize}


def _stream_lag(stream: dict[str, Any], newest: Newest) -> float | None:
    if stream["stream"] not in newest or not stream["epochs"]:
        return None
    return max(0.0, float(newest[stream["stream"]][0] - (stream["epochs"][-1]["next"] - 1)))


def _finding_json(one: HealthFinding) -> dict[str, str]:
    return {"subject": one.subject, "level": one.level, "what": one.kind, "text": one.text}


def _site_counters(site: WebSite) -> dict[str, int]:
    return {
        "requests": sum(site.requests.values()),
        "streams": 0 if site.streams is None else len(site.streams),
        "connections": site.connections,
        "refused": site.refused,
    }


_LOST = "lost {count} for good"

_LOSSES = {
    "client_lost_total": (_LOST, "message"),
    "client_publish_failed_total": ("failed to publish {count}", "message"),
    "frontend_failed_total": ("failed to publish {count}", "message"),
    "parcels_skipped_total": (_LOST, "event"),
}

_EMPTY: dict[str, Any] = {
    "records": 0,
    "bytes": 0,
    "segments": 0,
    "epochs": [],
    "last_received_at": None,
    "followers": 0,
    "damaged": 0,
    "rate": None,
    "lost_lately": 0,
    "behind": None,
}
