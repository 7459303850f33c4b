"""Web site of the query service."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from prometheus_client.registry import Collector

from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.metrics import QueryCollector
from fyrehose_twisted.query.monitoring.overview import Overview
from fyrehose_twisted.query.monitoring.scraper import MetricsScraper, ScrapeTarget
from fyrehose_twisted.query.openapi import describe_openapi
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.records.live import LiveStreams
from fyrehose_twisted.query.records.scans import ScanScheduler
from fyrehose_twisted.query.records.turns import FairScheduler
from fyrehose_twisted.query.resources import KINDS, PAGE, OverviewStreams, StreamResource, static
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.client_limits import ClientBudgets
from fyrehose_twisted.web.metrics import MetricsPage, SiteCollector
from fyrehose_twisted.web.request import query_params
from fyrehose_twisted.web.response import RETRY_AFTER, HttpResponse, json_response
from fyrehose_twisted.web.site import Render, Route, WebSite, constant_page
from fyrehose_twisted.web.tokens import Tokens


class QuerySite(WebSite):
    """Site of the query service.

    :param sources: journals.
    :param targets: services whose metrics are scraped.
    """

    config: QueryConfig

    def __init__(
        self,
        sources: JournalDirectory,
        config: QueryConfig,
        reactor: Any,
        *,
        targets: Iterable[ScrapeTarget] = (),
        tokens: Tokens | None = None,
    ) -> None:
        clients = ClientBudgets(config.client_limits, reactor)
        self.sources = sources
        turns = FairScheduler(reactor)
        self.live_streams = LiveStreams(sources, config, clients, turns, reactor)
        self.scans = ScanScheduler(config, turns)
        self.scraper = MetricsScraper(targets, config, reactor)
        self.overview = Overview(sources, self.live_streams, self.scraper, config, reactor)
        self.overviews = OverviewStreams(self.overview, self.live_streams, config, reactor)
        self.live_streams.others = self.overviews.__len__
        sources.dropped = self.live_streams.source_gone
        pages = StreamResource(sources, self.scans, self.live_streams, config)
        metrics: list[Collector] = []
        routes = [
            Route("/streams", {b"GET": pages.list}),
            Route("/streams/{name}", {b"GET": pages.get}),
            Route("/streams/{name}/records", {b"GET": pages.records}),
            Route("/overview", {b"GET": self.overviews.get}),
            Route("/history", {b"GET": self.overviews.history}),
            Route("/health", {b"GET": self._health}, open=True),
            Route("/metrics", {b"GET": MetricsPage(metrics).get}),
            Route(
                "/openapi.json", {b"GET": constant_page(describe_openapi(config, token=tokens is not None))}, open=True
            ),
        ]
        # The page itself is public; it asks for the token.
        routes += [Route(f"/{name}", {b"GET": _file(name)}, open=True) for name in KINDS if name != PAGE]
        routes.append(Route("/", {b"GET": _file(PAGE)}, open=True, page=True))
        super().__init__(routes, config, reactor, tokens=tokens, clients=clients, streams=self.live_streams)
        self.overview.site = self
        metrics += [SiteCollector("fyrehose_query", self), QueryCollector(self)]

    def reconfigure(self, config: QueryConfig, tokens: Tokens | None) -> None:
        """Apply new limits and tokens. Existing connections stay open."""
        self.config = config
        self.access.tokens = tokens
        self.clients.limits = config.client_limits
        self.live_streams.config = self.overviews.config = config
        self.scans.config = config
        self.overview.config = config

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.web.site.WebSite.close`."""
        self.overviews.close()
        super().close()

    def _health(self, request: WebRequest) -> HttpResponse:
        query_params(request)
        # No names, as this requires no token.
        problems = len(self.sources.problems) + sum(bool(source.problem) for source in self.sources)
        content = {"streams": len(self.sources), "problems": problems}
        if problems:
            return json_response(content, HTTPStatus.SERVICE_UNAVAILABLE, RETRY_AFTER)
        return json_response(content)


def _file(name: str) -> Render:
    fixed: list[HttpResponse] = []

    def get(request: WebRequest) -> HttpResponse:
        query_params(request)
        if not fixed:
            fixed.append(static(name))
        return fixed[0]

    return get
