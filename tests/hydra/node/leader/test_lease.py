from __future__ import annotations

import pytest

from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.node.leader.lease import MAX_TRACKED_PINGS, Lease

TIMERS = Timers()


def make(*pings: float) -> Lease:
    lease = Lease(TIMERS, pings[0])
    for number, at in enumerate(pings):
        lease.ping_sent(f"v{number}", at)
    return lease


def test_lease_starts_at_the_sending_of_the_ping() -> None:
    lease = make(100.0)
    lease.ponged("v0", 1, 0.0, 2)
    assert lease.until is None
    assert not lease.is_valid(100.0)
    lease.ponged("v0", 2, 0.0, 2)
    assert lease.until == 107.5
    assert lease.is_valid(107.4)
    assert not lease.is_valid(107.5)


def test_answers_to_different_pings_do_not_form_a_quorum() -> None:
    lease = make(100.0, 105.0)
    lease.ponged("v0", 1, 0.0, 3)
    lease.ponged("v0", 2, 0.0, 3)
    lease.ponged("v1", 3, 0.0, 3)
    assert lease.until is None


def test_repeated_answers_of_a_node_count_once() -> None:
    lease = make(100.0)
    for _ in range(5):
        lease.ponged("v0", 1, 0.0, 2)
    assert lease.until is None


def test_late_answer_to_an_old_ping_does_not_shorten_the_lease() -> None:
    lease = make(100.0, 105.0)
    for val in ("v1", "v0"):
        for node in (1, 2):
            lease.ponged(val, node, 0.0, 2)
    assert lease.until == 112.5


def test_pings_before_the_registration_of_a_node_do_not_count() -> None:
    lease = make(100.0)
    lease.ponged("v0", 1, 0.0, 2)
    lease.ponged("v0", 2, 100.1, 2)
    assert lease.until is None


def test_answer_to_an_unknown_ping_does_not_count() -> None:
    lease = make(100.0)
    lease.ponged("w0", 1, 0.0, 1)
    assert lease.until is None


def test_answers_of_a_dropped_node_do_not_count() -> None:
    lease = make(100.0)
    lease.ponged("v0", 1, 0.0, 2)
    lease.forget(1)
    lease.ponged("v0", 2, 0.0, 2)
    assert lease.until is None


def test_only_the_latest_pings_are_tracked() -> None:
    lease = make(*(100.0 + number for number in range(MAX_TRACKED_PINGS + 1)))
    lease.ponged("v0", 1, 0.0, 1)
    assert lease.until is None
    lease.ponged("v1", 1, 0.0, 1)
    assert lease.until == 108.5


@pytest.mark.parametrize(
    ("answered", "since", "now", "overdue"),
    [
        (None, 0.0, 109.9, False),
        (None, 0.0, 110.0, True),
        (None, 100.1, 114.9, False),
        (None, 100.1, 115.0, True),
        ("v0", 0.0, 114.9, False),
        ("v0", 0.0, 115.0, True),
        ("v1", 0.0, 115.0, False),
    ],
)
def test_node_is_overdue_after_max_ping_without_an_answer(
    answered: str | None, since: float, now: float, overdue: bool
) -> None:
    lease = make(100.0, 105.0)
    if answered is not None:
        lease.ponged(answered, 1, since, 3)
    assert lease.is_overdue(1, since, now) is overdue


def test_next_answer_is_due_max_ping_after_its_ping() -> None:
    lease = make(100.0, 105.0)
    assert lease.next_deadline(105.0) == 110.0
    assert lease.next_deadline(110.0) == 115.0
    assert lease.next_deadline(115.0) == 125.0


@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 10.0])
def test_promises_outlast_leases_with_30_percent_clock_drift(scale: float) -> None:
    timers = Timers(scale)
    assert timers.promise / 1.3 > timers.lease / 0.7
    assert timers.lease > timers.ping_interval
