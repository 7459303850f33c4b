"""HTTP requests with failover between the nodes of a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.web.client import ResponseFailed
from twisted.web.http_headers import Headers

from fyrehose_twisted.errors import (
    BeyondEnd,
    ClusterIdMismatch,
    EventsNotHeld,
    KeyReused,
    LocalError,
    MessageTooLarge,
    NotLeader,
    OperationalError,
    SequenceChanged,
)
from fyrehose_twisted.parcels.client.event_ids import cluster_id_member, is_cluster_id
from fyrehose_twisted.parcels.client.http import Body
from fyrehose_twisted.parcels.client.sse_client import InvalidResponse

INITIAL_BACKOFF, MAX_BACKOFF = 0.1, 2.0
"""Initial delay in seconds after all nodes failed; it doubles with each round."""

RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the next node is tried."""


class RequestRefused(LocalError):
    """A node refused a request that every other node would refuse as well.

    :ivar status: HTTP status of the response.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NoNodeAnswers(OperationalError):
    """No node carried out a request in time. The text lists the failure of each.

    :ivar why: short stable name of the last error that a node reported.
    :ivar unknown: whether a node may have carried out the request without confirming it.
    """

    def __init__(self, failures: dict[str, str], why: str, *, unknown: bool) -> None:
        super().__init__("; ".join(f"{node}: {text}" for node, text in failures.items()))
        self.why = why
        self.unknown = unknown


class NodeResponse(NamedTuple):
    """Response of one node."""

    status: int
    body: bytes
    headers: Headers | None = None

    def header(self, name: str) -> str:
        """Return the value of a header; empty without it."""
        values = None if self.headers is None else self.headers.getRawHeaders(name)
        return values[0] if values else ""

    @property
    def json(self) -> Any:
        """Decoded JSON body.

        :raises InvalidResponse: if it is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise InvalidResponse("a node's answer is not JSON") from None

    def field(self, name: str) -> Any:
        """Return a member of the JSON body, or ``None``."""
        return self._members.get(name)

    @property
    def cluster_id(self) -> str:
        """Cluster id in the JSON body; empty without one."""
        return cluster_id_member(self._members)

    @property
    def _members(self) -> dict[str, Any]:
        try:
            content = self.json
        except InvalidResponse:
            return {}
        return content if isinstance(content, dict) else {}


class NodeRequest(NamedTuple):
    """Request to any node of the cluster."""

    method: str
    path: str
    data: bytes = b""
    headers: dict[str, str] | None = None
    first: int = 0
    """Sequence number of the first requested event, if any."""
    max_bytes: int = 2**23
    """Maximum size of the response in bytes."""
    some_lack: bool = False
    """Whether only some nodes may have what is requested. Then 404 is returned only once all have answered with it."""


SendRequest = Callable[[str, NodeRequest, Body, float], "Deferred[NodeResponse]"]
"""Sends a request to the node at a base URL, with a body that records whether it was sent, and a timeout in
seconds."""


def failure_reason(error: BaseException) -> str:
    """Describe why a node did not respond, on one line."""
    if isinstance(error, ResponseFailed) and error.reasons:
        error = error.reasons[-1].value
    if isinstance(error, DeferredTimeout):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"[:200]


class FailoverClient:
    """Client of all nodes of a cluster. The node that responded last is tried first.

    :param timeout: timeout of one request to one node, in seconds.
    :param total: total timeout of a request, in seconds.
    """

    def __init__(
        self, urls: Sequence[str], send_request: SendRequest, reactor: Any, timeout: float, total: float
    ) -> None:
        self.urls = list(urls)
        self._send_request = send_request
        self._reactor = reactor
        self._timeout = timeout
        self._total = total
        self._preferred = 0

    async def request(self, request: NodeRequest) -> NodeResponse:
        """Return the response of the first node that carries out the request.

        :raises NoNodeAnswers: if no node did in time.
        :raises EventsNotHeld: if a node reports it.
        :raises ClusterIdMismatch: if a node reports it.
        :raises KeyReused: if a node reports it.
        :raises SequenceChanged: if a node reports it.
        :raises NotLeader: if a node reports it.
        :raises MessageTooLarge: if a node reports it.
        :raises RequestRefused: if a node refuses the request permanently.
        """
        end = self._reactor.seconds() + self._total
        lacking: set[str] = set()
        said: dict[str, str] = {}
        why, unknown, pause = "no-node-answers", False, INITIAL_BACKOFF
        while True:
            for turn in range(self._preferred, self._preferred + len(self.urls)):
                node = self.urls[turn % len(self.urls)]
                left = end - self._reactor.seconds()
                if left <= 0:
                    raise NoNodeAnswers(said or {node: "no request was sent to it"}, why, unknown=unknown)
                body = Body(request.data)
                try:
                    answer = await self._send_request(node, request, body, min(left, self._timeout))
                except CancelledError:
                    raise
                except Exception as error:
                    unknown |= body.sent
                    if (
                        node not in said or left >= self._timeout
                    ):  # Otherwise the total timeout has expired, not that of the node.
                        said[node] = failure_reason(error)
                    continue
                if answer.status == 404 and request.some_lack:
                    lacking.add(node)
                    if len(lacking) < len(set(self.urls)):
                        continue
                    return answer
                lacking.discard(node)
                if answer.status not in RETRY_STATUSES:
                    self._preferred = turn % len(self.urls)
                    return _check_response(node, request, answer)
                why = str(answer.field("error") or answer.status)
                unknown |= answer.field("unknown") is not False
                said[node] = f"{answer.status} {why}: {answer.field('message')}"[:300]
            await deferLater(self._reactor, min(pause, max(0.0, end - self._reactor.seconds())), lambda: None)
            pause = min(2 * pause, MAX_BACKOFF)


def numbering_conflict(response: NodeResponse, first: int) -> ClusterIdMismatch | BeyondEnd | None:
    """Return the numbering conflict that a response of status 409 reports, or ``None`` for other conflicts.

    :param first: sequence number of the first requested event.
    """
    cluster_id, known, next = response.cluster_id, response.field("known"), response.field("next")
    match response.field("error"):
        case "other-founding" if cluster_id and is_cluster_id(known):
            return ClusterIdMismatch(known, cluster_id)
        case "beyond-end" if type(next) is int:
            return BeyondEnd(first, next)
    return None


def _check_response(node: str, request: NodeRequest, response: NodeResponse) -> NodeResponse:
    if 200 <= response.status < 300:
        return response
    if response.status == 409:
        conflict = numbering_conflict(response, request.first)
        if conflict is not None:
            raise conflict
        last = response.field("last")
        if response.field("error") == "sequence-changed" and type(last) is int:
            raise SequenceChanged(f"{node}: {response.field('message')}"[:300], last)
        if response.field("error") == "not-leader":
            leader = response.field("leader")
            raise NotLeader(leader if isinstance(leader, str) else None)
    if response.status == 410:
        oldest, last = response.field("oldest"), response.field("last")
        if type(oldest) is int and type(last) is int:
            raise EventsNotHeld(request.first, oldest, last)
    if response.status == 422 and response.field("error") == "key-reused":
        raise KeyReused(f"{node}: {response.field('message')}"[:300])
    if response.status == 413:
        limit = response.field("limit")
        if type(limit) is int:
            raise MessageTooLarge(len(request.data), limit)
    text = f"{node}: {response.status} {response.field('error')}: {response.field('message')}"[:300]
    raise RequestRefused(response.status, text)
