"""One stream, as one node has it, and the requests for it that are under way."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from fyrehose_twisted.freenet.events import Packet
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import Packets
from fyrehose_twisted.freenet.node.recent import Recent
from fyrehose_twisted.freenet.wire.location import key_location

if TYPE_CHECKING:
    from fyrehose_twisted.freenet.node.upstream import Backlog, Upward

UIDS_KEPT = 16
"""Restarts that a stream remembers, to know them again if they come back through a parent."""

GIVEN_KEPT = 1_024
"""Packet numbers that are remembered to have been given to the application."""


class Phase(Enum):
    """How a stream is doing."""

    SEARCHING = "searching"
    """It has neither parent nor subscribers yet."""
    SETTLED = "settled"
    """It has a parent, or is the root."""
    RESTARTING = "restarting"
    """It had a parent, and looks for another one, with whatever is below it."""


class Change(Enum):
    """What happens to a stream."""

    FOUND = "found a parent"
    ROOTED = "nobody nearer was found"
    LOST = "parent lost"
    TORN_DOWN = "parent lost, subtree let go"


TRANSITIONS: dict[tuple[Phase, Change], Phase] = {
    (Phase.SEARCHING, Change.FOUND): Phase.SETTLED,
    (Phase.SEARCHING, Change.ROOTED): Phase.SETTLED,
    (Phase.SETTLED, Change.FOUND): Phase.SETTLED,
    (Phase.SETTLED, Change.ROOTED): Phase.SETTLED,
    (Phase.SETTLED, Change.LOST): Phase.RESTARTING,
    (Phase.SETTLED, Change.TORN_DOWN): Phase.SEARCHING,
    (Phase.RESTARTING, Change.FOUND): Phase.SETTLED,
    (Phase.RESTARTING, Change.ROOTED): Phase.SETTLED,
    (Phase.RESTARTING, Change.LOST): Phase.RESTARTING,
}


class Stream:
    """State of one (node, key).

    :ivar location: where the key lies.
    :ivar parent: whom packets come from; ``None`` for a root, and where there is none.
    :ivar root: where the root is, as far as is known.
    :ivar subscribers: whom packets go to.
    :ivar local: whether the application of this node is subscribed.
    :ivar restart_uid: the latest restart of which the (prospective) parent told, until it says that it has ended.
    :ivar restart_place: where whoever restarts is.
    :ivar own_uid: the restart that this node has begun, while it goes on.
    :ivar uids: restarts that began here, or with which this node got its parent.
    :ivar searches: requests for this key that this node waits for.
    :ivar held: requests that wait for one of these.
    :ivar upward: packets on their way to the root, by the uid that the parent knows.
    :ivar lifted: packets that are published, and that the parent lacks: they wait like those of the backlog.
    :ivar backlog: packets of the application that wait until there is room among them.
    :ivar again_at: when this node looks for it again, if nothing is under way.
    :ivar attempts: how often this node's own search failed in a row.
    :ivar given: packets that the application was given last.
    :ivar restarted_at: when the last voluntary restart began.
    :ivar considered_at: for when a look for a better parent was put off last.
    :ivar hinted_at: when a hint to a better root was passed on last.
    :ivar followed_at: when this node, as the root, last looked for a better one because of what a peer said.
    :ivar follow_at: when it does so next; infinite if it has no reason.
    :ivar busy_looks: looks of this root, since it is one, that met a nearer node without a parent.
    :ivar recalled: in which of its lives packets were last given to the parent that lacked them.
    :ivar renumbered: whether the next packet is counted from somewhere else.
    :ivar regrows_until: until when the new root of a tree that lost its old one expects subscribers that look for it.
    :ivar lives: how often it got another parent or became root, so that timers know whether they still matter.
    """

    __slots__ = (
        "again_at",
        "attempts",
        "backlog",
        "busy_looks",
        "considered_at",
        "follow_at",
        "followed_at",
        "given",
        "held",
        "hinted_at",
        "key",
        "lifted",
        "lives",
        "local",
        "location",
        "own_uid",
        "packets",
        "parent",
        "phase",
        "recalled",
        "regrows_until",
        "renumbered",
        "restart_place",
        "restart_uid",
        "restarted_at",
        "root",
        "searches",
        "subscribers",
        "uids",
        "upward",
    )

    def __init__(self, key: bytes, kept: int) -> None:
        self.key = key
        self.location = key_location(key)
        self.phase = Phase.SEARCHING
        self.parent: Neighbour | None = None
        self.root: float | None = None
        self.subscribers: dict[Neighbour, None] = {}
        self.local = False
        self.packets = Packets(kept)
        self.restart_uid: int | None = None
        self.restart_place = 0.0
        self.own_uid: int | None = None
        self.uids: deque[int] = deque(maxlen=UIDS_KEPT)
        self.searches: list[Search] = []
        self.held: list[Held] = []
        self.upward: dict[int, Upward] = {}
        self.lifted: deque[Packet] = deque()
        self.backlog: deque[Backlog] = deque()
        self.again_at = float("-inf")
        self.attempts = 0
        self.given = Recent(GIVEN_KEPT)
        self.restarted_at = float("-inf")
        self.considered_at = float("-inf")
        self.hinted_at = float("-inf")
        self.followed_at = float("-inf")
        self.follow_at = float("inf")
        self.busy_looks = 0
        self.lives = 0
        self.recalled = -1
        self.regrows_until = float("-inf")
        self.renumbered = False

    def change(self, change: Change) -> None:
        """Go into the phase that follows.

        :raises KeyError: if that cannot happen in this phase: a mistake of ours.
        """
        self.phase = TRANSITIONS[self.phase, change]

    @property
    def connected(self) -> bool:
        """Whether it has a parent or is the root, whatever goes on above."""
        return self.phase is Phase.SETTLED

    @property
    def is_root(self) -> bool:
        """Whether this node is the root."""
        return self.phase is Phase.SETTLED and self.parent is None

    @property
    def settled(self) -> bool:
        """Whether it is connected, and nobody from here up to the root is known to look for a parent."""
        return self.phase is Phase.SETTLED and self.restart_uid is None

    @property
    def wanted(self) -> bool:
        """Whether anybody has a use for it."""
        return bool(self.local or self.subscribers or self.held) or any(
            search.origin is not None for search in self.searches
        )

    @property
    def own_search(self) -> Search | None:
        """The request that this node has sent for itself."""
        for search in self.searches:
            if search.origin is None:
                return search
        return None


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
