from __future__ import annotations

from itertools import combinations

import pytest
from consensus.group import HERE, A, B, C, D, E, Group, entry, events, view_of
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.consensus.member import RaftRole
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    RequestVote,
    RequestVoteReply,
)
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS as TIMERS


def test_a_member_is_elected_within_the_election_timeout() -> None:
    group = Group(A, B, C)
    group.pass_time(TIMERS.election[1] + 1.0)
    leads = [order for order in group.orders.values() if order.is_leader]
    assert len(leads) == 1
    assert leads[0].has_committed_in_term
    assert leads[0].elections == 1
    assert {order.leader for order in group.orders.values()} == {leads[0].me}
    assert {order.term for order in group.orders.values()} == {1}
    first = next(message for _, _, message in group.sent if isinstance(message, RequestVote))
    assert first.trial


def test_no_pre_vote_before_the_election_timeout() -> None:
    group = Group(A, B, C)
    group.pass_time(TIMERS.election[0] - 0.01)
    assert group.sent == []


def test_a_non_voter_never_starts_an_election() -> None:
    group = Group(A, B, C, D, votes=(A, B, C))
    group.close(D, A, B, C)
    group.pass_time(60.0)
    assert not [message for sender, _, message in group.sent if sender == D]
    assert group[D].term == 0


def test_a_leader_with_a_quorum_keeps_its_term() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(60.0)
    assert group[A].is_leader
    assert group[A].term == 1
    assert group[A].seconds_since_leader(group.now) <= TIMERS.heartbeat
    assert group[B].seconds_since_leader(group.now) <= TIMERS.heartbeat


def test_entries_are_committed_by_a_quorum() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.close(A, C)
    index = group[A].propose(entry(1, b"1"))
    group.collect()
    assert group[A].commit_index < index
    group.pump()
    assert group[A].commit_index == index
    group.pass_time(0.01)
    assert group[B].commit_index == index
    assert events(group, A) == events(group, B) == [b"1"]
    group.open(A, C)
    group.pass_time(1.1)
    assert events(group, C) == [b"1"]


def test_a_minority_commits_nothing() -> None:
    group = Group(A, B, C, D, E)
    group.elect(A)
    commit = group[A].commit_index
    group.close(A, C, D, E)
    group.close(B, C, D, E)
    group[A].propose(entry(1))
    group.pump()
    assert group[A].commit_index == commit
    assert group[B].log.last_index == group[A].log.last_index


def test_a_candidate_with_a_shorter_log_is_not_elected() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.close(A, C)
    group[A].propose(entry(1, b"1"))
    group.pump()
    assert group[B].log.last_index > group[C].log.last_index
    group.close(A, B)
    for one in (B, C):
        group[one].leader_lost(group.now)
    group.now += 0.2
    group[C].tick(group.now)
    group.pump()
    assert group[C].role is RaftRole.PRE_CANDIDATE
    assert group[C].term == 1
    assert group.sent[-1][2] == RequestVoteReply(1, False, True)
    group[B].tick(group.now)
    group.pump()
    assert group[B].is_leader
    assert events(group, C) == []
    group.pass_time(1.1)
    assert events(group, C) == [b"1"]


@pytest.mark.parametrize(
    ("last", "granted"),
    [((3, 9), True), ((3, 2), True), ((2, 3), True), ((2, 4), True), ((2, 2), False), ((1, 50), False)],
)
@pytest.mark.parametrize("trial", [True, False])
def test_votes_are_granted_only_to_logs_at_least_as_up_to_date(
    last: tuple[int, int], granted: bool, trial: bool
) -> None:
    group = Group(A, B, C)
    group[B].log.append([entry(1), entry(2)])
    assert (group[B].log.last_term, group[B].log.last_index) == (2, 3)
    group[B].request_vote_received(RequestVote(4, last[1], last[0], trial), A, group.now)
    assert group[B].outbox[-1] == (A, RequestVoteReply(4 if granted or not trial else 0, granted, trial))
    assert group[B].voted_for == (A if granted and not trial else None)
    assert group[B].term == (0 if trial else 4)


