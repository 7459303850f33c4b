"""Raft member (Ongaro and Ousterhout 2014), in memory.

Differences from the paper: a member is one incarnation of a node, so a node that lost its persistent state is a new
member. A membership change takes effect when it is committed, by a quorum of the old members. docs/one-order.md argues
why properties P1 to P5 hold.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf
from random import Random
from typing import Any

from fyrehose_twisted.consensus.election_timer import ElectionTimer
from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    ForcedRequestVote,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Membership,
    RaftMessage,
    RequestVote,
    RequestVoteReply,
    Snapshot,
    StartElection,
)
from fyrehose_twisted.consensus.replication import LogReplication
from fyrehose_twisted.consensus.state import RaftState
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS, RaftTimers
from fyrehose_twisted.consensus.transfer import LeadershipTransfer


class RaftRole(Enum):
    """Role of a member."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "asking"
    """Collects pre-votes."""
    CANDIDATE = "candidate"
    LEADER = "leader"


class RaftMember(RaftState):
    """Raft state of one node. The user calls :meth:`flush`, makes changes durable, sends :attr:`outbox`, and applies
    :attr:`committed`.

    The user reports new and lost connections to :attr:`replication`, and may drop any message. Votes and transfers have
    deadlines. :class:`~fyrehose_twisted.consensus.replication.LogReplication` repairs the loss of entries.

    :param snapshot: returns a snapshot of the applied state.
    :param timers: timers, equal at all members.
    :param quiet_until: time before which this node neither votes nor starts an election, unless its leader is known to
        be dead or transfers its leadership. In a group with leases, a member that restarts does not remember its
        promises, so it is quiet for ``timers.stickiness``.
    :param may_lead: whether this node may be elected. One that may not is a witness: it votes, and leads only if no
        other member can be elected without the end of its log, until one has that.
    :ivar outbox: messages to send, each with its receiver.
    :ivar leader: the leader, if known.
    :ivar elections: elections that this node started.
    """

    def __init__(
        self,
        me: MemberId,
        rng: Random,
        now: float,
        log: RaftLog,
        snapshot: Callable[[], Snapshot],
        *,
        term: int = 0,
        timers: RaftTimers = DEFAULT_TIMERS,
        quiet_until: float = -inf,
        may_lead: bool = True,
    ) -> None:
        super().__init__(me, log, term)
        self.timers = timers
        self.may_lead = may_lead
        self.role = RaftRole.FOLLOWER
        self.leader: MemberId | None = None
        self.outbox: list[tuple[MemberId, RaftMessage]] = []
        self.replication = LogReplication(log, self.outbox, snapshot, timers)
        self.elections = 0
        self._timer = ElectionTimer(rng, now, timers, quiet_until)
        self._votes: set[MemberId] = set()
        self._pending_replies: dict[MemberId, AppendEntriesReply] = {}
        self._term_start_index = 0
        self._transfer = LeadershipTransfer(self, self.replication, self.outbox, timers.retry[1])
        self._is_needed = False

    # State

    @property
    def is_leader(self) -> bool:
        """Whether this node leads, and may use it."""
        return self.role is RaftRole.LEADER and self.may_lead

    @property
    def is_transferring(self) -> bool:
        """Whether this node leads, but ordered another one to take over, so it must not use its lease in this term."""
        return self._transfer.successor is not None

    @property
    def _leads(self) -> bool:
        return self.role is RaftRole.LEADER

    @property
    def has_committed_in_term(self) -> bool:
        """Whether this node leads and committed an entry of its own term, so that its commit index is current."""
        return self.is_leader and self.commit_index >= self._term_start_index

    def seconds_since_leader(self, now: float) -> float:
        """Return the seconds since the leader was last heard; on the leader, since a quorum replied."""
        if not self._leads:
            return now - self._timer.leader_heard_at
        membership = self.membership
        return inf if membership is None else self.replication.seconds_since_quorum(membership, self.me, now)

    def next_deadline(self) -> float:
        """Return the time at which :meth:`tick` is due."""
        return min(self._timer.deadline, self.replication.commit_notice_at)

    # Commands

    def install_snapshot(self, index: int, term: int, membership: Membership | None) -> None:
        """See :meth:`~fyrehose_twisted.consensus.state.RaftState.install_snapshot`."""
        super().install_snapshot(index, term, membership)
        self.replication.commit_index = index

    def bootstrap(self, data: Any, now: float, term: int = 1) -> None:
        """Bootstrap a cluster of this node alone, keeping its log.

        :param data: data attached to this node in the membership.
        """
        assert self.may_lead, "a witness bootstraps no group"
        self._enter_term(term)
        self.membership = Membership(((self.me, data),))
        self.voted_for = self.me
        self._become_leader(now, Membership(((self.me, data),)))

    def propose(self, entry: LogEntry) -> int:
        """Append an entry to the leader's log; return its index."""
        self._append_to_log([entry])
        return self.log.last_index

    def propose_membership(self, membership: Membership) -> None:
        """Propose a membership that differs by one member.

        Call it only on a leader that :attr:`has_committed_in_term`, with no other change pending.
        """
        self._membership_index = self.propose(LogEntry(self.term, EntryKind.MEMBERSHIP, membership))

    def leader_lost(self, now: float) -> None:
        """Elect a new leader soon, because the current one is known to be dead.

        Call it only if :attr:`leader` is known to be dead: it ends the promise not to vote that a lease relies on.
        """
        if self._leads or self._timer.leader_lost:
            return
        self.leader = None
        self._timer.lose_leader(now)

    def transfer(self, target: MemberId, now: float) -> bool:
        """Order ``target`` to take over the leadership at once; return whether it could be ordered to.

        It must be a voter that may lead, is connected, and has the whole log, so propose nothing meanwhile. Before the
        call, give up the lease for the rest of the term: whenever the order arrives, all members may vote for the
        target. If it is not elected within ``timers.retry[1]``, this node starts an election itself.
        """
        if not self._transfer.order(target, now):
            return False
        self._timer.deadline = min(self._timer.deadline, self._transfer.deadline)
        return True

    def step_down(self, now: float) -> None:
        """Give up leadership, if this node leads."""
        if self._leads:
            self._become_follower(None, now)

    # Inputs

    def tick(self, now: float) -> None:
        """Carry out what is due at ``now``."""
        self.replication.tick(now)
        if now < self._timer.deadline:
            return
        if self._leads:
            if self.seconds_since_leader(now) > self.timers.check_quorum:
                self._become_follower(None, now)
                return
            if now >= self._transfer.deadline and self.may_lead:
                self._become_follower(None, now)
                self._start_election(now, forced=True)
                return
            self._timer.deadline = now + self.timers.heartbeat
            if now < self._transfer.deadline:  # A witness whose successor failed waits for another one.
                self._timer.deadline = min(self._timer.deadline, self._transfer.deadline)
            self.replication.send_heartbeats()
        elif not self.is_voter or not (self.may_lead or self._is_needed):
            self._timer.postpone(now)
        elif now < self._timer.promised_until:
            self._timer.deadline = self._timer.promised_until
        else:
            self._start_pre_vote(now)

    def request_vote_received(self, message: RequestVote | ForcedRequestVote, sender: MemberId, now: float) -> None:
        """Answer a vote request."""
        log = self.log
        current = (message.last_term, message.last_index) >= (log.last_term, log.last_index)
        forced = isinstance(message, ForcedRequestVote)
        loyal = self._leads or not self._timer.may_vote_for(sender, now)
        if not (current or loyal or self.may_lead):
            self._refused_for_its_log(now)
        loyal = loyal and not forced
        if isinstance(message, RequestVote) and message.trial:
            granted = message.term > self.term and current and not loyal
            self.outbox.append((sender, RequestVoteReply(message.term if granted else self.term, granted, True)))
            return
        if message.term > self.term and not loyal:
            if forced or sender == self._timer.leader:
                self._timer.release()  # The leader no longer leads.
            self._enter_term(message.term)
            self._become_follower(None, now)
        granted = message.term == self.term and current and not loyal and self.voted_for in (None, sender)
        if granted and self.voted_for is None:
            self.voted_for = sender
            self.dirty = True
        if granted:
            self._is_needed = False
            self._timer.postpone(now)
        self.outbox.append((sender, RequestVoteReply(self.term, granted, False)))

    def request_vote_reply_received(self, message: RequestVoteReply, sender: MemberId, now: float) -> None:
        """Count a vote."""
        if not message.granted:
            if message.term > self.term:
                self._enter_term(message.term)
                self._become_follower(None, now)
            return
        if message.trial:
            if self.role is not RaftRole.PRE_CANDIDATE or message.term != self.term + 1:
                return
        elif self.role is not RaftRole.CANDIDATE or message.term != self.term:
            return
        self._votes.add(sender)
        self._count_votes(now)

    def start_election_received(self, message: StartElection, sender: MemberId, now: float) -> None:
        """Start an election at once, because the leader transfers its leadership to this node."""
        if message.term == self.term and sender == self.leader and self.is_voter and self.may_lead:
            self._start_election(now, forced=True)

    def lease_round_received(self, term: int, sender: MemberId, now: float) -> bool:
        """Follow the sender of a lease round; return whether it is a current leader, so that the round is answered.

        The answer promises not to vote for another member for ``timers.stickiness``, except where this node's
        docstrings say so. See :class:`~fyrehose_twisted.consensus.lease.LeaderLease`.
        """
        return self._follow_sender(term, sender, now)

    def append_entries_received(self, message: AppendEntries, sender: MemberId, now: float) -> bool:
        """Append entries from the leader; return whether the sender is a current leader."""
        if message.term < self.term:
            self._pending_replies[sender] = AppendEntriesReply(self.term, False, self.log.last_index)
            return False
        if self._leads and message.term == self.term:
            return False  # A term has one leader. The sender is faulty.
        self._accept_leader(message.term, sender, now)
        self._pending_replies[sender] = self._take_entries(message)
        return True

    def append_entries_reply_received(self, message: AppendEntriesReply, sender: MemberId, now: float) -> bool:
        """Process a follower's reply; return whether this node has anything new to send or apply."""
        if self._step_down_if_stale(message.term, now):
            return True
        if not self._leads or message.term != self.term:
            return False
        if not self.replication.append_entries_reply_received(message, sender, now):
            return not message.taken
        if message.index > self.commit_index:
            before = self.commit_index
            self._advance_commit(now)
            return self.commit_index != before or message.index < self.log.last_index
        self.replication.schedule_commit_notice(now)
        return message.index < self.log.last_index

    def install_snapshot_reply_received(self, message: InstallSnapshotReply, sender: MemberId, now: float) -> None:
        """Process a follower's reply to a snapshot chunk."""
        if not self._step_down_if_stale(message.term, now) and self._leads:
            self.replication.install_snapshot_reply_received(message, sender, now)

    def install_snapshot_received(self, term: int, sender: MemberId, now: float) -> bool:
        """Follow the sender of a snapshot; return whether it is a current leader."""
        return self._follow_sender(term, sender, now)

    def _follow_sender(self, term: int, sender: MemberId, now: float) -> bool:
        if term < self.term or (self._leads and term == self.term):
            return False
        self._accept_leader(term, sender, now)
        return True

    # Log and commit index

    def flush(self, now: float) -> None:
        """Put pending entries and replies into :attr:`outbox`."""
        if self._leads:
            if self.membership is not None and self.membership.quorum == 1:
                self._advance_commit(now)
            self.replication.flush()
            if not self.may_lead:
                self._transfer.order_next(now)
        if self._pending_replies:
            self.outbox.extend(self._pending_replies.items())
            self._pending_replies.clear()

    def _advance_commit(self, now: float) -> None:
        """Commit the entries that a quorum has."""
        while self.membership is not None:
            index = self.replication.quorum_index(self.membership, self.me)
            if index <= self.commit_index or self.log.term_at(index) != self.term:
                return
            if self.commit_index < self._membership_index < index:
                index = self._membership_index  # Later entries need a quorum of the new membership.
            before = self.membership
            self._commit_up_to(index)
            if self.membership is not before:
                self._membership_changed(now)
            else:
                self.replication.schedule_commit_notice(now)

    def _commit_up_to(self, index: int) -> None:
        super()._commit_up_to(index)
        self.replication.commit_index = self.commit_index

    def _membership_changed(self, now: float) -> None:
        if not self.is_voter:
            self._become_follower(None, now)
            return
        self.replication.add_followers(self.peers, now)
        self.replication.broadcast_commit()

    # Elections

    def _accept_leader(self, term: int, leader: MemberId, now: float) -> None:
        if term > self.term:
            self._enter_term(term)
        if self.role is not RaftRole.FOLLOWER or self.leader != leader:
            self._become_follower(leader, now)
        self._timer.leader_heard(leader, now)
        self._is_needed = False

    def _step_down_if_stale(self, term: int, now: float) -> bool:
        if term > self.term:
            self._enter_term(term)
            self._become_follower(None, now)
            return True
        return False

    def _become_follower(self, leader: MemberId | None, now: float) -> None:
        if self._leads:
            self._timer.leader_heard_at = now - self.seconds_since_leader(now)
        self.role = RaftRole.FOLLOWER
        self.leader = leader
        self.replication.stop()
        self._votes.clear()
        self._transfer.end()
        self._timer.follow(now)

    def _start_pre_vote(self, now: float) -> None:
        """Ask the others whether they would vote for this node."""
        self.role = RaftRole.PRE_CANDIDATE
        self.leader = None
        self._votes = {self.me}
        self._timer.candidacy_started(now)
        self._ask_for_votes(RequestVote(self.term + 1, self.log.last_index, self.log.last_term, trial=True))
        self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        membership = self.membership
        if membership is None or len(self.members & self._votes) < membership.quorum:
            return
        if self.role is RaftRole.CANDIDATE:
            self._become_leader(now, None)
            return
        self._start_election(now)

    def _start_election(self, now: float, *, forced: bool = False) -> None:
        self._enter_term(self.term + 1)
        self.elections += 1
        self.leader = None
        self.voted_for = self.me
        self.role = RaftRole.CANDIDATE
        self._votes = {self.me}
        self._timer.candidacy_started(now)
        last_index, last_term = self.log.last_index, self.log.last_term
        if forced:
            self._ask_for_votes(ForcedRequestVote(self.term, last_index, last_term))
        else:
            self._ask_for_votes(RequestVote(self.term, last_index, last_term, trial=False))
        self._count_votes(now)

    def _ask_for_votes(self, request: RequestVote | ForcedRequestVote) -> None:
        self.outbox.extend((member, request) for member in self.peers)

    def _become_leader(self, now: float, bootstrap_membership: Membership | None) -> None:
        self.role = RaftRole.LEADER
        self.leader = self.me
        self._timer.leader_lost = False
        self._timer.release()
        self._is_needed = False
        self._pending_replies.clear()
        changed = self.log.last_membership(self.commit_index)
        self._membership_index = 0 if changed is None else changed[0]
        self.replication.start(self.term, self.peers, now)
        kind = EntryKind.NO_OP if bootstrap_membership is None else EntryKind.MEMBERSHIP
        self._term_start_index = self.propose(LogEntry(self.term, kind, bootstrap_membership))
        self._timer.deadline = now + self.timers.heartbeat
        self._advance_commit(now)

    # Witness

    def _refused_for_its_log(self, now: float) -> None:
        """Lead for a moment unless another member does soon: the candidate needs the end of this node's log."""
        if not self._is_needed:
            self._is_needed = True
            self._timer.deadline = min(self._timer.deadline, now + self.timers.retry[1])
