from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.stream_head import (
    CONFIRMATIONS,
    CONTRADICTION_WINDOW,
    CONTRADICTIONS,
    LATE_AFTER,
    MAX_INITIAL_JUMP,
    MAX_JUMP,
    UNCONFIRMED_TIMEOUT,
    StreamHead,
)
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE


def test_two_neighbouring_numbers_make_a_jump_plausible() -> None:
    head = StreamHead(0.0)
    head.advance(100)
    assert head.plausible(100 + MAX_JUMP)
    assert not head.plausible(101 + MAX_JUMP)
    assert not head.plausible(10**9)
    assert not head.plausible(10**9)  # The same number again may be a duplicated datagram.
    assert head.plausible(10**9 + 1)
    assert head.plausible(10**9 - 1)
    assert not head.plausible(10**9 + 1 + MAX_JUMP)
    assert not head.plausible(MAX_SEQUENCE)
    assert not head.plausible(MAX_SEQUENCE)
    assert head.plausible(101)


def test_the_stream_head_never_moves_back() -> None:
    head = StreamHead(0.0)
    head.advance(100)
    head.advance(50)
    assert head.highest == 100


def test_the_first_number_is_plausible_near_the_configured_start() -> None:
    head = StreamHead(0.0, 5)
    assert not head.plausible(MAX_SEQUENCE)
    assert head.plausible(5)
    assert head.plausible(5 + MAX_INITIAL_JUMP)
    assert not head.plausible(6 + MAX_INITIAL_JUMP)


def receive_all(head: StreamHead, *numbers: int) -> None:
    for number in numbers:
        head.received(number, 0.0)
        head.advance(number)


def test_several_rising_old_numbers_are_a_regression() -> None:
    head = StreamHead(0.0)
    receive_all(head, 100, 101, 102)
    head.tick(LATE_AFTER)
    receive_all(head, 200, 201, 202)
    assert [head.falls(number) for number in range(1, 9)] == [False] * 8
    head.tick(2 * LATE_AFTER)
    assert not head.falls(101)
    assert [head.falls(number) for number in (7, 7, 3, 4)] == [False] * 4
    assert head.falls(5)


def test_one_old_number_repeated_is_no_regression() -> None:
    head = StreamHead(0.0)
    receive_all(head, 100, 101, 102)
    for elapsed in (LATE_AFTER, 2 * LATE_AFTER):
        head.tick(elapsed)
    assert [head.falls(7) for _ in range(9)] == [False] * 9


def test_old_numbers_while_the_stream_advances_are_late_duplicates() -> None:
    head = StreamHead(0.0)
    receive_all(head, 100, 101, 102)
    head.tick(LATE_AFTER)
    head.tick(2 * LATE_AFTER)
    for number in range(1, 90):
        head.advance(100 + number)
        assert not head.falls(number)


def test_frequent_contradictions_mean_another_stream() -> None:
    head = StreamHead(0.0)
    receive_all(head, *range(1, 101))
    few = (98, *range(98, 97 + CONTRADICTIONS))  # One is repeated.
    assert [head.contradicts(number) for number in few] == [False] * CONTRADICTIONS
    receive_all(head, 101, 102)
    assert head.contradicts(50)


def test_rare_contradictions_are_tolerated_as_damage() -> None:
    head = StreamHead(0.0)
    for number in range(1, 100):
        receive_all(head, *range(number * CONTRADICTION_WINDOW, (number + 1) * CONTRADICTION_WINDOW))
        assert not head.contradicts(number)


def test_a_number_is_passed_after_three_higher_ones_and_not_after_one() -> None:
    head = StreamHead(0.0)
    for number in (10, 500, 501):
        head.received(number, 1.0)
    assert not head.beyond(10)
    for number in (13, 12, 14, 10):  # A repeated old number revokes nothing.
        head.received(number, 2.0)
    assert head.beyond(11)
    assert not head.beyond(13)


def test_the_stream_head_is_settled_after_a_silent_backbone_timeout() -> None:
    head = StreamHead(100.0)
    head.received(7, 101.0)
    assert not head.is_settled(101.0 + UNCONFIRMED_TIMEOUT - 0.01)
    assert head.is_settled(101.0 + UNCONFIRMED_TIMEOUT)


