"""Requests find the tree, or the place where its root has to be (document 003, "When we get a SubscribeRequest").

A request goes to the neighbour nearest to the key that it has not been to, be that nearer than this node or not. Who
is nearer than all before it becomes the root if nothing is found behind it.
"""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.freenet.node.context import Core
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.stream import Held, Phase, Search, Stream
from fyrehose_twisted.freenet.node.tree import Members
from fyrehose_twisted.freenet.wire.location import distance
from fyrehose_twisted.freenet.wire.messages import (
    Accepted,
    DataNotFound,
    RejectedBusy,
    RejectedLoop,
    RejectedOverload,
    ResubscribeRequest,
    RouteNotFound,
    SubscribeRequest,
    SubscribeRestarted,
    SubscribeSucceededNewRoot,
    Succeeded,
)

MAX_PARALLEL = 16
"""Requests for one key that a node has under way."""
NEWS_DELAY = 0.5
"""Seconds after a request in which it must have come down the tree, too, that the root looks for a better one."""


class Searching:
    """Routes requests.

    :ivar refreshed: called with what a parent says that is no answer to a request.
    :ivar better_known: called with a stream and a place that may become a better root than it has, and the time.
    :ivar own_ended: called with a request of this node's own that found nothing: why not, or ``None`` if there is
        nothing nearer.
    :ivar begin_later: called with a stream of the application that nothing is under way for: after a while it is
        looked for again.
    """

    def __init__(self, core: Core, members: Members) -> None:
        self._core = core
        self._members = members
        self.refreshed: Callable[[Stream, Succeeded, float], None]
        self.better_known: Callable[[Stream, float, float], None]
        self.own_ended: Callable[[Search, str | None, float], None]
        self.begin_later: Callable[[Stream, float], None]

    # What comes in

    def subscribe_requested(self, request: SubscribeRequest, asker: Neighbour, now: float) -> None:
        """Somebody looks for a tree."""
        core = self._core
        if not core.recent.add(request.uid):
            core.counts["loops"] += 1
            core.send(asker, RejectedLoop(request.uid))
            return
        held = Held(request.uid, asker, request.htl, request.last_seen, request.best, None)
        stream = core.streams.get(request.key)
        if stream is None:
            stream = self._members.make(request.key, asker)
            if stream is None:
                self._overload(asker, request.uid)
                return
        self._take(stream, held, now)

    def _take(self, stream: Stream, asked: Held, now: float, *, again: bool = False) -> None:
        """Answer a request, route it or hold it; ``again`` if it has been accepted before."""
        core = self._core
        if stream.settled:
            self._members.join(stream, asked.origin, asked.uid, asked.last_seen)
            return
        if stream.phase is Phase.SEARCHING and not stream.searches:
            self._route(stream, asked, None, now, again=again)
            return
        if core.policy.coalesce == "reject":
            self._overload(asked.origin, asked.uid)
            return
        behind: Search | None = None
        if stream.phase is Phase.SEARCHING:
            behind = min(stream.searches, key=lambda search: _rank(stream, search.best, search.sent_uid))
            first = _rank(stream, behind.best, behind.sent_uid) < _rank(stream, asked.best, asked.uid)
            # Who waits always waits for a smaller pair, so nobody waits for itself.
            if core.policy.coalesce == "parallel" or not first:
                self._route(stream, asked, None, now, again=again)
                return
        if len(stream.held) >= core.policy.max_waiting:
            self._overload(asked.origin, asked.uid)
            return
        core.counts["held"] += 1
        stream.held.append(asked._replace(behind=behind))
        restart = behind.sent_uid if behind is not None else stream.own_uid or stream.restart_uid
        if not again:
            core.send(asked.origin, Accepted(asked.uid))
            core.at(now + core.policy.hold, self._held_long, stream, asked.uid)
        if restart is not None:
            place = behind.best if behind is not None else self._restart_place(stream)
            core.send(asked.origin, SubscribeRestarted(stream.key, restart, place))

    def resubscribe_requested(self, request: ResubscribeRequest, asker: Neighbour, now: float) -> None:
        """Somebody looks for a tree again (document 003, "When we get a ResubscribeRequest")."""
        core, members = self._core, self._members
        stream = core.streams.get(request.key)
        if not core.recent.add(request.uid):
            core.counts["loops"] += 1
            core.send(asker, RejectedLoop(request.uid))
            return
        if stream is None:
            stream = members.make(request.key, asker)
            if stream is None:
                self._overload(asker, request.uid)
                return
            self._route(stream, _asked(request, asker), request.must_beat, now)
        elif self._from_above(stream, request):
            self._route(stream, _asked(request, asker), request.must_beat, now)
        elif stream.settled and stream.own_uid is None and members.beats(stream, request.must_beat):
            members.join(stream, asker, request.uid, request.last_seen)
        elif stream.settled and stream.root == request.must_beat and members.knows_nearer(stream, request.must_beat):
            # Our own root asks, and the request has overtaken the news: it has fewer hops.
            core.counts["overtaking"] += 1
            core.at(now + NEWS_DELAY, self._news_should_be_here, stream, request, asker)
        else:
            core.counts["resubscribers_rejected"] += 1
            self._reject(stream, asker, request.uid, request.must_beat, now)

    def _from_above(self, stream: Stream, request: ResubscribeRequest) -> bool:
        """Say whether we are part of what looks for a parent."""
        return stream.restart_uid == request.uid and stream.phase is not Phase.RESTARTING

    def _news_should_be_here(self, stream: Stream, request: ResubscribeRequest, asker: Neighbour, now: float) -> None:
        core = self._core
        if asker.link is None:
            return
        if core.streams.get(request.key) is stream and self._from_above(stream, request):
            self._route(stream, _asked(request, asker), request.must_beat, now)
        else:
            core.counts["resubscribers_rejected"] += 1
            core.send(asker, RejectedLoop(request.uid))

    def _reject(self, stream: Stream, asker: Neighbour, uid: int, must_beat: float, now: float) -> None:
        """Send a resubscriber away, and say whether it should come back."""
        core = self._core
        if not stream.settled or stream.own_uid is not None:
            core.send(asker, RejectedBusy(uid, self._restart_place(stream)))
            return
        core.send(asker, RejectedLoop(uid))
        if stream.root is not None and self._members.nearer(stream, must_beat, stream.root):
            # It may become the root of another tree.
            self.better_known(stream, must_beat, now)

    def _restart_place(self, stream: Stream) -> float:
        """Return where whoever looks for a parent of this stream is: here, above, or where a request has got to."""
        core = self._core
        if stream.own_uid is not None or stream.phase is Phase.RESTARTING:
            return core.location
        if stream.phase is Phase.SEARCHING and stream.searches:
            return min((one.best for one in stream.searches), key=lambda place: distance(place, stream.location))
        return stream.restart_place

    def _overload(self, asker: Neighbour, uid: int) -> None:
        self._core.counts["overloads"] += 1
        self._core.send(asker, RejectedOverload(uid))

    # On its way

    def begin(self, stream: Stream, uid: int, must_beat: float | None, now: float) -> None:
        """Send a request of this node's own."""
        core = self._core
        core.recent.add(uid)
        last_seen = stream.packets.last_seen
        search = Search(stream, uid, None, core.policy.max_htl, last_seen, core.location, must_beat, closest=True)
        self._launch(search, now)

    def _route(self, stream: Stream, asked: Held, must_beat: float | None, now: float, *, again: bool = False) -> None:
        core = self._core
        if len(stream.searches) >= MAX_PARALLEL or asked.origin.link is None:
            self._overload(asked.origin, asked.uid)
            self._members.drop_if_unwanted(stream)
            return
        htl = min(asked.htl, core.policy.max_htl)
        best, closest = asked.best, False
        if distance(core.location, stream.location) < distance(best, stream.location):
            best, closest = core.location, True
            if core.policy.htl_on_closer == "reset":
                htl = core.policy.max_htl
        else:
            htl = self._decremented(asked.origin, htl)
        search = Search(stream, asked.uid, asked.origin, htl, asked.last_seen, best, must_beat, closest=closest)
        if not again:
            core.send(asked.origin, Accepted(asked.uid))
            core.send(asked.origin, SubscribeRestarted(stream.key, asked.uid, best))
        self._launch(search, now)

    def _decremented(self, link: Neighbour, htl: int) -> int:
        """Return what a link leaves of hops to live; what it takes off the first and the last is drawn once."""
        policy = self._core.policy
        if link.thrifty is None:
            draw = self._core.rng.random
            link.thrifty = draw() < policy.p_max, draw() < policy.p_min
        if htl == policy.max_htl and not link.thrifty[0]:
            return htl
        if htl == 1 and not link.thrifty[1]:
            return htl
        return htl - 1

    def _launch(self, search: Search, now: float) -> None:
        search.stream.searches.append(search)
        self._core.searches[search.sent_uid] = search
        self._advance(search, now)

    def _advance(self, search: Search, now: float) -> None:
        """Ask the next neighbour."""
        core = self._core
        following = self._nearest(search, now) if search.htl > 0 else None
        if following is None:
            self._exhausted(search, now)
            return
        search.next = following
        search.tried.add(following)
        search.accepted = False
        search.attempt += 1
        key, uid = search.stream.key, search.sent_uid
        core.counts["requests"] += 1
        if search.must_beat is None:
            core.send(following, SubscribeRequest(uid, key, search.htl, search.last_seen, search.best))
        else:
            core.send(
                following,
                ResubscribeRequest(uid, key, search.htl, search.last_seen, search.must_beat, search.best),
            )
        core.at(now + core.policy.accepted_timeout, self._not_accepted, search, search.attempt)

    def _nearest(self, search: Search, now: float) -> Neighbour | None:
        """Return the neighbour nearest to the key that was not asked; those that did not answer lately come last."""
        place, tried, origin = search.stream.location, search.tried, search.origin
        best: Neighbour | None = None
        least = 9.0
        for neighbour in self._core.links.values():
            if neighbour in tried or neighbour is origin or neighbour.link is None:
                continue
            apart = abs(neighbour.location - place)
            if apart > 0.5:
                apart = 1.0 - apart
            if neighbour.suspected_until > now:
                apart += 1.0
            if apart < least:
                best, least = neighbour, apart
        return best

    # What becomes of it

    def accepted(self, message: Accepted, neighbour: Neighbour, now: float) -> None:
        """A neighbour has taken a request."""
        search = self._waiting_for(message.uid, neighbour)
        if search is not None and not search.accepted:
            search.accepted = True
            self._core.at(now + self._core.policy.completion_timeout, self._not_completed, search, search.attempt)

    def rejected_loop(self, message: RejectedLoop, neighbour: Neighbour, now: float) -> None:
        """A neighbour knows the request already, or may not take it."""
        search = self._waiting_for(message.uid, neighbour)
        if search is not None:
            self._advance(search, now)

    def route_not_found(self, message: RouteNotFound, neighbour: Neighbour, now: float) -> None:
        """A neighbour knows nobody else."""
        search = self._waiting_for(message.uid, neighbour)
        if search is not None:
            search.htl = min(search.htl, message.htl)
            self._note_busy(search, message.busy)
            self._advance(search, now)

    def rejected_busy(self, message: RejectedBusy, neighbour: Neighbour, now: float) -> None:
        """A neighbour looks for a parent itself."""
        search = self._waiting_for(message.uid, neighbour)
        if search is not None:
            self._note_busy(search, message.place)
            self._advance(search, now)

    def _note_busy(self, search: Search, place: float | None) -> None:
        if place is not None and (search.busy is None or self._members.nearer(search.stream, place, search.busy)):
            search.busy = place

    def data_not_found(self, message: DataNotFound, neighbour: Neighbour, now: float) -> None:
        """The request has used up its hops."""
        search = self._waiting_for(message.uid, neighbour)
        if search is not None:
            search.htl = 0
            self._note_busy(search, message.busy)
            self._exhausted(search, now)

    def rejected_overload(self, message: RejectedOverload, neighbour: Neighbour, now: float) -> None:
        """Somebody has no room."""
        search = self._waiting_for(message.uid, neighbour)
        if search is not None:
            self._failed(search, "overload", now)

    def succeeded(self, message: Succeeded, neighbour: Neighbour, now: float) -> None:
        """A neighbour is our parent, or says how it is doing as such."""
        core = self._core
        search = self._waiting_for(message.uid, neighbour)
        if search is not None and search.stream.key == message.key:
            neighbour.suspected_until = 0.0
            search.new_root = isinstance(message, SubscribeSucceededNewRoot)
            self._found(search, neighbour, message.root, now)
            return
        stream = core.streams.get(message.key)
        if stream is not None and stream.parent is neighbour:
            self.refreshed(stream, message, now)
        else:
            # It takes us for a subscriber, and it is wrong.
            core.counts["strays"] += 1
            core.correct(neighbour, message.key)

    def neighbour_lost(self, neighbour: Neighbour, now: float) -> None:
        """A neighbour is gone: ask others, and forget what it asked."""
        core, members = self._core, self._members
        for stream in tuple(core.streams.values()):
            stream.held = [held for held in stream.held if held.origin is not neighbour]
            for search in tuple(stream.searches):
                if search.origin is neighbour and not search.over:
                    members.end(search)
                    self._search_again(stream, search, now)
            members.drop_if_unwanted(stream)
        for search in tuple(core.searches.values()):
            if search.next is neighbour and not search.over:
                self._advance(search, now)

    def _waiting_for(self, uid: int, neighbour: Neighbour) -> Search | None:
        search = self._core.searches.get(uid)
        return search if search is not None and search.next is neighbour else None

    def _found(self, search: Search, parent: Neighbour, root: float, now: float) -> None:
        stream = search.stream
        if self._may_move(search):
            self._members.attach(stream, parent, root, search, now)
            return
        core, origin = self._core, search.origin
        self._members.end(search)
        if parent is not stream.parent:
            core.correct(parent, stream.key)
        if origin is None:
            self.own_ended(search, None, now)
        elif search.must_beat is None:
            self._take(stream, _held(search), now, again=True)
        elif stream.settled and stream.own_uid is None and self._members.beats(stream, search.must_beat):
            self._members.join(stream, origin, search.uid, search.last_seen)
        else:
            self._reject(stream, origin, search.uid, search.must_beat, now)
        self._search_again(stream, search, now)

    def _may_move(self, search: Search) -> bool:
        """Say whether what ``search`` found may be above this node: it may not be below."""
        stream = search.stream
        if search.must_beat is not None and search.origin is None:
            return stream.own_uid == search.sent_uid
        if search.must_beat is not None and stream.restart_uid == search.uid and stream.phase is not Phase.RESTARTING:
            return True
        return not stream.connected and not stream.subscribers

    def _exhausted(self, search: Search, now: float) -> None:
        """Nobody is left to ask, or no hops are."""
        core, stream = self._core, search.stream
        better = search.busy is not None and self._members.nearer(stream, search.busy, core.location)
        if search.origin is None and (stream.connected or better):
            self._members.end(search)
            self.own_ended(search, "busy" if better else None, now)
        elif not better and search.closest and self._may_move(search) and self._may_be_root(search):
            if core.policy.confirm_root and not search.confirming:
                self._look_twice(search, now)
            else:
                core.counts["rooted"] += 1
                self._members.attach(stream, None, core.location, search, now)
        else:
            self._members.end(search)
            if search.origin is not None:
                uid, htl, busy = search.uid, search.htl, search.busy
                core.send(search.origin, RouteNotFound(uid, htl, busy) if htl > 0 else DataNotFound(uid, busy))
            self._search_again(stream, search, now)

    def _may_be_root(self, search: Search) -> bool:
        must_beat = search.must_beat
        if must_beat is None or search.origin is None:
            return True
        return self._members.nearer(search.stream, self._core.location, must_beat)

    def _look_twice(self, search: Search, now: float) -> None:
        core = self._core
        core.counts["confirmations"] += 1
        if search.must_beat is None and core.policy.coalesce != "reject":
            del core.searches[search.sent_uid]
            search.sent_uid = core.new_uid()
            core.searches[search.sent_uid] = search
            core.recent.add(search.sent_uid)
            search.tried.clear()
        # A resubscription is let through below its originator under its own uid only, and where requests are rejected,
        # another one would be by those who wait for this one: whom it has not been to is asked.
        search.confirming = True
        search.htl = core.policy.max_htl
        self._advance(search, now)

    def _failed(self, search: Search, reason: str, now: float) -> None:
        self._members.end(search)
        if search.origin is None:
            self.own_ended(search, reason, now)
        else:
            self._overload(search.origin, search.uid)
        self._search_again(search.stream, search, now)

    def _search_again(self, stream: Stream, ended: Search, now: float) -> None:
        """Look after those who waited for a request that found nothing."""
        core = self._core
        if core.streams.get(stream.key) is not stream:
            return
        waiting = [held for held in stream.held if held.behind is ended]
        if waiting:
            stream.held = [held for held in stream.held if held.behind is not ended]
            for held in waiting:
                self._take(stream, held._replace(behind=None), now, again=True)
        if core.streams.get(stream.key) is not stream:
            return
        if stream.local and stream.phase is Phase.SEARCHING and not stream.searches and ended.origin is not None:
            if core.policy.coalesce == "reject":
                # Where nobody waits for anybody, those who begin together reject one another, again and again.
                self.begin_later(stream, now)
            else:
                self.begin(stream, core.new_uid(), None, now)
        else:
            self._members.drop_if_unwanted(stream)

    # What takes too long

    def _not_accepted(self, search: Search, attempt: int, now: float) -> None:
        if search.over or search.attempt != attempt or search.accepted or search.next is None:
            return
        self._core.counts["not_accepted"] += 1
        search.next.suspected_until = now + self._core.policy.suspicion
        self._advance(search, now)

    def _not_completed(self, search: Search, attempt: int, now: float) -> None:
        if search.over or search.attempt != attempt or search.next is None:
            return
        self._core.counts["not_completed"] += 1
        search.next.suspected_until = now + self._core.policy.suspicion
        self._failed(search, "timed-out", now)

    def _held_long(self, stream: Stream, uid: int, now: float) -> None:
        for held in stream.held:
            if held.uid == uid:
                stream.held.remove(held)
                self._core.counts["held_too_long"] += 1
                self._core.send(held.origin, RouteNotFound(uid, held.htl, self._restart_place(stream)))
                if self._core.streams.get(stream.key) is stream:
                    self._members.drop_if_unwanted(stream)
                return


def _rank(stream: Stream, best: float, uid: int) -> tuple[float, int]:
    return distance(best, stream.location), uid


def _asked(request: ResubscribeRequest, asker: Neighbour) -> Held:
    return Held(request.uid, asker, request.htl, request.last_seen, request.best, None)


def _held(search: Search) -> Held:
    assert search.origin is not None, "what this node wants for itself is not held"
    return Held(search.uid, search.origin, search.htl, search.last_seen, search.best, None)
