from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.stream_head import (
    AMONG,
    CONTRADICTIONS,
    DOUBT,
    LEAP,
    OLD,
    PLAUSIBLE_JUMP,
    WITNESSES,
    Tide,
)
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE


def test_two_that_agree_are_believed() -> None:
    tide = Tide(0.0)
    tide.reached(100)
    assert tide.plausible(100 + LEAP)
    assert not tide.plausible(101 + LEAP)
    assert not tide.plausible(10**9)
    assert not tide.plausible(10**9)  # The same once more proves nothing: it may have been duplicated.
    assert tide.plausible(10**9 + 1)
    assert tide.plausible(10**9 - 1)
    assert not tide.plausible(10**9 + 1 + LEAP)
    assert not tide.plausible(MAX_SEQUENCE)
    assert not tide.plausible(MAX_SEQUENCE)
    assert tide.plausible(101)


def test_the_tide_does_not_fall() -> None:
    tide = Tide(0.0)
    tide.reached(100)
    tide.reached(50)
    assert tide.highest == 100


def test_the_first_number_is_expected_near_the_start_that_was_given() -> None:
    tide = Tide(0.0, 5)
    assert not tide.plausible(MAX_SEQUENCE)
    assert tide.plausible(5)
    assert tide.plausible(5 + PLAUSIBLE_JUMP)
    assert not tide.plausible(6 + PLAUSIBLE_JUMP)


def sent(tide: Tide, *numbers: int) -> None:
    for number in numbers:
        tide.came(number, 0.0)
        tide.reached(number)


def test_several_rising_numbers_from_long_ago_are_a_fall() -> None:
    tide = Tide(0.0)
    sent(tide, 100, 101, 102)
    tide.time_passed(OLD)
    sent(tide, 200, 201, 202)
    assert [tide.falls(number) for number in range(1, 9)] == [False] * 8
    tide.time_passed(2 * OLD)
    assert not tide.falls(101)
    assert [tide.falls(number) for number in (7, 7, 3, 4)] == [False] * 4
    assert tide.falls(5)


def test_one_old_number_that_comes_again_and_again_is_none() -> None:
    tide = Tide(0.0)
    sent(tide, 100, 101, 102)
    for elapsed in (OLD, 2 * OLD):
        tide.time_passed(elapsed)
    assert [tide.falls(7) for _ in range(9)] == [False] * 9


def test_old_numbers_while_the_stream_goes_on_are_late_duplicates() -> None:
    tide = Tide(0.0)
    sent(tide, 100, 101, 102)
    tide.time_passed(OLD)
    tide.time_passed(2 * OLD)
    for number in range(1, 90):
        tide.reached(100 + number)
        assert not tide.falls(number)


def test_what_contradicts_too_often_is_another_stream() -> None:
    tide = Tide(0.0)
    sent(tide, *range(1, 101))
    few = (98, *range(98, 97 + CONTRADICTIONS))  # One may have come twice.
    assert [tide.contradicts(number) for number in few] == [False] * CONTRADICTIONS
    sent(tide, 101, 102)
    assert tide.contradicts(50)


def test_what_contradicts_now_and_then_is_damaged() -> None:
    tide = Tide(0.0)
    for number in range(1, 100):
        sent(tide, *range(number * AMONG, (number + 1) * AMONG))
        assert not tide.contradicts(number)


def test_one_number_from_beyond_proves_nothing_and_the_last_three_do() -> None:
    tide = Tide(0.0)
    for number in (10, 500, 501):
        tide.came(number, 1.0)
    assert not tide.beyond(10)
    for number in (13, 12, 14, 10):  # An old one that comes twice takes no proof back.
        tide.came(number, 2.0)
    assert tide.beyond(11)
    assert not tide.beyond(13)


def test_a_backbone_that_sends_nothing_for_long_contradicts_nobody() -> None:
    tide = Tide(100.0)
    tide.came(7, 101.0)
    assert not tide.stands(101.0 + DOUBT - 0.01)
    assert tide.stands(101.0 + DOUBT)


