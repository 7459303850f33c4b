"""Behaviour common to journals on disk and in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from suite.journals import JournalType, MakeJournal
from zope.interface.verify import verifyObject

from fyrehose_twisted.errors import LocalError
from fyrehose_twisted.interfaces import IJournal
from fyrehose_twisted.journal.commit_group import RejectedRecord
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import JournalError, NotInJournal
from fyrehose_twisted.journal.format.frames import MAX_PAYLOAD
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"
LAST = 2**62


def record(sequence: int, payload: bytes = b"", *, epoch: int = 0, at: int = 7) -> Record:
    return Record(STREAM, epoch, sequence, at, payload)


def records(sequences: Iterable[int], **fields: Any) -> list[Record]:
    """Return records whose payloads are their numbers, to detect mix-ups."""
    return [record(sequence, b"%d" % sequence, **fields) for sequence in sequences]


def kept(journal: JournalType, epoch: int = 0, first: int | None = None, last: int = LAST) -> dict[int, bytes]:
    """Return payloads by position, after checking the consistency of the blocks."""
    if first is None:
        bounds = journal.bounds(epoch)
        first = 0 if bounds is None else bounds.first
    blocks = list(journal.read(epoch, first, last))
    assert all(len(block) for block in blocks)
    positions = [position for block in blocks for position in block.positions.tolist()]
    assert all(one < next_one for one, next_one in pairwise(positions))
    assert all(block.stream == STREAM and block.epoch == epoch for block in blocks)
    return dict(zip(positions, (payload for block in blocks for payload in block.payloads()), strict=True))


def counts(journal: JournalType) -> dict[str, int]:
    """Return the counters that are not 0."""
    counters = journal.counters
    return {name: getattr(counters, name) for name in counters.__slots__ if getattr(counters, name)}


def test_a_journal_provides_ijournal(make_journal: MakeJournal) -> None:
    assert verifyObject(IJournal, make_journal())


class TestNew:
    def test_a_new_journal_has_no_epochs(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        assert journal.epochs() == []
        assert journal.bounds(0) is None
        assert journal.stream == STREAM

    def test_reading_a_new_journal_returns_nothing(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        assert list(journal.read(0, 0, LAST)) == []
        assert journal.get(0, 1) is None
        assert journal.losses(0, 0, LAST) == []
        assert list(journal.held(0, 0, LAST)) == []

    def test_commit_and_trim_of_a_new_journal_do_nothing(self, make_journal: MakeJournal) -> None:
        journal = make_journal(retention=Retention(1.0, 1))
        journal.commit()
        assert journal.append([]) == 0
        assert journal.trim() == 0
        assert journal.epochs() == []


class TestAppend:
    def test_appended_records_are_read_unchanged(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        given = [record(5, b"five", at=50), record(6, b"", at=2**63 - 1), record(7, bytes(100_000), at=0)]
        assert journal.append(given) == 3
        journal.commit()
        assert [one for block in journal.read(0, 5, 7) for one in block.records()] == given
        assert [journal.get(0, number) for number in (5, 6, 7)] == given

    def test_records_are_not_readable_before_the_commit(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1, 2]))
        assert kept(journal) == {}
        assert journal.get(0, 1) is None
        journal.commit()
        assert kept(journal) == {1: b"1", 2: b"2"}

    def test_several_appends_are_committed_as_one_group(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([3]))
        journal.append(records([5, 4]))
        journal.append(records([6]))
        journal.commit()
        assert list(kept(journal)) == [3, 4, 5, 6]
        assert journal.bounds(0) == Bounds(3, 7, 6)

    def test_records_appended_in_any_order_are_read_in_sequence(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.begin(0, 1)
        for group in ([9, 4], [2, 7, 3], [8], [1, 6, 5]):
            assert journal.append(records(group)) == len(group)
            journal.commit()
        assert kept(journal) == {number: b"%d" % number for number in range(1, 10)}
        assert counts(journal) == {"taken": 9}

    def test_an_epoch_begins_with_the_lowest_of_its_first_records(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([8, 5, 9]))
        journal.commit()
        assert journal.bounds(0) == Bounds(5, 6, 9)

    def test_an_epoch_begun_explicitly_keeps_its_beginning(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.begin(0, 5)
        journal.begin(0, 3)
        journal.append(records([4, 6]))
        journal.begin(0, 4)
        journal.commit()
        assert journal.bounds(0) == Bounds(5, 5, 6)
        assert counts(journal) == {"taken": 1, "late": 1}

    def test_an_epoch_without_records_has_bounds(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.begin(3, 10)
        journal.commit()
        assert journal.epochs() == [3]
        assert journal.bounds(3) == Bounds(10, 10, 9)
        assert kept(journal, 3) == {}

    def test_epochs_are_kept_apart(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        assert journal.append([record(5, b"b", epoch=2), record(9, b"a", epoch=1), record(6, b"c", epoch=2)]) == 3
        journal.append([record(5, b"d", epoch=9)])
        journal.commit()
        assert journal.epochs() == [1, 2, 9]
        assert [kept(journal, epoch) for epoch in (1, 2, 9)] == [{9: b"a"}, {5: b"b", 6: b"c"}, {5: b"d"}]
        assert journal.bounds(2) == Bounds(5, 7, 6)
        assert journal.get(1, 5) is None

    def test_records_with_large_gaps_are_kept(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        numbers = [0, 5_000, 2**40, 2**40 + 2, 2**62, 2**63 - 1]
        journal.append(records(numbers))
        journal.commit()
        assert list(kept(journal, last=2**63 - 1)) == numbers
        assert journal.bounds(0) == Bounds(0, 1, 2**63 - 1)

    def test_held_returns_the_held_parts_of_a_range(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1, 2, 5, 6, 7, 10]))
        journal.commit()
        assert list(journal.held(0, 2, 6)) == [(2, 2), (5, 6)]
        assert list(journal.held(1, 0, LAST)) == []


class TestRefusal:
    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param(Record("fyrehose://other", 0, 3, 7, b""), id="stream"),
            pytest.param(record(-1), id="sequence-negative"),
            pytest.param(record(2**63), id="sequence-large"),
            pytest.param(record(3, epoch=-1), id="epoch-negative"),
            pytest.param(record(3, epoch=2**63), id="epoch-large"),
            pytest.param(record(3, at=-1), id="time-negative"),
            pytest.param(record(3, at=2**63), id="time-large"),
            pytest.param(record(3, bytes(MAX_PAYLOAD + 1)), id="payload-large"),
        ],
    )
    def test_a_batch_with_an_invalid_record_is_rejected_whole(self, make_journal: MakeJournal, wrong: Record) -> None:
        journal = make_journal()
        journal.append(records([1]))
        with pytest.raises(RejectedRecord):
            journal.append([record(2), wrong, record(4)])
        journal.commit()
        assert kept(journal) == {1: b"1"}
        assert journal.epochs() == [0]
        assert counts(journal) == {"taken": 1}

    def test_a_number_at_or_above_the_wrap_is_rejected(self, make_journal: MakeJournal) -> None:
        journal = make_journal(wrap=16)
        with pytest.raises(RejectedRecord, match="0 to 15"):
            journal.append([record(16)])
        assert journal.append([record(15)]) == 1

    @pytest.mark.parametrize(("epoch", "number"), [(-1, 1), (2**63, 1), (0, -1), (0, 2**63)])
    def test_beginning_an_epoch_out_of_range_is_rejected(
        self, make_journal: MakeJournal, epoch: int, number: int
    ) -> None:
        journal = make_journal()
        with pytest.raises(RejectedRecord):
            journal.begin(epoch, number)
        with pytest.raises(RejectedRecord):
            journal.lose(epoch, number, number)
        journal.commit()
        assert journal.epochs() == []

    def test_declaring_an_empty_range_lost_is_rejected(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        with pytest.raises(RejectedRecord, match="from 5 to 4 is empty"):
            journal.lose(0, 5, 4)
        assert journal.epochs() == []

    def test_a_rejected_record_is_a_value_error(self) -> None:
        assert issubclass(RejectedRecord, LocalError)
        assert issubclass(RejectedRecord, ValueError)


class TestSameNumber:
    def test_a_record_below_the_watermark_is_never_replaced(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append([record(1, b"first", at=1)])
        journal.commit()
        assert journal.append([record(1, b"second", at=2)]) == 0
        journal.commit()
        assert journal.get(0, 1) == record(1, b"first", at=1)
        assert counts(journal) == {"taken": 1, "conflicts": 1}

    def test_a_record_above_the_watermark_is_replaced(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.begin(0, 1)
        journal.append([record(2, b"first", at=1), record(3, b"three")])
        journal.commit()
        assert journal.append([record(2, b"second", at=2)]) == 1
        journal.commit()
        assert journal.get(0, 2) == record(2, b"second", at=2)
        assert kept(journal) == {2: b"second", 3: b"three"}
        assert counts(journal) == {"taken": 3, "replaced": 1}

    def test_an_uncommitted_record_is_replaced(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append([record(1, b"first"), record(1, b"second")])
        journal.append([record(1, b"third")])
        journal.commit()
        assert kept(journal) == {1: b"third"}
        assert counts(journal) == {"taken": 3, "replaced": 2}

    def test_a_committed_but_unsynced_record_is_replaced(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append([record(1, b"first")])
        journal.commit(sync=False)
        journal.append([record(1, b"second")])
        journal.commit()
        assert kept(journal) == {1: b"second"}
        assert counts(journal) == {"taken": 2, "replaced": 1}

    @pytest.mark.parametrize("sync", [True, False])
    @pytest.mark.parametrize("start", [1, 2])
    def test_a_record_with_the_same_payload_is_a_duplicate(
        self, make_journal: MakeJournal, start: int, sync: bool
    ) -> None:
        journal = make_journal()
        journal.begin(0, start)
        journal.append([record(2, b"same", at=1)])
        journal.commit(sync)
        assert journal.append([record(2, b"same", at=2)]) == 0
        journal.commit()
        assert journal.get(0, 2) == record(2, b"same", at=1)
        assert counts(journal) == {"taken": 1, "duplicates": 1}

    def test_an_uncommitted_record_with_the_same_payload_is_a_duplicate(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        assert journal.append([record(2, b"", at=1), record(2, b"", at=2)]) == 1
        journal.commit()
        assert journal.get(0, 2) == record(2, b"", at=1)
        assert counts(journal) == {"taken": 1, "duplicates": 1}

    def test_a_record_with_an_empty_payload_conflicts_with_another_payload(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append([record(1, b"")])
        journal.commit()
        assert journal.append([record(1, b"more")]) == 0
        assert counts(journal) == {"taken": 1, "conflicts": 1}

    def test_a_record_declared_lost_is_late(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1]))
        journal.lose(0, 2, 3)
        assert journal.append(records([2, 4])) == 1  # The loss is pending.
        journal.commit()
        assert journal.append(records([3, 5])) == 1  # The loss is written.
        journal.commit()
        assert list(kept(journal)) == [1, 4, 5]
        assert journal.losses(0, 1, 5) == [(2, 3)]
        assert counts(journal) == {"taken": 3, "late": 2}

    def test_a_record_before_the_beginning_of_its_epoch_is_late(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([5, 6]))
        journal.commit()
        assert journal.append(records([4, 7])) == 1
        journal.commit()
        assert list(kept(journal)) == [5, 6, 7]
        assert counts(journal) == {"taken": 3, "late": 1}


class TestLosses:
    def test_a_declared_loss_advances_the_watermark(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1, 2, 6]))
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 3, 6)
        journal.lose(0, 3, 5)
        assert journal.losses(0, 0, 9) == []
        assert journal.bounds(0) == Bounds(1, 3, 6)
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 7, 6)
        assert journal.losses(0, 0, 9) == [(3, 5)]
        assert journal.losses(0, 4, 4) == [(4, 4)]
        assert journal.losses(0, 6, 9) == []
        assert journal.losses(1, 0, 9) == []

    def test_only_numbers_neither_held_nor_pending_are_declared_lost(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1, 2, 5]))
        journal.commit()
        journal.append(records([7, 8]))
        journal.lose(0, 0, 10)
        journal.lose(0, 3, 3)
        journal.commit()
        assert journal.losses(0, 0, 20) == [(3, 4), (6, 6), (9, 10)]
        assert list(kept(journal)) == [1, 2, 5, 7, 8]
        assert journal.bounds(0) == Bounds(1, 11, 10)

    def test_an_epoch_may_begin_with_a_loss(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.lose(4, 10, 12)
        journal.commit()
        assert journal.bounds(4) == Bounds(10, 13, 12)
        assert kept(journal, 4) == {}

    def test_the_bounds_reach_to_a_loss_beyond_the_last_record(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1]))
        journal.lose(0, 8, 9)
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 2, 9)

    def test_records_are_appended_after_a_loss(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1]))
        journal.lose(0, 2, 4)
        assert journal.append(records([5, 6])) == 2
        journal.commit()
        journal.lose(0, 7, 8)
        journal.commit()
        assert journal.append(records([9])) == 1
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 10, 9)


class TestWatermark:
    def test_the_watermark_is_before_the_first_gap(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1, 2, 4, 5]))
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 3, 5)
        journal.append(records([3]))
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 6, 5)

    def test_unsynced_records_do_not_advance_the_watermark(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1, 2]))
        journal.commit(sync=False)
        assert journal.bounds(0) == Bounds(1, 1, 2)
        assert list(kept(journal)) == [1, 2]
        journal.append(records([3]))
        journal.commit(sync=False)
        assert journal.bounds(0) == Bounds(1, 1, 3)
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 4, 3)


class TestReading:
    @pytest.fixture
    def journal(self, make_journal: MakeJournal) -> JournalType:
        journal = make_journal()
        journal.append(records([10, 11, 13, 14, 20]))
        journal.commit()
        journal.append(records([12, 17]))
        journal.commit()
        return journal

    @pytest.mark.parametrize(
        ("first", "last", "expected"),
        [
            (10, 20, [10, 11, 12, 13, 14, 17, 20]),
            (10, 10, [10]),
            (11, 13, [11, 12, 13]),
            (14, 17, [14, 17]),
            (15, 16, []),
            (15, 17, [17]),
            (18, 2**64, [20]),
            (21, 30, []),
            (13, 12, []),
        ],
    )
    def test_reading_a_range_returns_its_held_records(
        self, journal: JournalType, first: int, last: int, expected: list[int]
    ) -> None:
        assert kept(journal, first=first, last=last) == {number: b"%d" % number for number in expected}

    def test_reading_before_the_beginning_is_an_error(self, journal: JournalType) -> None:
        with pytest.raises(NotInJournal, match="9 of epoch 0 is not held: fyrehose://test begins at 10"):
            journal.read(0, 9, 12)

    @pytest.mark.parametrize("position", [-1, 9, 15, 21, 2**70])
    def test_getting_a_record_that_is_not_held_returns_none(self, journal: JournalType, position: int) -> None:
        assert journal.get(0, position) is None

    def test_appending_does_not_affect_a_running_read(self, journal: JournalType) -> None:
        blocks = journal.read(0, 10, 14)
        found = next(blocks).positions.tolist()
        journal.append(records([15, 16, 18, 21]))
        journal.commit()
        found += [position for block in blocks for position in block.positions.tolist()]
        assert found == [10, 11, 12, 13, 14]


class TestWrap:
    WRAP = 2**63

    def test_positions_continue_where_numbers_wrap(self, make_journal: MakeJournal) -> None:
        journal = make_journal(wrap=self.WRAP)
        numbers = [self.WRAP - 2, self.WRAP - 1, 0, 1]
        journal.append(records(numbers[:3]))
        journal.commit()
        journal.append(records(numbers[3:]))
        journal.commit()
        assert journal.bounds(0) == Bounds(self.WRAP - 2, self.WRAP + 2, self.WRAP + 1)
        blocks = list(journal.read(0, self.WRAP - 2, self.WRAP + 5))
        assert [position for block in blocks for position in block.positions.tolist()] == [
            self.WRAP - 2 + index for index in range(4)
        ]
        assert [number for block in blocks for number in block.sequences.tolist()] == numbers
        assert journal.get(0, self.WRAP + 1) == record(1, b"1")
        assert journal.get(0, 1) is None

    def test_a_wrapped_number_means_the_position_closest_to_the_end(self, make_journal: MakeJournal) -> None:
        journal = make_journal(wrap=16)
        for number in range(50):
            journal.append([record(number % 16, b"%d" % number)])
            journal.commit()
        assert kept(journal) == {number: b"%d" % number for number in range(50)}
        assert journal.append([record(49 % 16, b"49"), record(48 % 16, b"other")]) == 0
        assert counts(journal) == {"taken": 50, "duplicates": 1, "conflicts": 1}

    def test_records_are_ordered_across_the_wrap(self, make_journal: MakeJournal) -> None:
        journal = make_journal(wrap=16)
        journal.append([record(13, b"13")])
        journal.commit()
        journal.append([record(1, b"17"), record(15, b"15"), record(0, b"16")])
        journal.commit()
        journal.append([record(14, b"14")])
        journal.commit()
        assert kept(journal) == {number: b"%d" % number for number in range(13, 18)}
        assert journal.bounds(0) == Bounds(13, 18, 17)

    def test_the_first_batch_may_wrap_and_be_unordered(self, make_journal: MakeJournal) -> None:
        journal = make_journal(wrap=16)
        assert journal.append([record(1, b"17"), record(15, b"15")]) == 2
        journal.commit()
        assert kept(journal) == {15: b"15", 17: b"17"}
        assert journal.bounds(0) == Bounds(15, 16, 17)

    def test_a_declared_loss_may_wrap(self, make_journal: MakeJournal) -> None:
        journal = make_journal(wrap=16)
        journal.append([record(13)])
        journal.lose(0, 14, 1)
        journal.commit()
        journal.lose(0, 2, 3)
        journal.commit()
        assert journal.losses(0, 0, 100) == [(14, 19)]
        assert journal.bounds(0) == Bounds(13, 20, 19)

    def test_an_epoch_may_begin_with_a_wrapping_loss(self, make_journal: MakeJournal) -> None:
        journal = make_journal(wrap=16)
        journal.lose(0, 15, 1)
        journal.commit()
        assert journal.losses(0, 0, 100) == [(15, 17)]


class TestTrim:
    def test_trim_without_limits_keeps_everything(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, clock=lambda: 1e9)
        for number in range(5):
            journal.append(records([number]))
            journal.commit()
        assert journal.trim() == 0
        assert len(kept(journal)) == 5

    def test_trim_drops_records_older_than_the_retention(self, make_journal: MakeJournal) -> None:
        now = [100.0]
        journal = make_journal(segment_bytes=1, retention=Retention(10.0), clock=lambda: now[0])
        for number in range(6):
            now[0] = 100.0 + number
            journal.append([record(number, at=(100 + number) * 1_000_000)])
            journal.commit()
        now[0] = 112.5
        assert journal.trim() > 0
        assert journal.bounds(0) == Bounds(3, 6, 5)
        assert list(kept(journal)) == [3, 4, 5]
        with pytest.raises(NotInJournal, match="begins at 3"):
            journal.read(0, 2, 5)
        assert journal.get(0, 2) is None
        journal.trim()
        assert journal.bounds(0) == Bounds(3, 6, 5)

    def test_trim_drops_records_beyond_the_size_limit(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, retention=Retention(size=13_000), clock=lambda: 100.0)
        for number in range(10):
            journal.append([record(number, bytes(3_000))])
            journal.commit()
        assert journal.trim() > 15_000
        bounds = journal.bounds(0)
        assert bounds is not None
        assert bounds.first in (6, 7)
        assert list(kept(journal)) == list(range(bounds.first, 10))
        assert (bounds.next, bounds.last) == (10, 9)

    def test_a_record_dropped_by_retention_is_late_when_appended_again(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, retention=Retention(size=4_000), clock=lambda: 100.0)
        for number in range(3):
            journal.append([record(number, bytes(3_000))])
            journal.commit()
        journal.trim()
        assert journal.append([record(0, b"again")]) == 0
        assert counts(journal) == {"taken": 3, "late": 1}

    def test_trim_never_lowers_the_watermark(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, retention=Retention(size=5_000), clock=lambda: 100.0)
        journal.begin(0, 0)
        for number in (0, 1, 4, 5):
            journal.append([record(number, bytes(3_000))])
            journal.commit()
        journal.trim()
        bounds = journal.bounds(0)
        assert bounds is not None
        assert bounds.first == 5
        assert bounds.next == 6

    def test_trim_drops_losses_with_the_records_before_them(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, retention=Retention(size=4_000), clock=lambda: 100.0)
        journal.append([record(1, bytes(3_000))])
        journal.lose(0, 2, 3)
        journal.commit()
        for number in (4, 5):
            journal.append([record(number, bytes(3_000))])
            journal.commit()
        journal.trim()
        assert journal.bounds(0) == Bounds(5, 6, 5)
        assert journal.losses(0, 0, 9) == []

    def test_trim_drops_an_ended_epoch(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, retention=Retention(size=4_000), clock=lambda: 100.0)
        for epoch in range(3):
            for number in range(2):
                journal.append([record(number, bytes(3_000), epoch=epoch)])
                journal.commit()
        journal.trim()
        assert journal.epochs() == [2]
        assert journal.bounds(2) == Bounds(1, 2, 1)
        assert journal.bounds(0) is None

    def test_a_read_of_dropped_records_is_an_error(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, retention=Retention(size=4_000), clock=lambda: 100.0)
        for number in (0, 2, 4, 6):
            journal.append([record(number, bytes(3_000))])
            journal.commit()
        blocks = journal.read(0, 0, 9)
        assert next(blocks).positions.tolist() == [0]
        journal.trim()
        with pytest.raises(NotInJournal):
            next(blocks)

    def test_a_read_beyond_dropped_records_continues(self, make_journal: MakeJournal) -> None:
        journal = make_journal(segment_bytes=1, retention=Retention(size=7_000), clock=lambda: 100.0)
        for number in (0, 2, 4, 6):
            journal.append([record(number, bytes(3_000))])
            journal.commit()
        blocks = journal.read(0, 4, 9)
        assert next(blocks).positions.tolist() == [4]
        journal.trim()
        assert [position for block in blocks for position in block.positions.tolist()] == [6]


class TestClosing:
    def test_close_commits_pending_records(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.append(records([1]))
        journal.close()
        assert journal.bounds(0) == Bounds(1, 2, 1)

    def test_closing_a_journal_twice_has_no_effect(self, make_journal: MakeJournal) -> None:
        journal = make_journal()
        journal.close()
        journal.close()

    @pytest.mark.parametrize(
        "use",
        [
            lambda journal: journal.append([record(1)]),
            lambda journal: journal.begin(0, 1),
            lambda journal: journal.lose(0, 1, 1),
            lambda journal: journal.commit(),
            lambda journal: journal.trim(),
        ],
        ids=["append", "begin", "lose", "commit", "trim"],
    )
    def test_a_closed_journal_refuses_use(self, make_journal: MakeJournal, use: Callable[[Any], Any]) -> None:
        journal = make_journal()
        journal.close()
        with pytest.raises(JournalError, match="closed"):
            use(journal)


class TestInMemory:
    def test_a_memory_journal_reads_long_runs_in_blocks(self) -> None:
        journal = MemoryJournal(STREAM)
        journal.append(records(range(10_000)))
        journal.commit()
        blocks = list(journal.read(0, 10, 9_990))
        assert [len(block) for block in blocks] == [4_096, 4_096, 9_981 - 8_192]
        assert len(kept(journal, first=10, last=9_990)) == 9_981

    @given(st.permutations(range(16)))
    def test_the_watermark_equals_the_first_missing_number(self, order: list[int]) -> None:
        journal, here = MemoryJournal(STREAM), set[int]()
        journal.begin(0, 0)
        for number in order:
            journal.append([record(number)])
            journal.commit()
            here.add(number)
            bounds = journal.bounds(0)
            assert bounds == Bounds(0, min(set(range(17)) - here), max(here))
