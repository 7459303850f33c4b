"""How somebody becomes a node (document 002, "A server has requested to be a node"; rules S1 and S4 of its reading).

Whoever is knocked at mediates: every registered node has to MEET, then comes the WELCOME. A node that MEETs keeps a
place for the new one until it is registered, dropped, or long overdue.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

from fyrehose_twisted.hydra.events import Registered
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.link_table import Tie
from fyrehose_twisted.hydra.wire.messages import GUARDIAN_TAG, NOT_INDUCTED, Drop, Hello, Knock, Meet, Ping, Welcome
from fyrehose_twisted.lru_set import Seen

MAX_WAITING = 16
"""Knocks that wait for another to be answered."""
_PLACE = 2.5
"""MAX_MEETs for which a place is kept: the WELCOME may take two, by a slower clock."""


@dataclass(slots=True)
class _Mediation:
    ind: int
    tag: str
    tie: Tie
    awaited: set[int]
    until: float


class Induction:
    """A node that takes others in."""

    def __init__(self, standing: Standing) -> None:
        self._standing = standing
        self._mediation: _Mediation | None = None
        self._waiting: deque[tuple[Knock, Tie, float]] = deque()
        self._knocks = Seen(256)
        self._meets = Seen(1_024)
        self._hellos = Seen(1_024)

    @property
    def mediating(self) -> int | None:
        """For whom it mediates now."""
        return None if self._mediation is None else self._mediation.ind

    def reset(self) -> None:
        """The node belongs to no network any more."""
        self._mediation = None
        self._waiting.clear()

    # A link that is not bound

    def knocked(self, message: Knock, tie: Tie, now: float, *, may_decide: bool) -> None:
        """Somebody at the other end of a link that is not bound wants in, or is a node already."""
        standing = self._standing
        ind = message.ind
        tie.knocked, tie.guardian = ind, message.tag == GUARDIAN_TAG
        me = standing.id
        if me is None or ind == me:
            return
        self._waiting = deque(one for one in self._waiting if one[1] is not tie)
        if self._mediation is not None and self._mediation.tie is tie and self._mediation.ind != ind:
            self._give_up("it knocked anew", now)
        if ind in standing.registry:
            self.bind(tie, ind, now)
            standing.ties.write(tie, Hello(ind, me), now)
            if not tie.guardian:
                self.show_term(tie, now)
        elif not tie.ordinary:
            return  # It is of another network; or what a guardian watches over is no node yet, or no longer.
        elif standing.registry.was_dropped(ind):
            standing.ties.write(tie, Drop(ind, "dropped before"), now)
        elif ind not in standing.registry.pending:
            self._mediate(message, tie, now, may_decide=may_decide)

    def announce(self, tie: Tie, now: float) -> None:
        """Let whoever is behind a link that is not bound know which network this is: the last PING says it. Nobody
        follows what comes over such a link."""
        standing = self._standing
        if standing.vow.leader and standing.val:
            standing.ties.write(tie, Ping(standing.vow.term, standing.val, standing.vow.leader), now)

    def ask(self, tie: Tie, now: float) -> None:
        """Whoever is behind a link seems to think that it is bound: say who is here, now and then."""
        standing = self._standing
        me = standing.id
        if me is None or tie.node is not None or tie.legacy or now < tie.asked + standing.timers.max_ping / 2:
            return
        tie.asked, tie.knock = now, me
        standing.ties.write(tie, Knock(me, standing.config.tag), now)

    def show_term(self, tie: Tie, now: float) -> None:
        """Let whoever is behind a link that is bound know in which term the lines are that come over it."""
        standing = self._standing
        if standing.in_term and standing.leader is not None:
            standing.ties.write(tie, Ping(standing.vow.term, standing.val, standing.leader), now)

    def bind(self, tie: Tie, node: int, now: float) -> None:
        """It is known whom a link leads to."""
        self._standing.ties.bind(tie, node)

    # What goes to everybody

    def knock_received(self, message: Knock, tie: Tie, now: float) -> None:
        """A mediator asks whether somebody may become a node."""
        standing = self._standing
        ind = message.ind
        if not self._knocks.add(ind):
            return
        standing.flood(message, now, tie)
        me = standing.id
        if me is None or ind == me or ind in standing.registry.pending:
            return
        if ind in standing.registry:
            # The mediator missed that it is a node.
            standing.flood(Meet(ind, me), now)
            return
        if not standing.in_term or not standing.has_room():
            standing.counts["not_met"] += 1
            return
        self._meet(ind, message.tag, now)
        standing.flood(Meet(ind, me), now)

    def meet_received(self, message: Meet, tie: Tie, now: float) -> None:
        """A node agrees."""
        standing = self._standing
        if not self._meets.add(message):
            return
        standing.flood(message, now, tie)
        mediation = self._mediation
        if mediation is not None and mediation.ind == message.ind:
            mediation.awaited.discard(message.id)
            standing.ties.write(mediation.tie, message, now)

    def welcome_received(self, message: Welcome, tie: Tie, now: float) -> int | None:
        """A mediator has everybody's consent; return who is a node now."""
        return self._arrive(message.ind, now, message, tie)

    def hello_received(self, message: Hello, tie: Tie, now: float) -> int | None:
        """A node names itself to a new one; return who is a node now."""
        standing = self._standing
        if not self._hellos.add(message):
            return None
        if message.ind == standing.id:
            return self._register_named(message.id, now)
        arrived = self._arrive(message.ind, now, None, tie)
        standing.flood(message, now, tie)
        return arrived

    # Time, and what else happens

    def dropped(self, node: int, now: float) -> None:
        """A node is one no more: nobody has to wait for it."""
        mediation = self._mediation
        if mediation is not None:
            mediation.awaited.discard(node)
            if mediation.ind == node:
                self._mediation = None

    def ended(self, tie: Tie, now: float) -> None:
        """A link is closed."""
        self._waiting = deque(one for one in self._waiting if one[1] is not tie)
        mediation = self._mediation
        if mediation is not None and mediation.tie is tie:
            self._give_up("it went away", now)

    def tick(self, now: float, *, may_decide: bool) -> int | None:
        """Do what is due; return who is a node now."""
        standing = self._standing
        standing.registry.expire(now)
        mediation = self._mediation
        if mediation is not None and mediation.until <= now:
            self._give_up("not everybody met it", now)
        arrived = self._finish(now, may_decide=may_decide)
        while self._waiting and self._waiting[0][2] <= now:
            self._waiting.popleft()
            standing.counts["knocks_unanswered"] += 1
        if self._mediation is None and may_decide and standing.in_term and standing.has_room() and self._waiting:
            knock, tie, _ = self._waiting.popleft()
            if knock.ind not in standing.registry and knock.ind not in standing.registry.pending:
                self._mediate(knock, tie, now, may_decide=True)
        return arrived

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        due = min(self._standing.registry.pending.values(), default=inf)
        if self._mediation is not None:
            due = min(due, self._mediation.until if self._mediation.awaited else -inf)
        if self._waiting:
            due = min(due, self._waiting[0][2])
        return due

    # Within

    def _mediate(self, message: Knock, tie: Tie, now: float, *, may_decide: bool) -> None:
        standing = self._standing
        me = standing.id
        assert me is not None, "it was looked at"
        if self._mediation is not None or not standing.in_term or not standing.has_room() or not may_decide:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append((message, tie, now + standing.timers.max_meet))
            else:
                standing.counts["knocks_unanswered"] += 1
            return
        ind = message.ind
        self._knocks.add(ind)
        awaited = set(standing.registry.ids()) - {me}
        self._mediation = _Mediation(ind, message.tag, tie, awaited, now + standing.timers.max_meet)
        self._meet(ind, message.tag, now)
        standing.ties.write(tie, Meet(ind, me), now)
        standing.flood(Knock(ind, message.tag), now)
        self._meets.add(Meet(ind, me))
        standing.flood(Meet(ind, me), now)

    def _meet(self, ind: int, tag: str, now: float) -> None:
        standing = self._standing
        standing.registry.expect(ind, tag, now + _PLACE * standing.timers.max_meet)

    def _finish(self, now: float, *, may_decide: bool) -> int | None:
        standing, mediation = self._standing, self._mediation
        if mediation is None or mediation.awaited:
            return None
        if not standing.in_term or not may_decide:
            # A leader without a lease lets nobody in.
            self._give_up("nobody leads", now)
            return None
        self._mediation = None
        me, ind, tie = standing.id, mediation.ind, mediation.tie
        assert me is not None, "whoever mediates is registered"
        for message in (Welcome(ind), Hello(ind, me)):
            standing.ties.write(tie, message, now)
            standing.flood(message, now)
        self._hellos.add(Hello(ind, me))
        standing.registry.add(ind, now)
        standing.out.tell(Registered(ind))
        standing.counts["inducted"] += 1
        self.bind(tie, ind, now)
        self.show_term(tie, now)
        self.bind_waiting(ind, now)
        return ind

    def _give_up(self, why: str, now: float) -> None:
        standing, mediation = self._standing, self._mediation
        assert mediation is not None, "there is one"
        self._mediation = None
        standing.counts["inductions_failed"] += 1
        if not standing.registry.give_up(mediation.ind):
            return
        # Only who mediates can say WELCOME, so the places that others keep are of no use any more.
        standing.flood(Drop(mediation.ind, f"{NOT_INDUCTED}: {why}"), now)

    def _arrive(self, ind: int, now: float, relay: Welcome | None, tie: Tie) -> int | None:
        standing = self._standing
        me = standing.id
        if me is None or ind == me:
            return None
        if ind not in standing.registry.pending and not self._arrived_meanwhile(ind, now):
            return None
        if relay is not None:
            standing.flood(relay, now, tie)
        standing.registry.add(ind, now)
        standing.out.tell(Registered(ind))
        hello = Hello(ind, me)
        if self._hellos.add(hello):
            standing.flood(hello, now)
        self.bind_waiting(ind, now)
        return ind

    def _arrived_meanwhile(self, ind: int, now: float) -> bool:
        """Return whether somebody was asked about before this node was one, and comes after it: two mediators may be at
        work at once."""
        standing = self._standing
        registry = standing.registry
        is_fresh = now < standing.member_since + _PLACE * standing.timers.max_meet
        return is_fresh and ind not in registry and not registry.was_dropped(ind) and standing.has_room()

    def _register_named(self, node: int, now: float) -> int | None:
        standing = self._standing
        registry = standing.registry
        if node in registry or registry.was_dropped(node):
            return None
        if node not in registry.pending and not standing.has_room():
            standing.counts["hello_without_room"] += 1
            return None
        registry.add(node, now)
        standing.out.tell(Registered(node))
        self.bind_waiting(node, now)
        return node

    def bind_waiting(self, node: int, now: float) -> None:
        """Bind links over which a node knocked before the news came that it is one."""
        standing = self._standing
        me = standing.id
        if self._mediation is not None and self._mediation.ind == node:
            self._mediation = None
        for tie in standing.ties:
            if me is not None and tie.knocked == node and tie.node is None:
                self.bind(tie, node, now)
                standing.ties.write(tie, Hello(node, me), now)
                if not tie.guardian:
                    self.show_term(tie, now)
