"""Scrapes of the metrics of other services."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.backbone_clients import NO_CLIENTS, BackboneClients, clients_url, parse_clients
from fyrehose_twisted.query.monitoring.scraping import MalformedPage, PageFetcher, PageScraper, ScrapeResult

MAX_SAMPLES = 4_096
"""Numbers of a page that are kept."""
PREFIX = "fyrehose_"
"""What else a page has is not of interest here."""
BACKBONE = f"{PREFIX}backbone_clients"
"""A service with this metric lists its clients."""

Metrics = dict[str, list[tuple[dict[str, str], float]]]
"""Labels and value of each sample, by the name of the metric."""


class MalformedMetrics(MalformedPage):
    """A page is none of metrics."""


class ScrapeTarget(NamedTuple):
    """A service, and where its metrics are."""

    name: str
    url: str


class ServiceScrape(NamedTuple):
    """What is known of a service. All times are UTC seconds since 1970, 0 before the first one."""

    name: str
    up: bool
    """The service answered one of the last :data:`~fyrehose_twisted.query.monitoring.scraping.MAX_MISSED` scrapes."""
    why: str
    """Error of the latest scrape; empty if it was answered."""
    at: float
    """When the latest scrape ended."""
    heard_at: float
    """When a scrape was answered last: the age of :attr:`metrics`."""
    missed: int
    """Scrapes in a row without an answer."""
    metrics: Metrics
    """Of the last scrape that was answered."""


def parse_scrape_target(text: str) -> ScrapeTarget:
    """Return what ``NAME=URL`` means.

    :raises ConfigurationError: if it means nothing.
    """
    name, equals, url = text.partition("=")
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if not (equals and name and name.isprintable() and len(name) <= 64):
        raise ConfigurationError(f"--watch {text!r} is not NAME=URL, such as backbone=http://127.0.0.1:9100/metrics")
    if parts.scheme != "http" or not parts.hostname or port == -1 or parts.username or not url.isascii():
        raise ConfigurationError(f"--watch {text!r}: the URL is not one such as http://127.0.0.1:9100/metrics")
    return ScrapeTarget(name, url)


def parse_metrics(page: bytes) -> Metrics:
    """Return those metrics of a page that are ours.

    :raises BadMetrics: if it is no page of metrics, or has too many.
    """
    found: Metrics = {}
    count = 0
    try:
        for family in text_string_to_metric_families(page.decode()):
            if not family.name.startswith(PREFIX):
                continue
            for sample in family.samples:
                count += 1
                if count > MAX_SAMPLES:
                    raise MalformedMetrics(f"there are more than {MAX_SAMPLES:,} numbers")
                value = float(sample.value)
                if value - value == 0:  # JSON has neither infinity nor what is no number.
                    found.setdefault(sample.name, []).append((dict(sample.labels), value))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise MalformedMetrics(f"that is no page of metrics ({str(error)[:100]})") from None
    return found


class MetricsScraper:
    """Reads the metrics of services, and what clients the backbones among them have, again and again."""

    def __init__(self, watched: Iterable[ScrapeTarget], config: QueryConfig, reactor: Any) -> None:
        fetcher = self._fetcher = PageFetcher(config, reactor)
        self._metrics: dict[str, PageScraper[Metrics]] = {}
        self._clients: dict[str, PageScraper[BackboneClients]] = {}
        for name, url in watched:
            metrics: PageScraper[Metrics] = PageScraper(name, url, parse_metrics, {}, fetcher, config, reactor)
            clients = PageScraper(
                *(f"clients of {name}", clients_url(url), parse_clients, NO_CLIENTS, fetcher, config, reactor),
                wanted=partial(_is_backbone, metrics),
            )
            self._metrics[name], self._clients[name] = metrics, clients

    @property
    def results(self) -> list[ServiceScrape]:
        """What is known of each service now. A service whose figures are too old is not up."""
        return [ServiceScrape(name, *scrape.result) for name, scrape in self._metrics.items()]

    @property
    def clients(self) -> dict[str, ScrapeResult[BackboneClients]]:
        """What is known of the clients of each backbone."""
        return {name: one.result for name, one in self._clients.items() if _is_backbone(self._metrics[name])}

    @property
    def _scrapes(self) -> list[PageScraper[Any]]:
        return [*self._metrics.values(), *self._clients.values()]

    def start(self) -> None:
        """Begin."""
        for scrape in self._scrapes:
            scrape.start()

    def stop(self) -> None:
        """End."""
        for scrape in self._scrapes:
            scrape.stop()
        self._fetcher.close()


def _is_backbone(metrics: PageScraper[Metrics]) -> bool:
    return BACKBONE in metrics.result.content
