"""Leader election (document 002, "A leader needs to be established"; rules S2, S3 and S5 of its reading).

A pledge binds a node to a nominee for a term. The node votes once the nominee has a quorum of pledges. A node that
recently answered a leader's PING neither pledges nor votes.
"""

from __future__ import annotations

from math import inf

from fyrehose_twisted.hydra.events import Role
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import MAX_TERM, Call, Elect, Nominate, Pledge
from fyrehose_twisted.hydra.wire.ping_val import claimed_lease
from fyrehose_twisted.lru_set import LruSet

_EARLY_NOMINATION_TTL = 5.0
"""Seconds (unscaled) for which an early nomination is remembered: the shortest MAX_VOTE."""
_HASTENED_DELAY = 0.2, 1.0
"""Shortest and longest delay before a nomination after a link recovered, in seconds (unscaled)."""
_MIN_NOMINATION_INTERVAL = 1.5
"""Shortest interval between nominations of a node, in seconds (unscaled); an election takes far less."""


class Election:
    """Elections from the view of one node.

    :ivar won_term: term in which a quorum voted for this node; the lifecycle then makes it the leader.
    :ivar next_nomination: time at which the node nominates itself.
    :ivar backoff_until: time until which it does not nominate itself because it could not reach IRC.
    """

    def __init__(self, context: NodeContext) -> None:
        self.won_term: int | None = None
        self.next_nomination = inf
        self.backoff_until = -inf
        self._context = context
        self._term = 0
        self._pledges: set[int] = set()
        self._votes: set[int] = set()
        self._call_sent = False
        self._nominated_at = -inf
        self._early_nomination: tuple[Nominate, float] | None = None
        self._highest = 0
        self._seen_nominations = LruSet(256)
        self._seen_pledges = LruSet(1_024)
        self._seen_calls = LruSet(256)
        self._seen_votes = LruSet(1_024)

    # Decisions of this node

    def leader_heard(self, now: float) -> None:
        """Postpone the nomination after a PING of the leader (rule S5)."""
        context, timers = self._context, self._context.timers
        claimed = claimed_lease(context.val)
        if claimed is None:
            self.next_nomination = now + timers.max_ping + context.rng.uniform(*timers.max_vote)
        else:
            promised = context.durable.until if context.promised_to(now) is not None else now
            earliest = max(promised, now + timers.promise_for(claimed))
            self.next_nomination = earliest + context.rng.uniform(*timers.quick_vote)
        self._term = 0
        self._early_nomination = None

    def leader_lost(self, now: float) -> None:
        """Schedule a nomination soon after the leader has resigned (rule S7)."""
        self.next_nomination = now + self._context.rng.uniform(0.0, self._context.timers.succession)
        self._answer_early(now)

    def hasten(self, now: float) -> None:
        """Advance the nomination after a link recovered, if there is no leader."""
        context, scale = self._context, self._context.timers.scale
        if context.leader is None and now >= self.backoff_until:
            earliest = max(now, self._nominated_at + _MIN_NOMINATION_INTERVAL * scale)
            self.next_nomination = min(self.next_nomination, earliest + context.rng.uniform(*_HASTENED_DELAY) * scale)

    def postpone(self, now: float) -> None:
        """Schedule a nomination after a random wait."""
        self.next_nomination = now + self._context.rng.uniform(*self._context.timers.max_vote)

    def nominate(self, now: float) -> None:
        """Nominate this node for a new term."""
        context = self._context
        me = context.id
        if me is None or not context.may_help(me, now):
            self.postpone(now)
            return
        term = max(context.durable.term, context.durable.voted, self._highest) + 1
        if term > MAX_TERM:
            self.next_nomination = inf
            return
        self._enter_term(term, now)
        self._nominated_at = now
        context.update_durable(voted=term, nominee=me, voter=me)
        context.apply_role_input("nominated", f"no node leads; it votes for itself in term {term}")
        context.counters["nominated"] += 1
        self._seen_nominations.add((term, me))
        context.flood(Nominate(term, me), now)
        self._pledges.add(me)
        self._seen_pledges.add((term, me))
        context.flood(Pledge(term, me, me), now)
        self._count_pledges(now)

    def reset(self) -> None:
        """Drop all state after the node left its network."""
        self.next_nomination = inf
        self._term = 0
        self._early_nomination = None

    # Messages of other nodes

    def nominate_received(self, message: Nominate, link: PeerLink, now: float) -> None:
        """Handle a nomination."""
        context = self._context
        if message.id not in context.registry or message.id == context.id:
            context.counters["unregistered_nominate"] += 1
            return
        if not self._seen_nominations.add(message):
            return
        self._note_term(message.term)
        context.flood(message, now, link)
        self._consider(message, now)

    def pledge_received(self, message: Pledge, link: PeerLink, now: float) -> None:
        """Handle a pledge to a nominee."""
        context = self._context
        if message.id not in context.registry:
            context.counters["unregistered_pledge"] += 1
            return
        if not self._seen_pledges.add((message.term, message.id)):
            return
        self._note_term(message.term)
        context.flood(message, now, link)
        if self._is_own_election(message.term) and message.nom == context.id:
            self._pledges.add(message.id)
            self._count_pledges(now)

    def call_received(self, message: Call, link: PeerLink, now: float) -> None:
        """Handle the call for votes of a nominee."""
        context = self._context
        if not self._seen_calls.add(message.term):
            return
        self._note_term(message.term)
        context.flood(message, now, link)
        durable = context.durable
        bound = durable.voted == message.term and durable.voter == context.id and durable.nominee != context.id
        if bound and message.term > durable.term and context.may_help(durable.nominee, now):
            self._wait_for_outcome(now)
            self._vote(message.term, durable.nominee, now)

    def elect_received(self, message: Elect, link: PeerLink, now: float) -> None:
        """Handle a vote."""
        context = self._context
        if message.id not in context.registry:
            context.counters["unregistered_elect"] += 1
            return
        if not self._seen_votes.add((message.term, message.id)):
            return
        self._note_term(message.term)
        context.flood(message, now, link)
        if self._is_own_election(message.term) and self._call_sent and message.nom == context.id:
            self._votes.add(message.id)
            self._count_votes()

    # Time

    def tick(self, now: float) -> None:
        """Nominate this node or consider an early nomination, if due."""
        context = self._context
        if context.id is None or context.role is Role.LEADER:
            return
        self._answer_early(now)
        if self.next_nomination > now:
            return
        if context.leader is not None and context.role is Role.COHORT:
            context.follow(None, context.durable.term, now)
        if now < self.backoff_until or len(context.registry) < context.quorum:
            self.postpone(now)
        else:
            self.nominate(now)

    def next_deadline(self) -> float:
        """Return the time of the next :meth:`tick`."""
        context = self._context
        if context.id is None or context.role is Role.LEADER:
            return inf
        if self._early_nomination is not None:
            return min(self.next_nomination, context.durable.until)
        return self.next_nomination

    # Helpers

    def _note_term(self, term: int) -> None:
        # Terms far ahead are ignored: following the highest possible term would prevent any later election.
        if term <= max(self._highest, self._context.durable.term) + 2**32:
            self._highest = max(self._highest, term)

    def _known(self, voters: set[int]) -> int:
        return len(voters & self._context.registry.ids())

    def _is_own_election(self, term: int) -> bool:
        return self._context.role is Role.NOMINEE and term == self._term

    def _enter_term(self, term: int, now: float) -> None:
        context = self._context
        self._term, self._call_sent = term, False
        self._pledges.clear()
        self._votes.clear()
        self._early_nomination = None
        context.follow(None, context.durable.term, now)
        self._wait_for_outcome(now)

    def _wait_for_outcome(self, now: float) -> None:
        self.next_nomination = now + self._context.rng.uniform(*self._context.timers.max_vote)

    def _consider(self, message: Nominate, now: float) -> None:
        context = self._context
        durable = context.durable
        if message.term <= max(durable.term, durable.voted):
            return
        if not context.may_help(message.id, now):
            if self._early_nomination is None or message.term > self._early_nomination[0].term:
                self._early_nomination = message, now
            context.counters["nominations_too_early"] += 1
            return
        self._enter_term(message.term, now)
        me = context.id
        assert me is not None, "a node with bound links has an id"
        context.update_durable(voted=message.term, nominee=message.id, voter=me)
        context.apply_role_input("pledged", f"it votes for {message.id} in term {message.term}")
        self._seen_pledges.add((message.term, me))
        context.flood(Pledge(message.term, message.id, me), now)

    def _answer_early(self, now: float) -> None:
        if self._early_nomination is None:
            return
        message, since = self._early_nomination
        context = self._context
        if now - since > _EARLY_NOMINATION_TTL * context.timers.scale or message.id not in context.registry:
            self._early_nomination = None
        elif context.may_help(message.id, now):
            self._early_nomination = None
            self._consider(message, now)

    def _count_pledges(self, now: float) -> None:
        context = self._context
        me = context.id
        if (
            self._call_sent
            or me is None
            or self._known(self._pledges) < context.quorum
            or not context.may_help(me, now)
        ):
            return
        self._call_sent = True
        self._seen_calls.add(self._term)
        self._wait_for_outcome(now)
        context.flood(Call(self._term), now)
        self._votes.add(me)
        self._vote(self._term, me, now)
        self._count_votes()

    def _vote(self, term: int, nominee: int, now: float) -> None:
        context = self._context
        me = context.id
        assert me is not None, "a voter has an id"
        if self._seen_votes.add((term, me)):
            context.flood(Elect(term, nominee, me), now)

    def _count_votes(self) -> None:
        if self._known(self._votes) >= self._context.quorum:
            self.won_term = self._term
