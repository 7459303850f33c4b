"""Whom a node follows (document 002, PING and PONG; rule S5 of its reading)."""

from __future__ import annotations

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.components import HydraComponents
from fyrehose_twisted.hydra.node.lifecycle import Lifecycle
from fyrehose_twisted.hydra.node.link_table import PeerLink, link_name
from fyrehose_twisted.hydra.wire.messages import NO_QUORUM_PREFIX, Ping, Pong
from fyrehose_twisted.lru_set import LruSet


class HeartbeatRelay:
    """Takes PINGs and PONGs in, and passes them on."""

    def __init__(self, components: HydraComponents, lifecycle: Lifecycle) -> None:
        self._components = components
        self._lifecycle = lifecycle
        self._seen_pings = LruSet(256)
        self._seen_pongs = LruSet(2_048)
        self._reported_mismatches = LruSet(64)
        self._earlier_ping: tuple[Ping, PeerLink, set[int]] | None = None
        """The PING of a term before the node's own, and who answers it."""

    def ping_received(self, message: Ping, link: PeerLink, now: float) -> None:
        """Somebody leads."""
        parts, standing = self._components, self._components.context
        wrong = standing.network_mismatch(message.val)
        if wrong is not None:
            self._reject_network(wrong, link, now)
            return
        if not link.relays:
            self._unbound_ping(message, link, now)
            return
        link.term = max(link.term, message.term)
        if message.id not in standing.registry:
            standing.counters["unregistered_ping"] += 1
            return
        if message.id == standing.id or not self._seen_pings.add(message):
            return
        term = standing.durable.term
        if message.term == term and standing.role is Role.LEADER:
            parts.leadership.rival_seen(now)
        elif message.term == term and standing.leader not in (None, message.id):
            standing.counters["ping_of_a_rival"] += 1
        elif message.term < term or (message.term == term and self._term_is_taken(message)):
            standing.counters["ping_of_the_past"] += 1
            if standing.leader is None:
                standing.flood_ping(message, now, link)
                self._earlier_ping = message, link, {message.id}
                parts.election.nominate(now)
        else:
            self._follow(message, link, now)

    def pong_received(self, message: Pong, link: PeerLink, now: float) -> None:
        """Somebody answers whoever leads."""
        parts, standing = self._components, self._components.context
        if not link.relays:
            standing.counters["unbound_pong"] += 1
            parts.induction.probe_link(link, now)
            return
        if message.id == standing.id:
            return
        standing.registry.pong_received(message.id, message.val, message.count, message.tag, link.peer, now)
        if not self._seen_pongs.add((message.val, message.id)):
            return
        standing.flood(message._replace(count=message.count + 1), now, link)
        if standing.role is Role.LEADER:
            parts.leadership.ponged(message, now)
        elif message.id not in standing.registry:
            standing.counters["unregistered_pong"] += 1
            parts.registry_check.unregistered_pong(message.id, now)
        self._check_earlier_term(message, now)
        if message.val == standing.val and message.id != standing.leader and standing.release_promise(message.id):
            # Whom this node would not desert follows the new leader itself.
            standing.answer_deferred_ping(now)

    def _unbound_ping(self, message: Ping, link: PeerLink, now: float) -> None:
        """A PING came over a link that is not bound."""
        parts, standing = self._components, self._components.context
        me = standing.id
        standing.counters["unbound_ping"] += 1
        if me is None:
            parts.joining.ping_received(message, link, now)
        elif link.node is not None:
            return  # A guardian has nothing to say about that.
        elif standing.knows_leader(message.id):
            # It is the same network, and neither end may know it: an earlier KNOCK came too soon to be answered.
            parts.induction.probe_link(link, now)
        elif standing.newly_inducted and now - standing.member_since < standing.timers.max_ping:
            standing.counters["unknown_ping"] += 1  # Those who met it name themselves only now.
        else:
            standing.counters["foreign_ping"] += 1
            if standing.has_no_quorum and self._is_stronger(message):
                self._lifecycle.leave_network("there is another network", now)

    def _reject_network(self, mismatch: str, link: PeerLink, now: float) -> None:
        """Have nothing to do with another network, or with nodes that are told another size of this one."""
        parts, standing = self._components, self._components.context
        standing.counters["other_network"] += 1
        if not link.foreign:
            link.foreign = True
            parts.joining.link_closed(link, now)
        if self._reported_mismatches.add((link.peer.address[0], mismatch)):
            standing.warn(f"link {link_name(link.peer)}: the node there {mismatch}; it is left alone")
        if link.bound:
            self._lifecycle.leave_network(f"a neighbour {mismatch}", now)

    def _is_stronger(self, message: Ping) -> bool:
        """Return whether this node's network, which cannot have a quorum yet, gives way to that of a PING.

        It does to any that may have a quorum. Of two that cannot, the one with the earlier term gives way, or with the
        lower leader.
        """
        vow = self._components.context.durable
        return not message.val.startswith(NO_QUORUM_PREFIX) or (message.term, message.id) > (vow.term, vow.leader)

    def _term_is_taken(self, message: Ping) -> bool:
        """Return whether somebody else led in a term: what was begun anew has to get out of the way of that."""
        standing = self._components.context
        return standing.has_fixed_quorum and standing.durable.leader not in (0, message.id)

    def _follow(self, message: Ping, link: PeerLink, now: float) -> None:
        parts, standing = self._components, self._components.context
        is_new_term = message.term > standing.durable.term
        is_new_leader = standing.leader != message.id
        self._lifecycle.stop_leading("another leads", now)
        standing.val, standing.last_ping_at = message.val, now
        if is_new_leader or is_new_term:
            standing.follow(message.id, message.term, now)
            parts.registry_check.reset(now)
            if is_new_term:
                parts.send_queue.leader_changed()
        if is_new_term or standing.newly_inducted:
            parts.recv_relay.begin_term(was_member=not standing.newly_inducted)
        standing.newly_inducted = False
        standing.apply_role_input("led", f"{message.id} leads in term {message.term}")
        standing.flood_ping(message, now, link)
        if is_new_term and link.node in standing.links.primary:
            # What goes back there from now on is of this term.
            standing.links.write(standing.links.primary[link.node], message, now)
        parts.election.leader_heard(now)
        standing.deferred_ping = message.val
        standing.answer_deferred_ping(now)

    def _check_earlier_term(self, message: Pong, now: float) -> None:
        """Follow the leader of an earlier term if a quorum does: then nobody ever had one in a later term, and the
        node's own came from a network that was founded in vain."""
        standing = self._components.context
        if self._earlier_ping is None or standing.leader is not None:
            self._earlier_ping = None
            return
        ping, tie, answered = self._earlier_ping
        if message.val != ping.val or message.id not in standing.registry:
            return
        answered.add(message.id)
        if len(answered) >= standing.quorum and ping.id in standing.registry:
            self._earlier_ping = None
            standing.update_durable(term=ping.term, leader=ping.id)
            standing.newly_inducted = True
            self._follow(ping, tie, now)
