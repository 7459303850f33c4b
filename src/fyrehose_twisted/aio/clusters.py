"""Cluster of parcels nodes, for an asyncio application."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.aio.endpoints import AgentEndpoints, LoopEndpoint
from fyrehose_twisted.aio.futures import result_of, wake
from fyrehose_twisted.aio.logs import use_standard_logging
from fyrehose_twisted.aio.loop_reactor import LoopReactor
from fyrehose_twisted.errors import ConfigurationError, PublishQueueFull
from fyrehose_twisted.net.addresses import parse_address
from fyrehose_twisted.parcels.client.tcp_publisher import ParcelsPublisher

if TYPE_CHECKING:
    from twisted.web.client import HTTPConnectionPool

    from fyrehose_twisted.parcels.client.event_iteration import EventIteration
    from fyrehose_twisted.parcels.client.http_client import ParcelsClient
    from fyrehose_twisted.parcels.client.sse_client import OrderedEvent

HTTP_TIMEOUT = 10.0
"""Seconds for one request to one node."""


class Cluster:
    """Cluster of parcels nodes; see :func:`cluster`. Use it within ``async with``, or :meth:`close` it."""

    def __init__(
        self,
        nodes: Sequence[str] = (),
        http: Sequence[str] = (),
        *,
        publisher_options: dict[str, Any],
        client_options: dict[str, Any],
    ) -> None:
        use_standard_logging()
        self._loop = asyncio.get_running_loop()
        reactor = LoopReactor(self._loop)
        self._publisher: ParcelsPublisher | None = None
        self._client: ParcelsClient | None = None
        self._connections: HTTPConnectionPool | None = None
        self._room_waiters: list[asyncio.Future[None]] = []
        if nodes:
            addresses = [parse_address(node) for node in nodes]
            self._publisher = ParcelsPublisher(
                addresses, endpoint_for=LoopEndpoint, reactor=reactor, **publisher_options
            )
        if http:
            from twisted.web.client import Agent, HTTPConnectionPool

            from fyrehose_twisted.parcels.client.http_client import ParcelsClient

            self._connections = HTTPConnectionPool(reactor)
            endpoints = AgentEndpoints(reactor, HTTP_TIMEOUT)
            agent = Agent.usingEndpointFactory(reactor, endpoints, self._connections)
            self._client = ParcelsClient(http, reactor=reactor, agent=agent, timeout=HTTP_TIMEOUT, **client_options)

    async def publish(self, data: bytes) -> int:
        """Publish an event; return its sequence number. While too many events are pending, wait.

        Events are ordered as they are published, and each exactly once, whichever nodes fail. An event whose
        publication is cancelled may be ordered all the same.

        :raises NotOrdered: if it has no number in time; ``unknown`` says whether it may still be ordered.
        :raises MessageTooLarge: if it is too large for a cluster.
        """
        return (await self.publish_many((data,)))[0]

    async def publish_many(self, events: Sequence[bytes]) -> list[int]:
        """Publish events, which costs less than :meth:`publish` for each; return their sequence numbers in order.

        See :meth:`publish`; leading events may have been ordered if it fails.

        :raises PublishQueueFull: if they are too many for an empty queue.
        """
        publisher = self._publisher
        if publisher is None:
            client = self._http_client()
            return list(await asyncio.gather(*[result_of(client.publish(event)) for event in events]))
        while True:
            try:
                return await self._outcome(publisher.publish_many(events))
            except PublishQueueFull:
                if not publisher.pending:
                    raise
                await self._room()

    def follow(self, first: int | None = None, cluster_id: str = "") -> EventIteration:
        """Return the events from ``first`` on, for ``async for``; across failures of nodes.

            async with cluster.follow(first=1) as events:
                async for event in events:
                    print(event.sequence, event.data)

        Where events are missing, the iteration raises :class:`~fyrehose_twisted.errors.EventsMissing`, and goes on
        behind them if it is begun anew.

        :param first: sequence number of the first event; by default, that of the next ordered event.
        :param cluster_id: id of the cluster that ``first`` belongs to, if known. The iteration raises
            :class:`~fyrehose_twisted.errors.ClusterIdMismatch` if the cluster was re-created.
        :raises ConfigurationError: if no HTTP address of the cluster was given.
        """
        return self._http_client().iterate(first, cluster_id, make_waiter=self._loop.create_future, wake=wake)

    async def events(
        self, first: int, last: int, cluster_id: str = "", *, linearizable: bool = False
    ) -> list[OrderedEvent]:
        """Return the existing events from ``first`` to ``last``, inclusive.

        See :meth:`~fyrehose_twisted.parcels.client.http_client.ParcelsClient.events`.
        """
        return await result_of(self._http_client().events(first, last, cluster_id, linearizable=linearizable))

    async def close(self) -> None:
        """Fail what is pending, stop all iterations, and disconnect."""
        if self._publisher is not None:
            await result_of(self._publisher.close())
        if self._client is not None:
            await result_of(self._client.close())
        if self._connections is not None:
            await result_of(self._connections.closeCachedConnections())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _http_client(self) -> ParcelsClient:
        if self._client is None:
            raise ConfigurationError("this needs HTTP; pass http='http://127.0.0.1:8878', or where the nodes serve it")
        return self._client

    def _outcome(self, published: Deferred[list[int]]) -> asyncio.Future[list[int]]:
        """Return a Future of a publication. It goes on if the Future is cancelled, and makes room in the end."""
        outcome: asyncio.Future[list[int]] = self._loop.create_future()

        def numbered(numbers: list[int]) -> None:
            if not outcome.done():
                outcome.set_result(numbers)
            self._wake_waiting()

        def failed(failure: Failure) -> None:
            if not outcome.done() and failure.value is not None:
                outcome.set_exception(failure.value)
            self._wake_waiting()

        published.addCallbacks(numbered, failed)
        return outcome

    async def _room(self) -> None:
        waiter = self._loop.create_future()
        self._room_waiters.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._room_waiters:
                self._room_waiters.remove(waiter)

    def _wake_waiting(self) -> None:
        waiting, self._room_waiters = self._room_waiters, []
        for waiter in waiting:
            wake(waiter)


def cluster(
    nodes: str = "",
    *,
    http: str = "",
    name: str = "default",
    publisher: str | None = None,
    secret: bytes | None = None,
    token: str | None = None,
    timeout: float = 30.0,
) -> Cluster:
    """Return a cluster of parcels nodes, for ``async with``. Call it from a coroutine.

        async with aio.cluster("127.0.0.1:7878", http="http://127.0.0.1:8878") as cluster:
            number = await cluster.publish(b"...")

    Connections are made when they are needed, and to another node when one fails.

    :param nodes: ``HOST:PORT`` of nodes to publish to, separated by commas. Without them, events are published over
        HTTP, one at a time.
    :param http: URLs of nodes to follow, separated by commas. It needs the extra ``web``.
    :param name: name of the cluster.
    :param publisher: name of the publisher; by default, a random one. Concurrent publishers need different names.
    :param secret: secret of the cluster, for ``nodes``.
    :param token: access token, for ``http``.
    :param timeout: seconds within which an event has to get its sequence number.
    :raises ConfigurationError: if an address, a name or the secret is invalid, or there is no address at all.
    """
    addresses, urls = ([part.strip() for part in text.split(",") if part.strip()] for text in (nodes, http))
    if not addresses and not urls:
        raise ConfigurationError("give nodes='HOST:PORT', http='http://HOST:PORT', or both")
    return Cluster(
        addresses,
        urls,
        publisher_options={"cluster": name, "name": publisher, "secret": secret, "timeout": timeout},
        client_options={"token": token, "publisher": publisher, "timeout_total": timeout},
    )
