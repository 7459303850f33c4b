"""``/events``: publish, read a range, follow."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.parcels.client.event_ids import asked_founding, asked_id, check_founding
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.event_json import render
from fyrehose_twisted.parcels.web.event_stream import Feed
from fyrehose_twisted.parcels.wire.messages import Mode
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import accepts, header, number, parse, printable, queries
from fyrehose_twisted.web.response import RETRY, Answer, Problem, answer, bad_request, problem_of
from fyrehose_twisted.web.streaming import STREAM, beyond_end


class Events:
    """The order: its end, where events are put, and what is held of it."""

    def __init__(self, node: IOrderedEvents, feed: Feed, config: WebConfig, reactor: Any) -> None:
        self._node: Any = node
        self._feed = feed
        self._config = config
        self._reactor = reactor
        self._waiting: dict[WebRequest, float] = {}

    def post(self, request: WebRequest) -> None:
        """Publish the body, and answer with its number."""
        if request.args:
            queries(request)
        body: bytes = request.content.getvalue()
        kind = header(request, b"Content-Type")
        if not body:
            raise bad_request("there is no event of no bytes")
        if kind is not None and kind.partition(b";")[0].strip().lower() == b"application/json":
            try:
                parse(body)
            except ValueError as error:
                raise bad_request(f"the body is not JSON: {error}") from None
        publisher, key = printable(request, b"Publisher"), printable(request, b"Idempotency-Key")
        published: Deferred[int] = self._node.publish(body, publisher, key)
        if not published.called:
            self._waiting[request] = self._reactor.seconds()
        done = published.addCallbacks(self._published, self._failed, (request,), errbackArgs=(request,))
        done.addErrback(request.broken)

    def _published(self, sequence: int, request: WebRequest) -> None:
        self._waiting.pop(request, None)
        founding: str = self._node.founding
        content = {"sequence": sequence, "founding": founding}
        place = b"/events?from=%d&to=%d%b" % (sequence, sequence, _query(founding))
        request.answer(answer(content, HTTPStatus.CREATED, ((b"Location", place),)))

    def _failed(self, failure: Failure, request: WebRequest) -> None:
        error: Any = failure.value
        problem = problem_of(error)
        self._waiting.pop(request, None)
        if problem is None:
            request.processingFailed(failure)
        else:
            request.answer(problem.answer())

    def give_up(self, now: float) -> None:
        """Answer those that have waited too long for their numbers."""
        while self._waiting:
            request, since = next(iter(self._waiting.items()))
            if now - since < self._config.publish_timeout:
                break
            del self._waiting[request]
            message = "the event has no number yet; it may get one"
            problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, "timeout", message, RETRY, unknown=True)
            request.answer(problem.answer())

    def get(self, request: WebRequest) -> Answer | None:
        """Answer with a range, or with a stream where that is what is accepted."""
        query = queries(request, b"from", b"to", b"encoding", b"founding")
        encoding = query.get(b"encoding")
        if encoding not in (None, b"base64"):
            raise bad_request("encoding is base64, or left out")
        first = number(query.get(b"from"), "from")
        last = number(query.get(b"to"), "to")
        founding = asked_founding(query.get(b"founding"))
        seen = asked_id(header(request, b"Last-Event-ID"))
        check_founding(founding, self._node)
        if accepts(request, STREAM):
            if last is not None:
                raise bad_request("a stream has no end, so there is no to")
            if seen is not None:
                first = seen.sequence + 1
                check_founding(seen.founding, self._node)
            after = self._node.last + 1
            # With the right founding, the number was given out, and this node is only behind.
            if first is not None and first > after and not (founding if seen is None else seen.founding):
                name = "from" if seen is None else "what follows Last-Event-ID"
                raise self._beyond_end(f"{name}, {first},", after)
            self._follow(request, after if first is None else first, encoding is not None)
            return None
        return self._range(first, last, encoding is not None, founding)

    def _beyond_end(self, what: str, next: int) -> Problem:
        if self._node.state().mode == Mode.WRK.value:
            return beyond_end(what, next)
        message = f"{what} lies beyond what this node has, and it is not up to date"
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "behind", message, RETRY)

    def _range(self, first: int | None, last: int | None, plain: bool, founding: str) -> Answer:
        node, config = self._node, self._config
        first = node.oldest if first is None else first
        last = node.last if last is None else min(last, node.last)
        parts: list[bytes] = []
        size = 0
        for event in node.events(first, last, config.page_events) if first <= last else ():
            if size >= config.page_bytes:
                break
            parts.append(render(event, plain))
            size += len(event.data)
            first = event.sequence + 1
        more: tuple[tuple[bytes, bytes], ...] = ()
        if parts and first <= last:
            rest = b"&encoding=base64" if plain else b""
            rest += _query(founding)
            more = ((b"Link", b'</events?from=%d&to=%d%s>; rel="next"' % (first, last, rest)),)
        return Answer(HTTPStatus.OK, b"[%s]" % b",".join(parts), more)

    def _follow(self, request: WebRequest, first: int, plain: bool) -> None:
        if self._feed.full:
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", "there are too many streams", RETRY)
        if request.method == b"HEAD":
            request.answer(Answer(HTTPStatus.OK, b"", ((b"Content-Type", STREAM),)))
        else:
            self._feed.open(request, first, plain)


def _query(founding: str) -> bytes:
    return b"&founding=%b" % founding.encode() if founding else b""
