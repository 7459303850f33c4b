"""Requests under way."""

from __future__ import annotations

from typing import NamedTuple

from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.stream import Stream


class Search:
    """A request that this node passed on, or sent for itself, and waits for.

    :ivar uid: its uid as whoever it came from knows it.
    :ivar sent_uid: as those know it to whom it goes; only who looks twice takes another one.
    :ivar origin: whom it came from, ``None`` for this node.
    :ivar must_beat: of a resubscription: the location that a new root must beat.
    :ivar best: nearest location to the key so far, this node's included.
    :ivar closest: whether that is this node's.
    :ivar tried: whom it was sent to.
    :ivar next: whom it was sent to last.
    :ivar attempt: how often it was sent, so that timers know whether they still matter.
    :ivar confirming: whether this is the second look.
    :ivar busy: nearest place to the key of those that restart themselves.
    :ivar new_root: whether the tree that was found began with it.
    """

    __slots__ = (
        "accepted",
        "attempt",
        "best",
        "busy",
        "closest",
        "confirming",
        "htl",
        "last_seen",
        "must_beat",
        "new_root",
        "next",
        "origin",
        "over",
        "sent_uid",
        "stream",
        "tried",
        "uid",
    )

    def __init__(
        self,
        stream: Stream,
        uid: int,
        origin: Neighbour | None,
        htl: int,
        last_seen: int,
        best: float,
        must_beat: float | None,
        *,
        closest: bool,
    ) -> None:
        self.stream = stream
        self.uid = self.sent_uid = uid
        self.origin = origin
        self.htl = htl
        self.last_seen = last_seen
        self.best = best
        self.must_beat = must_beat
        self.closest = closest
        self.tried: set[Neighbour] = set()
        self.next: Neighbour | None = None
        self.accepted = False
        self.attempt = 0
        self.confirming = False
        self.over = False
        self.busy: float | None = None
        self.new_root = False


class Held(NamedTuple):
    """A request that waits for another one for the same key."""

    uid: int
    origin: Neighbour
    htl: int
    last_seen: int
    best: float
    behind: Search | None
    """Which one; ``None`` where it waits for a restart."""