def test_a_member_votes_once_per_term() -> None:
    group = Group(A, B, C)
    order = group[C]
    for sender, granted in ((A, True), (A, True), (B, False)):
        order.request_vote_received(RequestVote(1, 1, 0, False), sender, group.now)
        assert order.outbox[-1] == (sender, RequestVoteReply(1, granted, False))
    assert order.dirty
    order.request_vote_received(RequestVote(2, 1, 0, False), B, group.now)
    assert order.outbox[-1] == (B, RequestVoteReply(2, True, False))


def test_a_pre_vote_changes_no_persistent_state() -> None:
    group = Group(A, B, C)
    order = group[C]
    order.dirty = False
    for sender in (A, B):
        order.request_vote_received(RequestVote(7, 1, 0, True), sender, group.now)
        assert order.outbox[-1] == (sender, RequestVoteReply(7, True, True))
    assert (order.term, order.voted_for, order.dirty) == (0, None, False)
    order.request_vote_received(RequestVote(0, 1, 0, True), A, group.now)
    assert order.outbox[-1] == (A, RequestVoteReply(0, False, True))


def test_a_follower_refuses_votes_while_its_leader_is_alive() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(TIMERS.heartbeat * 1.1)
    heard = group.now
    for one in (A, C):
        for trial in (True, False):
            group[one].request_vote_received(RequestVote(9, 99, 9, trial), B, group.now)
            assert group[one].outbox.pop() == (B, RequestVoteReply(1, False, trial))
        assert group[one].term == 1
    group.now = heard + TIMERS.stickiness + 0.01
    group[C].request_vote_received(RequestVote(9, 99, 9, True), B, group.now)
    assert group[C].outbox.pop() == (B, RequestVoteReply(9, True, True))
    # The leader itself may call an election at any time, and so may a member that lost its leader.
    group.now = heard
    group[C].request_vote_received(RequestVote(9, 99, 9, True), A, group.now)
    assert group[C].outbox.pop() == (A, RequestVoteReply(9, True, True))
    group[C].leader_lost(group.now)
    group[C].request_vote_received(RequestVote(9, 99, 9, True), B, group.now)
    assert group[C].outbox.pop() == (B, RequestVoteReply(9, True, True))


def test_a_lost_connection_to_the_leader_starts_an_election_soon() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.close(A, B, C)
    at = group.now
    group[B].leader_lost(at)
    assert TIMERS.fast_election[0] <= group[B].next_deadline() - at <= TIMERS.fast_election[1]
    assert group[B].leader is None
    deadline = group[B].next_deadline()
    group[B].leader_lost(at + 0.001)
    assert group[B].next_deadline() == deadline
    assert group[C].next_deadline() - at >= TIMERS.election[0]
    group[C].leader_lost(at)
    group.pass_time(TIMERS.fast_election[1] + 3 * TIMERS.retry[1], B, C)
    assert group[B].is_leader or group[C].is_leader


def test_a_silent_leader_starts_an_election_within_the_timeout() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(10.0)
    group.close(A, B, C)
    at = group.now
    for one in (B, C):
        assert TIMERS.election[0] - TIMERS.heartbeat <= group[one].next_deadline() - at <= TIMERS.election[1]
    group.pass_time(TIMERS.election[1] + 1.0, B, C)
    assert group[B].is_leader or group[C].is_leader


def test_a_leader_without_a_quorum_steps_down() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(5.0)
    group.close(A, B, C)
    at = group.now
    group.pass_time(TIMERS.check_quorum - TIMERS.heartbeat - 0.1, A)
    assert group[A].is_leader
    group.pass_time(2 * TIMERS.heartbeat + 0.2, A)
    assert not group[A].is_leader
    assert group[A].leader is None
    assert group[A].seconds_since_leader(group.now) == pytest.approx(group.now - at, abs=TIMERS.heartbeat + 0.1)


