"""``/callbacks``: register, look, remove."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from twisted.python.failure import Failure

from fyrehose_twisted.parcels.web.webhooks.callback import MAX_SECRET, Callback
from fyrehose_twisted.parcels.web.webhooks.registry import Callbacks, TooManyCallbacks
from fyrehose_twisted.parcels.web.webhooks.ssrf import NotAnUrl, TargetRefused, check_url
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import json_object, queries
from fyrehose_twisted.web.response import RETRY, Answer, Problem, answer, bad_request, problem_of


def _problem(error: BaseException) -> Problem | None:
    match error:
        case TooManyCallbacks():
            return Problem(HTTPStatus.CONFLICT, "too-many-callbacks", str(error))
        case NotAnUrl():
            return bad_request(str(error))
        case TargetRefused():
            return Problem(HTTPStatus.FORBIDDEN, "target-refused", str(error))
        case TimeoutError():
            message = "the name of the host was not looked up in time"
            return Problem(HTTPStatus.SERVICE_UNAVAILABLE, "timeout", message, RETRY)
    return problem_of(error)


class CallbackPages:
    """Tells of the callbacks, and changes them."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks

    def post(self, request: WebRequest) -> None:
        """Register one."""
        queries(request)
        content = json_object(request, "url", "from", "secret")
        url, first, secret = content.get("url"), content.get("from"), content.get("secret")
        if not isinstance(url, str):
            raise bad_request("url is a text, and has to be there")
        if isinstance(first, float) and first.is_integer():  # In JSON 1.0 is the same as 1.
            first = int(first)
        if "from" in content and (type(first) is not int or not 1 <= first <= MAX_SEQUENCE):
            raise bad_request(f"from is a number from 1 to {MAX_SEQUENCE}")
        if "secret" in content and not _is_secret(secret):
            raise bad_request(f"secret is a text of 1 to {MAX_SECRET} characters")
        try:
            check_url(url)
        except (NotAnUrl, TargetRefused) as error:
            raise _problem(error) or error from None
        added = self._callbacks.add(url, first, secret)
        done = added.addCallbacks(self._added, self._refused, (request,), errbackArgs=(request,))
        done.addErrback(request.broken)

    def _added(self, callback: Callback, request: WebRequest) -> None:
        place = b"/callbacks/" + callback.id.encode()
        request.answer(answer(callback.shown(), HTTPStatus.CREATED, ((b"Location", place),)))

    def _refused(self, failure: Failure, request: WebRequest) -> None:
        error: Any = failure.value
        problem = _problem(error)
        if problem is None:
            request.processingFailed(failure)
        else:
            request.answer(problem.answer())

    def list(self, request: WebRequest) -> Answer:
        """Answer with all of them."""
        queries(request)
        return answer([callback.shown() for callback in self._callbacks.all()])

    def get(self, request: WebRequest) -> Answer:
        """Answer with one."""
        queries(request)
        callback = self._callbacks.get(_id(request))
        if callback is None:
            raise _unknown()
        return answer(callback.shown())

    def delete(self, request: WebRequest) -> Answer:
        """Remove one."""
        queries(request)
        if not self._callbacks.remove(_id(request)):
            raise _unknown()
        return Answer(HTTPStatus.NO_CONTENT, b"")


def _is_secret(secret: Any) -> bool:
    if not isinstance(secret, str) or not 1 <= len(secret) <= MAX_SECRET:
        return False
    # What is no text in UTF-8, half of a surrogate pair, could not be a key.
    return not any(0xD800 <= ord(letter) < 0xE000 for letter in secret)


def _id(request: WebRequest) -> str:
    path: bytes = request.path
    return path.rpartition(b"/")[2].decode("ascii", "replace")


def _unknown() -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, "not-found", "there is no such callback")
