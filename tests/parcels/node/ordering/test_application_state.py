from __future__ import annotations

import pytest
from parcels.counter import Sum

from fyrehose_twisted.consensus.messages import EntryKind, LogEntry
from fyrehose_twisted.parcels.events import NodeEvent, StateFailed
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.ordering.application_state import ApplicationState
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.wire.messages import PublisherRun


class Events:
    """Delivered events, and the state that they lead to."""

    def __init__(self, state: Sum | None, sequence: int = 0) -> None:
        self.reported: list[NodeEvent] = []
        self.delivery = Delivery(EventWindow(2**20), Counters(), [], lambda member, message: None, 0)
        self.application = ApplicationState(state, sequence, self.delivery, self.reported)

    def deliver(self, *events: bytes) -> None:
        run = PublisherRun("p", 0, self.delivery.last + 1, list(events))
        self.delivery.apply(LogEntry(1, EntryKind.DATA, (run,)))


@pytest.fixture
def state() -> Sum:
    return Sum()


@pytest.fixture
def events(state: Sum) -> Events:
    return Events(state)


def test_delivered_events_are_applied_once_and_in_order(events: Events, state: Sum) -> None:
    events.deliver(b"1", b"2")
    events.deliver(b"3")
    events.application.advance()
    events.application.advance()
    assert (state.applied, state.total) == ([1, 2, 3], 6)
    assert events.application.is_complete
    assert (events.application.sequence, events.application.snapshot()) == (3, b"6")


def test_a_node_without_a_state_holds_none() -> None:
    events = Events(None)
    events.deliver(b"1")
    events.application.advance()
    assert (events.application.is_held, events.application.is_complete) == (False, False)


def test_events_that_the_stored_state_contains_are_not_applied_again() -> None:
    events = Events(state := Sum(10), sequence=2)
    events.deliver(b"1", b"2", b"3")
    events.application.advance()
    assert (state.applied, state.total) == ([3], 13)


def test_a_state_that_raises_is_reported_once_and_gets_no_more_events(events: Events, state: Sum) -> None:
    events.deliver(b"1", b"two", b"3")
    events.application.advance()
    events.deliver(b"4")
    events.application.advance()
    assert (state.applied, events.application.sequence) == ([1, 2], 1)
    assert events.reported == [
        StateFailed("it cannot apply event 2: ValueError: invalid literal for int() with base 10: b'two'")
    ]
    assert (events.application.is_held, events.application.failure) == (False, events.reported[0].text)


def test_a_state_without_a_snapshot_is_reported(events: Events) -> None:
    events.deliver(b"-7")
    events.application.advance()
    assert events.application.snapshot() is None
    assert events.reported == [StateFailed("it has no snapshot after event 1: ValueError: a negative sum")]


def test_a_snapshot_that_cannot_be_restored_is_reported(events: Events) -> None:
    events.application.restore(5, b"no number")
    assert events.application.sequence == 0
    [failed] = events.reported
    assert isinstance(failed, StateFailed)
    assert failed.text.startswith("it cannot restore 9 bytes from after event 5: ValueError: ")


def test_events_are_applied_even_if_the_history_keeps_none_of_them(state: Sum) -> None:
    events = Events(state)
    events.delivery.history = EventWindow(1)
    events.deliver(*[b"1"] * 50)
    assert (state.total, events.application.is_complete) == (50, True)


def test_a_state_that_lags_behind_catches_up_from_the_history(state: Sum) -> None:
    events = Events(state)
    events.deliver(b"1", b"2")
    state.total, events.application.sequence = 0, 0
    events.deliver(b"3")
    assert (state.total, events.application.is_complete) == (0, False)
    events.application.advance()
    assert (state.total, events.application.is_complete) == (6, True)


def test_a_state_misses_events_that_are_no_longer_held(events: Events, state: Sum) -> None:
    events.delivery.start_after(10)
    assert events.application.misses_events
    events.application.advance()
    assert state.applied == []
    events.application.restore(10, b"55")
    assert (events.application.misses_events, events.application.is_complete, state.total) == (False, True, 55)
