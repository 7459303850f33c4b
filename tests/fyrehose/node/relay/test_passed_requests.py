from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.relay.passed_requests import (
    LIFETIME,
    MAX_RANGES_EACH,
    REPEAT_INTERVAL,
    PassedRequests,
)

START = 1_700_000_000.0
ALICE: Address = ("192.0.2.7", 4001)
BOB: Address = ("192.0.2.8", 4002)

RANGES = st.tuples(st.integers(1, 60), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))


@given(
    requests=st.lists(st.tuples(st.sampled_from([ALICE, BOB]), RANGES, st.floats(0.0, REPEAT_INTERVAL)), max_size=20),
    arrivals=st.lists(st.integers(1, 90), unique=True),
)
def test_each_arrival_goes_once_to_everybody_who_waits_for_it(
    requests: list[tuple[Address, tuple[int, int], float]], arrivals: list[int]
) -> None:
    passed, now = PassedRequests(), START
    waiting: dict[Address, set[int]] = {ALICE: set(), BOB: set()}
    for requester, (first, last), pause in requests:
        now += pause
        passed.add(requester, first, last, now)
        waiting[requester].update(range(first, last + 1))
    for sequence in arrivals:
        takers = passed.take(sequence)
        assert sorted(takers) == sorted(one for one in waiting if sequence in waiting[one])
        assert passed.take(sequence) == []
    if all(waiting[one] <= set(arrivals) for one in waiting):
        assert not passed


def test_what_another_client_has_just_asked_for_is_requested_once() -> None:
    passed = PassedRequests()
    assert passed.add(ALICE, 1, 10, START) == [(1, 10)]
    assert passed.add(BOB, 1, 10, START) == []
    assert passed.add(BOB, 8, 12, START + REPEAT_INTERVAL / 2) == [(11, 12)]
    assert sorted(passed.take(9)) == [ALICE, BOB]


def test_a_later_attempt_is_passed_on_because_the_first_may_be_lost() -> None:
    passed = PassedRequests()
    passed.add(ALICE, 1, 10, START)
    assert passed.add(ALICE, 1, 10, START + 2 * REPEAT_INTERVAL) == [(1, 10)]


def test_an_answer_is_not_passed_on_long_after_the_request() -> None:
    passed = PassedRequests()
    passed.add(ALICE, 1, 10, START)
    passed.add(BOB, 20, 20, START + LIFETIME)
    assert passed.take(3) == [ALICE]
    passed.add(BOB, 21, 21, START + 2 * LIFETIME)
    assert passed.take(4) == []
    assert passed.take(20) == [BOB]


def test_what_a_client_has_got_otherwise_is_not_sent_again() -> None:
    passed = PassedRequests()
    passed.add(ALICE, 1, 10, START)
    passed.add(BOB, 1, 10, START)
    passed.served(ALICE, 3, 10)
    assert passed.take(3) == [BOB]
    passed.served(ALICE, 1, 2)
    passed.served(BOB, 1, 10)
    assert not passed


def test_a_client_that_has_expired_is_forgotten() -> None:
    passed = PassedRequests()
    passed.add(ALICE, 1, 10, START)
    passed.forget(ALICE)
    assert not passed
    assert passed.take(1) == []


def test_one_client_cannot_wait_for_too_many_ranges() -> None:
    passed = PassedRequests()
    for number in range(MAX_RANGES_EACH):
        assert passed.add(ALICE, 2 * number + 1, 2 * number + 1, START) is not None
    assert passed.add(ALICE, 1_000_001, 1_000_001, START) is None
    assert passed.add(BOB, 1_000_001, 1_000_001, START) == [(1_000_001, 1_000_001)]
