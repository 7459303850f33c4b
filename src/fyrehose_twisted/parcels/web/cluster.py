"""``/cluster`` and ``/health``: how the cluster looks from here, and the operator's last resort."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.parcels.node.status import ClusterState
from fyrehose_twisted.parcels.wire.messages import Mode
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import json_object, queries
from fyrehose_twisted.web.response import RETRY, Answer, Problem, answer, bad_request


class Cluster:
    """Tells of the cluster."""

    def __init__(self, node: IOrderedEvents) -> None:
        self._node: Any = node

    def get(self, request: WebRequest) -> Answer:
        """Answer with all that the node knows of it."""
        queries(request)
        state: ClusterState = self._node.state()
        content = state._asdict()
        content["members"] = [member._asdict() for member in state.members]
        content["neighbours"] = [neighbour._asdict() for neighbour in state.neighbours]
        return answer(content)

    def health(self, request: WebRequest) -> Answer:
        """Answer whether the node can order events."""
        queries(request)
        state: ClusterState = self._node.state()
        content = {"mode": state.mode, "why": state.why}
        if state.mode == Mode.WRK.value:
            return answer(content)
        return answer(content, HTTPStatus.SERVICE_UNAVAILABLE, RETRY)

    def reform(self, request: WebRequest) -> Answer:
        """Form the cluster anew."""
        queries(request)
        content = json_object(request, "reform")
        state: ClusterState = self._node.state()
        name = content.get("reform")
        if not isinstance(name, str):
            raise bad_request("reform is the name of the cluster, and has to be there")
        if name != state.cluster:
            # Not which one it is: whoever means this cluster knows its name.
            raise Problem(HTTPStatus.CONFLICT, "wrong-cluster", "this node is in a cluster of another name")
        if state.mode == Mode.WRK.value:
            message = "this node can order events; forming the cluster anew would only lose some"
            raise Problem(HTTPStatus.CONFLICT, "working", message)
        self._node.reform()
        return answer({"mode": self._node.state().mode}, HTTPStatus.ACCEPTED)
