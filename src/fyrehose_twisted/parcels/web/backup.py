"""``/backup``: what a new cluster needs to continue from here."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fyrehose_twisted.errors import EventsNotHeld, StateUnavailable
from fyrehose_twisted.interfaces import IClusterOperator
from fyrehose_twisted.parcels.backup import pack_events, pack_head
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import parse_number, query_params
from fyrehose_twisted.web.response import RETRY_AFTER, HttpError, HttpResponse, bad_request

CBOR = b"application/cbor"
PAGE_EVENTS, PAGE_BYTES = 10_000, 2**20
"""Maximum size of a response with events, but at least one event."""


class BackupResource:
    """Resources of a backup: its head, and its events page by page."""

    def __init__(self, node: IClusterOperator) -> None:
        self._node: Any = node

    def head(self, request: WebRequest) -> HttpResponse:
        """Respond with all but the events."""
        query_params(request)
        try:
            return HttpResponse(HTTPStatus.OK, pack_head(self._node.backup_head()), (), CBOR)
        except StateUnavailable as error:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, error.why, str(error), RETRY_AFTER) from None

    def events(self, request: WebRequest) -> HttpResponse:
        """Respond with events from a number on."""
        first = parse_number(query_params(request, b"from").get(b"from"), "from")
        if first is None:
            raise bad_request("from is required: the number of the first event")
        try:
            found = self._node.events(first, self._node.state().sequence, PAGE_EVENTS)
        except EventsNotHeld as error:
            raise HttpError(HTTPStatus.GONE, "not-held", str(error), oldest=error.oldest, last=error.last) from None
        size = 0
        for count, event in enumerate(found):
            size += len(event.data)
            if size > PAGE_BYTES and count:
                found = found[:count]
                break
        return HttpResponse(HTTPStatus.OK, pack_events(found), (), CBOR)
