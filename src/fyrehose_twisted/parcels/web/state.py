"""``/state``: the application's state that a node holds."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fyrehose_twisted.errors import StateUnavailable
from fyrehose_twisted.interfaces import IStateHolder
from fyrehose_twisted.parcels.web.events import EventsResource
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import parse_flag, query_params
from fyrehose_twisted.web.response import RETRY_AFTER, HttpError, HttpResponse


class StateResource:
    """Resource of the state.

    :param events: resource of the events, which also answers requests that wait for the cluster.
    """

    def __init__(self, node: IStateHolder, events: EventsResource) -> None:
        self._node: Any = node
        self._events = events

    def get(self, request: WebRequest) -> HttpResponse | None:
        """Respond with the state, and in headers with the event after which it was taken."""
        query = query_params(request, b"linearizable")
        if parse_flag(query.get(b"linearizable"), "linearizable"):
            self._events.when_up_to_date(request, self._state)
            return None
        return self._state()

    def _state(self) -> HttpResponse:
        try:
            taken = self._node.state_snapshot()
        except StateUnavailable as error:
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, error.why, str(error), RETRY_AFTER) from None
        headers = (
            (b"Sequence", b"%d" % taken.sequence),
            (b"Cluster-Id", taken.cluster_id.encode()),
        )
        return HttpResponse(HTTPStatus.OK, taken.data, headers, b"application/octet-stream")
