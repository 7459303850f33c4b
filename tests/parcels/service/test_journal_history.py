"""Event history of a memory window backed by a journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from zope.interface.verify import verifyObject

from fyrehose_twisted.interfaces import IEventHistory
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.store import Journal, open_journal
from fyrehose_twisted.parcels.node.ordering.history import SequencedRun
from fyrehose_twisted.parcels.service.journal_history import JournalHistory, pack_event, stream_uri, unpack_event
from fyrehose_twisted.parcels.wire.messages import Event

SMALL = 2_000
"""Size in bytes of a window that holds a few events."""


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    opened = open_journal(tmp_path, stream_uri("default"))
    yield opened
    opened.close()


def history_of(journal: Journal, limit: int = SMALL) -> JournalHistory:
    return JournalHistory(journal, limit, lambda: 1_000.0)


def stretch(first: int, last: int) -> SequencedRun:
    return SequencedRun(first, "someone", 1, first, [b"event %d" % number for number in range(first, last + 1)])


def filled(journal: Journal, last: int, limit: int = SMALL) -> JournalHistory:
    history = history_of(journal, limit)
    for number in range(1, last + 1):
        history.put([stretch(number, number)])
    history.save(sync=False)
    return history


def numbers(events: list[Event]) -> list[int]:
    for event in events:
        assert event == Event(event.sequence, "someone", 1, event.sequence, b"event %d" % event.sequence)
    return [event.sequence for event in events]


def test_journal_history_implements_ieventhistory(journal: Journal) -> None:
    assert verifyObject(IEventHistory, history_of(journal))


def test_event_survives_packing_into_a_journal_record() -> None:
    event = Event(7, "someone", 3, 9, b"\x00\xff")
    assert unpack_event(7, pack_event(event)) == event
    with pytest.raises(ValueError, match="record 7 of the journal is not an event"):
        unpack_event(7, b"\xff")


def test_events_lost_from_the_end_of_a_journal_are_appended_again(tmp_path: Path) -> None:
    with closing(open_journal(tmp_path, stream_uri("default"))) as journal:
        filled(journal, 10)
        journal.commit()
        history = history_of(journal)
        history.put([stretch(11, 20)])
        history.save(sync=True)
        last = list(journal.catalog.segments[1].frame_indexes[0])[-1]
    (file,) = tmp_path.glob("*/*.log")
    data = bytearray(file.read_bytes())
    data[last.offset + last.size - 20] ^= 1
    file.write_bytes(data)
    with closing(open_journal(tmp_path, stream_uri("default"))) as journal:
        history = history_of(journal)
        assert (history.last, history.oldest) == (10, 1)
        history.put([stretch(11, 20)])
        history.save(sync=True)
        assert (journal.bounds(0), journal.counters.spent) == ((1, 21, 20), 0)
        assert numbers(history_of(journal).read(9, 12, 10)) == [9, 10, 11, 12]


def test_history_of_an_empty_journal_starts_at_1(journal: Journal) -> None:
    history = history_of(journal)
    assert (history.oldest, history.last) == (1, 0)
    assert history.read(1, 10, 10) == []


def test_events_evicted_from_memory_are_read_from_the_journal(journal: Journal) -> None:
    history = filled(journal, 100)
    assert history._window.oldest > 50
    assert (history.oldest, history.last) == (1, 100)
    assert numbers(history.read(1, 100, 1_000)) == list(range(1, 101))
    assert numbers(history.read(20, 30, 5)) == [20, 21, 22, 23, 24]
    assert numbers(history.read(99, 200, 10)) == [99, 100]
    assert history.read(101, 200, 10) == []


def test_journal_history_continues_after_a_restart(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, stream_uri("default"))
    filled(journal, 10)
    journal.close()
    journal = open_journal(tmp_path, stream_uri("default"))
    history = history_of(journal)
    assert (history.oldest, history.last) == (1, 10)
    history.put([stretch(9, 12)])  # Some events are delivered again.
    history.save(sync=True)
    assert numbers(history.read(1, 20, 20)) == list(range(1, 13))
    assert journal.counters.taken == 2
    journal.close()


def test_events_before_a_gap_are_not_held(journal: Journal) -> None:
    history = filled(journal, 10)
    history.put([stretch(15, 16)])
    history.save(sync=True)
    assert (history.oldest, history.last) == (15, 16)
    assert history.read(10, 16, 10) == []
    assert numbers(history.read(15, 16, 10)) == [15, 16]
    assert journal.losses(0, 1, 16) == [(11, 14)]
    again = history_of(journal)
    assert (again.oldest, again.last) == (15, 16)


def test_skipped_events_are_recorded_as_lost(journal: Journal) -> None:
    history = filled(journal, 10)
    history.clear(20)
    history.save(sync=True)
    assert (history.oldest, history.last) == (21, 20)
    history.put([stretch(21, 21)])
    history.save(sync=True)
    assert numbers(history.read(21, 30, 10)) == [21]
    assert journal.losses(0, 1, 21) == [(11, 20)]


def test_empty_journal_starts_at_the_first_event_of_its_node(journal: Journal) -> None:
    history = history_of(journal)
    history.clear(100)
    history.put([stretch(101, 102)])
    history.save(sync=True)
    bounds = journal.bounds(0)
    assert bounds is not None
    assert bounds.first == 101
    assert numbers(history.read(101, 102, 10)) == [101, 102]


def test_clear_at_the_last_event_keeps_earlier_ones(journal: Journal) -> None:
    history = filled(journal, 10)
    history.clear(10)
    assert (history.oldest, history.last) == (1, 10)
    assert numbers(history.read(9, 10, 10)) == [9, 10]


def test_read_of_large_events_is_bounded_in_bytes(journal: Journal) -> None:
    history = history_of(journal)
    for number in range(1, 201):
        history.put([SequencedRun(number, "someone", 1, number, [b"x" * 48_000])])
    history.save(sync=False)
    first = history.read(1, 200, 200)
    assert 50 < len(first) < 150
    assert [event.sequence for event in first] == list(range(1, len(first) + 1))


def test_events_dropped_by_retention_are_not_held(journal: Journal) -> None:
    history = filled(journal, 10, 1)
    journal.roll()
    history.put([stretch(11, 12)])
    history.save(sync=True)
    journal.begin(0, 1)
    journal._write_starts({0: 11})
    assert history.oldest >= 11


def test_read_stops_at_a_damaged_record(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    history = filled(journal, 100)
    whole = journal.read

    def damaged(epoch: int, first: int, last: int, on_damage: Any) -> Iterator[Block]:
        yield from whole(epoch, first, min(last, 5), on_damage)
        yield from whole(epoch, 9, last, on_damage)

    monkeypatch.setattr(journal, "read", damaged)
    assert numbers(history.read(1, 20, 20)) == [1, 2, 3, 4, 5]
