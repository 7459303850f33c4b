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


def test_it_lasts_from_the_sending_not_from_the_answer() -> None:
    lease = make(100.0)
    lease.ponged("v0", 1, 0.0, 2)
    assert lease.until is None
    assert not lease.is_valid(100.0)
    lease.ponged("v0", 2, 0.0, 2)
    assert lease.until == 107.5
    assert lease.is_valid(107.4)
    assert not lease.is_valid(107.5)


def test_answers_to_different_pings_do_not_add_up() -> None:
    lease = make(100.0, 105.0)
    lease.ponged("v0", 1, 0.0, 3)
    lease.ponged("v0", 2, 0.0, 3)
    lease.ponged("v1", 3, 0.0, 3)
    assert lease.until is None


def test_a_node_counts_once_however_often_it_answers() -> None:
    lease = make(100.0)
    for _ in range(5):
        lease.ponged("v0", 1, 0.0, 2)
    assert lease.until is None


def test_a_late_answer_to_an_old_ping_does_not_shorten_it() -> None:
    lease = make(100.0, 105.0)
    for val in ("v1", "v0"):
        for node in (1, 2):
            lease.ponged(val, node, 0.0, 2)
    assert lease.until == 112.5


def test_what_was_sent_before_a_node_was_registered_says_nothing_about_it() -> None:
    lease = make(100.0)
    lease.ponged("v0", 1, 0.0, 2)
    lease.ponged("v0", 2, 100.1, 2)
    assert lease.until is None


def test_an_answer_to_what_nobody_sent_counts_for_nothing() -> None:
    lease = make(100.0)
    lease.ponged("w0", 1, 0.0, 1)
    assert lease.until is None


def test_a_node_that_was_dropped_counts_no_more() -> None:
    lease = make(100.0)
    lease.ponged("v0", 1, 0.0, 2)
    lease.forget(1)
    lease.ponged("v0", 2, 0.0, 2)
    assert lease.until is None


def test_of_many_pings_the_last_ones_are_remembered() -> None:
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
def test_who_owes_an_answer_for_too_long_is_overdue(
    answered: str | None, since: float, now: float, overdue: bool
) -> None:
    lease = make(100.0, 105.0)
    if answered is not None:
        lease.ponged(answered, 1, since, 3)
    assert lease.is_overdue(1, since, now) is overdue


def test_the_next_answer_is_due_max_ping_after_its_ping() -> None:
    lease = make(100.0, 105.0)
    assert lease.next_deadline(105.0) == 110.0
    assert lease.next_deadline(110.0) == 115.0
    assert lease.next_deadline(115.0) == 125.0


@pytest.mark.parametrize("scale", [0.01, 0.1, 1.0, 10.0])
def test_promises_outlive_leases_even_by_clocks_that_drift_by_30_percent(scale: float) -> None:
    timers = Timers(scale)
    assert timers.promise / 1.3 > timers.lease / 0.7
    assert timers.lease > timers.ping_interval
