"""``/callbacks``: register, list and remove callbacks."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from twisted.python.failure import Failure

from fyrehose_twisted.parcels.web.webhooks.callback import MAX_SECRET, Callback
from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks, TooManyCallbacks
from fyrehose_twisted.parcels.web.webhooks.ssrf import AddressNotAllowed, InvalidUrl, check_url
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import json_object, query_params
from fyrehose_twisted.web.response import (
    RETRY_AFTER,
    HttpError,
    HttpResponse,
    bad_request,
    json_response,
    to_http_error,
)


def _to_problem(error: BaseException) -> HttpError | None:
    match error:
        case TooManyCallbacks():
            return HttpError(HTTPStatus.CONFLICT, "too-many-callbacks", str(error))
        case InvalidUrl():
            return bad_request(str(error))
        case AddressNotAllowed():
            return HttpError(HTTPStatus.FORBIDDEN, "target-refused", str(error))
        case TimeoutError():
            message = "the host name was not resolved in time"
            return HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "timeout", message, RETRY_AFTER)
    return to_http_error(error)


class CallbackResource:
    """Resource of the callbacks."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def post(self, request: WebRequest) -> None:
        """Register a callback."""
        query_params(request)
        content = json_object(request, "url", "from", "secret")
        url, first, secret = content.get("url"), content.get("from"), content.get("secret")
        if not isinstance(url, str):
            raise bad_request("url is required and must be a string")
        if isinstance(first, float) and first.is_integer():  # In JSON 1.0 is the same as 1.
            first = int(first)
        if "from" in content and (type(first) is not int or not 1 <= first <= MAX_SEQUENCE):
            raise bad_request(f"from must be a number from 1 to {MAX_SEQUENCE}")
        if "secret" in content and not _is_secret(secret):
            raise bad_request(f"secret must be a string of 1 to {MAX_SECRET} characters")
        try:
            check_url(url)
        except (InvalidUrl, AddressNotAllowed) as error:
            raise _to_problem(error) or error from None
        added = self._callbacks.add(url, first, secret)
        done = added.addCallbacks(self._added, self._refused, (request,), errbackArgs=(request,))
        done.addErrback(request.fail)

    def _added(self, callback: Callback, request: WebRequest) -> None:
        place = b"/callbacks/" + callback.id.encode()
        request.respond(json_response(callback.public_fields(), HTTPStatus.CREATED, ((b"Location", place),)))

    def _refused(self, failure: Failure, request: WebRequest) -> None:
        error: Any = failure.value
        problem = _to_problem(error)
        if problem is None:
            request.processingFailed(failure)
        else:
            request.respond(problem.to_response())

    def list(self, request: WebRequest) -> HttpResponse:
        """Respond with all callbacks."""
        query_params(request)
        return json_response([callback.public_fields() for callback in self._callbacks.all()])

    def get(self, request: WebRequest) -> HttpResponse:
        """Respond with one callback."""
        query_params(request)
        callback = self._callbacks.get(_callback_id(request))
        if callback is None:
            raise _not_found()
        return json_response(callback.public_fields())

    def delete(self, request: WebRequest) -> HttpResponse:
        """Remove a callback."""
        query_params(request)
        if not self._callbacks.remove(_callback_id(request)):
            raise _not_found()
        return HttpResponse(HTTPStatus.NO_CONTENT, b"")


def _is_secret(secret: Any) -> bool:
    if not isinstance(secret, str) or not 1 <= len(secret) <= MAX_SECRET:
        return False
    # A lone surrogate cannot be encoded in UTF-8 and so cannot be a key.
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in secret)


def _callback_id(request: WebRequest) -> str:
    path: bytes = request.path
    return path.rpartition(b"/")[2].decode("ascii", "replace")


def _not_found() -> HttpError:
    return HttpError(HTTPStatus.NOT_FOUND, "not-found", "there is no such callback")
