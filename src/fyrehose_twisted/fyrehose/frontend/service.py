"""Frontend service under ``twistd``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import MacPolicy
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.line_protocol import LineFactory
from fyrehose_twisted.fyrehose.frontend.metrics import FrontendCollector
from fyrehose_twisted.fyrehose.frontend.openapi import describe_openapi
from fyrehose_twisted.fyrehose.frontend.publish_queue import PublishQueue
from fyrehose_twisted.fyrehose.frontend.publisher import FrontendPublisher, publisher_config
from fyrehose_twisted.fyrehose.frontend.resources import MessageResource
from fyrehose_twisted.fyrehose.service.connect import DatagramService, bind_client
from fyrehose_twisted.fyrehose.service.metrics import ClientInfoCollector
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS
from fyrehose_twisted.net.listening import ListeningPorts
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.process.sighup import ReloadOnHup, diff
from fyrehose_twisted.sealing.key_source import KeySource
from fyrehose_twisted.web.client_limits import ClientBudgets
from fyrehose_twisted.web.metrics import MetricsPage, SiteCollector
from fyrehose_twisted.web.site import Route, WebSite, constant_page, wait_closed
from fyrehose_twisted.web.tokens import Tokens
from fyrehose_twisted.wording import pluralize


class FrontendService(DatagramService):
    """Frontend that publishes messages received over HTTP or the line protocol.

    :param backbone: ``HOST:PORT``, or several, separated by commas.
    :param http: server endpoint for HTTP; ``None`` for none.
    :param lines: server endpoint for lines; ``None`` for none.
    :param tokens: tokens of which clients have to send one; ``None`` for none.
    :param secret: shared secret of the backbone.
    :param mac: use of MACs of the backbone.
    :param kept: number of durable journals that must sync a message before it is acknowledged.
    :param keys: keys with which messages are sealed; read again on SIGHUP.
    :param reload: called on SIGHUP; returns the new limits and tokens.
    :ivar site: HTTP site.
    :raises ConfigurationError: if an endpoint is invalid, or ``kept`` is out of range.
    """

    def __init__(
        self,
        backbone: str,
        *,
        http: str | None,
        lines: str | None,
        tokens: Tokens | None = None,
        secret: bytes | None = None,
        mac: MacPolicy = MacPolicy.OFFER,
        kept: int = 0,
        config: FrontendConfig | None = None,
        keys: KeySource | None = None,
        reload: Callable[[], tuple[FrontendConfig, Tokens | None]] | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        if not 0 <= kept <= MAX_HOLDINGS:
            raise ConfigurationError(f"kept={kept}: choose 0 to {MAX_HOLDINGS} journals")
        self.backbone = backbone
        self.config = FrontendConfig() if config is None else config
        self.publisher = FrontendPublisher(publisher_config(self.config, secret, mac), reactor=self.reactor)
        self.publisher.sealer = None if keys is None else keys.sealer
        self.publish_queue = self.publisher.publish_queue = PublishQueue(
            self.publisher, self.config, self.reactor, kept, self.publisher.max_message
        )
        self.lines = LineFactory(self.publish_queue, self.config, tokens, self.reactor)
        self.site = _make_site(
            *(self.publish_queue, self.lines, self.config, tokens, self.reactor), ClientInfoCollector(self.publisher)
        )
        self._listening_ports = ListeningPorts(self.reactor, "tcp:8481", "frontend")
        for option, description, factory in (("http", http, self.site), ("lines", lines, self.lines)):
            if description is not None:
                self._listening_ports.add(option, description, factory)
        self._binding: Deferred[None] | None = None
        self._reloading: list[ReloadOnHup[Any]] = []
        if keys is not None:
            self._reloading.append(ReloadOnHup(keys.read, keys.apply, self.reactor))
        if reload is not None or keys is None:
            self._reloading.append(ReloadOnHup(reload, self._reconfigure, self.reactor))

    @property
    def addresses(self) -> dict[str, list[str]]:
        """Listening addresses by option."""
        return self._listening_ports.addresses

    def privilegedStartService(self) -> None:
        """Twisted: bind the ports, which may need privileges."""
        super().privilegedStartService()
        self._listening_ports.bind()

    def startService(self) -> None:
        """Twisted: start."""
        super().startService()
        self._listening_ports.bind()
        self._listening_ports.report_failures(self._cannot_listen)
        self.watch(self.publisher)
        self._binding = Deferred.fromCoroutine(bind_client(self.reactor, self.publisher, self.backbone))
        self._binding.addErrback(lambda failure: None if failure.check(CancelledError) else self.fail(failure))
        for reloading in self._reloading:
            reloading.start()
        if self._listening_ports.all_bound:
            systemd_notifier.ready(self.reactor, f"listening on {self._listening_ports}")

    def stopService(self) -> Deferred[None]:
        """Twisted: stop accepting messages, wait for pending batches, and stop."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for reloading in self._reloading:
            reloading.stop()
        await self._listening_ports.close()
        idle = self.publish_queue.when_idle().addTimeout(self.config.stop_timeout, self.reactor)
        self.lines.close()
        try:
            await idle
        except DeferredTimeout:
            self.log.warn("batches not published in time: {count}", count=len(self.publish_queue))
        self.publish_queue.stop()
        self.site.close()
        await wait_closed(self.reactor, lambda: self.site.connections + len(self.lines))
        if self._binding is not None:
            self._binding.cancel()
        all_kept = self.publish_queue.kept > 0 and not self.publish_queue.journals.not_kept
        await self.publisher.leave(at_once=all_kept)

    def _reconfigure(self, read: tuple[FrontendConfig, Tokens | None]) -> list[str]:
        config, tokens = read
        changes = diff(self.config, config)
        self.config = self.site.config = self.lines.config = config
        self.publish_queue.reconfigure(config)
        self.site.clients.limits = config.client_limits
        self.site.access.tokens = self.lines.tokens = tokens
        return [*changes, *([] if tokens is None else [pluralize(len(tokens), "token")])]

    def _cannot_listen(self, error: Exception) -> None:
        self.log.critical("stopping: {error}", error=error)
        self._stop_process()


def _make_site(
    publish_queue: PublishQueue,
    lines: LineFactory,
    config: FrontendConfig,
    tokens: Tokens | None,
    reactor: Any,
    *collectors: Collector,
) -> WebSite:
    pages = MessageResource(publish_queue, config)
    metrics: list[Collector] = [FrontendCollector(publish_queue, lines, pages.keys), *collectors]
    description = describe_openapi(config, token=tokens is not None, kept=publish_queue.kept)
    routes = [
        Route("/messages", {b"POST": pages.post}),
        Route("/health", {b"GET": pages.health}, open=True),
        Route("/metrics", {b"GET": MetricsPage(metrics).get}),
        Route("/openapi.json", {b"GET": constant_page(description)}, open=True),
    ]
    clients = ClientBudgets(config.client_limits, reactor)
    site = WebSite(routes, config, reactor, tokens=tokens, clients=clients)
    metrics.append(SiteCollector("fyrehose_frontend_web", site))
    return site
