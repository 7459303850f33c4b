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


def test_two_that_agree_are_believed() -> None:
    tide = StreamHead(0.0)
    tide.advance(100)
    assert tide.plausible(100 + MAX_JUMP)
    assert not tide.plausible(101 + MAX_JUMP)
    assert not tide.plausible(10**9)
    assert not tide.plausible(10**9)  # The same once more proves nothing: it may have been duplicated.
    assert tide.plausible(10**9 + 1)
    assert tide.plausible(10**9 - 1)
    assert not tide.plausible(10**9 + 1 + MAX_JUMP)
    assert not tide.plausible(MAX_SEQUENCE)
    assert not tide.plausible(MAX_SEQUENCE)
    assert tide.plausible(101)


def test_the_tide_does_not_fall() -> None:
    tide = StreamHead(0.0)
    tide.advance(100)
    tide.advance(50)
    assert tide.highest == 100


def test_the_first_number_is_expected_near_the_start_that_was_given() -> None:
    tide = StreamHead(0.0, 5)
    assert not tide.plausible(MAX_SEQUENCE)
    assert tide.plausible(5)
    assert tide.plausible(5 + MAX_INITIAL_JUMP)
    assert not tide.plausible(6 + MAX_INITIAL_JUMP)


def sent(tide: StreamHead, *numbers: int) -> None:
    for number in numbers:
        tide.received(number, 0.0)
        tide.advance(number)


def test_several_rising_numbers_from_long_ago_are_a_fall() -> None:
    tide = StreamHead(0.0)
    sent(tide, 100, 101, 102)
    tide.tick(LATE_AFTER)
    sent(tide, 200, 201, 202)
    assert [tide.falls(number) for number in range(1, 9)] == [False] * 8
    tide.tick(2 * LATE_AFTER)
    assert not tide.falls(101)
    assert [tide.falls(number) for number in (7, 7, 3, 4)] == [False] * 4
    assert tide.falls(5)


def test_one_old_number_that_comes_again_and_again_is_none() -> None:
    tide = StreamHead(0.0)
    sent(tide, 100, 101, 102)
    for elapsed in (LATE_AFTER, 2 * LATE_AFTER):
        tide.tick(elapsed)
    assert [tide.falls(7) for _ in range(9)] == [False] * 9


def test_old_numbers_while_the_stream_goes_on_are_late_duplicates() -> None:
    tide = StreamHead(0.0)
    sent(tide, 100, 101, 102)
    tide.tick(LATE_AFTER)
    tide.tick(2 * LATE_AFTER)
    for number in range(1, 90):
        tide.advance(100 + number)
        assert not tide.falls(number)


def test_what_contradicts_too_often_is_another_stream() -> None:
    tide = StreamHead(0.0)
    sent(tide, *range(1, 101))
    few = (98, *range(98, 97 + CONTRADICTIONS))  # One may have come twice.
    assert [tide.contradicts(number) for number in few] == [False] * CONTRADICTIONS
    sent(tide, 101, 102)
    assert tide.contradicts(50)


def test_what_contradicts_now_and_then_is_damaged() -> None:
    tide = StreamHead(0.0)
    for number in range(1, 100):
        sent(tide, *range(number * CONTRADICTION_WINDOW, (number + 1) * CONTRADICTION_WINDOW))
        assert not tide.contradicts(number)


def test_one_number_from_beyond_proves_nothing_and_the_last_three_do() -> None:
    tide = StreamHead(0.0)
    for number in (10, 500, 501):
        tide.received(number, 1.0)
    assert not tide.beyond(10)
    for number in (13, 12, 14, 10):  # An old one that comes twice takes no proof back.
        tide.received(number, 2.0)
    assert tide.beyond(11)
    assert not tide.beyond(13)


def test_a_backbone_that_sends_nothing_for_long_contradicts_nobody() -> None:
    tide = StreamHead(100.0)
    tide.received(7, 101.0)
    assert not tide.is_settled(101.0 + UNCONFIRMED_TIMEOUT - 0.01)
    assert tide.is_settled(101.0 + UNCONFIRMED_TIMEOUT)


def test_one_number_too_high_makes_none_old() -> None:
    tide = StreamHead(0.0)
    sent(tide, 1, 2, 3, 900)
    for turn in (1, 2):
        tide.tick(turn * LATE_AFTER)
    assert [tide.falls(number) for number in (4, 5, 6, 7)] == [False] * 4


