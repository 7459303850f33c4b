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


def test_a_number_is_old_when_the_backbone_was_beyond_it_for_a_while() -> None:
    tide = Tide(0.0)
    tide.reached(100)
    tide.time_passed(OLD)
    tide.reached(200)
    assert not tide.is_old(1)
    tide.time_passed(2 * OLD - 0.1)
    assert not tide.is_old(1)
    tide.time_passed(2 * OLD)
    assert tide.is_old(100)
    assert not tide.is_old(101)
    tide.time_passed(3 * OLD)
    assert tide.is_old(200)
