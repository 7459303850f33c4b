from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.publishing.durability import DurabilityTracker, UndurableMessage
from fyrehose_twisted.fyrehose.wire.packets import Holding

START = 1_700_000_000.0


def keeping(*wanted: int, timeout: float = 30.0) -> DurabilityTracker:
    """Return a tracker of messages with tickets from 0 and their required numbers of journals."""
    made = DurabilityTracker()
    for ticket, one in enumerate(wanted):
        made.require(range(ticket, ticket + 1), one, START + timeout)
    return made


def test_a_message_without_required_journals_is_complete_when_published() -> None:
    assert DurabilityTracker().published([(0, 7)]) == [(0, 7)]
    assert keeping(1).published([(1, 7)]) == [(1, 7)]


def test_a_message_is_complete_when_enough_journals_have_synced_it() -> None:
    tracker = keeping(1, 2)
    assert tracker.published([(0, 7), (1, 8)]) == []
    assert tracker.holdings_received([Holding(1, 6), Holding(1, 5)]) == []
    assert tracker.holdings_received([Holding(1, 9), Holding(1, 7)]) == [(0, 7)]
    assert tracker.holdings_received([Holding(1, 9), Holding(1, 8)]) == [(1, 8)]
    assert len(tracker) == 0


def test_a_message_is_complete_at_once_if_it_is_already_durable() -> None:
    tracker = keeping(2)
    tracker.holdings_received([Holding(1, 9), Holding(1, 8)])
    assert tracker.published([(0, 8)]) == [(0, 8)]


def test_a_journal_that_lost_the_message_does_not_count() -> None:
    tracker = keeping(1, 1)
    tracker.published([(0, 7), (1, 8)])
    assert tracker.holdings_received([Holding(8, 9)]) == [(1, 8)]
    assert tracker.take_expired(START + 30) == [UndurableMessage(0, 7, 0, 1)]
    assert len(tracker) == 0


def test_a_journal_with_an_empty_holding_neither_completes_a_message_nor_gives_it_up() -> None:
    tracker = keeping(1)
    tracker.published([(0, 7)])
    assert tracker.holdings_received([Holding(20, 19)]) == []
    assert tracker.holdings_received([Holding(1, 8), Holding(20, 25)]) == [(0, 7)]


def test_two_holdings_of_one_journal_do_not_give_up_what_another_journal_will_have() -> None:
    tracker = keeping(2)
    tracker.published([(0, 7)])
    assert tracker.holdings_received([Holding(1, 8), Holding(20, 25), Holding(1, 6)]) == []
    assert tracker.holdings_received([Holding(1, 8), Holding(20, 25), Holding(1, 7)]) == [(0, 7)]


def test_an_expired_message_reports_the_number_of_journals() -> None:
    tracker = keeping(3)
    tracker.published([(0, 7)])
    tracker.holdings_received([Holding(1, 9), Holding(1, 7), Holding(1, 6)])
    assert tracker.next_deadline() == START + 30
    assert tracker.take_expired(START + 29.9) == []
    assert tracker.take_expired(START + 30) == [UndurableMessage(0, 7, 2, 3)]
    assert (tracker.next_deadline(), len(tracker)) == (None, 0)
    assert tracker.holdings_received([Holding(1, 9)] * 3) == []


def test_expired_messages_leave_no_state() -> None:
    tracker = keeping(*[2] * 50)
    tracker.published([(ticket, ticket + 1) for ticket in range(50)])
    tracker.take_expired(START + 30)
    assert not any(tracker._waiting.values())
    assert not tracker._numbered


def test_a_message_that_was_not_published_is_not_tracked() -> None:
    tracker = keeping(1)
    tracker.failed([0])
    assert tracker.take_expired(START + 30) == []
    assert tracker.published([(0, 7)]) == [(0, 7)]


@given(
    wanted=st.lists(st.integers(1, 3), min_size=1, max_size=20),
    steps=st.lists(
        st.lists(st.tuples(st.integers(1, 12), st.integers(0, 30)), max_size=3) | st.integers(1, 5), max_size=30
    ),
)
def test_each_message_is_completed_once_and_only_with_enough_journals(
    wanted: list[int], steps: list[list[tuple[int, int]] | int]
) -> None:
    tracker, completed, numbered = keeping(*wanted), list[tuple[int, int]](), 0
    holdings: Sequence[Holding] = []
    for step in steps:
        if isinstance(step, int):
            new = [(ticket, ticket + 1) for ticket in range(numbered, min(numbered + step, len(wanted)))]
            numbered += len(new)
            done = tracker.published(new)
        else:
            holdings = [Holding(*pair) for pair in step]
            done = tracker.holdings_received(holdings)
        for ticket, sequence in done:
            assert sum(holding.keeps(sequence) for holding in holdings) >= wanted[ticket]
        completed += done
        for ticket in set(range(numbered)).difference(ticket for ticket, _ in completed):
            assert sum(holding.keeps(ticket + 1) for holding in holdings) < wanted[ticket]
    late = tracker.take_expired(START + 30)
    tickets = [ticket for ticket, _ in completed] + [one.ticket for one in late]
    assert sorted(tickets) == list(range(numbered))
    for one in late:
        assert one.had == sum(holding.keeps(one.sequence) for holding in holdings)