def test_what_is_expected_is_near_the_highest() -> None:
    tide = StreamHead(0.0, 5)
    assert not tide.expects(5), "nothing has come yet"
    tide.advance(100)
    assert tide.expects(100 + MAX_JUMP)
    assert tide.expects(1)
    assert not tide.expects(101 + MAX_JUMP)


numbers = st.integers(1, 60) | st.integers(1, 3 * MAX_JUMP)
happenings = st.one_of(
    st.tuples(st.just("run"), numbers, st.integers(1, 3 * CONFIRMATIONS) | st.integers(1, 2 * CONTRADICTION_WINDOW)),
    st.tuples(st.just("one"), numbers, st.booleans()),
    st.tuples(st.sampled_from(["falls", "contradicts", "plausible", "beyond", "expects"]), numbers, st.just(0)),
    st.tuples(st.sampled_from(["falls", "contradicts"]), st.integers(1, 60), st.just(0)),
    st.tuples(st.just("passes"), st.sampled_from([1, 3, 5, 10]), st.just(0)),
)


def happens(tide: StreamHead, what: tuple[str, int, int], now: float, *, at_once: bool) -> list[Any]:
    """Tell a tide; return what it says."""
    name, number, count = what
    if name == "passes":
        tide.tick(now)
    elif name == "one":
        tide.received(number, now)
        if count:
            tide.advance(number)
    elif name != "run":
        return [getattr(tide, name)(number)]
    elif at_once:
        tide.run_received(number, number + count - 1, now)
    else:
        for sequence in range(number, number + count):
            tide.received(sequence, now)
            tide.advance(sequence)
    proven = [sequence for sequence in range(number - 1, number + max(1, count) + 1) if tide.beyond(sequence)]
    return [tide.highest, proven, tide.settled_at]


@given(st.lists(happenings, max_size=25), st.sampled_from([None, 1, 40]))
def test_a_run_came_as_its_numbers_came_one_by_one(what: list[tuple[str, int, int]], start: int | None) -> None:
    tide, reference, now = StreamHead(0.0, start), StreamHead(0.0, start), 0.0
    for each in what:
        now += each[1] if each[0] == "passes" else 0
        assert happens(tide, each, now, at_once=True) == happens(reference, each, now, at_once=False)


@pytest.mark.parametrize("count", [*range(1, 3 * CONFIRMATIONS), 1_000])
def test_a_run_proves_what_its_last_ones_prove(count: int) -> None:
    tide = StreamHead(0.0)
    sent(tide, 10, 11, 12)
    tide.run_received(13, 12 + count, 5.0)
    assert tide.highest == 12 + count
    assert tide.beyond(12 + count - CONFIRMATIONS)
    assert not tide.beyond(13 + count - CONFIRMATIONS)
    assert tide.settled_at == 5.0 + UNCONFIRMED_TIMEOUT


@pytest.mark.parametrize("count", [CONTRADICTION_WINDOW - 3, CONTRADICTION_WINDOW - 2])
def test_contradictions_are_counted_among_all_of_a_run(count: int) -> None:
    tide = StreamHead(0.0)
    sent(tide, *range(1, CONTRADICTIONS + 1))
    assert not tide.contradicts(1)
    tide.run_received(CONTRADICTIONS + 1, CONTRADICTIONS + count, 0.0)
    assert not any(tide.contradicts(number) for number in range(2, CONTRADICTIONS))
    tide.run_received(CONTRADICTIONS + count + 1, CONTRADICTIONS + count + 2, 0.0)
    assert tide.contradicts(CONTRADICTIONS) is (count + 2 < CONTRADICTION_WINDOW)


@pytest.mark.parametrize("count", [1, 2 * CONFIRMATIONS, 100])
def test_old_numbers_between_runs_are_late_duplicates(count: int) -> None:
    tide = StreamHead(0.0)
    sent(tide, 100, 101, 102)
    for turn in (1, 2):
        tide.tick(turn * LATE_AFTER)
    assert [tide.falls(number) for number in (7, 8)] == [False] * 2
    tide.run_received(103, 102 + count, 2 * LATE_AFTER)
    assert [tide.falls(number) for number in (9, 10, 11)] == [False, False, True]
