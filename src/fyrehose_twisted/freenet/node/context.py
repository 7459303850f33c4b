"""What all parts of a node have in common."""

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
from fyrehose_twisted.freenet.wire.messages import Message, Unsubscribe
from fyrehose_twisted.lru_set import LruSet

MAX_RECENT_UIDS = 10_000
"""Uids of requests and packets that a node remembers in order to drop duplicates."""

TIMER_PRUNE_THRESHOLD = 64
"""So many timers are kept without a look at which of them still matter."""


class NodeContext:
    """State of one node.

    :ivar location: where on the ring it is.
    :ivar streams: by key.
    :ivar neighbours: by id; those without a link are remembered for a while.
    :ivar links: neighbours by link.
    :ivar pending_requests: requests that are waited for, by the uid that was sent.
    :ivar upstream: streams of the packets that the root has not answered for, by the uid that was sent.
    :ivar recent_uids: requests and packets that came by.
    :ivar effects: what to send, dial and hang up.
    :ivar events: what to tell the application.
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
        """Send a message; where there is no link, it is counted instead."""
        link = neighbour.link
        if link is None:
            self.counters["unsent"] += 1
            return
        effects = self.effects
        if effects:
            last = effects[-1]
            if type(last) is Write and last.peer == link:
                last.messages.append(message)  # type: ignore[attr-defined]  # Those of this node are lists.
                return
        effects.append(Write([message], link))

    def deny_subscription(self, neighbour: Neighbour, key: bytes) -> None:
        """Tell a neighbour that takes us for its subscriber that it is wrong.

        Not while it has a request of ours: it would learn it after it has taken us in.
        """
        stream = self.streams.get(key)
        if stream is None or not any(search.next_hop is neighbour for search in stream.requests):
            self.send(neighbour, Unsubscribe(key))

    def emit(self, event: Event) -> None:
        """Tell the application."""
        self.events.append(event)

    def new_uid(self) -> int:
        """Draw a uid."""
        return self.rng.getrandbits(64)

    def call_at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call ``call(*arguments, now)`` at some time. Nothing is cancelled: whoever is called looks whether it still
        matters."""
        self._timer_count += 1
        heappush(self._timers, (when, self._timer_count, call, arguments))
        if len(self._timers) > self._prune_threshold:
            # Requests are over long before their time is, and there are many.
            self._timers[:] = [timer for timer in self._timers if not _is_stale(timer[3])]
            heapify(self._timers)
            self._prune_threshold = max(TIMER_PRUNE_THRESHOLD, 2 * len(self._timers))

    def next_deadline(self) -> float | None:
        """Return when :meth:`tick` wants to be called."""
        return self._timers[0][0] if self._timers else None

    def tick(self, now: float) -> None:
        """Make the calls that are due."""
        timers = self._timers
        while timers and timers[0][0] <= now:
            _, _, call, arguments = heappop(timers)
            call(*arguments, now)


def _is_stale(arguments: tuple[Any, ...]) -> bool:
    return bool(arguments) and isinstance(arguments[0], PendingRequest) and arguments[0].finished
