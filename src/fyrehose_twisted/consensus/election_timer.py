"""Timing of elections."""

from __future__ import annotations

from math import inf
from random import Random

ELECTION_TIMEOUT = (2.2, 3.6)
"""Seconds of silence after which a follower starts a pre-vote; drawn for each leader."""
FAST_ELECTION_TIMEOUT = (0.01, 0.15)
"""Election timeout in seconds once the leader is known to be dead."""
ELECTION_RETRY = (0.15, 0.6)
"""Seconds after which a candidate without a majority retries."""
LEADER_STICKINESS = 2.0
"""Seconds after the leader's last message during which votes for other candidates are refused."""


class ElectionTimer:
    """Silence of the leader as one member observes it, and the time at which the member acts on it.

    :ivar deadline: time at which a follower or candidate starts an election, or a leader sends heartbeats.
    :ivar leader_heard_at: time of the leader's last message.
    :ivar leader_lost: whether the leader is known to be dead.
    """

    def __init__(self, rng: Random, now: float) -> None:
        self.leader_heard_at = -inf
        self.leader_lost = False
        self._rng = rng
        self._timeout = rng.uniform(*ELECTION_TIMEOUT)
        self.deadline = now + self._timeout

    def is_leader_present(self, now: float) -> bool:
        """Return whether the leader was heard so recently that no election is needed."""
        return not self.leader_lost and now - self.leader_heard_at < LEADER_STICKINESS

    def leader_heard(self, now: float) -> None:
        """Record a message of the leader."""
        self.leader_heard_at = now
        self.leader_lost = False
        self.deadline = now + self._timeout

    def lose_leader(self, now: float) -> None:
        """Record that the leader is known to be dead."""
        self.leader_lost = True
        self.deadline = min(self.deadline, now + self._rng.uniform(*FAST_ELECTION_TIMEOUT))

    def follow(self, now: float) -> None:
        """Begin to wait for a new leader."""
        self._timeout = self._rng.uniform(*ELECTION_TIMEOUT)
        self.deadline = now + self._timeout

    def postpone(self, now: float) -> None:
        """Leave the election to others for one timeout."""
        self.deadline = now + self._rng.uniform(*ELECTION_TIMEOUT)

    def candidacy_started(self, now: float) -> None:
        """Wait for votes before a retry."""
        self.deadline = now + self._rng.uniform(*ELECTION_RETRY)
