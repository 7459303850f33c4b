from __future__ import annotations

from copy import deepcopy
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.events import MessagesLost
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import (
    MESSAGE_OVERHEAD,
    ArrivalOutcome,
    MessageRun,
    ReorderBuffer,
)
from fyrehose_twisted.ranges import RangeSet


def taken(stream: ReorderBuffer) -> list[int | MessagesLost]:
    """Numbers and losses in the order in which they are handed over."""
    flat: list[int | MessagesLost] = []
    for item in stream.take_ready():
        flat += [item] if isinstance(item, MessagesLost) else range(item.first, item.end)
    return flat


@given(st.permutations(range(1, 30)), st.sets(st.integers(1, 29)))
def test_in_whatever_order_they_come_they_leave_in_theirs(order: list[int], lost: set[int]) -> None:
    stream = ReorderBuffer(1)
    handed: list[int | MessagesLost] = []
    for sequence in order:
        if sequence not in lost:
            assert stream.add(sequence, b"", 0) is ArrivalOutcome.NEW
            handed += taken(stream)
    missing = RangeSet([(sequence, sequence) for sequence in lost if sequence < stream.highest])
    assert stream.missing == missing
    stream.give_up(1, 29)
    handed += taken(stream)
    numbers = [item for item in handed if isinstance(item, int)]
    assert numbers == [sequence for sequence in range(1, 30) if sequence not in lost]
    assert [(item.first, item.last) for item in handed if isinstance(item, MessagesLost)] == list(missing)
    assert stream.size == 0


def test_a_message_keeps_its_data_and_the_time_it_came() -> None:
    stream = ReorderBuffer(5)
    stream.add(6, b"six", 60)
    stream.add(5, b"five", 70)
    assert stream.take_ready() == [MessageRun(5, [b"five", b"six"], [70, 60])]


def test_what_was_given_up_is_a_duplicate() -> None:
    stream = ReorderBuffer(1)
    stream.add(3, b"", 0)
    stream.give_up(1, 1)
    assert stream.add(1, b"", 0) is ArrivalOutcome.DUPLICATE
    assert taken(stream) == [MessagesLost(1, 1)]
    assert stream.add(2, b"", 0) is ArrivalOutcome.NEW


def test_fresh_gaps_are_what_came_up_since_they_were_cleared() -> None:
    stream = ReorderBuffer(1)
    stream.add(3, b"", 0)
    assert list(stream.new_gaps) == [(1, 2)]
    stream.new_gaps.clear()
    stream.add(6, b"", 0)
    assert list(stream.new_gaps) == [(4, 5)]


def test_lower_numbers_push_out_higher_ones() -> None:
    stream = ReorderBuffer(1, limit=3 * (MESSAGE_OVERHEAD + 1))
    for sequence in (2, 4, 6):
        stream.add(sequence, b"x", 0)
    assert stream.add(7, b"x", 0) is ArrivalOutcome.OVERFLOW
    assert stream.add(7, b"x", 0) is ArrivalOutcome.OVERFLOW  # A repair of it pushes nothing lower out.
    assert stream.add(5, b"x", 0) is ArrivalOutcome.NEW
    assert list(stream.missing) == [(1, 1), (3, 3), (6, 7)]
    assert stream.overflow_from(paused=False) == 6
    assert stream.overflow_from(paused=True) == 1
    assert stream.add(1, b"x", 0) is ArrivalOutcome.NEW  # What can be handed over at once needs no room.
    assert taken(stream) == [1, 2]
    assert stream.overflow_from(paused=False) is None


def test_a_buffer_in_which_nothing_waits_has_room() -> None:
    stream = ReorderBuffer(1, limit=3 * MESSAGE_OVERHEAD)
    for sequence in (2, 3, 900):
        stream.add(sequence, bytes(MESSAGE_OVERHEAD), 0)
    assert stream.overflow_from(paused=False) is not None
    stream.give_up(1, 899)
    stream.take_ready()
    assert stream.missing == RangeSet([(900, 900)])
    assert stream.overflow_from(paused=False) is None


def test_what_waits_can_be_corrected_within_the_limit_and_what_was_handed_over_cannot() -> None:
    stream = ReorderBuffer(1, limit=3 * MESSAGE_OVERHEAD)
    stream.add(2, b"wrong", 0)
    assert stream.replace(2, b"right!", 7)
    assert stream.size == MESSAGE_OVERHEAD + 6
    assert not stream.replace(2, b"right!", 7)
    assert not stream.replace(2, bytes(2 * MESSAGE_OVERHEAD + 1), 7)
    assert not stream.replace(1, b"", 7)
    stream.add(1, b"", 0)
    [run] = stream.take_ready()
    assert isinstance(run, MessageRun)
    assert (run.messages, run.times) == ([b"", b"right!"], [0, 7])
    assert not stream.replace(2, b"other", 7)
    assert stream.size == 0


def test_a_missing_message_is_not_corrected() -> None:
    stream = ReorderBuffer(1)
    stream.add(2, b"two", 0)
    stream.add(4, b"four", 0)
    assert not stream.replace(1, b"one", 0)
    assert not stream.replace(3, b"three", 0)
    assert not stream.replace(5, b"five", 0)


