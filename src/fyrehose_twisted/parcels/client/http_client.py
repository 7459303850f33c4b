"""Client of the HTTP API of a cluster, on treq."""

from __future__ import annotations

from collections import deque
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.web.client import Agent, HTTPConnectionPool
from twisted.web.http_headers import Headers

from fyrehose_twisted.errors import LocalError, NotOrdered, PublishQueueFull, StateUnavailable
from fyrehose_twisted.interfaces import IReplicatedState
from fyrehose_twisted.parcels.client.event_ids import EventId, cluster_id_member, is_cluster_id
from fyrehose_twisted.parcels.client.event_iteration import EventIteration
from fyrehose_twisted.parcels.client.failover import (
    FailoverClient,
    NodeRequest,
    NodeResponse,
    NoNodeAnswers,
    RequestRefused,
    failure_reason,
    numbering_conflict,
)
from fyrehose_twisted.parcels.client.http import Body, IdentityEncodingAgent, await_response, read_body, treq_url
from fyrehose_twisted.parcels.client.replica import StateReplica
from fyrehose_twisted.parcels.client.sse_client import EventFollower, InvalidResponse, OrderedEvent, parse_event
from fyrehose_twisted.parcels.state_snapshot import StateSnapshot
from fyrehose_twisted.parcels.wire.messages import MAX_STATE_BYTES

try:
    from treq.client import HTTPClient
except ModuleNotFoundError as error:
    needs = f"ParcelsClient needs {error.name}, which is not installed: pip install 'fyrehose_twisted[web]'"
    raise ModuleNotFoundError(needs, name=error.name) from None

__all__ = ["EventFollower", "NoNodeAnswers", "OrderedEvent", "ParcelsClient", "RequestRefused"]

MAX_RESPONSE_BYTES = 2**23
"""Maximum size of an error message in bytes."""
FOLLOW_RETRY_DELAY = 0.2
"""Seconds between attempts to open a stream."""


def _identity(body: Any) -> Any:
    return body


