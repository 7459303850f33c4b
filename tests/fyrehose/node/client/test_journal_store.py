from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.journals import JournalType
from zope.interface.verify import verifyObject

from fyrehose_twisted.fyrehose.node.client import journal_store
from fyrehose_twisted.fyrehose.node.client.journal_store import EPOCH, READ_AHEAD, JournalStore, PendingWrites
from fyrehose_twisted.interfaces import IMessageStore
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"


def data_of(sequence: int) -> bytes:
    return b"message %d" % sequence


@pytest.fixture(params=["disk", "memory"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[JournalType]:
    made: JournalType = (
        MemoryJournal(STREAM) if request.param == "memory" else Journal(LocalDirectory(tmp_path), STREAM)
    )
    yield made
    made.close()


@pytest.fixture
def store(journal: JournalType) -> JournalStore:
    return JournalStore(journal)


def put(store: JournalStore, *sequences: int) -> None:
    for sequence in sequences:
        store.put(sequence, [data_of(sequence)], 10 * sequence)


def save(store: JournalStore) -> None:
    unsaved = store.take_pending()
    assert unsaved is not None
    unsaved.save(store.journal)


class ReadCountingJournal:
    """A journal that records the ranges read."""

    def __init__(self, journal: JournalType) -> None:
        self.reads: list[tuple[int, int]] = []
        self._journal = journal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)

    def read(self, epoch: int, first: int, last: int, on_damage: Callable[..., object] | None = None) -> Any:
        self.reads.append((first, last))
        return self._journal.read(epoch, first, last, on_damage)


def damage_payload(path: Path, payload: bytes) -> None:
    """Flip a bit of ``payload`` in a journal file."""
    file = next(path.glob("*.log"))
    found = bytearray(file.read_bytes())
    assert found.count(payload) == 1
    found[found.index(payload)] ^= 1
    file.write_bytes(found)


def test_journal_store_provides_imessagestore(store: JournalStore) -> None:
    assert verifyObject(IMessageStore, store)


def test_pending_and_saved_messages_are_both_held(store: JournalStore) -> None:
    put(store, 1, 2, 5)
    for saved in (False, True):
        if saved:
            save(store)
        assert [store.get(number) for number in (1, 2, 3, 5)] == [data_of(1), data_of(2), None, data_of(5)]
        assert [store.received_at(number) for number in (2, 3, 5)] == [20, None, 50]
        assert store.lowest(0, 9, 10) == [1, 2, 5]


def test_an_empty_message_without_receive_time_is_held(store: JournalStore) -> None:
    store.put(1, [b""])
    assert (store.get(1), store.received_at(1)) == (b"", 0)
    save(store)
    assert (store.get(1), store.received_at(1)) == (b"", 0)


def test_lowest_merges_pending_and_saved_numbers(store: JournalStore) -> None:
    put(store, 2, 4, 6, 7)
    save(store)
    put(store, 3, 5, 6, 9)
    assert store.lowest(1, 9, 100) == [2, 3, 4, 5, 6, 7, 9]
    assert store.lowest(1, 9, 3) == [2, 3, 4]
    assert store.lowest(5, 8, 100) == [5, 6, 7]
    assert store.lowest(6, 6, 1) == [6]
    assert store.lowest(8, 8, 100) == store.lowest(10, 2**48, 100) == []


def test_lowest_of_a_sparse_journal_needs_no_full_scan(store: JournalStore) -> None:
    records = [Record(STREAM, EPOCH, number, 1, b"") for number in (*range(1, 10_001), 2**40)]
    PendingWrites(1, records, []).save(store.journal)
    assert store.lowest(1, 2**48 - 1, 1_024) == list(range(1, 1_025))
    assert store.lowest(9_999, 2**48 - 1, 1_024) == [9_999, 10_000, 2**40]


def test_pending_writes_are_taken_once(store: JournalStore) -> None:
    assert store.take_pending() is None
    store.begin(3)
    put(store, 5, 4)
    store.lose(3, 3)
    unsaved = store.take_pending()
    assert unsaved == PendingWrites(
        3, [Record(STREAM, EPOCH, 5, 50, data_of(5)), Record(STREAM, EPOCH, 4, 40, data_of(4))], [(3, 3)]
    )
    assert store.take_pending() is None
    assert unsaved is not None
    unsaved.save(store.journal)
    assert store.journal.bounds(EPOCH) == Bounds(3, 6, 5)
    put(store, 6)
    assert store.take_pending() == PendingWrites(None, [Record(STREAM, EPOCH, 6, 60, data_of(6))], [])


@pytest.mark.parametrize("what", ["begin", "lose", "put"])
def test_a_begin_a_loss_or_a_message_alone_makes_a_pending_write(what: str, store: JournalStore) -> None:
    {"begin": lambda: store.begin(7), "lose": lambda: store.lose(7, 8), "put": lambda: store.put(7, [b""])}[what]()
    save(store)
    bounds = store.journal.bounds(EPOCH)
    assert bounds is not None
    assert bounds.first == 7
    assert bounds.next == {"begin": 7, "lose": 9, "put": 8}[what]
    assert store.take_pending() is None


def test_begin_of_a_begun_journal_writes_nothing(store: JournalStore) -> None:
    store.begin(7)
    save(store)
    store.begin(3)
    assert store.take_pending() is None


def test_records_saved_without_sync_are_readable_but_not_durable(store: JournalStore) -> None:
    put(store, 1, 2)
    unsaved = store.take_pending()
    assert unsaved is not None
    unsaved.save(store.journal, sync=False)
    assert store.get(2) == data_of(2)
    assert store.journal.bounds(EPOCH) == Bounds(1, 1, 2)
    store.journal.commit()
    assert store.journal.bounds(EPOCH) == Bounds(1, 3, 2)


def test_following_records_are_read_ahead_in_one_read(journal: JournalType) -> None:
    counting_journal: Any = ReadCountingJournal(journal)
    store = JournalStore(counting_journal)
    put(store, *range(1, 2_001))
    save(store)
    for number in range(1, READ_AHEAD + 1):
        assert store.get(number) == data_of(number)
        assert store.received_at(number) == 10 * number
    assert counting_journal.reads == [(1, READ_AHEAD)]
    store.get(READ_AHEAD + 1)
    assert counting_journal.reads[1:] == [(READ_AHEAD + 1, 2 * READ_AHEAD)]
    store.get(3_000)
    assert len(counting_journal.reads) == 2, "a number that is not held needs no read"


def test_the_records_read_ahead_are_bounded(store: JournalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_store, "READ_RECORDS", 3_000)
    put(store, *range(1, 20_001))
    save(store)
    for number in range(1, 20_001, 100):
        assert store.get(number) == data_of(number)
        assert len(store._read_cache) <= 3_000 + READ_AHEAD


def test_the_bytes_read_ahead_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_store, "READ_BYTES", 50_000)
    store = JournalStore(Journal(LocalDirectory(tmp_path), STREAM))
    for number in range(30_001, 31_001):
        store.put(number, [b"%1000d" % number])
        save(store)  # Each in a frame of its own.
    for number in range(30_001, 31_001):
        assert store.get(number) == b"%1000d" % number
        assert sum(len(data) for _, data in store._read_cache.values()) <= 2 * 50_000
        assert store._read_cache_bytes <= 2 * 50_000
    store.journal.close()


