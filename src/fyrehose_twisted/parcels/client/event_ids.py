"""Ids of events on streams: cluster id and sequence number, as in ``00c0ffee00c0ffee-99``.

A bare number is an id without cluster id. It is accepted wherever an id is, and used while no cluster id is known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

from fyrehose_twisted.errors import ClusterIdMismatch
from fyrehose_twisted.interfaces import IOrderedEvents
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE
from fyrehose_twisted.web.response import RETRY_AFTER, HttpError, bad_request

CLUSTER_ID_PATTERN = "^[0-9a-f]{16}$"
"""Cluster ids, as a regular expression of JSON Schema."""
ID_PATTERN = "^([0-9a-f]{16}-)?[0-9]{1,19}$"
"""Ids of events, as a regular expression of JSON Schema."""

_CLUSTER_ID = re.compile(CLUSTER_ID_PATTERN)
_ID = re.compile(ID_PATTERN)


class EventId(NamedTuple):
    """Id of an event.

    :ivar cluster_id: id of the cluster; empty if unknown.
    """

    cluster_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.cluster_id}-{self.sequence}" if self.cluster_id else f"{self.sequence}"


def parse_event_id(text: str) -> EventId:
    """Parse an event id.

    :raises ValueError: if ``text`` is not one.
    """
    if _ID.fullmatch(text) is not None:
        cluster_id, _, number = text.rpartition("-")
        sequence = int(number)
        if sequence <= MAX_SEQUENCE:
            return EventId(cluster_id, sequence)
    raise ValueError(f"{text[:60]!r} is not CLUSTER_ID-NUMBER, nor a number up to {MAX_SEQUENCE}")


def is_cluster_id(text: object) -> bool:
    """Return whether ``text`` is a cluster id."""
    return isinstance(text, str) and _CLUSTER_ID.fullmatch(text) is not None


def last_event_id(value: bytes | None) -> EventId | None:
    """Return the ``Last-Event-ID`` of a request, or ``None``.

    :raises HttpError: if it is malformed.
    """
    if value is None:
        return None
    try:
        return parse_event_id(value.decode("latin-1"))
    except ValueError as error:
        raise bad_request(f"Last-Event-ID: {error}") from None


def cluster_id_members(cluster_id: str) -> dict[str, Any]:
    """Return the members of a JSON object with a cluster id, which older clients know as ``founding``."""
    return {"cluster_id": cluster_id, "founding": cluster_id}


def cluster_id_member(content: Mapping[str, Any]) -> str:
    """Return the cluster id of a JSON object; empty without one. Older nodes send it as ``founding``."""
    value = content.get("cluster_id", content.get("founding"))
    return value if is_cluster_id(value) else ""


def cluster_id_param(query: Mapping[bytes, bytes]) -> str:
    """Return the cluster id of query parameters, or by its old name ``founding``; empty without one.

    :raises HttpError: if it is malformed.
    """
    found = ""
    for name in (b"founding", b"cluster_id"):
        if name in query:
            found = query[name].decode("latin-1")
            if not is_cluster_id(found):
                raise bad_request(f"{name.decode()} must have 16 hexadecimal digits, as in /cluster")
    return found


def check_cluster_id(known: str, node: IOrderedEvents) -> None:
    """Check that a client's sequence numbers belong to the cluster of ``node``.

    :param known: cluster id known to the client; empty for none.
    :raises HttpError: if the node is in another cluster, or in none yet.
    """
    now: str = node.cluster_id
    if not known or known == now:
        return
    if not now:
        message = "this node is in no cluster yet, so it cannot check the cluster id"
        raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "no-cluster", message, RETRY_AFTER)
    message = str(ClusterIdMismatch(known, now))
    raise HttpError(HTTPStatus.CONFLICT, "other-founding", message, **cluster_id_members(now), known=known)
