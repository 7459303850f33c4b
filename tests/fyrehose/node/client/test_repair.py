from __future__ import annotations

from random import Random

import pytest

from fyrehose_twisted.fyrehose.config import RepairConfig
from fyrehose_twisted.fyrehose.node.client import repair
from fyrehose_twisted.fyrehose.node.client.repair import (
    MAX_REMEMBERED_RANGES,
    MESSAGES_PER_REQUEST,
    REQUEST_LIFETIME,
    SUSPECT_RETRY_INTERVAL,
    THROTTLE_PAUSE,
    RepairScheduler,
)
from fyrehose_twisted.ranges import RangeSet


def repairs(**options: float) -> RepairScheduler:
    return RepairScheduler(RepairConfig(**options), Random(1), 0.0)  # type: ignore[arg-type]


def test_only_numbers_still_missing_are_requested() -> None:
    plan = repairs()
    plan.gap_found(1, 10, 0.0)
    assert plan.next_deadline() == pytest.approx(0.02)
    assert plan.take_due(RangeSet([(3, 4), (8, 20)]), 0.02).requests == [(3, 4), (8, 10)]
    assert plan.arrived(3)
    assert not plan.arrived(3)
    assert not plan.arrived(11)


def test_requested_numbers_are_limited_and_the_rest_follows_on_arrival() -> None:
    plan = repairs(in_flight=2_048)
    missing = RangeSet([(1, 5_000)])
    plan.gap_found(1, 5_000, 0.0)
    assert plan.take_due(missing, 0.02).requests == [(1, 1_024), (1_025, 2_048)]
    missing.discard(1, 1_024)
    for sequence in range(1, 1_025):
        plan.arrived(sequence)
    assert plan.take_due(missing, 0.03).requests == [(2_049, 3_072)]


def test_a_busy_stream_allows_more_requests_than_the_configured_rate() -> None:
    plan = repairs(rate=10.0, reorder_delay=0.0)
    gaps = RangeSet([(number, number) for number in range(1, 200, 2)])
    for first, last in gaps:
        plan.gap_found(first, last, 0.0)
    assert len(plan.take_due(gaps, 0.0).requests) == 10
    plan.messages_received(5 * MESSAGES_PER_REQUEST)
    assert len(plan.take_due(gaps, THROTTLE_PAUSE).requests) == 5
    plan.messages_received(1_000 * MESSAGES_PER_REQUEST)
    assert len(plan.take_due(gaps, 2 * THROTTLE_PAUSE).requests) == 10


def test_each_gap_is_given_up_after_its_own_attempts() -> None:
    plan = repairs(attempts=2, reorder_delay=0.0)
    missing = RangeSet([(1, 1), (9, 9)])
    plan.gap_found(1, 1, 0.0)
    plan.gap_found(9, 9, 0.3)
    requests, given_up = [], []
    for step in range(300):
        due = plan.take_due(missing, step / 100)
        requests += due.requests
        given_up += due.given_up
        for first, last in due.given_up:
            missing.discard(first, last)
    assert sorted(requests) == [(1, 1)] * 2 + [(9, 9)] * 2
    assert given_up == [(1, 1), (9, 9)]
    assert plan.next_deadline() is None


def test_deferred_numbers_are_neither_requested_nor_given_up() -> None:
    plan = repairs(attempts=1, reorder_delay=0.0)
    missing = RangeSet([(1, 3), (7, 9)])
    plan.gap_found(1, 9, 0.0)
    assert plan.take_due(missing, 0.0, defer_from=3) == ([(1, 2)], [])
    for step in range(1, 100):
        due = plan.take_due(missing, step / 10, defer_from=3)
        assert due.requests == []
        assert all(last < 3 for _, last in due.given_up)
        assert (plan.next_deadline() or 0) > step / 10
    assert plan.take_due(missing, 11.0).requests == [(3, 3), (7, 9)]


