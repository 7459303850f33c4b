"""Who belongs to the tree through this node, and through whom this node does (document 003, "Overall Architecture")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fyrehose_twisted.freenet.events import Attached, Dropped, Subscribed
from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.packet_window import FAR, ahead
from fyrehose_twisted.freenet.node.stream import Change, Search, Stream
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

REGROWTH = 10.0
"""Seconds in which the members of a tree that lost its root find the new one: it and they look 2 s and 4 s after they
became roots."""


class Members:
    """Parents, subscribers, and streams that come and go with them.

    :ivar rooted: called with a stream of which this node became the root.
    :ivar attached: called with a stream that has got a parent or become a root, when everybody was told, and with the
        last packet number that a parent knows this node to have.
    :ivar closed: called with a stream that is gone.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        # The rooms above put these in.
        self.rooted: Callable[[Stream, float], None]
        self.attached: Callable[[Stream, int | None, float], None]
        self.closed: Callable[[Stream], None]

    # Streams

    def make(self, key: bytes, asker: Neighbour | None) -> Stream | None:
        """Return a new stream, ``None`` if there is no room for what ``asker``, or this node, wants."""
        core = self._core
        if len(core.streams) >= core.policy.max_streams and not self._make_room(asker):
            return None
        stream = core.streams[key] = Stream(key, core.policy.keep_packets)
        return stream

    def _make_room(self, asker: Neighbour | None) -> bool:
        """Let go of a stream of whoever has more than half of them for itself, unless that is the one who asks."""
        owners: Counter[Neighbour] = Counter()
        newest: dict[Neighbour, Stream] = {}
        for stream in self._core.streams.values():
            owner = _sole_owner(stream)
            if owner is not None:
                owners[owner] += 1
                newest[owner] = stream
        if not owners:
            return False
        hog, many = owners.most_common(1)[0]
        if hog is asker or many <= self._core.policy.max_streams // 2 or 2 * (owners[asker] if asker else 0) >= many:
            return False
        self._core.counts["evicted"] += 1
        self.close(newest[hog], tell_parent=True)
        return True

    def close(self, stream: Stream, *, tell_parent: bool) -> None:
        """Have no part in a stream any more, and tell everybody who counts on it."""
        core = self._core
        if core.streams.get(stream.key) is not stream:
            return
        del core.streams[stream.key]
        for search in tuple(stream.searches):
            self.end(search)
            if search.origin is not None:
                core.send(search.origin, RejectedOverload(search.uid))
        for held in stream.held:
            core.send(held.origin, RejectedOverload(held.uid))
        stream.held.clear()
        for subscriber in stream.subscribers:
            core.send(subscriber, Dismissed(stream.key))
        stream.subscribers.clear()
        if tell_parent and stream.parent is not None:
            core.send(stream.parent, Unsubscribe(stream.key))
        self.closed(stream)
        core.tell(Dropped(stream.key))

    def drop_if_unwanted(self, stream: Stream) -> None:
        """Leave the tree if nobody here has a use for it."""
        if not stream.wanted:
            self.close(stream, tell_parent=True)

    def end(self, search: Search) -> None:
        """Wait for a request no more."""
        search.over = True
        self._core.searches.pop(search.sent_uid, None)
        search.stream.searches.remove(search)

    # Subscribers

    def join(self, stream: Stream, asker: Neighbour, uid: int, last_seen: int, *, new_root: bool = False) -> None:
        """Make a neighbour a subscriber, tell it so, and give it the packets that it has not seen."""
        core = self._core
        if asker is stream.parent:
            # Or two nodes were the parents of one another.
            core.send(asker, RejectedLoop(uid))
            return
        if asker.link is None:
            return
        assert stream.root is not None, "a stream that is settled has a root"
        stream.subscribers[asker] = None
        recalled = self._lacks(stream, last_seen)
        # Where nothing is known yet, who comes may know how far the numbers have got.
        stream.packets.resume(last_seen)
        answer = SubscribeSucceededNewRoot if new_root else SubscribeSucceeded
        core.send(asker, answer(stream.key, uid, stream.root))
        for number, data in stream.packets.after(last_seen):
            core.send(asker, SubscribeData(stream.key, number, data))
        if recalled is not None:
            stream.packets.reopen()
            core.counts["recalls"] += 1
            core.send(asker, Recall(stream.key, recalled))
        if stream.own_uid is not None:
            core.send(asker, SubscribeRestarted(stream.key, stream.own_uid, core.location))

    def _lacks(self, stream: Stream, last_seen: int) -> int | None:
        """Return the last packet number of a root that has fewer packets than who joins it, ``None`` if it has not.

        It is new, or was away, or another tree has grown together with its own.
        """
        if stream.parent is not None or last_seen == NONE_SEEN:
            return None
        newest = stream.packets.newest
        if newest is None:
            return NONE_SEEN
        return newest if 0 < ahead(last_seen, newest) <= FAR else None

    def left(self, stream: Stream, subscriber: Neighbour) -> None:
        """A neighbour is no subscriber any more."""
        if subscriber in stream.subscribers:
            del stream.subscribers[subscriber]
            self.drop_if_unwanted(stream)

    # The parent

    def attach(self, stream: Stream, parent: Neighbour | None, root: float, search: Search, now: float) -> None:
        """Have a parent, or be the root, because of what became of ``search``; tell everybody who waits for that."""
        core, key = self._core, stream.key
        old, old_root = stream.parent, stream.root
        stream.change(Change.ROOTED if parent is None else Change.FOUND)
        stream.parent, stream.root = parent, root
        stream.restart_uid = stream.own_uid = None
        stream.attempts = 0
        stream.lives += 1
        stream.follow_at, stream.busy_looks = float("inf"), 0
        regrows = parent is None and search.must_beat is not None
        stream.regrows_until = now + REGROWTH if regrows else float("-inf")
        if search.must_beat is not None:
            stream.uids.append(search.sent_uid)
        if old is not None and old is not parent:
            # Before anything else: the old parent may learn now that it is below us.
            core.send(old, Unsubscribe(key))
            if search.origin is None and old_root is not None and self.nearer(stream, root, old_root):
                core.send(old, BetterRoot(key, root))
        if parent is not None and parent in stream.subscribers:
            del stream.subscribers[parent]
            core.send(parent, Dismissed(key))
        for subscriber in stream.subscribers:
            core.send(subscriber, SubscribeSucceeded(key, search.sent_uid, root))
        self.end(search)
        if search.origin is not None:
            self.join(stream, search.origin, search.uid, search.last_seen, new_root=parent is None or search.new_root)
        self._answer_others(stream)
        if parent is None or old is not parent:
            core.tell(Attached(key, None if parent is None else parent.node))
        if stream.local:
            core.tell(Subscribed(key, root, parent is None))
        if parent is None:
            self.rooted(stream, now)
        self.attached(stream, None if parent is None or search.origin is not None else search.last_seen, now)
        self.drop_if_unwanted(stream)

    def _answer_others(self, stream: Stream) -> None:
        """Answer everybody who asked for the same and waits."""
        for search in tuple(stream.searches):
            if search.origin is None:
                self.end(search)
            elif search.must_beat is None or self.beats(stream, search.must_beat):
                self.end(search)
                self.join(stream, search.origin, search.uid, search.last_seen)
        self.serve_held(stream)

    def serve_held(self, stream: Stream) -> None:
        """Let those who were held join."""
        waiting, stream.held = stream.held, []
        for held in waiting:
            self.join(stream, held.origin, held.uid, held.last_seen)

    # Who is nearer

    def nearer(self, stream: Stream, one: float, other: float) -> bool:
        """Say whether one location is nearer to the key than another."""
        return distance(one, stream.location) < distance(other, stream.location)

    def knows_nearer(self, stream: Stream, place: float) -> bool:
        """Say whether this node or a neighbour is nearer to the key than a location."""
        core = self._core
        places = [core.location, *(neighbour.location for neighbour in core.links.values())]
        return any(self.nearer(stream, one, place) for one in places)

    def beats(self, stream: Stream, must_beat: float) -> bool:
        """Say whether a resubscriber may be taken in (document 003, "When we get a ResubscribeRequest")."""
        core = self._core
        ours = stream.root if core.policy.accept == "root" else core.location
        return ours is not None and self.nearer(stream, ours, must_beat)


def _sole_owner(stream: Stream) -> Neighbour | None:
    """Return the only one who has a use for a stream, ``None`` if there are several, or this node is one."""
    if stream.local:
        return None
    owners = {
        *stream.subscribers,
        *(search.origin for search in stream.searches),
        *(held.origin for held in stream.held),
    }
    return owners.pop() if len(owners) == 1 else None