def test_a_list_that_was_taken_in_stays_its_owners() -> None:
    stream, data = ReorderBuffer(1), [b"two"]
    assert stream.add_run(2, data, 0)
    assert stream.add_run(3, [b"three"], 0)
    stream.add(1, b"one", 0)
    assert [run.messages for run in stream.take_ready() if isinstance(run, MessageRun)] == [[b"one", b"two", b"three"]]
    assert data == [b"two"]


def test_gaps_have_a_limit() -> None:
    stream = ReorderBuffer(1, max_gaps=3)
    for sequence in (2, 4, 6):
        assert stream.add(sequence, b"", 0) is ArrivalOutcome.NEW
    assert stream.add(8, b"", 0) is ArrivalOutcome.OVERFLOW
    assert stream.add(7, b"", 0) is ArrivalOutcome.NEW
    assert stream.highest == 7


@given(st.integers(0, 2**32))
def test_the_buffer_keeps_its_limit(seed: int) -> None:
    rng = Random(seed)
    stream = ReorderBuffer(1, limit=2_000)
    for _ in range(200):
        stream.add(rng.randrange(1, 60), bytes(rng.randrange(300)), 0)
        if rng.random() < 0.1:
            stream.take_ready()
        assert stream.size <= 2_000 + 300 + MESSAGE_OVERHEAD
        assert stream.size == sum(len(data) + MESSAGE_OVERHEAD for run in stream._runs for data in run.messages)
        assert all(len(run.times) == len(run.messages) > 0 for run in stream._runs)
        here = [sequence for run in stream._runs for sequence in range(run.first, run.end)]
        assert here == [
            sequence for sequence in range(stream.next, stream.highest + 1) if sequence not in stream.missing
        ]


def test_a_message_larger_than_the_buffer_finds_room_if_it_can_be_handed_over_at_once() -> None:
    stream = ReorderBuffer(1, limit=50)
    assert stream.add(1, bytes(100), 0) is ArrivalOutcome.NEW
    assert taken(stream) == [1]
    assert stream.add(3, b"", 0) is ArrivalOutcome.OVERFLOW
    assert stream.add(2, bytes(100), 0) is ArrivalOutcome.NEW
    assert taken(stream) == [2]


def test_a_full_buffer_can_be_corrected() -> None:
    stream = ReorderBuffer(1, limit=MESSAGE_OVERHEAD + 6)
    stream.add(2, b"wrong!", 0)
    assert stream.replace(2, b"right!", 7)


def test_what_is_pushed_out_is_missing_anew() -> None:
    stream = ReorderBuffer(1, limit=2 * (MESSAGE_OVERHEAD + 1))
    stream.add(4, b"x", 0)
    stream.add(6, b"x", 0)
    stream.new_gaps.clear()
    assert stream.add(3, b"x", 0) is ArrivalOutcome.NEW
    assert stream.new_gaps == [(6, 6)]
    assert stream.overflow_from(paused=False) == 5


def test_what_is_pushed_out_lies_below_what_was_given_up() -> None:
    stream = ReorderBuffer(1, limit=2 * (MESSAGE_OVERHEAD + 1))
    for sequence in (3, 5, 4):
        stream.add(sequence, b"x", 0)
    stream.give_up(5, 5)
    assert stream.add(2, b"x", 0) is ArrivalOutcome.NEW
    assert list(stream.missing) == [(1, 1), (4, 4)]


def test_a_buffer_in_which_nothing_waits_is_not_full() -> None:
    stream = ReorderBuffer(1, limit=50)
    assert stream.add(3, bytes(100), 0) is ArrivalOutcome.OVERFLOW
    assert stream.overflow_from(paused=False) is None


def passed_on(
    stream: ReorderBuffer, first: int, data: list[bytes], now: int, *, at_once: bool
) -> list[tuple[int, bytes, int]]:
    """The numbers, data and times that are handed over if nothing but these messages is awaited."""
    if at_once:
        before = deepcopy(vars(stream))
        run = stream.deliver_directly(first, data, now)
        assert run is not None or vars(stream) == before, "what is not passed on changes nothing"
        runs: list[Any] = [] if run is None else [run]
    elif first == stream.next > stream.highest:
        runs = []
        for row, one in enumerate(data):
            assert stream.add(first + row, one, now) is ArrivalOutcome.NEW
            runs += stream.take_ready()
    else:
        runs = []
    return [
        (run.first + row, *kept) for run in runs for row, kept in enumerate(zip(run.messages, run.times, strict=True))
    ]


steps = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 60), st.lists(st.sampled_from([0, 0, 1, 50]), min_size=1, max_size=8)),
    # By how much a run is ahead of the highest number that is known.
    st.tuples(st.just("ahead"), st.integers(-3, 4), st.lists(st.sampled_from([0, 0, 1, 50]), min_size=1, max_size=8)),
    st.tuples(
        st.just("on"), st.sampled_from([0, 0, 1, -1]), st.lists(st.sampled_from([0, 1, 700]), min_size=1, max_size=5)
    ),
    st.tuples(st.just("one"), st.integers(1, 60), st.lists(st.sampled_from([0, 1, 50]), min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["give up", "exists", "correct", "clear"]), st.integers(1, 60), st.just([7])),
    st.tuples(st.just("take"), st.just(0), st.just([])),
)


