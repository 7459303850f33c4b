from __future__ import annotations

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


def taken(buffer: ReorderBuffer) -> list[int | MessagesLost]:
    """Numbers and losses in the order of their delivery."""
    flat: list[int | MessagesLost] = []
    for item in buffer.take_ready():
        flat += [item] if isinstance(item, MessagesLost) else range(item.first, item.end)
    return flat


@given(st.permutations(range(1, 30)), st.sets(st.integers(1, 29)))
def test_messages_in_any_order_are_taken_in_sequence(order: list[int], lost: set[int]) -> None:
    buffer = ReorderBuffer(1)
    delivered: list[int | MessagesLost] = []
    for sequence in order:
        if sequence not in lost:
            assert buffer.add(sequence, b"", 0) is ArrivalOutcome.NEW
            delivered += taken(buffer)
    missing = RangeSet([(sequence, sequence) for sequence in lost if sequence < buffer.highest])
    assert buffer.missing == missing
    buffer.give_up(1, 29)
    delivered += taken(buffer)
    numbers = [item for item in delivered if isinstance(item, int)]
    assert numbers == [sequence for sequence in range(1, 30) if sequence not in lost]
    assert [(item.first, item.last) for item in delivered if isinstance(item, MessagesLost)] == list(missing)
    assert buffer.size == 0


def test_a_buffered_message_keeps_its_payload_and_receive_time() -> None:
    buffer = ReorderBuffer(5)
    buffer.add(6, b"six", 60)
    buffer.add(5, b"five", 70)
    assert buffer.take_ready() == [MessageRun(5, [b"five", b"six"], [70, 60])]


def test_a_message_given_up_as_lost_is_a_duplicate_when_it_arrives() -> None:
    buffer = ReorderBuffer(1)
    buffer.add(3, b"", 0)
    buffer.give_up(1, 1)
    assert buffer.add(1, b"", 0) is ArrivalOutcome.DUPLICATE
    assert taken(buffer) == [MessagesLost(1, 1)]
    assert buffer.add(2, b"", 0) is ArrivalOutcome.NEW


def test_new_gaps_are_those_found_since_the_last_clear() -> None:
    buffer = ReorderBuffer(1)
    buffer.add(3, b"", 0)
    assert list(buffer.new_gaps) == [(1, 2)]
    buffer.new_gaps.clear()
    buffer.add(6, b"", 0)
    assert list(buffer.new_gaps) == [(4, 5)]


def test_a_full_buffer_evicts_higher_numbers_for_lower_ones() -> None:
    buffer = ReorderBuffer(1, limit=3 * (MESSAGE_OVERHEAD + 1))
    for sequence in (2, 4, 6):
        buffer.add(sequence, b"x", 0)
    assert buffer.add(7, b"x", 0) is ArrivalOutcome.OVERFLOW
    assert buffer.add(7, b"x", 0) is ArrivalOutcome.OVERFLOW  # A repair evicts no lower number.
    assert buffer.add(5, b"x", 0) is ArrivalOutcome.NEW
    assert list(buffer.missing) == [(1, 1), (3, 3), (6, 7)]
    assert buffer.overflow_from(paused=False) == 6
    assert buffer.overflow_from(paused=True) == 1
    assert buffer.add(1, b"x", 0) is ArrivalOutcome.NEW  # The next message needs no buffer space.
    assert taken(buffer) == [1, 2]
    assert buffer.overflow_from(paused=False) is None


def test_an_empty_buffer_has_room() -> None:
    buffer = ReorderBuffer(1, limit=3 * MESSAGE_OVERHEAD)
    for sequence in (2, 3, 900):
        buffer.add(sequence, bytes(MESSAGE_OVERHEAD), 0)
    assert buffer.overflow_from(paused=False) is not None
    buffer.give_up(1, 899)
    buffer.take_ready()
    assert buffer.missing == RangeSet([(900, 900)])
    assert buffer.overflow_from(paused=False) is None


