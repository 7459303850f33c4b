from __future__ import annotations

import pytest

from fyrehose_twisted.fyrehose.config import RepairConfig
from fyrehose_twisted.fyrehose.node.client.repair import MIN_REORDER_DELAY, MIN_RETRY, RepairRoundTrip


def answered(times: int, seconds: float, trip: RepairRoundTrip | None = None) -> RepairRoundTrip:
    """Return the state after some REQUESTs that were answered after ``seconds``."""
    trip = RepairRoundTrip(RepairConfig()) if trip is None else trip
    for _ in range(times):
        trip.requested(1, 3, 0, 10.0)
        trip.arrived(3, 10.0 + seconds)
    return trip


def test_waiting_times_are_the_configured_ones_until_a_round_trip_is_measured() -> None:
    trip = RepairRoundTrip(RepairConfig())
    trip.requested(1, 3, 0, 10.0)
    trip.arrived(2, 10.001)
    assert (trip.retry, trip.reorder_delay) == (0.1, 0.02)


def test_waiting_times_follow_the_round_trip_within_limits() -> None:
    trip = answered(50, 0.02)
    assert trip.retry == pytest.approx(0.02, rel=0.05)
    assert trip.reorder_delay == pytest.approx(0.01)
    short, long = answered(50, 0.0001), answered(50, 3.0)
    assert (short.retry, short.reorder_delay) == (MIN_RETRY, MIN_REORDER_DELAY)
    assert (long.retry, long.reorder_delay) == (0.1, 0.02)


def test_an_answer_to_a_repeated_request_is_no_measurement() -> None:
    trip = RepairRoundTrip(RepairConfig())
    trip.requested(1, 3, 0, 10.0)
    trip.requested(3, 3, 1, 10.1)
    trip.arrived(3, 10.101)
    assert trip.retry == 0.1


def test_a_request_without_an_answer_does_not_end_the_measurements() -> None:
    trip = RepairRoundTrip(RepairConfig())
    trip.requested(1, 3, 0, 10.0)
    trip.requested(5, 5, 0, 10.2)
    trip.arrived(5, 10.2)
    assert trip.retry == MIN_RETRY


def test_numbers_that_are_only_late_restore_the_configured_waiting_times() -> None:
    trip = answered(50, 0.0001)
    for _ in range(20):
        trip.requested_early()
    assert (trip.retry, trip.reorder_delay) == (0.1, 0.02)
    answered(500, 0.0001, trip)
    assert (trip.retry, trip.reorder_delay) == (MIN_RETRY, MIN_REORDER_DELAY)
