from __future__ import annotations

from itertools import pairwise

from fyrehose_twisted.fyrehose.config import Start
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MESSAGE_OVERHEAD
from fyrehose_twisted.fyrehose.node.client.start_position import (
    ASK_INTERVAL,
    ASKS,
    DOUBT,
    NEIGHBOURS,
    PATIENCE,
    Joining,
)
from fyrehose_twisted.fyrehose.node.client.stream_head import LEAP
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE


def test_the_first_message_found_while_asking_does_not_end_the_asking() -> None:
    joining = Joining(Start.OLDEST, 10_000, 0.02)
    joining.begin(0.0)
    now, asked = 0.0, 0
    while joining.done(now) is None:
        deadline = joining.next_deadline()
        assert deadline is not None
        now = max(now, deadline)
        asked += joining.ask(now) is not None
        joining.add(50 - asked, b"", now, live=False)
    assert asked == ASKS
    assert now > ASK_INTERVAL * (ASKS - 1 + PATIENCE) - 0.001
    assert min(joining.early) == 50 - ASKS


def test_where_nobody_answers_the_oldest_is_asked_for_more_and_more_rarely() -> None:
    joining = Joining(Start.OLDEST, 10_000, 0.02)
    joining.begin(0.0)
    now, asked = 0.0, []
    while now < 150:
        assert joining.done(now) is None
        if joining.ask(now) is not None:
            asked.append(now)
        deadline = joining.next_deadline()
        assert deadline is not None
        assert deadline >= now
        now = deadline
    pauses = [round(later - earlier, 3) for earlier, later in pairwise(asked)]
    assert pauses == [ASK_INTERVAL] * (ASKS - 1) + [1.3, 2.3, 4.3, 8.3, 16.3, 30.3, 30.3, 30.3]
    joining.add(7, b"", now, live=False)
    assert joining.ask(now + 0.02) is None
    assert joining.done(now + 0.02) == 7


def test_what_comes_early_has_a_limit_but_one_message_always_fits() -> None:
    joining = Joining(Start.LIVE, 2 * MESSAGE_OVERHEAD + 10, 0.02)
    assert joining.add(1, bytes(1_000), 0.0, live=True)
    joining = Joining(Start.LIVE, 2 * MESSAGE_OVERHEAD + 10, 0.02)
    assert joining.add(3, bytes(5), 0.0, live=True)
    assert joining.add(2, bytes(5), 0.0, live=False)
    assert joining.add(2, bytes(5), 0.0, live=True)
    assert not joining.add(4, b"", 0.0, live=True)
    assert (sorted(joining.early), joining.live) == ([2, 3], {2, 3})


def test_live_asks_nothing_and_has_no_deadline_before_a_message() -> None:
    joining = Joining(Start.LIVE, 1_000, 0.02)
    joining.begin(0.0)
    assert (joining.next_deadline(), joining.ask(9.0), joining.done(9.0)) == (None, None, None)


def joined_by(number: int) -> Joining:
    joining = Joining(Start.LIVE, 10_000, 0.02)
    joining.add(number, b"a", 0.0, live=True)
    return joining


def test_one_high_number_alone_may_be_forged_and_waits_for_another_near_it() -> None:
    joining = joined_by(MAX_SEQUENCE)
    assert (joining.done(1.0), joining.next_deadline()) == (None, 1.0)
    assert joining.ask(1.0) == (MAX_SEQUENCE - NEIGHBOURS, MAX_SEQUENCE)
    assert (joining.ask(1.5), joining.next_deadline()) == (None, 1.0 + DOUBT)
    assert (joining.done(1.0 + DOUBT), joining.next_deadline()) == (None, None)
    joining.add(10**9, b"true", 3.0, live=True)
    assert joining.done(4.0) is None
    joining.add(10**9 + 1, b"true too", 4.0, live=True)
    assert joining.done(5.0) == 10**9


def test_a_number_that_may_well_be_true_is_asked_about_and_then_believed() -> None:
    joining = joined_by(LEAP + 1)
    assert (joining.done(1.0), joining.ask(1.0)) == (None, (LEAP + 1 - NEIGHBOURS, LEAP + 1))
    assert joining.done(1.0 + DOUBT - 0.01) is None
    assert joining.done(1.0 + DOUBT) == LEAP + 1
    assert joined_by(LEAP).done(1.0) == LEAP


def test_whoever_confirms_it_ends_the_doubt_at_once() -> None:
    joining = joined_by(LEAP + 1)
    joining.done(1.0)
    joining.ask(1.0)
    joining.add(LEAP, b"b", 1.1, live=False)
    assert joining.next_deadline() == 1.12
    assert joining.done(1.12) == LEAP + 1  # The one that came live; the other only says that it may be true.


def test_of_two_that_may_be_forged_the_lower_is_asked_about() -> None:
    joining = Joining(Start.LIVE, 10_000, 0.02)
    for number in (MAX_SEQUENCE, 10**9):
        joining.add(number, b"", 0.0, live=True)
    assert joining.done(1.0) is None
    assert joining.ask(1.0) == (10**9 - NEIGHBOURS, 10**9)


def test_another_that_may_be_forged_does_not_end_the_doubts() -> None:
    joining = joined_by(LEAP + 1)
    joining.done(1.0)
    joining.ask(1.0)
    joining.add(10**9, b"forged", 1.1, live=True)
    assert (joining.done(1.12), joining.next_deadline()) == (None, 1.0 + DOUBT)
    assert joining.done(1.0 + DOUBT) == LEAP + 1


def test_what_the_backbone_says_of_durable_journals_is_the_oldest() -> None:
    joining = Joining(Start.OLDEST, 10_000, 0.02)
    joining.known(41, 900)
    joining.begin(0.0)
    joining.add(850, b"", 0.0, live=True)
    assert (joining.ask(0.0), joining.done(0.0), joining.last) == (None, 41, 900)


def test_where_there_is_no_durable_journal_others_are_asked() -> None:
    joining = Joining(Start.OLDEST, 10_000, 0.02)
    joining.known(0, 900)
    joining.begin(0.0)
    assert joining.done(0.0) is None
    assert joining.ask(0.0) == (1, MAX_SEQUENCE)


def test_live_does_not_care_how_far_the_past_goes() -> None:
    joining = Joining(Start.LIVE, 10_000, 0.02)
    joining.known(41, 900)
    joining.begin(0.0)
    assert (joining.done(0.0), joining.last) == (None, 0)
