"""Repairs for many clients at once: what goes to the group, and what to a client alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.multicast import gathering
from fyrehose_twisted.fyrehose.node.multicast.gathering import (
    ANSWER_TIME,
    GATHERING_TIME,
    GROUP_PAUSE,
    LISTENERS_PER_REQUEST,
    MAX_REQUESTS,
    Gathered,
    RepairGatherer,
    shared_from,
)

START = 1_700_000_000.0
FEW = LISTENERS_PER_REQUEST - 1
"""Listeners of which two that ask for a number share a loss."""


def test_the_first_request_is_answered_alone_the_second_for_all_and_the_others_not_at_all() -> None:
    gatherer = RepairGatherer(START)
    assert gatherer.requested(5, 7, FEW, START) == Gathered([(5, 7)], [], 0)
    assert gatherer.requested(5, 7, FEW, START + 0.001) == Gathered([], [(5, 7)], 0)
    for _ in range(198):
        assert gatherer.requested(5, 7, FEW, START + 0.002) == Gathered([], [], 3)


@pytest.mark.parametrize(("listeners", "needed"), [(1, 2), (50, 3), (200, 6), (300, 8), (100_000, 8)])
def test_the_more_hear_the_group_the_more_have_to_ask(listeners: int, needed: int) -> None:
    assert shared_from(listeners) == needed <= MAX_REQUESTS
    gatherer = RepairGatherer(START)
    for _ in range(needed - 1):
        assert gatherer.requested(5, 7, listeners, START) == Gathered([(5, 7)], [], 0)
    assert gatherer.requested(4, 7, listeners, START) == Gathered([(4, 4)], [(5, 7)], 0)
    assert gatherer.requested(5, 7, listeners, START) == Gathered([], [], 3)


def test_parts_of_a_range_are_treated_each_in_its_own_way() -> None:
    gatherer = RepairGatherer(START)
    gatherer.requested(1, 4, FEW, START)
    assert gatherer.requested(3, 6, FEW, START) == Gathered([(5, 6)], [(3, 4)], 0)
    assert gatherer.requested(1, 9, FEW, START) == Gathered([(7, 9)], [(1, 2), (5, 6)], 2)


def test_whoever_asks_again_is_answered_alone_once_the_answer_to_all_must_have_arrived() -> None:
    gatherer = RepairGatherer(START)
    for _ in range(2):
        gatherer.requested(5, 5, FEW, START)
    assert gatherer.requested(5, 5, FEW, START + ANSWER_TIME / 2).ignored == 1
    for number in range(20):
        assert gatherer.requested(5, 5, FEW, START + 2 * ANSWER_TIME + number * 0.01) == Gathered([(5, 5)], [], 0)


def test_a_request_that_comes_late_is_taken_for_the_first_one() -> None:
    gatherer = RepairGatherer(START)
    gatherer.requested(5, 5, FEW, START)
    assert gatherer.requested(5, 5, FEW, START + 2 * GATHERING_TIME) == Gathered([(5, 5)], [], 0)


def test_a_message_goes_to_the_group_again_after_a_pause() -> None:
    gatherer = RepairGatherer(START)
    for _ in range(2):
        gatherer.requested(5, 5, FEW, START)
    later = START + 2 * GROUP_PAUSE
    assert gatherer.requested(5, 5, FEW, later).alone == [(5, 5)]
    assert gatherer.requested(5, 5, FEW, later).group == [(5, 5)]


def test_a_clock_that_is_set_back_leaves_nothing_remembered_for_ever() -> None:
    gatherer = RepairGatherer(START)
    for _ in range(2):
        gatherer.requested(5, 5, FEW, START)
    before = START - 3_600.0
    assert gatherer.requested(5, 5, FEW, before).ignored <= 1
    for step in range(1, 4):
        now = before + step * 2 * GROUP_PAUSE
        assert gatherer.requested(5, 5, FEW, now).alone == [(5, 5)], step


def test_what_is_remembered_is_limited() -> None:
    gatherer = RepairGatherer(START)
    for number in range(0, 3 * gathering.MAX_RANGES, 2):
        assert gatherer.requested(number, number, FEW, START).alone == [(number, number)]
    last = 3 * gathering.MAX_RANGES - 2
    assert gatherer.requested(0, 0, FEW, START).group == [(0, 0)]
    assert gatherer.requested(last, last, FEW, START).alone == [(last, last)], "it was too much to be remembered"


requests = st.lists(
    st.tuples(st.integers(1, 30), st.integers(0, 8), st.sampled_from((0.0, 0.001, 0.01, 0.03, 0.1, 0.5))), max_size=40
)


@given(requests)
def test_each_number_is_answered_in_one_way_and_the_group_is_spared(steps: list[tuple[int, int, float]]) -> None:
    gatherer, now = RepairGatherer(START), START
    sent_at: dict[int, float] = {}
    for first, more, wait in steps:
        now += wait
        last = first + more
        found = gatherer.requested(first, last, FEW, now)
        alone = [number for start, end in found.alone for number in range(start, end + 1)]
        group = [number for start, end in found.group for number in range(start, end + 1)]
        assert len(set(alone) | set(group)) == len(alone) + len(group), "each once"
        assert {*alone, *group} <= set(range(first, last + 1))
        assert len(alone) + len(group) + found.ignored == more + 1
        for number in set(range(first, last + 1)) - {*alone, *group}:
            assert now - sent_at[number] <= 2 * ANSWER_TIME, "ignored without an answer"
        for number in group:
            assert now - sent_at.get(number, 0.0) >= GROUP_PAUSE
            sent_at[number] = now
