from __future__ import annotations

from random import Random

from fyrehose_twisted.consensus.election_timer import (
    ELECTION_RETRY,
    ELECTION_TIMEOUT,
    FAST_ELECTION_TIMEOUT,
    LEADER_STICKINESS,
    ElectionTimer,
)


def within(limits: tuple[float, float], seconds: float) -> bool:
    return limits[0] <= round(seconds, 9) <= limits[1]


def test_the_leader_postpones_the_election_by_the_same_timeout_each_time() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    timeout = timer.deadline - 5.0
    assert within(ELECTION_TIMEOUT, timeout)
    for now in (6.0, 7.0):
        timer.leader_heard(now)
        assert timer.deadline == now + timeout
    timer.follow(8.0)
    assert within(ELECTION_TIMEOUT, timer.deadline - 8.0)
    assert timer.deadline != 8.0 + timeout


def test_a_leader_is_present_until_it_is_silent_or_lost() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    assert not timer.is_leader_present(5.0)
    timer.leader_heard(6.0)
    assert timer.is_leader_present(5.9 + LEADER_STICKINESS)
    assert not timer.is_leader_present(6.0 + LEADER_STICKINESS)
    timer.lose_leader(6.1)
    assert not timer.is_leader_present(6.1)
    assert within(FAST_ELECTION_TIMEOUT, timer.deadline - 6.1)
    timer.leader_heard(6.2)
    assert timer.is_leader_present(6.2)


def test_a_lost_leader_never_delays_the_election() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    timer.deadline = 5.001
    timer.lose_leader(5.0)
    assert timer.deadline == 5.001


def test_candidates_retry_soon_and_voters_wait_a_full_timeout() -> None:
    timer = ElectionTimer(Random(1), 5.0)
    timer.candidacy_started(6.0)
    assert within(ELECTION_RETRY, timer.deadline - 6.0)
    timer.postpone(7.0)
    assert within(ELECTION_TIMEOUT, timer.deadline - 7.0)
