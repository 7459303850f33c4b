"""Routing of requests to the tree or to the location of its root (document 003, "When we get a SubscribeRequest").

A request goes to the untried neighbour nearest to the key, even if this node is nearer. A node that is nearer than all
nodes before it becomes the root if its neighbours find no tree.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

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
from fyrehose_twisted.interfaces import IRoutingPolicy

MAX_PARALLEL_REQUESTS = 16
"""Maximum number of pending requests for one key."""


class RequestRouter:
    """Router of pending requests: sends each from neighbour to neighbour until it finds a parent.

    :ivar on_parent_refreshed: called with a success message of a parent that answers no request.
    :ivar on_own_request_ended: called with a request of this node that found no parent, and the reason, which is
        ``None`` if no nearer node exists.
    :ivar on_parent_unusable: called with a request of a neighbour that found a parent which this node cannot attach to.
    :ivar on_ended_without_tree: called with each request that has ended without a parent for this node.
    """

    def __init__(self, context: NodeContext, membership: TreeMembership) -> None:
        self._context = context
        self._membership = membership
        self.on_parent_refreshed: Callable[[Stream, Succeeded, float], None]
        self.on_own_request_ended: Callable[[PendingRequest, str | None, float], None]
        self.on_parent_unusable: Callable[[PendingRequest, float], None]
        self.on_ended_without_tree: Callable[[PendingRequest, float], None]

    # Hops

    def start_request(self, stream: Stream, uid: int, must_beat: float | None, now: float) -> None:
        """Start a request of this node itself."""
        core = self._context
        core.recent_uids.add(uid)
        last_seen = stream.packets.last_seen
        search = PendingRequest(
            stream, uid, None, core.policy.max_htl, last_seen, core.location, must_beat, is_closest=True
        )
        self._start(search, now)

    def route(
        self, stream: Stream, asked: QueuedRequest, must_beat: float | None, now: float, *, again: bool = False
    ) -> None:
        """Route a request of a neighbour.

        :param again: True if the request was accepted before.
        """
        core = self._context
        if len(stream.requests) >= MAX_PARALLEL_REQUESTS or asked.origin.link is None:
            self._context.reject_overload(asked.origin, asked.uid)
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
        """Return the HTL after a link; whether it decrements the maximum and an HTL of 1 is drawn once per link."""
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
        """Send a request to the next neighbour, or end it if there is none."""
        core = self._context
        next_hop: Neighbour | None = None
        if search.htl > 0:
            if core.config.routing is None:
                next_hop = self._nearest_untried(search, now)
            else:
                next_hop = self._cheapest_untried(search, core.config.routing, now)
        if next_hop is None:
            self._exhausted(search, now)
            return
        search.next_hop = next_hop
        search.tried.add(next_hop)
        search.accepted = False
        search.attempt += 1
        key, uid = search.stream.key, search.sent_uid
        core.counters["requests"] += 1
        if search.must_beat is None:
            core.send(next_hop, SubscribeRequest(uid, key, search.htl, search.last_seen, search.best))
        else:
            core.send(
                next_hop,
                ResubscribeRequest(uid, key, search.htl, search.last_seen, search.must_beat, search.best),
            )
        core.call_at(now + core.policy.accepted_timeout, self._acceptance_timed_out, search, search.attempt)

    def _nearest_untried(self, search: PendingRequest, now: float) -> Neighbour | None:
        """Return the untried neighbour nearest to the key; suspected neighbours come last."""
        place, tried, origin = search.stream.location, search.tried, search.origin
        best: Neighbour | None = None
        best_distance = 9.0
        for neighbour in self._context.links.values():
            if neighbour in tried or neighbour is origin or neighbour.link is None:
                continue
            apart = abs(neighbour.location - place)
            if apart > 0.5:
                apart = 1.0 - apart
            if neighbour.suspected_until > now:
                apart += 1.0
            if apart < best_distance:
                best, best_distance = neighbour, apart
        return best

    def _cheapest_untried(self, search: PendingRequest, routing: IRoutingPolicy, now: float) -> Neighbour | None:
        """Return the untried neighbour that a routing policy prefers; suspected neighbours come last."""
        here, place = self._context.location, search.stream.location
        best: Neighbour | None = None
        best_rank = (True, inf)
        for neighbour in self._context.links.values():
            if neighbour in search.tried or neighbour is search.origin or neighbour.link is None:
                continue
            cost = float(routing.cost(here, place, neighbour.location))
            rank = neighbour.suspected_until > now, cost
            # A cost that is not a number is not less than infinity either.
            if cost < inf and rank < best_rank:
                best, best_rank = neighbour, rank
        return best

    # Answers

    def accepted(self, message: Accepted, neighbour: Neighbour, now: float) -> None:
        """Handle Accepted: the neighbour has more time to answer."""
        search = self._find_request(message.uid, neighbour)
        if search is not None and not search.accepted:
            search.accepted = True
            self._context.call_at(
                now + self._context.policy.completion_timeout, self._completion_timed_out, search, search.attempt
            )

    def rejected_loop(self, message: RejectedLoop, neighbour: Neighbour, now: float) -> None:
        """Handle RejectedLoop: try the next neighbour."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            self._try_next_hop(search, now)

    def route_not_found(self, message: RouteNotFound, neighbour: Neighbour, now: float) -> None:
        """Handle RouteNotFound: try the next neighbour with the remaining HTL."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            search.htl = min(search.htl, message.htl)
            self._record_busy(search, message.busy)
            self._try_next_hop(search, now)

    def rejected_busy(self, message: RejectedBusy, neighbour: Neighbour, now: float) -> None:
        """Handle RejectedBusy: try the next neighbour."""
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
        """Handle DataNotFound: the HTL is exhausted."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            search.htl = 0
            self._record_busy(search, message.busy)
            self._exhausted(search, now)

    def rejected_overload(self, message: RejectedOverload, neighbour: Neighbour, now: float) -> None:
        """Handle RejectedOverload: the request failed."""
        search = self._find_request(message.uid, neighbour)
        if search is not None:
            self._fail(search, "overload", now)

    def succeeded(self, message: Succeeded, neighbour: Neighbour, now: float) -> None:
        """Handle a success: a request found a parent, or the parent refreshes its root."""
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
            # The neighbour wrongly believes that this node is its subscriber.
            core.counters["strays"] += 1
            core.deny_subscription(neighbour, message.key)

    def neighbour_lost(self, neighbour: Neighbour, now: float) -> None:
        """Reroute the requests sent to a lost neighbour."""
        for search in tuple(self._context.pending_requests.values()):
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
        self._membership.finish_request(search)
        if parent is not stream.parent:
            self._context.deny_subscription(parent, stream.key)
        if search.origin is None:
            self.on_own_request_ended(search, None, now)
        else:
            self.on_parent_unusable(search, now)
        self.on_ended_without_tree(search, now)

    def _may_reparent(self, search: PendingRequest) -> bool:
        """Return True if the parent that ``search`` found cannot be below this node."""
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
        """End a request that has no neighbours or no HTL left."""
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
            self.on_ended_without_tree(search, now)

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
        # A resubscription passes through its originator's subtree only under its own uid. Where requests are rejected,
        # nodes that wait for this one would reject a new uid. In both cases only untried neighbours are asked.
        search.confirming = True
        search.htl = core.policy.max_htl
        self._try_next_hop(search, now)

    def _fail(self, search: PendingRequest, reason: str, now: float) -> None:
        self._membership.finish_request(search)
        if search.origin is None:
            self.on_own_request_ended(search, reason, now)
        else:
            self._context.reject_overload(search.origin, search.uid)
        self.on_ended_without_tree(search, now)

    # Timeouts

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
