from __future__ import annotations

from fyrehose_twisted.fyrehose.messages import MAX_SEQUENCE
from fyrehose_twisted.fyrehose.tide import OLD, PLAUSIBLE_JUMP, Tide


def test_two_that_agree_are_believed() -> None:
    tide = Tide(0.0)
    tide.reached(100)
    assert tide.plausible(100 + PLAUSIBLE_JUMP)
    assert not tide.plausible(10**9)
    assert not tide.plausible(10**9)  # The same once more proves nothing: it may have been duplicated.
    assert tide.plausible(10**9 + 1)
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
    assert tide.plausible(PLAUSIBLE_JUMP)


def test_several_rising_numbers_from_long_ago_are_a_fall() -> None:
    tide = Tide(0.0)
    tide.reached(100)
    tide.time_passed(OLD)
    tide.reached(200)
    assert [tide.falls(number) for number in range(1, 9)] == [False] * 8
    tide.time_passed(2 * OLD)
    assert not tide.falls(101)
    assert [tide.falls(number) for number in (7, 7, 3, 4)] == [False] * 4
    assert tide.falls(5)


def test_old_numbers_while_the_stream_goes_on_are_late_duplicates() -> None:
    tide = Tide(0.0)
    tide.reached(100)
    tide.time_passed(OLD)
    tide.time_passed(2 * OLD)
    for number in range(1, 90):
        tide.reached(100 + number)
        assert not tide.falls(number)
