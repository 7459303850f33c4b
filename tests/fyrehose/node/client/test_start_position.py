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


def test_the_first_message_found_while_asking_does_not_end_the_asking() -> None:
    joining = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    joining.begin(0.0)
    now, asked = 0.0, 0
    while joining.result(now) is None:
        deadline = joining.next_deadline()
        assert deadline is not None
        now = max(now, deadline)
        asked += joining.next_request(now) is not None
        joining.add(50 - asked, b"", now, live=False)
    assert asked == MAX_REQUESTS
    assert now > REQUEST_INTERVAL * (MAX_REQUESTS - 1 + FINAL_WAIT_INTERVALS) - 0.001
    assert min(joining.early_messages) == 50 - MAX_REQUESTS


def test_where_nobody_answers_the_oldest_is_asked_for_more_and_more_rarely() -> None:
    joining = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    joining.begin(0.0)
    now, asked = 0.0, []
    while now < 150:
        assert joining.result(now) is None
        if joining.next_request(now) is not None:
            asked.append(now)
        deadline = joining.next_deadline()
        assert deadline is not None
        assert deadline >= now
        now = deadline
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(asked)]
    assert pauses == [REQUEST_INTERVAL] * (MAX_REQUESTS - 1) + [1.3, 2.3, 4.3, 8.3, 16.3, 30.3, 30.3, 30.3]
    joining.add(7, b"", now, live=False)
    assert joining.next_request(now + 0.02) is None
    assert joining.result(now + 0.02) == 7


def test_what_comes_early_has_a_limit_but_one_message_always_fits() -> None:
    joining = StartPositionSearch(Start.LIVE, 2 * MESSAGE_OVERHEAD + 10, 0.02)
    assert joining.add(1, bytes(1_000), 0.0, live=True)
    joining = StartPositionSearch(Start.LIVE, 2 * MESSAGE_OVERHEAD + 10, 0.02)
    assert joining.add(3, bytes(5), 0.0, live=True)
    assert joining.add(2, bytes(5), 0.0, live=False)
    assert joining.add(2, bytes(5), 0.0, live=True)
    assert not joining.add(4, b"", 0.0, live=True)
    assert (sorted(joining.early_messages), joining.live_numbers) == ([2, 3], {2, 3})


def test_live_asks_nothing_and_has_no_deadline_before_a_message() -> None:
    joining = StartPositionSearch(Start.LIVE, 1_000, 0.02)
    joining.begin(0.0)
    assert (joining.next_deadline(), joining.next_request(9.0), joining.result(9.0)) == (None, None, None)


def joined_by(number: int) -> StartPositionSearch:
    joining = StartPositionSearch(Start.LIVE, 10_000, 0.02)
    joining.add(number, b"a", 0.0, live=True)
    return joining


def test_one_high_number_alone_may_be_forged_and_waits_for_another_near_it() -> None:
    joining = joined_by(MAX_SEQUENCE)
    assert (joining.result(1.0), joining.next_deadline()) == (None, 1.0)
    assert joining.next_request(1.0) == (MAX_SEQUENCE - CONFIRMATION_RANGE, MAX_SEQUENCE)
    assert (joining.next_request(1.5), joining.next_deadline()) == (None, 1.0 + CONFIRMATION_TIMEOUT)
    assert (joining.result(1.0 + CONFIRMATION_TIMEOUT), joining.next_deadline()) == (None, None)
    joining.add(10**9, b"true", 3.0, live=True)
    assert joining.result(4.0) is None
    joining.add(10**9 + 1, b"true too", 4.0, live=True)
    assert joining.result(5.0) == 10**9


def test_a_number_that_may_well_be_true_is_asked_about_and_then_believed() -> None:
    joining = joined_by(MAX_JUMP + 1)
    assert (joining.result(1.0), joining.next_request(1.0)) == (None, (MAX_JUMP + 1 - CONFIRMATION_RANGE, MAX_JUMP + 1))
    assert joining.result(1.0 + CONFIRMATION_TIMEOUT - 0.01) is None
    assert joining.result(1.0 + CONFIRMATION_TIMEOUT) == MAX_JUMP + 1
    assert joined_by(MAX_JUMP).result(1.0) == MAX_JUMP


def test_whoever_confirms_it_ends_the_doubt_at_once() -> None:
    joining = joined_by(MAX_JUMP + 1)
    joining.result(1.0)
    joining.next_request(1.0)
    joining.add(MAX_JUMP, b"b", 1.1, live=False)
    assert joining.next_deadline() == 1.12
    assert joining.result(1.12) == MAX_JUMP + 1  # The one that came live; the other only says that it may be true.


def test_of_two_that_may_be_forged_the_lower_is_asked_about() -> None:
    joining = StartPositionSearch(Start.LIVE, 10_000, 0.02)
    for number in (MAX_SEQUENCE, 10**9):
        joining.add(number, b"", 0.0, live=True)
    assert joining.result(1.0) is None
    assert joining.next_request(1.0) == (10**9 - CONFIRMATION_RANGE, 10**9)


def test_another_that_may_be_forged_does_not_end_the_doubts() -> None:
    joining = joined_by(MAX_JUMP + 1)
    joining.result(1.0)
    joining.next_request(1.0)
    joining.add(10**9, b"forged", 1.1, live=True)
    assert (joining.result(1.12), joining.next_deadline()) == (None, 1.0 + CONFIRMATION_TIMEOUT)
    assert joining.result(1.0 + CONFIRMATION_TIMEOUT) == MAX_JUMP + 1


def test_what_the_backbone_says_of_durable_journals_is_the_oldest() -> None:
    joining = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    joining.status_reported(41, 900)
    joining.begin(0.0)
    joining.add(850, b"", 0.0, live=True)
    assert (joining.next_request(0.0), joining.result(0.0), joining.reported_last) == (None, 41, 900)


def test_a_message_that_arrived_before_the_report_of_durable_journals_is_not_skipped() -> None:
    joining = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    joining.begin(0.0)
    assert joining.next_request(0.0) == (1, MAX_SEQUENCE)
    joining.add(5, b"held by a client without a journal", 0.1, live=False)
    joining.status_reported(41, 900)
    assert joining.result(0.1) == 5


def test_a_message_far_below_the_report_of_durable_journals_does_not_move_the_start() -> None:
    joining = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    joining.begin(0.0)
    joining.add(5, b"may be forged", 0.1, live=False)
    joining.status_reported(5 + MAX_JUMP + 1, 5_000)
    assert joining.result(0.1) == 5 + MAX_JUMP + 1


def test_where_there_is_no_durable_journal_others_are_asked() -> None:
    joining = StartPositionSearch(Start.OLDEST, 10_000, 0.02)
    joining.status_reported(0, 900)
    joining.begin(0.0)
    assert joining.result(0.0) is None
    assert joining.next_request(0.0) == (1, MAX_SEQUENCE)


def test_live_does_not_care_how_far_the_past_goes() -> None:
    joining = StartPositionSearch(Start.LIVE, 10_000, 0.02)
    joining.status_reported(41, 900)
    joining.begin(0.0)
    assert (joining.result(0.0), joining.reported_last) == (None, 0)
