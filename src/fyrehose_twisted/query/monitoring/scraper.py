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
"""Samples kept of a page."""
PREFIX = "fyrehose_"
"""Prefix of the metrics that are kept."""
SERVERS = f"{PREFIX}backbone_clients", f"{PREFIX}relay_clients"
"""Metrics of services that list their clients."""

Metrics = dict[str, list[tuple[dict[str, str], float]]]
"""Labels and value of each sample, by metric name."""


class MalformedMetrics(MalformedPage):
    """The page is not a page of metrics."""


class ScrapeTarget(NamedTuple):
    """Name of a service and URL of its metrics."""

    name: str
    url: str


class ServiceScrape(NamedTuple):
    """Scrape result of a service. Times are UTC seconds since 1970, 0 before the first scrape."""

    name: str
    up: bool
    """Whether one of the last :data:`~fyrehose_twisted.query.monitoring.scraping.MAX_MISSED` scrapes succeeded."""
    why: str
    """Error of the latest scrape; empty if it succeeded."""
    at: float
    """End of the latest scrape."""
    heard_at: float
    """Time of the last successful scrape, from which :attr:`metrics` are."""
    missed: int
    """Consecutive scrapes that failed."""
    metrics: Metrics
    """Metrics of the last successful scrape."""


def parse_scrape_target(text: str) -> ScrapeTarget:
    """Parse ``NAME=URL``.

    :raises ConfigurationError: if it is invalid.
    """
    name, equals, url = text.partition("=")
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if not (equals and name and name.isprintable() and len(name) <= 64):
        raise ConfigurationError(
            f"--watch {text!r} must have the form NAME=URL, such as backbone=http://127.0.0.1:9100/metrics"
        )
    if parts.scheme != "http" or not parts.hostname or port == -1 or parts.username or not url.isascii():
        raise ConfigurationError(f"--watch {text!r}: the URL must be like http://127.0.0.1:9100/metrics")
    return ScrapeTarget(name, url)


def parse_metrics(page: bytes) -> Metrics:
    """Parse the metrics with :data:`PREFIX` from a page.

    :raises MalformedMetrics: if it is not a page of metrics, or has too many samples.
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
                    raise MalformedMetrics(f"the page has more than {MAX_SAMPLES:,} samples")
                value = float(sample.value)
                if value - value == 0:  # JSON has neither infinity nor NaN.
                    found.setdefault(sample.name, []).append((dict(sample.labels), value))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise MalformedMetrics(f"the page is not a page of metrics ({str(error)[:100]})") from None
    return found


class MetricsScraper:
    """Periodic scraper of the metrics of services and the client lists of backbones and relays."""

    def __init__(self, watched: Iterable[ScrapeTarget], config: QueryConfig, reactor: Any) -> None:
        fetcher = self._fetcher = PageFetcher(config, reactor)
        self._metrics: dict[str, PageScraper[Metrics]] = {}
        self._clients: dict[str, PageScraper[BackboneClients]] = {}
        for name, url in watched:
            metrics: PageScraper[Metrics] = PageScraper(name, url, parse_metrics, {}, fetcher, config, reactor)
            clients = PageScraper(
                *(f"clients of {name}", clients_url(url), parse_clients, NO_CLIENTS, fetcher, config, reactor),
                wanted=partial(_lists_clients, metrics),
            )
            self._metrics[name], self._clients[name] = metrics, clients

    @property
    def results(self) -> list[ServiceScrape]:
        """Current result for each service. A service with outdated figures is not up."""
        return [ServiceScrape(name, *scrape.result) for name, scrape in self._metrics.items()]

    @property
    def clients(self) -> dict[str, ScrapeResult[BackboneClients]]:
        """Current result for the clients of each backbone and relay."""
        return {name: one.result for name, one in self._clients.items() if _lists_clients(self._metrics[name])}

    @property
    def _scrapes(self) -> list[PageScraper[Any]]:
        return [*self._metrics.values(), *self._clients.values()]

    def start(self) -> None:
        """Start scraping."""
        for scrape in self._scrapes:
            scrape.start()

    def stop(self) -> None:
        """Stop scraping and close the connections."""
        for scrape in self._scrapes:
            scrape.stop()
        self._fetcher.close()


def _lists_clients(metrics: PageScraper[Metrics]) -> bool:
    return any(name in metrics.result.content for name in SERVERS)
