"""Requests find the tree, or the place where its root has to be (document 003, "When we get a SubscribeRequest").

A request goes to the neighbour nearest to the key that it has not been to, be that nearer than this node or not. Who
is nearer than all before it becomes the root if nothing is found behind it.
"""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.stream import PendingRequest, QueuedRequest, Stream, StreamPhase
from fyrehose_twisted.freenet.node.tree import TreeMembership
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

MAX_PARALLEL_REQUESTS = 16
"""Requests for one key that a node has under way."""
ANNOUNCEMENT_DELAY = 0.5
"""Seconds after a request in which it must have come down the tree, too, that the root looks for a better one."""


class RequestRouter:
    """Routes requests.

    :ivar on_parent_refreshed: called with what a parent says that is no answer to a request.
    :ivar on_better_root: called with a stream and a place that may become a better root than it has, and the time.
    :ivar on_own_request_ended: called with a request of this node's own that found nothing: why not, or ``None`` if
        there is nothing nearer.
    :ivar on_retry: called with a stream of the application that nothing is under way for: after a while it is
        looked for again.
    """

    def __init__(self, context: NodeContext, membership: TreeMembership) -> None:
        self._context = context
        self._membership = membership
        self.on_parent_refreshed: Callable[[Stream, Succeeded, float], None]
        self.on_better_root: Callable[[Stream, float, float], None]
        self.on_own_request_ended: Callable[[PendingRequest, str | None, float], None]
        self.on_retry: Callable[[Stream, float], None]

    # What comes in

    def subscribe_requested(self, request: SubscribeRequest, requester: Neighbour, now: float) -> None:
        """Somebody looks for a tree."""
        core = self._context
        if not core.recent_uids.add(request.uid):
            core.counters["loops"] += 1
            core.send(requester, RejectedLoop(request.uid))
            return
        held = QueuedRequest(request.uid, requester, request.htl, request.last_seen, request.best, None)
        stream = core.streams.get(request.key)
        if stream is None:
            stream = self._membership.create_stream(request.key, requester)
            if stream is None:
                self._reject_overload(requester, request.uid)
                return
        self._handle_request(stream, held, now)

    def _handle_request(self, stream: Stream, asked: QueuedRequest, now: float, *, again: bool = False) -> None:
        """Answer a request, route it or hold it; ``again`` if it has been accepted before."""
        core = self._context
        if stream.settled:
            self._membership.add_subscriber(stream, asked.origin, asked.uid, asked.last_seen)
            return
        if stream.phase is StreamPhase.SEARCHING and not stream.requests:
            self._route(stream, asked, None, now, again=again)
            return
        if core.policy.coalesce == "reject":
            self._reject_overload(asked.origin, asked.uid)
            return
        behind: PendingRequest | None = None
        if stream.phase is StreamPhase.SEARCHING:
            behind = min(stream.requests, key=lambda search: _rank(stream, search.best, search.sent_uid))
            first = _rank(stream, behind.best, behind.sent_uid) < _rank(stream, asked.best, asked.uid)
            # Who waits always waits for a smaller pair, so nobody waits for itself.
            if core.policy.coalesce == "parallel" or not first:
                self._route(stream, asked, None, now, again=again)
                return
        if len(stream.queued_requests) >= core.policy.max_waiting:
            self._reject_overload(asked.origin, asked.uid)
            return
        core.counters["held"] += 1
        stream.queued_requests.append(asked._replace(waits_for=behind))
        restart = behind.sent_uid if behind is not None else stream.own_restart_uid or stream.restart_uid
        if not again:
            core.send(asked.origin, Accepted(asked.uid))
            core.call_at(now + core.policy.hold, self._queue_timed_out, stream, asked.uid)
        if restart is not None:
            place = behind.best if behind is not None else self._restart_location(stream)
            core.send(asked.origin, SubscribeRestarted(stream.key, restart, place))

    def resubscribe_requested(self, request: ResubscribeRequest, requester: Neighbour, now: float) -> None:
        """Somebody looks for a tree again (document 003, "When we get a ResubscribeRequest")."""
        core, members = self._context, self._membership
        stream = core.streams.get(request.key)
        if not core.recent_uids.add(request.uid):
            core.counters["loops"] += 1
            core.send(requester, RejectedLoop(request.uid))
            return
        if stream is None:
            stream = members.create_stream(request.key, requester)
            if stream is None:
                self._reject_overload(requester, request.uid)
                return
            self._route(stream, _queued_from_request(request, requester), request.must_beat, now)
        elif self._belongs_to_restart(stream, request):
            self._route(stream, _queued_from_request(request, requester), request.must_beat, now)
        elif stream.settled and stream.own_restart_uid is None and members.is_better_root(stream, request.must_beat):
            members.add_subscriber(stream, requester, request.uid, request.last_seen)
        elif stream.settled and stream.root == request.must_beat and members.knows_nearer(stream, request.must_beat):
            # Our own root asks, and the request has overtaken the news: it has fewer hops.
            core.counters["overtaking"] += 1
            core.call_at(now + ANNOUNCEMENT_DELAY, self._announcement_expected, stream, request, requester)
        else:
            core.counters["resubscribers_rejected"] += 1
            self._reject_resubscriber(stream, requester, request.uid, request.must_beat, now)

    def _belongs_to_restart(self, stream: Stream, request: ResubscribeRequest) -> bool:
        """Say whether we are part of what looks for a parent."""
        return stream.restart_uid == request.uid and stream.phase is not StreamPhase.RESTARTING

    def _announcement_expected(
        self, stream: Stream, request: ResubscribeRequest, requester: Neighbour, now: float
    ) -> None:
        core = self._context
        if requester.link is None:
            return
        if core.streams.get(request.key) is stream and self._belongs_to_restart(stream, request):
            self._route(stream, _queued_from_request(request, requester), request.must_beat, now)
        else:
            core.counters["resubscribers_rejected"] += 1
            core.send(requester, RejectedLoop(request.uid))

    def _reject_resubscriber(
        self, stream: Stream, requester: Neighbour, uid: int, must_beat: float, now: float
    ) -> None:
        """Send a resubscriber away, and say whether it should come back."""
        core = self._context
        if not stream.settled or stream.own_restart_uid is not None:
            core.send(requester, RejectedBusy(uid, self._restart_location(stream)))
            return
        core.send(requester, RejectedLoop(uid))
        if stream.root is not None and self._membership.is_nearer(stream, must_beat, stream.root):
            # It may become the root of another tree.
            self.on_better_root(stream, must_beat, now)

    def _restart_location(self, stream: Stream) -> float:
        """Return where whoever looks for a parent of this stream is: here, above, or where a request has got to."""
        core = self._context
        if stream.own_restart_uid is not None or stream.phase is StreamPhase.RESTARTING:
            return core.location
        if stream.phase is StreamPhase.SEARCHING and stream.requests:
            return min((one.best for one in stream.requests), key=lambda place: distance(place, stream.location))
        return stream.restart_location

    def _reject_overload(self, requester: Neighbour, uid: int) -> None:
        self._context.counters["overloads"] += 1
        self._context.send(requester, RejectedOverload(uid))

    # On its way

    def start_request(self, stream: Stream, uid: int, must_beat: float | None, now: float) -> None:
        """Send a request of this node's own."""
        core = self._context
        core.recent_uids.add(uid)
        last_seen = stream.packets.last_seen
        search = PendingRequest(
            stream, uid, None, core.policy.max_htl, last_seen, core.location, must_beat, is_closest=True
        )
        self._start(search, now)

    def _route(
        self, stream: Stream, asked: QueuedRequest, must_beat: float | None, now: float, *, again: bool = False
    ) -> None:
        core = self._context
        if len(stream.requests) >= MAX_PARALLEL_REQUESTS or asked.origin.link is None:
            self._reject_overload(asked.origin, asked.uid)
            self._membership.prune(stream)
            return
        htl = min(asked.htl, core.policy.max_htl)
        best, closest = asked.best, False
        if distance(core.location, stream.location) < distance(best, stream.location):
            best, closest = core.location, True
            if core.policy.htl_on_closer == "reset":
                htl = core.policy.max_htl
        else:
            htl = self._decrement_htl(asked.origin, htl)
        search = PendingRequest(
            stream, asked.uid, asked.origin, htl, asked.last_seen, best, must_beat, is_closest=closest
        )
        if not again:
            core.send(asked.origin, Accepted(asked.uid))
            core.send(asked.origin, SubscribeRestarted(stream.key, asked.uid, best))
        self._start(search, now)

    def _decrement_htl(self, link: Neighbour, htl: int) -> int:
        """Return what a link leaves of hops to live; what it takes off the first and the last is drawn once."""
        policy = self._context.policy
        if link.htl_decrements is None:
            draw = self._context.rng.random
            link.htl_decrements = draw() < policy.p_max, draw() < policy.p_min
        if htl == policy.max_htl and not link.htl_decrements[0]:
            return htl
        if htl == 1 and not link.htl_decrements[1]:
            return htl
        return htl - 1

    def _start(self, search: PendingRequest, now: float) -> None:
        search.stream.requests.append(search)
        self._context.pending_requests[search.sent_uid] = search
        self._try_next_hop(search, now)

    def _try_next_hop(self, search: PendingRequest, now: float) -> None:
        """Ask the next neighbour."""
        core = self._context
        following = self._nearest_untried(search, now) if search.htl > 0 else None
        if following is None:
            self._exhausted(search, now)
            return
        search.next_hop = following
        search.tried.add(following)
        search.accepted = False
        search.attempt += 1
        key, uid = search.stream.key, search.sent_uid
        core.counters["requests"] += 1
        if search.must_beat is None:
            core.send(following, SubscribeRequest(uid, key, search.htl, search.last_seen, search.best))
        else:
            core.send(
                following,
                ResubscribeRequest(uid, key, search.htl, search.last_seen, search.must_beat, search.best),
            )
        core.call_at(now + core.policy.accepted_timeout, self._acceptance_timed_out, search, search.attempt)

    def _nearest_untried(self, search: PendingRequest, now: float) -> Neighbour | None:
        """Return the neighbour nearest to the key that was not asked; those that did not answer lately come last."""
        place, tried, origin = search.stream.location, search.tried, search.origin
        best: Neighbour | None = None
        least = 9.0
        for neighbour in self._context.links.values():
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
        search = self._find_request(message.uid, neighbour)
        if search is not None and not search.accepted:
            search.accepted = True
            self._context.call_at(
                now + self._context.policy.completion_timeout, self._completion_timed_out, search, search.attempt
            )

    def rejected_loop(self, message: RejectedLoop, neighbour: Neighbour, now: float) -> None:
        """A neighbour knows the request already, or may not take it."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            self._try_next_hop(search, now)

    def route_not_found(self, message: RouteNotFound, neighbour: Neighbour, now: float) -> None:
        """A neighbour knows nobody else."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            search.htl = min(search.htl, message.htl)
            self._record_busy(search, message.busy)
            self._try_next_hop(search, now)

    def rejected_busy(self, message: RejectedBusy, neighbour: Neighbour, now: float) -> None:
        """A neighbour looks for a parent itself."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            self._record_busy(search, message.place)
            self._try_next_hop(search, now)

    def _record_busy(self, search: PendingRequest, location: float | None) -> None:
        if location is not None and (
            search.busy_location is None or self._membership.is_nearer(search.stream, location, search.busy_location)
        ):
            search.busy_location = location

    def data_not_found(self, message: DataNotFound, neighbour: Neighbour, now: float) -> None:
        """The request has used up its hops."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            search.htl = 0
            self._record_busy(search, message.busy)
            self._exhausted(search, now)

    def rejected_overload(self, message: RejectedOverload, neighbour: Neighbour, now: float) -> None:
        """Somebody has no room."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            self._fail(search, "overload", now)

    def succeeded(self, message: Succeeded, neighbour: Neighbour, now: float) -> None:
        """A neighbour is our parent, or says how it is doing as such."""
        core = self._context
        search = self._find_request(message.uid, neighbour)
        if search is not None and search.stream.key == message.key:
            neighbour.suspected_until = 0.0
            search.new_root = isinstance(message, SubscribeSucceededNewRoot)
            self._parent_found(search, neighbour, message.root, now)
            return
        stream = core.streams.get(message.key)
        if stream is not None and stream.parent is neighbour:
            self.on_parent_refreshed(stream, message, now)
        else:
            # It takes us for a subscriber, and it is wrong.
            core.counters["strays"] += 1
            core.deny_subscription(neighbour, message.key)

    def neighbour_lost(self, neighbour: Neighbour, now: float) -> None:
        """A neighbour is gone: ask others, and forget what it asked."""
        core, members = self._context, self._membership
        for stream in tuple(core.streams.values()):
            stream.queued_requests = [held for held in stream.queued_requests if held.origin is not neighbour]
            for search in tuple(stream.requests):
                if search.origin is neighbour and not search.finished:
                    members.finish_request(search)
                    self._resume_queued(stream, search, now)
            members.prune(stream)
        for search in tuple(core.pending_requests.values()):
            if search.next_hop is neighbour and not search.finished:
                self._try_next_hop(search, now)

    def _find_request(self, uid: int, neighbour: Neighbour) -> PendingRequest | None:
        search = self._context.pending_requests.get(uid)
        return search if search is not None and search.next_hop is neighbour else None

    def _parent_found(self, search: PendingRequest, parent: Neighbour, root: float, now: float) -> None:
        stream = search.stream
        if self._may_reparent(search):
            self._membership.attach(stream, parent, root, search, now)
            return
        core, origin = self._context, search.origin
        self._membership.finish_request(search)
        if parent is not stream.parent:
            core.deny_subscription(parent, stream.key)
        if origin is None:
            self.on_own_request_ended(search, None, now)
        elif search.must_beat is None:
            self._handle_request(stream, _queued_from_pending(search), now, again=True)
        elif (
            stream.settled
            and stream.own_restart_uid is None
            and self._membership.is_better_root(stream, search.must_beat)
        ):
            self._membership.add_subscriber(stream, origin, search.uid, search.last_seen)
        else:
            self._reject_resubscriber(stream, origin, search.uid, search.must_beat, now)
        self._resume_queued(stream, search, now)

    def _may_reparent(self, search: PendingRequest) -> bool:
        """Say whether what ``search`` found may be above this node: it may not be below."""
        stream = search.stream
        if search.must_beat is not None and search.origin is None:
            return stream.own_restart_uid == search.sent_uid
        if (
            search.must_beat is not None
            and stream.restart_uid == search.uid
            and stream.phase is not StreamPhase.RESTARTING
        ):
            return True
        return not stream.connected and not stream.subscribers

    def _exhausted(self, search: PendingRequest, now: float) -> None:
        """Nobody is left to ask, or no hops are."""
        core, stream = self._context, search.stream
        better = search.busy_location is not None and self._membership.is_nearer(
            stream, search.busy_location, core.location
        )
        if search.origin is None and (stream.connected or better):
            self._membership.finish_request(search)
            self.on_own_request_ended(search, "busy" if better else None, now)
        elif not better and search.is_closest and self._may_reparent(search) and self._may_be_root(search):
            if core.policy.confirm_root and not search.confirming:
                self._confirm_root(search, now)
            else:
                core.counters["rooted"] += 1
                self._membership.attach(stream, None, core.location, search, now)
        else:
            self._membership.finish_request(search)
            if search.origin is not None:
                uid, htl, busy = search.uid, search.htl, search.busy_location
                core.send(search.origin, RouteNotFound(uid, htl, busy) if htl > 0 else DataNotFound(uid, busy))
            self._resume_queued(stream, search, now)

    def _may_be_root(self, search: PendingRequest) -> bool:
        must_beat = search.must_beat
        if must_beat is None or search.origin is None:
            return True
        return self._membership.is_nearer(search.stream, self._context.location, must_beat)

    def _confirm_root(self, search: PendingRequest, now: float) -> None:
        core = self._context
        core.counters["confirmations"] += 1
        if search.must_beat is None and core.policy.coalesce != "reject":
            del core.pending_requests[search.sent_uid]
            search.sent_uid = core.new_uid()
            core.pending_requests[search.sent_uid] = search
            core.recent_uids.add(search.sent_uid)
            search.tried.clear()
        # A resubscription is let through below its originator under its own uid only, and where requests are rejected,
        # another one would be by those who wait for this one: whom it has not been to is asked.
        search.confirming = True
        search.htl = core.policy.max_htl
        self._try_next_hop(search, now)

    def _fail(self, search: PendingRequest, reason: str, now: float) -> None:
        self._membership.finish_request(search)
        if search.origin is None:
            self.on_own_request_ended(search, reason, now)
        else:
            self._reject_overload(search.origin, search.uid)
        self._resume_queued(search.stream, search, now)

    def _resume_queued(self, stream: Stream, ended: PendingRequest, now: float) -> None:
        """Look after those who waited for a request that found nothing."""
        core = self._context
        if core.streams.get(stream.key) is not stream:
            return
        waiting = [held for held in stream.queued_requests if held.waits_for is ended]
        if waiting:
            stream.queued_requests = [held for held in stream.queued_requests if held.waits_for is not ended]
            for held in waiting:
                self._handle_request(stream, held._replace(waits_for=None), now, again=True)
        if core.streams.get(stream.key) is not stream:
            return
        if stream.local and stream.phase is StreamPhase.SEARCHING and not stream.requests and ended.origin is not None:
            if core.policy.coalesce == "reject":
                # Where nobody waits for anybody, those who begin together reject one another, again and again.
                self.on_retry(stream, now)
            else:
                self.start_request(stream, core.new_uid(), None, now)
        else:
            self._membership.prune(stream)

    # What takes too long

    def _acceptance_timed_out(self, search: PendingRequest, attempt: int, now: float) -> None:
        if search.finished or search.attempt != attempt or search.accepted or search.next_hop is None:
            return
        self._context.counters["not_accepted"] += 1
        search.next_hop.suspected_until = now + self._context.policy.suspicion
        self._try_next_hop(search, now)

    def _completion_timed_out(self, search: PendingRequest, attempt: int, now: float) -> None:
        if search.finished or search.attempt != attempt or search.next_hop is None:
            return
        self._context.counters["not_completed"] += 1
        search.next_hop.suspected_until = now + self._context.policy.suspicion
        self._fail(search, "timed-out", now)

    def _queue_timed_out(self, stream: Stream, uid: int, now: float) -> None:
        for held in stream.queued_requests:
            if held.uid == uid:
                stream.queued_requests.remove(held)
                self._context.counters["held_too_long"] += 1
                self._context.send(held.origin, RouteNotFound(uid, held.htl, self._restart_location(stream)))
                if self._context.streams.get(stream.key) is stream:
                    self._membership.prune(stream)
                return


def _rank(stream: Stream, best: float, uid: int) -> tuple[float, int]:
    return distance(best, stream.location), uid


def _queued_from_request(request: ResubscribeRequest, requester: Neighbour) -> QueuedRequest:
    return QueuedRequest(request.uid, requester, request.htl, request.last_seen, request.best, None)


def _queued_from_pending(search: PendingRequest) -> QueuedRequest:
    assert search.origin is not None, "what this node wants for itself is not held"
    return QueuedRequest(search.uid, search.origin, search.htl, search.last_seen, search.best, None)
