"""Twisted service of the query site."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from fyrehose_twisted.net.listening import ListeningPorts
from fyrehose_twisted.process.repeating import PeriodicCall
from fyrehose_twisted.process.sd_notify import systemd_notifier
from fyrehose_twisted.process.shutdown import exit_with_failure
from fyrehose_twisted.process.sighup import ReloadOnHup, diff
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.scraper import ScrapeTarget
from fyrehose_twisted.query.records.journals import JournalDirectory
from fyrehose_twisted.query.site import QuerySite
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.key_source import KeySource
from fyrehose_twisted.web.site import wait_closed
from fyrehose_twisted.web.tokens import Tokens
from fyrehose_twisted.wording import pluralize


class QueryService(Service):
    """Service that provides the journals of a directory over HTTP.

    :param sources: journals.
    :param http: server endpoint.
    :param targets: services whose metrics are scraped.
    :param tokens: accepted tokens; ``None`` if none is required.
    :param keys: keys of sealed streams; read again on SIGHUP.
    :param reread: called on SIGHUP; returns the new limits and tokens.
    :raises ConfigurationError: if ``http`` is not a valid endpoint.
    """

    log = Logger()

    def __init__(
        self,
        sources: JournalDirectory,
        http: str,
        *,
        targets: Iterable[ScrapeTarget] = (),
        tokens: Tokens | None = None,
        config: QueryConfig | None = None,
        keys: Sequence[KeySource] = (),
        reread: Callable[[], tuple[QueryConfig, Tokens | None]] | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        config = QueryConfig() if config is None else config
        self.reactor = reactor
        self.sources = sources
        self.site = QuerySite(sources, config, reactor, targets=targets, tokens=tokens)
        self._listening_ports = ListeningPorts(reactor, "tcp:8480", "query")
        self._listening_ports.add("http", http, self.site)
        self._refresh_call = PeriodicCall("the overview", self._refresh, reactor)
        self._interval = config.look_interval
        self._reloaders: list[ReloadOnHup[Any]] = [ReloadOnHup(one.read, self._applying(one), reactor) for one in keys]
        if reread is not None or not keys:
            self._reloaders.append(ReloadOnHup(reread, self._reconfigure, reactor))

    @property
    def addresses(self) -> dict[str, list[str]]:
        """Listening addresses by option."""
        return self._listening_ports.addresses

    def privilegedStartService(self) -> None:
        """Twisted: bind ports while the process has its privileges."""
        super().privilegedStartService()
        self._listening_ports.bind()

    def startService(self) -> None:
        """Twisted: start the service."""
        super().startService()
        self._listening_ports.bind()
        self._listening_ports.report_failures(self._fail)
        self.sources.refresh()
        self.site.scraper.start()
        self._refresh_call.start(self._interval)
        for reloader in self._reloaders:
            reloader.start()
        if self._listening_ports.all_bound:
            systemd_notifier.ready(self.reactor, f"listening on {self._listening_ports}")

    def stopService(self) -> Deferred[None]:
        """Twisted: end all streams, finish responses in progress, and close the journals."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        for reloader in self._reloaders:
            reloader.stop()
        self._refresh_call.stop()
        self.site.scraper.stop()
        await self._listening_ports.close()
        self.site.close()
        await wait_closed(self.reactor, lambda: self.site.connections)
        self.site.scans.stop()
        self.sources.close()

    def _reconfigure(self, read: tuple[QueryConfig, Tokens | None]) -> list[str]:
        config, tokens = read
        changes = diff(self.site.config, config)
        self.site.reconfigure(config, tokens)
        return [*changes, *([] if tokens is None else [pluralize(len(tokens), "token")])]

    def _applying(self, keys: KeySource) -> Callable[[KeyRing], list[str]]:
        def apply(ring: KeyRing) -> list[str]:
            changes = keys.apply(ring)
            self.site.live_streams.forget_tails()
            return changes

        return apply

    def _refresh(self) -> None:
        # Without clients, only the history and new journals matter.
        if len(self.site.overviews):
            self.site.overviews.send_all()
        elif self.site.overview.is_due:
            self.site.overview.collect()
        else:
            self.sources.refresh()

    def _fail(self, error: Exception) -> None:
        self.log.critical("stopping: {error}", error=error)
        exit_with_failure(self.reactor)
