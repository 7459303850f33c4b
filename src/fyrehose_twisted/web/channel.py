"""HTTP connections and requests with limits that Twisted's own classes lack."""

from __future__ import annotations

import gzip
import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from io import BytesIO
from time import time
from typing import Any, Protocol

from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web import server
from twisted.web.http import NO_BODY_CODES, HTTPChannel, datetimeToString

from fyrehose_twisted.tcp_write import write_at_once
from fyrehose_twisted.web.coding import decompress
from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.response import JSON, HttpError, HttpResponse, bad_request, too_large

METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})

MIN_GZIP_BYTES = 1_024
"""Minimum bytes of a response that is compressed."""

ZERO_QUALITY = re.compile(rb"\s*q\s*=\s*0(\.0*)?\s*")

LINGER_BYTES = 2**20
"""Bytes of an oversized body that are still read, so that the client sees the response."""


_HEAD = b"%b %d %b\r\nServer: " + server.version + b"\r\nDate: %b\r\n"
_PHRASES = {status.value: status.phrase.encode() for status in HTTPStatus}
_TYPE = b"Content-Type: %b\r\nX-Content-Type-Options: nosniff\r\n"


@lru_cache(maxsize=1)
def format_date(seconds: int) -> bytes:
    """Return the value of a ``Date`` header."""
    return bytes(datetimeToString(seconds))


class ChannelSite(Protocol):
    """The part of a site that connections and requests use.

    :ivar reactor: clock of the timeouts.
    :ivar requests: number of responses by route, method and status.
    """

    reactor: Any
    resource: Any
    requests: Counter[tuple[str, bytes, int]]

    @property
    def config(self) -> SiteConfig:
        """Current limits."""

    def channel_opened(self, channel: WebChannel) -> None:
        """Register an open connection."""

    def channel_closed(self, channel: WebChannel) -> None:
        """Remove a closed connection."""


