"""HTTP resources ``/messages`` and ``/health`` of the frontend."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.errors import ConfigurationError, MessageTooLarge
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.idempotency import IdempotencyKeyReused, IdempotencyKeys, OutcomeUnknown
from fyrehose_twisted.fyrehose.frontend.journals import TooFewJournals
from fyrehose_twisted.fyrehose.frontend.publish_queue import BatchFailed, PublishQueue, QueueFull
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import parse_json, parse_number, query_params, single_header, token_header
from fyrehose_twisted.web.response import RETRY_AFTER, HttpError, HttpResponse, bad_request, json_response, too_large
from fyrehose_twisted.web.site import too_many_requests

NDJSON = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
"""Content types of bodies with one message per line."""


class MessageResource:
    """HTTP resource that publishes messages.

    :ivar keys: requests with an idempotency key.
    """

    def __init__(self, publish_queue: PublishQueue, config: FrontendConfig) -> None:
        self.keys = IdempotencyKeys(publish_queue)
        self._publish_queue = publish_queue
        self._config = config

    def post(self, request: WebRequest) -> None:
        """Publish the body, or each of its lines, and respond with the numbers."""
        message_key = query_params(request, b"key").get(b"key")
        body: bytes = request.content.getvalue()
        kind = (single_header(request, b"Content-Type") or b"").partition(b";")[0].strip().lower()
        many = kind in NDJSON
        messages = self._lines(body) if many else [body]
        if not body:
            raise bad_request("a message must not be empty")
        if kind == b"application/json":
            _check_json(body, "the body")
        content = b"%d%b" % (many, body)
        if message_key is not None:
            messages = _add_key(messages, message_key)
            content = b"key %d %b%b" % (len(message_key), message_key, content)
        kept = parse_number(single_header(request, b"Kept"), "Kept", self._publish_queue.kept, MAX_HOLDINGS)
        key = token_header(request, b"Idempotency-Key")
        client = request.client_name
        wait = self._publish_queue.rate_limiter.wait_time(client)
        if wait > 0:
            raise too_many_requests("too-many-messages", "the publish rate of this client is too high", wait)
        try:
            published = self._publish(client, key, messages, content)
        except MessageTooLarge as error:
            raise too_large(error.limit) from None
        except IdempotencyKeyReused as error:
            raise HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, "key-reused", str(error)) from None
        except OutcomeUnknown as error:
            raise HttpError(HTTPStatus.CONFLICT, "outcome-unknown", str(error), unknown=True) from None
        except QueueFull as error:
            if error.is_client_limit:
                raise too_many_requests("too-much-waits", str(error)) from None
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "busy", str(error), RETRY_AFTER, unknown=False) from None
        if wanted := self._publish_queue.kept if kept is None else kept:
            published.addCallback(self._publish_queue.when_kept, wanted)
        request.on_disconnect = published.cancel
        _answer(published, request, many)

    def _publish(self, client: str, key: str, messages: Sequence[bytes], content: bytes) -> Deferred[Sequence[int]]:
        if key:
            return self.keys.publish(client, key, sha256(content).digest(), messages)
        return self._publish_queue.submit(client, messages)

    def health(self, request: WebRequest) -> HttpResponse:
        """Return whether the backbone answers, and the bytes in the queue."""
        query_params(request)
        content = {"backbone": self._publish_queue.is_connected, "waiting_bytes": self._publish_queue.waiting_bytes}
        if self._publish_queue.is_connected:
            return json_response(content)
        return json_response(content, HTTPStatus.SERVICE_UNAVAILABLE, RETRY_AFTER)

    def _lines(self, body: bytes) -> list[bytes]:
        lines = [line.rstrip(b"\r") for line in body.split(b"\n")]
        if lines and not lines[-1]:
            lines.pop()
        if len(lines) > self._config.batch_messages:
            raise bad_request(f"there are {len(lines):,} lines; one request may have {self._config.batch_messages:,}")
        limit = self._publish_queue.max_message
        for row, line in enumerate(lines, 1):
            _check_json(line, f"line {row}")
            if len(line) > limit:
                raise HttpError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    "too-large",
                    f"line {row} is longer than {limit:,} bytes",
                    limit=limit,
                )
        return lines


def _add_key(messages: Sequence[bytes], key: bytes) -> list[bytes]:
    try:
        return [add_key(message, key) for message in messages]
    except ConfigurationError as error:
        raise bad_request(str(error)) from None


def _check_json(text: bytes, what: str) -> None:
    try:
        parse_json(text)
    except ValueError as error:
        raise bad_request(f"{what} is not JSON: {error}") from None


def _answer(published: Deferred[Sequence[int]], request: WebRequest, many: bool) -> None:
    def done(sequences: Sequence[int]) -> None:
        request.on_disconnect = None
        if many:
            request.respond(json_response({"sequences": list(sequences)}, HTTPStatus.CREATED))
        else:
            request.respond(HttpResponse(HTTPStatus.CREATED, b'{"sequence":%d}' % sequences[0]))

    def failed(failure: Failure) -> None:
        request.on_disconnect = None
        if failure.check(CancelledError):
            return
        failure.trap(BatchFailed, TooFewJournals)
        error = failure.value
        if isinstance(error, TooFewJournals):
            request.respond(_not_kept_problem(error, many).to_response())
            return
        assert isinstance(error, BatchFailed)
        problem = HttpError(
            HTTPStatus.SERVICE_UNAVAILABLE, error.reason, str(error), RETRY_AFTER, unknown=error.unknown
        )
        request.respond(problem.to_response())

    published.addCallbacks(done, failed).addErrback(request.fail)


def _not_kept_problem(error: TooFewJournals, many: bool) -> HttpError:
    sequences = list(error.sequences)
    numbers: dict[str, Any] = {"sequences": sequences} if many else {"sequence": sequences[0]}
    had, wanted = error.had, error.wanted
    return HttpError(HTTPStatus.GATEWAY_TIMEOUT, "not-kept", str(error), had=had, wanted=wanted, **numbers)