def test_a_put_message_replaces_its_cached_record(store: JournalStore) -> None:
    store.begin(1)
    put(store, 2, 3, 4)  # 1 is missing, so these may still be corrected.
    save(store)
    assert store.get(2) == data_of(2)
    store.put(3, [b"corrected"], 99)
    assert (store.get(3), store.received_at(3)) == (b"corrected", 99)
    save(store)
    assert (store.get(3), store.received_at(3)) == (b"corrected", 99)
    assert store.journal.get(EPOCH, 3).payload == b"corrected"


def test_a_record_read_while_a_correction_is_pending_is_not_cached_past_it(store: JournalStore) -> None:
    store.begin(1)
    put(store, 2, 3, 4)
    save(store)
    store.put(3, [b"corrected"], 99)
    assert store.get(2) == data_of(2)  # This reads the old 3 ahead.
    assert store.get(3) == b"corrected"
    save(store)
    assert (store.get(3), store.received_at(3)) == (b"corrected", 99)


def test_records_dropped_by_retention_are_not_held(tmp_path: Path) -> None:
    now = 1_000.0
    journal = MemoryJournal(STREAM, retention=Retention(seconds=10), clock=lambda: now)
    store = JournalStore(journal)
    store.put(1, [b"old"], 980_000_000)
    store.put(2, [b"new"], 995_000_000)
    save(store)
    journal.trim()
    assert store.lowest(1, 2, 10) == [2]
    assert store.get(1) is None


@pytest.fixture
def damaged(tmp_path: Path) -> Iterator[JournalStore]:
    """Return a store with 3 to 5 in a damaged frame, 1 missing, 2 and 6 intact."""
    with_gap = Journal(LocalDirectory(tmp_path), STREAM)
    store = JournalStore(with_gap)
    store.begin(1)
    for group in ([2], [3, 4, 5], [6]):
        put(store, *group)
        save(store)
    damage_payload(tmp_path, data_of(4))
    yield JournalStore(with_gap)
    with_gap.close()


def test_records_of_a_frame_found_damaged_are_not_held(damaged: JournalStore) -> None:
    assert damaged.lowest(1, 9, 10) == [2, 3, 4, 5, 6]
    assert damaged.get(4) is None
    assert damaged.damage_count == 1
    assert damaged.lowest(1, 9, 10) == [2, 3, 6]  # 3 has not been read, so it may be in an intact frame.
    assert [damaged.get(number) for number in (2, 3, 5, 6)] == [data_of(2), None, None, data_of(6)]
    assert damaged.received_at(3) is None
    assert damaged.lowest(1, 9, 10) == [2, 6]


