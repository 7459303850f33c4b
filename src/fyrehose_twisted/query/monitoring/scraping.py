"""Scrapes: one page of another service, read again and again."""

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
"""Bytes of a page."""
MAX_MISSED = 3
"""Scrapes in a row without an answer after which a page is down."""

# Twisted's, which are not annotated.
_Pool: Any = HTTPConnectionPool
_Agent: Any = Agent
_hostname_endpoint: Any = HostnameEndpoint

T = TypeVar("T")


class MalformedPage(RemoteError):
    """An answer is not the page that was asked for."""


class ScrapeResult(NamedTuple, Generic[T]):
    """What is known of a page. All times are UTC seconds since 1970, 0 before the first one."""

    up: bool
    """One of the last :data:`MAX_MISSED` scrapes was answered."""
    why: str
    """Error of the latest scrape; empty if it was answered."""
    at: float
    """When the latest scrape ended."""
    heard_at: float
    """When a scrape was answered last: the age of :attr:`content`."""
    missed: int
    """Scrapes in a row without an answer."""
    content: T
    """Of the last scrape that was answered."""


class PageFetcher:
    """Gets pages over connections that stay open."""

    def __init__(self, config: QueryConfig, reactor: Any) -> None:
        pool = _Pool(reactor)
        pool._factory = _QuietClientFactory
        endpoints = _Endpoints(reactor, config.scrape_timeout)
        self._agent: Any = _Agent.usingEndpointFactory(reactor, endpoints, pool)
        self._pool = pool

    async def get(self, url: str) -> bytes:
        """Return a page. :raises BadPage: if the answer is an error or too long."""
        response = await self._agent.request(b"GET", url.encode(), Headers({b"User-Agent": [b"fyrehose-query"]}))
        body = _Body()
        response.deliverBody(body)
        page: bytes = await body.complete
        if response.code != 200:
            raise MalformedPage(f"it answers {response.code}")
        return page

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._pool.closeCachedConnections()


class PageScraper(Generic[T]):
    """Reads one page again and again, one request at a time.

    :param name: the page, as the log names it.
    :param parse: makes the content of a page; raises :class:`MalformedPage` if it is another one.
    :param empty: the content before the first answer.
    :param wanted: whether the page is to be read now; by default always.
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
        self._result: ScrapeResult[T] = ScrapeResult(False, "not asked yet", 0.0, 0.0, 0, empty)

    @property
    def result(self) -> ScrapeResult[T]:
        """What is known of the page now. A page whose content is too old is not up."""
        config, one, now = self._config, self._result, self._reactor.seconds()
        if one.up and now - one.heard_at > MAX_MISSED * (config.scrape_interval + config.scrape_timeout):
            return one._replace(up=False, why=one.why or f"not heard of for {now - one.heard_at:.0f} s")
        return one

    def start(self) -> None:
        """Begin."""
        self._periodic_call.start(self._config.scrape_interval)

    def stop(self) -> None:
        """End."""
        self._periodic_call.stop()
        if self._request is not None:
            asked, self._request = self._request, None
            asked.cancel()

    def _start_request(self) -> Deferred[None]:
        if not self._wanted():
            return succeed(None)
        asked = self._request = Deferred.fromCoroutine(self._get())
        timeout = self._config.scrape_timeout
        late = MalformedPage(f"no answer within {timeout:g} s")
        asked.addTimeout(timeout, self._reactor, lambda *_: Failure(late))

        def done(result: Any) -> None:
            if asked is not self._request:
                return  # The scrape has stopped.
            self._request = None
            now, before = self._reactor.seconds(), self._result
            if isinstance(result, Failure):
                why, missed = _failure_reason(result.value), before.missed + 1
                if missed == 1:
                    self.log.warn("{name} at {url}: {why}", name=self._name, url=self._url, why=why)
                self._result = before._replace(up=before.up and missed < MAX_MISSED, why=why, at=now, missed=missed)
            else:
                if before.missed:
                    self.log.info("{name} at {url} is back", name=self._name, url=self._url)
                self._result = ScrapeResult(True, "", now, now, 0, result)

        return asked.addBoth(done)

    async def _get(self) -> T:
        return self._parse(await self._fetcher.get(self._url))


def _failure_reason(problem: BaseException | None) -> str:
    reasons: Any = problem.reasons if isinstance(problem, ResponseFailed) else ()
    return (
        "the answer is not HTTP" if any(reason.check(ParseError) for reason in reasons) else describe_failure(problem)
    )


class _QuietClientFactory(_HTTP11ClientFactory):
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
            self.complete.errback(MalformedPage(f"its page is longer than {MAX_PAGE:,} bytes"))
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
