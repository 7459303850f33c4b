"""``/messages``: publish, and be told the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.errors import MessageTooLarge
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.idempotency import KeyReused, Keys, OutcomeUnknown
from fyrehose_twisted.fyrehose.frontend.journals import TooFewJournals
from fyrehose_twisted.fyrehose.frontend.publish_queue import Intake, NotPublished, TooMuchWaits
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import header, number, parse, printable, queries
from fyrehose_twisted.web.response import RETRY, Answer, Problem, answer, bad_request, too_large
from fyrehose_twisted.web.site import too_many

NDJSON = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl")
"""What says that there is a message a line."""


class MessagePages:
    """Where messages are put.

    :ivar keys: what was published with an idempotency key.
    """

    def __init__(self, intake: Intake, config: FrontendConfig) -> None:
        self.keys = Keys(intake)
        self._intake = intake
        self._config = config

    def post(self, request: WebRequest) -> None:
        """Publish the body, or each of its lines, and answer with the numbers."""
        queries(request)
        body: bytes = request.content.getvalue()
        kind = (header(request, b"Content-Type") or b"").partition(b";")[0].strip().lower()
        many = kind in NDJSON
        messages = self._lines(body) if many else [body]
        if not body:
            raise bad_request("there is no message of no bytes")
        if kind == b"application/json":
            _check_json(body, "the body")
        kept = number(header(request, b"Kept"), "Kept", self._intake.kept, MAX_HOLDINGS)
        key = printable(request, b"Idempotency-Key")
        client = request.client_name
        wait = self._intake.rates.wait(client)
        if wait > 0:
            raise too_many("too-many-messages", "you publish more than you may", wait)
        try:
            published = self._publish(client, key, messages, b"%d%b" % (many, body))
        except MessageTooLarge as error:
            raise too_large(error.limit) from None
        except KeyReused as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "key-reused", str(error)) from None
        except OutcomeUnknown as error:
            raise Problem(HTTPStatus.CONFLICT, "outcome-unknown", str(error), unknown=True) from None
        except TooMuchWaits as error:
            if error.own:
                raise too_many("too-much-waits", str(error)) from None
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "busy", str(error), RETRY, unknown=False) from None
        if wanted := self._intake.kept if kept is None else kept:
            published.addCallback(self._intake.when_kept, wanted)
        request.when_gone = published.cancel
        _answer(published, request, many)

    def _publish(self, client: str, key: str, messages: Sequence[bytes], content: bytes) -> Deferred[Sequence[int]]:
        if key:
            return self.keys.publish(client, key, sha256(content).digest(), messages)
        return self._intake.submit(client, messages)

    def health(self, request: WebRequest) -> Answer:
        """Answer whether messages can be published now."""
        queries(request)
        content = {"backbone": self._intake.is_connected, "waiting_bytes": self._intake.waiting_bytes}
        if self._intake.is_connected:
            return answer(content)
        return answer(content, HTTPStatus.SERVICE_UNAVAILABLE, RETRY)

    def _lines(self, body: bytes) -> list[bytes]:
        lines = [line.rstrip(b"\r") for line in body.split(b"\n")]
        if lines and not lines[-1]:
            lines.pop()
        if len(lines) > self._config.batch_messages:
            raise bad_request(f"there are {len(lines):,} lines; one request may have {self._config.batch_messages:,}")
        for row, line in enumerate(lines, 1):
            _check_json(line, f"line {row}")
            if len(line) > MAX_ENVELOPED:
                raise Problem(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                    "too-large",
                    f"line {row} is longer than {MAX_ENVELOPED:,} bytes",
                    limit=MAX_ENVELOPED,
                )
        return lines


def _check_json(text: bytes, what: str) -> None:
    try:
        parse(text)
    except ValueError as error:
        raise bad_request(f"{what} is not JSON: {error}") from None


def _answer(published: Deferred[Sequence[int]], request: WebRequest, many: bool) -> None:
    def done(sequences: Sequence[int]) -> None:
        request.when_gone = None
        if many:
            request.answer(answer({"sequences": list(sequences)}, HTTPStatus.CREATED))
        else:
            request.answer(Answer(HTTPStatus.CREATED, b'{"sequence":%d}' % sequences[0]))

    def failed(failure: Failure) -> None:
        request.when_gone = None
        if failure.check(CancelledError):
            return
        failure.trap(NotPublished, TooFewJournals)
        error: Any = failure.value
        if isinstance(error, TooFewJournals):
            request.answer(_not_kept(error, many).answer())
            return
        problem = Problem(HTTPStatus.SERVICE_UNAVAILABLE, error.why, str(error), RETRY, unknown=error.unknown)
        request.answer(problem.answer())

    published.addCallbacks(done, failed).addErrback(request.broken)


def _not_kept(error: TooFewJournals, many: bool) -> Problem:
    sequences = list(error.sequences)
    numbers: dict[str, Any] = {"sequences": sequences} if many else {"sequence": sequences[0]}
    had, wanted = error.had, error.wanted
    return Problem(HTTPStatus.GATEWAY_TIMEOUT, "not-kept", str(error), had=had, wanted=wanted, **numbers)
