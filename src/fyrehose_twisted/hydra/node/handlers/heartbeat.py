"""Heartbeats: PINGs of the leader and PONGs of the nodes (document 002, PING and PONG; rule S5 of its reading)."""

from __future__ import annotations

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.lifecycle import HydraComponents, Lifecycle
from fyrehose_twisted.hydra.node.link_table import PeerLink, link_name
from fyrehose_twisted.hydra.wire.messages import NO_QUORUM_PREFIX, Ping, Pong
from fyrehose_twisted.lru_set import LruSet


class HeartbeatRelay:
    """Handling and relaying of PINGs and PONGs by one node."""

    def __init__(self, components: HydraComponents, lifecycle: Lifecycle) -> None:
        self._components = components
        self._lifecycle = lifecycle
        self._seen_pings = LruSet(256)
        self._seen_pongs = LruSet(2_048)
        self._reported_mismatches = LruSet(64)
        self._earlier_ping: tuple[Ping, PeerLink, set[int]] | None = None
        """PING of a term before the node's own, its link, and the nodes that answered it."""

    def ping_received(self, message: Ping, link: PeerLink, now: float) -> None:
        """Handle a PING: follow its sender, or reject it."""
        components, context = self._components, self._components.context
        wrong = context.network_mismatch(message.val)
        if wrong is not None:
            self._reject_network(wrong, link, now)
            return
        if not link.relays:
            self._unbound_ping(message, link, now)
            return
        link.term = max(link.term, message.term)
        link.quick_val = message.val
        if message.id not in context.registry:
            context.counters["unregistered_ping"] += 1
            return
        if message.id == context.id or not self._seen_pings.add(message):
            return
        term = context.durable.term
        if message.term == term and context.role is Role.LEADER:
            components.leadership.rival_seen(now)
        elif message.term == term and context.leader not in (None, message.id):
            context.counters["ping_of_a_rival"] += 1
        elif message.term < term or (message.term == term and self._term_is_taken(message)):
            context.counters["ping_of_the_past"] += 1
            if context.leader is None:
                context.flood_ping(message, now, link)
                self._earlier_ping = message, link, {message.id}
                components.election.nominate(now)
        else:
            self._follow(message, link, now)

    def pong_received(self, message: Pong, link: PeerLink, now: float) -> None:
        """Handle a PONG and relay it."""
        components, context = self._components, self._components.context
        if not link.relays:
            context.counters["unbound_pong"] += 1
            components.induction.probe_link(link, now)
            return
        if message.id == context.id:
            return
        context.registry.pong_received(message.id, message.val, message.count, message.tag, link.peer, now)
        if not self._seen_pongs.add((message.val, message.id)):
            return
        context.flood(message._replace(count=message.count + 1), now, link)
        if context.role is Role.LEADER:
            components.leadership.ponged(message, now)
        elif message.id not in context.registry:
            context.counters["unregistered_pong"] += 1
            components.registry_check.unregistered_pong(message.id, now)
        self._check_earlier_term(message, now)
        if message.val == context.val and message.id != context.leader and context.release_promise(message.id):
            # The former leader, which the promise was for, follows the new one.
            context.answer_deferred_ping(now)

    def _unbound_ping(self, message: Ping, link: PeerLink, now: float) -> None:
        """Handle a PING over an unbound link."""
        components, context = self._components, self._components.context
        me = context.id
        context.counters["unbound_ping"] += 1
        if link.node is None and message.id in context.dropped_ids:
            context.repeat_drop(message.id, link, now)
        if me is None:
            components.joining.ping_received(message, link, now)
        elif link.node is not None:
            return  # PINGs of a guardian are ignored.
        elif context.knows_leader(message.id):
            # Same network, but the link is not bound: an earlier KNOCK came too soon to be answered.
            components.induction.probe_link(link, now)
        elif context.newly_inducted and now - context.member_since < context.timers.max_ping:
            context.counters["unknown_ping"] += 1  # Other nodes are still introducing themselves.
        else:
            context.counters["foreign_ping"] += 1
            if context.has_no_quorum and self._is_stronger(message):
                self._lifecycle.leave_network("there is another network", now)

    def _reject_network(self, mismatch: str, link: PeerLink, now: float) -> None:
        """Reject a peer of another network, or one configured with another network size."""
        components, context = self._components, self._components.context
        context.counters["other_network"] += 1
        if not link.foreign:
            link.foreign = True
            components.joining.link_closed(link, now)
        if self._reported_mismatches.add((link.peer.address[0], mismatch)):
            context.warn(f"link {link_name(link.peer)}: the node there {mismatch}; it is ignored")
        if link.bound:
            self._lifecycle.leave_network(f"a neighbour {mismatch}", now)

    def _is_stronger(self, message: Ping) -> bool:
        """Return whether this node's network, which has no quorum yet, yields to the network of a PING.

        It yields to a network that may have a quorum. Of two without a quorum, the one with the lower term yields, or
        the one with the lower leader id.
        """
        durable = self._components.context.durable
        return not message.val.startswith(NO_QUORUM_PREFIX) or (message.term, message.id) > (
            durable.term,
            durable.leader,
        )

    def _term_is_taken(self, message: Ping) -> bool:
        """Return whether another leader is known for the term of a PING, so that a new bootstrap must yield."""
        context = self._components.context
        return context.has_fixed_quorum and context.durable.leader not in (0, message.id)

    def _follow(self, message: Ping, link: PeerLink, now: float) -> None:
        components, context = self._components, self._components.context
        is_new_term = message.term > context.durable.term
        is_new_leader = context.leader != message.id
        self._lifecycle.stop_leading("another leads", now)
        context.val, context.last_ping_at = message.val, now
        if is_new_leader or is_new_term:
            context.follow(message.id, message.term, now)
            components.registry_check.reset(now)
            if is_new_term:
                components.send_queue.leader_changed()
        if is_new_term or context.newly_inducted:
            components.recv_relay.begin_term(was_member=not context.newly_inducted)
        context.newly_inducted = False
        context.apply_role_input("led", f"{message.id} leads in term {message.term}")
        context.flood_ping(message, now, link)
        if is_new_term and link.node in context.links.primary:
            # Returning the PING tags later messages on this link with its term.
            context.links.write(context.links.primary[link.node], message, now)
        components.election.leader_heard(now)
        context.deferred_ping = message.val
        context.answer_deferred_ping(now)

    def _check_earlier_term(self, message: Pong, now: float) -> None:
        """Follow the leader of an earlier term if a quorum answers it.

        Then no later term ever had a quorum, and this node's term comes from a failed bootstrap.
        """
        context = self._components.context
        if self._earlier_ping is None or context.leader is not None:
            self._earlier_ping = None
            return
        ping, link, answered = self._earlier_ping
        if message.val != ping.val or message.id not in context.registry:
            return
        answered.add(message.id)
        if len(answered) >= context.quorum and ping.id in context.registry:
            self._earlier_ping = None
            context.update_durable(term=ping.term, leader=ping.id)
            context.newly_inducted = True
            self._follow(ping, link, now)