def test_one_number_too_high_makes_no_number_old() -> None:
    head = StreamHead(0.0)
    receive_all(head, 1, 2, 3, 900)
    for turn in (1, 2):
        head.tick(turn * LATE_AFTER)
    assert [head.falls(number) for number in (4, 5, 6, 7)] == [False] * 4


def test_expected_numbers_are_near_the_stream_head() -> None:
    head = StreamHead(0.0, 5)
    assert not head.expects(5), "nothing has come yet"
    head.advance(100)
    assert head.expects(100 + MAX_JUMP)
    assert head.expects(1)
    assert not head.expects(101 + MAX_JUMP)


numbers = st.integers(1, 60) | st.integers(1, 3 * MAX_JUMP)
stream_steps = st.one_of(
    st.tuples(st.just("run"), numbers, st.integers(1, 3 * CONFIRMATIONS) | st.integers(1, 2 * CONTRADICTION_WINDOW)),
    st.tuples(st.just("one"), numbers, st.booleans()),
    st.tuples(st.sampled_from(["falls", "contradicts", "plausible", "beyond", "expects"]), numbers, st.just(0)),
    st.tuples(st.sampled_from(["falls", "contradicts"]), st.integers(1, 60), st.just(0)),
    st.tuples(st.just("passes"), st.sampled_from([1, 3, 5, 10]), st.just(0)),
)


def apply_step(head: StreamHead, what: tuple[str, int, int], now: float, *, at_once: bool) -> list[Any]:
    """Apply one step to a stream head; return its answer."""
    name, number, count = what
    if name == "passes":
        head.tick(now)
    elif name == "one":
        head.received(number, now)
        if count:
            head.advance(number)
    elif name != "run":
        return [getattr(head, name)(number)]
    elif at_once:
        head.run_received(number, number + count - 1, now)
    else:
        for sequence in range(number, number + count):
            head.received(sequence, now)
            head.advance(sequence)
    proven = [sequence for sequence in range(number - 1, number + max(1, count) + 1) if head.beyond(sequence)]
    return [head.highest, proven, head.settled_at]


@given(st.lists(stream_steps, max_size=25), st.sampled_from([None, 1, 40]))
def test_a_run_received_equals_its_numbers_received_one_by_one(
    what: list[tuple[str, int, int]], start: int | None
) -> None:
    head, reference, now = StreamHead(0.0, start), StreamHead(0.0, start), 0.0
    for each in what:
        now += each[1] if each[0] == "passes" else 0
        assert apply_step(head, each, now, at_once=True) == apply_step(reference, each, now, at_once=False)


@pytest.mark.parametrize("count", [*range(1, 3 * CONFIRMATIONS), 1_000])
def test_a_run_confirms_as_its_last_numbers_do(count: int) -> None:
    head = StreamHead(0.0)
    receive_all(head, 10, 11, 12)
    head.run_received(13, 12 + count, 5.0)
    assert head.highest == 12 + count
    assert head.beyond(12 + count - CONFIRMATIONS)
    assert not head.beyond(13 + count - CONFIRMATIONS)
    assert head.settled_at == 5.0 + UNCONFIRMED_TIMEOUT


@pytest.mark.parametrize("count", [CONTRADICTION_WINDOW - 3, CONTRADICTION_WINDOW - 2])
def test_contradictions_are_counted_in_a_window_of_all_numbers_of_a_run(count: int) -> None:
    head = StreamHead(0.0)
    receive_all(head, *range(1, CONTRADICTIONS + 1))
    assert not head.contradicts(1)
    head.run_received(CONTRADICTIONS + 1, CONTRADICTIONS + count, 0.0)
    assert not any(head.contradicts(number) for number in range(2, CONTRADICTIONS))
    head.run_received(CONTRADICTIONS + count + 1, CONTRADICTIONS + count + 2, 0.0)
    assert head.contradicts(CONTRADICTIONS) is (count + 2 < CONTRADICTION_WINDOW)


@pytest.mark.parametrize("count", [1, 2 * CONFIRMATIONS, 100])
def test_old_numbers_between_advancing_runs_are_late_duplicates(count: int) -> None:
    head = StreamHead(0.0)
    receive_all(head, 100, 101, 102)
    for turn in (1, 2):
        head.tick(turn * LATE_AFTER)
    assert [head.falls(number) for number in (7, 8)] == [False] * 2
    head.run_received(103, 102 + count, 2 * LATE_AFTER)
    assert [head.falls(number) for number in (9, 10, 11)] == [False, False, True]
