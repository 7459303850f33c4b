"""The query service under ``twistd``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from fyrehose_twisted.net.listening import Entrances
from fyrehose_twisted.process.repeating import Repeating
from fyrehose_twisted.process.sd_notify import supervisor
from fyrehose_twisted.process.shutdown import end_process
from fyrehose_twisted.process.sighup import Reloading, changes
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.query.monitoring.scraper import Watched
from fyrehose_twisted.query.records.journals import Sources
from fyrehose_twisted.query.site import QuerySite
from fyrehose_twisted.web.site import drained
from fyrehose_twisted.web.tokens import Tokens
from fyrehose_twisted.wording import counted


class QueryService(Service):
    """Serves the journals of a directory.

    :param sources: the journals.
    :param http: server endpoint.
    :param watched: services whose metrics are shown, too.
    :param tokens: clients have to know one of them.
    :param reread: called on SIGHUP; returns limits and tokens to go by from then on.
    :raises ConfigurationError: if ``http`` is no endpoint.
    """

    log = Logger()

    def __init__(
        self,
        sources: Sources,
        http: str,
        *,
        watched: Iterable[Watched] = (),
        tokens: Tokens | None = None,
        config: QueryConfig | None = None,
        reread: Callable[[], tuple[QueryConfig, Tokens | None]] | None = None,
        reactor: Any = None,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        config = QueryConfig() if config is None else config
        self.reactor = reactor
        self.sources = sources
        self.site = QuerySite(sources, config, reactor, watched=watched, tokens=tokens)
        self._entrances = Entrances(reactor, "tcp:8480", "query")
        self._entrances.add("http", http, self.site)
        self._looks = Repeating("the overview", self._look, reactor)
        self._interval = config.look_interval
        self._reloading = Reloading(reread, self._reconfigure, reactor)

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
        self._entrances.failed(self._fail)
        self.sources.look()
        self.site.watcher.start()
        self._looks.start(self._interval)
        self._reloading.start()
        if self._entrances.all_bound:
            supervisor.ready(self.reactor, f"listening on {self._entrances}")

    def stopService(self) -> Deferred[None]:
        """Twisted: end all streams, answer what is under way, and let go of the journals."""
        super().stopService()
        return Deferred.fromCoroutine(self._stop())

    async def _stop(self) -> None:
        self._reloading.stop()
        self._looks.stop()
        self.site.watcher.stop()
        await self._entrances.close()
        self.site.close()
        await drained(self.reactor, lambda: self.site.connections)
        self.site.searches.stop()
        self.sources.close()

    def _reconfigure(self, read: tuple[QueryConfig, Tokens | None]) -> list[str]:
        config, tokens = read
        told = changes(self.site.config, config)
        self.site.reconfigure(config, tokens)
        return [*told, *([] if tokens is None else [counted(len(tokens), "token")])]

    def _look(self) -> None:
        # With no client to tell, only the history, and what is new in the directory, matter.
        if len(self.site.overviews):
            self.site.overviews.look()
        elif self.site.overview.due:
            self.site.overview.look()
        else:
            self.sources.look()

    def _fail(self, error: Exception) -> None:
        self.log.critical("stopping: {error}", error=error)
        end_process(self.reactor)
