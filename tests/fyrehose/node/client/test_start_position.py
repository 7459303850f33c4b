from __future__ import annotations

from itertools import pairwise

from fyrehose_twisted.fyrehose.config import Start
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.start_position import (
    CONFIRMATION_RANGE,
    CONFIRMATION_TIMEOUT,
    FINAL_WAIT_INTERVALS,
    MAX_REQUESTS,
    REQUEST_INTERVAL,
    StartPositionSearch,
)
from fyrehose_twisted.fyrehose.node.client.stream_head import MAX_JUMP
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE


def test_a_first_answer_does_not_end_the_search_for_the_oldest_message() -> None:
    search = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    search.begin(0.0)
    now, requested = 0.0, 0
    while search.result(now) is None:
        deadline = search.next_deadline()
        assert deadline is not None
        now = max(now, deadline)
        requested += search.next_request(now) is not None
        search.add(50 - requested, b"", now, live=False)
    assert requested == MAX_REQUESTS
    assert now > REQUEST_INTERVAL * (MAX_REQUESTS - 1 + FINAL_WAIT_INTERVALS) - 0.001
    assert min(search.early_messages) == 50 - MAX_REQUESTS


def test_unanswered_requests_for_the_oldest_message_back_off() -> None:
    search = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    search.begin(0.0)
    now, requested = 0.0, []
    while now < 150:
        assert search.result(now) is None
        if search.next_request(now) is not None:
            requested.append(now)
        deadline = search.next_deadline()
        assert deadline is not None
        assert deadline >= now
        now = deadline
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(requested)]
    assert pauses == [REQUEST_INTERVAL] * (MAX_REQUESTS - 1) + [1.3, 2.3, 4.3, 8.3, 16.3, 30.3, 30.3, 30.3]
    search.add(7, b"", now, live=False)
    assert search.next_request(now + 0.02) is None
    assert search.result(now + 0.02) == 7


def test_early_messages_are_limited_but_one_always_fits() -> None:
    search = StartPositionSearch(Start.LIVE, 2 * MESSAGE_OVERHEAD + 10, 0.02)
    assert search.add(1, bytes(1_000), 0.0, live=True)
    search = StartPositionSearch(Start.LIVE, 2 * MESSAGE_OVERHEAD + 10, 0.02)
    assert search.add(3, bytes(5), 0.0, live=True)
    assert search.add(2, bytes(5), 0.0, live=False)
    assert search.add(2, bytes(5), 0.0, live=True)
    assert not search.add(4, b"", 0.0, live=True)
    assert (sorted(search.early_messages), search.live_numbers) == ([2, 3], {2, 3})


def test_start_live_sends_no_requests_and_has_no_deadline_before_a_message() -> None:
    search = StartPositionSearch(Start.LIVE, 1_000, 0.02)
    search.begin(0.0)
    assert (search.next_deadline(), search.next_request(9.0), search.result(9.0)) == (None, None, None)


def search_with_message(number: int) -> StartPositionSearch:
    search = StartPositionSearch(Start.LIVE, 10_000, 0.02)
    search.add(number, b"a", 0.0, live=True)
    return search


def test_a_single_implausible_number_waits_for_another_near_it() -> None:
    search = search_with_message(MAX_SEQUENCE)
    assert (search.result(1.0), search.next_deadline()) == (None, 1.0)
    assert search.next_request(1.0) == (MAX_SEQUENCE - CONFIRMATION_RANGE, MAX_SEQUENCE)
    assert (search.next_request(1.5), search.next_deadline()) == (None, 1.0 + CONFIRMATION_TIMEOUT)
    assert (search.result(1.0 + CONFIRMATION_TIMEOUT), search.next_deadline()) == (None, None)
    search.add(10**9, b"true", 3.0, live=True)
    assert search.result(4.0) is None
    search.add(10**9 + 1, b"true too", 4.0, live=True)
    assert search.result(5.0) == 10**9


