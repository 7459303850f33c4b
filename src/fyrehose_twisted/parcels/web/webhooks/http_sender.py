"""Sender of callback requests, on treq."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from treq.client import HTTPClient
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers

from fyrehose_twisted.parcels.client.http import (
    Body,
    IdentityEncodingAgent,
    ResponseTooLarge,
    await_response,
    read_body,
    treq_url,
)
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.webhooks.ssrf import (
    CheckedEndpoints,
    Resolve,
    check_url,
    checked_resolver,
    reactor_resolver,
)

MAX_RESPONSE_BYTES = 65_536
"""Maximum bytes of a response body that are read and discarded, so that the connection can be reused."""


class TreqSender:
    """Sender of callback requests over persistent connections.

    :param resolve: resolves names; by default, with the reactor's resolver.
    :param policy: see :class:`~fyrehose_twisted.parcels.web.webhooks.ssrf.CheckedEndpoints`.
    """

    def __init__(self, config: WebConfig, reactor: Any, *, resolve: Resolve | None = None, policy: Any = None) -> None:
        self._resolve = checked_resolver(resolve or reactor_resolver(reactor), config.allow_private_callbacks)
        self._ports = frozenset(config.callback_ports)
        self._timeout = config.callback_timeout
        self._reactor = reactor
        self._pool = HTTPConnectionPool(reactor)
        self._pool.cachedConnectionTimeout = 10
        endpoints = CheckedEndpoints(reactor, self._resolve, self._timeout, self._ports, policy)
        self._agent = IdentityEncodingAgent(Agent.usingEndpointFactory(reactor, endpoints, self._pool))

    def check(self, url: str) -> Deferred[None]:
        """Check whether callbacks to ``url`` are allowed.

        It fails with :class:`~fyrehose_twisted.parcels.web.webhooks.ssrf.AddressNotAllowed`.
        """
        looked_up = maybeDeferred(lambda: self._resolve(check_url(url, self._ports)))
        looked_up.addTimeout(self._timeout, self._reactor)
        return looked_up.addCallback(lambda addresses: None)

    def post(self, url: str, headers: dict[str, str], body: bytes) -> Deferred[int]:
        """Send a POST request; return a Deferred of the response status. It fails if there is no response in time."""
        posted: Deferred[int] = Deferred.fromCoroutine(self._post(url, headers, body))
        return posted.addTimeout(self._timeout, self._reactor)

    async def _post(self, url: str, headers: dict[str, str], body: bytes) -> int:
        # A client stores cookies. Use a new one each time, so that receivers cannot set any.
        client = HTTPClient(self._agent, data_to_body_producer=Body)
        lines = Headers({name: [value] for name, value in headers.items()})
        response = await await_response(
            client.request(
                "POST",
                treq_url(url),
                headers=lines,
                data=body,
                allow_redirects=False,
                unbuffered=True,
                reactor=self._reactor,
            )
        )
        with suppress(ResponseTooLarge):  # The status has arrived. The rest of the body does not matter.
            await read_body(response.original, MAX_RESPONSE_BYTES, keep=False)
        return int(response.code)

    def close(self) -> Deferred[None]:
        """Close the persistent connections."""
        closed: Deferred[None] = self._pool.closeCachedConnections()
        return closed
