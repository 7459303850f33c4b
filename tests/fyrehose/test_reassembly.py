from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.reassembly import MESSAGE_OVERHEAD, Arrival, Lost, Reassembly, Run
from fyrehose_twisted.ranges import RangeSet


def taken(stream: Reassembly) -> list[int | Lost]:
    """Numbers and losses in the order in which they are handed over."""
    flat: list[int | Lost] = []
    for item in stream.take():
        flat += [item] if isinstance(item, Lost) else range(item.first, item.first + len(item.messages))
    return flat


@given(st.permutations(range(1, 30)), st.sets(st.integers(1, 29)))
def test_in_whatever_order_they_come_they_leave_in_theirs(order: list[int], lost: set[int]) -> None:
    stream = Reassembly(1)
    handed: list[int | Lost] = []
    for sequence in order:
        if sequence not in lost:
            assert stream.add(sequence, b"", 0) is Arrival.NEW
            handed += taken(stream)
    missing = RangeSet([(sequence, sequence) for sequence in lost if sequence < stream.highest])
    assert stream.missing == missing
    stream.give_up(1, 29)
    handed += taken(stream)
    numbers = [item for item in handed if isinstance(item, int)]
    assert numbers == [sequence for sequence in range(1, 30) if sequence not in lost]
    assert [(item.first, item.last) for item in handed if isinstance(item, Lost)] == list(missing)
    assert stream.size == 0


def test_a_message_keeps_its_data_and_the_time_it_came() -> None:
    stream = Reassembly(5)
    stream.add(6, b"six", 60)
    stream.add(5, b"five", 70)
    assert stream.take() == [Run(5, [(b"five", 70), (b"six", 60)])]  # type: ignore[list-item]


def test_what_was_given_up_is_a_duplicate() -> None:
    stream = Reassembly(1)
    stream.add(3, b"", 0)
    stream.give_up(1, 1)
    assert stream.add(1, b"", 0) is Arrival.DUPLICATE
    assert taken(stream) == [Lost(1, 1)]
    assert stream.add(2, b"", 0) is Arrival.NEW


def test_fresh_gaps_are_what_came_up_since_they_were_cleared() -> None:
    stream = Reassembly(1)
    stream.add(3, b"", 0)
    assert list(stream.fresh_gaps) == [(1, 2)]
    stream.fresh_gaps.clear()
    stream.add(6, b"", 0)
    assert list(stream.fresh_gaps) == [(4, 5)]


def test_lower_numbers_push_out_higher_ones() -> None:
    stream = Reassembly(1, limit=3 * (MESSAGE_OVERHEAD + 1))
    for sequence in (2, 4, 6):
        stream.add(sequence, b"x", 0)
    assert stream.add(7, b"x", 0) is Arrival.OVERFLOW
    assert stream.add(7, b"x", 0) is Arrival.OVERFLOW  # A repair of it pushes nothing lower out.
    assert stream.add(5, b"x", 0) is Arrival.NEW
    assert list(stream.missing) == [(1, 1), (3, 3), (6, 7)]
    assert stream.no_room_from(paused=False) == 6
    assert stream.no_room_from(paused=True) == 1
    assert stream.add(1, b"x", 0) is Arrival.NEW  # What can be handed over at once needs no room.
    assert taken(stream) == [1, 2]
    assert stream.no_room_from(paused=False) is None


def test_a_buffer_in_which_nothing_waits_has_room() -> None:
    stream = Reassembly(1, limit=3 * MESSAGE_OVERHEAD)
    for sequence in (2, 3, 900):
        stream.add(sequence, bytes(MESSAGE_OVERHEAD), 0)
    assert stream.no_room_from(paused=False) is not None
    stream.give_up(1, 899)
    stream.take()
    assert stream.missing == RangeSet([(900, 900)])
    assert stream.no_room_from(paused=False) is None


def test_what_waits_can_be_corrected_within_the_limit_and_what_was_handed_over_cannot() -> None:
    stream = Reassembly(1, limit=3 * MESSAGE_OVERHEAD)
    stream.add(2, b"wrong", 0)
    assert stream.correct(2, b"right!", 7)
    assert stream.size == MESSAGE_OVERHEAD + 6
    assert not stream.correct(2, b"right!", 7)
    assert not stream.correct(2, bytes(2 * MESSAGE_OVERHEAD + 1), 7)
    assert not stream.correct(1, b"", 7)
    stream.add(1, b"", 0)
    [run] = stream.take()
    assert isinstance(run, Run)
    assert run.messages == [(b"", 0), (b"right!", 7)]
    assert not stream.correct(2, b"other", 7)
    assert stream.size == 0


def test_gaps_have_a_limit() -> None:
    stream = Reassembly(1, max_gaps=3)
    for sequence in (2, 4, 6):
        assert stream.add(sequence, b"", 0) is Arrival.NEW
    assert stream.add(8, b"", 0) is Arrival.OVERFLOW
    assert stream.add(7, b"", 0) is Arrival.NEW
    assert stream.highest == 7


@given(st.integers(0, 2**32))
def test_the_buffer_keeps_its_limit(seed: int) -> None:
    rng = Random(seed)
    stream = Reassembly(1, limit=2_000)
    for _ in range(200):
        stream.add(rng.randrange(1, 60), bytes(rng.randrange(300)), 0)
        if rng.random() < 0.1:
            stream.take()
        assert stream.size <= 2_000 + 300 + MESSAGE_OVERHEAD
        assert stream.size == sum(len(waiting.data) + MESSAGE_OVERHEAD for waiting in stream._waiting.values())
        for sequence in stream._waiting:
            assert sequence not in stream.missing


def test_a_message_larger_than_the_buffer_finds_room_if_it_can_be_handed_over_at_once() -> None:
    stream = Reassembly(1, limit=50)
    assert stream.add(1, bytes(100), 0) is Arrival.NEW
    assert taken(stream) == [1]
    assert stream.add(3, b"", 0) is Arrival.OVERFLOW
    assert stream.add(2, bytes(100), 0) is Arrival.NEW
    assert taken(stream) == [2]


def test_a_full_buffer_can_be_corrected() -> None:
    stream = Reassembly(1, limit=MESSAGE_OVERHEAD + 6)
    stream.add(2, b"wrong!", 0)
    assert stream.correct(2, b"right!", 7)


def test_what_is_pushed_out_is_missing_anew() -> None:
    stream = Reassembly(1, limit=2 * (MESSAGE_OVERHEAD + 1))
    stream.add(4, b"x", 0)
    stream.add(6, b"x", 0)
    stream.fresh_gaps.clear()
    assert stream.add(3, b"x", 0) is Arrival.NEW
    assert stream.fresh_gaps == [(6, 6)]
    assert stream.no_room_from(paused=False) == 5


def test_what_is_pushed_out_lies_below_what_was_given_up() -> None:
    stream = Reassembly(1, limit=2 * (MESSAGE_OVERHEAD + 1))
    for sequence in (3, 5, 4):
        stream.add(sequence, b"x", 0)
    stream.give_up(5, 5)
    assert stream.add(2, b"x", 0) is Arrival.NEW
    assert list(stream.missing) == [(1, 1), (4, 4)]


def test_a_buffer_in_which_nothing_waits_is_not_full() -> None:
    stream = Reassembly(1, limit=50)
    assert stream.add(3, bytes(100), 0) is Arrival.OVERFLOW
    assert stream.no_room_from(paused=False) is None
