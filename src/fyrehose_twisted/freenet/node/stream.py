"""State of one stream on one node, and its pending requests."""

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
"""Restart uids that a stream remembers in order to detect cycles."""

DELIVERED_IDS_KEPT = 1_024
"""Fingerprints of delivered packets that a stream remembers."""


class StreamPhase(Enum):
    """Connection state of a stream."""

    SEARCHING = "searching"
    """The stream has neither parent nor subscribers yet."""
    SETTLED = "settled"
    """The stream has a parent, or this node is the root."""
    RESTARTING = "restarting"
    """The stream lost its parent, and searches for another one together with its subtree."""


class StreamInput(Enum):
    """Input of the stream's state machine."""

    FOUND = "found a parent"
    ROOTED = "became root"
    LOST = "parent lost"
    TORN_DOWN = "parent lost, subtree dismissed"


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
    """One stream (key) on one node.

    :ivar location: location of the key.
    :ivar parent: neighbour that sends the packets; ``None`` on the root, and while there is no parent.
    :ivar root: location of the root, as far as known.
    :ivar subscribers: neighbours that packets are sent to.
    :ivar local: True if the application of this node is subscribed.
    :ivar restart_uid: latest restart that the (prospective) parent announced; ``None`` once it announced the end.
    :ivar restart_location: location of the node that is restarting.
    :ivar own_restart_uid: restart that this node began and has not finished.
    :ivar known_restart_uids: restarts that began here, or by which this node got its parent.
    :ivar requests: pending requests for this key.
    :ivar queued_requests: requests that wait for a pending one.
    :ivar upstream: packets that await an answer from the root, by the uid that the parent knows.
    :ivar resend_queue: published packets that the parent lacks and that are not sent yet.
    :ivar publish_queue: packets of the application that wait for room in ``upstream``.
    :ivar retry_at: time at which this node searches again, if no request is pending.
    :ivar attempts: consecutive failures of this node's own search.
    :ivar delivered_ids: fingerprints of the packets delivered last.
    :ivar last_restart_at: time at which the last voluntary restart began.
    :ivar deferred_until: time to which a search for a better parent was last deferred.
    :ivar last_hint_at: time at which a hint to a better root was last passed on.
    :ivar last_hint_probe_at: time at which this node, as the root, last probed for a better root because of a hint.
    :ivar next_hint_probe_at: time of the next such probe; infinite if none is due.
    :ivar busy_probes: probes since this node became root that met a nearer node without a parent.
    :ivar resent_generation: generation in which packets were last resent to a parent that lacked them.
    :ivar renumbered: True if the next packet starts new numbers.
    :ivar regrowth_until: time until which the new root of a tree whose root was lost expects more subscribers.
    :ivar generation: number of times the node changed its parent or became root. Timers compare it.
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
        """Enter the phase that follows an input.

        :raises KeyError: if the input cannot occur in this phase: a bug in the library.
        """
        self.phase = TRANSITIONS[self.phase, event]

    @property
    def connected(self) -> bool:
        """True if the stream has a parent or this node is the root, even if a node further up is restarting."""
        return self.phase is StreamPhase.SETTLED

    @property
    def is_root(self) -> bool:
        """True if this node is the root."""
        return self.phase is StreamPhase.SETTLED and self.parent is None

    @property
    def settled(self) -> bool:
        """True if the stream is connected and no node from here up to the root is known to be restarting."""
        return self.phase is StreamPhase.SETTLED and self.restart_uid is None

    @property
    def in_use(self) -> bool:
        """True if the application, a subscriber or a request needs the stream."""
        return bool(self.local or self.subscribers or self.queued_requests) or any(
            search.origin is not None for search in self.requests
        )

    @property
    def own_request(self) -> PendingRequest | None:
        """Pending request of this node itself, ``None`` if there is none."""
        for search in self.requests:
            if search.origin is None:
                return search
        return None


class PendingRequest:
    """Request that this node forwarded, or sent for itself, and that awaits an answer.

    :ivar uid: uid under which the request arrived.
    :ivar sent_uid: uid under which the request was sent on. It differs from ``uid`` only in a confirming search.
    :ivar origin: neighbour that sent the request, ``None`` for this node.
    :ivar htl: remaining hops to live.
    :ivar must_beat: location that a new root must beat; ``None`` unless this is a resubscription.
    :ivar best: location nearest to the key so far, including this node's.
    :ivar is_closest: True if ``best`` is this node's location.
    :ivar tried: neighbours that the request was sent to.
    :ivar next_hop: neighbour that the request was sent to last.
    :ivar accepted: True if that neighbour accepted the request.
    :ivar attempt: number of times the request was sent. Timers compare it.
    :ivar confirming: True during the second search that ``confirm_root`` asks for.
    :ivar finished: True once the request is answered or abandoned.
    :ivar busy_location: location nearest to the key of the nodes that answered busy.
    :ivar new_root: True if this request created the root of the tree that was found.
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
    """Request that waits for a pending one for the same key."""

    uid: int
    origin: Neighbour
    htl: int
    last_seen: int
    best: float
    waits_for: PendingRequest | None
    """Request waited for; ``None`` if this one waits for a restart."""
