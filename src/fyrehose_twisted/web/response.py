"""What is answered to requests, and how what went wrong is told."""

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
)

JSON = b"application/json"

Headers = tuple[tuple[bytes, bytes], ...]

RETRY_AFTER: Headers = ((b"Retry-After", b"1"),)


class HttpResponse(NamedTuple):
    """One answer, all of it."""

    code: int
    body: bytes
    headers: Headers = ()
    type: bytes = JSON


def encode_json(value: Any) -> bytes:
    """Return ``value`` as JSON without needless spaces, all ASCII."""
    return json.dumps(value, separators=(",", ":")).encode()


def json_response(value: Any, code: int = HTTPStatus.OK, headers: Headers = ()) -> HttpResponse:
    """Return an answer that is JSON."""
    return HttpResponse(code, encode_json(value), headers)


class HttpError(Exception):
    """A request will not be done; it is answered with ``{"error": ..., "message": ...}``.

    :param error: short stable name.
    :param more: other members of the answer.
    """

    def __init__(self, code: int, error: str, message: str, headers: Headers = (), **more: Any) -> None:
        super().__init__(message)
        self.code = int(code)
        self.headers = headers
        self.content = {"error": error, "message": message, **more}

    def to_response(self) -> HttpResponse:
        """Return how it is told."""
        return json_response(self.content, self.code, self.headers)


def bad_request(message: str) -> HttpError:
    """Return the problem that the client did not say clearly what it wants."""
    return HttpError(HTTPStatus.BAD_REQUEST, "bad-request", message)


def too_large(limit: int) -> HttpError:
    """Return the problem that a body is longer than ``limit`` bytes."""
    message = f"the body is longer than {limit:,} bytes"
    return HttpError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", message, limit=limit)


def to_http_error(error: BaseException) -> HttpError | None:
    """Return what to tell of something that a node raised; ``None`` if that is a mistake in this program."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, NotOrdered):
        return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, error.why, str(error), RETRY_AFTER, unknown=error.unknown)
    if isinstance(error, KeyReused):
        return HttpError(HTTPStatus.UNPROCESSABLE_ENTITY, "key-reused", str(error))
    if isinstance(error, PublishQueueFull):
        return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "queue-full", str(error), RETRY_AFTER, unknown=False)
    if isinstance(error, MessageTooLarge):
        return too_large(error.limit)
    if isinstance(error, EventsNotHeld):
        return HttpError(HTTPStatus.GONE, "not-held", str(error), oldest=error.oldest, last=error.last)
    if isinstance(error, OperationalError):
        return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", str(error), RETRY_AFTER)
    return None
