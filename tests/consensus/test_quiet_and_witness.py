from __future__ import annotations

from itertools import cycle
from random import Random

import pytest
from consensus.group import A, B, C, D, E, Group, entry, entry_size, events

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember, RaftRole
from fyrehose_twisted.consensus.messages import (
    ForcedRequestVote,
    MemberId,
    RequestVote,
    RequestVoteReply,
    Snapshot,
    StartElection,
)
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS as TIMERS
from fyrehose_twisted.consensus.timers import RaftTimers


def quiet_member(until: float) -> RaftMember:
    order = RaftMember(A, Random(1), 100.0, RaftLog(entry_size), lambda: Snapshot(1, 0, b""), quiet_until=until)
    order.install_snapshot(1, 0, Group(A, B, C).view)
    return order


def votes_of(order: RaftMember) -> list[bool]:
    granted = [message.granted for _, message in order.outbox if isinstance(message, RequestVoteReply)]
    order.outbox.clear()
    return granted


def test_a_quiet_member_neither_votes_nor_starts_an_election() -> None:
    order = quiet_member(110.0)
    assert order.next_deadline() >= 110.0
    for trial in (True, False):
        order.request_vote_received(RequestVote(1, 9, 9, trial), B, 109.9)
    assert votes_of(order) == [False, False]
    assert order.term == 0
    order.lease_round_received(1, B, 105.0)
    order.tick(order.next_deadline())
    assert (order.role, order.outbox) == (RaftRole.FOLLOWER, [])
    assert order.next_deadline() == 110.0
    order.tick(110.0)
    assert order.role is RaftRole.PRE_CANDIDATE


def test_a_member_votes_once_its_quiet_time_is_over() -> None:
    order = quiet_member(110.0)
    order.request_vote_received(RequestVote(1, 9, 9, False), B, 110.0)
    assert votes_of(order) == [True]


def test_a_quiet_member_votes_if_its_leader_is_dead() -> None:
    order = quiet_member(110.0)
    order.lease_round_received(1, C, 100.5)
    order.leader_lost(101.0)
    order.request_vote_received(RequestVote(2, 9, 9, True), B, 101.0)
    assert votes_of(order) == [True]
    order.tick(101.0 + TIMERS.fast_election[1])
    assert order.role is RaftRole.PRE_CANDIDATE


def test_a_quiet_member_takes_part_in_a_transfer() -> None:
    order = quiet_member(110.0)
    order.request_vote_received(ForcedRequestVote(1, 9, 9), B, 101.0)
    assert votes_of(order) == [True]
    order = quiet_member(110.0)
    order.lease_round_received(1, C, 101.0)
    order.start_election_received(StartElection(1), C, 101.0)
    assert order.role is RaftRole.CANDIDATE


def test_timers_under_which_a_member_votes_for_itself_too_early_are_refused() -> None:
    with pytest.raises(ValueError, match=r"raise election to at least stickiness"):
        RaftTimers(election=(0.8, 1.0), stickiness=0.9)
    assert RaftTimers(election=(0.9, 1.0), stickiness=0.9).heartbeat == 1.0


# Witnesses


def test_a_witness_votes_and_starts_no_election() -> None:
    group = Group(A, B, C, witness=C)
    group.pass_time(20.0, C)
    assert not [message for sender, _, message in group.sent if sender == C]
    group.close(A, B)
    group.elect(A)
    assert group[A].is_leader
    group.close(A, C)
    group[C].leader_lost(group.now)
    group.pass_time(20.0, C)
    assert group[C].term == 1
    assert group[C].elections == 0


def test_a_witness_obeys_no_order_to_lead() -> None:
    group = Group(A, B, C, witness=C)
    group.elect(A)
    group[C].start_election_received(StartElection(1), A, group.now)
    assert group[C].role is RaftRole.FOLLOWER


def test_a_witness_cannot_bootstrap_a_group() -> None:
    group = Group(A, votes=(), witness=A)
    with pytest.raises(AssertionError, match="a witness bootstraps no group"):
        group[A].bootstrap(None, group.now)


def with_an_entry_only_at_the_witness(*members: MemberId, witness: MemberId) -> Group:
    """Return a group whose leader A committed an entry with the witness and no other member, and is gone."""
    group = Group(*members, witness=witness)
    group.elect(A)
    group.pass_time(5.0)
    others = [one for one in members if one not in (A, witness)]
    group.close(A, *others)
    group[A].propose(entry(1, b"1"))
    group.pump()
    group.close(A, witness)
    group.deaf.add(A)
    return group


def led_by_the_witness() -> Group:
    """Return a group that is led by its witness C, which has the only copy of an entry."""
    group = with_an_entry_only_at_the_witness(A, B, C, witness=C)
    group[C].leader_lost(group.now)
    group[B].leader_lost(group.now)
    group[C].request_vote_received(RequestVote(2, 2, 1, True), B, group.now)
    while group[C].role is not RaftRole.LEADER:
        group.now += 0.05
        group[C].tick(group.now)
        group.collect()
        for line in ((C, B), (B, C)):
            while group.lines[line] and group[C].role is not RaftRole.LEADER:
                group.deliver(*line)
    return group


