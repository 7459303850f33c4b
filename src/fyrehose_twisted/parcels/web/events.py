"""``/events``: publish, read ranges, and follow."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.errors import NotOrdered
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.parcels.client.event_ids import (
    check_cluster_id,
    cluster_id_members,
    cluster_id_param,
    last_event_id,
)
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.event_json import event_json
from fyrehose_twisted.parcels.web.event_stream import EventBroadcaster
from fyrehose_twisted.parcels.wire.messages import Mode
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import (
    accepts,
    parse_flag,
    parse_json,
    parse_number,
    query_params,
    single_header,
    token_header,
)
from fyrehose_twisted.web.response import (
    RETRY_AFTER,
    HttpError,
    HttpResponse,
    bad_request,
    json_response,
    to_http_error,
)
from fyrehose_twisted.web.streaming import STREAM, beyond_end


class EventsResource:
    """Resource of the events."""

    def __init__(self, node: IOrderedEvents, broadcaster: EventBroadcaster, config: WebConfig, reactor: Any) -> None:
        self._node: Any = node
        self._broadcaster = broadcaster
        self._config = config
        self._reactor = reactor
        self._pending_requests: dict[WebRequest, float] = {}

    def post(self, request: WebRequest) -> None:
        """Publish the body; respond with its sequence number."""
        expect = parse_number(query_params(request, b"expect").get(b"expect"), "expect", 0) if request.args else None
        body: bytes = request.content.getvalue()
        kind = single_header(request, b"Content-Type")
        if not body:
            raise bad_request("an event must not be empty")
        if kind is not None and kind.partition(b";")[0].strip().lower() == b"application/json":
            try:
                parse_json(body)
            except ValueError as error:
                raise bad_request(f"the body is not JSON: {error}") from None
        publisher, key = token_header(request, b"Publisher"), token_header(request, b"Idempotency-Key")
        condition = {} if expect is None else {"expect": expect}
        published: Deferred[int] = self._node.publish(body, publisher, key, **condition)
        if not published.called:
            self._pending_requests[request] = self._reactor.seconds()
        done = published.addCallbacks(self._published, self._failed, (request,), errbackArgs=(request,))
        done.addErrback(request.fail)

    def _published(self, sequence: int, request: WebRequest) -> None:
        self._pending_requests.pop(request, None)
        cluster_id: str = self._node.cluster_id
        content = {"sequence": sequence, **cluster_id_members(cluster_id)}
        place = b"/events?from=%d&to=%d%b" % (sequence, sequence, _query(cluster_id))
        request.respond(json_response(content, HTTPStatus.CREATED, ((b"Location", place),)))

    def _failed(self, failure: Failure, request: WebRequest) -> None:
        error: Any = failure.value
        problem = to_http_error(error)
        self._pending_requests.pop(request, None)
        if problem is None:
            request.processingFailed(failure)
        else:
            request.respond(problem.to_response())

    def expire_requests(self, now: float) -> None:
        """Respond to requests that timed out while they waited for the cluster."""
        while self._pending_requests:
            request, since = next(iter(self._pending_requests.items()))
            if now - since < self._config.publish_timeout:
                break
            del self._pending_requests[request]
            if request.method == b"POST":
                message = "the event has no number yet; it may get one"
                problem = HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "timeout", message, RETRY_AFTER, unknown=True)
            else:
                message = "this node does not know yet whether it is up to date"
                problem = HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "timeout", message, RETRY_AFTER)
            request.respond(problem.to_response())

    def get(self, request: WebRequest) -> HttpResponse | None:
        """Respond with a range, or with a stream if the client accepts one."""
        query = query_params(request, b"from", b"to", b"encoding", b"cluster_id", b"founding", b"linearizable")
        encoding = query.get(b"encoding")
        if encoding not in (None, b"base64"):
            raise bad_request("encoding must be base64, or be left out")
        linearizable = parse_flag(query.get(b"linearizable"), "linearizable")
        first = parse_number(query.get(b"from"), "from")
        last = parse_number(query.get(b"to"), "to")
        cluster_id = cluster_id_param(query)
        seen = last_event_id(single_header(request, b"Last-Event-ID"))
        check_cluster_id(cluster_id, self._node)
        if accepts(request, STREAM):
            if last is not None:
                raise bad_request("to does not apply to a stream, which has no end")
            if linearizable:
                raise bad_request("linearizable does not apply to a stream, which gets every event when it is ordered")
            if seen is not None:
                first = seen.sequence + 1
                check_cluster_id(seen.cluster_id, self._node)
            after = self._node.last + 1
            # With a matching cluster id, the number was assigned, so this node only lags.
            if first is not None and first > after and not (cluster_id if seen is None else seen.cluster_id):
                name = "from" if seen is None else "the event after Last-Event-ID"
                raise self._beyond_end(f"{name}, {first},", after)
            self._follow(request, after if first is None else first, encoding is not None)
            return None
        if linearizable:
            self.when_up_to_date(request, lambda: self._range(first, last, encoding is not None, cluster_id))
            return None
        return self._range(first, last, encoding is not None, cluster_id)

    def when_up_to_date(self, request: WebRequest, respond: Callable[[], HttpResponse]) -> None:
        """Send a response that takes every event into account that was acknowledged before the request."""
        synchronized: Deferred[Any] = self._node.synchronize()
        if not synchronized.called:
            self._pending_requests[request] = self._reactor.seconds()

        def read(_: object) -> None:
            self._pending_requests.pop(request, None)
            request.respond(respond())

        def not_up_to_date(failure: Failure) -> None:
            failure.trap(NotOrdered)
            error: Any = failure.value
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, error.why, str(error), RETRY_AFTER)

        done = synchronized.addErrback(not_up_to_date).addCallback(read).addErrback(self._failed, request)
        done.addErrback(request.fail)

    def _beyond_end(self, what: str, next: int) -> HttpError:
        if self._node.state().mode == Mode.WRK.value:
            return beyond_end(what, next)
        message = f"{what} lies beyond the end of this node, which is not up to date"
        return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "behind", message, RETRY_AFTER)

    def _range(self, first: int | None, last: int | None, plain: bool, cluster_id: str) -> HttpResponse:
        node, config = self._node, self._config
        first = node.oldest if first is None else first
        last = node.last if last is None else min(last, node.last)
        parts: list[bytes] = []
        size = 0
        for event in node.events(first, last, config.page_events) if first <= last else ():
            if size >= config.page_bytes:
                break
            parts.append(event_json(event, plain))
            size += len(event.data)
            first = event.sequence + 1
        more: tuple[tuple[bytes, bytes], ...] = ()
        if parts and first <= last:
            rest = b"&encoding=base64" if plain else b""
            rest += _query(cluster_id)
            more = ((b"Link", b'</events?from=%d&to=%d%s>; rel="next"' % (first, last, rest)),)
        return HttpResponse(HTTPStatus.OK, b"[%s]" % b",".join(parts), more)

    def _follow(self, request: WebRequest, first: int, plain: bool) -> None:
        if self._broadcaster.is_full:
            raise HttpError(
                HTTPStatus.SERVICE_UNAVAILABLE, "too-many-streams", "too many streams are open", RETRY_AFTER
            )
        if request.method == b"HEAD":
            request.respond(HttpResponse(HTTPStatus.OK, b"", ((b"Content-Type", STREAM),)))
        else:
            self._broadcaster.open(request, first, plain)


def _query(cluster_id: str) -> bytes:
    return b"&cluster_id=%b" % cluster_id.encode() if cluster_id else b""