def test_recorded_requests_expire_after_their_lifetime() -> None:
    plan = repairs()
    plan.record_request(5, 9, 0.0)
    plan.record_request(20, 20, REQUEST_LIFETIME - 1)
    now = REQUEST_LIFETIME - 1
    assert plan.is_requested(5, now)
    assert not plan.is_requested(10, now)
    plan.record_request(30, 30, now + 1)
    assert plan.is_requested(5, now + 1)
    assert plan.is_requested(20, now + 1)
    assert not plan.is_requested(5, 2 * REQUEST_LIFETIME)
    assert plan.is_requested(30, 2 * REQUEST_LIFETIME)
    assert not plan.is_requested(30, 10 * REQUEST_LIFETIME)  # No request was recorded in between.


def test_a_recorded_request_expires_without_later_requests() -> None:
    plan = repairs()
    plan.record_request(5, 9, 0.0)
    assert not plan.is_requested(5, 2 * REQUEST_LIFETIME)


def test_the_memory_of_recorded_requests_is_bounded() -> None:
    plan = repairs()
    for number in range(3 * MAX_REMEMBERED_RANGES):
        plan.record_request(2 * number, 2 * number, 1.0)
    assert len(plan._requested) + len(plan._requested_before) <= 2 * MAX_REMEMBERED_RANGES


def test_an_arrival_refused_by_the_buffer_restarts_its_attempts() -> None:
    plan = repairs(attempts=1, reorder_delay=0.0)
    missing = RangeSet([(1, 3)])
    plan.gap_found(1, 3, 0.0)
    assert plan.take_due(missing, 0.0).requests == [(1, 3)]
    plan.arrival_refused(2)
    assert plan.take_due(missing, 1.0) == ([(2, 2)], [(1, 1), (3, 3)])
    missing = RangeSet([(2, 2)])
    assert plan.take_due(missing, 2.0) == ([], [(2, 2)])


def test_a_gap_confirmed_after_earlier_attempts_is_requested_again() -> None:
    plan = repairs(attempts=2, reorder_delay=0.0, first_retry=0.1, last_retry=0.1)
    missing = RangeSet([(1, 9)])
    plan.gap_found(1, 9, 0.0)
    for now in (0.0, 0.2):
        assert plan.take_due(missing, now).requests == [(1, 9)]
    assert plan.take_due(missing, 0.4).given_up == [(1, 9)]
    plan.suspect_gap(5, 9, 0.4, until=10.0)
    assert plan.confirm_gap(1, 9, 0.5) == [(1, 4)]
    for now in (0.5, 0.7):
        assert plan.take_due(missing, now).requests == [(5, 9)]
    assert plan.take_due(missing, 0.9).given_up == [(5, 9)]
    assert plan.confirm_gap(5, 9, 0.9) == [(5, 9)]


def test_a_suspected_gap_is_requested_at_the_suspect_interval() -> None:
    plan = repairs(attempts=3)
    plan.suspect_gap(5, 9, 0.0, until=10.0)
    assert plan.next_deadline() == SUSPECT_RETRY_INTERVAL
    assert plan.take_due(RangeSet([(5, 9)]), SUSPECT_RETRY_INTERVAL).requests == [(5, 9)]
    assert plan.take_due(RangeSet([(5, 9)]), SUSPECT_RETRY_INTERVAL + 1).given_up == [(5, 9)]
    for sequence in range(5, 10):
        plan.arrived(sequence)
    assert plan.confirm_gap(5, 9, 9.0) == [(5, 9)]  # The gap is no longer suspected.


def test_a_gap_found_repeatedly_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MAX_PLANNED", 10)
    plan = repairs()
    for _ in range(6):
        plan.gap_found(5, 5, 0.0)
        plan.gap_found(7, 7, 0.0)
    missing = RangeSet([(5, 5), (7, 7)])
    assert len(plan) == 12
    assert plan.take_due(missing, 0.02).requests == [(5, 5), (7, 7)]
    assert len(plan) == 2
    assert plan.take_due(missing, 0.4).requests == [(5, 5), (7, 7)]