def test_a_witness_with_the_only_copy_of_an_entry_brings_it_to_the_next_leader() -> None:
    group = with_an_entry_only_at_the_witness(A, B, C, witness=C)
    assert group[A].log.last_index == group[C].log.last_index == 3
    assert group[A].commit_index == 3
    for one in (B, C):
        group[one].leader_lost(group.now)
    at = group.now
    led = set()
    while not group[B].is_leader and group.now < at + 5.0:
        group.pass_time(0.01)
        led |= {one for one in (B, C) if group[one].is_leader}
    assert group.now - at < TIMERS.fast_election[1] + 3 * TIMERS.retry[1]
    assert led == {B}
    assert [group.leaders[term] for term in sorted(group.leaders)] == [A, C, B]
    group.pass_time(1.0)
    assert events(group, B) == [b"1"]
    assert group[C].leader == B


def test_a_witness_hands_over_to_the_next_member_if_one_does_not_take_over() -> None:
    group = with_an_entry_only_at_the_witness(A, B, C, D, E, witness=E)
    group[B].may_lead = False  # Another witness. E does not know that.
    group.close(D, B, C, E)
    group.deaf.add(D)
    for one in (B, C, E):
        group[one].leader_lost(group.now)
    group.pass_time(TIMERS.fast_election[1] + 6 * TIMERS.retry[1])
    assert [receiver for _, receiver, message in group.sent if isinstance(message, StartElection)] == [B, C]
    assert group[C].is_leader
    assert group[C].log.entry_at(3) == entry(1, b"1")


def test_a_witness_whose_successor_is_lost_waits_until_a_member_can_take_over() -> None:
    group = led_by_the_witness()
    for line in cycle(((C, B), (B, C))):
        group.collect()
        if group[C].is_transferring:
            break
        if group.lines[line]:
            group.deliver(*line)
    group.close(B, C)
    patience = group.now + TIMERS.retry[1]
    while group.now < patience:
        group.now = group[C].next_deadline()
        group[C].tick(group.now)
        group.collect()
    assert group[C].role is RaftRole.LEADER
    assert group[C].next_deadline() == group.now + TIMERS.heartbeat
    group.open(B, C)
    group.pass_time(3 * TIMERS.retry[1])
    assert group[B].is_leader


def test_a_witness_that_led_in_vain_starts_no_further_election() -> None:
    group = led_by_the_witness()
    group.close(B, C)
    group[C].step_down(group.now)
    elections = group[C].elections
    group.pass_time(20.0, C)
    assert group[C].elections == elections
    assert group[C].role is RaftRole.FOLLOWER


def test_a_loyal_witness_that_refuses_an_outdated_candidate_does_not_hurry() -> None:
    group = with_an_entry_only_at_the_witness(A, B, C, witness=C)
    group[C].lease_round_received(1, A, group.now)
    deadline = group[C].next_deadline()
    group[C].request_vote_received(RequestVote(2, 2, 1, True), B, group.now)
    assert votes_of(group[C]) == [False]
    assert group[C].next_deadline() == deadline


def test_a_witness_leaves_the_election_to_a_member_with_the_whole_log() -> None:
    group = with_an_entry_only_at_the_witness(A, B, C, witness=C)
    group[C].leader_lost(group.now)
    group[C].request_vote_received(RequestVote(2, 2, 1, True), B, group.now)
    assert group[C].next_deadline() <= group.now + TIMERS.retry[1]
    group[C].request_vote_received(RequestVote(2, 3, 1, False), A, group.now)
    assert votes_of(group[C]) == [False, True]
    group.pass_time(20.0, C)
    assert group[C].elections == 0


def test_a_witness_that_refuses_an_outdated_forced_request_keeps_its_promise() -> None:
    group = Group(A, B, C, witness=C)
    group.elect(A)
    group.pass_time(5.0)
    group[C].lease_round_received(1, A, group.now)
    group[C].request_vote_received(ForcedRequestVote(0, 1, 0), B, group.now)
    group.pass_time(TIMERS.stickiness - 0.01, C)
    assert (group[C].role, group[C].elections) == (RaftRole.FOLLOWER, 0)


def test_a_witness_is_not_needed_any_more_once_there_is_a_leader() -> None:
    group = Group(A, B, C, witness=C)
    group[C].log.append([entry(1)])
    group[C].request_vote_received(RequestVote(3, 1, 0, True), B, group.now)
    assert group[C].next_deadline() <= group.now + TIMERS.retry[1]
    group[C].lease_round_received(3, A, group.now)
    group[C].leader_lost(group.now)
    group.pass_time(20.0, C)
    assert (group[C].role, group[C].elections) == (RaftRole.FOLLOWER, 0)
    assert not [message for sender, _, message in group.sent if isinstance(message, RequestVote)]


def test_a_witness_that_leads_says_that_it_does_not() -> None:
    group = led_by_the_witness()
    assert not group[C].is_leader
    while group[C].commit_index < group[C].log.last_index:
        group.collect()
        for line in ((C, B), (B, C)):
            if group.lines[line]:
                group.deliver(*line)
    assert group[C].role is RaftRole.LEADER
    assert not group[C].has_committed_in_term
