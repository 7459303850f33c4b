"""Tree membership: parents, subscribers and streams (document 003, "Overall Architecture")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fyrehose_twisted.freenet.events import ParentChanged, StreamDropped, Subscribed
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import MAX_JUMP, serial_difference
from fyrehose_twisted.freenet.node.stream import PendingRequest, Stream, StreamInput
from fyrehose_twisted.freenet.wire.location import distance
from fyrehose_twisted.freenet.wire.messages import (
    NONE_SEEN,
    BetterRoot,
    Dismissed,
    Recall,
    RejectedLoop,
    RejectedOverload,
    SubscribeData,
    SubscribeRestarted,
    SubscribeSucceeded,
    SubscribeSucceededNewRoot,
    Unsubscribe,
)

REGROWTH_PERIOD = 10.0
"""Seconds in which the members of a tree that lost its root find the new one. Nodes that became roots probe 2 s and 4 s
later."""


class TreeMembership:
    """Parents and subscribers of all streams, and the creation and removal of streams.

    :ivar on_became_root: called with a stream that this node became the root of.
    :ivar on_attached: called with a stream that has a new parent or became a root, after its subscribers were notified,
        and with the last packet number that the parent knows this node to have.
    :ivar on_closed: called with a stream that was dropped.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        # FreenetNode sets these.
        self.on_became_root: Callable[[Stream, float], None]
        self.on_attached: Callable[[Stream, int | None, float], None]
        self.on_closed: Callable[[Stream], None]

    # Streams

    def create_stream(self, key: bytes, requester: Neighbour | None) -> Stream | None:
        """Return a new stream for ``requester`` or this node, ``None`` if the node has too many streams."""
        core = self._context
        if len(core.streams) >= core.policy.max_streams and not self._evict_stream(requester):
            return None
        stream = core.streams[key] = Stream(key, core.policy.keep_packets)
        return stream

    def _evict_stream(self, requester: Neighbour | None) -> bool:
        """Evict a stream of the neighbour that alone uses more than half of them, unless it is the requester."""
        owners: Counter[Neighbour] = Counter()
        newest: dict[Neighbour, Stream] = {}
        for stream in self._context.streams.values():
            owner = _sole_owner(stream)
            if owner is not None:
                owners[owner] += 1
                newest[owner] = stream
        if not owners:
            return False
        hog, many = owners.most_common(1)[0]
        if (
            hog is requester
            or many <= self._context.policy.max_streams // 2
            or 2 * (owners[requester] if requester else 0) >= many
        ):
            return False
        self._context.counters["evicted"] += 1
        self.close(newest[hog], tell_parent=True)
        return True

    def close(self, stream: Stream, *, tell_parent: bool) -> None:
        """Drop a stream, and notify requesters, subscribers and, if asked to, the parent."""
        core = self._context
        if core.streams.get(stream.key) is not stream:
            return
        del core.streams[stream.key]
        for search in tuple(stream.requests):
            self.finish_request(search)
            if search.origin is not None:
                core.send(search.origin, RejectedOverload(search.uid))
        for held in stream.queued_requests:
            core.send(held.origin, RejectedOverload(held.uid))
        stream.queued_requests.clear()
        for subscriber in stream.subscribers:
            core.send(subscriber, Dismissed(stream.key))
        stream.subscribers.clear()
        if tell_parent and stream.parent is not None:
            core.send(stream.parent, Unsubscribe(stream.key))
        self.on_closed(stream)
        core.emit(StreamDropped(stream.key))

    def prune(self, stream: Stream) -> None:
        """Leave the tree if the stream is no longer in use."""
        if not stream.in_use:
            self.close(stream, tell_parent=True)

    def finish_request(self, search: PendingRequest) -> None:
        """Remove a pending request."""
        search.finished = True
        self._context.pending_requests.pop(search.sent_uid, None)
        search.stream.requests.remove(search)

    # Subscribers

    def add_subscriber(
        self, stream: Stream, requester: Neighbour, uid: int, last_seen: int, *, new_root: bool = False
    ) -> None:
        """Accept a neighbour as subscriber, and send it the packets that it has not seen."""
        core = self._context
        if requester is stream.parent:
            # Otherwise two nodes would be each other's parents.
            core.send(requester, RejectedLoop(uid))
            return
        if requester.link is None:
            return
        assert stream.root is not None, "a settled stream has a root"
        stream.subscribers[requester] = None
        recalled = self._resend_after(stream, last_seen)
        # If this node knows no packet number yet, the subscriber may.
        stream.packets.start_after(last_seen)
        answer = SubscribeSucceededNewRoot if new_root else SubscribeSucceeded
        core.send(requester, answer(stream.key, uid, stream.root))
        for number, data in stream.packets.packets_after(last_seen):
            core.send(requester, SubscribeData(stream.key, number, data))
        if recalled is not None:
            stream.packets.clear_floor()
            core.counters["recalls"] += 1
            core.send(requester, Recall(stream.key, recalled))
        if stream.own_restart_uid is not None:
            core.send(requester, SubscribeRestarted(stream.key, stream.own_restart_uid, core.location))

    def _resend_after(self, stream: Stream, last_seen: int) -> int | None:
        """Return the last packet number of a root that has fewer packets than its new subscriber, else ``None``.

        Such a root is new, or was offline, or its tree merged with another.
        """
        if stream.parent is not None or last_seen == NONE_SEEN:
            return None
        newest = stream.packets.newest
        if newest is None:
            return NONE_SEEN
        return newest if 0 < serial_difference(last_seen, newest) <= MAX_JUMP else None

    def remove_subscriber(self, stream: Stream, subscriber: Neighbour) -> None:
        """Remove a subscriber."""
        if subscriber in stream.subscribers:
            del stream.subscribers[subscriber]
            self.prune(stream)

    # Parents

    def attach(self, stream: Stream, parent: Neighbour | None, root: float, search: PendingRequest, now: float) -> None:
        """Attach a stream to a parent, or make this node the root, as the outcome of ``search``."""
        core, key = self._context, stream.key
        old, old_root = stream.parent, stream.root
        self._set_parent(stream, parent, root, search, now)
        if old is not None and old is not parent:
            # Sent first, since the old parent may learn next that it is below this node.
            core.send(old, Unsubscribe(key))
            if search.origin is None and old_root is not None and self.is_nearer(stream, root, old_root):
                core.send(old, BetterRoot(key, root))
        if parent is not None and parent in stream.subscribers:
            del stream.subscribers[parent]
            core.send(parent, Dismissed(key))
        for subscriber in stream.subscribers:
            core.send(subscriber, SubscribeSucceeded(key, search.sent_uid, root))
        self.finish_request(search)
        if search.origin is not None:
            self.add_subscriber(
                stream, search.origin, search.uid, search.last_seen, new_root=parent is None or search.new_root
            )
        self._answer_waiting(stream)
        if parent is None or old is not parent:
            core.emit(ParentChanged(key, None if parent is None else parent.node))
        if stream.local:
            core.emit(Subscribed(key, root, parent is None))
        if parent is None:
            self.on_became_root(stream, now)
        self.on_attached(stream, None if parent is None or search.origin is not None else search.last_seen, now)
        self.prune(stream)

    def _set_parent(
        self, stream: Stream, parent: Neighbour | None, root: float, search: PendingRequest, now: float
    ) -> None:
        stream.transition(StreamInput.ROOTED if parent is None else StreamInput.FOUND)
        stream.parent, stream.root = parent, root
        stream.restart_uid = stream.own_restart_uid = None
        stream.attempts = 0
        stream.generation += 1
        stream.next_hint_probe_at, stream.busy_probes = float("inf"), 0
        regrows = parent is None and search.must_beat is not None
        stream.regrowth_until = now + REGROWTH_PERIOD if regrows else float("-inf")
        if search.must_beat is not None:
            stream.known_restart_uids.append(search.sent_uid)

    def _answer_waiting(self, stream: Stream) -> None:
        """Answer the other requests for the same stream."""
        for search in tuple(stream.requests):
            if search.origin is None:
                self.finish_request(search)
            elif search.must_beat is None or self.is_better_root(stream, search.must_beat):
                self.finish_request(search)
                self.add_subscriber(stream, search.origin, search.uid, search.last_seen)
        self.serve_queued(stream)

    def serve_queued(self, stream: Stream) -> None:
        """Accept the queued requests."""
        waiting, stream.queued_requests = stream.queued_requests, []
        for held in waiting:
            self.add_subscriber(stream, held.origin, held.uid, held.last_seen)

    # Distances

    def is_nearer(self, stream: Stream, candidate: float, reference: float) -> bool:
        """Return True if ``candidate`` is nearer to the key than ``reference``."""
        return distance(candidate, stream.location) < distance(reference, stream.location)

    def knows_nearer(self, stream: Stream, location: float) -> bool:
        """Return True if this node or a neighbour is nearer to the key than a location."""
        core = self._context
        candidates = [core.location, *(neighbour.location for neighbour in core.links.values())]
        return any(self.is_nearer(stream, candidate, location) for candidate in candidates)

    def is_better_root(self, stream: Stream, must_beat: float) -> bool:
        """Return True if a resubscriber may be accepted (document 003, "When we get a ResubscribeRequest")."""
        core = self._context
        ours = stream.root if core.policy.accept == "root" else core.location
        return ours is not None and self.is_nearer(stream, ours, must_beat)


def _sole_owner(stream: Stream) -> Neighbour | None:
    """Return the only neighbour that uses a stream, ``None`` if there are several or the application uses it."""
    if stream.local:
        return None
    owners = {
        *stream.subscribers,
        *(search.origin for search in stream.requests),
        *(held.origin for held in stream.queued_requests),
    }
    return owners.pop() if len(owners) == 1 else None