class ParcelsClient:
    """Client that publishes to and reads from the nodes of a cluster, with failover.

    Each event gets its own idempotency key, so an event resent to a second node is ordered only once. One event is in
    flight at a time, which preserves their order.

    :param nodes: base URLs, such as ``http://127.0.0.1:8004``, in order of preference.
    :param publisher: publisher name, 1 to 64 characters; by default, a unique one.
    :param timeout: timeout of one request to one node, in seconds.
    :param timeout_total: total timeout of a call, in seconds.
    :param max_waiting: maximum number of events waiting to be published.
    :param agent: Twisted web agent, for example with custom TLS settings; by default, one with persistent connections.
    :ivar cluster_id: id of the cluster that accepted the last event, 16 hexadecimal digits; empty before. Sequence
        numbers are unique only together with it.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        *,
        token: str | bytes | None = None,
        publisher: str | None = None,
        reactor: Any = None,
        agent: Any = None,
        timeout: float = 10.0,
        timeout_total: float = 30.0,
        max_waiting: int = 1_000,
    ) -> None:
        if reactor is None:
            from twisted.internet import reactor
        if not nodes:
            raise LocalError("give the URL of at least one node")
        urls = [node.rstrip("/") for node in nodes]
        self.nodes = FailoverClient(urls, self._send_request, reactor, timeout, timeout_total)
        self.publisher = publisher or f"client-{uuid4().hex[:16]}"
        self.cluster_id = ""
        self._reactor = reactor
        self._timeout = timeout
        self._max_waiting = max_waiting
        self._token = token.encode() if isinstance(token, str) else token
        self._pool = HTTPConnectionPool(reactor)
        self._agent = IdentityEncodingAgent(agent or Agent(reactor, connectTimeout=timeout, pool=self._pool))
        self._waiting: deque[tuple[bytes, str, int | None, Deferred[int]]] = deque()
        self._in_progress: set[Deferred[Any]] = set()
        self._publishing = False
        self._closed = False
        self._followers: list[EventFollower] = []
        self._replicas: list[StateReplica] = []

    def publish(self, data: bytes, key: str | None = None, *, expect: int | None = None) -> Deferred[int]:
        """Publish an event; return a Deferred of its sequence number. Events are ordered as they are published.

        :param key: idempotency key, 1 to 64 characters. To retry an event, even after a restart of your program, pass
            its original key and use the original publisher name.
        :param expect: order the event only if the last event then has this number; 0 if there must be none.

        It fails with :class:`~fyrehose_twisted.errors.NotOrdered`, whose ``unknown`` says whether the event may still
        be ordered, :class:`~fyrehose_twisted.errors.MessageTooLarge`,
        :class:`~fyrehose_twisted.errors.PublishQueueFull`, :class:`~fyrehose_twisted.errors.KeyReused` if the key was
        used with other data, :class:`~fyrehose_twisted.errors.SequenceChanged` if the last event is not ``expect``, or
        :class:`RequestRefused`.
        """
        published: Deferred[int] = Deferred()
        if self._closed:
            published.errback(NotOrdered("closed", "the client is closed", unknown=False))
        elif len(self._waiting) >= self._max_waiting:
            published.errback(PublishQueueFull(f"{self._max_waiting:,} events are pending already"))
        else:
            self._waiting.append((data, key or uuid4().hex, expect, published))
            if not self._publishing:
                self._publishing = True
                self._start(self._publish_all())
        return published

    def events(
        self, first: int, last: int, cluster_id: str = "", *, linearizable: bool = False
    ) -> Deferred[list[OrderedEvent]]:
        """Return a Deferred of the existing events from ``first`` to ``last``, inclusive.

        :param cluster_id: id of the cluster that the numbers belong to, if known.
        :param linearizable: whether every event that was acknowledged before the call must exist for the node. It costs
            as much as publishing an event, shared by all that read at the node.

        It fails with :class:`~fyrehose_twisted.errors.EventsNotHeld`, :class:`NoNodeAnswers`, :class:`RequestRefused`,
        or :class:`~fyrehose_twisted.errors.ClusterIdMismatch` if the cluster was re-created since.
        """
        return self._start(self._events(first, last, cluster_id, linearizable))

    def follow(self, listener: Any, first: int | None = None, cluster_id: str = "") -> EventFollower:
        """Deliver events to an :class:`~fyrehose_twisted.interfaces.IEventListener` until the follower is stopped.

        To resume after a restart, store :attr:`EventFollower.next` and :attr:`EventFollower.cluster_id`.

        :param first: sequence number of the first event; by default, that of the next ordered event.
        :param cluster_id: id of the cluster that ``first`` belongs to, if known.
        """
        following = EventFollower(
            self.nodes.urls, self._open_stream, listener, first, self._reactor, FOLLOW_RETRY_DELAY, cluster_id
        )
        self._followers = [other for other in self._followers if not other.stopped.called] + [following]
        return following

    def iterate(self, first: int | None = None, cluster_id: str = "", **options: Any) -> EventIteration:
        """Return the events from ``first`` on, for ``async for``.

        :param first: sequence number of the first event; by default, that of the next ordered event.
        :param cluster_id: id of the cluster that ``first`` belongs to, if known.
        :param options: as for :class:`EventIteration`.
        """
        return EventIteration(lambda listener: self.follow(listener, first, cluster_id), **options)

    def state(self, *, linearizable: bool = False) -> Deferred[StateSnapshot]:
        """Return a Deferred of the application's state, from the first node that has it.

        :param linearizable: whether it must contain every event that was acknowledged before the call.

        It fails with :class:`~fyrehose_twisted.errors.StateUnavailable` if no node holds the state.
        """
        return self._start(self._state(linearizable))

    def replicate(self, state: IReplicatedState, path: Path | None = None) -> StateReplica:
        """Keep an application's state up to date here, until the replica is stopped.

        :param path: file for snapshots of this replica alone, with which it resumes after a restart.
        """

        def follow(listener: Any, first: int, cluster_id: str) -> EventFollower:
            return self.follow(listener, first, cluster_id)

        replica = StateReplica(state, path, self.state, follow)
        self._replicas = [other for other in self._replicas if not other.stopped.called] + [replica]
        return replica

    def cluster(self) -> Deferred[dict[str, Any]]:
        """Return a Deferred of the cluster status, from the first node that responds."""
        return self._start(self._cluster())

    def health(self) -> Deferred[dict[str, dict[str, Any]]]:
        """Return a Deferred of the health of each node: ``mode`` and ``why``, or ``error`` if it does not respond."""
        return self._start(self._health())

    def close(self) -> Deferred[None]:
        """Cancel all requests and streams, and close the connections."""
        self._closed = True
        for replica in self._replicas:
            replica.stop()
        for following in self._followers:
            following.stop()
        for under_way in list(self._in_progress):
            under_way.cancel()
        while self._waiting:
            self._waiting.popleft()[3].errback(NotOrdered("closed", "the client was closed", unknown=False))
        closed: Deferred[None] = self._pool.closeCachedConnections()
        return closed

    def _start(self, work: Coroutine[Any, Any, Any]) -> Deferred[Any]:
        started = Deferred.fromCoroutine(work)
        self._in_progress.add(started)

        def done(result: Any) -> Any:
            self._in_progress.discard(started)
            return result

        return started.addBoth(done)

    async def _publish_all(self) -> None:
        while self._waiting:
            data, key, expect, published = self._waiting.popleft()
            if published.called:  # Its caller has cancelled it.
                continue
            try:
                sequence = await self._publish(data, key, expect)
            except CancelledError:
                published.errback(NotOrdered("closed", "the client was closed", unknown=True))
                break
            except Exception as error:
                published.errback(error)
            else:
                published.callback(sequence)
        self._publishing = False

    async def _publish(self, data: bytes, key: str, expect: int | None) -> int:
        headers = {
            "Publisher": self.publisher,
            "Idempotency-Key": key,
            "Content-Type": "application/octet-stream",
        }
        try:
            path = "/events" if expect is None else f"/events?expect={expect}"
            answer = await self.nodes.request(NodeRequest("POST", path, data, headers))
        except NoNodeAnswers as error:
            raise NotOrdered(error.why, str(error), unknown=error.unknown) from None
        sequence = answer.field("sequence")
        if type(sequence) is not int:
            raise NotOrdered("bad-answer", "a node accepted the event without returning its number", unknown=True)
        self.cluster_id = answer.cluster_id
        return sequence

    async def _events(self, first: int, last: int, cluster_id: str, linearizable: bool) -> list[OrderedEvent]:
        # Older nodes refuse parameters that they do not know, such as the current name, cluster_id.
        of = f"&founding={cluster_id}" if cluster_id else ""
        events: list[OrderedEvent] = []
        mark = "&linearizable=1" if linearizable else ""
        while first <= last:
            path = f"/events?from={first}&to={last}&encoding=base64{of}{mark}"
            page = (await self.nodes.request(NodeRequest("GET", path, first=first))).json
            if not isinstance(page, list) or not page:
                break
            for item in page:
                event = parse_event(item)
                if event.sequence != first:
                    raise InvalidResponse(f"a node sent event {event.sequence} instead of {first}")
                events.append(event)
                first += 1
        return events

    async def _state(self, linearizable: bool) -> StateSnapshot:
        path = "/state?linearizable=1" if linearizable else "/state"
        answer = await self.nodes.request(NodeRequest("GET", path, max_bytes=MAX_STATE_BYTES, some_lack=True))
        if answer.status == 404:
            raise StateUnavailable("not-held", "no node holds a state of the application")
        sequence, cluster_id = answer.header("Sequence"), answer.header("Cluster-Id")
        if not sequence.isdecimal() or (cluster_id and not is_cluster_id(cluster_id)):
            raise InvalidResponse("a node sent a state without the number of its last event")
        return StateSnapshot(cluster_id, int(sequence), answer.body)

    async def _cluster(self) -> dict[str, Any]:
        content = (await self.nodes.request(NodeRequest("GET", "/cluster"))).json
        if not isinstance(content, dict):
            raise InvalidResponse("a node returned no cluster status")
        content.setdefault("cluster_id", cluster_id_member(content))
        return content

    async def _health(self) -> dict[str, dict[str, Any]]:
        async def ask(node: str) -> dict[str, Any]:
            try:
                content = (await self._send_request(node, NodeRequest("GET", "/health"), Body(b""), self._timeout)).json
            except CancelledError:
                raise
            except Exception as error:
                return {"error": failure_reason(error)}
            return content if isinstance(content, dict) else {"error": "it returned no status"}

        found = await gatherResults([Deferred.fromCoroutine(ask(node)) for node in self.nodes.urls], consumeErrors=True)
        return dict(zip(self.nodes.urls, found, strict=True))

    def _send_request(self, node: str, request: NodeRequest, body: Body, timeout: float) -> Deferred[NodeResponse]:
        async def ask() -> NodeResponse:
            response = await await_response(
                self._send(request.method, node + request.path, body, request.headers or {})
            )
            body_read = await read_body(response.original, request.max_bytes)
            return NodeResponse(response.code, body_read, response.headers)

        return Deferred.fromCoroutine(ask()).addTimeout(timeout, self._reactor)

    def _send(self, method: str, url: str, body: Body, headers: dict[str, str]) -> Any:
        lines = Headers({name: [value] for name, value in headers.items()})
        if self._token is not None:
            lines.addRawHeader(b"Authorization", b"Bearer " + self._token)
        client = HTTPClient(self._agent, data_to_body_producer=_identity)
        return client.request(
            method,
            treq_url(url),
            headers=lines,
            data=body if body.length else None,
            allow_redirects=False,
            unbuffered=True,
            reactor=self._reactor,
        )

    def _open_stream(self, node: str, seen: EventId | None) -> Deferred[Any]:
        headers = {"Accept": "text/event-stream"}
        if seen is not None:
            headers["Last-Event-ID"] = str(seen)

        async def ask() -> Any:
            response = await await_response(self._send("GET", f"{node}/events?encoding=base64", Body(b""), headers))
            if response.code != 200:
                answer = NodeResponse(response.code, await read_body(response.original, MAX_RESPONSE_BYTES))
                conflict = numbering_conflict(answer, 0 if seen is None else seen.sequence + 1)
                raise conflict or InvalidResponse(f"status {answer.status}: {answer.body[:200]!r}")
            return response.original

        return Deferred.fromCoroutine(ask()).addTimeout(self._timeout, self._reactor)