def test_a_leader_that_hears_from_a_quorum_does_not_step_down() -> None:
    group = Group(A, B, C, D, E)
    group.elect(A)
    group.close(A, D, E)
    group.pass_time(20.0, A, B, C)
    assert group[A].is_leader
    group.close(A, C)
    group.pass_time(TIMERS.check_quorum + 2 * TIMERS.heartbeat, A)
    assert not group[A].is_leader


def test_a_single_member_elects_itself() -> None:
    group = Group(A)
    group.elect(A)
    group.pass_time(60.0)
    assert group[A].is_leader
    index = group[A].propose(entry(1, b"1"))
    group.pump()
    assert group[A].commit_index == index
    assert events(group, A) == [b"1"]


def test_only_entries_of_its_own_term_are_committed_by_counting() -> None:
    # Figure 8 of the paper: an entry of term 1 is on a majority, and may still be lost.
    group = Group(A, B, C)
    for one in (A, B):
        group[one].log.append([entry(1, b"old")])
        group[one].term = 1
    group.close(A, C)
    group.close(B, C)
    group.elect(A)
    group[A].commit_index = 1
    order = group[A]
    assert order.term == 2
    # Committing its own first entry committed the earlier one too.
    assert events(group, A) == [b"old"]
    again = Group(A, B, C)
    for one in (A, B):
        again[one].log.append([entry(1, b"old")])
        again[one].term = 1
    again.close(A, C)
    for order in again.orders.values():
        order.leader_lost(again.now)
    again.now += 0.2
    again[A].tick(again.now)
    while not again[A].is_leader:
        again.collect()
        for line, messages in again.lines.items():
            while messages:
                again.deliver(*line)
    again[A].append_entries_reply_received(AppendEntriesReply(2, True, 2), B, again.now)
    assert again[A].commit_index == 1
    assert again[A].committed == []
    again[A].append_entries_reply_received(AppendEntriesReply(2, True, 3), B, again.now)
    assert again[A].commit_index == 3


def test_conflicting_entries_are_truncated() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(2.0)
    group.close(A, B, C)
    for number in range(5):
        group[A].propose(entry(1, b"lost %d" % number))
    group.pump()
    for one in (B, C):
        group[one].leader_lost(group.now)
    group.now += 0.2
    group[B].tick(group.now)
    group.pump()
    assert group[B].is_leader
    group[B].propose(entry(2, b"kept"))
    group.pump()
    group[A].dirty, group[A].first_unpersisted = False, 0
    group.open(A, B)
    group.open(A, C)
    group.pass_time(3.0)
    assert events(group, A) == events(group, B) == events(group, C) == [b"kept"]
    assert group.log(A) == group.log(B)
    assert group[A].dirty
    assert group[A].first_unpersisted == 3  # From the first truncated entry.
    assert not group[A].is_leader


def test_entries_already_in_the_log_are_not_truncated() -> None:
    group = Group(A, B, C)
    group.elect(A)
    for number in range(4):
        group[A].propose(entry(1, b"%d" % number))
    group.pump()
    before = group.log(B)
    group[B].dirty, group[B].first_unpersisted = False, 0
    group[B].append_entries_received(AppendEntries(1, 1, 0, 2, before[:2]), A, group.now)
    assert group.log(B) == before
    assert (group[B].dirty, group[B].first_unpersisted) == (False, 0)
    group[B].flush(group.now)
    assert group[B].outbox.pop() == (A, AppendEntriesReply(1, True, 3))


def test_commit_index_does_not_exceed_the_received_entries() -> None:
    group = Group(A, B, C)
    order = group[B]
    order.log.append([entry(1, b"old"), entry(1, b"old")])
    order.append_entries_received(AppendEntries(2, 1, 0, 50, [entry(2, b"new")]), A, group.now)
    assert order.commit_index == 2
    assert [each.term for _, each in order.committed] == [2]
    assert order.log.last_index == 2
    order.append_entries_received(AppendEntries(2, 2, 2, 1, []), A, group.now)
    assert order.commit_index == 2


