"""Lease of a leader: the time until which no other member can have been elected.

A leader with a lease needs no round trip to know that it still leads. The lease rests on an assumption that Raft itself
does without: the clocks of any two members run at rates that differ by less than a known factor. Terms and votes are
as they were, so even with broken clocks a term has one leader, and committed entries stay.

The leader sends a round to all members and takes the time *before* it sends it. A member that answers has promised, by
:meth:`RaftMember.lease_round_received <fyrehose_twisted.consensus.member.RaftMember.lease_round_received>`, to vote for
no other member for ``timers.stickiness`` seconds of its own clock, from a time that is not before the round was sent.
Any quorum that elects another leader shares a member with the quorum that answered. So no other leader exists until
``stickiness`` seconds of that member's clock after the round was sent, and the lease must be shorter than that by the
factor by which rates may differ: 0.8 s and 0.9 s tolerate 12 %.

A promise ends early in two cases. Both leave no lease that it could break:

- The member knows that the leader is dead
  (:meth:`~fyrehose_twisted.consensus.member.RaftMember.leader_lost`). The user must be sure of that. A silent leader,
  or one whose connection merely broke, may live.
- A candidate of term *T* + 1 says that the leader of *T* ordered its election
  (:class:`~fyrehose_twisted.consensus.messages.ForcedRequestVote`). The voter cannot verify it, and need not: if the
  candidate is not elected, its request had no effect on leases. If it is, the leader of *T* had given up its lease for
  the rest of *T*. Leases of earlier leaders were over when the leader of *T* was elected, and the leader of *T* + 1 is
  the candidate itself. The request cannot be used for another term, because each retry has a higher term and is not
  forced.

A member forgets its promises in a restart, so it is given ``quiet_until``.
"""

from __future__ import annotations

from collections import deque
from math import inf

from fyrehose_twisted.consensus.messages import MemberId, Membership


class LeaderLease:
    """Lease of one member while it leads. Times are of its own clock.

    :param duration: seconds from sending a round to the end of the lease that it founds.
    """

    def __init__(self, duration: float) -> None:
        self._duration = duration
        self._number = 0
        self._rounds: deque[tuple[int, float]] = deque()
        self._promised: dict[MemberId, float] = {}
        self._given_up = False

    def start_round(self, now: float) -> int:
        """Start a round, and return its number. Take the time, call this, then send the round to all members."""
        self._number += 1
        while self._rounds and self._rounds[0][1] + self._duration <= now:
            self._rounds.popleft()
        self._rounds.append((self._number, now))
        return self._number

    def round_answered(self, member: MemberId, number: int) -> None:
        """Record that ``member`` answered a round in the term in which this member leads."""
        for started, sent_at in self._rounds:
            if started == number:
                self._promised[member] = max(sent_at, self._promised.get(member, -inf))
                return

    def until(self, membership: Membership, me: MemberId) -> float:
        """Return the end of the lease of ``me``; -infinity if it has none.

        :param membership: committed membership.
        """
        members = [member for member, _ in membership.members]
        if self._given_up or not self._rounds or me not in members:
            return -inf
        promised = sorted((self._promised.get(member, -inf) for member in members if member != me), reverse=True)
        sent_at = self._rounds[-1][1]
        return (promised[membership.quorum - 2] if membership.quorum > 1 else sent_at) + self._duration

    def give_up(self) -> None:
        """Give up the lease for the rest of the term, before the leadership is transferred."""
        self._given_up = True

    def reset(self) -> None:
        """Begin a term without a lease."""
        self._rounds.clear()
        self._promised.clear()
        self._given_up = False
