"""Requests of neighbours (document 003, "When we get a SubscribeRequest"): accepted, queued, routed or rejected."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.routing import RequestRouter
from fyrehose_twisted.freenet.node.stream import PendingRequest, QueuedRequest, Stream, StreamPhase
from fyrehose_twisted.freenet.node.tree import TreeMembership
from fyrehose_twisted.freenet.wire.location import distance
from fyrehose_twisted.freenet.wire.messages import (
    Accepted,
    RejectedBusy,
    RejectedLoop,
    ResubscribeRequest,
    RouteNotFound,
    SubscribeRequest,
    SubscribeRestarted,
)

ANNOUNCEMENT_DELAY = 0.5
"""Seconds to wait for a restart announcement of the root that its own request has overtaken."""


class IncomingRequests:
    """Subscribe and resubscribe requests of neighbours.

    :param router: router of the requests that this node cannot answer.
    :ivar on_better_root: called with a stream, a location that may become a better root, and the time.
    :ivar on_retry: called with a stream of the application that has no pending request and must be searched for later.
    """

    def __init__(self, context: NodeContext, membership: TreeMembership, router: RequestRouter) -> None:
        self._context = context
        self._membership = membership
        self._router = router
        self.on_better_root: Callable[[Stream, float, float], None]
        self.on_retry: Callable[[Stream, float], None]

    def subscribe_requested(self, request: SubscribeRequest, requester: Neighbour, now: float) -> None:
        """Handle a SubscribeRequest."""
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
                core.reject_overload(requester, request.uid)
                return
        self._handle_request(stream, held, now)

    def _handle_request(self, stream: Stream, asked: QueuedRequest, now: float, *, again: bool = False) -> None:
        """Answer, route or queue a request.

        :param again: True if the request was accepted before.
        """
        core = self._context
        if stream.settled:
            self._membership.add_subscriber(stream, asked.origin, asked.uid, asked.last_seen)
            return
        if stream.phase is StreamPhase.SEARCHING and not stream.requests:
            self._router.route(stream, asked, None, now, again=again)
            return
        if core.policy.coalesce == "reject":
            core.reject_overload(asked.origin, asked.uid)
            return
        behind: PendingRequest | None = None
        if stream.phase is StreamPhase.SEARCHING:
            behind = min(stream.requests, key=lambda search: _rank(stream, search.best, search.sent_uid))
            first = _rank(stream, behind.best, behind.sent_uid) < _rank(stream, asked.best, asked.uid)
            # A request only waits for one with a smaller rank, so no two can wait for each other.
            if core.policy.coalesce == "parallel" or not first:
                self._router.route(stream, asked, None, now, again=again)
                return
        if len(stream.queued_requests) >= core.policy.max_waiting:
            core.reject_overload(asked.origin, asked.uid)
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
        """Handle a ResubscribeRequest (document 003, "When we get a ResubscribeRequest")."""
        core, membership = self._context, self._membership
        stream = core.streams.get(request.key)
        if not core.recent_uids.add(request.uid):
            core.counters["loops"] += 1
            core.send(requester, RejectedLoop(request.uid))
            return
        if stream is None:
            stream = membership.create_stream(request.key, requester)
            if stream is None:
                core.reject_overload(requester, request.uid)
                return
            self._router.route(stream, _queued_from_request(request, requester), request.must_beat, now)
        elif self._belongs_to_restart(stream, request):
            self._router.route(stream, _queued_from_request(request, requester), request.must_beat, now)
        elif stream.settled and stream.own_restart_uid is None and membership.is_better_root(stream, request.must_beat):
            membership.add_subscriber(stream, requester, request.uid, request.last_seen)
        elif stream.settled and stream.root == request.must_beat and membership.knows_nearer(stream, request.must_beat):
            # The stream's own root asks, and its request has overtaken its restart announcement.
            core.counters["overtaking"] += 1
            core.call_at(now + ANNOUNCEMENT_DELAY, self._announcement_expected, stream, request, requester)
        else:
            core.counters["resubscribers_rejected"] += 1
            self._reject_resubscriber(stream, requester, request.uid, request.must_beat, now)

    def _belongs_to_restart(self, stream: Stream, request: ResubscribeRequest) -> bool:
        """Return True if the request belongs to the restart of this node's own tree."""
        return stream.restart_uid == request.uid and stream.phase is not StreamPhase.RESTARTING

    def _announcement_expected(
        self, stream: Stream, request: ResubscribeRequest, requester: Neighbour, now: float
    ) -> None:
        core = self._context
        if requester.link is None:
            return
        if core.streams.get(request.key) is stream and self._belongs_to_restart(stream, request):
            self._router.route(stream, _queued_from_request(request, requester), request.must_beat, now)
        else:
            core.counters["resubscribers_rejected"] += 1
            core.send(requester, RejectedLoop(request.uid))

    def _reject_resubscriber(
        self, stream: Stream, requester: Neighbour, uid: int, must_beat: float, now: float
    ) -> None:
        """Reject a resubscriber: as busy while this stream is restarting, else as a loop."""
        core = self._context
        if not stream.settled or stream.own_restart_uid is not None:
            core.send(requester, RejectedBusy(uid, self._restart_location(stream)))
            return
        core.send(requester, RejectedLoop(uid))
        if stream.root is not None and self._membership.is_nearer(stream, must_beat, stream.root):
            # The resubscriber may become the root of another tree.
            self.on_better_root(stream, must_beat, now)

    def parent_unusable(self, search: PendingRequest, now: float) -> None:
        """Answer a request that found a parent which this node cannot attach to."""
        stream, origin = search.stream, search.origin
        assert origin is not None, "requests of this node itself have no neighbour to answer"
        if search.must_beat is None:
            self._handle_request(stream, _queued_from_pending(search, origin), now, again=True)
        elif (
            stream.settled
            and stream.own_restart_uid is None
            and self._membership.is_better_root(stream, search.must_beat)
        ):
            self._membership.add_subscriber(stream, origin, search.uid, search.last_seen)
        else:
            self._reject_resubscriber(stream, origin, search.uid, search.must_beat, now)

    def neighbour_lost(self, neighbour: Neighbour, now: float) -> None:
        """Drop the requests that a lost neighbour sent."""
        core, membership = self._context, self._membership
        for stream in tuple(core.streams.values()):
            stream.queued_requests = [held for held in stream.queued_requests if held.origin is not neighbour]
            for search in tuple(stream.requests):
                if search.origin is neighbour and not search.finished:
                    membership.finish_request(search)
                    self.resume_queued(search, now)
            membership.prune(stream)

    def resume_queued(self, ended: PendingRequest, now: float) -> None:
        """Handle again the requests that waited for a request that found no tree."""
        core, stream = self._context, ended.stream
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
                # Without queues, nodes that start together would reject one another again and again.
                self.on_retry(stream, now)
            else:
                self._router.start_request(stream, core.new_uid(), None, now)
        else:
            self._membership.prune(stream)

    def _restart_location(self, stream: Stream) -> float:
        """Return the location of the search for a parent: this node, a node further up, or the best of a request."""
        core = self._context
        if stream.own_restart_uid is not None or stream.phase is StreamPhase.RESTARTING:
            return core.location
        if stream.phase is StreamPhase.SEARCHING and stream.requests:
            return min((search.best for search in stream.requests), key=lambda best: distance(best, stream.location))
        return stream.restart_location

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


def _queued_from_pending(search: PendingRequest, origin: Neighbour) -> QueuedRequest:
    return QueuedRequest(search.uid, origin, search.htl, search.last_seen, search.best, None)
