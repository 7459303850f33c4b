"""State that the components of a node share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from random import Random
from typing import Any

from fyrehose_twisted.effects import Write
from fyrehose_twisted.freenet.config import NodeConfig
from fyrehose_twisted.freenet.events import Event
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.stream import PendingRequest, Stream
from fyrehose_twisted.freenet.wire.messages import Message, RejectedOverload, Unsubscribe
from fyrehose_twisted.lru_set import LruSet

MAX_RECENT_UIDS = 10_000
"""Uids of requests and packets that a node remembers in order to drop duplicates."""

TIMER_PRUNE_THRESHOLD = 64
"""Number of timers above which stale ones are removed."""


class NodeContext:
    """State of one node.

    :ivar location: current location on the ring.
    :ivar streams: streams by key.
    :ivar neighbours: neighbours by node id. A neighbour whose link is down is remembered for a while.
    :ivar links: neighbours by link.
    :ivar pending_requests: requests that await an answer, by the uid they were sent with.
    :ivar upstream: streams of the packets that await an answer from the root, by the uid they were sent with.
    :ivar recent_uids: uids of recent requests and packets.
    :ivar effects: pending writes, dials and closes.
    :ivar events: pending events for the application.
    """

    def __init__(self, config: NodeConfig, rng: Random) -> None:
        self.config = config
        self.policy = config.policy
        self.rng = rng
        self.location = config.location
        self.counters: Counter[str] = Counter()
        self.streams: dict[bytes, Stream] = {}
        self.neighbours: dict[Any, Neighbour] = {}
        self.links: dict[Any, Neighbour] = {}
        self.pending_requests: dict[int, PendingRequest] = {}
        self.upstream: dict[int, Stream] = {}
        self.recent_uids = LruSet(MAX_RECENT_UIDS)
        self.effects: list[Any] = []
        self.events: list[Event] = []
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._timer_count = 0
        self._prune_threshold = TIMER_PRUNE_THRESHOLD

    def send(self, neighbour: Neighbour, message: Message) -> None:
        """Send a message to a neighbour; only count it if the link is down."""
        link = neighbour.link
        if link is None:
            self.counters["unsent"] += 1
            return
        effects = self.effects
        if effects:
            # Not narrowed to Write, whose peer is a Peer: links of experiments are numbers.
            last, kind = effects[-1], type(effects[-1])
            if kind is Write and last.peer == link:
                last.messages.append(message)
                return
        effects.append(Write([message], link))

    def reject_overload(self, requester: Neighbour, uid: int) -> None:
        """Reject a request because this node has too many."""
        self.counters["overloads"] += 1
        self.send(requester, RejectedOverload(uid))

    def deny_subscription(self, neighbour: Neighbour, key: bytes) -> None:
        """Send Unsubscribe to a neighbour that wrongly believes that this node is its subscriber.

        Nothing is sent while the neighbour has a request of this node: the Unsubscribe would arrive after the neighbour
        had accepted that request.
        """
        stream = self.streams.get(key)
        if stream is None or not any(search.next_hop is neighbour for search in stream.requests):
            self.send(neighbour, Unsubscribe(key))

    def emit(self, event: Event) -> None:
        """Queue an event for the application."""
        self.events.append(event)

    def new_uid(self) -> int:
        """Return a random uid."""
        return self.rng.getrandbits(64)

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Schedule ``call(*arguments, now)`` at a time.

        Timers cannot be cancelled; each callback checks whether it is still relevant.
        """
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, call, arguments))
        if len(self._timers) > self._prune_threshold:
            # Most requests finish long before their timeouts, and there are many of them.
            self._timers[:] = [timer for timer in self._timers if not _is_stale(timer[3])]
            heapify(self._timers)
            self._prune_threshold = max(TIMER_PRUNE_THRESHOLD, 2 * len(self._timers))

    def next_deadline(self) -> float | None:
        """Return the time of the next timer, ``None`` if there is none."""
        timers = self._timers
        while timers and _is_stale(timers[0][3]):
            heappop(timers)
        return timers[0][0] if timers else None

    def tick(self, now: float) -> None:
        """Run the timers that are due."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            _, _, call, arguments = heappop(timers)
            call(*arguments, now)


def _is_stale(arguments: tuple[Any, ...]) -> bool:
    return bool(arguments) and isinstance(arguments[0], PendingRequest) and arguments[0].finished
