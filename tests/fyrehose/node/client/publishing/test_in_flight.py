from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.publishing.in_flight import InFlight
from fyrehose_twisted.fyrehose.node.client.publishing.retransmissions import RetransmitQueue

TIMEOUT = 2.0


def test_what_is_overtaken_is_below_and_was_sent_long_enough_ago() -> None:
    flights = InFlight()
    flights.send(range(3), range(3), 1.0)
    flights.send(range(3, 6), range(3, 6), 2.0)
    assert flights.take_overtaken(6, 0.9) == []
    assert flights.take_overtaken(2, 1.0) == [(0, 1.0), (1, 1.0)]
    assert flights.take_overtaken(2, 1.0) == []
    assert flights.take_overtaken(5, 2.0) == [(2, 1.0), (3, 2.0), (4, 2.0)]
    assert len(flights) == 1
    assert flights.earliest_sent_at == 2.0


def test_what_is_back_is_neither_overtaken_nor_late() -> None:
    flights = InFlight()
    flights.send(range(4), range(4), 1.0)
    flights.acknowledge(range(1, 3))
    assert flights.pop(3) == 1.0
    assert flights.pop(3) is None
    assert flights.sent_times(range(1)) == [1.0]
    assert flights.sent_times(range(2)) is None
    assert flights.take_overtaken(4, 1.0) == [(0, 1.0)]
    assert flights.take_timed_out(9.0, TIMEOUT) == []
    assert (len(flights), flights.earliest_sent_at) == (0, None)


def test_what_was_given_up_before_it_was_sent_is_not_under_way() -> None:
    flights = InFlight()
    flights.send([1, 3], range(4), 1.0)
    assert flights.take_timed_out(2.9, TIMEOUT) == []
    assert flights.take_timed_out(3.0, TIMEOUT) == [(1, 1.0), (3, 1.0)]


@given(st.integers(0, 2**32))
def test_nothing_is_lost_twice_and_nothing_forgotten(seed: int) -> None:
    rng = Random(seed)
    flights, under_way, now, ticket = InFlight(), dict[int, float](), 0.0, 0
    for _ in range(60):
        now += rng.random()
        match rng.randrange(4):
            case 0:
                span = range(ticket, ticket + rng.randrange(1, 5))
                ticket = span.stop
                flights.send(span, span, now)
                under_way.update(dict.fromkeys(span, now))
                continue
            case 1 if under_way:
                back = rng.choice(list(under_way))
                assert flights.pop(back) == under_way.pop(back)
                continue
            case 2:
                below, before = rng.randrange(ticket + 1), now - rng.random()
                lost = flights.take_overtaken(below, before)
                expected = [(number, at) for number, at in under_way.items() if number < below and at <= before]
            case _:
                lost = flights.take_timed_out(now, TIMEOUT)
                expected = [(number, at) for number, at in under_way.items() if at + TIMEOUT <= now]
        assert lost == expected
        for number, _ in lost:
            del under_way[number]
        assert len(flights) == len(under_way)
    assert sorted(flights.take_timed_out(now + TIMEOUT + 1, TIMEOUT)) == sorted(under_way.items())


def test_retries_leave_in_the_order_in_which_they_got_lost() -> None:
    retries = RetransmitQueue()
    for ticket in (5, 2, 9):
        retries.mark_lost(ticket, 1.0)
    assert retries.pop(2) is not None
    assert [retries.send_next(2.0), retries.send_next(3.0), retries.send_next(4.0)] == [5, 9, None]
    assert (retries.in_flight, retries.earliest_sent_at) == (2, 2.0)
    assert retries.mark_timed_out(4.0, TIMEOUT) == 1
    assert (retries.in_flight, retries.earliest_sent_at) == (1, 3.0)
    assert retries.send_next(4.5) == 5
    retry = retries.pop(5)
    assert retry is not None
    assert (retry.sent_at, retry.attempts, retry.is_lost) == (4.5, 3, False)
    assert (retries.pop(5), retries.in_flight) == (None, 1)


def test_a_retry_is_late_counted_from_when_it_left_last() -> None:
    retries = RetransmitQueue()
    retries.mark_lost(1, 0.0)
    retries.send_next(1.0)
    assert retries.pop(1) is not None
    retries.mark_lost(1, 2.0)
    retries.send_next(2.5)
    assert retries.mark_timed_out(3.0, TIMEOUT) == 0
    assert retries.in_flight == 1
    assert retries.mark_timed_out(4.5, TIMEOUT) == 1