def test_a_message_received_again_replaces_a_damaged_record(damaged: JournalStore) -> None:
    assert damaged.get(3) is None
    put(damaged, 4)
    assert damaged.get(4) == data_of(4)
    assert damaged.lowest(1, 9, 10) == [2, 4, 6]
    save(damaged)
    # The frame is still there and is found damaged again.
    assert damaged.get(4) == data_of(4)
    assert damaged.lowest(1, 9, 10) == [2, 4, 6]
    put(damaged, 3, 5)
    save(damaged)
    for number in (2, 3, 4, 5, 6):
        assert damaged.get(number) == data_of(number)
    assert damaged.lowest(1, 9, 10) == [2, 3, 4, 5, 6]
    assert JournalStore(damaged.journal).get(5) == data_of(5)


steps = st.lists(
    st.tuples(st.just("put"), st.integers(2, 40), st.lists(st.binary(max_size=2), min_size=1, max_size=6))
    | st.tuples(st.sampled_from(["get", "save"]), st.integers(2, 40), st.just([])),
    max_size=20,
)


@given(steps)
def test_putting_a_run_equals_putting_its_messages_one_by_one(what: list[tuple[str, int, list[bytes]]]) -> None:
    """Compare with single puts and with a dict; 1 stays missing, so every saved record may be corrected."""
    store, reference = (JournalStore(MemoryJournal(STREAM)) for _ in range(2))
    for each in (store, reference):
        each.begin(1)
    pending: dict[int, tuple[int, bytes]] = {}
    for now, (name, first, messages) in enumerate(what):
        if name == "put":
            store.put(first, messages, now)
            pending.update({sequence: (now, data) for sequence, data in enumerate(messages, first)})
            for sequence, data in enumerate(messages, first):
                reference.put(sequence, [data], now)
        elif name == "get":
            assert store.get(first) == reference.get(first)
        else:
            taken = store.take_pending()
            assert taken == reference.take_pending()
            records = [Record(STREAM, EPOCH, sequence, *kept) for sequence, kept in pending.items()]
            assert records == ([] if taken is None else taken.records)
            pending.clear()
            for each in (store, reference):
                if taken is not None:
                    taken.save(each.journal)
        assert store.lowest(0, 99, 99) == reference.lowest(0, 99, 99)
        seen, expected = (
            [(each.get(number), each.received_at(number)) for number in range(1, 50)] for each in (store, reference)
        )
        assert seen == expected


def test_a_put_run_replaces_its_cached_records(store: JournalStore) -> None:
    store.begin(1)
    put(store, 2, 3, 4, 5)  # 1 is missing, so these may still be corrected.
    save(store)
    assert store.get(2) == data_of(2)
    store.put(3, [b"three", b"four"], 99)
    for saved in (False, True):
        if saved:
            save(store)
        assert [store.get(number) for number in range(2, 6)] == [data_of(2), b"three", b"four", data_of(5)]
        assert [store.received_at(number) for number in range(2, 6)] == [20, 99, 99, 50]


def test_a_run_received_again_replaces_damaged_records(damaged: JournalStore) -> None:
    assert [damaged.get(number) for number in (3, 4, 5)] == [None] * 3
    assert damaged.lowest(1, 9, 10) == [2, 6]
    damaged.put(3, [b"three", b"four"], 99)
    assert damaged.lowest(1, 9, 10) == [2, 3, 4, 6]
    save(damaged)
    assert damaged.lowest(1, 9, 10) == [2, 3, 4, 6]
    assert [damaged.get(number) for number in (4, 3, 5)] == [b"four", b"three", None]
    assert damaged.lowest(1, 9, 10) == [2, 3, 4, 6]


def test_numbers_outside_a_put_run_need_no_read(journal: JournalType) -> None:
    counting_journal: Any = ReadCountingJournal(journal)
    store = JournalStore(counting_journal)
    store.put(5, [b"5", b"6", b"7"], 0)
    store.put(1, [b"1", b"2"], 0)
    save(store)
    assert [store.get(number) for number in (7, 2, 8)] == [b"7", b"2", None]
    assert [first for first, _ in counting_journal.reads] == [7, 2], "a number that is not held needs no read"


@given(start=st.integers(1, 5), ranges=st.lists(st.tuples(st.integers(1, 30), st.integers(0, 5)), max_size=20))
def test_reached_is_the_end_of_the_contiguous_numbers_after_the_start(
    start: int, ranges: list[tuple[int, int]]
) -> None:
    store = JournalStore(MemoryJournal(STREAM))
    put(store, 1)
    assert store.reached is None
    store.track_after(start)
    received: set[int] = set()
    for first, more in ranges:
        if more:
            store.put(first, [b"x"] * more)
            received |= set(range(first, first + more))
        else:
            store.lose(first, first)
            received.add(first)
        expected = start
        while expected + 1 in received:
            expected += 1
        assert store.reached == expected
    store.track_after(0)
    assert store.reached == expected if ranges else start
