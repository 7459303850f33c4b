from __future__ import annotations

import pytest
from consensus.group import A, B, C, D, Group, entry, events, view_of

from fyrehose_twisted.consensus.member import RaftRole
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    ForcedRequestVote,
    MemberId,
    RequestVote,
    RequestVoteReply,
    StartElection,
)
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS as TIMERS


def led_by_a(*members: MemberId) -> Group:
    group = Group(*(members or (A, B, C)))
    group.elect(A)
    group.pass_time(5.0)
    group.sent.clear()
    return group


def orders(group: Group) -> list[MemberId]:
    return [receiver for _, receiver, message in group.sent if isinstance(message, StartElection)]


def test_leadership_is_transferred_at_once_though_the_others_hear_the_leader() -> None:
    group = led_by_a()
    group[A].propose(entry(1, b"1"))
    group.pump()
    assert group[A].transfer(B, group.now)
    assert group[A].is_transferring
    group.pump()
    assert [one for one in (A, B, C) if group[one].is_leader] == [B]
    assert {group[one].leader for one in (A, B, C)} == {B}
    assert {group[one].term for one in (A, B, C)} == {2}
    assert not group[A].is_transferring
    assert not [message for _, _, message in group.sent if isinstance(message, RequestVote)]
    assert group[B].has_committed_in_term
    group.pass_time(0.1)
    assert events(group, C) == [b"1"]


def test_a_transfer_is_refused_unless_the_target_can_be_elected() -> None:
    group = led_by_a(A, B, C, D)
    assert not group[B].transfer(C, group.now)
    assert not group[A].transfer(A, group.now)
    group[A].propose_membership(view_of(A, B, C))
    group.pump()
    assert not group[A].transfer(D, group.now)
    group.close(A, C)
    assert not group[A].transfer(C, group.now)
    group[A].propose(entry(1))
    group.collect()
    assert not group[A].transfer(B, group.now)
    assert not group[A].is_transferring
    group.pump()
    assert group[A].transfer(B, group.now)


def test_an_order_is_sent_once_to_each_target() -> None:
    group = led_by_a()
    for target in (B, B, C, C):
        assert group[A].transfer(target, group.now)
    group.collect()
    assert orders(group) == [B, C]


def test_a_leader_whose_order_is_lost_starts_an_election_itself() -> None:
    group = led_by_a()
    assert group[A].transfer(B, group.now)
    at = group.now
    group.collect()
    group.lines[A, B].clear()
    assert group[A].next_deadline() <= at + TIMERS.retry[1]
    group.pass_time(TIMERS.retry[1] - 0.01, A)
    assert group[A].is_transferring
    assert group[A].is_leader
    assert group[A].term == 1
    group.pass_time(0.02, A)
    assert group[A].is_leader
    assert not group[A].is_transferring
    assert {group[one].term for one in (A, B, C)} == {2}
    # The order arrives after all. It is for a term that is over.
    group[B].start_election_received(StartElection(1), A, group.now)
    group.pump()
    assert group[A].is_leader
    group.pass_time(10.0)
    assert group[A].term == 2


def test_a_transfer_that_repeats_does_not_extend_its_deadline() -> None:
    group = led_by_a()
    end = group.now + TIMERS.retry[1]
    while group.now < end + 0.05 and group[A].term == 1:
        group[A].transfer(B, group.now)
        group.collect()
        group.lines[A, B].clear()
        group.pass_time(0.05, A)
    assert group[A].term == 2


@pytest.mark.parametrize(("term", "sender"), [(0, A), (2, A), (1, C)])
def test_only_the_leader_of_the_current_term_can_order_an_election(term: int, sender: MemberId) -> None:
    group = led_by_a()
    group[B].start_election_received(StartElection(term), sender, group.now)
    assert (group[B].role, group[B].term) == (RaftRole.FOLLOWER, 1)


