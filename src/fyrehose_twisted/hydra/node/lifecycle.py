"""How a node comes to lead, and stops; how it comes to a network, and leaves it (document 002; rules S5 to S7 of its
reading).
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.config import TERMS_PER_SECOND
from fyrehose_twisted.hydra.events import LeftNetwork, NodeDropped, NodeRegistered, Role
from fyrehose_twisted.hydra.node.components import HydraComponents
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import Drop

_REJOIN_DELAY = 0.5, 1.5
"""Seconds (unscaled) until a node that was dropped comes again."""


class Lifecycle:
    """What changes a node's role, and what follows from that.

    :ivar resign_reason: why it gives the lead up, while IRC is not closed yet.
    :ivar relay_until: the end of the lease that it had then. Until that, or until IRC is closed, lines are relayed.
    """

    def __init__(self, components: HydraComponents, now: float) -> None:
        self.resign_reason: str | None = None
        self.relay_until = -inf
        self._components = components
        self._leaving = False
        self._started_at = now
        self._pinged_nodes = 0
        """How many nodes were registered when they were looked at last, while it leads."""

    def may_decide(self, now: float) -> bool:
        """Return whether nothing stands against taking somebody in here: a leader needs a lease for it."""
        parts = self._components
        is_leader = parts.context.role is Role.LEADER
        return not is_leader or (self.resign_reason is None and parts.leadership.may_decide(now))

    def may_relay(self, now: float) -> bool:
        """Return whether lines from IRC may be passed on: with a lease, and while it says goodbye there."""
        return self._components.leadership.may_write(now) or (self.resign_reason is not None and now < self.relay_until)

    def no_leader_deadline(self) -> float:
        """Return when the node gives its network up, unless somebody leads before (rule S6)."""
        standing = self._components.context
        if standing.id is None or standing.role in (Role.LEADER, Role.GONE) or standing.in_term:
            return inf
        return standing.last_ping_at + standing.timers.no_leader_timeout

    def outsider_knocked(self, link: PeerLink, now: float) -> None:
        """A node that belongs to no network knocked. If this one cannot reach any node of its own, and has heard of no
        leader for as long as it could be bound to one, the others have given the network up (rule S6)."""
        standing = self._components.context
        is_lost = (
            standing.leader is None
            and standing.id is not None
            and standing.has_fixed_quorum
            and standing.quorum > 1
            and not standing.links.primary
            and standing.last_ping_at + standing.timers.promise <= now
        )
        if is_lost and link.node is None and not link.guardian:
            self.leave_network("no node of the network can be reached", now)

    def advance(self, now: float) -> None:
        """Do what has become possible, or necessary."""
        parts, standing = self._components, self._components.context
        if parts.leadership.loss_reason is not None:
            self._lose_lease(parts.leadership.loss_reason, now)
        if parts.leadership.lease is not None and standing.role is not Role.LEADER:
            self.stop_leading("there is an election", now)
        if parts.election.won_term is not None:
            self._begin_leading(parts.election.won_term, now)
        if standing.role is Role.LEADER and self.resign_reason is None:
            before, self._pinged_nodes = self._pinged_nodes, len(standing.registry)
            if self._pinged_nodes > before:
                # Only PINGs that are sent after a node was registered count for the quorum.
                parts.leadership.ping(now)
            if parts.leadership.may_write(now):
                parts.irc_writer.open(now)
            if parts.irc_writer.loss_reason is not None:
                if parts.irc_writer.unreachable:
                    parts.election.backoff_until = now + 2 * standing.timers.max_vote[1]
                self.resign(parts.irc_writer.loss_reason, now)
        if self.resign_reason is not None and parts.irc_writer.state == "closed":
            self._finish_resigning(now)

    def bootstrap(self, now: float) -> None:
        """Begin a network."""
        parts, standing = self._components, self._components.context
        me = standing.new_id()
        standing.set_id(me)
        standing.registry.add(me, now)
        standing.member_since = now
        standing.was_member = standing.bootstrapping = True
        standing.apply_role_input("founded", "nobody knew of a network")
        standing.follow(me, self._first_term(now), now)
        parts.recv_relay.begin_term(was_member=True)
        parts.leadership.begin(now)
        self._pinged_nodes = 1

    def leave_network(self, reason: str, now: float) -> None:
        """Belong to no network any more."""
        parts, standing = self._components, self._components.context
        if standing.id is not None and parts.irc_writer.state == "closed":
            # It is not on IRC, so a promise to it protects nothing; and no induction needs to wait for it.
            standing.flood(Drop(standing.id, reason[:100]), now)
            standing.release_promise(standing.id)
        self.stop_leading(reason, now)
        self.resign_reason = None
        parts.send_queue.leader_changed()
        standing.follow(None, standing.durable.term, now)
        standing.set_id(None)
        standing.apply_role_input("parted", reason)
        standing.registry.clear()
        for tie in standing.links:
            if not tie.legacy:
                standing.links.close(tie, now, "parted")
                self.link_closed(tie, now)
        parts.induction.reset()
        parts.election.reset()
        standing.deferred_ping = None
        standing.newly_inducted = False
        parts.joining.restart(now, standing.rng.uniform(*_REJOIN_DELAY) * standing.timers.scale)
        if self._leaving:
            self._finish_leaving(now)

    def shut_down(self, now: float) -> None:
        """Say goodbye, and be no node any more."""
        if self._leaving:
            return
        self._leaving = True
        if self._components.context.role is Role.LEADER:
            self.resign("left", now)
        else:
            self._finish_leaving(now)

    def join(self, ind: int, link: PeerLink, now: float) -> None:
        """Be a node: the other end of a link said WELCOME."""
        parts, standing = self._components, self._components.context
        mediator = link.mediator
        assert mediator is not None, "nobody is welcomed without"
        standing.set_id(ind)
        standing.member_since = standing.last_ping_at = now
        standing.was_member = standing.newly_inducted = True
        standing.apply_role_input("welcomed", f"{mediator} took it in")
        for node in (ind, mediator):
            standing.registry.add(node, now)
            standing.output.emit(NodeRegistered(node))
        parts.induction.bind(link, mediator, now)
        parts.induction.bind_knocked(mediator, now)

    def drop(self, node: int, reason: str, now: float) -> None:
        """Another node is one no more."""
        parts, standing = self._components, self._components.context
        registered = node in standing.registry
        for tie in standing.links.unbind(node):
            standing.links.close(tie, now, "dropped")
            self.link_closed(tie, now)
        standing.registry.drop(node)
        parts.leadership.node_dropped(node)
        parts.registry_check.forget(node)
        parts.induction.node_dropped(node, now)
        if registered:
            standing.output.emit(NodeDropped(node, reason))
        released = standing.release_promise(node)
        if node == standing.leader:
            standing.follow(None, standing.durable.term, now)
            parts.send_queue.leader_changed()
            parts.election.leader_lost(now)
        elif released:
            standing.answer_deferred_ping(now)
            parts.election.tick(now)

    def link_closed(self, link: PeerLink, now: float) -> None:
        """A link is closed."""
        parts = self._components
        parts.induction.link_closed(link, now)
        parts.joining.link_closed(link, now)

    def resign(self, reason: str, now: float) -> None:
        """Give the lead up: once the connection to IRC is closed, the others are told (rule S7)."""
        parts = self._components
        until = parts.leadership.lease_until
        self.relay_until = -inf if until is None else until
        parts.leadership.end()
        parts.irc_writer.close(reason)
        self.resign_reason = reason

    def stop_leading(self, reason: str, now: float) -> None:
        """Write no more lines, from this moment on."""
        parts = self._components
        if parts.leadership.lease is not None:
            parts.leadership.end()
            parts.irc_writer.close(reason)
            parts.context.bootstrapping = False
            if self.resign_reason is not None and not self._leaving:
                self.resign_reason = None

    def _begin_leading(self, term: int, now: float) -> None:
        parts, standing = self._components, self._components.context
        parts.election.won_term = None
        standing.bootstrapping = False
        standing.apply_role_input("elected", f"a quorum voted for it in term {term}")
        standing.counters["elected"] += 1
        standing.follow(standing.id, term, now)
        parts.send_queue.leader_changed()
        parts.recv_relay.begin_term(was_member=True)
        standing.newly_inducted = False
        standing.deferred_ping = None
        parts.leadership.begin(now)
        self._pinged_nodes = len(standing.registry)

    def _lose_lease(self, reason: str, now: float) -> None:
        parts, standing = self._components, self._components.context
        if standing.bootstrapping:
            self.leave_network(reason, now)
            return
        standing.counters["leases_lost"] += 1
        self.stop_leading(reason, now)
        standing.apply_role_input("stepped_down", reason)
        standing.follow(None, standing.durable.term, now)
        parts.send_queue.leader_changed()
        low, high = standing.timers.max_vote
        parts.election.next_nomination = standing.durable.until + standing.rng.uniform(0.0, high - low)

    def _finish_resigning(self, now: float) -> None:
        standing = self._components.context
        why, self.resign_reason = self.resign_reason or "", None
        if self._leaving:
            self._finish_leaving(now)
            return
        standing.warn(f"gave the lead up: {why}")
        self.leave_network(why, now)

    def _finish_leaving(self, now: float) -> None:
        parts, standing = self._components, self._components.context
        parts.send_queue.close()
        if standing.id is not None:
            standing.flood(Drop(standing.id, "left"), now)
            standing.release_promise(standing.id)
        standing.follow(None, standing.durable.term, now)
        standing.set_id(None)
        standing.apply_role_input("left", "it was told to")
        standing.output.emit(LeftNetwork())

    def _first_term(self, now: float) -> int:
        """Return a term that nobody else founds in, and that elections have not come to: they take far fewer."""
        standing = self._components.context
        first, known = standing.config.first_term, max(standing.durable.term, standing.durable.voted)
        if first == 1 and (not known or standing.config.network_size == 1):
            return known + 1
        passed = int(now - self._started_at) * TERMS_PER_SECOND if first > 1 else 0
        # Others that it knew may have gone on without it.
        return max(first + passed, known + 1) + standing.rng.randrange(TERMS_PER_SECOND)
