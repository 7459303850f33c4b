from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.publishing.in_flight import InFlight
from fyrehose_twisted.fyrehose.node.client.publishing.retransmissions import RetransmitQueue

TIMEOUT = 2.0


def test_messages_below_an_acked_one_count_as_overtaken_after_the_reordering_window() -> None:
    in_flight = InFlight()
    in_flight.send(range(3), range(3), 1.0)
    in_flight.send(range(3, 6), range(3, 6), 2.0)
    assert in_flight.take_overtaken(6, 0.9) == []
    assert in_flight.take_overtaken(2, 1.0) == [(0, 1.0), (1, 1.0)]
    assert in_flight.take_overtaken(2, 1.0) == []
    assert in_flight.take_overtaken(5, 2.0) == [(2, 1.0), (3, 2.0), (4, 2.0)]
    assert len(in_flight) == 1
    assert in_flight.earliest_sent_at == 2.0


def test_acknowledged_messages_are_neither_overtaken_nor_timed_out() -> None:
    in_flight = InFlight()
    in_flight.send(range(4), range(4), 1.0)
    in_flight.acknowledge(range(1, 3))
    assert in_flight.pop(3) == 1.0
    assert in_flight.pop(3) is None
    assert in_flight.sent_times(range(1)) == [1.0]
    assert in_flight.sent_times(range(2)) is None
    assert in_flight.take_overtaken(4, 1.0) == [(0, 1.0)]
    assert in_flight.take_timed_out(9.0, TIMEOUT) == []
    assert (len(in_flight), in_flight.earliest_sent_at) == (0, None)


def test_messages_expired_before_transmission_are_not_in_flight() -> None:
    in_flight = InFlight()
    in_flight.send([1, 3], range(4), 1.0)
    assert in_flight.take_timed_out(2.9, TIMEOUT) == []
    assert in_flight.take_timed_out(3.0, TIMEOUT) == [(1, 1.0), (3, 1.0)]


@given(st.integers(0, 2**32))
def test_each_message_in_flight_is_acked_or_lost_exactly_once(seed: int) -> None:
    rng = Random(seed)
    in_flight, expected_in_flight, now, ticket = InFlight(), dict[int, float](), 0.0, 0
    for _ in range(60):
        now += rng.random()
        match rng.randrange(4):
            case 0:
                span = range(ticket, ticket + rng.randrange(1, 5))
                ticket = span.stop
                in_flight.send(span, span, now)
                expected_in_flight.update(dict.fromkeys(span, now))
                continue
            case 1 if expected_in_flight:
                back = rng.choice(list(expected_in_flight))
                assert in_flight.pop(back) == expected_in_flight.pop(back)
                continue
            case 2:
                below, before = rng.randrange(ticket + 1), now - rng.random()
                lost = in_flight.take_overtaken(below, before)
                expected = [
                    (number, at) for number, at in expected_in_flight.items() if number < below and at <= before
                ]
            case _:
                lost = in_flight.take_timed_out(now, TIMEOUT)
                expected = [(number, at) for number, at in expected_in_flight.items() if at + TIMEOUT <= now]
        assert lost == expected
        for number, _ in lost:
            del expected_in_flight[number]
        assert len(in_flight) == len(expected_in_flight)
    assert sorted(in_flight.take_timed_out(now + TIMEOUT + 1, TIMEOUT)) == sorted(expected_in_flight.items())


def test_retransmissions_are_sent_in_the_order_of_their_losses() -> None:
    queue = RetransmitQueue()
    for ticket in (5, 2, 9):
        queue.mark_lost(ticket, 1.0)
    assert queue.pop(2) is not None
    assert [queue.send_next(2.0), queue.send_next(3.0), queue.send_next(4.0)] == [5, 9, None]
    assert (queue.in_flight, queue.earliest_sent_at) == (2, 2.0)
    assert queue.mark_timed_out(4.0, TIMEOUT) == 1
    assert (queue.in_flight, queue.earliest_sent_at) == (1, 3.0)
    assert queue.send_next(4.5) == 5
    retransmission = queue.pop(5)
    assert retransmission is not None
    assert (retransmission.sent_at, retransmission.attempts, retransmission.is_lost) == (4.5, 3, False)
    assert (queue.pop(5), queue.in_flight) == (None, 1)


def test_a_retransmission_times_out_counted_from_its_latest_transmission() -> None:
    queue = RetransmitQueue()
    queue.mark_lost(1, 0.0)
    queue.send_next(1.0)
    assert queue.pop(1) is not None
    queue.mark_lost(1, 2.0)
    queue.send_next(2.5)
    assert queue.mark_timed_out(3.0, TIMEOUT) == 0
    assert queue.in_flight == 1
    assert queue.mark_timed_out(4.5, TIMEOUT) == 1