def test_a_buffered_message_can_be_replaced_within_the_limit_and_a_delivered_one_cannot() -> None:
    buffer = ReorderBuffer(1, limit=3 * MESSAGE_OVERHEAD)
    buffer.add(2, b"wrong", 0)
    assert buffer.replace(2, b"right!", 7)
    assert buffer.size == MESSAGE_OVERHEAD + 6
    assert not buffer.replace(2, b"right!", 7)
    assert not buffer.replace(2, bytes(2 * MESSAGE_OVERHEAD + 1), 7)
    assert not buffer.replace(1, b"", 7)
    buffer.add(1, b"", 0)
    [run] = buffer.take_ready()
    assert isinstance(run, MessageRun)
    assert (run.messages, run.times) == ([b"", b"right!"], [0, 7])
    assert not buffer.replace(2, b"other", 7)
    assert buffer.size == 0


def test_replace_ignores_a_missing_number() -> None:
    buffer = ReorderBuffer(1)
    buffer.add(2, b"two", 0)
    buffer.add(4, b"four", 0)
    assert not buffer.replace(1, b"one", 0)
    assert not buffer.replace(3, b"three", 0)
    assert not buffer.replace(5, b"five", 0)


def test_add_run_does_not_modify_the_list_of_its_caller() -> None:
    buffer, data = ReorderBuffer(1), [b"two"]
    assert buffer.add_run(2, data, 0)
    assert buffer.add_run(3, [b"three"], 0)
    buffer.add(1, b"one", 0)
    assert [run.messages for run in buffer.take_ready() if isinstance(run, MessageRun)] == [[b"one", b"two", b"three"]]
    assert data == [b"two"]


def test_the_number_of_gaps_is_limited() -> None:
    buffer = ReorderBuffer(1, max_gaps=3)
    for sequence in (2, 4, 6):
        assert buffer.add(sequence, b"", 0) is ArrivalOutcome.NEW
    assert buffer.add(8, b"", 0) is ArrivalOutcome.OVERFLOW
    assert buffer.add(7, b"", 0) is ArrivalOutcome.NEW
    assert buffer.highest == 7


@given(st.integers(0, 2**32))
def test_the_reorder_buffer_stays_within_its_byte_limit(seed: int) -> None:
    rng = Random(seed)
    buffer = ReorderBuffer(1, limit=2_000)
    for _ in range(200):
        buffer.add(rng.randrange(1, 60), bytes(rng.randrange(300)), 0)
        if rng.random() < 0.1:
            buffer.take_ready()
        assert buffer.size <= 2_000 + 300 + MESSAGE_OVERHEAD
        assert buffer.size == sum(len(data) + MESSAGE_OVERHEAD for run in buffer._runs for data in run.messages)
        assert all(len(run.times) == len(run.messages) > 0 for run in buffer._runs)
        here = [sequence for run in buffer._runs for sequence in range(run.first, run.end)]
        assert here == [
            sequence for sequence in range(buffer.next, buffer.highest + 1) if sequence not in buffer.missing
        ]


def test_a_message_larger_than_the_buffer_is_accepted_if_it_is_next() -> None:
    buffer = ReorderBuffer(1, limit=50)
    assert buffer.add(1, bytes(100), 0) is ArrivalOutcome.NEW
    assert taken(buffer) == [1]
    assert buffer.add(3, b"", 0) is ArrivalOutcome.OVERFLOW
    assert buffer.add(2, bytes(100), 0) is ArrivalOutcome.NEW
    assert taken(buffer) == [2]


def test_a_message_in_a_full_buffer_can_be_replaced() -> None:
    buffer = ReorderBuffer(1, limit=MESSAGE_OVERHEAD + 6)
    buffer.add(2, b"wrong!", 0)
    assert buffer.replace(2, b"right!", 7)


