"""Raft member (Ongaro and Ousterhout 2014), in memory.

Differences from the paper: a member is one incarnation of a node, so a node that lost its persistent state is a new
member. A membership change takes effect when it is committed, by a quorum of the old members. docs/one-order.md argues
why properties P1 to P5 hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Membership,
    RaftMessage,
    RequestVote,
    RequestVoteReply,
    Snapshot,
)
from fyrehose_twisted.consensus.replication import LogReplication

HEARTBEAT_INTERVAL = 1.0
"""Seconds between heartbeats of a leader."""
CHECK_QUORUM_TIMEOUT = 3.0
"""Seconds without replies from a quorum after which a leader steps down."""


class RaftRole(Enum):
    """Role of a member."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "asking"
    """Collects pre-votes."""
    CANDIDATE = "candidate"
    LEADER = "leader"


class RaftMember:
    """Raft state of one node. The user calls :meth:`flush`, makes changes durable, sends :attr:`outbox`, and applies
    :attr:`committed`.

    :param me: this incarnation of the node.
    :param log: its replicated log.
    :param snapshot: returns a snapshot of the applied state.
    :ivar outbox: messages to send, each with its receiver.
    :ivar committed: committed entries to apply, each with its index.
    :ivar members: voters, as committed.
    :ivar leader: the leader, if known.
    :ivar dirty: whether term, vote, membership or log changed since they were made durable.
    :ivar first_unpersisted: index of the first entry that is not durable; 0 if all are.
    :ivar elections: elections that this node started.
    """

    def __init__(
        self, me: MemberId, rng: Random, now: float, log: RaftLog, snapshot: Callable[[], Snapshot], *, term: int = 0
    ) -> None:
        self.me = me
        self.log = log
        self.term = term
        self.voted_for: MemberId | None = None
        self.role = RaftRole.FOLLOWER
        self.leader: MemberId | None = None
        self._membership: Membership | None = None
        self.members: frozenset[MemberId] = frozenset()
        self.commit_index = log.snapshot_index
        self.outbox: list[tuple[MemberId, RaftMessage]] = []
        self.committed: list[tuple[int, LogEntry]] = []
        self.dirty = False
        self.first_unpersisted = 0
        self.replication = LogReplication(log, self.outbox, snapshot)
        self.elections = 0
        self._timer = ElectionTimer(rng, now)
        self._votes: set[MemberId] = set()
        self._pending_replies: dict[MemberId, AppendEntriesReply] = {}
        self._membership_index = 0
        self._term_start_index = 0

    # State

    @property
    def membership(self) -> Membership | None:
        """Committed membership; ``None`` before it is known."""
        return self._membership

    @membership.setter
    def membership(self, membership: Membership) -> None:
        self._membership = membership
        self.members = frozenset(member for member, _ in membership.members)

    @property
    def is_voter(self) -> bool:
        """Whether this node is a voter."""
        return self.me in self.members

    @property
    def is_leader(self) -> bool:
        """Whether this node leads."""
        return self.role is RaftRole.LEADER

    @property
    def has_committed_in_term(self) -> bool:
        """Whether this node leads and committed an entry of its own term, so that its commit index is current."""
        return self.is_leader and self.commit_index >= self._term_start_index

    @property
    def membership_change_pending(self) -> bool:
        """Whether a membership change is not committed yet."""
        return self._membership_index > self.commit_index

    def seconds_since_leader(self, now: float) -> float:
        """Return the seconds since the leader was last heard; on the leader, since a quorum replied."""
        if not self.is_leader:
            return now - self._timer.leader_heard_at
        membership = self.membership
        return inf if membership is None else self.replication.seconds_since_quorum(membership, self.me, now)

    def next_deadline(self) -> float:
        """Return the time at which :meth:`tick` is due."""
        return min(self._timer.deadline, self.replication.commit_notice_at)

    def _peers(self) -> list[MemberId]:
        return [] if self.membership is None else [member for member, _ in self.membership.members if member != self.me]

    # Commands

    def install_snapshot(self, index: int, term: int, membership: Membership | None) -> None:
        """Replace the log up to ``index`` by a snapshot that the user has applied."""
        self.log.reset(index, term)
        self.commit_index = self.replication.commit_index = index
        self.committed.clear()
        self.first_unpersisted = 0
        if membership is not None:
            self.membership = membership

    def restore(self, commit_index: int) -> None:
        """Commit entries that were committed before a restart, up to ``commit_index``."""
        self._commit_up_to(min(commit_index, self.log.last_index))

    def bootstrap(self, data: Any, now: float, term: int = 1) -> None:
        """Bootstrap a cluster of this node alone, keeping its log.

        :param data: data attached to this node in the membership.
        """
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
        """Elect a new leader soon, because the current one is known to be dead."""
        if self.is_leader or self._timer.leader_lost:
            return
        self.leader = None
        self._timer.lose_leader(now)

    def step_down(self, now: float) -> None:
        """Give up leadership, if this node leads."""
        if self.is_leader:
            self._become_follower(None, now)

    # Inputs

    def tick(self, now: float) -> None:
        """Carry out what is due at ``now``."""
        self.replication.tick(now)
        if now < self._timer.deadline:
            return
        if self.is_leader:
            if self.seconds_since_leader(now) > CHECK_QUORUM_TIMEOUT:
                self._become_follower(None, now)
                return
            self._timer.deadline = now + HEARTBEAT_INTERVAL
            self.replication.send_heartbeats()
        elif self.is_voter:
            self._start_pre_vote(now)
        else:
            self._timer.postpone(now)

    def request_vote_received(self, message: RequestVote, sender: MemberId, now: float) -> None:
        """Answer a vote request."""
        log = self.log
        current = (message.last_term, message.last_index) >= (log.last_term, log.last_index)
        loyal = self.is_leader or (self.leader not in (None, sender) and self._timer.is_leader_present(now))
        if message.trial:
            granted = message.term > self.term and current and not loyal
            self.outbox.append((sender, RequestVoteReply(message.term if granted else self.term, granted, True)))
            return
        if message.term > self.term and not loyal:
            self._enter_term(message.term)
            self._become_follower(None, now)
        granted = message.term == self.term and current and not loyal and self.voted_for in (None, sender)
        if granted and self.voted_for is None:
            self.voted_for = sender
            self.dirty = True
        if granted:
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

    def append_entries_received(self, message: AppendEntries, sender: MemberId, now: float) -> bool:
        """Append entries from the leader; return whether the sender is a current leader."""
        if message.term < self.term:
            self._pending_replies[sender] = AppendEntriesReply(self.term, False, self.log.last_index)
            return False
        if self.is_leader and message.term == self.term:
            return False  # A term has one leader. The sender is faulty.
        self._accept_leader(message.term, sender, now)
        log, previous, entries = self.log, message.previous, message.entries
        if previous < log.snapshot_index:
            # Entries covered by the snapshot were committed, so they are equal.
            skip = log.snapshot_index - previous
            if len(entries) < skip:
                self._pending_replies[sender] = AppendEntriesReply(self.term, True, previous + len(entries))
                return True
            entries = entries[skip:]
            previous = log.snapshot_index
        elif log.term_at(previous) != message.previous_term:
            hint = log.last_possible_match(previous, message.previous_term, self.commit_index)
            self._pending_replies[sender] = AppendEntriesReply(self.term, False, hint)
            return True
        last = previous + len(entries)
        known = log.matching_entries(previous, entries)
        if known < len(entries):
            index = previous + 1 + known
            if index <= log.last_index:
                log.truncate_from(index)
                self._mark_unpersisted(index)
            self._append_to_log(entries[known:])
        self._pending_replies[sender] = AppendEntriesReply(self.term, True, last)
        self._commit_up_to(min(message.commit, last))
        return True

    def append_entries_reply_received(self, message: AppendEntriesReply, sender: MemberId, now: float) -> bool:
        """Process a follower's reply; return whether this node has anything new to send or apply."""
        if self._step_down_if_stale(message.term, now):
            return True
        if not self.is_leader or message.term != self.term:
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
        if not self._step_down_if_stale(message.term, now) and self.is_leader:
            self.replication.install_snapshot_reply_received(message, sender, now)

    def install_snapshot_received(self, term: int, sender: MemberId, now: float) -> bool:
        """Follow the sender of a snapshot; return whether it is a current leader."""
        if term < self.term or (self.is_leader and term == self.term):
            return False
        self._accept_leader(term, sender, now)
        return True

    # Log and commit index

    def flush(self, now: float) -> None:
        """Put pending entries and replies into :attr:`outbox`."""
        if self.is_leader:
            if self.membership is not None and self.membership.quorum == 1:
                self._advance_commit(now)
            self.replication.flush()
        if self._pending_replies:
            self.outbox.extend(self._pending_replies.items())
            self._pending_replies.clear()

    def _append_to_log(self, entries: Iterable[LogEntry]) -> None:
        entries = list(entries)
        self._mark_unpersisted(self.log.last_index + 1)
        self.log.append(entries)
        for entry in entries:
            if entry.kind is EntryKind.MEMBERSHIP:
                self._membership_index = self.log.last_index

    def _mark_unpersisted(self, index: int) -> None:
        self.dirty = True
        self.first_unpersisted = index if not self.first_unpersisted else min(self.first_unpersisted, index)

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
        for position in range(self.commit_index + 1, index + 1):
            entry = self.log.entry_at(position)
            if entry.kind is EntryKind.MEMBERSHIP:
                self.membership = entry.content
                self.dirty = True
            self.committed.append((position, entry))
        self.commit_index = self.replication.commit_index = max(self.commit_index, index)

    def _membership_changed(self, now: float) -> None:
        if not self.is_voter:
            self._become_follower(None, now)
            return
        self.replication.add_followers(self._peers(), now)
        self.replication.broadcast_commit()

    # Elections

    def _enter_term(self, term: int) -> None:
        self.term = term
        self.voted_for = None
        self.dirty = True

    def _accept_leader(self, term: int, leader: MemberId, now: float) -> None:
        if term > self.term:
            self._enter_term(term)
        if self.role is not RaftRole.FOLLOWER or self.leader != leader:
            self._become_follower(leader, now)
        self._timer.leader_heard(now)

    def _step_down_if_stale(self, term: int, now: float) -> bool:
        if term > self.term:
            self._enter_term(term)
            self._become_follower(None, now)
            return True
        return False

    def _become_follower(self, leader: MemberId | None, now: float) -> None:
        if self.is_leader:
            self._timer.leader_heard_at = now - self.seconds_since_leader(now)
        self.role = RaftRole.FOLLOWER
        self.leader = leader
        self.replication.stop()
        self._votes.clear()
        self._timer.follow(now)

    def _start_pre_vote(self, now: float) -> None:
        """Ask the others whether they would vote for this node."""
        self.role = RaftRole.PRE_CANDIDATE
        self.leader = None
        self._votes = {self.me}
        self._timer.candidacy_started(now)
        self._request_votes(self.term + 1, pre_vote=True)
        self._count_votes(now)

    def _count_votes(self, now: float) -> None:
        membership = self.membership
        if membership is None or len(self.members & self._votes) < membership.quorum:
            return
        if self.role is RaftRole.CANDIDATE:
            self._become_leader(now, None)
            return
        self._enter_term(self.term + 1)
        self.elections += 1
        self.voted_for = self.me
        self.role = RaftRole.CANDIDATE
        self._votes = {self.me}
        self._timer.candidacy_started(now)
        self._request_votes(self.term, pre_vote=False)
        self._count_votes(now)

    def _request_votes(self, term: int, *, pre_vote: bool) -> None:
        request = RequestVote(term, self.log.last_index, self.log.last_term, pre_vote)
        self.outbox.extend((member, request) for member in self._peers())

    def _become_leader(self, now: float, bootstrap_membership: Membership | None) -> None:
        self.role = RaftRole.LEADER
        self.leader = self.me
        self._timer.leader_lost = False
        self._pending_replies.clear()
        changed = self.log.last_membership(self.commit_index)
        self._membership_index = 0 if changed is None else changed[0]
        self.replication.start(self.term, self._peers(), now)
        kind = EntryKind.NO_OP if bootstrap_membership is None else EntryKind.MEMBERSHIP
        self._term_start_index = self.propose(LogEntry(self.term, kind, bootstrap_membership))
        self._timer.deadline = now + HEARTBEAT_INTERVAL
        self._advance_commit(now)