def test_entries_beyond_the_match_are_not_committed() -> None:
    order = Group(A, B, C)[B]
    order.log.append([entry(1, b"the leader's too"), entry(1, b"not the leader's")])
    order.append_entries_received(AppendEntries(2, 2, 1, 3, []), A, 100.0)
    assert order.commit_index == 2


def test_a_rejected_append_hints_the_next_index() -> None:
    group = Group(A, B, C)
    order = group[B]
    order.append_entries_received(AppendEntries(2, 9, 2, 0, [entry(2)]), A, group.now)
    order.flush(group.now)
    assert order.outbox.pop() == (A, AppendEntriesReply(2, False, 1))
    order.log.append([entry(1), entry(1), entry(1)])
    order.append_entries_received(AppendEntries(2, 4, 2, 0, [entry(2)]), A, group.now)
    order.flush(group.now)
    assert order.outbox.pop() == (A, AppendEntriesReply(2, False, 1))
    assert order.log.last_index == 4


def test_messages_of_a_stale_term_are_rejected_with_the_current_term() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(1.0)
    order = group[B]
    assert order.append_entries_received(AppendEntries(0, 1, 0, 1, []), C, group.now) is False
    order.flush(group.now)
    assert order.outbox.pop() == (C, AppendEntriesReply(1, False, order.log.last_index))
    assert order.leader == A
    assert order.install_snapshot_received(0, C, group.now) is False
    order.request_vote_received(RequestVote(0, 99, 9, False), C, group.now)
    assert order.outbox.pop() == (C, RequestVoteReply(1, False, False))
    leader = group[A]
    leader.append_entries_reply_received(AppendEntriesReply(0, True, 99), B, group.now)
    leader.install_snapshot_reply_received(InstallSnapshotReply(0, 99, 99), B, group.now)
    assert leader.is_leader
    assert leader.append_entries_received(AppendEntries(1, 1, 0, 1, []), C, group.now) is False
    assert leader.install_snapshot_received(1, C, group.now) is False
    assert leader.is_leader


@pytest.mark.parametrize("how", ["append", "appended", "state", "vote", "state taken"])
def test_a_leader_steps_down_at_a_higher_term(how: str) -> None:
    group = Group(A, B, C)
    group.elect(A)
    order = group[A]
    if how == "append":
        assert order.append_entries_received(AppendEntries(5, 1, 0, 1, []), B, group.now)
    elif how == "appended":
        order.append_entries_reply_received(AppendEntriesReply(5, False, 1), B, group.now)
    elif how == "state":
        assert order.install_snapshot_received(5, B, group.now)
    elif how == "vote":
        order.request_vote_reply_received(RequestVoteReply(5, False, True), B, group.now)
    else:
        order.install_snapshot_reply_received(InstallSnapshotReply(5, 1, 1), B, group.now)
    assert not order.is_leader
    assert (order.term, order.voted_for) == (5, None)
    assert order.leader == (B if how in ("append", "state") else None)
    assert order.dirty


def test_unsolicited_votes_are_ignored() -> None:
    group = Group(A, B, C)
    order = group[A]
    for message in (RequestVoteReply(1, True, False), RequestVoteReply(1, True, True), RequestVoteReply(0, True, True)):
        order.request_vote_reply_received(message, B, group.now)
        assert order.role is RaftRole.FOLLOWER
    order.leader_lost(group.now)
    group.now += 0.2
    order.tick(group.now)
    assert order.role is RaftRole.PRE_CANDIDATE
    order.request_vote_reply_received(RequestVoteReply(1, True, False), B, group.now)
    order.request_vote_reply_received(RequestVoteReply(2, True, True), B, group.now)
    order.request_vote_reply_received(RequestVoteReply(1, True, True), D, group.now)  # D is no voter.
    assert (order.role, order.term) == (RaftRole.PRE_CANDIDATE, 0)
    order.request_vote_reply_received(RequestVoteReply(1, True, True), B, group.now)
    assert (order.role, order.term, order.voted_for) == (RaftRole.CANDIDATE, 1, A)
    order.request_vote_reply_received(RequestVoteReply(1, True, True), C, group.now)
    order.request_vote_reply_received(RequestVoteReply(0, True, False), C, group.now)
    assert order.role is RaftRole.CANDIDATE
    order.request_vote_reply_received(RequestVoteReply(1, True, False), C, group.now)
    assert order.is_leader


