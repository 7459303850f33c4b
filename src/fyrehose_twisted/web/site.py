"""A web site: finds who answers a request, and refuses who may not ask, or asks too much."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any

from twisted.internet.interfaces import IAddress
from twisted.internet.task import deferLater
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from fyrehose_twisted.web.access import AccessControl
from fyrehose_twisted.web.channel import WebChannel, WebRequest
from fyrehose_twisted.web.client_limits import ClientBudgets
from fyrehose_twisted.web.config import SiteConfig
from fyrehose_twisted.web.request import query_params
from fyrehose_twisted.web.response import Headers, HttpError, HttpResponse, json_response, to_http_error
from fyrehose_twisted.web.streaming import StreamingResponses
from fyrehose_twisted.web.tokens import Tokens

Render = Callable[[WebRequest], HttpResponse | None]
"""Answers a request: at once, or later by itself if it returns ``None``."""

SWEEP_INTERVAL = 1.0
"""Seconds between looks at what takes too long."""

CLOSE_TIMEOUT = 2.0
"""Seconds that clients get, when a service ends, to read the rest of what they are told."""

CORS_HEADERS = b"Authorization, Content-Encoding, Content-Type, Idempotency-Key, Kept, Last-Event-ID, Publisher"
"""What pages of the allowed origin may send."""

_PART = re.compile(r"\{[a-z]+\}")


class Route:
    """What is under one path.

    :param name: the path, as metrics and the description name it; ``{id}`` stands for anything but a slash, and is then
        in :attr:`~fyrehose_twisted.web.channel.WebRequest.parts`.
    :param open: whether it is for those without the token too.
    :param page: whether it is a page, to which pages of others may link.
    """

    def __init__(self, name: str, methods: Mapping[bytes, Render], *, open: bool = False, page: bool = False) -> None:
        self.name = name
        self.open = open
        self.page = page
        self.methods = dict(methods)
        if b"GET" in methods:
            self.methods[b"HEAD"] = methods[b"GET"]
        self.allow = b", ".join(sorted(self.methods))
        self.pattern: re.Pattern[bytes] | None = None
        if "{" in name:
            fixed = map(re.escape, _PART.split(name))
            self.pattern = re.compile("([^/]+)".join(fixed).encode())


class RootResource(Resource):
    """Finds the route of a request, and refuses who may not have it."""

    isLeaf = True

    def __init__(
        self, routes: Iterable[Route], access: AccessControl, clients: ClientBudgets, config: SiteConfig
    ) -> None:
        super().__init__()
        self._routes = {route.name.encode(): route for route in routes}
        self._patterns = [route for route in self._routes.values() if route.pattern is not None]
        self._access = access
        self._clients = clients
        self._preflights = config.allowed_origin is not None

    def render(self, request: WebRequest) -> Any:
        """Twisted: answer."""
        try:
            answer = self._respond(request)
        except Exception as error:
            problem = to_http_error(error)
            if problem is None:
                raise
            answer = problem.to_response()
        if answer is not None:
            request.respond(answer)
        return NOT_DONE_YET

    def _respond(self, request: WebRequest) -> HttpResponse | None:
        route = self._find(request)
        method: bytes = request.method
        if route is not None:
            request.route = route.name
            if method == b"OPTIONS" and self._preflights:
                return _preflight(route)  # Browsers ask this without the token.
        request.client_name = self._access.check(
            request, open=route is not None and route.open, page=route is not None and route.page
        )
        wait = self._clients.acquire(request.client_name)
        if wait > 0:
            raise too_many_requests("too-many-requests", "you ask too often", wait)
        if route is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "not-found", "there is nothing here; see /openapi.json")
        render = route.methods.get(method)
        if render is None:
            message = f"this is for {route.allow.decode()}"
            raise HttpError(HTTPStatus.METHOD_NOT_ALLOWED, "method-not-allowed", message, ((b"Allow", route.allow),))
        request.decompress_body()
        return render(request)

    def _find(self, request: WebRequest) -> Route | None:
        path: bytes = request.path
        route = self._routes.get(path)
        if route is not None and route.pattern is None:
            return route
        for route in self._patterns:
            assert route.pattern is not None
            found = route.pattern.fullmatch(path)
            if found is not None:
                request.parts = found.groups()
                return route
        return None


def _preflight(route: Route) -> HttpResponse:
    headers: Headers = (
        (b"Access-Control-Allow-Methods", route.allow),
        (b"Access-Control-Allow-Headers", CORS_HEADERS),
        (b"Access-Control-Max-Age", b"600"),
    )
    return HttpResponse(HTTPStatus.NO_CONTENT, b"", headers)


def too_many_requests(error: str, message: str, wait: float = 1.0) -> HttpError:
    """Return the problem that one client wants more than it may have."""
    retry = (b"Retry-After", b"%d" % max(1, math.ceil(wait)))
    return HttpError(HTTPStatus.TOO_MANY_REQUESTS, error, message, (retry,))


class WebSite(Site):
    """What clients connect to.

    :param routes: what there is.
    :param tokens: clients have to know one of them to get at what is not open.
    :param clients: keeps account of what each client may have; by default it may have as much as it likes.
    :param streams: those of the site, which end when it is closed.
    :ivar requests: how many were answered, by route, method and status.
    :ivar refused: connections that were closed because there were too many.
    :ivar sweeps: called every second with the time while there is a connection.
    """

    protocol = WebChannel  # type: ignore[assignment]

    def __init__(
        self,
        routes: Iterable[Route],
        config: SiteConfig,
        reactor: Any,
        *,
        tokens: Tokens | None = None,
        clients: ClientBudgets | None = None,
        streams: StreamingResponses | None = None,
    ) -> None:
        self.access = AccessControl(tokens, config)
        self.clients = ClientBudgets(None, reactor) if clients is None else clients
        super().__init__(
            RootResource(routes, self.access, self.clients, config),
            requestFactory=WebRequest,
            parsePOSTFormSubmission=False,
            timeout=config.idle_timeout,
            reactor=reactor,
        )
        self.config = config
        self.requests: Counter[tuple[str, bytes, int]] = Counter()
        self.refused = 0
        self.sweeps: list[Callable[[float], object]] = []
        self.streams = streams
        self._channels: dict[WebChannel, None] = {}
        self._sweep_call: Any = None

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._channels)

    def startFactory(self) -> None:
        """Twisted: it listens. There is no log of requests, which would have what is secret in it."""

    def stopFactory(self) -> None:
        """Twisted: it no longer listens."""
        super().stopFactory()
        self.close()

    def acceptableProtocols(self) -> list[bytes]:
        """Twisted: what to speak on TLS. The limits are those of HTTP/1.1 connections."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Twisted: somebody connects."""
        if len(self._channels) >= self.config.max_connections:
            self.refused += 1
            # Or who only holds connections open could keep out those who ask something.
            idle = next((channel for channel in self._channels if channel.is_idle), None)
            if idle is None:
                return None
            idle.transport.abortConnection()
            self._channels.pop(idle, None)
        return super().buildProtocol(addr)

    def channel_opened(self, channel: WebChannel) -> None:
        """A connection is open."""
        self._channels[channel] = None
        if self._sweep_call is None:
            self._sweep_call = self.reactor.callLater(SWEEP_INTERVAL, self._sweep_channels)

    def channel_closed(self, channel: WebChannel) -> None:
        """A connection is closed."""
        self._channels.pop(channel, None)
        if not self._channels and self._sweep_call is not None:
            self._sweep_call.cancel()
            self._sweep_call = None

    def close(self) -> None:
        """End all streams, and all connections as soon as what is under way is answered."""
        if self.streams is not None:
            self.streams.close()
        for channel in list(self._channels):
            channel.end()

    def _sweep_channels(self) -> None:
        now = self.reactor.seconds()
        self._sweep_call = self.reactor.callLater(SWEEP_INTERVAL, self._sweep_channels)
        for channel in [channel for channel in self._channels if channel.is_late(now)]:
            channel.reject(HttpError(HTTPStatus.REQUEST_TIMEOUT, "timeout", "the request took too long to arrive"))
        for channel in [channel for channel in self._channels if channel.is_stuck(now)]:
            channel.transport.abortConnection()
        for sweep in self.sweeps:
            sweep(now)


async def wait_closed(reactor: Any, connections: Callable[[], int]) -> None:
    """Wait until all ``connections`` that were told to end have done so, for :data:`CLOSE_TIMEOUT` at most.

    What is only in their buffers when the reactor ends is not written any more.
    """
    end = reactor.seconds() + CLOSE_TIMEOUT
    while connections() and reactor.seconds() < end:
        await deferLater(reactor, 0.02)


def constant_page(content: Any) -> Render:
    """Return what always answers with the same JSON."""
    fixed = json_response(content)

    def get(request: WebRequest) -> HttpResponse:
        query_params(request)
        return fixed

    return get
