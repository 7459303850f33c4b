"""HTTP resource ``/clients``: the clients of a backbone as JSON, next to its metrics."""

from __future__ import annotations

from heapq import nsmallest
from typing import Any

from fyrehose_twisted.fyrehose.events import ServedClient
from fyrehose_twisted.fyrehose.node.backbone.backbone import Backbone
from fyrehose_twisted.fyrehose.node.member.status import MemberStatus
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.fyrehose.wire.packets import Flags
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.web.channel import WebRequest
from fyrehose_twisted.web.request import parse_number, query_params
from fyrehose_twisted.web.response import HttpResponse, json_response

MAX_ROWS = 1_000
"""Maximum number of clients in one response."""

KINDS = RELAY, JOURNAL, PUBLISHER, SUBSCRIBER, OTHER = "relay", "journal", "publisher", "subscriber", "other"
"""Kinds of clients, in the order of the list."""


class ClientsPage:
    """HTTP resource with the clients of a running backbone.

    :param protocol: protocol of the backbone.
    """

    def __init__(self, protocol: BackboneProtocol) -> None:
        self._protocol = protocol

    def get(self, request: WebRequest) -> HttpResponse:
        """Return a response with at most ``limit`` clients, without tokens and secrets."""
        limit = parse_number(query_params(request, b"limit").get(b"limit"), "limit", highest=MAX_ROWS) or MAX_ROWS
        node, driver = self._protocol.node, self._protocol.driver
        if node is None or driver is None:
            return json_response({"clients": 0, "last": 0, "unlisted": _published_fields(0, 0), "list": []})
        content = describe_clients(node, driver.now(), limit)
        member = self._protocol.member_node if isinstance(self._protocol, MemberProtocol) else None
        if member is not None:
            content["member"] = _describe_member(member.status(driver.now()))
        return json_response(content)


def kind_of(client: ServedClient) -> str:
    """Return the kind of a client, one of :data:`KINDS`, by its FLAGS."""
    if client.flags & Flags.RELAY:
        return RELAY
    if client.flags & Flags.DURABLE:
        return JOURNAL
    if not client.flags & Flags.NOSUBSCRIBE:
        return SUBSCRIBER
    return PUBLISHER if client.flags & Flags.NOJOURNAL else OTHER


def describe_clients(node: Backbone, now: float, limit: int = MAX_ROWS) -> dict[str, Any]:
    """Return at most ``limit`` clients of a backbone as JSON, ordered by kind and address."""
    clients = node.clients
    listed = nsmallest(limit, clients, key=lambda client: (KINDS.index(kind_of(client)), client.address))
    unlisted = node.unlisted
    return {
        "clients": len(clients),
        "last": node.sequencer.last,
        "unlisted": _published_fields(unlisted.published, unlisted.published_bytes),
        "list": [_describe_client(node, client, now) for client in listed],
    }


def _describe_member(status: MemberStatus) -> dict[str, Any]:
    """Return which part a member has in its group: a member that stands by sends its clients no messages."""
    leaders = [one.client_address for one in status.members if one.name == status.leader]
    return {
        "name": status.name,
        "state": "leads" if status.leads else "votes" if status.witness else "stands by",
        "term": status.term,
        "leader": status.leader,
        "leader_address": format_address(leaders[0]) if leaders else None,
    }


def _describe_client(node: Backbone, client: ServedClient, now: float) -> dict[str, Any]:
    traffic = client.traffic
    delivered, delivered_bytes = traffic.delivered(node.counters)
    retransmitted, retransmitting = node.repair_dispatcher.repair_counts(client.address)
    durable = None if client.holds is None else client.holds.holding.durable
    requested_at = traffic.requested_at
    return {
        "address": format_address(client.address),
        "source": format_address(client.source),
        "kind": kind_of(client),
        "flags": [flag.name for flag in Flags if client.flags & flag],
        "dialect": int(client.dialect),
        "connected_seconds": _elapsed(client.connected_since, now),
        "silent_seconds": _elapsed(client.heard_at, now),
        **_published_fields(traffic.published, traffic.published_bytes),
        "delivered": delivered,
        "delivered_bytes": delivered_bytes,
        "requests": traffic.requests,
        "requested_seconds": None if requested_at is None else _elapsed(requested_at, now),
        "retransmitted": retransmitted,
        "retransmitting": retransmitting,
        "durable": durable,
        "lag": None if durable is None else max(0, node.sequencer.last - durable),
    }


def _published_fields(count: int, size: int) -> dict[str, int]:
    return {"published": count, "published_bytes": size}


def _elapsed(since: float, now: float) -> float:
    return round(max(0.0, now - since), 3)
