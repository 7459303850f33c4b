"""Building blocks of outgoing HTTP requests."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.error import ConnectingCancelledError
from twisted.internet.interfaces import IConsumer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.python.url import URL
from twisted.web.client import ResponseDone, ResponseFailed
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from fyrehose_twisted.errors import RemoteError


class ResponseTooLarge(RemoteError):
    """A response exceeds its size limit."""


@implementer(IBodyProducer)
class Body:
    """Request body. Unlike Twisted's own producer, it needs no extra turn of the reactor.

    :ivar sent: whether the body may have been sent; before that, no server can have carried out the request.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.length = len(data)
        self.sent = False

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        """Twisted: send the body."""
        self.sent = True
        consumer.write(self._data)
        return succeed(None)

    def pauseProducing(self) -> None:
        """Twisted: it is sent already."""

    def resumeProducing(self) -> None:
        """Twisted: it is sent already."""

    def stopProducing(self) -> None:
        """Twisted: it is sent already."""


@implementer(IAgent)
class IdentityEncodingAgent:
    """Agent that does not request compressed responses, because a few bytes can expand to very many.

    treq requests and decompresses them by default.
    """

    def __init__(self, agent: Any) -> None:
        self._agent = agent

    def request(self, method: bytes, uri: bytes, headers: Headers | None = None, bodyProducer: Any = None) -> Any:
        """Twisted: send a request."""
        if headers is not None:
            headers.removeHeader(b"Accept-Encoding")
        return self._agent.request(method, uri, headers, bodyProducer).addCallback(self._strip_encoding)

    def _strip_encoding(self, response: Any) -> Any:
        response.headers.removeHeader(b"Content-Encoding")
        return response


class _AddressUrl(URL):
    """URL with an IPv6 address, which treq would encode like a name, and refuse."""

    def to_uri(self) -> _AddressUrl:
        """Return the URL itself."""
        return self


def treq_url(url: str) -> str | URL:
    """Return a URL as treq takes it."""
    return _AddressUrl.from_text(url) if "[" in url.partition("://")[2].partition("/")[0] else url


def abort_connection(transport: Any) -> None:
    """Abort the connection on which a body is received.

    Twisted gives body protocols a transport with only ``loseConnection``, which waits for the peer on TLS.
    """
    if transport is not None:
        inner = getattr(transport, "_producer", None) or transport
        getattr(inner, "abortConnection", inner.loseConnection)()


async def await_response(request: Awaitable[Any]) -> Any:
    """Await a response.

    :raises CancelledError: if the request is cancelled, at any stage.
    """
    try:
        return await request
    except ConnectingCancelledError:
        raise CancelledError from None
    except ResponseFailed as error:
        if any(reason.check(CancelledError, ConnectingCancelledError) for reason in error.reasons):
            raise CancelledError from None
        raise


class _BodyCollector(Protocol):
    def __init__(self, limit: int, keep: bool) -> None:
        self._remaining = limit
        self._keep = keep
        self._parts: list[bytes] = []
        self._over_limit = False
        self.done: Deferred[bytes] = Deferred(self._cancel)

    def _cancel(self, deferred: object) -> None:
        self._abort()

    def _abort(self) -> None:
        abort_connection(self.transport)

    def dataReceived(self, data: bytes) -> None:
        self._remaining -= len(data)
        if self._remaining < 0:
            self._over_limit = True
            self._parts.clear()
            self._abort()
        elif self._keep:
            self._parts.append(data)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.done.called:
            return
        if self._over_limit:
            self.done.errback(ResponseTooLarge("a response exceeds the limit"))
        elif reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._parts))
        else:
            self.done.errback(reason)


def read_body(response: IResponse, limit: int, keep: bool = True) -> Deferred[bytes]:
    """Read the body of a response. It fails with :class:`ResponseTooLarge` beyond ``limit`` bytes.

    :param keep: return the body; otherwise, discard it and return empty bytes.
    """
    collector = _BodyCollector(limit, keep)
    response.deliverBody(collector)
    return collector.done
