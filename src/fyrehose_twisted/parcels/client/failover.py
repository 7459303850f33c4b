"""Asks one node after another until one answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.web.client import ResponseFailed

from fyrehose_twisted.errors import (
    BeyondEnd,
    EventsNotHeld,
    FoundingMismatch,
    KeyReused,
    LocalError,
    MessageTooLarge,
    OperationalError,
)
from fyrehose_twisted.parcels.client.event_ids import is_cluster_id
from fyrehose_twisted.parcels.client.http import Body
from fyrehose_twisted.parcels.client.sse_client import InvalidResponse

INITIAL_BACKOFF, MAX_BACKOFF = 0.1, 2.0
"""Seconds to wait after all nodes have been asked in vain; it doubles each time."""

RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which another node is asked."""


class RequestRefused(LocalError):
    """A node will not do what it was asked, and no other would.

    :ivar status: of the answer.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class NoNodeAnswers(OperationalError):
    """No node did what it was asked in time; the text names each, and what came of it.

    :ivar why: what the last node that said anything said, a short stable name.
    :ivar unknown: whether one may have done it, and not said so.
    """

    def __init__(self, failures: dict[str, str], why: str, *, unknown: bool) -> None:
        super().__init__("; ".join(f"{node}: {text}" for node, text in failures.items()))
        self.why = why
        self.unknown = unknown


class NodeResponse(NamedTuple):
    """What one node answered."""

    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """What is written in it.

        :raises BadAnswer: if that is not JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise InvalidResponse("a node's answer is not JSON") from None

    def field(self, name: str) -> Any:
        """Return one member, ``None`` if there is none of that name, or it is not JSON."""
        try:
            content = self.json
        except InvalidResponse:
            return None
        return content.get(name) if isinstance(content, dict) else None


class NodeRequest(NamedTuple):
    """What to ask."""

    method: str
    path: str
    data: bytes = b""
    headers: dict[str, str] | None = None
    first: int = 0
    """Number of the first event that is asked for, if some are."""


SendRequest = Callable[[str, NodeRequest, Body, float], "Deferred[NodeResponse]"]
"""Asks the node with a base URL, with a body that notes when it is sent. The node has to answer within so many
seconds."""


def failure_reason(error: BaseException) -> str:
    """Return why a node did not answer, on one line."""
    if isinstance(error, ResponseFailed) and error.reasons:
        error = error.reasons[-1].value
    if isinstance(error, DeferredTimeout):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"[:200]


class FailoverClient:
    """The nodes of a cluster. Who answered last is asked first.

    :param timeout: seconds that one request to one node may take.
    :param total: seconds after which nobody is asked any more.
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
        """Return the answer of the first node that does what it is asked.

        :raises NoNodeAnswers: if none did in time.
        :raises EventsNotHeld: if a node says so.
        :raises FoundedAnew: if a node says so.
        :raises KeyReused: if a node says so.
        :raises MessageTooLarge: if a node says so.
        :raises RequestRefused: if a node says that it is no use.
        """
        end = self._reactor.seconds() + self._total
        said: dict[str, str] = {}
        why, unknown, pause = "no-node-answers", False, INITIAL_BACKOFF
        while True:
            for turn in range(self._preferred, self._preferred + len(self.urls)):
                node = self.urls[turn % len(self.urls)]
                left = end - self._reactor.seconds()
                if left <= 0:
                    raise NoNodeAnswers(said or {node: "it was not asked"}, why, unknown=unknown)
                body = Body(request.data)
                try:
                    answer = await self._send_request(node, request, body, min(left, self._timeout))
                except CancelledError:
                    raise
                except Exception as error:
                    unknown |= body.sent
                    if node not in said or left >= self._timeout:  # Otherwise only our own time is over.
                        said[node] = failure_reason(error)
                    continue
                if answer.status not in RETRY_STATUSES:
                    self._preferred = turn % len(self.urls)
                    return _check_response(node, request, answer)
                why = str(answer.field("error") or answer.status)
                unknown |= answer.field("unknown") is not False
                said[node] = f"{answer.status} {why}: {answer.field('message')}"[:300]
            await deferLater(self._reactor, min(pause, max(0.0, end - self._reactor.seconds())), lambda: None)
            pause = min(2 * pause, MAX_BACKOFF)


def numbering_conflict(response: NodeResponse, first: int) -> FoundingMismatch | BeyondEnd | None:
    """Return which of the numbers' conflicts an answer of status 409 tells, ``None`` if it tells another one.

    :param first: number of the first event that was asked for.
    """
    founding, known, next = response.field("founding"), response.field("known"), response.field("next")
    match response.field("error"):
        case "other-founding" if is_cluster_id(founding) and is_cluster_id(known):
            return FoundingMismatch(known, founding)
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
