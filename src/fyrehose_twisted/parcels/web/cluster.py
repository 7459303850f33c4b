"""``/cluster`` and ``/health``: status of the node and its cluster, and the forced bootstrap of a new cluster."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fyrehose_twisted.errors import NoSuccessor, NoSuchMember, NotLeader
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.parcels.client.event_ids import cluster_id_members
from fyrehose_twisted.parcels.node.status import NodeStatus
from fyrehose_twisted.parcels.wire.messages import Mode
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import json_object, query_params
from fyrehose_twisted.web.response import RETRY_AFTER, HttpError, HttpResponse, bad_request, json_response


class ClusterResource:
    """Resources about the cluster."""

    def __init__(self, node: IOrderedEvents) -> None:
        self._node: Any = node

    def get(self, request: WebRequest) -> HttpResponse:
        """Respond with the status of the cluster."""
        query_params(request)
        state: NodeStatus = self._node.state()
        content = state._asdict() | cluster_id_members(state.cluster_id)
        content["members"] = [member._asdict() for member in state.members]
        content["neighbours"] = [neighbour._asdict() for neighbour in state.neighbours]
        return json_response(content)

    def health(self, request: WebRequest) -> HttpResponse:
        """Respond whether the node can order events."""
        query_params(request)
        state: NodeStatus = self._node.state()
        content = {"mode": state.mode, "why": state.why}
        if state.mode == Mode.WRK.value:
            return json_response(content)
        return json_response(content, HTTPStatus.SERVICE_UNAVAILABLE, RETRY_AFTER)

    def transfer(self, request: WebRequest) -> HttpResponse:
        """Order another member to take over the leadership."""
        query_params(request)
        content = json_object(request, "to")
        name = content.get("to")
        if "to" in content and not isinstance(name, str):
            raise bad_request("to must be the name of a member")
        try:
            successor = self._node.transfer_leadership(name)
        except NotLeader as error:
            raise HttpError(HTTPStatus.CONFLICT, "not-leader", str(error), leader=error.leader) from None
        except NoSuccessor as error:
            raise HttpError(HTTPStatus.CONFLICT, "no-successor", str(error)) from None
        return json_response({"to": successor}, HTTPStatus.ACCEPTED)

    def remove(self, request: WebRequest) -> HttpResponse:
        """Remove a member."""
        query_params(request)
        name = json_object(request, "name").get("name")
        if not isinstance(name, str):
            raise bad_request("name is required: the name of a member")
        try:
            self._node.remove(name)
        except NotLeader as error:
            raise HttpError(HTTPStatus.CONFLICT, "not-leader", str(error), leader=error.leader) from None
        except NoSuchMember as error:
            raise HttpError(HTTPStatus.CONFLICT, "no-such-member", str(error)) from None
        return json_response({"removed": name}, HTTPStatus.ACCEPTED)

    def reform(self, request: WebRequest) -> HttpResponse:
        """Bootstrap a new cluster with this node alone."""
        query_params(request)
        content = json_object(request, "reform")
        state: NodeStatus = self._node.state()
        name = content.get("reform")
        if not isinstance(name, str):
            raise bad_request("reform is required: the name of the cluster")
        if name != state.cluster:
            # Do not reveal the name. A client that means this cluster knows it.
            raise HttpError(HTTPStatus.CONFLICT, "wrong-cluster", "this node is in a cluster of another name")
        if state.mode == Mode.WRK.value:
            message = "this node can order events; forcing a new cluster would only lose some"
            raise HttpError(HTTPStatus.CONFLICT, "working", message)
        self._node.force_new_cluster()
        return json_response({"mode": self._node.state().mode}, HTTPStatus.ACCEPTED)