def test_an_evicted_message_is_a_new_gap() -> None:
    buffer = ReorderBuffer(1, limit=2 * (MESSAGE_OVERHEAD + 1))
    buffer.add(4, b"x", 0)
    buffer.add(6, b"x", 0)
    buffer.new_gaps.clear()
    assert buffer.add(3, b"x", 0) is ArrivalOutcome.NEW
    assert buffer.new_gaps == [(6, 6)]
    assert buffer.overflow_from(paused=False) == 5


def test_an_evicted_message_below_a_given_up_one_is_missing() -> None:
    buffer = ReorderBuffer(1, limit=2 * (MESSAGE_OVERHEAD + 1))
    for sequence in (3, 5, 4):
        buffer.add(sequence, b"x", 0)
    buffer.give_up(5, 5)
    assert buffer.add(2, b"x", 0) is ArrivalOutcome.NEW
    assert list(buffer.missing) == [(1, 1), (4, 4)]


def test_an_empty_buffer_that_refused_a_message_is_not_full() -> None:
    buffer = ReorderBuffer(1, limit=50)
    assert buffer.add(3, bytes(100), 0) is ArrivalOutcome.OVERFLOW
    assert buffer.overflow_from(paused=False) is None


def observable(buffer: ReorderBuffer) -> list[Any]:
    """Return what can be observed of a buffer, on a compiled build as well."""
    rooms = [buffer.has_room(size) for size in (0, 50, 500)]
    full = [buffer.overflow_from(paused=paused) for paused in (False, True)]
    return [buffer.next, buffer.highest, list(buffer.missing), list(buffer.new_gaps), buffer.size, rooms, full]


def deliver_run(
    buffer: ReorderBuffer, first: int, data: list[bytes], now: int, *, at_once: bool
) -> list[tuple[int, bytes, int]]:
    """Return number, payload and time of each message delivered directly."""
    if at_once:
        before = observable(buffer)
        run = buffer.deliver_directly(first, data, now)
        assert run is not None or observable(buffer) == before, "what is not passed on changes nothing"
        runs: list[Any] = [] if run is None else [run]
    elif first == buffer.next > buffer.highest:
        runs = []
        for row, one in enumerate(data):
            assert buffer.add(first + row, one, now) is ArrivalOutcome.NEW
            runs += buffer.take_ready()
    else:
        runs = []
    return [
        (run.first + row, *kept) for run in runs for row, kept in enumerate(zip(run.messages, run.times, strict=True))
    ]


steps = st.one_of(
    st.tuples(st.just("run"), st.integers(1, 60), st.lists(st.sampled_from([0, 0, 1, 50]), min_size=1, max_size=8)),
    # Offset of a run from the highest known number.
    st.tuples(st.just("ahead"), st.integers(-3, 4), st.lists(st.sampled_from([0, 0, 1, 50]), min_size=1, max_size=8)),
    st.tuples(
        st.just("on"), st.sampled_from([0, 0, 1, -1]), st.lists(st.sampled_from([0, 1, 700]), min_size=1, max_size=5)
    ),
    st.tuples(st.just("one"), st.integers(1, 60), st.lists(st.sampled_from([0, 1, 50]), min_size=1, max_size=1)),
    st.tuples(st.sampled_from(["give up", "exists", "correct", "clear"]), st.integers(1, 60), st.just([7])),
    st.tuples(st.just("take"), st.just(0), st.just([])),
)


def step(buffer: ReorderBuffer, what: tuple[str, int, list[int]], now: int, *, at_once: bool) -> list[Any]:
    """Apply one step; return the observable state of the buffer."""
    name, number, sizes = what
    data = [bytes([now % 256]) * size for size in sizes]
    said: Any = None
    if name == "give up":
        buffer.give_up(number, number + 10)
    elif name == "exists":
        buffer.extend_to(number)
    elif name == "correct":
        said = buffer.replace(number, *data, now)
    elif name == "clear":
        buffer.new_gaps.clear()
    elif name == "take":
        said = buffer.take_ready()
    elif name == "on":
        said = deliver_run(buffer, max(1, buffer.highest + 1 + number), data, now, at_once=at_once)
    else:
        first = max(1, buffer.highest + 1 + number) if name == "ahead" else number
        before = observable(buffer) if at_once else None
        if at_once and buffer.add_run(first, data, now):
            said = [ArrivalOutcome.NEW] * len(data)
        else:
            assert before is None or observable(buffer) == before, "a run that is not taken changes nothing"
            said = [buffer.add(first + row, one, now) for row, one in enumerate(data)]
    return [said, *observable(buffer)]


