"""Parents are lost, and better ones turn up (document 003, "When something changes")."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.freenet.events import Restarting as RestartingEvent
from fyrehose_twisted.freenet.events import Subscribed, SubscribeFailed
from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.routing import Searching
from fyrehose_twisted.freenet.node.stream import Change, Phase, Search, Stream
from fyrehose_twisted.freenet.node.tree import Members
from fyrehose_twisted.freenet.wire.messages import (
    BetterRoot,
    Dismissed,
    SubscribeRestarted,
    SubscribeSucceeded,
    Succeeded,
    Unsubscribe,
)

TRIES = 3
"""After so many restarts that nobody answered, a node is a root: rather a second tree than none."""
BUSY_TRIES = 20
"""The same where everybody looks for a parent who could be one, about a second each."""
LONGEST_PAUSE = 60.0
"""Seconds between two tries, at most."""
HINT_INTERVAL = 10.0
"""Seconds between two hints to a better root."""


class Restarts:
    """Looks for other parents."""

    def __init__(self, core: Core, members: Members, searching: Searching) -> None:
        self._core = core
        self._members = members
        self._searching = searching

    # Without a parent

    def parent_lost(self, stream: Stream, reason: str, now: float) -> None:
        """Look for another parent; with the subtree, or each for itself."""
        core = self._core
        core.counts["parents_lost"] += 1
        core.tell(RestartingEvent(stream.key, reason))
        stream.parent = None
        stream.restart_uid = stream.own_uid = None
        self._cancel_own(stream)
        if core.policy.on_parent_lost == "teardown":
            self._tear_down(stream, now)
            return
        stream.change(Change.LOST)
        jitter = core.policy.cycle_jitter if reason == "cycle" else core.policy.restart_jitter
        self._restart(stream, core.rng.uniform(0.0, jitter), now)

    def _restart(self, stream: Stream, pause: float, now: float) -> None:
        """Tell the subtree at once, so that it knows when the request comes."""
        core = self._core
        uid = stream.own_uid = core.new_uid()
        stream.uids.append(uid)
        self._announce(stream, uid)
        core.at(now + pause, self._look, stream, uid)

    def _look(self, stream: Stream, uid: int, now: float) -> None:
        if self._alive(stream) and stream.own_uid == uid:
            self._searching.begin(stream, uid, self._core.location, now)

    def _tear_down(self, stream: Stream, now: float) -> None:
        core = self._core
        stream.change(Change.TORN_DOWN)
        for subscriber in stream.subscribers:
            core.send(subscriber, Dismissed(stream.key))
        stream.subscribers.clear()
        self._members.drop_if_unwanted(stream)
        if self._alive(stream):
            core.at(now + core.rng.uniform(0.0, core.policy.restart_jitter), self._subscribe_again, stream)

    def _subscribe_again(self, stream: Stream, now: float) -> None:
        if self._alive(stream) and stream.phase is Phase.SEARCHING and stream.local and not stream.searches:
            self._searching.begin(stream, self._core.new_uid(), None, now)

    def _cancel_own(self, stream: Stream) -> None:
        search = stream.own_search
        if search is not None:
            self._members.end(search)

    def _announce(self, stream: Stream, uid: int) -> None:
        """Tell everybody below that somebody above them looks for a parent."""
        core = self._core
        place = core.location if uid == stream.own_uid else stream.restart_place
        message = SubscribeRestarted(stream.key, uid, place)
        # A subscriber whose link broke and came back may ask again, and be held.
        for neighbour in dict.fromkeys((*stream.subscribers, *(held.origin for held in stream.held))):
            if neighbour in stream.subscribers:
                core.counts["restarted_sent"] += 1
            core.send(neighbour, message)

    # With a parent

    def peers_changed(self, now: float) -> None:
        """A neighbour is new, or somebody is elsewhere: look whether that is of use to a stream."""
        for stream in tuple(self._core.streams.values()):
            if stream.settled and stream.own_uid is None and self._nearer_than_root(stream):
                self._volunteer_when_allowed(stream, now)

    def _nearer_than_root(self, stream: Stream) -> bool:
        assert stream.root is not None, "a stream that is settled has a root"
        return self._members.knows_nearer(stream, stream.root)

    def _volunteer_when_allowed(self, stream: Stream, now: float) -> None:
        core = self._core
        allowed = stream.restarted_at + core.policy.restart_interval
        if now >= allowed:
            self._volunteer(stream, now)
        elif stream.considered_at < allowed:
            stream.considered_at = allowed
            core.at(allowed, self._reconsider, stream)

    def _reconsider(self, stream: Stream, now: float) -> None:
        allowed = now >= stream.restarted_at + self._core.policy.restart_interval
        if self._idle(stream) and allowed and self._nearer_than_root(stream):
            self._volunteer(stream, now)

    def _volunteer(self, stream: Stream, now: float) -> None:
        """Look for a better parent while the old one is still there."""
        core = self._core
        core.counts["volunteered"] += 1
        stream.restarted_at = now
        uid = stream.own_uid = core.new_uid()
        stream.uids.append(uid)
        self._announce(stream, uid)
        self._searching.begin(stream, uid, core.location, now)

    def rooted(self, stream: Stream, now: float) -> None:
        """This node is a root: from time to time it looks for a better one, or two trees would never grow together."""
        policy = self._core.policy
        self._probe_after(stream, min(policy.first_probe, policy.restart_interval), now)

    def _probe_after(self, stream: Stream, pause: float, now: float) -> None:
        core = self._core
        core.at(now + pause * core.rng.uniform(0.9, 1.1), self._probe, stream, stream.lives, pause)

    def _probe(self, stream: Stream, lives: int, pause: float, now: float) -> None:
        if not self._alive(stream) or stream.lives != lives or not stream.is_root:
            return
        self._probe_after(stream, min(2.0 * pause, self._core.policy.restart_interval), now)
        if stream.own_uid is None and self._core.links:
            self._volunteer(stream, now)

    def better_root(self, message: BetterRoot, neighbour: Neighbour, now: float) -> None:
        """A subscriber knows of a place nearer than the root."""
        core = self._core
        stream = core.streams.get(message.key)
        if stream is None or neighbour not in stream.subscribers or not stream.connected or stream.root is None:
            core.counts["strays"] += 1
            return
        if self._members.nearer(stream, message.root, stream.root):
            self.better_known(stream, message.root, now)

    def better_known(self, stream: Stream, place: float, now: float) -> None:
        """Let the root know of a place that is nearer."""
        core = self._core
        if now < stream.hinted_at + HINT_INTERVAL:
            return
        stream.hinted_at = now
        if stream.parent is not None:
            core.send(stream.parent, BetterRoot(stream.key, place))
        else:
            # Whoever is there may still be looking for a parent. Each look restarts the tree, and any peer can hint.
            soon = now + core.rng.uniform(0.5, 1.5)
            self._follow_at(stream, max(soon, stream.followed_at + core.policy.restart_interval))

    def _follow_at(self, stream: Stream, when: float) -> None:
        if when < stream.follow_at:
            stream.follow_at = when
            self._core.at(when, self._follow, stream, when)

    def _follow(self, stream: Stream, when: float, now: float) -> None:
        if not self._alive(stream) or stream.follow_at != when:
            return
        stream.follow_at = inf
        if self._idle(stream) and stream.is_root:
            stream.followed_at = now
            self._volunteer(stream, now)

    # What the parent says

    def restarted(self, message: SubscribeRestarted, neighbour: Neighbour, now: float) -> None:
        """Somebody above looks for a parent, or a neighbour that was asked does."""
        core, uid = self._core, message.uid
        stream = core.streams.get(message.key)
        if stream is None:
            core.counts["strays"] += 1
            return
        if stream.parent is neighbour:
            if uid in stream.uids:
                # What began here comes from above: we are above ourselves.
                core.counts["cycles"] += 1
                core.send(neighbour, Unsubscribe(stream.key))
                self.parent_lost(stream, "cycle", now)
                return
            known = stream.restart_uid == uid
            stream.restart_uid, stream.restart_place = uid, message.place
            if known:
                # A parent that was asked to pass the request on repeats its announcement.
                core.counts["restarted_again"] += 1
                return
            self._cancel_own(stream)
            stream.own_uid = None
            self._announce(stream, uid)
            core.at(now + core.policy.completion_timeout, self._pending_long, stream, uid)
        elif stream.phase is Phase.SEARCHING:
            for search in stream.searches:
                if search.next is neighbour and search.sent_uid != uid and stream.restart_uid != uid:
                    stream.restart_uid, stream.restart_place = uid, message.place
                    if search.origin is not None:
                        core.send(search.origin, message)
                    break

    def _pending_long(self, stream: Stream, uid: int, now: float) -> None:
        if self._alive(stream) and stream.connected and stream.restart_uid == uid and stream.parent is not None:
            self._core.send(stream.parent, Unsubscribe(stream.key))
            self.parent_lost(stream, "parent-restarting", now)

    def refreshed(self, stream: Stream, message: Succeeded, now: float) -> None:
        """The parent has a root again, or another one."""
        core = self._core
        changed = stream.root != message.root
        stream.root = message.root
        if stream.own_uid is None:
            stream.restart_uid = None
            self._settled_again(stream, message.uid)
        if changed and stream.local:
            core.tell(Subscribed(stream.key, message.root, False))

    def _settled_again(self, stream: Stream, uid: int) -> None:
        core = self._core
        assert stream.root is not None, "a stream that is settled has a root"
        for subscriber in stream.subscribers:
            core.send(subscriber, SubscribeSucceeded(stream.key, uid, stream.root))
        self._members.serve_held(stream)

    def dismissed(self, message: Dismissed, neighbour: Neighbour, now: float) -> None:
        """A neighbour is no parent any more."""
        stream = self._core.streams.get(message.key)
        if stream is not None and stream.parent is neighbour:
            self.parent_lost(stream, "dismissed", now)

    def neighbour_lost(self, neighbour: Neighbour, reason: str, now: float) -> None:
        """A neighbour is gone, or has forgotten everything."""
        for stream in tuple(self._core.streams.values()):
            if stream.parent is neighbour:
                self.parent_lost(stream, reason, now)

    # What becomes of this node's own requests

    def own_ended(self, search: Search, reason: str | None, now: float) -> None:
        """A request of this node's own found no parent; why not, ``None`` if there is none that is nearer."""
        stream = search.stream
        if stream.connected:
            self._stay(stream, search, now)
            if reason == "busy" and stream.is_root:
                pause = HINT_INTERVAL * 2.0 ** min(stream.busy_looks, 10)
                stream.busy_looks += 1
                self._follow_at(stream, now + min(pause, self._core.policy.restart_interval))
        elif stream.phase is Phase.RESTARTING:
            stream.attempts += 1
            busy = reason == "busy"
            if stream.attempts >= (BUSY_TRIES if busy else TRIES):
                self._members.attach(stream, None, self._core.location, self._revived(search), now)
            else:
                self._restart(stream, self._core.rng.uniform(0.5, 1.5) if busy else self._pause(stream), now)
        elif stream.local:
            self._subscription_failed(stream, reason or "not-found", now)

    def _stay(self, stream: Stream, search: Search, now: float) -> None:
        """There is nothing better: what there is goes on."""
        core = self._core
        if search.sent_uid != stream.own_uid:
            return
        stream.own_uid = None
        if stream.restart_uid is not None:
            self._announce(stream, stream.restart_uid)
            return
        self._settled_again(stream, search.sent_uid)
        root = stream.root
        if stream.parent is not None and root is not None and self._members.nearer(stream, core.location, root):
            core.send(stream.parent, BetterRoot(stream.key, core.location))

    def _revived(self, search: Search) -> Search:
        search.stream.searches.append(search)
        return search

    def _subscription_failed(self, stream: Stream, reason: str, now: float) -> None:
        core = self._core
        stream.attempts += 1
        core.tell(SubscribeFailed(stream.key, reason))
        if core.policy.retry:
            self.begin_later(stream, now)
        else:
            stream.local = False
            self._members.drop_if_unwanted(stream)

    def begin_later(self, stream: Stream, now: float) -> None:
        """Look for a stream that the application wants again, later each time."""
        if stream.again_at <= now:
            stream.again_at = now + self._pause(stream)
            self._core.at(stream.again_at, self._subscribe_again, stream)

    def _pause(self, stream: Stream) -> float:
        # Those who failed together must not try again together, however often they did.
        return self._core.rng.uniform(0.5, 1.0) * min(2.0 ** min(stream.attempts + 1, 10), LONGEST_PAUSE)

    def _alive(self, stream: Stream) -> bool:
        return self._core.streams.get(stream.key) is stream

    def _idle(self, stream: Stream) -> bool:
        return self._alive(stream) and stream.settled and stream.own_uid is None