def test_one_number_too_high_makes_none_old() -> None:
    tide = Tide(0.0)
    sent(tide, 1, 2, 3, 900)
    for turn in (1, 2):
        tide.time_passed(turn * OLD)
    assert [tide.falls(number) for number in (4, 5, 6, 7)] == [False] * 4


def test_what_is_expected_is_near_the_highest() -> None:
    tide = Tide(0.0, 5)
    assert not tide.expects(5), "nothing has come yet"
    tide.reached(100)
    assert tide.expects(100 + LEAP)
    assert tide.expects(1)
    assert not tide.expects(101 + LEAP)


numbers = st.integers(1, 60) | st.integers(1, 3 * LEAP)
happenings = st.one_of(
    st.tuples(st.just("run"), numbers, st.integers(1, 3 * WITNESSES) | st.integers(1, 2 * AMONG)),
    st.tuples(st.just("one"), numbers, st.booleans()),
    st.tuples(st.sampled_from(["falls", "contradicts", "plausible", "beyond", "expects"]), numbers, st.just(0)),
    st.tuples(st.sampled_from(["falls", "contradicts"]), st.integers(1, 60), st.just(0)),
    st.tuples(st.just("passes"), st.sampled_from([1, 3, 5, 10]), st.just(0)),
)


def happens(tide: Tide, what: tuple[str, int, int], now: float, *, at_once: bool) -> list[Any]:
    """Tell a tide; return what it says."""
    name, number, count = what
    if name == "passes":
        tide.time_passed(now)
    elif name == "one":
        tide.came(number, now)
        if count:
            tide.reached(number)
    elif name != "run":
        return [getattr(tide, name)(number)]
    elif at_once:
        tide.run_came(number, number + count - 1, now)
    else:
        for sequence in range(number, number + count):
            tide.came(sequence, now)
            tide.reached(sequence)
    proven = [sequence for sequence in range(number - 1, number + max(1, count) + 1) if tide.beyond(sequence)]
    return [tide.highest, proven, tide.stands_at]


@given(st.lists(happenings, max_size=25), st.sampled_from([None, 1, 40]))
def test_a_run_came_as_its_numbers_came_one_by_one(what: list[tuple[str, int, int]], start: int | None) -> None:
    tide, reference, now = Tide(0.0, start), Tide(0.0, start), 0.0
    for each in what:
        now += each[1] if each[0] == "passes" else 0
        assert happens(tide, each, now, at_once=True) == happens(reference, each, now, at_once=False)


@pytest.mark.parametrize("count", [*range(1, 3 * WITNESSES), 1_000])
def test_a_run_proves_what_its_last_ones_prove(count: int) -> None:
    tide = Tide(0.0)
    sent(tide, 10, 11, 12)
    tide.run_came(13, 12 + count, 5.0)
    assert tide.highest == 12 + count
    assert tide.beyond(12 + count - WITNESSES)
    assert not tide.beyond(13 + count - WITNESSES)
    assert tide.stands_at == 5.0 + DOUBT


@pytest.mark.parametrize("count", [AMONG - 3, AMONG - 2])
def test_contradictions_are_counted_among_all_of_a_run(count: int) -> None:
    tide = Tide(0.0)
    sent(tide, *range(1, CONTRADICTIONS + 1))
    assert not tide.contradicts(1)
    tide.run_came(CONTRADICTIONS + 1, CONTRADICTIONS + count, 0.0)
    assert not any(tide.contradicts(number) for number in range(2, CONTRADICTIONS))
    tide.run_came(CONTRADICTIONS + count + 1, CONTRADICTIONS + count + 2, 0.0)
    assert tide.contradicts(CONTRADICTIONS) is (count + 2 < AMONG)


@pytest.mark.parametrize("count", [1, 2 * WITNESSES, 100])
def test_old_numbers_between_runs_are_late_duplicates(count: int) -> None:
    tide = Tide(0.0)
    sent(tide, 100, 101, 102)
    for turn in (1, 2):
        tide.time_passed(turn * OLD)
    assert [tide.falls(number) for number in (7, 8)] == [False] * 2
    tide.run_came(103, 102 + count, 2 * OLD)
    assert [tide.falls(number) for number in (9, 10, 11)] == [False, False, True]
