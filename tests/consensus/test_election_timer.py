from __future__ import annotations

from random import Random

import pytest

from fyrehose_twisted.consensus.election_timer import ElectionTimer
from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.consensus.timers import DEFAULT_TIMERS as TIMERS

A, B = (MemberId(name, 1) for name in "AB")


def within(limits: tuple[float, float], seconds: float) -> bool:
    return limits[0] <= round(seconds, 9) <= limits[1]


def test_the_leader_postpones_the_election_by_the_same_timeout_each_time() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    timeout = timer.deadline - 5.0
    assert within(TIMERS.election, timeout)
    for now in (6.0, 7.0):
        timer.leader_heard(A, now)
        assert timer.deadline == now + timeout
    timer.follow(8.0)
    assert within(TIMERS.election, timer.deadline - 8.0)
    assert timer.deadline != 8.0 + timeout


def test_a_promise_to_a_leader_holds_until_it_is_silent_or_lost() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    assert timer.may_vote_for(B, 5.0)
    timer.leader_heard(A, 6.0)
    assert not timer.may_vote_for(B, 5.9 + TIMERS.stickiness)
    assert timer.may_vote_for(A, 6.0)
    assert timer.may_vote_for(B, 6.0 + TIMERS.stickiness)
    assert timer.promised_until == 6.0 + TIMERS.stickiness
    timer.lose_leader(6.1)
    assert timer.may_vote_for(B, 6.1)
    assert within(TIMERS.fast_election, timer.deadline - 6.1)
    timer.leader_heard(A, 6.2)
    assert not timer.may_vote_for(B, 6.2)
    timer.follow(6.3)
    assert not timer.may_vote_for(B, 6.3)
    timer.release()
    assert timer.may_vote_for(B, 6.3)


def test_a_quiet_member_votes_for_no_member_that_it_has_not_followed() -> None:
    timer = ElectionTimer(Random(1), 5.0, quiet_until=50.0)
    assert timer.deadline == timer.promised_until == 50.0
    assert not timer.may_vote_for(A, 49.9)
    assert timer.may_vote_for(A, 50.0)
    timer.leader_heard(B, 6.0)
    assert timer.may_vote_for(B, 6.0)
    assert not timer.may_vote_for(A, 49.9)


@pytest.mark.parametrize("how", ["lost", "released"])
def test_a_leader_that_is_lost_or_gave_up_ends_the_quiet(how: str) -> None:
    timer = ElectionTimer(Random(1), 5.0, quiet_until=50.0)
    timer.lose_leader(6.0) if how == "lost" else timer.release()
    assert timer.may_vote_for(A, 6.0)


def test_a_lost_leader_never_delays_the_election() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    timer.deadline = 5.001
    timer.lose_leader(5.0)
    assert timer.deadline == 5.001


def test_candidates_retry_soon_and_voters_wait_a_full_timeout() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    timer.candidacy_started(6.0)
    assert within(TIMERS.retry, timer.deadline - 6.0)
    timer.postpone(7.0)
    assert within(TIMERS.election, timer.deadline - 7.0)
