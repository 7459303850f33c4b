"""Timers of a Raft group."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftTimers:
    """Timers in seconds, equal at all members of a group. Pairs are limits between which a time is drawn.

    :ivar heartbeat: interval between heartbeats of a leader.
    :ivar election: silence of the leader after which a follower starts a pre-vote; drawn for each leader. At least
        ``stickiness``, so that a member that promised a lease does not vote for itself either.
    :ivar fast_election: election timeout once the leader is known to be dead.
    :ivar retry: time after which a candidate without a majority, or an unanswered transfer, is followed by another
        election.
    :ivar check_quorum: time without replies from a quorum after which a leader steps down.
    :ivar stickiness: time after the leader's last message during which votes for other candidates are refused.
    :ivar commit_notice: time by which an advanced commit index may be sent late if no entries carry it.
    """

    heartbeat: float = 1.0
    election: tuple[float, float] = (2.2, 3.6)
    fast_election: tuple[float, float] = (0.01, 0.15)
    retry: tuple[float, float] = (0.15, 0.6)
    check_quorum: float = 3.0
    stickiness: float = 2.0
    commit_notice: float = 0.005

    def __post_init__(self) -> None:
        if self.election[0] < self.stickiness:
            raise ValueError(
                f"an election after {self.election[0]:g} s of silence would break the promise to refuse votes for"
                f" {self.stickiness:g} s; raise election to at least stickiness"
            )


DEFAULT_TIMERS = RaftTimers()
"""Timers of a group whose members notice most deaths by their connections, as those of parcels do."""
