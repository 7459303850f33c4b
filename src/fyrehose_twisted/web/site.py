"""Web site: routing, access control, connection limits and timeouts."""

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
"""Handler of a request. It returns the response, or ``None`` if it responds later by itself."""

SWEEP_INTERVAL = 1.0
"""Seconds between checks of timeouts."""

CLOSE_TIMEOUT = 2.0
"""Seconds for clients to read pending responses when a service stops."""

CORS_HEADERS = b"Authorization, Content-Encoding, Content-Type, Idempotency-Key, Kept, Last-Event-ID, Publisher"
"""Request headers that pages of the allowed origin may send."""

_PART = re.compile(r"\{[a-z]+\}")


class Route:
    """Route of one path.

    :param name: path, as named in metrics and in the description. ``{id}`` matches anything but a slash, which is then
        in :attr:`~fyrehose_twisted.web.channel.WebRequest.parts`.
    :param open: whether the route requires no token.
    :param page: whether the route is a page, to which other sites may link.
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
    """Root resource, which routes requests after access control."""

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
        """Twisted: respond to a request."""
        try:
            response = self._respond(request)
        except Exception as error:
            problem = to_http_error(error)
            if problem is None:
                raise
            response = problem.to_response()
        if response is not None:
            request.respond(response)
        return NOT_DONE_YET

    def _respond(self, request: WebRequest) -> HttpResponse | None:
        route = self._find(request)
        method: bytes = request.method
        if route is not None:
            request.route = route.name
            if method == b"OPTIONS" and self._preflights:
                return _preflight(route)  # Browsers send this without the token.
        request.client_name = self._access.check(
            request, open=route is not None and route.open, page=route is not None and route.page
        )
        wait = self._clients.acquire(request.client_name)
        if wait > 0:
            raise too_many_requests("too-many-requests", "the request rate of this client is too high", wait)
        if route is None:
            raise HttpError(HTTPStatus.NOT_FOUND, "not-found", "no such path; see /openapi.json")
        render = route.methods.get(method)
        if render is None:
            message = f"method not allowed; allowed: {route.allow.decode()}"
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
    """Return the error for a client that exceeds its limits."""
    retry = (b"Retry-After", b"%d" % max(1, math.ceil(wait)))
    return HttpError(HTTPStatus.TOO_MANY_REQUESTS, error, message, (retry,))


class WebSite(Site):
    """Web site with limits.

    :param routes: routes of the site.
    :param tokens: tokens accepted for routes that are not open; ``None`` if none is required.
    :param clients: budgets of the clients; unlimited by default.
    :param streams: streams of the site, which end when it is closed.
    :ivar requests: number of responses by route, method and status.
    :ivar refused: connections closed because there were too many.
    :ivar sweeps: functions called every second with the time while there is a connection.
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
        """Number of open connections."""
        return len(self._channels)

    def startFactory(self) -> None:
        """Twisted: the port is open. Requests are not logged, as they may contain secrets."""

    def stopFactory(self) -> None:
        """Twisted: the port is closed."""
        super().stopFactory()
        self.close()

    def acceptableProtocols(self) -> list[bytes]:
        """Twisted: return the protocols for TLS. The limits assume HTTP/1.1 connections."""
        return [b"http/1.1"]

    def buildProtocol(self, addr: IAddress | None) -> Any:
        """Twisted: a client connects."""
        if len(self._channels) >= self.config.max_connections:
            self.refused += 1
            # Otherwise idle connections could keep out clients that send requests.
            idle = next((channel for channel in self._channels if channel.is_idle), None)
            if idle is None:
                return None
            idle.transport.abortConnection()
            self._channels.pop(idle, None)
        return super().buildProtocol(addr)

    def channel_opened(self, channel: WebChannel) -> None:
        """Register an open connection."""
        self._channels[channel] = None
        if self._sweep_call is None:
            self._sweep_call = self.reactor.callLater(SWEEP_INTERVAL, self._sweep_channels)

    def channel_closed(self, channel: WebChannel) -> None:
        """Remove a closed connection."""
        self._channels.pop(channel, None)
        if not self._channels and self._sweep_call is not None:
            self._sweep_call.cancel()
            self._sweep_call = None

    def close(self) -> None:
        """End all streams. Close each connection after the response in progress."""
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
    """Wait until all closing ``connections`` are closed, at most :data:`CLOSE_TIMEOUT`.

    Data in their buffers is lost when the reactor stops.
    """
    end = reactor.seconds() + CLOSE_TIMEOUT
    while connections() and reactor.seconds() < end:
        await deferLater(reactor, 0.02)


def constant_page(content: Any) -> Render:
    """Return a handler that always responds with the same JSON."""
    fixed = json_response(content)

    def get(request: WebRequest) -> HttpResponse:
        query_params(request)
        return fixed

    return get
