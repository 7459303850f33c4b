"""Who belongs to the tree through this node, and through whom this node does (document 003, "Overall Architecture")."""

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
"""Seconds in which the members of a tree that lost its root find the new one: it and they look 2 s and 4 s after they
became roots."""


class TreeMembership:
    """Parents, subscribers, and streams that come and go with them.

    :ivar on_became_root: called with a stream of which this node became the root.
    :ivar on_attached: called with a stream that has got a parent or become a root, when everybody was told, and with
        the last packet number that a parent knows this node to have.
    :ivar on_closed: called with a stream that is gone.
    """

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        # The rooms above put these in.
        self.on_became_root: Callable[[Stream, float], None]
        self.on_attached: Callable[[Stream, int | None, float], None]
        self.on_closed: Callable[[Stream], None]

    # Streams

    def create_stream(self, key: bytes, requester: Neighbour | None) -> Stream | None:
        """Return a new stream, ``None`` if there is no room for what ``requester``, or this node, wants."""
        core = self._context
        if len(core.streams) >= core.policy.max_streams and not self._evict_stream(requester):
            return None
        stream = core.streams[key] = Stream(key, core.policy.keep_packets)
        return stream

    def _evict_stream(self, requester: Neighbour | None) -> bool:
        """Let go of a stream of whoever has more than half of them for itself, unless that is the one who asks."""
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
        """Have no part in a stream any more, and tell everybody who counts on it."""
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
        """Leave the tree if nobody here has a use for it."""
        if not stream.in_use:
            self.close(stream, tell_parent=True)

    def finish_request(self, search: PendingRequest) -> None:
        """Wait for a request no more."""
        search.finished = True
        self._context.pending_requests.pop(search.sent_uid, None)
        search.stream.requests.remove(search)

    # Subscribers

    def add_subscriber(
        self, stream: Stream, requester: Neighbour, uid: int, last_seen: int, *, new_root: bool = False
    ) -> None:
        """Make a neighbour a subscriber, tell it so, and give it the packets that it has not seen."""
        core = self._context
        if requester is stream.parent:
            # Or two nodes were the parents of one another.
            core.send(requester, RejectedLoop(uid))
            return
        if requester.link is None:
            return
        assert stream.root is not None, "a stream that is settled has a root"
        stream.subscribers[requester] = None
        recalled = self._resend_after(stream, last_seen)
        # Where nothing is known yet, who comes may know how far the numbers have got.
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
        """Return the last packet number of a root that has fewer packets than who joins it, ``None`` if it has not.

        It is new, or was away, or another tree has grown together with its own.
        """
        if stream.parent is not None or last_seen == NONE_SEEN:
            return None
        newest = stream.packets.newest
        if newest is None:
            return NONE_SEEN
        return newest if 0 < serial_difference(last_seen, newest) <= MAX_JUMP else None

    def remove_subscriber(self, stream: Stream, subscriber: Neighbour) -> None:
        """A neighbour is no subscriber any more."""
        if subscriber in stream.subscribers:
            del stream.subscribers[subscriber]
            self.prune(stream)

    # The parent

    def attach(self, stream: Stream, parent: Neighbour | None, root: float, search: PendingRequest, now: float) -> None:
        """Have a parent, or be the root, because of what became of ``search``; tell everybody who waits for that."""
        core, key = self._context, stream.key
        old, old_root = stream.parent, stream.root
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
        if old is not None and old is not parent:
            # Before anything else: the old parent may learn now that it is below us.
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

    def _answer_waiting(self, stream: Stream) -> None:
        """Answer everybody who asked for the same and waits."""
        for search in tuple(stream.requests):
            if search.origin is None:
                self.finish_request(search)
            elif search.must_beat is None or self.is_better_root(stream, search.must_beat):
                self.finish_request(search)
                self.add_subscriber(stream, search.origin, search.uid, search.last_seen)
        self.serve_queued(stream)

    def serve_queued(self, stream: Stream) -> None:
        """Let those who were held join."""
        waiting, stream.queued_requests = stream.queued_requests, []
        for held in waiting:
            self.add_subscriber(stream, held.origin, held.uid, held.last_seen)

    # Who is nearer

    def is_nearer(self, stream: Stream, candidate: float, reference: float) -> bool:
        """Say whether one location is nearer to the key than another."""
        return distance(candidate, stream.location) < distance(reference, stream.location)

    def knows_nearer(self, stream: Stream, location: float) -> bool:
        """Say whether this node or a neighbour is nearer to the key than a location."""
        core = self._context
        places = [core.location, *(neighbour.location for neighbour in core.links.values())]
        return any(self.is_nearer(stream, one, location) for one in places)

    def is_better_root(self, stream: Stream, must_beat: float) -> bool:
        """Say whether a resubscriber may be taken in (document 003, "When we get a ResubscribeRequest")."""
        core = self._context
        ours = stream.root if core.policy.accept == "root" else core.location
        return ours is not None and self.is_nearer(stream, ours, must_beat)


def _sole_owner(stream: Stream) -> Neighbour | None:
    """Return the only one who has a use for a stream, ``None`` if there are several, or this node is one."""
    if stream.local:
        return None
    owners = {
        *stream.subscribers,
        *(search.origin for search in stream.requests),
        *(held.origin for held in stream.queued_requests),
    }
    return owners.pop() if len(owners) == 1 else None