class WebRequest(server.Request):
    """Request with a bounded body and detection of disconnected clients.

    :ivar is_disconnected: whether the client has disconnected.
    :ivar on_disconnect: called if the client disconnects before the response is complete.
    :ivar route: route of the request, as named in metrics.
    :ivar client_name: client of the request: the name of a token, or an address.
    :ivar parts: values of the placeholders of the route, as in the path.
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
        """Site that received the request."""
        site: ChannelSite = self.channel.site
        return site

    def gotLength(self, length: int | None) -> None:
        """Twisted: the headers are complete, and the body follows."""
        # Twisted would use a temporary file for a body of unknown length.
        self.content = BytesIO()
        if length is not None and length > self.web_site.config.max_body:
            # The client must not be told to continue.
            self.requestHeaders.removeHeader(b"Expect")
            self._refuse()

    def handleContentChunk(self, data: bytes) -> None:
        """Twisted: part of the body has arrived."""
        if not self._is_refused:
            if len(data) + self.content.tell() <= self.web_site.config.max_body:
                self.content.write(data)
                return
            self._refuse()
        self._received_bytes += len(data)
        if self._received_bytes > LINGER_BYTES and not self.is_disconnected:
            self.channel.loseConnection()

    def _refuse(self) -> None:
        # Respond at once and discard the rest of the body. A client that is disconnected while sending often does not
        # read the response.
        self._is_refused = True
        self.clientproto, self.method = b"HTTP/1.1", b"POST"
        self.channel.persistent = False
        self._begin(too_large(self.web_site.config.max_body).to_response())

    def requestReceived(self, command: bytes, path: bytes, version: bytes) -> None:
        """Twisted: the request is complete."""
        if self._is_refused:
            self.finish()
        else:
            super().requestReceived(command, path, version)

    def process(self) -> None:
        """Twisted: respond to the request. All paths have the same resource, and streams set headers themselves."""
        self.site = self.channel.site
        try:
            self.web_site.resource.render(self)
        except BaseException:
            self.processingFailed(Failure())

    def decompress_body(self) -> None:
        """Decompress the body.

        :raises HttpError: if that is not possible within the limits.
        """
        codings = self.requestHeaders.getRawHeaders(b"Content-Encoding")
        if codings is not None:
            self.content = BytesIO(
                decompress(self.content.getvalue(), b",".join(codings), self.web_site.config.max_body)
            )

    def respond(self, response: HttpResponse) -> None:
        """Send the response, unless the client has disconnected or has a response."""
        if not (self.is_disconnected or self.finished):
            self._begin(response)
            self.finish()

    def _begin(self, response: HttpResponse) -> None:
        # One write of one string. Twisted writes headers and body apart.
        code, body, headers = response.code, response.body, self.responseHeaders
        if self.channel.is_write_paused:
            # Responses to pipelined requests would accumulate.
            self.channel.persistent = False
        for name, value in response.headers:
            headers.setRawHeaders(name, [value])
        if len(body) >= MIN_GZIP_BYTES:
            headers.addRawHeader(b"Vary", b"Accept-Encoding")
            if self.accepts_gzip:
                body = gzip.compress(body, 4, mtime=0)
                headers.setRawHeaders(b"Content-Encoding", [b"gzip"])
        self.allow_origin()
        if not self.channel.persistent:
            headers.setRawHeaders(b"Connection", [b"close"])
        lines = [_HEAD % (self.clientproto, code, _PHRASES[code], format_date(int(time())))]
        if body:
            lines.append(_TYPE % response.type)
        lines += [b"%b: %b\r\n" % (name, value) for name, values in headers.getAllRawHeaders() for value in values]
        lines.append(b"Content-Length: %d\r\n\r\n" % len(body))
        if self.method != b"HEAD" and code not in NO_BODY_CODES:
            lines.append(body)
        self.code = code
        self.startedWriting = 1
        self.channel.write(b"".join(lines))

    @property
    def accepts_gzip(self) -> bool:
        """Whether the client accepts gzip."""
        for value in self.requestHeaders.getRawHeaders(b"Accept-Encoding", ()):
            for part in value.lower().split(b","):
                name, _, weight = part.partition(b";")
                if name.strip() == b"gzip":
                    return not ZERO_QUALITY.fullmatch(weight)
        return False

    def allow_origin(self) -> None:
        """Add the headers that let pages of the allowed origin read the response."""
        origin = self.web_site.config.allowed_origin
        if origin is not None:
            headers = self.responseHeaders
            headers.setRawHeaders(b"Access-Control-Allow-Origin", [origin.encode()])
            headers.setRawHeaders(b"Access-Control-Expose-Headers", [b"Link, Location, Retry-After"])
            headers.addRawHeader(b"Vary", b"Origin")

    def finish(self) -> None:
        """Complete the response and count it."""
        method = self.method if self.method in METHODS else b"other"
        self.web_site.requests[self.route, method, self.code] += 1
        super().finish()

    def connectionLost(self, reason: Failure) -> None:
        """Twisted: the client has disconnected before the response was complete."""
        self.is_disconnected = True
        super().connectionLost(reason)
        if self.on_disconnect is not None:
            self.on_disconnect()

    def fail(self, failure: Failure) -> None:
        """Handle a failure at the end of a callback chain like :meth:`processingFailed`."""
        self.processingFailed(failure)

    def processingFailed(self, reason: Failure) -> Failure:
        """Log an internal error and respond with status 500."""
        self.log.failure("{route} failed", failure=reason, route=self.route)
        if self.startedWriting:
            if not (self.is_disconnected or self.finished):
                self.channel.transport.abortConnection()
        else:
            problem = HttpError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "internal error; see the log")
            self.respond(problem.to_response())
        return reason


class WebChannel(HTTPChannel):
    """Connection that responds with JSON even to invalid requests.

    :ivar is_write_paused: whether the client is not reading its responses.
    :ivar upgraded: receives all further data after an upgrade to another protocol.
    """

    site: ChannelSite
    transport: Any
    upgraded: Callable[[bytes], object] | None = None
    is_write_paused = False
    _host: Any = None
    _since: float | None = None
    _closing_since: float | None = None

    def connectionMade(self) -> None:
        """Twisted: the connection is open."""
        super().connectionMade()
        self.site.channel_opened(self)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """Twisted: the connection is closed."""
        super().connectionLost(reason)
        self.site.channel_closed(self)

    def getHost(self) -> Any:
        """Twisted: return the local address. Each request asks for it, and the socket would each time."""
        if self._host is None:
            self._host = super().getHost()
        return self._host

    def dataReceived(self, data: bytes) -> None:
        """Twisted: data has arrived."""
        if self.upgraded is not None:
            self.upgraded(data)
            return
        if self._since is None and not self._handlingRequest:
            self._since = self.site.reactor.seconds()
        super().dataReceived(data)

    def write(self, data: bytes) -> None:
        """Twisted: write part of a response."""
        write_at_once(self.transport, data)

    def pauseProducing(self) -> None:
        """Twisted: the write buffer is full."""
        self.is_write_paused = True
        super().pauseProducing()

    def resumeProducing(self) -> None:
        """Twisted: the write buffer has space."""
        self.is_write_paused = False
        super().resumeProducing()

    def allContentReceived(self) -> None:
        """Twisted: a request is complete."""
        self._since = None
        super().allContentReceived()

    def requestDone(self, request: Any) -> None:
        """Twisted: a response is complete. The next request may have begun."""
        if any(self._dataBuffer):
            self._since = self.site.reactor.seconds()
        super().requestDone(request)

    def loseConnection(self) -> None:
        """Twisted: close the connection after pending writes."""
        if self._closing_since is None:
            self._closing_since = self.site.reactor.seconds()
        super().loseConnection()

    @property
    def is_idle(self) -> bool:
        """Whether no complete request is being processed."""
        return not self._handlingRequest

    def is_late(self, now: float) -> bool:
        """Return whether the current request has exceeded its time to arrive."""
        if self._since is None or self._closing_since is not None:
            return False
        return now - self._since >= self.site.config.request_timeout

    def is_stuck(self, now: float) -> bool:
        """Return whether the client has not read the last response in time since the connection began to close."""
        return self._closing_since is not None and now - self._closing_since >= self.site.config.idle_timeout

    def headerReceived(self, line: bytes) -> bool:
        """Twisted: a header has arrived."""
        try:
            return bool(super().headerReceived(line))
        except ValueError:  # A Content-Length with more digits than Python converts.
            self._respondToBadRequestAndDisconnect()
            return False

    def lineLengthExceeded(self, line: bytes) -> None:
        """Twisted: a header line is longer than 16 KiB."""
        self._respondToBadRequestAndDisconnect()

    def reject(self, problem: HttpError) -> None:
        """Send an error without a request to respond to, and close the connection."""
        self._since = None
        if self.requests and self.requests[-1].startedWriting:  # It has its response but is still sending.
            self.transport.abortConnection()
            return
        response = problem.to_response()
        head = b"HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
        reason = HTTPStatus(response.code).phrase.encode()
        self.transport.write(head % (response.code, reason, JSON, len(response.body)) + response.body)
        self.site.requests["other", b"other", response.code] += 1
        self.loseConnection()

    def end(self) -> None:
        """Close the connection after the response in progress."""
        self.persistent = False
        if not self._handlingRequest:
            self.loseConnection()

    def _respondToBadRequestAndDisconnect(self) -> None:
        self.reject(bad_request("invalid HTTP request, or its head is longer than 16 KiB"))