def test_the_old_members_commit_an_added_member() -> None:
    group = Group(A, B, votes=(A,))
    group.elect(A)
    assert group[A].has_committed_in_term
    group[A].replication.add_followers([B], group.now)
    group.pump()
    before = group[A].commit_index
    group.close(A, B)
    group[A].propose_membership(view_of(A, B))
    assert group[A].membership_change_pending
    group.pump()
    # One member of one is a quorum.
    assert group[A].commit_index > before
    assert group[A].members == {A, B}
    assert not group[A].membership_change_pending
    # From here on the quorum is both.
    commit = group[A].commit_index
    group[A].propose(entry(1, b"1"))
    group.pump()
    assert group[A].commit_index == commit
    group.open(A, B)
    group.pass_time(1.1)
    assert group[A].commit_index == group[B].commit_index == commit + 1
    assert group[B].members == {A, B}
    assert group[B].is_voter


def test_entries_after_a_change_need_a_quorum_of_the_new_membership() -> None:
    group = Group(A, B, votes=(A,))
    group.elect(A)
    group[A].replication.add_followers([B], group.now)
    group.pump()
    group.close(A, B)
    order = group[A]
    order.propose_membership(view_of(A, B))
    changed = order.log.last_index
    order.propose(entry(1, b"1"))
    group.pump()
    assert order.commit_index == changed
    assert order.log.last_index == changed + 1


def test_a_removal_needs_a_quorum_of_the_old_membership() -> None:
    group = Group(A, B, C, D)
    group.elect(A)
    commit = group[A].commit_index
    group.close(A, C, D)
    group.close(B, C, D)
    group[A].propose_membership(view_of(A, B, C))
    group.pump()
    # Two of four are no quorum, though two of three would be.
    assert group[A].commit_index == commit
    assert group[A].membership == view_of(A, B, C, D)
    assert group[A].membership_change_pending
    group.open(A, C)
    group.pass_time(1.1)
    assert group[A].membership == view_of(A, B, C)
    assert not group[A].membership_change_pending


def test_a_truncated_membership_change_is_reverted() -> None:
    group = Group(A, B, C, D)
    group.elect(A)
    group.pass_time(1.0)
    group.close(A, B, C, D)
    group[A].propose_membership(view_of(A, B, C))
    group.pump()
    for one in (B, C, D):
        group[one].leader_lost(group.now)
    group.now += 0.2
    group[B].tick(group.now)
    group.pump()
    assert group[B].is_leader
    for other in (B, C, D):
        group.open(A, other)
    group.pass_time(3.0)
    assert {order.membership for order in group.orders.values()} == {view_of(A, B, C, D)}
    assert group[B].has_committed_in_term
    assert not group[B].membership_change_pending


def test_a_new_leader_knows_of_a_pending_membership_change() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.close(A, C)
    group.close(B, C)
    group.orders[A].propose_membership(view_of(A, B))
    group.collect()
    for message in list(group.lines[A, B]):
        group[B].append_entries_received(message, A, group.now)  # type: ignore[arg-type]
    group.close(A, B)
    group.open(B, C)
    for one in (B, C):
        group[one].leader_lost(group.now)
    group.now += 0.2
    group[B].tick(group.now)
    for _ in range(6):
        if group[B].is_leader:
            break
        group.collect()
        for line in ((B, C), (C, B)):
            while group.lines[line]:
                group.deliver(*line)
    assert group[B].is_leader
    assert group[B].membership_change_pending
    assert group[B].members == {A, B, C}
    group.pump()
    assert group[B].members == {A, B}


