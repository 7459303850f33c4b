from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from fyrehose_twisted.interfaces import IEventHistory
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.node.ordering.history import RUN_OVERHEAD, EventBatch, EventWindow, SequencedRun
from fyrehose_twisted.parcels.wire.messages import Event


def size_of(stretch: SequencedRun) -> int:
    return RUN_OVERHEAD + sum(map(len, stretch.data)) + EVENT_OVERHEAD * len(stretch.data)


def events_of(stretch: SequencedRun) -> list[Event]:
    return [
        Event(stretch.first + at, stretch.publisher, stretch.epoch, stretch.number + at, data)
        for at, data in enumerate(stretch.data)
    ]


PUTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.lists(st.binary(max_size=300), min_size=1, max_size=4), st.integers(1, 9)), max_size=3),
        st.sampled_from((0, 0, 0, 5)),
    ),
    max_size=20,
)


@given(PUTS, st.integers(500, 5_000), st.data())
def test_event_window_holds_the_newest_events_within_its_size(
    puts: list[tuple[list[tuple[list[bytes], int]], int]], limit: int, data: st.DataObject
) -> None:
    window, held, last = EventWindow(limit), [], 0
    for parts, gap in puts:
        stretches = []
        if gap and parts:
            held, last = [], last + gap
        for events, number in parts:
            stretches.append(SequencedRun(last + 1, "p", 2, number, events))
            last += len(events)
        window.put(stretches)
        held.extend(stretches)
        while len(held) > 1 and sum(map(size_of, held)) > limit:
            held.pop(0)
        listed = [event for one in held for event in events_of(one)]
        assert window.last == last
        assert window.oldest == (listed[0].sequence if listed else last + 1)
        assert window.size == sum(map(size_of, held))
        first = data.draw(st.integers(max(0, window.oldest - 3), last + 2))
        to = data.draw(st.integers(first - 1, last + 3))
        most = data.draw(st.integers(1, 5))
        there = window.oldest <= first <= last
        expected = [event for event in listed if first <= event.sequence <= to][:most] if there else []
        assert window.read(first, to, most) == expected


def test_gap_in_one_put_drops_earlier_events_from_the_window() -> None:
    window = EventWindow(10_000)
    window.put([SequencedRun(1, "p", 0, 1, [b"a", b"b"]), SequencedRun(5, "p", 0, 3, [b"c"])])
    assert (window.oldest, window.last) == (5, 5)
    assert window.read(1, 9, 9) == []
    assert [event.data for event in window.read(5, 9, 9)] == [b"c"]


def test_evicted_runs_are_released_by_the_event_window() -> None:
    window = EventWindow(20 * (RUN_OVERHEAD + EVENT_OVERHEAD))
    for number in range(1, 4_001):
        window.put([SequencedRun(number, "p", 0, number, [b""])])
    assert (window.oldest, window.last) == (3_981, 4_000)
    assert len(window._runs) < 2_100
    assert [event.sequence for event in window.read(3_981, 4_000, 100)] == list(range(3_981, 4_001))


def test_cleared_event_window_is_empty_and_starts_after_the_given_event() -> None:
    window = EventWindow(10_000)
    window.put([SequencedRun(1, "p", 0, 1, [b"a"])])
    window.clear(41)
    assert (window.oldest, window.last, window.size) == (42, 41, 0)
    assert window.read(42, 50, 5) == []
    window.put([SequencedRun(42, "p", 0, 1, [b"a"])])
    assert window.oldest == 42
    assert verifyObject(IEventHistory, window)


def test_event_window_may_start_after_event_1() -> None:
    window = EventWindow(1_000, 7)
    assert (window.oldest, window.last) == (8, 7)


def test_event_batch_behaves_as_a_sequence() -> None:
    events = EventBatch([SequencedRun(3, "p", 1, 10, [b"a", b"b"]), SequencedRun(5, "q", 0, 1, [b"c"])])
    assert (events.first, events.last, len(events)) == (3, 5, 3)
    assert events[0] == Event(3, "p", 1, 10, b"a")
    assert events[-1] == Event(5, "q", 0, 1, b"c")
    assert events[1:] == [Event(4, "p", 1, 11, b"b"), Event(5, "q", 0, 1, b"c")]
    assert list(events) == [events[0], *events[1:]]
    assert repr(events) == "<events 3 to 5>"


def test_sequenced_run_yields_the_events_of_a_range() -> None:
    stretch = SequencedRun(3, "p", 1, 10, [b"a", b"b", b"c"])
    assert stretch.end == 6
    assert [event.data for event in stretch.events_between(1, 4)] == [b"a", b"b"]
    assert [(event.sequence, event.number) for event in stretch.events_between(5, 9)] == [(5, 12)]
    assert list(stretch.events_between(6, 9)) == []
    assert list(stretch.events_between(0, 2)) == []
