"""Web site with the HTTP API of a node."""

from __future__ import annotations

from typing import Any

from prometheus_client.registry import Collector

from fyrehose_twisted.interfaces import IClusterOperator, IOrderedEvents, IStateHolder
from fyrehose_twisted.parcels.web.backup import BackupResource
from fyrehose_twisted.parcels.web.cluster import ClusterResource
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.event_stream import EventBroadcaster
from fyrehose_twisted.parcels.web.events import EventsResource
from fyrehose_twisted.parcels.web.metrics import CallbackCollector, NodeCollector
from fyrehose_twisted.parcels.web.openapi import describe_openapi
from fyrehose_twisted.parcels.web.state import StateResource
from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks
from fyrehose_twisted.parcels.web.webhooks.resource import CallbackResource
from fyrehose_twisted.web.metrics import MetricsPage, SiteCollector
from fyrehose_twisted.web.site import Route, WebSite, constant_page
from fyrehose_twisted.web.tokens import Tokens, shared_token


def site(
    node: IOrderedEvents,
    *,
    reactor: Any,
    token: bytes | None = None,
    tokens: Tokens | None = None,
    callbacks: Callbacks | None = None,
    config: WebConfig | None = None,
) -> WebSite:
    """Return the web site of ``node``.

    :param token: token required for all requests except ``/health`` and ``/openapi.json``.
    :param tokens: the same with a token for each client.
    :param callbacks: callback registry, which the caller starts and stops; without it, there is no ``/callbacks``.
    :raises ConfigurationError: if the token is empty.
    """
    config = config or WebConfig()
    if token is not None:
        tokens = shared_token(token)
    feed = EventBroadcaster(node, config, reactor)
    events = EventsResource(node, feed, config, reactor)
    cluster = ClusterResource(node)
    metrics: list[Collector] = [NodeCollector(node)]
    routes = [
        Route("/events", {b"GET": events.get, b"POST": events.post}),
        Route("/cluster", {b"GET": cluster.get}),
        Route("/cluster/reform", {b"POST": cluster.reform}),
        Route("/health", {b"GET": cluster.health}, open=True),
        Route("/metrics", {b"GET": MetricsPage(metrics).get}),
    ]
    holder: Any = node
    operator = IClusterOperator.providedBy(node)
    if operator:
        backup = BackupResource(holder)
        routes += [
            Route("/cluster/transfer", {b"POST": cluster.transfer}),
            Route("/cluster/remove", {b"POST": cluster.remove}),
            Route("/backup", {b"GET": backup.head}),
            Route("/backup/events", {b"GET": backup.events}),
        ]
    holds_state = IStateHolder.providedBy(node) and holder.holds_state
    if holds_state:
        routes.append(Route("/state", {b"GET": StateResource(holder, events).get}))
    if callbacks is not None:
        registered = CallbackResource(callbacks)
        routes += [
            Route("/callbacks", {b"GET": registered.list, b"POST": registered.post}),
            Route("/callbacks/{id}", {b"GET": registered.get, b"DELETE": registered.delete}),
        ]
    description = describe_openapi(
        config, callbacks=callbacks is not None, operator=operator, state=holds_state, token=tokens is not None
    )
    routes += [
        Route("/openapi.json", {b"GET": constant_page(description)}, open=True),
        Route("/", {b"GET": constant_page({"links": [route.name for route in routes] + ["/openapi.json"]})}),
    ]
    made = WebSite(routes, config, reactor, tokens=tokens, streams=feed)
    made.sweeps.append(events.expire_requests)
    metrics.append(SiteCollector("fyrehose_parcels_web", made))
    if callbacks is not None:
        metrics.append(CallbackCollector(callbacks))
    return made
