"""Whom a node follows (document 002, PING and PONG; rule S5 of its reading)."""

from __future__ import annotations

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.components import Parts
from fyrehose_twisted.hydra.node.lifecycle import Course
from fyrehose_twisted.hydra.node.link_table import Tie, link_name
from fyrehose_twisted.hydra.wire.messages import FOUNDING, Ping, Pong
from fyrehose_twisted.lru_set import Seen


class Following:
    """Takes PINGs and PONGs in, and passes them on."""

    def __init__(self, parts: Parts, course: Course) -> None:
        self._parts = parts
        self._course = course
        self._pings = Seen(256)
        self._pongs = Seen(2_048)
        self._refused = Seen(64)
        self._earlier: tuple[Ping, Tie, set[int]] | None = None
        """The PING of a term before the node's own, and who answers it."""

    def ping_received(self, message: Ping, tie: Tie, now: float) -> None:
        """Somebody leads."""
        parts, standing = self._parts, self._parts.standing
        wrong = standing.mismatch(message.val)
        if wrong is not None:
            self._refuse(wrong, tie, now)
            return
        if not tie.carries:
            self._met(message, tie, now)
            return
        tie.term = max(tie.term, message.term)
        if message.id not in standing.registry:
            standing.counts["unregistered_ping"] += 1
            return
        if message.id == standing.id or not self._pings.add(message):
            return
        term = standing.vow.term
        if message.term == term and standing.role is Role.LEADER:
            parts.leading.rival(now)
        elif message.term == term and standing.leader not in (None, message.id):
            standing.counts["ping_of_a_rival"] += 1
        elif message.term < term or (message.term == term and self._is_taken(message)):
            standing.counts["ping_of_the_past"] += 1
            if standing.leader is None:
                standing.flood_ping(message, now, tie)
                self._earlier = message, tie, {message.id}
                parts.election.nominate(now)
        else:
            self._follow(message, tie, now)

    def pong_received(self, message: Pong, tie: Tie, now: float) -> None:
        """Somebody answers whoever leads."""
        parts, standing = self._parts, self._parts.standing
        if not tie.carries:
            standing.counts["unbound_pong"] += 1
            parts.induction.ask(tie, now)
            return
        if message.id == standing.id:
            return
        standing.registry.ponged(message.id, message.val, message.count, message.tag, tie.peer, now)
        if not self._pongs.add((message.val, message.id)):
            return
        standing.flood(message._replace(count=message.count + 1), now, tie)
        if standing.role is Role.LEADER:
            parts.leading.ponged(message, now)
        elif message.id not in standing.registry:
            standing.counts["unregistered_pong"] += 1
            parts.agreement.stranger_ponged(message.id, now)
        self._look_back(message, now)
        if message.val == standing.val and message.id != standing.leader and standing.release(message.id):
            # Whom this node would not desert follows the new leader itself.
            standing.answer_withheld(now)

    def _met(self, message: Ping, tie: Tie, now: float) -> None:
        """A PING came over a link that is not bound."""
        parts, standing = self._parts, self._parts.standing
        me = standing.id
        standing.counts["unbound_ping"] += 1
        if me is None:
            parts.outsider.pinged(message, tie, now)
        elif tie.node is not None:
            return  # A guardian has nothing to say about that.
        elif standing.knows(message.id):
            # It is the same network, and neither end may know it: an earlier KNOCK came too soon to be answered.
            parts.induction.ask(tie, now)
        elif standing.fresh and now - standing.member_since < standing.timers.max_ping:
            standing.counts["unknown_ping"] += 1  # Those who met it name themselves only now.
        else:
            standing.counts["foreign_ping"] += 1
            if standing.has_no_quorum and self._is_stronger(message):
                self._course.part("there is another network", now)

    def _refuse(self, wrong: str, tie: Tie, now: float) -> None:
        """Have nothing to do with another network, or with nodes that are told another size of this one."""
        parts, standing = self._parts, self._parts.standing
        standing.counts["other_network"] += 1
        if not tie.foreign:
            tie.foreign = True
            parts.outsider.ended(tie, now)
        if self._refused.add((tie.peer.address[0], wrong)):
            standing.complain(f"link {link_name(tie.peer)}: the node there {wrong}; it is left alone")
        if tie.bound:
            self._course.part(f"a neighbour {wrong}", now)

    def _is_stronger(self, message: Ping) -> bool:
        """Return whether this node's network, which cannot have a quorum yet, gives way to that of a PING.

        It does to any that may have a quorum. Of two that cannot, the one with the earlier term gives way, or with the
        lower leader.
        """
        vow = self._parts.standing.vow
        return not message.val.startswith(FOUNDING) or (message.term, message.id) > (vow.term, vow.leader)

    def _is_taken(self, message: Ping) -> bool:
        """Return whether somebody else led in a term: what was begun anew has to get out of the way of that."""
        standing = self._parts.standing
        return standing.fixed and standing.vow.leader not in (0, message.id)

    def _follow(self, message: Ping, tie: Tie, now: float) -> None:
        parts, standing = self._parts, self._parts.standing
        is_new_term = message.term > standing.vow.term
        is_new_leader = standing.leader != message.id
        self._course.stop_leading("another leads", now)
        standing.val, standing.heard = message.val, now
        if is_new_leader or is_new_term:
            standing.follow(message.id, message.term, now)
            parts.agreement.reset(now)
            if is_new_term:
                parts.saying.leader_changed()
        if is_new_term or standing.fresh:
            parts.hearing.begin_term(whole=not standing.fresh)
        standing.fresh = False
        standing.happened("led", f"{message.id} leads in term {message.term}")
        standing.flood_ping(message, now, tie)
        if is_new_term and tie.node in standing.ties.primary:
            # What goes back there from now on is of this term.
            standing.ties.write(standing.ties.primary[tie.node], message, now)
        parts.election.leader_heard(now)
        standing.withheld = message.val
        standing.answer_withheld(now)

    def _look_back(self, message: Pong, now: float) -> None:
        """Follow the leader of an earlier term if a quorum does: then nobody ever had one in a later term, and the
        node's own came from a network that was founded in vain."""
        standing = self._parts.standing
        if self._earlier is None or standing.leader is not None:
            self._earlier = None
            return
        ping, tie, answered = self._earlier
        if message.val != ping.val or message.id not in standing.registry:
            return
        answered.add(message.id)
        if len(answered) >= standing.quorum and ping.id in standing.registry:
            self._earlier = None
            standing.change(term=ping.term, leader=ping.id)
            standing.fresh = True
            self._follow(ping, tie, now)
