"""One callback: where events go, how far they are, and what could not be delivered."""

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
    """Makes the requests."""

    def check(self, url: str) -> Deferred[None]:
        """Look whether a callback may go to ``url``."""

    def post(self, url: str, headers: dict[str, str], body: bytes) -> Deferred[int]:
        """Return a Deferred of the status of the answer."""

    def close(self) -> Deferred[None]:
        """Let go of everything."""


class DeadLetter(NamedTuple):
    """Events that were not delivered, and that are not tried again."""

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
    """What was to be delivered, if it is held."""

    def public_fields(self) -> dict[str, Any]:
        """Return what everybody may see."""
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
    """Somebody who gets events by POST.

    :ivar next: number of the event to be delivered next.
    :ivar consecutive_dead_letters: dead letters in a row; with enough of them it is suspended.
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
        """Return what everybody may see: all but the secret."""
        names = "id", "url", "next", "suspended", "delivered", "attempts", "skipped", "dead", "last_error"
        return {name: getattr(self, name) for name in names} | {
            "signed": self.secret is not None,
            "dead_letters": [letter.public_fields() for letter in self.dead_letters],
        }

    def stored_fields(self) -> dict[str, Any]:
        """Return what has to survive a restart."""
        return {name: getattr(self, name) for name in ("id", "url", "next", "secret", "suspended")}

    @classmethod
    def from_stored(cls, saved: Any) -> Callback:
        """Return a callback from what :meth:`stored_fields` returned.

        :raises StateFileError: if it is not that.
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
        raise StateFileError("a callback in the file is none")


def event_headers(event: Event, cluster: str, cluster_id: str, secret: str | None, now: float) -> dict[str, str]:
    """Return the headers that go with an event.

    :param cluster_id: id of the cluster's founding.
    :param now: UTC seconds since 1970; it is signed too, so that nobody can deliver the event again later.
    """
    timestamp = str(int(now))
    headers = {
        "Content-Type": "application/octet-stream",
        "User-Agent": "fyrehose-parcels",
        "Event-Sequence": str(event.sequence),
        "Event-Publisher": quote(event.publisher, safe=_HEADER_SAFE),
        "Event-Cluster": quote(cluster, safe=_HEADER_SAFE),
        "Event-Founding": cluster_id,
        "Event-Timestamp": timestamp,
    }
    if secret is not None:
        headers["Event-Signature"] = signature(secret, timestamp, event.sequence, event.data)
    return headers


def signature(secret: str, timestamp: str, sequence: int, body: bytes) -> str:
    """Return ``Event-Signature``: ``sha256=`` and a keyed digest over the timestamp, the number and the event, with
    full stops between them. Receivers compute it too, and compare in constant time."""
    signed = b"%s.%d.%s" % (timestamp.encode(), sequence, body)
    return "sha256=" + hmac.digest(secret.encode(), signed, "sha256").hex()