def test_a_removed_member_is_not_ordered_to_lead() -> None:
    group = led_by_a()
    group[B].membership = view_of(A, C)
    group[B].start_election_received(StartElection(1), A, group.now)
    assert group[B].role is RaftRole.FOLLOWER


def test_a_leader_does_not_obey_an_order_of_its_own_term() -> None:
    group = led_by_a()
    group[A].start_election_received(StartElection(1), B, group.now)
    assert group[A].is_leader


@pytest.mark.parametrize(
    ("term", "last_index", "last_term", "granted"),
    [(2, 2, 1, True), (2, 3, 0, False), (2, 1, 1, False), (1, 9, 9, False), (0, 9, 9, False)],
)
def test_a_forced_request_overcomes_only_the_presence_of_a_leader(
    term: int, last_index: int, last_term: int, granted: bool
) -> None:
    group = led_by_a()
    assert (group[C].log.last_index, group[C].log.last_term) == (2, 1)
    group[C].voted_for = A
    group[C].request_vote_received(ForcedRequestVote(term, last_index, last_term), B, group.now)
    assert group[C].outbox == [(B, RequestVoteReply(max(term, 1), granted, False))]
    assert group[C].term == max(term, 1)


def test_a_member_votes_once_per_term_also_if_forced() -> None:
    group = led_by_a()
    for sender, granted in ((B, True), (A, False), (B, True)):
        group[C].request_vote_received(ForcedRequestVote(2, 2, 1), sender, group.now)
        assert group[C].outbox.pop() == (sender, RequestVoteReply(2, granted, False))


def test_a_voter_in_an_ordered_election_owes_no_promise_to_the_leader_that_ordered_it() -> None:
    group = led_by_a()
    group[C].request_vote_received(ForcedRequestVote(2, 2, 1), B, group.now)
    group[C].request_vote_received(RequestVote(3, 2, 1, False), B, group.now)
    assert [message for _, message in group[C].outbox] == [RequestVoteReply(term, True, False) for term in (2, 3)]


def test_an_ordered_candidate_knows_no_leader() -> None:
    group = led_by_a()
    group[B].start_election_received(StartElection(1), A, group.now)
    assert (group[B].role, group[B].leader, group[B].voted_for, group[B].term) == (RaftRole.CANDIDATE, None, B, 2)


def test_a_heartbeat_does_not_delay_the_end_of_a_failed_transfer() -> None:
    group = led_by_a()
    group.pass_time(group[A].next_deadline() - group.now - 0.1)
    at = group.now
    assert group[A].transfer(B, group.now)
    group.collect()
    group.lines[A, B].clear()
    group.sent.clear()
    group.pass_time(0.2, A)
    assert [message for _, _, message in group.sent if isinstance(message, AppendEntries)]
    assert group[A].next_deadline() == pytest.approx(at + TIMERS.retry[1])


def test_no_election_starts_while_a_promise_to_a_leader_holds() -> None:
    group = led_by_a()
    group[B].lease_round_received(1, A, group.now)
    group[B]._timer.deadline = group.now
    group[B].tick(group.now)
    assert group[B].role is RaftRole.FOLLOWER
    assert group[B].next_deadline() == group.now + TIMERS.stickiness
    group[B].tick(group[B].next_deadline())
    assert group[B].role is RaftRole.PRE_CANDIDATE


def test_a_member_that_refuses_an_outdated_candidate_does_not_hurry() -> None:
    group = Group(A, B, C)
    group[C].log.append([entry(1)])
    deadline = group[C].next_deadline()
    group[C].request_vote_received(RequestVote(3, 1, 0, True), B, group.now)
    assert group[C].outbox.pop() == (B, RequestVoteReply(0, False, True))
    assert group[C].next_deadline() == deadline


def test_a_transferring_leader_votes_for_its_successor() -> None:
    group = led_by_a()
    group.close(B, C)
    assert group[A].transfer(B, group.now)
    group.pump()
    assert group[B].is_leader
    assert group[A].leader == B


