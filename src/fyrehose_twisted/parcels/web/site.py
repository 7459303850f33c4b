"""The web site of a node."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from hashlib import sha256
from hmac import compare_digest
from http import HTTPStatus
from typing import Any

from prometheus_client.registry import Collector
from twisted.internet.interfaces import IAddress
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET, Site

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.parcels.web.answers import Answer, Headers, Problem, answer, problem_of
from fyrehose_twisted.parcels.web.asking import header, queries
from fyrehose_twisted.parcels.web.callback_pages import CallbackPages
from fyrehose_twisted.parcels.web.callbacks import Callbacks
from fyrehose_twisted.parcels.web.channel import Channel, WebRequest
from fyrehose_twisted.parcels.web.cluster import Cluster
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.events import Events
from fyrehose_twisted.parcels.web.metrics import Metrics, NodeCollector, WebCollector
from fyrehose_twisted.parcels.web.openapi import describe
from fyrehose_twisted.parcels.web.stream import Feed

Render = Callable[[WebRequest], Answer | None]
"""Answers a request: at once, or later by itself if it returns ``None``."""

SWEEP = 1.0
"""Seconds between looks at what takes too long."""

_ID = re.compile(rb"/callbacks/[^/]+")


class Route:
    """What is under one path.

    :param name: how metrics and the description name it.
    :param open: whether it is for those without the token too.
    """

    def __init__(self, name: str, methods: Mapping[bytes, Render], *, open: bool = False) -> None:
        self.name = name
        self.open = open
        self.methods = dict(methods)
        if b"GET" in methods:
            self.methods[b"HEAD"] = methods[b"GET"]
        self.allow = b", ".join(sorted(self.methods))


class Root(Resource):
    """Finds the route of a request, and refuses who may not have it."""

    isLeaf = True

    def __init__(self, routes: list[Route], token: bytes | None, config: WebConfig) -> None:
        super().__init__()
        self._routes = {route.name.encode(): route for route in routes}
        self._token = None if token is None else sha256(token).digest()
        self._origin = None if config.allowed_origin is None else config.allowed_origin.encode()

    def render(self, request: WebRequest) -> Any:
        """Twisted: answer."""
        try:
            answer = self._answer(request)
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                raise
            answer = problem.answer()
        if answer is not None:
            request.answer(answer)
        return NOT_DONE_YET

    def _answer(self, request: WebRequest) -> Answer | None:
        path: bytes = request.path
        route = self._routes.get(path)
        if route is None and _ID.fullmatch(path):
            route = self._routes.get(b"/callbacks/{id}")
        method: bytes = request.method
        if route is not None:
            request.route = route.name
            if method == b"OPTIONS" and self._origin is not None:
                return self._preflight(route)  # Browsers ask this without the token.
        if self._token is not None and (route is None or not route.open):
            self._authorize(request)
        if route is None:
            raise Problem(HTTPStatus.NOT_FOUND, "not-found", "there is nothing here; see /openapi.json")
        render = route.methods.get(method)
        if render is None:
            message = f"this is for {route.allow.decode()}"
            raise Problem(HTTPStatus.METHOD_NOT_ALLOWED, "method-not-allowed", message, ((b"Allow", route.allow),))
        if method not in (b"GET", b"HEAD"):
            self._check_origin(request)
        return render(request)

    def _authorize(self, request: WebRequest) -> None:
        given = header(request, b"Authorization") or b""
        scheme, _, token = given.partition(b" ")
        # Digests have the same length, so that not even that of the token is told.
        if scheme.lower() != b"bearer" or not compare_digest(sha256(token.strip()).digest(), self._token or b""):
            message = "this needs the token: Authorization: Bearer TOKEN"
            raise Problem(HTTPStatus.UNAUTHORIZED, "unauthorized", message, ((b"WWW-Authenticate", b"Bearer"),))

    def _check_origin(self, request: WebRequest) -> None:
        # A page from anywhere can have a browser send requests to this host; it only cannot read the answers.
        origin = header(request, b"Origin")
        if origin is None or origin == self._origin:
            return
        host = request.getHeader(b"Host") or b""
        if origin.partition(b"://")[2].lower() != host.lower():
            message = "pages of other sites may not change anything here"
            raise Problem(HTTPStatus.FORBIDDEN, "cross-origin", message)

    def _preflight(self, route: Route) -> Answer:
        headers: Headers = (
            (b"Access-Control-Allow-Methods", route.allow),
            (
                b"Access-Control-Allow-Headers",
                b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID, Publisher",
            ),
            (b"Access-Control-Max-Age", b"600"),
        )
        return Answer(HTTPStatus.NO_CONTENT, b"", headers)


class ParcelsSite(Site):
    """What clients connect to: the web site of a node. See :func:`site`.

    :ivar requests: how many were answered, by route, method and status.
    :ivar refused: connections that were closed because there were too many.
    """

    protocol = Channel  # type: ignore[assignment]

    def __init__(self, root: Root, config: WebConfig, feed: Feed, events: Events, reactor: Any) -> None:
        super().__init__(
            root,
            requestFactory=WebRequest,
            parsePOSTFormSubmission=False,
            timeout=config.idle_timeout,
            reactor=reactor,
        )
        self.config = config
        self.requests: Counter[tuple[str, bytes, int]] = Counter()
        self.refused = 0
        self._feed = feed
        self._events = events
        self._channels: set[Channel] = set()
        self._sweep: Any = None

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
            return None
        return super().buildProtocol(addr)

    def opened(self, channel: Channel) -> None:
        """A connection is open."""
        self._channels.add(channel)
        if self._sweep is None:
            self._sweep = self.reactor.callLater(SWEEP, self._look)

    def closed(self, channel: Channel) -> None:
        """A connection is closed."""
        self._channels.discard(channel)
        if not self._channels and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def close(self) -> None:
        """End all streams, and all connections as soon as what is under way is answered."""
        self._feed.close()
        for channel in list(self._channels):
            channel.end()

    def _look(self) -> None:
        now = self.reactor.seconds()
        self._sweep = self.reactor.callLater(SWEEP, self._look)
        for channel in [channel for channel in self._channels if channel.late(now)]:
            channel.refuse(Problem(HTTPStatus.REQUEST_TIMEOUT, "timeout", "the request took too long to arrive"))
        self._events.give_up(now)


def site(
    node: IOrderedEvents,
    *,
    reactor: Any,
    token: bytes | None = None,
    callbacks: Callbacks | None = None,
    config: WebConfig | None = None,
) -> ParcelsSite:
    """Return the web site of ``node``.

    :param token: everybody has to know it who asks for more than ``/health`` and ``/openapi.json``.
    :param callbacks: they are started and stopped by the caller; without them there is no ``/callbacks``.
    """
    config = config or WebConfig()
    if token is not None and not token:
        raise ConfigurationError("an empty token would let everybody in")
    feed = Feed(node, config, reactor)
    events = Events(node, feed, config, reactor)
    cluster = Cluster(node)
    metrics: list[Collector] = [NodeCollector(node)]
    pages = Metrics(metrics)
    routes = [
        Route("/events", {b"GET": events.get, b"POST": events.post}),
        Route("/cluster", {b"GET": cluster.get}),
        Route("/cluster/reform", {b"POST": cluster.reform}),
        Route("/health", {b"GET": cluster.health}, open=True),
        Route("/metrics", {b"GET": pages.get}),
    ]
    if callbacks is not None:
        registered = CallbackPages(callbacks)
        routes += [
            Route("/callbacks", {b"GET": registered.list, b"POST": registered.post}),
            Route("/callbacks/{id}", {b"GET": registered.get, b"DELETE": registered.delete}),
        ]
    description = describe(config, callbacks=callbacks is not None, token=token is not None)
    routes += [
        Route("/openapi.json", {b"GET": _page(description)}, open=True),
        Route("/", {b"GET": _page({"links": [route.name for route in routes] + ["/openapi.json"]})}),
    ]
    made = ParcelsSite(Root(routes, token, config), config, feed, events, reactor)
    metrics.append(WebCollector(made, feed, callbacks))
    return made


def _page(content: Any) -> Render:
    fixed = answer(content)

    def get(request: WebRequest) -> Answer:
        queries(request)
        return fixed

    return get