def step(stream: ReorderBuffer, what: tuple[str, int, list[int]], now: int, *, at_once: bool) -> list[Any]:
    """Do one thing; return what can be seen of it."""
    name, number, sizes = what
    data = [bytes([now % 256]) * size for size in sizes]
    said: Any = None
    if name == "give up":
        stream.give_up(number, number + 10)
    elif name == "exists":
        stream.extend_to(number)
    elif name == "correct":
        said = stream.replace(number, *data, now)
    elif name == "clear":
        stream.new_gaps.clear()
    elif name == "take":
        said = stream.take_ready()
    elif name == "on":
        said = passed_on(stream, max(1, stream.highest + 1 + number), data, now, at_once=at_once)
    else:
        first = max(1, stream.highest + 1 + number) if name == "ahead" else number
        before = deepcopy(vars(stream)) if at_once else None
        if at_once and stream.add_run(first, data, now):
            said = [ArrivalOutcome.NEW] * len(data)
        else:
            assert before is None or vars(stream) == before, "a run that is not taken changes nothing"
            said = [stream.add(first + row, one, now) for row, one in enumerate(data)]
    rooms = [stream.has_room(size) for size in (0, 50, 500)]
    full = [stream.overflow_from(paused=paused) for paused in (False, True)]
    return [said, stream.next, stream.highest, list(stream.missing), list(stream.new_gaps), stream.size, rooms, full]


@given(
    st.lists(steps, max_size=30),
    st.sampled_from([1, 5]),
    st.sampled_from([50, 4 * MESSAGE_OVERHEAD, 12 * MESSAGE_OVERHEAD, 10**6]),
    st.sampled_from([0, 1, 3, 1_000]),
)
def test_a_run_is_taken_in_as_its_messages_are_one_by_one(
    what: list[tuple[str, int, list[int]]], start: int, limit: int, max_gaps: int
) -> None:
    stream, reference = (ReorderBuffer(start, limit=limit, max_gaps=max_gaps) for _ in range(2))
    for now, each in enumerate(what):
        assert step(stream, each, now, at_once=True) == step(reference, each, now, at_once=False)


def test_a_run_is_taken_at_once_if_it_is_new_and_fits() -> None:
    stream = ReorderBuffer(1, limit=5 * (MESSAGE_OVERHEAD + 1), max_gaps=1)
    assert stream.add_run(1, [b"1", b"2"], 7)
    assert not stream.add_run(2, [b"2", b"3"], 7), "one of them is here"
    assert stream.add_run(4, [b"4", b"5"], 8)
    assert not stream.add_run(3, [b"3"], 8), "it is missing"
    assert not stream.add_run(6, [b"6", b"7"], 9), "there is room for one"
    assert not stream.add_run(7, [b"7"], 9), "there is a gap already"
    assert stream.add_run(6, [b"6"], 9)
    assert (stream.missing, stream.new_gaps) == (RangeSet([(3, 3)]), [(3, 3)])
    assert stream.take_ready() == [MessageRun(1, [b"1", b"2"], [7, 7])]
    stream.add(3, b"3", 10)
    assert stream.take_ready() == [MessageRun(3, [b"3", b"4", b"5", b"6"], [10, 8, 8, 9])]
    assert stream.size == 0


def test_what_is_simply_next_is_passed_on() -> None:
    stream = ReorderBuffer(5, limit=0)
    assert stream.deliver_directly(6, [b"6"], 0) is None, "5 is awaited"
    assert stream.deliver_directly(5, [b"5", bytes(700)], 9) == MessageRun(5, [b"5", bytes(700)], [9, 9])
    assert (stream.next, stream.highest, stream.size) == (7, 6, 0)
    assert stream.deliver_directly(6, [b"6"], 0) is None, "it was handed over"
    stream.extend_to(7)
    assert stream.deliver_directly(8, [b"8"], 0) is None, "7 is missing"
    assert stream.deliver_directly(7, [b"7"], 0) is None, "a repair is for others to take in"
    stream.give_up(7, 7)
    assert stream.deliver_directly(8, [b"8"], 0) is None, "that 7 is lost has to be said first"
    assert stream.take_ready() == [MessagesLost(7, 7)]
    assert stream.deliver_directly(8, [b"8"], 10) == MessageRun(8, [b"8"], [10])


def test_a_buffer_was_full_before_something_was_passed_on() -> None:
    stream = ReorderBuffer(1, limit=MESSAGE_OVERHEAD)
    assert stream.add(3, b"too long", 0) is ArrivalOutcome.OVERFLOW
    stream.give_up(1, 3)
    assert stream.take_ready() == [MessagesLost(1, 3)]
    assert stream.deliver_directly(4, [b"4"], 0) is not None
    assert stream.add(6, b"", 0) is ArrivalOutcome.NEW
    assert stream.overflow_from(paused=False) is None