def test_many_gaps_are_planned_separately_beyond_the_planning_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MAX_PLANNED", 2)
    plan = repairs(attempts=2)
    missing = RangeSet([(number, number) for number in range(1, 20, 2)])
    for number in range(1, 20, 2):
        plan.gap_found(number, number, 0.0)
    assert len(plan.take_due(missing, 0.02).requests) == 10
    assert len(plan.take_due(missing, 1.0).requests) == 10
    assert sorted(plan.take_due(missing, 2.0).given_up) == [
        (number, number) for number in range(1, 20, 2)
    ]  # No attempts were restarted.


def test_a_deferred_gap_found_repeatedly_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "MAX_PLANNED", 10)
    plan, missing = repairs(reorder_delay=0.0), RangeSet([(5, 5)])
    for _ in range(10):
        plan.gap_found(5, 5, 0.0)
    assert plan.take_due(missing, 0.0, defer_from=5) == ([], [])
    plan.gap_found(5, 5, 0.0)
    assert plan.take_due(missing, 1.0).requests == [(5, 5)]


def test_a_deferred_gap_is_requested_once_when_it_is_released() -> None:
    plan, missing = repairs(reorder_delay=0.0), RangeSet([(3, 3), (9, 9)])
    plan.gap_found(3, 3, 0.0)
    plan.gap_found(9, 9, 0.0)
    assert plan.take_due(missing, 0.0, defer_from=3) == ([], [])
    assert plan.take_due(missing, 1.0).requests == [(3, 3), (9, 9)]


def test_unanswered_requests_free_the_limit_for_further_requests() -> None:
    plan, missing = repairs(in_flight=1_024), RangeSet([(1, 10_000)])
    plan.gap_found(1, 10_000, 0.0)
    assert plan.take_due(missing, 0.02).requests == [(1, 1_024)]
    assert plan.take_due(missing, 0.3).requests == []
    assert plan.take_due(missing, 0.31).requests == [(1, 1_024), (1_025, 2_048)]
    missing.discard(1, 1_024)
    for sequence in range(1, 1_025):
        plan.arrived(sequence)
    assert plan.take_due(missing, 0.32).requests == []


def test_an_unrepairable_gap_is_given_up_without_waiting_for_answers() -> None:
    plan, missing = repairs(in_flight=1_024, attempts=3), RangeSet([(1, 10_240)])
    plan.gap_found(1, 10_240, 0.0)
    for step in range(300):
        for first, last in plan.take_due(missing, step / 100).given_up:
            missing.discard(first, last)
    assert missing.count == 0


def test_the_first_number_without_buffer_space_is_deferred() -> None:
    plan = repairs(reorder_delay=0.0)
    plan.gap_found(5, 5, 0.0)
    assert plan.take_due(RangeSet([(5, 5)]), 0.0, defer_from=5) == ([], [])


def test_a_gap_cut_by_the_in_flight_limit_is_requested_completely() -> None:
    plan, missing = repairs(in_flight=1_024), RangeSet([(1, 2_000), (3_000, 3_100)])
    requested: list[tuple[int, int]] = []
    plan.gap_found(1, 3_100, 0.0)
    for step in range(2, 20):
        for first, last in plan.take_due(missing, step / 100).requests:
            requested.append((first, last))
            missing.discard(first, last)
            for sequence in range(first, last + 1):
                plan.arrived(sequence)
    assert requested == [(1, 1_024), (1_025, 2_000), (3_000, 3_100)]


def test_a_run_is_requested_if_all_of_its_numbers_are() -> None:
    plan = RepairScheduler(RepairConfig(), Random(1), 0.0)
    plan.record_request(1, 5, 0.0)
    assert plan.is_run_requested(2, 5, 1.0)
    assert not plan.is_run_requested(5, 6, 1.0)
    assert plan.is_run_requested(1, 5, REQUEST_LIFETIME + 1.0)
    assert not plan.is_run_requested(1, 5, 2 * REQUEST_LIFETIME + 2.0)
