"""Role changes of a node: joining and leaving a network, leading and resigning (document 002; rules S5 to S7 of its
reading).
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.config import TERMS_PER_SECOND
from fyrehose_twisted.hydra.events import LeftNetwork, NodeDropped, NodeRegistered, Role
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.induction import Induction
from fyrehose_twisted.hydra.node.joining import JoinProcedure
from fyrehose_twisted.hydra.node.leader.election import Election
from fyrehose_twisted.hydra.node.leader.leadership import Leadership
from fyrehose_twisted.hydra.node.legacy_peers import LegacyPeers
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.node.registry_check import RegistryCheck
from fyrehose_twisted.hydra.node.relay.irc_writer import IrcWriter
from fyrehose_twisted.hydra.node.relay.received_lines import RecvRelay
from fyrehose_twisted.hydra.node.relay.send_queue import LineSendQueue
from fyrehose_twisted.hydra.wire.messages import Drop

_REJOIN_DELAY = 0.5, 1.5
"""Shortest and longest delay before a dropped node rejoins, in seconds (unscaled)."""


class HydraComponents:
    """The protocol components of one node."""

    def __init__(self, context: NodeContext) -> None:
        self.context = context
        self.joining = JoinProcedure(context)
        self.induction = Induction(context)
        self.election = Election(context)
        self.leadership = Leadership(context)
        self.registry_check = RegistryCheck(context)
        self.recv_relay = RecvRelay(context)
        self.irc_writer = IrcWriter(context)
        self.send_queue = LineSendQueue(context)
        self.legacy_peers = LegacyPeers(context)


class Lifecycle:
    """Role changes of one node and their consequences.

    :ivar resign_reason: reason of a resignation that waits for the IRC connection to close.
    :ivar relay_until: end of the lease that was valid at the resignation. Lines are relayed until then, or until the
        IRC connection is closed.
    """

    def __init__(self, components: HydraComponents, now: float) -> None:
        self.resign_reason: str | None = None
        self.relay_until = -inf
        self._components = components
        self._leaving = False
        self._started_at = now
        self._pinged_nodes = 0
        """Number of registered nodes at this leader's last PING."""

    def may_decide(self, now: float) -> bool:
        """Return whether the node may induct others. A leader needs a lease for it."""
        components = self._components
        is_leader = components.context.role is Role.LEADER
        return not is_leader or (self.resign_reason is None and components.leadership.may_decide(now))

    def may_relay(self, now: float) -> bool:
        """Return whether lines from IRC may be relayed: under a lease, or while resigning."""
        return self._components.leadership.may_write(now) or (self.resign_reason is not None and now < self.relay_until)

    def no_leader_deadline(self) -> float:
        """Return the time at which the node leaves a network that has no leader by then (rule S6)."""
        context = self._components.context
        if context.id is None or context.role in (Role.LEADER, Role.GONE) or context.in_term:
            return inf
        return context.last_ping_at + context.timers.no_leader_timeout

    def outsider_knocked(self, link: PeerLink, now: float) -> None:
        """Handle the KNOCK of an outsider; leave the network if the other nodes have left it (rule S6).

        That is the case if this node reaches no other node and its promise to the last leader has ended.
        """
        context = self._components.context
        is_lost = (
            context.leader is None
            and context.id is not None
            and context.has_fixed_quorum
            and context.quorum > 1
            and not context.links.primary
            and context.last_ping_at + context.timers.promise <= now
        )
        if is_lost and link.node is None and not link.guardian:
            self.leave_network("no node of the network can be reached", now)

    def advance(self, now: float) -> None:
        """Carry out role changes that are due."""
        components, context = self._components, self._components.context
        if components.leadership.loss_reason is not None:
            self._lose_lease(components.leadership.loss_reason, now)
        if components.leadership.lease is not None and context.role is not Role.LEADER:
            self.stop_leading("there is an election", now)
        if components.election.won_term is not None:
            self._begin_leading(components.election.won_term, now)
        if context.role is Role.LEADER and self.resign_reason is None:
            before, self._pinged_nodes = self._pinged_nodes, len(context.registry)
            if self._pinged_nodes > before:
                # Only PINGs sent after the registration of a node count for the quorum.
                components.leadership.ping(now)
            if components.leadership.may_write(now):
                components.irc_writer.open(now)
            if components.irc_writer.loss_reason is not None:
                if components.irc_writer.unreachable:
                    components.election.backoff_until = now + 2 * context.timers.max_vote[1]
                self.resign(components.irc_writer.loss_reason, now)
        if self.resign_reason is not None and components.irc_writer.state == "closed":
            self._finish_resigning(now)

    def bootstrap(self, now: float) -> None:
        """Bootstrap a network with this node as its leader."""
        components, context = self._components, self._components.context
        me = context.new_id()
        context.set_id(me)
        context.registry.add(me, now)
        context.member_since = now
        context.was_member = context.bootstrapping = True
        context.apply_role_input("bootstrapped", "no linked node knew a network")
        context.follow(me, self._first_term(now), now)
        components.recv_relay.begin_term(was_member=True)
        components.leadership.begin(now)
        self._pinged_nodes = 1

    def leave_network(self, reason: str, now: float, *, dropped: bool = False) -> None:
        """Leave the network and become an outsider.

        :param dropped: whether the other nodes have dropped this node.
        """
        components, context = self._components, self._components.context
        context.former_nodes = frozenset()
        if context.id is not None and components.irc_writer.state == "closed":
            # It has no IRC connection, so promises to it are obsolete; and no induction has to wait for it.
            context.flood(Drop(context.id, reason[:100]), now)
            context.release_promise(context.id)
            context.dropped_ids.add(context.id)
            if not dropped:
                context.former_id, context.former_nodes = context.id, context.registry.ids()
        self.stop_leading(reason, now)
        self.resign_reason = None
        components.send_queue.leader_changed()
        context.follow(None, context.durable.term, now)
        context.set_id(None)
        context.apply_role_input("parted", reason)
        context.registry.clear()
        for link in context.links:
            if not link.legacy:
                context.links.close(link, now, "parted")
                self.link_closed(link, now)
        components.induction.reset()
        components.election.reset()
        context.deferred_ping = None
        context.newly_inducted = False
        components.joining.restart(now, context.rng.uniform(*_REJOIN_DELAY) * context.timers.scale)
        if self._leaving:
            self._finish_leaving(now)

    def shut_down(self, now: float) -> None:
        """Leave the network for good."""
        if self._leaving:
            return
        self._leaving = True
        if self._components.context.role is Role.LEADER:
            self.resign("left", now)
        else:
            self._finish_leaving(now)

    def join(self, ind: int, link: PeerLink, now: float) -> None:
        """Become a node after the WELCOME over a link."""
        components, context = self._components, self._components.context
        mediator = link.mediator
        assert mediator is not None, "a WELCOME comes from the mediator"
        context.set_id(ind)
        context.member_since = context.last_ping_at = now
        context.was_member = context.newly_inducted = True
        context.apply_role_input("welcomed", f"{mediator} inducted it")
        for node in (ind, mediator):
            context.registry.add(node, now)
            context.output.emit(NodeRegistered(node))
        components.induction.bind(link, mediator, now)
        components.induction.bind_knocked(mediator, now)

    def drop(self, node: int, reason: str, now: float) -> None:
        """Remove a dropped node."""
        components, context = self._components, self._components.context
        registered = node in context.registry
        for link in context.links.unbind(node):
            context.links.close(link, now, "dropped")
            self.link_closed(link, now)
        context.registry.drop(node)
        components.leadership.node_dropped(node)
        components.registry_check.forget(node)
        components.induction.node_dropped(node, now)
        if registered:
            context.output.emit(NodeDropped(node, reason))
        released = context.release_promise(node)
        if node == context.leader:
            context.follow(None, context.durable.term, now)
            components.send_queue.leader_changed()
            components.election.leader_lost(now)
        elif released:
            context.answer_deferred_ping(now)
            components.election.tick(now)

    def link_closed(self, link: PeerLink, now: float) -> None:
        """Handle the close of a link."""
        components = self._components
        components.induction.link_closed(link, now)
        components.joining.link_closed(link, now)

    def resign(self, reason: str, now: float) -> None:
        """Resign as leader. The other nodes are told once the IRC connection is closed (rule S7)."""
        components = self._components
        until = components.leadership.lease_until
        self.relay_until = -inf if until is None else until
        components.leadership.end()
        components.irc_writer.close(reason)
        self.resign_reason = reason

    def stop_leading(self, reason: str, now: float) -> None:
        """Stop writing to IRC at once and end the lease."""
        components = self._components
        if components.leadership.lease is not None:
            components.leadership.end()
            components.irc_writer.close(reason)
            components.context.bootstrapping = False
            if self.resign_reason is not None and not self._leaving:
                self.resign_reason = None

    def _begin_leading(self, term: int, now: float) -> None:
        components, context = self._components, self._components.context
        components.election.won_term = None
        context.bootstrapping = False
        context.apply_role_input("elected", f"a quorum voted for it in term {term}")
        context.counters["elected"] += 1
        context.follow(context.id, term, now)
        components.send_queue.leader_changed()
        components.recv_relay.begin_term(was_member=True)
        context.newly_inducted = False
        context.deferred_ping = None
        components.leadership.begin(now)
        self._pinged_nodes = len(context.registry)

    def _lose_lease(self, reason: str, now: float) -> None:
        components, context = self._components, self._components.context
        if context.bootstrapping:
            self.leave_network(reason, now)
            return
        context.counters["leases_lost"] += 1
        self.stop_leading(reason, now)
        context.apply_role_input("stepped_down", reason)
        context.follow(None, context.durable.term, now)
        components.send_queue.leader_changed()
        low, high = context.timers.max_vote
        components.election.next_nomination = context.durable.until + context.rng.uniform(0.0, high - low)

    def _finish_resigning(self, now: float) -> None:
        context = self._components.context
        why, self.resign_reason = self.resign_reason or "", None
        if self._leaving:
            self._finish_leaving(now)
            return
        context.warn(f"stopped leading: {why}")
        self.leave_network(why, now)

    def _finish_leaving(self, now: float) -> None:
        components, context = self._components, self._components.context
        components.send_queue.close()
        if context.id is not None:
            context.flood(Drop(context.id, "left"), now)
            context.release_promise(context.id)
        context.follow(None, context.durable.term, now)
        context.set_id(None)
        context.apply_role_input("left", "it was asked to leave")
        context.output.emit(LeftNetwork())

    def _first_term(self, now: float) -> int:
        """Return a term for a bootstrap that no other bootstrap draws and that no election has reached."""
        context = self._components.context
        first, known = context.config.first_term, max(context.durable.term, context.durable.voted)
        if first == 1 and (not known or context.config.network_size == 1):
            return known + 1
        passed = int(now - self._started_at) * TERMS_PER_SECOND if first > 1 else 0
        # The nodes of its former network may have continued without it.
        return max(first + passed, known + 1) + context.rng.randrange(TERMS_PER_SECOND)
