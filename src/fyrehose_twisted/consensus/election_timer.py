"""Timing of elections."""

from __future__ import annotations

from math import inf
from random import Random

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS, RaftTimers


class ElectionTimer:
    """Silence of the leader as one member observes it, and the time at which the member acts on it.

    :param quiet_until: time before which the member neither votes nor starts an election, because it does not remember
        when it last heard a leader.
    :ivar deadline: time at which a follower or candidate starts an election, or a leader sends heartbeats.
    :ivar leader: the last leader that was heard, also after its term.
    :ivar leader_heard_at: time of the leader's last message.
    :ivar leader_lost: whether the leader is known to be dead.
    """

    def __init__(self, rng: Random, now: float, timers: RaftTimers = DEFAULT_TIMERS, quiet_until: float = -inf) -> None:
        self.leader_heard_at = -inf
        self.leader_lost = False
        self.quiet_until = quiet_until
        self.leader: MemberId | None = None
        self._rng = rng
        self._timers = timers
        self._timeout = rng.uniform(*timers.election)
        self.deadline = max(now + self._timeout, quiet_until)

    @property
    def promised_until(self) -> float:
        """Time until which votes for others than the leader are refused.

        A promise holds even if the leader's term is over: a leader that does not know it yet may still use its lease.
        """
        promised = self.leader is not None and not self.leader_lost
        return max(self.quiet_until, self.leader_heard_at + self._timers.stickiness if promised else -inf)

    def may_vote_for(self, candidate: MemberId, now: float) -> bool:
        """Return whether no promise to a leader forbids a vote."""
        return candidate == self.leader or now >= self.promised_until

    def leader_heard(self, leader: MemberId, now: float) -> None:
        """Record a message of the leader."""
        self.leader = leader
        self.leader_heard_at = now
        self.leader_lost = False
        self.deadline = now + self._timeout

    def release(self) -> None:
        """Forget the promises to leaders: they no longer lead."""
        self.leader = None
        self.quiet_until = -inf

    def lose_leader(self, now: float) -> None:
        """Record that the leader is known to be dead."""
        self.leader_lost = True
        self.quiet_until = -inf
        self.deadline = min(self.deadline, now + self._rng.uniform(*self._timers.fast_election))

    def follow(self, now: float) -> None:
        """Begin to wait for a new leader."""
        self._timeout = self._rng.uniform(*self._timers.election)
        self.deadline = now + self._timeout

    def postpone(self, now: float) -> None:
        """Leave the election to others for one timeout."""
        self.deadline = now + self._rng.uniform(*self._timers.election)

    def candidacy_started(self, now: float) -> None:
        """Wait for votes before a retry."""
        self.deadline = now + self._rng.uniform(*self._timers.retry)