@given(
    st.lists(steps, max_size=30),
    st.sampled_from([1, 5]),
    st.sampled_from([50, 4 * MESSAGE_OVERHEAD, 12 * MESSAGE_OVERHEAD, 10**6]),
    st.sampled_from([0, 1, 3, 1_000]),
)
def test_adding_a_run_equals_adding_its_messages_one_by_one(
    what: list[tuple[str, int, list[int]]], start: int, limit: int, max_gaps: int
) -> None:
    buffer, reference = (ReorderBuffer(start, limit=limit, max_gaps=max_gaps) for _ in range(2))
    for now, each in enumerate(what):
        assert step(buffer, each, now, at_once=True) == step(reference, each, now, at_once=False)


def test_a_run_is_added_whole_if_it_is_new_or_missing_and_fits() -> None:
    buffer = ReorderBuffer(1, limit=5 * (MESSAGE_OVERHEAD + 1), max_gaps=1)
    assert buffer.add_run(1, [b"1", b"2"], 7)
    assert not buffer.add_run(2, [b"2", b"3"], 7), "one of them is here"
    assert buffer.add_run(4, [b"4", b"5"], 8)
    assert not buffer.add_run(3, [b"3", b"4"], 8), "only the first is missing"
    assert not buffer.add_run(6, [b"6", b"7"], 9), "there is room for one"
    assert not buffer.add_run(7, [b"7"], 9), "there is a gap already"
    assert buffer.add_run(6, [b"6"], 9)
    assert (buffer.missing, buffer.new_gaps) == (RangeSet([(3, 3)]), [(3, 3)])
    assert buffer.take_ready() == [MessageRun(1, [b"1", b"2"], [7, 7])]
    assert buffer.add_run(3, [b""], 10)
    assert buffer.take_ready() == [MessageRun(3, [b"", b"4", b"5", b"6"], [10, 8, 8, 9])]
    assert buffer.size == 0


def test_the_next_message_is_delivered_directly_if_nothing_is_buffered() -> None:
    buffer = ReorderBuffer(5, limit=0)
    assert buffer.deliver_directly(6, [b"6"], 0) is None, "5 is awaited"
    assert buffer.deliver_directly(5, [b"5", bytes(700)], 9) == MessageRun(5, [b"5", bytes(700)], [9, 9])
    assert (buffer.next, buffer.highest, buffer.size) == (7, 6, 0)
    assert buffer.deliver_directly(6, [b"6"], 0) is None, "it was delivered over"
    buffer.extend_to(7)
    assert buffer.deliver_directly(8, [b"8"], 0) is None, "7 is missing"
    assert buffer.deliver_directly(7, [b"7"], 0) is None, "a repair is for others to take in"
    buffer.give_up(7, 7)
    assert buffer.deliver_directly(8, [b"8"], 0) is None, "that 7 is lost has to be said first"
    assert buffer.take_ready() == [MessagesLost(7, 7)]
    assert buffer.deliver_directly(8, [b"8"], 10) == MessageRun(8, [b"8"], [10])


def test_direct_delivery_ends_an_earlier_overflow() -> None:
    buffer = ReorderBuffer(1, limit=MESSAGE_OVERHEAD)
    assert buffer.add(3, b"too long", 0) is ArrivalOutcome.OVERFLOW
    buffer.give_up(1, 3)
    assert buffer.take_ready() == [MessagesLost(1, 3)]
    assert buffer.deliver_directly(4, [b"4"], 0) is not None
    assert buffer.add(6, b"", 0) is ArrivalOutcome.NEW
    assert buffer.overflow_from(paused=False) is None
