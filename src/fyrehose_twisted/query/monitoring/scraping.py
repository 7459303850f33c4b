"""Periodic scraping of single pages of other services."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from twisted.internet.defer import Deferred, succeed
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

from fyrehose_twisted.errors import RemoteError
from fyrehose_twisted.net.connection import describe_failure
from fyrehose_twisted.process.repeating import PeriodicCall
from fyrehose_twisted.query.config import QueryConfig

MAX_PAGE = 2**20
"""Maximum bytes of a page."""
MAX_MISSED = 3
"""Consecutive failed scrapes after which a page is down."""

# These classes of Twisted have no annotations.
_Pool: Any = HTTPConnectionPool
_Agent: Any = Agent
_hostname_endpoint: Any = HostnameEndpoint

T = TypeVar("T")


class MalformedPage(RemoteError):
    """The response is not the expected page."""


class ScrapeResult(NamedTuple, Generic[T]):
    """Scrape result of a page. Times are UTC seconds since 1970, 0 before the first scrape."""

    up: bool
    """Whether one of the last :data:`MAX_MISSED` scrapes succeeded."""
    why: str
    """Error of the latest scrape; empty if it succeeded."""
    at: float
    """End of the latest scrape."""
    heard_at: float
    """Time of the last successful scrape, from which :attr:`content` is."""
    missed: int
    """Consecutive scrapes that failed."""
    content: T
    """Content of the last successful scrape."""


class PageFetcher:
    """HTTP client with persistent connections."""

    def __init__(self, config: QueryConfig, reactor: Any) -> None:
        pool = _Pool(reactor)
        pool._factory = _QuietClientFactory
        endpoints = _Endpoints(reactor, config.scrape_timeout)
        self._agent: Any = _Agent.usingEndpointFactory(reactor, endpoints, pool)
        self._pool = pool

    async def get(self, url: str) -> bytes:
        """Get a page.

        :raises MalformedPage: if the response is an error or too long.
        """
        response = await self._agent.request(b"GET", url.encode(), Headers({b"User-Agent": [b"fyrehose-query"]}))
        body = _Body()
        response.deliverBody(body)
        page: bytes = await body.complete
        if response.code != 200:
            raise MalformedPage(f"it responds with status {response.code}")
        return page

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.closeCachedConnections()


class PageScraper(Generic[T]):
    """Periodic scraper of one page, with one request at a time.

    :param name: name of the page in the log.
    :param parse: parses a page; raises :class:`MalformedPage` if it is invalid.
    :param empty: content before the first successful scrape.
    :param wanted: returns whether to scrape now; by default always.
    """

    log = Logger()

    def __init__(
        self,
        name: str,
        url: str,
        parse: Callable[[bytes], T],
        empty: T,
        fetcher: PageFetcher,
        config: QueryConfig,
        reactor: Any,
        *,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self._name, self._url, self._parse, self._wanted = name, url, parse, wanted
        self._fetcher, self._config, self._reactor = fetcher, config, reactor
        self._request: Deferred[T] | None = None
        self._periodic_call = PeriodicCall(f"the scrape of {name}", self._start_request, reactor)
        self._result: ScrapeResult[T] = ScrapeResult(False, "not scraped yet", 0.0, 0.0, 0, empty)

    @property
    def result(self) -> ScrapeResult[T]:
        """Current result. A page with outdated content is not up."""
        config, one, now = self._config, self._result, self._reactor.seconds()
        if one.up and now - one.heard_at > MAX_MISSED * (config.scrape_interval + config.scrape_timeout):
            return one._replace(up=False, why=one.why or f"no reply for {now - one.heard_at:.0f} s")
        return one

    def start(self) -> None:
        """Start scraping."""
        self._periodic_call.start(self._config.scrape_interval)

    def stop(self) -> None:
        """Stop scraping."""
        self._periodic_call.stop()
        if self._request is not None:
            request, self._request = self._request, None
            request.cancel()

    def _start_request(self) -> Deferred[None]:
        if not self._wanted():
            return succeed(None)
        request = self._request = Deferred.fromCoroutine(self._get())
        timeout = self._config.scrape_timeout
        late = MalformedPage(f"no answer within {timeout:g} s")
        request.addTimeout(timeout, self._reactor, lambda *_: Failure(late))

        def done(result: Any) -> None:
            if request is not self._request:
                return  # Scraping has stopped.
            self._request = None
            now, before = self._reactor.seconds(), self._result
            if isinstance(result, Failure):
                why, missed = _failure_reason(result.value), before.missed + 1
                if missed == 1:
                    self.log.warn("{name} at {url}: {why}", name=self._name, url=self._url, why=why)
                self._result = before._replace(up=before.up and missed < MAX_MISSED, why=why, at=now, missed=missed)
            else:
                if before.missed:
                    self.log.info("{name} at {url} replies again", name=self._name, url=self._url)
                self._result = ScrapeResult(True, "", now, now, 0, result)

        return request.addBoth(done)

    async def _get(self) -> T:
        return self._parse(await self._fetcher.get(self._url))


def _failure_reason(problem: BaseException | None) -> str:
    reasons: Any = problem.reasons if isinstance(problem, ResponseFailed) else ()
    return (
        "the answer is not HTTP" if any(reason.check(ParseError) for reason in reasons) else describe_failure(problem)
    )


class _QuietClientFactory(_HTTP11ClientFactory):
    """Client factory that does not log connections."""

    noisy = False


class _Body(Protocol):
    """Receiver of a page with limited size."""

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
            self.complete.errback(MalformedPage(f"its page is longer than {MAX_PAGE:,} bytes"))
        elif reason.check(ResponseDone, PotentialDataLoss):  # The latter is a body without a length.
            self.complete.callback(b"".join(self._pieces))
        else:
            self.complete.errback(reason)


@implementer(IAgentEndpointFactory)
class _Endpoints:
    """Endpoint factory for the configured URLs. Redirects are not followed."""

    def __init__(self, reactor: Any, timeout: float) -> None:
        self._reactor = reactor
        self._timeout = timeout

    def endpointForURI(self, uri: Any) -> Any:
        return _hostname_endpoint(self._reactor, uri.host, uri.port, timeout=self._timeout)
