"""Connections and requests, with the limits that Twisted's own do not have."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable
from http import HTTPStatus
from io import BytesIO
from typing import Any, Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import server
from twisted.web.http import HTTPChannel

from fyrehose_twisted.web.coding import decompress
from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.response import JSON, HttpError, HttpResponse, bad_request, too_large

METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})

MIN_GZIP_BYTES = 1_024
"""Bytes of an answer from which on it is compressed for those who can read that."""

ZERO_QUALITY = re.compile(rb"\s*q\s*=\s*0(\.0*)?\s*")

LINGER_BYTES = 2**20
"""Bytes of a body that is too long which are still read, so that its sender gets to see the answer."""


class ChannelSite(Protocol):
    """The part of a site that connections and requests use.

    :ivar reactor: the clock of its timeouts.
    :ivar requests: the number of answers, by route, method and status.
    """

    reactor: Any
    requests: Counter[tuple[str, bytes, int]]

    @property
    def config(self) -> SiteConfig:
        """The limits in force."""

    def channel_opened(self, channel: WebChannel) -> None:
        """A connection is open."""

    def channel_closed(self, channel: WebChannel) -> None:
        """A connection is closed."""


class WebRequest(server.Request):
    """A request whose body is bounded, and which knows when its client has gone.

    :ivar is_disconnected: nobody is there any more to be answered.
    :ivar on_disconnect: called when that happens before the answer is complete.
    :ivar route: what is asked for, as metrics name it.
    :ivar client_name: whose request it is: the name of a token, or an address.
    :ivar parts: what the braces of the route stand for, as they were in the path.
    """

    channel: Any
    content: Any
    transport: Any
    log = Logger()
    is_disconnected = False
    on_disconnect: Callable[[], None] | None = None
    route = "other"
    client_name = ""
    parts: tuple[bytes, ...] = ()
    _is_refused = False
    _received_bytes = 0

    @property
    def web_site(self) -> ChannelSite:
        """The site that got the request."""
        site: ChannelSite = self.channel.site
        return site

    def gotLength(self, length: int | None) -> None:
        """Twisted: all headers are there, and the body is not."""
        # Twisted takes a temporary file for a body whose length is not known.
        self.content = BytesIO()
        if length is not None and length > self.web_site.config.max_body:
            # Nobody is to be told to go on.
            self.requestHeaders.removeHeader(b"Expect")
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        """Twisted: a part of the body arrived."""
        if not self._is_refused:
            if len(data) + self.content.tell() <= self.web_site.config.max_body:
                self.content.write(data)
                return
            self._refuse()
        self._received_bytes += len(data)
        if self._received_bytes > LINGER_BYTES and not self.is_disconnected:
            self.channel.loseConnection()

    def _refuse(self) -> None:
        # Told at once; what still comes is dropped until it ends, for a client that is cut off while it sends often
        # does not look at the answer.
        self._is_refused = True
        self.clientproto, self.method = b"HTTP/1.1", b"POST"
        self.channel.persistent = False
        self._begin(too_large(self.web_site.config.max_body).to_response())

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Twisted: all of it is there."""
        if self._is_refused:
            self.finish()
        else:
            super().requestReceived(command, path, version)

    def decompress_body(self) -> None:
        """Take the coding off the body. :raises Problem: if that cannot be done within the limits."""
        codings = self.requestHeaders.getRawHeaders(b"Content-Encoding")
        if codings is not None:
            self.content = BytesIO(
                decompress(self.content.getvalue(), b",".join(codings), self.web_site.config.max_body)
            )

    def respond(self, response: HttpResponse) -> None:
        """Give the answer, if somebody is there who wants it and has none."""
        if not (self.is_disconnected or self.finished):
            self._begin(response)
            self.finish()

    def _begin(self, response: HttpResponse) -> None:
        self.setResponseCode(response.code, HTTPStatus(response.code).phrase.encode())
        set_header = self.responseHeaders.setRawHeaders
        body = response.body
        if self.channel.is_write_paused:
            # Requests that follow one another would pile their answers up.
            self.channel.persistent = False
        if body:
            set_header(b"Content-Type", [response.type])
            set_header(b"X-Content-Type-Options", [b"nosniff"])
        for name, value in response.headers:
            set_header(name, [value])
        if len(body) >= MIN_GZIP_BYTES:
            self.responseHeaders.addRawHeader(b"Vary", b"Accept-Encoding")
            if self.accepts_gzip:
                body = gzip.compress(body, 4, mtime=0)
                set_header(b"Content-Encoding", [b"gzip"])
        set_header(b"Content-Length", [b"%d" % len(body)])
        self.allow_origin()
        if not self.channel.persistent:
            set_header(b"Connection", [b"close"])
        self.write(body)

    @property
    def accepts_gzip(self) -> bool:
        """Whether the client reads what is compressed."""
        for value in self.requestHeaders.getRawHeaders(b"Accept-Encoding", ()):
            for part in value.lower().split(b","):
                name, _, weight = part.partition(b";")
                if name.strip() == b"gzip":
                    return not ZERO_QUALITY.fullmatch(weight)
        return False

    def allow_origin(self) -> None:
        """Let pages of the one allowed origin see the answer."""
        origin = self.web_site.config.allowed_origin
        if origin is not None:
            headers = self.responseHeaders
            headers.setRawHeaders(b"Access-Control-Allow-Origin", [origin.encode()])
            headers.setRawHeaders(b"Access-Control-Expose-Headers", [b"Link, Location, Retry-After"])
            headers.addRawHeader(b"Vary", b"Origin")

    def finish(self) -> None:
        """The answer is complete."""
        method = self.method if self.method in METHODS else b"other"
        self.web_site.requests[self.route, method, self.code] += 1
        super().finish()

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: the client has gone before it had the whole answer."""
        self.is_disconnected = True
        super().connectionLost(reason)
        if self.on_disconnect is not None:
            self.on_disconnect()

    def fail(self, failure: Failure) -> None:
        """As :meth:`processingFailed`, at the end of a chain of callbacks."""
        self.processingFailed(failure)

    def processingFailed(self, reason: Failure) -> Failure:
        """Answer that this program has a mistake, which is logged."""
        self.log.failure("{route} failed", failure=reason, route=self.route)
        if self.startedWriting:
            if not (self.is_disconnected or self.finished):
                self.channel.transport.abortConnection()
        else:
            problem = HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "this should not have happened")
            self.respond(problem.to_response())
        return reason


class WebChannel(HTTPChannel):
    """A connection. Bytes that are no request are answered with JSON too.

    :ivar is_write_paused: what was answered is not read.
    :ivar upgraded: takes what arrives, once the connection speaks something else than HTTP.
    """

    site: ChannelSite
    transport: Any
    upgraded: Callable[[bytes], object] | None = None
    is_write_paused = False
    _since: float | None = None
    _closing_since: float | None = None

    def connectionMade(self) -> None:
        """Twisted: it is open."""
        super().connectionMade()
        self.site.channel_opened(self)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Twisted: it is closed."""
        super().connectionLost(reason)
        self.site.channel_closed(self)

    def dataReceived(self, data: bytes) -> None:
        """Twisted: bytes arrived."""
        if self.upgraded is not None:
            self.upgraded(data)
            return
        if self._since is None and not self._handlingRequest:
            self._since = self.site.reactor.seconds()
        super().dataReceived(data)

    def pauseProducing(self) -> None:
        """Twisted: the client does not read."""
        self.is_write_paused = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        """Twisted: it does."""
        self.is_write_paused = False
        super().resumeProducing()

    def allContentReceived(self) -> None:
        """Twisted: a request is complete."""
        self._since = None
        super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        """Twisted: a request was answered. The next one may have begun."""
        if any(self._dataBuffer):
            self._since = self.site.reactor.seconds()
        super().requestDone(request)

    def loseConnection(self) -> None:
        """Twisted: hang up as soon as all that was said is written."""
        if self._closing_since is None:
            self._closing_since = self.site.reactor.seconds()
        super().loseConnection()

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered: none has come, or one has not come whole."""
        return not self._handlingRequest

    def is_late(self, now: float) -> bool:
        """Return whether a request takes too long to arrive."""
        if self._since is None or self._closing_since is not None:
            return False
        return now - self._since >= self.site.config.request_timeout

    def is_stuck(self, now: float) -> bool:
        """Return whether the client does not read what was said before this side hung up."""
        return self._closing_since is not None and now - self._closing_since >= self.site.config.idle_timeout

    def headerReceived(self, line: bytes) -> bool:
        """Twisted: one header arrived."""
        try:
            return bool(super().headerReceived(line))
        except ValueError:  # A Content-Length of more digits than Python takes for a number.
            self._respondToBadRequestAndDisconnect()
            return False

    def lineLengthExceeded(self, line: bytes) -> None:
        """Twisted: a line of the head is longer than 16 KiB."""
        self._respondToBadRequestAndDisconnect()

    def reject(self, problem: HttpError) -> None:
        """Answer where there is no request that could be answered, and hang up."""
        self._since = None
        if self.requests and self.requests[-1].startedWriting:  # It has its answer, and goes on all the same.
            self.transport.abortConnection()
            return
        answer = problem.to_response()
        head = b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        reason = HTTPStatus(answer.code).phrase.encode()
        self.transport.write(head % (answer.code, reason, JSON, len(answer.body)) + answer.body)
        self.site.requests["other", b"other", answer.code] += 1
        self.loseConnection()

    def end(self) -> None:
        """Hang up as soon as what is under way is answered."""
        self.persistent = False
        if not self._handlingRequest:
            self.loseConnection()

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.reject(bad_request("this is no HTTP request, or its head is longer than 16 KiB"))