def test_a_removed_leader_steps_down() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group[A].propose_membership(view_of(B, C))
    group.pump()
    assert not group[A].is_leader
    assert not group[A].is_voter
    group.pass_time(10.0)
    assert group[B].is_leader or group[C].is_leader
    assert {group[B].membership, group[C].membership} == {view_of(B, C)}


def test_an_installed_snapshot_is_committed_for_followers_too() -> None:
    order = Group(A)[A]
    order.install_snapshot(5, 1, None)
    assert order.commit_index == order.replication.commit_index == 5


def test_bootstrap_makes_a_single_member_the_leader() -> None:
    group = Group(A, votes=())
    order = group[A]
    order.bootstrap(HERE, group.now, 3)
    group.pump()
    assert order.is_leader
    assert order.has_committed_in_term
    assert (order.term, order.voted_for, order.leader, order.commit_index) == (3, A, A, 2)
    assert order.membership == view_of(A)
    assert [each.kind for _, each in group.applied[A]] == [EntryKind.MEMBERSHIP]


def test_bootstrap_keeps_uncommitted_entries() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.close(A, B, C)
    group[A].propose(entry(1, b"1"))
    group.pump()
    group[A].step_down(group.now)
    group[A].bootstrap(HERE, group.now, group[A].term + 1)
    group.pump()
    assert events(group, A) == [b"1"]
    assert group[A].members == {A}


def test_a_leader_that_leaves_steps_down_at_once() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group[B].step_down(group.now)
    assert group[B].leader == A
    group[A].step_down(group.now)
    assert not group[A].is_leader
    assert group[A].leader is None


def test_a_restarted_member_replays_committed_entries() -> None:
    group = Group(A)
    order = group[A]
    order.log.append([entry(1, b"1"), LogEntry(1, EntryKind.MEMBERSHIP, view_of(A, B)), entry(1, b"2")])
    order.restore(3)
    assert order.commit_index == 3
    assert order.membership == view_of(A, B)
    assert [index for index, _ in order.committed] == [2, 3]
    order.restore(99)
    assert order.commit_index == 4


def test_a_follower_before_the_compacted_log_gets_a_snapshot() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.close(A, C)
    group.close(B, C)
    for number in range(20):
        group[A].propose(entry(1, b"%d" % number))
        group.pump()
    group.pass_time(0.1)
    log = group[A].log
    log.compact(0, group[A].commit_index - 5)
    assert log.snapshot_index > group[C].log.last_index
    group.open(A, C)
    group.pass_time(1.2)
    parts = [message for _, receiver, message in group.sent if receiver == C and isinstance(message, InstallSnapshot)]
    assert [part.offset for part in parts] == [0, 49_152, 98_304]
    assert {part.total for part in parts} == {100_000}
    assert group[C].log.last_index == log.last_index
    assert group[C].commit_index == group[A].commit_index
    assert group[C].log.snapshot_index == parts[0].index
    group[A].propose(entry(1, b"more"))
    group.pump()
    group.pass_time(0.1)
    assert events(group, C)[-1] == b"more"


def test_an_interrupted_snapshot_transfer_is_restarted() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.close(A, C)
    group.close(B, C)
    for number in range(5):
        group[A].propose(entry(1, b"%d" % number))
    group.pump()
    group[A].log.compact(0, group[A].commit_index)
    group.open(A, C)
    # Without a reply the progress is unknown.
    while not any(isinstance(message, InstallSnapshot) for message in group.lines[A, C]):
        group.collect()
        for line in ((A, C), (C, A)):
            if group.lines[line]:
                group.deliver(*line)
                group.collect()
    group.close(A, C)
    group.open(A, C)
    group.pass_time(1.5)
    assert group[C].commit_index == group[A].commit_index


def test_entries_lost_with_a_connection_are_resent_on_reconnect() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(0.5)
    for number in range(3):
        group[A].propose(entry(1, b"%d" % number))
    group.collect()
    assert group.lines[A, B]
    assert group.lines[A, C]
    group.close(A, B, C)
    group.open(A, B)
    group.open(A, C)
    group.pump()
    assert group[A].commit_index == group[A].log.last_index == group[B].log.last_index == group[C].log.last_index