def test_the_retry_of_an_ordered_election_is_not_forced() -> None:
    group = led_by_a()
    group.close(B, C)
    assert group[A].transfer(B, group.now)
    group.collect()
    order = group.lines[A, B].pop()
    group.close(A, B)
    assert isinstance(order, StartElection)
    group[B].start_election_received(order, A, group.now)
    group.pass_time(2.0, B)
    sent = [message for sender, _, message in group.sent if sender == B and not isinstance(message, AppendEntriesReply)]
    assert [type(message) for message in sent[:2]] == [ForcedRequestVote] * 2
    assert len(sent) > 2
    assert all(isinstance(message, RequestVote) and message.trial for message in sent[2:])


@pytest.mark.parametrize("kind", [AppendEntriesReply(7, False, 0), RequestVoteReply(7, False, False)], ids=repr)
def test_a_stale_reply_with_a_higher_term_does_not_end_the_promise_to_a_leader(
    kind: AppendEntriesReply | RequestVoteReply,
) -> None:
    group = led_by_a()
    group[A].replication.send_heartbeats()
    group.pump()
    at = group.now
    if isinstance(kind, AppendEntriesReply):
        group[C].append_entries_reply_received(kind, B, at)
    else:
        group[C].request_vote_reply_received(kind, B, at)
    assert (group[C].term, group[C].leader) == (7, None)
    for trial in (True, False):
        group[C].request_vote_received(RequestVote(8, 2, 1, trial), B, at)
        assert group[C].outbox.pop() == (B, RequestVoteReply(7, False, trial))
    group[C].request_vote_received(RequestVote(8, 2, 1, True), B, at + TIMERS.stickiness)
    assert group[C].outbox.pop() == (B, RequestVoteReply(8, True, True))


def test_a_leader_that_asks_for_votes_gave_up_the_promise_to_it() -> None:
    group = led_by_a()
    group[C].request_vote_received(RequestVote(2, 1, 1, False), A, group.now)
    assert group[C].outbox.pop() == (A, RequestVoteReply(2, False, False))  # Its log is too short.
    group[C].request_vote_received(RequestVote(3, 2, 1, False), B, group.now)
    assert group[C].outbox.pop() == (B, RequestVoteReply(3, True, False))


def test_a_lease_round_makes_its_sender_the_leader() -> None:
    group = Group(A, B, C)
    assert group[B].lease_round_received(3, A, group.now)
    assert (group[B].leader, group[B].term, group[B].dirty) == (A, 3, True)
    group[B].request_vote_received(RequestVote(4, 9, 9, True), C, group.now + TIMERS.stickiness - 0.01)
    assert group[B].outbox.pop() == (C, RequestVoteReply(3, False, True))
    assert not group[B].lease_round_received(2, C, group.now)
    assert group[B].leader == A


def test_a_leader_answers_no_lease_round_of_its_own_term() -> None:
    group = led_by_a()
    assert not group[A].lease_round_received(1, B, group.now)
    assert group[A].is_leader
    assert group[A].lease_round_received(2, B, group.now)
    assert not group[A].is_leader


def test_a_candidate_that_is_elected_owes_no_promise_afterwards() -> None:
    group = led_by_a()
    group[A].transfer(B, group.now)
    group.pump()
    group[B].step_down(group.now)
    group[B].request_vote_received(RequestVote(3, 9, 9, False), C, group.now)
    assert group[B].outbox.pop() == (C, RequestVoteReply(3, True, False))


def test_a_new_leader_is_followed_after_a_promise_to_the_previous_one() -> None:
    group = led_by_a()
    assert group[C].append_entries_received(AppendEntries(2, 2, 1, 2, []), B, group.now)
    group[C].request_vote_received(RequestVote(3, 9, 9, True), A, group.now)
    assert group[C].outbox.pop() == (A, RequestVoteReply(2, False, True))