def test_a_large_first_number_is_verified_and_accepted_after_the_timeout() -> None:
    search = search_with_message(MAX_JUMP + 1)
    assert (search.result(1.0), search.next_request(1.0)) == (None, (MAX_JUMP + 1 - CONFIRMATION_RANGE, MAX_JUMP + 1))
    assert search.result(1.0 + CONFIRMATION_TIMEOUT - 0.01) is None
    assert search.result(1.0 + CONFIRMATION_TIMEOUT) == MAX_JUMP + 1
    assert search_with_message(MAX_JUMP).result(1.0) == MAX_JUMP


def test_a_live_start_is_not_before_the_first_message_even_if_the_backbone_confirms_it() -> None:
    search = search_with_message(MAX_JUMP + 100)
    search.result(1.0)
    low, high = search.next_request(1.0) or (0, 0)
    for number in range(low, high + 1):
        search.add(number, b"retransmitted", 1.1, live=True)
    assert search.result(1.2) == MAX_JUMP + 100


def test_a_confirmation_from_any_host_ends_the_verification() -> None:
    search = search_with_message(MAX_JUMP + 1)
    search.result(1.0)
    search.next_request(1.0)
    search.add(MAX_JUMP, b"b", 1.1, live=False)
    assert search.next_deadline() == 1.12
    assert search.result(1.12) == MAX_JUMP + 1  # The live message; the repair only confirms it.


def test_the_lower_of_two_unconfirmed_numbers_is_verified() -> None:
    search = StartPositionSearch(Start.LIVE, 10_000, 0.02)
    for number in (MAX_SEQUENCE, 10**9):
        search.add(number, b"", 0.0, live=True)
    assert search.result(1.0) is None
    assert search.next_request(1.0) == (10**9 - CONFIRMATION_RANGE, 10**9)


def test_a_second_unconfirmed_number_does_not_end_the_verification() -> None:
    search = search_with_message(MAX_JUMP + 1)
    search.result(1.0)
    search.next_request(1.0)
    search.add(10**9, b"forged", 1.1, live=True)
    assert (search.result(1.12), search.next_deadline()) == (None, 1.0 + CONFIRMATION_TIMEOUT)
    assert search.result(1.0 + CONFIRMATION_TIMEOUT) == MAX_JUMP + 1


def test_start_oldest_begins_at_the_durable_number_reported_by_the_backbone() -> None:
    search = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    search.status_reported(41, 900)
    search.begin(0.0)
    search.add(850, b"", 0.0, live=True)
    assert (search.next_request(0.0), search.result(0.0), search.reported_last) == (None, 41, 900)


def test_a_message_that_arrived_before_the_report_of_durable_journals_is_not_skipped() -> None:
    search = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    search.begin(0.0)
    assert search.next_request(0.0) == (1, MAX_SEQUENCE)
    search.add(5, b"held by a client without a journal", 0.1, live=False)
    search.status_reported(41, 900)
    assert search.result(0.1) == 5


def test_a_message_far_below_the_report_of_durable_journals_does_not_move_the_start() -> None:
    search = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    search.begin(0.0)
    search.add(5, b"may be forged", 0.1, live=False)
    search.status_reported(5 + MAX_JUMP + 1, 5_000)
    assert search.result(0.1) == 5 + MAX_JUMP + 1


def test_start_oldest_requests_from_clients_without_a_durable_journal() -> None:
    search = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    search.status_reported(0, 900)
    search.begin(0.0)
    assert search.result(0.0) is None
    assert search.next_request(0.0) == (1, MAX_SEQUENCE)


def test_start_live_ignores_the_reported_durable_number() -> None:
    search = StartPositionSearch(Start.LIVE, 10_000, 0.02)
    search.status_reported(41, 900)
    search.begin(0.0)
    assert (search.result(0.0), search.reported_last) == (None, 0)
