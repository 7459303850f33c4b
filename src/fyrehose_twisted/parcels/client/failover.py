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
    FoundedAnew,
    KeyReused,
    LocalError,
    MessageTooLarge,
    OperationalError,
)
from fyrehose_twisted.parcels.client.event_ids import is_founding
from fyrehose_twisted.parcels.client.http import Body
from fyrehose_twisted.parcels.client.sse_client import BadAnswer

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
"""Seconds to wait after all nodes have been asked in vain; it doubles each time."""

ELSEWHERE = frozenset({408, 429, 500, 502, 503, 504})
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

    def __init__(self, said: dict[str, str], why: str, *, unknown: bool) -> None:
        super().__init__("; ".join(f"{node}: {text}" for node, text in said.items()))
        self.why = why
        self.unknown = unknown


class NodeAnswer(NamedTuple):
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
            raise BadAnswer("a node's answer is not JSON") from None

    def member(self, name: str) -> Any:
        """Return one member, ``None`` if there is none of that name, or it is not JSON."""
        try:
            content = self.json
        except BadAnswer:
            return None
        return content.get(name) if isinstance(content, dict) else None


class Question(NamedTuple):
    """What to ask."""

    method: str
    path: str
    data: bytes = b""
    headers: dict[str, str] | None = None
    first: int = 0
    """Number of the first event that is asked for, if some are."""


Ask = Callable[[str, Question, Body, float], "Deferred[NodeAnswer]"]
"""Asks the node with a base URL, with a body that notes when it is sent. The node has to answer within so many
seconds."""


def reason_of(error: BaseException) -> str:
    """Return why a node did not answer, on one line."""
    if isinstance(error, ResponseFailed) and error.reasons:
        error = error.reasons[-1].value
    if isinstance(error, DeferredTimeout):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"[:200]


class Nodes:
    """The nodes of a cluster. Who answered last is asked first.

    :param timeout: seconds that one request to one node may take.
    :param total: seconds after which nobody is asked any more.
    """

    def __init__(self, urls: Sequence[str], ask: Ask, reactor: Any, timeout: float, total: float) -> None:
        self.urls = list(urls)
        self._ask = ask
        self._reactor = reactor
        self._timeout = timeout
        self._total = total
        self._first = 0

    async def answer(self, question: Question) -> NodeAnswer:
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
        why, unknown, pause = "no-node-answers", False, FIRST_PAUSE
        while True:
            for turn in range(self._first, self._first + len(self.urls)):
                node = self.urls[turn % len(self.urls)]
                left = end - self._reactor.seconds()
                if left <= 0:
                    raise NoNodeAnswers(said or {node: "it was not asked"}, why, unknown=unknown)
                body = Body(question.data)
                try:
                    answer = await self._ask(node, question, body, min(left, self._timeout))
                except CancelledError:
                    raise
                except Exception as error:
                    unknown |= body.sent
                    if node not in said or left >= self._timeout:  # Otherwise only our own time is over.
                        said[node] = reason_of(error)
                    continue
                if answer.status not in ELSEWHERE:
                    self._first = turn % len(self.urls)
                    return _accepted(node, question, answer)
                why = str(answer.member("error") or answer.status)
                unknown |= answer.member("unknown") is not False
                said[node] = f"{answer.status} {why}: {answer.member('message')}"[:300]
            await deferLater(self._reactor, min(pause, max(0.0, end - self._reactor.seconds())), lambda: None)
            pause = min(2 * pause, LONGEST_PAUSE)


def conflict_of(answer: NodeAnswer, first: int) -> FoundedAnew | BeyondEnd | None:
    """Return which of the numbers' conflicts an answer of status 409 tells, ``None`` if it tells another one.

    :param first: number of the first event that was asked for.
    """
    founding, known, next = answer.member("founding"), answer.member("known"), answer.member("next")
    match answer.member("error"):
        case "other-founding" if is_founding(founding) and is_founding(known):
            return FoundedAnew(known, founding)
        case "beyond-end" if type(next) is int:
            return BeyondEnd(first, next)
    return None


def _accepted(node: str, question: Question, answer: NodeAnswer) -> NodeAnswer:
    if 200 <= answer.status < 300:
        return answer
    if answer.status == 409:
        conflict = conflict_of(answer, question.first)
        if conflict is not None:
            raise conflict
    if answer.status == 410:
        oldest, last = answer.member("oldest"), answer.member("last")
        if type(oldest) is int and type(last) is int:
            raise EventsNotHeld(question.first, oldest, last)
    if answer.status == 422 and answer.member("error") == "key-reused":
        raise KeyReused(f"{node}: {answer.member('message')}"[:300])
    if answer.status == 413:
        limit = answer.member("limit")
        if type(limit) is int:
            raise MessageTooLarge(len(question.data), limit)
    text = f"{node}: {answer.status} {answer.member('error')}: {answer.member('message')}"[:300]
    raise RequestRefused(answer.status, text)
