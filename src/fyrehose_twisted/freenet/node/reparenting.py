"""Replacement of lost parents, and search for better roots (document 003, "When something changes")."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.freenet.events import ParentLost, Subscribed, SubscribeFailed
from fyrehose_twisted.freenet.node.context import NodeContext
from fyrehose_twisted.freenet.node.neighbour import Neighbour
from fyrehose_twisted.freenet.node.routing import RequestRouter
from fyrehose_twisted.freenet.node.stream import PendingRequest, Stream, StreamInput, StreamPhase
from fyrehose_twisted.freenet.node.tree import TreeMembership
from fyrehose_twisted.freenet.wire.messages import (
    BetterRoot,
    Dismissed,
    SubscribeRestarted,
    SubscribeSucceeded,
    Succeeded,
    Unsubscribe,
)

MAX_ATTEMPTS = 3
"""Unanswered restarts after which a node becomes a root: a second tree is better than none."""
MAX_BUSY_ATTEMPTS = 20
"""The same limit while all candidates are themselves restarting; each attempt takes about a second."""
MAX_RETRY_DELAY = 60.0
"""Maximum seconds between two attempts."""
HINT_INTERVAL = 10.0
"""Seconds between two hints to a better root."""


class Reparenting:
    """Searches for new parents and better roots."""

    def __init__(self, context: NodeContext, membership: TreeMembership, router: RequestRouter) -> None:
        self._context = context
        self._membership = membership
        self._router = router

    # Lost parents

    def parent_lost(self, stream: Stream, reason: str, now: float) -> None:
        """Search for another parent, with the subtree or after dismissing it."""
        core = self._context
        core.counters["parents_lost"] += 1
        core.emit(ParentLost(stream.key, reason))
        stream.parent = None
        stream.restart_uid = stream.own_restart_uid = None
        self._cancel_own_request(stream)
        if core.policy.on_parent_lost == "teardown":
            self._tear_down(stream, now)
            return
        stream.transition(StreamInput.LOST)
        jitter = core.policy.cycle_jitter if reason == "cycle" else core.policy.restart_jitter
        self._schedule_restart(stream, core.rng.uniform(0.0, jitter), now)

    def _schedule_restart(self, stream: Stream, delay: float, now: float) -> None:
        """Announce a restart to the subtree at once, so that it recognizes the request, and search after a delay."""
        core = self._context
        uid = stream.own_restart_uid = core.new_uid()
        stream.known_restart_uids.append(uid)
        self._announce_restart(stream, uid)
        core.call_at(now + delay, self._start_search, stream, uid)

    def _start_search(self, stream: Stream, uid: int, now: float) -> None:
        if self._is_current(stream) and stream.own_restart_uid == uid:
            self._router.start_request(stream, uid, self._context.location, now)

    def _tear_down(self, stream: Stream, now: float) -> None:
        core = self._context
        stream.transition(StreamInput.TORN_DOWN)
        for subscriber in stream.subscribers:
            core.send(subscriber, Dismissed(stream.key))
        stream.subscribers.clear()
        self._membership.prune(stream)
        if self._is_current(stream):
            core.call_at(now + core.rng.uniform(0.0, core.policy.restart_jitter), self._retry_subscribe, stream)

    def _retry_subscribe(self, stream: Stream, now: float) -> None:
        if self._is_current(stream) and stream.phase is StreamPhase.SEARCHING and stream.local and not stream.requests:
            self._router.start_request(stream, self._context.new_uid(), None, now)

    def _cancel_own_request(self, stream: Stream) -> None:
        search = stream.own_request
        if search is not None:
            self._membership.finish_request(search)

    def _announce_restart(self, stream: Stream, uid: int) -> None:
        """Announce to the subtree that a node further up is restarting."""
        core = self._context
        place = core.location if uid == stream.own_restart_uid else stream.restart_location
        message = SubscribeRestarted(stream.key, uid, place)
        # A subscriber that lost and regained its link may have a queued request.
        for neighbour in dict.fromkeys((*stream.subscribers, *(held.origin for held in stream.queued_requests))):
            if neighbour in stream.subscribers:
                core.counters["restarted_sent"] += 1
            core.send(neighbour, message)

    # Better roots

    def peers_changed(self, now: float) -> None:
        """Check all streams for a nearer root after a neighbour came up or a location changed."""
        for stream in tuple(self._context.streams.values()):
            if stream.settled and stream.own_restart_uid is None and self._knows_nearer_root(stream):
                self._restart_when_allowed(stream, now)

    def _knows_nearer_root(self, stream: Stream) -> bool:
        assert stream.root is not None, "a settled stream has a root"
        return self._membership.knows_nearer(stream, stream.root)

    def _restart_when_allowed(self, stream: Stream, now: float) -> None:
        core = self._context
        allowed = stream.last_restart_at + core.policy.restart_interval
        if now >= allowed:
            self._restart_voluntarily(stream, now)
        elif stream.deferred_until < allowed:
            stream.deferred_until = allowed
            core.call_at(allowed, self._recheck, stream)

    def _recheck(self, stream: Stream, now: float) -> None:
        allowed = now >= stream.last_restart_at + self._context.policy.restart_interval
        if self._is_idle(stream) and allowed and self._knows_nearer_root(stream):
            self._restart_voluntarily(stream, now)

    def _restart_voluntarily(self, stream: Stream, now: float) -> None:
        """Search for a better parent while keeping the old one."""
        core = self._context
        core.counters["volunteered"] += 1
        stream.last_restart_at = now
        uid = stream.own_restart_uid = core.new_uid()
        stream.known_restart_uids.append(uid)
        self._announce_restart(stream, uid)
        self._router.start_request(stream, uid, core.location, now)

    def became_root(self, stream: Stream, now: float) -> None:
        """Schedule probes for a better root, without which two trees would never merge."""
        policy = self._context.policy
        self._schedule_probe(stream, min(policy.first_probe, policy.restart_interval), now)

    def _schedule_probe(self, stream: Stream, delay: float, now: float) -> None:
        core = self._context
        core.call_at(now + delay * core.rng.uniform(0.9, 1.1), self._probe, stream, stream.generation, delay)

    def _probe(self, stream: Stream, generation: int, delay: float, now: float) -> None:
        if not self._is_current(stream) or stream.generation != generation or not stream.is_root:
            return
        self._schedule_probe(stream, min(2.0 * delay, self._context.policy.restart_interval), now)
        if stream.own_restart_uid is None and self._context.links:
            self._restart_voluntarily(stream, now)

    def better_root_received(self, message: BetterRoot, neighbour: Neighbour, now: float) -> None:
        """Handle a hint from a subscriber to a location nearer than the root."""
        core = self._context
        stream = core.streams.get(message.key)
        if stream is None or neighbour not in stream.subscribers or not stream.connected or stream.root is None:
            core.counters["strays"] += 1
            return
        if self._membership.is_nearer(stream, message.root, stream.root):
            self.report_better_root(stream, message.root, now)

    def report_better_root(self, stream: Stream, location: float, now: float) -> None:
        """Pass a hint to a nearer location on towards the root, or schedule a probe on the root."""
        core = self._context
        if now < stream.last_hint_at + HINT_INTERVAL:
            return
        stream.last_hint_at = now
        if stream.parent is not None:
            core.send(stream.parent, BetterRoot(stream.key, location))
        else:
            # The node there may itself be restarting. Each probe restarts the tree, and any peer can send hints.
            soon = now + core.rng.uniform(0.5, 1.5)
            self._schedule_hint_probe(stream, max(soon, stream.last_hint_probe_at + core.policy.restart_interval))

    def _schedule_hint_probe(self, stream: Stream, when: float) -> None:
        if when < stream.next_hint_probe_at:
            stream.next_hint_probe_at = when
            self._context.call_at(when, self._probe_hint, stream, when)

    def _probe_hint(self, stream: Stream, when: float, now: float) -> None:
        if not self._is_current(stream) or stream.next_hint_probe_at != when:
            return
        stream.next_hint_probe_at = inf
        if self._is_idle(stream) and stream.is_root:
            stream.last_hint_probe_at = now
            self._restart_voluntarily(stream, now)

    # Messages from the parent

    def restart_announced(self, message: SubscribeRestarted, neighbour: Neighbour, now: float) -> None:
        """Handle a restart of a node further up, or of a neighbour that a request was sent to."""
        core, uid = self._context, message.uid
        stream = core.streams.get(message.key)
        if stream is None:
            core.counters["strays"] += 1
            return
        if stream.parent is neighbour:
            if uid in stream.known_restart_uids:
                # A restart that began here arrives from the parent: a cycle.
                core.counters["cycles"] += 1
                core.send(neighbour, Unsubscribe(stream.key))
                self.parent_lost(stream, "cycle", now)
                return
            known = stream.restart_uid == uid
            stream.restart_uid, stream.restart_location = uid, message.place
            if known:
                # The parent repeats its announcement when the request passes through it.
                core.counters["restarted_again"] += 1
                return
            self._cancel_own_request(stream)
            stream.own_restart_uid = None
            self._announce_restart(stream, uid)
            core.call_at(now + core.policy.completion_timeout, self._restart_timed_out, stream, uid)
        elif stream.phase is StreamPhase.SEARCHING:
            for search in stream.requests:
                if search.next_hop is neighbour and search.sent_uid != uid and stream.restart_uid != uid:
                    stream.restart_uid, stream.restart_location = uid, message.place
                    if search.origin is not None:
                        core.send(search.origin, message)
                    break

    def _restart_timed_out(self, stream: Stream, uid: int, now: float) -> None:
        if self._is_current(stream) and stream.connected and stream.restart_uid == uid and stream.parent is not None:
            self._context.send(stream.parent, Unsubscribe(stream.key))
            self.parent_lost(stream, "parent-restarting", now)

    def parent_refreshed(self, stream: Stream, message: Succeeded, now: float) -> None:
        """Handle the end of a restart further up, or a changed root."""
        core = self._context
        changed = stream.root != message.root
        stream.root = message.root
        if stream.own_restart_uid is None:
            stream.restart_uid = None
            self._announce_settled(stream, message.uid)
        if changed and stream.local:
            core.emit(Subscribed(stream.key, message.root, False))

    def _announce_settled(self, stream: Stream, uid: int) -> None:
        core = self._context
        assert stream.root is not None, "a settled stream has a root"
        for subscriber in stream.subscribers:
            core.send(subscriber, SubscribeSucceeded(stream.key, uid, stream.root))
        self._membership.serve_queued(stream)

    def dismissed(self, message: Dismissed, neighbour: Neighbour, now: float) -> None:
        """Handle a dismissal by the parent."""
        stream = self._context.streams.get(message.key)
        if stream is not None and stream.parent is neighbour:
            self.parent_lost(stream, "dismissed", now)

    def neighbour_lost(self, neighbour: Neighbour, reason: str, now: float) -> None:
        """Replace a neighbour as parent after its link was lost or it rebooted."""
        for stream in tuple(self._context.streams.values()):
            if stream.parent is neighbour:
                self.parent_lost(stream, reason, now)

    # Outcome of this node's own requests

    def own_request_ended(self, search: PendingRequest, reason: str | None, now: float) -> None:
        """Handle a request of this node that found no parent.

        :param reason: reason of the failure, ``None`` if no nearer node exists.
        """
        stream = search.stream
        if stream.connected:
            self._keep_parent(stream, search, now)
            if reason == "busy" and stream.is_root:
                delay = HINT_INTERVAL * 2.0 ** min(stream.busy_probes, 10)
                stream.busy_probes += 1
                self._schedule_hint_probe(stream, now + min(delay, self._context.policy.restart_interval))
        elif stream.phase is StreamPhase.RESTARTING:
            stream.attempts += 1
            busy = reason == "busy"
            if stream.attempts >= (MAX_BUSY_ATTEMPTS if busy else MAX_ATTEMPTS):
                self._membership.attach(stream, None, self._context.location, self._reinstate(search), now)
            else:
                self._schedule_restart(
                    stream, self._context.rng.uniform(0.5, 1.5) if busy else self._retry_delay(stream), now
                )
        elif stream.local:
            self._subscription_failed(stream, reason or "not-found", now)

    def _keep_parent(self, stream: Stream, search: PendingRequest, now: float) -> None:
        """Keep the parent after no better root was found, and announce the end of the restart."""
        core = self._context
        if search.sent_uid != stream.own_restart_uid:
            return
        stream.own_restart_uid = None
        if stream.restart_uid is not None:
            self._announce_restart(stream, stream.restart_uid)
            return
        self._announce_settled(stream, search.sent_uid)
        root = stream.root
        if stream.parent is not None and root is not None and self._membership.is_nearer(stream, core.location, root):
            core.send(stream.parent, BetterRoot(stream.key, core.location))

    def _reinstate(self, search: PendingRequest) -> PendingRequest:
        search.stream.requests.append(search)
        return search

    def _subscription_failed(self, stream: Stream, reason: str, now: float) -> None:
        core = self._context
        stream.attempts += 1
        core.emit(SubscribeFailed(stream.key, reason))
        if core.policy.retry:
            self.schedule_retry(stream, now)
        else:
            stream.local = False
            self._membership.prune(stream)

    def schedule_retry(self, stream: Stream, now: float) -> None:
        """Schedule another search for a stream of the application, with exponential backoff."""
        if stream.retry_at <= now:
            stream.retry_at = now + self._retry_delay(stream)
            self._context.call_at(stream.retry_at, self._retry_subscribe, stream)

    def _retry_delay(self, stream: Stream) -> float:
        # Jitter keeps nodes that failed together from retrying together.
        return self._context.rng.uniform(0.5, 1.0) * min(2.0 ** min(stream.attempts + 1, 10), MAX_RETRY_DELAY)

    def _is_current(self, stream: Stream) -> bool:
        return self._context.streams.get(stream.key) is stream

    def _is_idle(self, stream: Stream) -> bool:
        return self._is_current(stream) and stream.settled and stream.own_restart_uid is None
