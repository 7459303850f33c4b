"""How nodes agree on a leader (document 002, "A leader needs to be established"; rules S2, S3 and S5 of its reading).

A pledge binds a node to a nominee for a term, a vote is given once the nominee has a quorum of pledges. Whoever
answered a leader's PING lately neither pledges nor votes.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.link_table import Tie
from fyrehose_twisted.hydra.wire.messages import MAX_TERM, Call, Elect, Nominate, Pledge
from fyrehose_twisted.lru_set import Seen

_LATE = 5.0
"""Seconds (unscaled) for which a nomination that came too early is remembered: the shortest MAX_VOTE."""
_SOON = 0.2, 1.0
"""Seconds (unscaled) until a node nominates itself once it reaches others again."""
_APART = 1.5
"""Seconds (unscaled) between two nominations of a node, at least: an election takes far less."""


class Election:
    """One node in elections.

    :ivar won: the term in which a quorum voted for this node; whoever sees it makes it the leader.
    :ivar due: when the node nominates itself.
    :ivar shy_until: until when it leaves that to others, for it could not reach IRC.
    """

    def __init__(self, standing: Standing) -> None:
        self.won: int | None = None
        self.due = inf
        self.shy_until = -inf
        self._standing = standing
        self._term = 0
        self._pledges: set[int] = set()
        self._elects: set[int] = set()
        self._called = False
        self._nominated_at = -inf
        self._early: tuple[Nominate, float] | None = None
        self._highest = 0
        self._nominations = Seen(256)
        self._pledged = Seen(1_024)
        self._calls = Seen(256)
        self._elected = Seen(1_024)

    # What the node decides

    def leader_heard(self, now: float) -> None:
        """A PING of the leader came: no election before it has been silent for long (rule S5)."""
        standing, timers = self._standing, self._standing.timers
        self.due = now + timers.max_ping + standing.rng.uniform(*timers.max_vote)
        self._term = 0
        self._early = None

    def leader_gone(self, now: float) -> None:
        """The leader said that it is one no more (rule S7): no need to wait."""
        self.due = now + self._standing.rng.uniform(0.0, self._standing.timers.succession)
        self._answer_early(now)

    def hasten(self, now: float) -> None:
        """Nodes are reached again: if there is no leader, an election can succeed now."""
        standing, scale = self._standing, self._standing.timers.scale
        if standing.leader is None and now >= self.shy_until:
            earliest = max(now, self._nominated_at + _APART * scale)
            self.due = min(self.due, earliest + standing.rng.uniform(*_SOON) * scale)

    def wait(self, now: float) -> None:
        """There is no leader, for other reasons."""
        self.due = now + self._standing.rng.uniform(*self._standing.timers.max_vote)

    def nominate(self, now: float) -> None:
        """Nominate oneself for a new term."""
        standing = self._standing
        me = standing.id
        if me is None or not standing.may_help(me, now):
            self.wait(now)
            return
        term = max(standing.vow.term, standing.vow.voted, self._highest) + 1
        if term > MAX_TERM:
            self.due = inf
            return
        self._begin(term, now)
        self._nominated_at = now
        standing.change(voted=term, nominee=me, voter=me)
        standing.happened("nominated", f"nobody leads; it is for itself in term {term}")
        standing.counts["nominated"] += 1
        self._nominations.add((term, me))
        standing.flood(Nominate(term, me), now)
        self._pledges.add(me)
        self._pledged.add((term, me))
        standing.flood(Pledge(term, me, me), now)
        self._count_pledges(now)

    def reset(self) -> None:
        """The node belongs to no network any more."""
        self.due = inf
        self._term = 0
        self._early = None

    # What others say

    def nominate_received(self, message: Nominate, tie: Tie, now: float) -> None:
        """Somebody wants to lead."""
        standing = self._standing
        if message.id not in standing.registry or message.id == standing.id:
            standing.counts["unregistered_nominate"] += 1
            return
        if not self._nominations.add(message):
            return
        self._note(message.term)
        standing.flood(message, now, tie)
        self._consider(message, now)

    def pledge_received(self, message: Pledge, tie: Tie, now: float) -> None:
        """Somebody is for a nominee."""
        standing = self._standing
        if message.id not in standing.registry:
            standing.counts["unregistered_pledge"] += 1
            return
        if not self._pledged.add((message.term, message.id)):
            return
        self._note(message.term)
        standing.flood(message, now, tie)
        if self._is_mine(message.term) and message.nom == standing.id:
            self._pledges.add(message.id)
            self._count_pledges(now)

    def call_received(self, message: Call, tie: Tie, now: float) -> None:
        """A nominee wants the votes."""
        standing = self._standing
        if not self._calls.add(message.term):
            return
        self._note(message.term)
        standing.flood(message, now, tie)
        vow = standing.vow
        bound = vow.voted == message.term and vow.voter == standing.id and vow.nominee != standing.id
        if bound and message.term > vow.term and standing.may_help(vow.nominee, now):
            self._wait_for_outcome(now)
            self._vote(message.term, vow.nominee, now)

    def elect_received(self, message: Elect, tie: Tie, now: float) -> None:
        """Somebody votes."""
        standing = self._standing
        if message.id not in standing.registry:
            standing.counts["unregistered_elect"] += 1
            return
        if not self._elected.add((message.term, message.id)):
            return
        self._note(message.term)
        standing.flood(message, now, tie)
        if self._is_mine(message.term) and self._called and message.nom == standing.id:
            self._elects.add(message.id)
            self._count_votes()

    # Time

    def tick(self, now: float) -> None:
        """Do what is due."""
        standing = self._standing
        if standing.id is None or standing.role is Role.LEADER:
            return
        self._answer_early(now)
        if self.due > now:
            return
        if standing.leader is not None and standing.role is Role.COHORT:
            standing.follow(None, standing.vow.term, now)
        if now < self.shy_until or len(standing.registry) < standing.quorum:
            self.wait(now)
        else:
            self.nominate(now)

    def next_deadline(self) -> float:
        """Return when :meth:`tick` has something to do."""
        standing = self._standing
        if standing.id is None or standing.role is Role.LEADER:
            return inf
        if self._early is not None:
            return min(self.due, standing.vow.until)
        return self.due

    # Within

    def _note(self, term: int) -> None:
        # Only what is near counts: a term that is out of reach would be the last.
        if term <= max(self._highest, self._standing.vow.term) + 2**32:
            self._highest = max(self._highest, term)

    def _known(self, voters: set[int]) -> int:
        return len(voters & self._standing.registry.ids())

    def _is_mine(self, term: int) -> bool:
        return self._standing.role is Role.NOMINEE and term == self._term

    def _begin(self, term: int, now: float) -> None:
        standing = self._standing
        self._term, self._called = term, False
        self._pledges.clear()
        self._elects.clear()
        self._early = None
        standing.follow(None, standing.vow.term, now)
        self._wait_for_outcome(now)

    def _wait_for_outcome(self, now: float) -> None:
        self.due = now + self._standing.rng.uniform(*self._standing.timers.max_vote)

    def _consider(self, message: Nominate, now: float) -> None:
        standing = self._standing
        vow = standing.vow
        if message.term <= max(vow.term, vow.voted):
            return
        if not standing.may_help(message.id, now):
            if self._early is None or message.term > self._early[0].term:
                self._early = message, now
            standing.counts["nominations_too_early"] += 1
            return
        self._begin(message.term, now)
        me = standing.id
        assert me is not None, "whoever is bound to links is registered"
        standing.change(voted=message.term, nominee=message.id, voter=me)
        standing.happened("pledged", f"it is for {message.id} in term {message.term}")
        self._pledged.add((message.term, me))
        standing.flood(Pledge(message.term, message.id, me), now)

    def _answer_early(self, now: float) -> None:
        if self._early is None:
            return
        message, since = self._early
        standing = self._standing
        if now - since > _LATE * standing.timers.scale or message.id not in standing.registry:
            self._early = None
        elif standing.may_help(message.id, now):
            self._early = None
            self._consider(message, now)

    def _count_pledges(self, now: float) -> None:
        standing = self._standing
        me = standing.id
        if self._called or me is None or self._known(self._pledges) < standing.quorum or not standing.may_help(me, now):
            return
        self._called = True
        self._calls.add(self._term)
        self._wait_for_outcome(now)
        standing.flood(Call(self._term), now)
        self._elects.add(me)
        self._vote(self._term, me, now)
        self._count_votes()

    def _vote(self, term: int, nominee: int, now: float) -> None:
        standing = self._standing
        me = standing.id
        assert me is not None, "whoever votes is registered"
        if self._elected.add((term, me)):
            standing.flood(Elect(term, nominee, me), now)

    def _count_votes(self) -> None:
        if self._known(self._elects) >= self._standing.quorum:
            self.won = self._term
