"""A frontend under ``twistd``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.line_protocol import LineFactory
from fyrehose_twisted.fyrehose.frontend.metrics import FrontendCollector
from fyrehose_twisted.fyrehose.frontend.openapi import describe
from fyrehose_twisted.fyrehose.frontend.publish_queue import Intake
from fyrehose_twisted.fyrehose.frontend.publisher import FrontendPublisher, publisher_config
from fyrehose_twisted.fyrehose.frontend.resources import MessagePages
from fyrehose_twisted.fyrehose.service import DatagramService, bind
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS
from fyrehose_twisted.net.listening import Entrances
from fyrehose_twisted.process.sd_notify import supervisor
from fyrehose_twisted.process.sighup import Reloading, changes
from fyrehose_twisted.web.client_limits import Clients
from fyrehose_twisted.web.metrics import MetricsPage, SiteCollector
from fyrehose_twisted.web.site import Route, WebSite, drained, page
from fyrehose_twisted.web.tokens import Tokens
from fyrehose_twisted.wording import counted


class FrontendService(DatagramService):
    """Publishes for those who speak HTTP or lines.

    :param backbone: ``HOST:PORT``.
    :param http: server endpoint for HTTP; ``None`` for none.
    :param lines: server endpoint for lines; ``None`` for none.
    :param tokens: clients have to know one of them.
    :param secret: the backbone's.
    :param kept: durable journals that must have synced a message before its number is told.
    :param reread: called on SIGHUP; returns limits and tokens to go by from then on.
    :ivar site: what answers HTTP.
    :raises ConfigurationError: if an endpoint is none, or a backbone does not tell of so many journals.
    """

    def __init__(
        self,
        backbone: str,
        *,
        http: str | None,
        lines: str | None,
        tokens: Tokens | None = None,
        secret: bytes | None = None,
        kept: int = 0,
        config: FrontendConfig | None = None,
        reread: Callable[[], tuple[FrontendConfig, Tokens | None]] | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        if not 0 <= kept <= MAX_HOLDINGS:
            raise ConfigurationError(f"kept={kept}: a backbone tells of {MAX_HOLDINGS} journals at most")
        self.backbone = backbone
        self.config = FrontendConfig() if config is None else config
        self.publisher = FrontendPublisher(publisher_config(self.config, secret), reactor=self.reactor)
        self.intake = self.publisher.intake = Intake(self.publisher, self.config, self.reactor, kept)
        self.lines = LineFactory(self.intake, self.config, tokens, self.reactor)
        self.site = _site(self.intake, self.lines, self.config, tokens, self.reactor)
        self._entrances = Entrances(self.reactor, "tcp:8481", "frontend")
        for option, description, factory in (("http", http, self.site), ("lines", lines, self.lines)):
            if description is not None:
                self._entrances.add(option, description, factory)
        self._binding: Deferred[None] | None = None
        self._reloading = Reloading(reread, self._reconfigure, self.reactor)

    @property
    def places(self) -> dict[str, list[str]]:
        """What is listened on, by option."""
        return self._entrances.places

    def privilegedStartService(self) -> None:
        """Twisted: start what needs privileges."""
        super().privilegedStartService()
        self._entrances.bind()

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        self._entrances.bind()
        self._entrances.failed(self._cannot_listen)
        self.watch(self.publisher)
        self._binding = Deferred.fromCoroutine(bind(self.reactor, self.publisher, self.backbone))
        self._binding.addErrback(lambda failure: None if failure.check(CancelledError) else self.fail(failure))
        self._reloading.start()
        if self._entrances.all_bound:
            supervisor.ready(self.reactor, f"listening on {self._entrances}")

    def stopService(self) -> Deferred[None]:
        """Twisted: take nothing more, finish what is under way, and stop."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._reloading.stop()
        await self._entrances.close()
        idle = self.intake.when_idle().addTimeout(self.config.stop_timeout, self.reactor)
        self.lines.close()
        try:
            await idle
        except DeferredTimeout:
            self.log.warn("batches that were not published in time: {count}", count=len(self.intake))
        self.intake.stop()
        self.site.close()
        await drained(self.reactor, lambda: self.site.connections + len(self.lines))
        if self._binding is not None:
            self._binding.cancel()
        all_kept = self.intake.kept > 0 and not self.intake.journals.not_kept
        await self.publisher.leave(at_once=all_kept)

    def _reconfigure(self, read: tuple[FrontendConfig, Tokens | None]) -> list[str]:
        config, tokens = read
        told = changes(self.config, config)
        self.config = self.site.config = self.lines.config = config
        self.intake.reconfigure(config)
        self.site.clients.limits = config.client_limits
        self.site.guard.tokens = self.lines.tokens = tokens
        return [*told, *([] if tokens is None else [counted(len(tokens), "token")])]

    def _cannot_listen(self, error: Exception) -> None:
        self.log.critical("stopping: {error}", error=error)
        self._stop_process()


def _site(intake: Intake, lines: LineFactory, config: FrontendConfig, tokens: Tokens | None, reactor: Any) -> WebSite:
    pages = MessagePages(intake, config)
    metrics: list[Collector] = [FrontendCollector(intake, lines, pages.keys)]
    description = describe(config, token=tokens is not None, kept=intake.kept)
    routes = [
        Route("/messages", {b"POST": pages.post}),
        Route("/health", {b"GET": pages.health}, open=True),
        Route("/metrics", {b"GET": MetricsPage(metrics).get}),
        Route("/openapi.json", {b"GET": page(description)}, open=True),
    ]
    clients = Clients(config.client_limits, reactor)
    made = WebSite(routes, config, reactor, tokens=tokens, clients=clients)
    metrics.append(SiteCollector("fyrehose_frontend_web", made))
    return made
