"""Callback: target of events, its position, and its dead letters."""

from __future__ import annotations

import hmac
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from twisted.internet.defer import Deferred

from fyrehose_twisted.errors import StateFileError
from fyrehose_twisted.parcels.wire.messages import MAX_SEQUENCE, Event

MAX_SECRET = 256

_HEADER_SAFE = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
_ID = re.compile(r"[0-9a-f]{16}")


class WebhookSender(Protocol):
    """Sender of the HTTP requests."""

    def check(self, url: str) -> Deferred[None]:
        """Check whether callbacks to ``url`` are allowed."""

    def post(self, url: str, headers: dict[str, str], body: bytes) -> Deferred[int]:
        """Send a POST request; return a Deferred of the response status."""

    def close(self) -> Deferred[None]:
        """Release all resources."""


class DeadLetter(NamedTuple):
    """Events that were not delivered and are not retried."""

    callback: str
    url: str
    first: int
    last: int
    reason: str
    attempts: int
    """0 for events that this node no longer holds."""
    at: float
    """UTC seconds since 1970."""
    event: Event | None
    """The event, if it is held."""

    def public_fields(self) -> dict[str, Any]:
        """Return the fields that clients may see."""
        return {
            "first": self.first,
            "last": self.last,
            "reason": self.reason,
            "attempts": self.attempts,
            "at": round(self.at, 3),
        }


OnDeadLetter = Callable[[DeadLetter], None]


@dataclass
class Callback:
    """A registered URL that gets events by POST.

    :ivar next: sequence number of the next event to deliver.
    :ivar consecutive_dead_letters: consecutive dead letters, which suspend the callback at a limit.
    """

    id: str
    url: str
    next: int
    secret: str | None = field(default=None, repr=False)
    suspended: bool = False
    delivered: int = 0
    attempts: int = 0
    skipped: int = 0
    dead: int = 0
    consecutive_dead_letters: int = 0
    last_error: str | None = None
    dead_letters: deque[DeadLetter] = field(default_factory=deque, repr=False)

    def public_fields(self) -> dict[str, Any]:
        """Return the fields that clients may see: all except the secret."""
        names = "id", "url", "next", "suspended", "delivered", "attempts", "skipped", "dead", "last_error"
        return {name: getattr(self, name) for name in names} | {
            "signed": self.secret is not None,
            "dead_letters": [letter.public_fields() for letter in self.dead_letters],
        }

    def stored_fields(self) -> dict[str, Any]:
        """Return the fields to store across restarts."""
        return {name: getattr(self, name) for name in ("id", "url", "next", "secret", "suspended")}

    @classmethod
    def from_stored(cls, saved: Any) -> Callback:
        """Restore a callback from :meth:`stored_fields`.

        :raises StateFileError: if the fields are malformed.
        """
        match saved:
            case {
                "id": str(id),
                "url": str(url),
                "next": int(number),
                "secret": str() | None as secret,
                "suspended": bool(suspended),
            } if _ID.fullmatch(id) and 1 <= number <= MAX_SEQUENCE + 1:
                return cls(id, url, number, secret, suspended)
        raise StateFileError("the file contains an invalid callback")


def event_headers(event: Event, cluster: str, cluster_id: str, secret: str | None, now: float) -> dict[str, str]:
    """Return the request headers for an event.

    :param cluster_id: id of the cluster.
    :param now: UTC seconds since 1970; included in the signature to prevent replays.
    """
    timestamp = str(int(now))
    headers = {
        "Content-Type": "application/octet-stream",
        "User-Agent": "fyrehose-parcels",
        "Event-Sequence": str(event.sequence),
        "Event-Publisher": quote(event.publisher, safe=_HEADER_SAFE),
        "Event-Cluster": quote(cluster, safe=_HEADER_SAFE),
        "Event-Cluster-Id": cluster_id,
        "Event-Founding": cluster_id,  # The old name.
        "Event-Timestamp": timestamp,
    }
    if secret is not None:
        headers["Event-Signature"] = signature(secret, timestamp, event.sequence, event.data)
    return headers


def signature(secret: str, timestamp: str, sequence: int, body: bytes) -> str:
    """Return ``Event-Signature``: ``sha256=`` and a keyed digest over timestamp, sequence number and event, joined by
    full stops. Receivers compute it as well and compare in constant time."""
    signed = b"%s.%d.%s" % (timestamp.encode(), sequence, body)
    return "sha256=" + hmac.digest(secret.encode(), signed, "sha256").hex()
