"""HTTP responses and errors."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, NamedTuple

from fyrehose_twisted.errors import (
    EventsNotHeld,
    KeyReused,
    MessageTooLarge,
    NotOrdered,
    OperationalError,
    PublishQueueFull,
    SequenceChanged,
)

JSON = b"application/json"

Headers = tuple[tuple[bytes, bytes], ...]

RETRY_AFTER: Headers = ((b"Retry-After", b"1"),)


class HttpResponse(NamedTuple):
    """One complete response."""

    code: int
    body: bytes
    headers: Headers = ()
    type: bytes = JSON


def encode_json(value: Any) -> bytes:
    """Encode ``value`` as compact ASCII JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def json_response(value: Any, code: int = HTTPStatus.OK, headers: Headers = ()) -> HttpResponse:
    """Return a JSON response."""
    return HttpResponse(code, encode_json(value), headers)


class HttpError(Exception):
    """Error response with the body ``{"error": ..., "message": ...}``.

    :param error: short stable name.
    :param more: other members of the body.
    """

    def __init__(self, code: int, error: str, message: str, headers: Headers = (), **more: Any) -> None:
        super().__init__(message)
        self.code = int(code)
        self.headers = headers
        self.content = {"error": error, "message": message, **more}

    def to_response(self) -> HttpResponse:
        """Return the response for the error."""
        return json_response(self.content, self.code, self.headers)


def bad_request(message: str) -> HttpError:
    """Return the error for an invalid request."""
    return HttpError(HTTPStatus.BAD_REQUEST, "bad-request", message)


def too_large(limit: int) -> HttpError:
    """Return the error for a body longer than ``limit`` bytes."""
    message = f"the body is longer than {limit:,} bytes"
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", message, limit=limit)


def to_http_error(error: BaseException) -> HttpError | None:
    """Map an exception of a node to an HTTP error; return ``None`` for an internal error."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, NotOrdered):
        return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, error.why, str(error), RETRY_AFTER, unknown=error.unknown)
    if isinstance(error, KeyReused):
        return HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, "key-reused", str(error))
    if isinstance(error, SequenceChanged):
        return HttpError(HTTPStatus.CONFLICT, "sequence-changed", str(error), last=error.last)
    if isinstance(error, PublishQueueFull):
        return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "queue-full", str(error), RETRY_AFTER, unknown=False)
    if isinstance(error, MessageTooLarge):
        return too_large(error.limit)
    if isinstance(error, EventsNotHeld):
        return HttpError(HTTPStatus.GONE, "not-held", str(error), oldest=error.oldest, last=error.last)
    if isinstance(error, OperationalError):
        return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", str(error), RETRY_AFTER)
    return None
