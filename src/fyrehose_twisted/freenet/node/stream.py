"""One stream, as one node has it, and the requests for it that are under way."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from fyrehose_twisted.freenet.events import Packet
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import PacketWindow
from fyrehose_twisted.freenet.wire.location import key_location
from fyrehose_twisted.lru_set import LruSet

if TYPE_CHECKING:
    from fyrehose_twisted.freenet.node.upstream import QueuedPacket, UpstreamPacket

RESTART_UIDS_KEPT = 16
"""Restarts that a stream remembers, to know them again if they come back through a parent."""

DELIVERED_IDS_KEPT = 1_024
"""Packet numbers that are remembered to have been given to the application."""


class StreamPhase(Enum):
    """How a stream is doing."""

    SEARCHING = "searching"
    """It has neither parent nor subscribers yet."""
    SETTLED = "settled"
    """It has a parent, or is the root."""
    RESTARTING = "restarting"
    """It had a parent, and looks for another one, with whatever is below it."""


class StreamInput(Enum):
    """What happens to a stream."""

    FOUND = "found a parent"
    ROOTED = "nobody nearer was found"
    LOST = "parent lost"
    TORN_DOWN = "parent lost, subtree let go"


TRANSITIONS: dict[tuple[StreamPhase, StreamInput], StreamPhase] = {
    (StreamPhase.SEARCHING, StreamInput.FOUND): StreamPhase.SETTLED,
    (StreamPhase.SEARCHING, StreamInput.ROOTED): StreamPhase.SETTLED,
    (StreamPhase.SETTLED, StreamInput.FOUND): StreamPhase.SETTLED,
    (StreamPhase.SETTLED, StreamInput.ROOTED): StreamPhase.SETTLED,
    (StreamPhase.SETTLED, StreamInput.LOST): StreamPhase.RESTARTING,
    (StreamPhase.SETTLED, StreamInput.TORN_DOWN): StreamPhase.SEARCHING,
    (StreamPhase.RESTARTING, StreamInput.FOUND): StreamPhase.SETTLED,
    (StreamPhase.RESTARTING, StreamInput.ROOTED): StreamPhase.SETTLED,
    (StreamPhase.RESTARTING, StreamInput.LOST): StreamPhase.RESTARTING,
}


class Stream:
    """State of one (node, key).

    :ivar location: where the key lies.
    :ivar parent: whom packets come from; ``None`` for a root, and where there is none.
    :ivar root: where the root is, as far as is known.
    :ivar subscribers: whom packets go to.
    :ivar local: whether the application of this node is subscribed.
    :ivar restart_uid: the latest restart of which the (prospective) parent told, until it says that it has ended.
    :ivar restart_location: where whoever restarts is.
    :ivar own_restart_uid: the restart that this node has begun, while it goes on.
    :ivar known_restart_uids: restarts that began here, or with which this node got its parent.
    :ivar requests: requests for this key that this node waits for.
    :ivar queued_requests: requests that wait for one of these.
    :ivar upstream: packets on their way to the root, by the uid that the parent knows.
    :ivar resend_queue: packets that are published, and that the parent lacks: they wait like those of the backlog.
    :ivar publish_queue: packets of the application that wait until there is room among them.
    :ivar retry_at: when this node looks for it again, if nothing is under way.
    :ivar attempts: how often this node's own search failed in a row.
    :ivar delivered_ids: packets that the application was given last.
    :ivar last_restart_at: when the last voluntary restart began.
    :ivar deferred_until: for when a look for a better parent was put off last.
    :ivar last_hint_at: when a hint to a better root was passed on last.
    :ivar last_hint_probe_at: when this node, as the root, last looked for a better one because of what a peer said.
    :ivar next_hint_probe_at: when it does so next; infinite if it has no reason.
    :ivar busy_probes: looks of this root, since it is one, that met a nearer node without a parent.
    :ivar resent_generation: in which of its lives packets were last given to the parent that lacked them.
    :ivar renumbered: whether the next packet is counted from somewhere else.
    :ivar regrowth_until: until when the new root of a tree that lost its old one expects subscribers that look for it.
    :ivar generation: how often it got another parent or became root, so that timers know whether they still matter.
    """

    __slots__ = (
        "attempts",
        "busy_probes",
        "deferred_until",
        "delivered_ids",
        "generation",
        "key",
        "known_restart_uids",
        "last_hint_at",
        "last_hint_probe_at",
        "last_restart_at",
        "local",
        "location",
        "next_hint_probe_at",
        "own_restart_uid",
        "packets",
        "parent",
        "phase",
        "publish_queue",
        "queued_requests",
        "regrowth_until",
        "renumbered",
        "requests",
        "resend_queue",
        "resent_generation",
        "restart_location",
        "restart_uid",
        "retry_at",
        "root",
        "subscribers",
        "upstream",
    )

    def __init__(self, key: bytes, capacity: int) -> None:
        self.key = key
        self.location = key_location(key)
        self.phase = StreamPhase.SEARCHING
        self.parent: Neighbour | None = None
        self.root: float | None = None
        self.subscribers: dict[Neighbour, None] = {}
        self.local = False
        self.packets = PacketWindow(capacity)
        self.restart_uid: int | None = None
        self.restart_location = 0.0
        self.own_restart_uid: int | None = None
        self.known_restart_uids: deque[int] = deque(maxlen=RESTART_UIDS_KEPT)
        self.requests: list[PendingRequest] = []
        self.queued_requests: list[QueuedRequest] = []
        self.upstream: dict[int, UpstreamPacket] = {}
        self.resend_queue: deque[Packet] = deque()
        self.publish_queue: deque[QueuedPacket] = deque()
        self.retry_at = float("-inf")
        self.attempts = 0
        self.delivered_ids = LruSet(DELIVERED_IDS_KEPT)
        self.last_restart_at = float("-inf")
        self.deferred_until = float("-inf")
        self.last_hint_at = float("-inf")
        self.last_hint_probe_at = float("-inf")
        self.next_hint_probe_at = float("inf")
        self.busy_probes = 0
        self.generation = 0
        self.resent_generation = -1
        self.regrowth_until = float("-inf")
        self.renumbered = False

    def transition(self, event: StreamInput) -> None:
        """Go into the phase that follows.

        :raises KeyError: if that cannot happen in this phase: a mistake of ours.
        """
        self.phase = TRANSITIONS[self.phase, event]

    @property
    def connected(self) -> bool:
        """Whether it has a parent or is the root, whatever goes on above."""
        return self.phase is StreamPhase.SETTLED

    @property
    def is_root(self) -> bool:
        """Whether this node is the root."""
        return self.phase is StreamPhase.SETTLED and self.parent is None

    @property
    def settled(self) -> bool:
        """Whether it is connected, and nobody from here up to the root is known to look for a parent."""
        return self.phase is StreamPhase.SETTLED and self.restart_uid is None

    @property
    def in_use(self) -> bool:
        """Whether anybody has a use for it."""
        return bool(self.local or self.subscribers or self.queued_requests) or any(
            search.origin is not None for search in self.requests
        )

    @property
    def own_request(self) -> PendingRequest | None:
        """The request that this node has sent for itself."""
        for search in self.requests:
            if search.origin is None:
                return search
        return None


class PendingRequest:
    """A request that this node passed on, or sent for itself, and waits for.

    :ivar uid: its uid as whoever it came from knows it.
    :ivar sent_uid: as those know it to whom it goes; only who looks twice takes another one.
    :ivar origin: whom it came from, ``None`` for this node.
    :ivar must_beat: of a resubscription: the location that a new root must beat.
    :ivar best: nearest location to the key so far, this node's included.
    :ivar is_closest: whether that is this node's.
    :ivar tried: whom it was sent to.
    :ivar next_hop: whom it was sent to last.
    :ivar attempt: how often it was sent, so that timers know whether they still matter.
    :ivar confirming: whether this is the second look.
    :ivar busy_location: nearest place to the key of those that restart themselves.
    :ivar new_root: whether the tree that was found began with it.
    """

    __slots__ = (
        "accepted",
        "attempt",
        "best",
        "busy_location",
        "confirming",
        "finished",
        "htl",
        "is_closest",
        "last_seen",
        "must_beat",
        "new_root",
        "next_hop",
        "origin",
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
        is_closest: bool,
    ) -> None:
        self.stream = stream
        self.uid = self.sent_uid = uid
        self.origin = origin
        self.htl = htl
        self.last_seen = last_seen
        self.best = best
        self.must_beat = must_beat
        self.is_closest = is_closest
        self.tried: set[Neighbour] = set()
        self.next_hop: Neighbour | None = None
        self.accepted = False
        self.attempt = 0
        self.confirming = False
        self.finished = False
        self.busy_location: float | None = None
        self.new_root = False


class QueuedRequest(NamedTuple):
    """A request that waits for another one for the same key."""

    uid: int
    origin: Neighbour
    htl: int
    last_seen: int
    best: float
    waits_for: PendingRequest | None
    """Which one; ``None`` where it waits for a restart."""
