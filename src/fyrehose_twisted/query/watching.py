"""Scrapes of the metrics of other services."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web._newclient import ParseError
from twisted.web.client import Agent, HTTPConnectionPool, ResponseDone, ResponseFailed, _HTTP11ClientFactory
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgentEndpointFactory
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, RemoteError
from fyrehose_twisted.net.link import describe
from fyrehose_twisted.query.config import QueryConfig
from fyrehose_twisted.repeating import Repeating

MAX_PAGE = 2**20
"""Bytes of a page of metrics."""
MAX_SAMPLES = 4_096
"""Numbers of a page that are kept."""
MISSED = 3
"""Scrapes in a row without an answer after which a service is down."""
PREFIX = "fyrehose_"
"""What else a page has is not of interest here."""

# Twisted's, which are not annotated.
_Pool: Any = HTTPConnectionPool
_Agent: Any = Agent
_hostname_endpoint: Any = HostnameEndpoint

Metrics = dict[str, list[tuple[dict[str, str], float]]]
"""Labels and value of each sample, by the name of the metric."""


class BadMetrics(RemoteError):
    """A page is none of metrics."""


class Watched(NamedTuple):
    """A service, and where its metrics are."""

    name: str
    url: str


class Seen(NamedTuple):
    """What is known of a service. All times are UTC seconds since 1970, 0 before the first one."""

    name: str
    up: bool
    """The service answered one of the last :data:`MISSED` scrapes."""
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


def parse_watch(text: str) -> Watched:
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
    return Watched(name, url)


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
                    raise BadMetrics(f"there are more than {MAX_SAMPLES:,} numbers")
                value = float(sample.value)
                if value - value == 0:  # JSON has neither infinity nor what is no number.
                    found.setdefault(sample.name, []).append((dict(sample.labels), value))
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise BadMetrics(f"that is no page of metrics ({str(error)[:100]})") from None
    return found


class Watcher:
    """Reads the metrics of services again and again, one request for each at a time."""

    log = Logger()

    def __init__(self, watched: Iterable[Watched], config: QueryConfig, reactor: Any) -> None:
        self._watched = tuple(watched)
        self._config = config
        self._reactor = reactor
        pool = _Pool(reactor)
        pool._factory = _Quiet
        endpoints = _Endpoints(reactor, config.scrape_timeout)
        self._agent: Any = _Agent.usingEndpointFactory(reactor, endpoints, pool)
        self._pool = pool
        self._repeated: list[Repeating] = []
        self._asked: set[Deferred[Any]] = set()
        self._seen = {one.name: Seen(one.name, False, "not asked yet", 0.0, 0.0, 0, {}) for one in self._watched}

    @property
    def seen(self) -> list[Seen]:
        """What is known of each service now. A service whose figures are too old is not up."""
        config, now = self._config, self._reactor.seconds()
        too_old = MISSED * (config.scrape_interval + config.scrape_timeout)
        return [
            one._replace(up=False, why=one.why or f"not heard of for {now - one.heard_at:.0f} s")
            if one.up and now - one.heard_at > too_old
            else one
            for one in self._seen.values()
        ]

    def start(self) -> None:
        """Begin."""
        for one in self._watched:
            repeated = Repeating(f"the scrape of {one.name}", partial(self._ask, one), self._reactor)
            self._repeated.append(repeated)
            repeated.start(self._config.scrape_interval)

    def stop(self) -> None:
        """End."""
        for repeated in self._repeated:
            repeated.stop()
        while self._asked:
            self._asked.pop().cancel()
        self._pool.closeCachedConnections()

    def _ask(self, one: Watched) -> Deferred[None]:
        asked: Deferred[Metrics] = Deferred.fromCoroutine(self._get(one.url))
        self._asked.add(asked)
        timeout = self._config.scrape_timeout
        late = BadMetrics(f"no answer within {timeout:g} s")
        asked.addTimeout(timeout, self._reactor, lambda *_: Failure(late))

        def done(result: Any) -> None:
            if asked not in self._asked:
                return  # The watcher has stopped.
            self._asked.remove(asked)
            now, before = self._reactor.seconds(), self._seen[one.name]
            if isinstance(result, Failure):
                why, missed = _why(result.value), before.missed + 1
                if missed == 1:
                    self.log.warn("{name} at {url}: {why}", name=one.name, url=one.url, why=why)
                up = before.up and missed < MISSED
                self._seen[one.name] = before._replace(up=up, why=why, at=now, missed=missed)
            else:
                if before.missed:
                    self.log.info("{name} at {url} is back", name=one.name, url=one.url)
                self._seen[one.name] = Seen(one.name, True, "", now, now, 0, result)

        return asked.addBoth(done)

    async def _get(self, url: str) -> Metrics:
        response = await self._agent.request(b"GET", url.encode(), Headers({b"User-Agent": [b"fyrehose-query"]}))
        body = _Body()
        response.deliverBody(body)
        page = await body.complete
        if response.code != 200:
            raise BadMetrics(f"it answers {response.code}")
        return parse_metrics(page)


def _why(problem: BaseException | None) -> str:
    reasons: Any = problem.reasons if isinstance(problem, ResponseFailed) else ()
    return "the answer is not HTTP" if any(reason.check(ParseError) for reason in reasons) else describe(problem)


class _Quiet(_HTTP11ClientFactory):
    """Does not log each connection."""

    noisy = False


class _Body(Protocol):
    """Takes a page in, as far as it is not too long."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.complete: Deferred[bytes] = Deferred(lambda _: self._abort())

    def dataReceived(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > MAX_PAGE:
            self._abort()
        else:
            self._pieces.append(data)

    def _abort(self) -> None:
        transport: Any = self.transport
        if transport is not None:
            transport.abortConnection()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.complete.called:
            return
        if self._size > MAX_PAGE:
            self.complete.errback(BadMetrics(f"its page is longer than {MAX_PAGE:,} bytes"))
        elif reason.check(ResponseDone, PotentialDataLoss):  # The latter is an end without a length.
            self.complete.callback(b"".join(self._pieces))
        else:
            self.complete.errback(reason)


@implementer(IAgentEndpointFactory)
class _Endpoints:
    """Connects where the operator said, and nowhere else: there are no redirects."""

    def __init__(self, reactor: Any, timeout: float) -> None:
        self._reactor = reactor
        self._timeout = timeout

    def endpointForURI(self, uri: Any) -> Any:
        return _hostname_endpoint(self._reactor, uri.host, uri.port, timeout=self._timeout)