def test_nothing_is_sent_on_a_blocked_connection() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(0.5)
    group[A].replication.set_blocked(C, True)
    group.sent.clear()
    group[A].propose(entry(1))
    group.pump()
    group.pass_time(2.0)
    assert not [message for _, receiver, message in group.sent if receiver == C and isinstance(message, AppendEntries)]
    group[A].replication.set_blocked(C, False)
    group.pump()
    group.pass_time(0.1)
    assert group[C].commit_index == group[A].commit_index


def test_entries_in_flight_are_limited() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(0.5)
    for _ in range(100):
        group[A].propose(entry(1, bytes(40_000)))
    group.collect()
    flying = [message for message in group.lines[A, B] if isinstance(message, AppendEntries)]
    size = sum(len(each.content) for message in flying for each in message.entries)
    assert 1_000_000 < size < 1_150_000
    assert all(len(message.entries) == 1 for message in flying)
    group.pump()
    group.pass_time(0.1)
    assert group[B].commit_index == group[A].commit_index == group[A].log.last_index


def test_small_entries_share_a_message() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(0.5)
    for _ in range(100):
        group[A].propose(entry(1))
    group.collect()
    assert [len(message.entries) for message in group.lines[A, B]] == [100]  # type: ignore[union-attr]


def test_followers_learn_the_commit_index_soon() -> None:
    group = Group(A, B, C)
    group.elect(A)
    group.pass_time(0.5)
    group[A].propose(entry(1, b"1"))
    group.pump()
    assert events(group, B) == []
    group.pass_time(0.006)
    assert events(group, B) == events(group, C) == [b"1"]


STEPS = st.lists(
    st.tuples(st.integers(0, 9), st.integers(0, 4), st.integers(0, 4), st.integers(0, 300)), min_size=30, max_size=150
)


@given(st.integers(3, 5), STEPS, st.integers(0, 10_000))
def test_members_agree_on_committed_entries_under_arbitrary_faults(
    many: int, steps: list[tuple[int, int, int, int]], seed: int
) -> None:
    members = (A, B, C, D, E)[:many]
    group = Group(*members, seed=seed)
    numbers = 0
    for what, first, second, amount in steps:
        one, other = members[first % many], members[second % many]
        if what <= 3:
            # Time passes for one member, and some messages in flight arrive.
            group.now += amount / 100
            if group[one].next_deadline() <= group.now:
                group[one].tick(group.now)
        elif what == 4 and one != other:
            group.close(one, other)
        elif what == 5 and one != other:
            group.open(one, other)
        elif what == 6:
            for member in members:
                if group[member].is_leader:
                    numbers += 1
                    group[member].propose(entry(group[member].term, b"%d" % numbers))
        elif what == 7:
            leader = group[one]
            if leader.has_committed_in_term and not leader.membership_change_pending and leader.membership is not None:
                voting = set(leader.members) ^ {other} if other != one else set(leader.members)
                if len(voting) > 1 and voting != leader.members:
                    leader.replication.add_followers([other] if other in voting else [], group.now)
                    leader.propose_membership(view_of(*voting))
        elif what == 8:
            group[one].log.compact(500, max(1, group[one].commit_index - 1))
        else:
            group[one].leader_lost(group.now)
        for _ in range(1 + amount % 4):
            group.collect()
            for line in list(group.lines):
                if group.lines[line]:
                    group.deliver(*line)
        group.check()
    for one, other in combinations(members, 2):
        group.open(one, other)
    group.pass_time(30.0)
    group.check()
    leaders = [one for one in members if group[one].is_leader]
    assert leaders
    leader = max(leaders, key=lambda one: group[one].term)
    group[leader].propose(entry(group[leader].term, b"last"))
    group.pump()
    group.pass_time(2.0)
    for one in group[leader].members:
        assert events(group, one)[-1] == b"last"
        assert group[one].commit_index == group[leader].commit_index
