"""How a node comes to lead, and stops; how it comes to a network, and leaves it (document 002; rules S5 to S7 of its
reading).
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.config import TERMS_A_SECOND
from fyrehose_twisted.hydra.events import Dropped, Left, Registered, Role
from fyrehose_twisted.hydra.node.components import Parts
from fyrehose_twisted.hydra.node.link_table import Tie
from fyrehose_twisted.hydra.wire.messages import Drop

_AWAY = 0.5, 1.5
"""Seconds (unscaled) until a node that was dropped comes again."""


class Course:
    """What changes a node's role, and what follows from that.

    :ivar resigning: why it gives the lead up, while IRC is not closed yet.
    :ivar listens_until: the end of the lease that it had then. Until that, or until IRC is closed, lines are relayed.
    """

    def __init__(self, parts: Parts, now: float) -> None:
        self.resigning: str | None = None
        self.listens_until = -inf
        self._parts = parts
        self._leaving = False
        self._born = now
        self._pinged = 0
        """How many nodes were registered when they were looked at last, while it leads."""

    def may_decide(self, now: float) -> bool:
        """Return whether nothing stands against taking somebody in here: a leader needs a lease for it."""
        parts = self._parts
        is_leader = parts.standing.role is Role.LEADER
        return not is_leader or (self.resigning is None and parts.leading.may_decide(now))

    def may_relay(self, now: float) -> bool:
        """Return whether lines from IRC may be passed on: with a lease, and while it says goodbye there."""
        return self._parts.leading.may_write(now) or (self.resigning is not None and now < self.listens_until)

    def quorumless_at(self) -> float:
        """Return when the node gives its network up, unless somebody leads before (rule S6)."""
        standing = self._parts.standing
        if standing.id is None or standing.role in (Role.LEADER, Role.GONE) or standing.in_term:
            return inf
        return standing.heard + standing.timers.quorumless

    def knocked(self, tie: Tie, now: float) -> None:
        """A node that belongs to no network knocked. If this one cannot reach any node of its own, and has heard of no
        leader for as long as it could be bound to one, the others have given the network up (rule S6)."""
        standing = self._parts.standing
        is_lost = (
            standing.leader is None
            and standing.id is not None
            and standing.fixed
            and standing.quorum > 1
            and not standing.ties.primary
            and standing.heard + standing.timers.promise <= now
        )
        if is_lost and tie.node is None and not tie.guardian:
            self.part("no node of the network can be reached", now)

    def settle(self, now: float) -> None:
        """Do what has become possible, or necessary."""
        parts, standing = self._parts, self._parts.standing
        if parts.leading.lost is not None:
            self._lose(parts.leading.lost, now)
        if parts.leading.lease is not None and standing.role is not Role.LEADER:
            self.stop_leading("there is an election", now)
        if parts.election.won is not None:
            self._lead(parts.election.won, now)
        if standing.role is Role.LEADER and self.resigning is None:
            before, self._pinged = self._pinged, len(standing.registry)
            if self._pinged > before:
                # Only PINGs that are sent after a node was registered count for the quorum.
                parts.leading.ping(now)
            if parts.leading.may_write(now):
                parts.speaking.want(now)
            if parts.speaking.lost is not None:
                if parts.speaking.unreachable:
                    parts.election.shy_until = now + 2 * standing.timers.max_vote[1]
                self.resign(parts.speaking.lost, now)
        if self.resigning is not None and parts.speaking.state == "closed":
            self._resigned(now)

    def found(self, now: float) -> None:
        """Begin a network."""
        parts, standing = self._parts, self._parts.standing
        me = standing.new_id()
        standing.take_id(me)
        standing.registry.add(me, now)
        standing.member_since = now
        standing.was_member = standing.founding = True
        standing.happened("founded", "nobody knew of a network")
        standing.follow(me, self._first_term(now), now)
        parts.hearing.begin_term(whole=True)
        parts.leading.begin(now)
        self._pinged = 1

    def part(self, why: str, now: float) -> None:
        """Belong to no network any more."""
        parts, standing = self._parts, self._parts.standing
        if standing.id is not None and parts.speaking.state == "closed":
            # It is not on IRC, so a promise to it protects nothing; and no induction needs to wait for it.
            standing.flood(Drop(standing.id, why[:100]), now)
            standing.release(standing.id)
        self.stop_leading(why, now)
        self.resigning = None
        parts.saying.leader_changed()
        standing.follow(None, standing.vow.term, now)
        standing.take_id(None)
        standing.happened("parted", why)
        standing.registry.clear()
        for tie in standing.ties:
            if not tie.legacy:
                standing.ties.hang_up(tie, now, "parted")
                self.ended(tie, now)
        parts.induction.reset()
        parts.election.reset()
        standing.withheld = None
        standing.fresh = False
        parts.outsider.begin(now, standing.rng.uniform(*_AWAY) * standing.timers.scale)
        if self._leaving:
            self._leave(now)

    def leave(self, now: float) -> None:
        """Say goodbye, and be no node any more."""
        if self._leaving:
            return
        self._leaving = True
        if self._parts.standing.role is Role.LEADER:
            self.resign("left", now)
        else:
            self._leave(now)

    def join(self, ind: int, tie: Tie, now: float) -> None:
        """Be a node: the other end of a link said WELCOME."""
        parts, standing = self._parts, self._parts.standing
        mediator = tie.mediator
        assert mediator is not None, "nobody is welcomed without"
        standing.take_id(ind)
        standing.member_since = standing.heard = now
        standing.was_member = standing.fresh = True
        standing.happened("welcomed", f"{mediator} took it in")
        for node in (ind, mediator):
            standing.registry.add(node, now)
            standing.out.tell(Registered(node))
        parts.induction.bind(tie, mediator, now)
        parts.induction.bind_waiting(mediator, now)

    def drop(self, node: int, reason: str, now: float) -> None:
        """Another node is one no more."""
        parts, standing = self._parts, self._parts.standing
        registered = node in standing.registry
        for tie in standing.ties.unbind(node):
            standing.ties.hang_up(tie, now, "dropped")
            self.ended(tie, now)
        standing.registry.drop(node)
        parts.leading.forget(node)
        parts.agreement.forget(node)
        parts.induction.dropped(node, now)
        if registered:
            standing.out.tell(Dropped(node, reason))
        released = standing.release(node)
        if node == standing.leader:
            standing.follow(None, standing.vow.term, now)
            parts.saying.leader_changed()
            parts.election.leader_gone(now)
        elif released:
            standing.answer_withheld(now)
            parts.election.tick(now)

    def ended(self, tie: Tie, now: float) -> None:
        """A link is closed."""
        parts = self._parts
        parts.induction.ended(tie, now)
        parts.outsider.ended(tie, now)

    def resign(self, why: str, now: float) -> None:
        """Give the lead up: once the connection to IRC is closed, the others are told (rule S7)."""
        parts = self._parts
        until = parts.leading.until
        self.listens_until = -inf if until is None else until
        parts.leading.end()
        parts.speaking.give_up(why)
        self.resigning = why

    def stop_leading(self, why: str, now: float) -> None:
        """Write no more lines, from this moment on."""
        parts = self._parts
        if parts.leading.lease is not None:
            parts.leading.end()
            parts.speaking.give_up(why)
            parts.standing.founding = False
            if self.resigning is not None and not self._leaving:
                self.resigning = None

    def _lead(self, term: int, now: float) -> None:
        parts, standing = self._parts, self._parts.standing
        parts.election.won = None
        standing.founding = False
        standing.happened("elected", f"a quorum voted for it in term {term}")
        standing.counts["elected"] += 1
        standing.follow(standing.id, term, now)
        parts.saying.leader_changed()
        parts.hearing.begin_term(whole=True)
        standing.fresh = False
        standing.withheld = None
        parts.leading.begin(now)
        self._pinged = len(standing.registry)

    def _lose(self, why: str, now: float) -> None:
        parts, standing = self._parts, self._parts.standing
        if standing.founding:
            self.part(why, now)
            return
        standing.counts["leases_lost"] += 1
        self.stop_leading(why, now)
        standing.happened("stepped_down", why)
        standing.follow(None, standing.vow.term, now)
        parts.saying.leader_changed()
        low, high = standing.timers.max_vote
        parts.election.due = standing.vow.until + standing.rng.uniform(0.0, high - low)

    def _resigned(self, now: float) -> None:
        standing = self._parts.standing
        why, self.resigning = self.resigning or "", None
        if self._leaving:
            self._leave(now)
            return
        standing.complain(f"gave the lead up: {why}")
        self.part(why, now)

    def _leave(self, now: float) -> None:
        parts, standing = self._parts, self._parts.standing
        parts.saying.close()
        if standing.id is not None:
            standing.flood(Drop(standing.id, "left"), now)
            standing.release(standing.id)
        standing.follow(None, standing.vow.term, now)
        standing.take_id(None)
        standing.happened("left", "it was told to")
        standing.out.tell(Left())

    def _first_term(self, now: float) -> int:
        """Return a term that nobody else founds in, and that elections have not come to: they take far fewer."""
        standing = self._parts.standing
        first, known = standing.config.first_term, max(standing.vow.term, standing.vow.voted)
        if first == 1 and (not known or standing.config.network_size == 1):
            return known + 1
        passed = int(now - self._born) * TERMS_A_SECOND if first > 1 else 0
        # Others that it knew may have gone on without it.
        return max(first + passed, known + 1) + standing.rng.randrange(TERMS_A_SECOND)
