"""Batches of a task, without Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyspark.sql.datasource import EqualTo, GreaterThan, LessThanOrEqual
from suite.journals import WriteJournal

from fyrehose_twisted.journal.arrow import batches as arrow
from fyrehose_twisted.journal.arrow import gaps
from fyrehose_twisted.journal.arrow.schema import COLUMNS, RECORD
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError, NotInJournal
from fyrehose_twisted.journal.format.disk import LocalDirectory, LocalFile
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.upkeep.seal import seal
from fyrehose_twisted.record import Record
from fyrehose_twisted.spark.source import journal_locations, planning
from fyrehose_twisted.spark.source.data_source import FyrehoseReader, PushdownReader
from fyrehose_twisted.spark.source.journal_locations import JournalLocation, cached_reader, locations_in_path
from fyrehose_twisted.spark.source.options import read_options
from fyrehose_twisted.spark.source.planning import (
    MIN_TASK_NUMBERS,
    TARGET_TASKS,
    EpochRange,
    TaskRange,
    pack_ranges,
    task_ranges,
)
from fyrehose_twisted.spark.source.task_batches import read_range

STREAM = "fyrehose://test"
START = 1_700_000_000_000_000


def whole(path: Path, size: int = 1_000_000, columns: Any = RECORD, **more: Any) -> list[dict[str, Any]]:
    """Return all rows of a journal, read in ranges of ``size``."""
    (origin,) = locations_in_path(str(path))
    reader = cached_reader(origin)
    reader.refresh()
    rows = []
    for epoch in reader.epochs():
        bounds = reader.bounds(epoch)
        assert bounds is not None
        for part in task_ranges(EpochRange(origin, epoch, bounds.first, bounds.next), size):
            rows += [row for batch in read_range(part, columns, **more) for row in batch.to_pylist()]
    return rows


@contextmanager
def _opened(path: Path, **config: Any) -> Iterator[Journal]:
    with closing(Journal(LocalDirectory(path), STREAM, config=JournalConfig(**config))) as journal:
        yield journal


def numbers(rows: list[dict[str, Any]], status: str) -> list[int]:
    return [row["sequence"] for row in rows if row["status"] == status]


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_each_number_has_one_row_in_order_for_any_split_into_ranges(write_journal: WriteJournal, size: int) -> None:
    late = [n for n in range(1, 301) if n % 3 == 0]
    lost = [n for n in range(1, 301) if n % 11 == 0]
    path = write_journal([n for n in range(1, 301) if n not in late and n not in lost], group=20)
    write_journal([n for n in late if n not in lost], lost=[(n, n) for n in lost], path=path)
    rows = whole(path, size)
    assert [row["sequence"] for row in rows] == list(range(1, 301))
    assert numbers(rows, "lost") == lost
    assert all(row["payload"] is None and row["received_at"] is None for row in rows if row["status"] == "lost")
    for row in rows:
        if row["status"] == "ok":
            assert row["payload"] == b"message %d" % row["sequence"]
            assert row["received_at"].timestamp() * 1e6 == pytest.approx(START + row["sequence"] * 1_000)
            assert (row["stream"], row["epoch"]) == (STREAM, 0)


def test_ranges_may_begin_within_a_frame_and_span_others(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 101), group=10)
    assert [row["payload"] for row in whole(path, 35)] == [b"message %d" % n for n in range(1, 101)]


def test_columns_have_the_requested_order(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2])
    columns = ("payload", "journal", "sequence", "segment")
    (batch,) = read_range(TaskRange(locations_in_path(str(path))[0], 0, 1, 2, 3), columns)
    assert batch.schema.names == list(columns)
    assert batch.to_pylist()[1] == {
        "payload": b"message 2",
        "journal": str(path),
        "sequence": 2,
        "segment": "0000000001.log",
    }


def test_the_schema_of_task_batches_equals_sparks(write_journal: WriteJournal) -> None:
    path = write_journal([1])
    (batch,) = read_range(TaskRange(locations_in_path(str(path))[0], 0, 1, 1, 2), tuple(COLUMNS))
    kinds = {
        "STRING": pyarrow.string(),
        "BIGINT": pyarrow.int64(),
        "TIMESTAMP": pyarrow.timestamp("us", "UTC"),
        "BINARY": pyarrow.binary(),
    }
    assert batch.schema == pyarrow.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])


def test_small_frames_are_joined_into_batches(write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_journal(range(1, 101), group=1)
    part = TaskRange(locations_in_path(str(path))[0], 0, 1, 100, 101)
    assert [len(batch) for batch in read_range(part, RECORD)] == [100]
    monkeypatch.setattr(arrow, "BATCH_ROWS", 30)
    assert [len(batch) for batch in read_range(part, RECORD)] == [30, 30, 30, 10]
    monkeypatch.setattr(arrow, "BATCH_ROWS", 1_000)
    monkeypatch.setattr(arrow, "BATCH_BYTES", 50)
    assert {len(batch) for batch in list(read_range(part, RECORD))[:-1]} == {5, 6}
    assert [row["payload"] for batch in read_range(part, RECORD) for row in batch.to_pylist()] == [
        b"message %d" % number for number in range(1, 101)
    ]


def test_a_large_gap_has_two_rows(write_journal: WriteJournal) -> None:
    far = 2**47
    path = write_journal([1, 2, far], lost=[(3, far - 1)])
    for size in (1, 2, 1_000, 1_000_000):
        assert [(row["sequence"], row["status"]) for row in whole(path, size)] == [
            (1, "ok"),
            (2, "ok"),
            (3, "lost"),
            (far - 1, "lost"),
            (far, "ok"),
        ]


def test_a_gap_up_to_the_limit_has_a_row_per_number(
    write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "GAP_ROWS", 10)
    path = write_journal([1, 12, 24], lost=[(2, 11), (13, 23)])
    for size in (1, 3, 5, 100):
        assert numbers(whole(path, size), "lost") == [*range(2, 12), 13, 23]


def test_losses_declared_later_do_not_change_a_batch(
    write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gaps, "GAP_ROWS", 10)
    path = write_journal([1], lost=[(2, 9)])
    (origin,) = locations_in_path(str(path))
    before = [
        row
        for part in task_ranges(EpochRange(origin, 0, 1, 10), 3)
        for one in read_range(part, RECORD)
        for row in one.to_pylist()
    ]
    write_journal([30], lost=[(10, 29)], path=path)
    cached_reader(origin).refresh()
    after = [
        row
        for part in task_ranges(EpochRange(origin, 0, 1, 10), 4)
        for one in read_range(part, RECORD)
        for row in one.to_pylist()
    ]
    assert before == after
    assert len(after) == 9


def test_replaced_records_are_read_only_with_the_segment_column(tmp_path: Path) -> None:
    with _opened(tmp_path) as journal:
        journal.append([Record(STREAM, 0, 1, START, b"one"), Record(STREAM, 0, 3, START, b"old")])
        journal.commit()
        journal.append([Record(STREAM, 0, 3, START + 5, b"new"), Record(STREAM, 0, 2, START, b"two")])
        journal.commit()
    assert [row["payload"] for row in whole(tmp_path)] == [b"one", b"two", b"new"]
    rows = whole(tmp_path, columns=(*RECORD, "segment"))
    assert sorted((row["sequence"], row["payload"]) for row in rows) == [
        (1, b"one"),
        (2, b"two"),
        (3, b"new"),
        (3, b"old"),
    ]


def test_payloads_of_every_size_and_content_are_read(write_journal: WriteJournal) -> None:
    payloads = [b"", b"\xff\xfe\x00", bytes(65_498), b"x"]
    path = write_journal(list(enumerate(payloads, 1)))
    assert [row["payload"] for row in whole(path)] == payloads


def test_damage_is_raised_or_read_as_lost(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 61), group=20)
    write_journal([70], lost=[(61, 69)], path=path)
    seal(LocalDirectory(path), STREAM, 0)
    file = next(path.glob("*.seg"))
    data = bytearray(file.read_bytes())
    data[data.find(b"message 25")] ^= 1
    file.write_bytes(data)
    with pytest.raises(JournalDamaged, match="fyrehose journal check"):
        whole(path)
    rows = whole(path, fail_on_data_loss=False)
    assert [row["sequence"] for row in rows] == list(range(1, 71))
    assert 25 in numbers(rows, "lost")
    assert {*numbers(rows, "ok"), *numbers(rows, "lost")} == set(range(1, 71))


def test_records_dropped_during_a_read_are_raised_or_lost(tmp_path: Path) -> None:
    retention = Retention(size=40_000)
    with _opened(tmp_path, segment_bytes=8_192, retention=retention) as journal:
        for low in range(1, 401, 20):
            journal.append([Record(STREAM, 0, n, START, b"%100d" % n) for n in range(low, low + 20)])
            journal.commit()
        (origin,) = locations_in_path(str(tmp_path))
        first = cached_reader(origin).bounds(0).first  # type: ignore[union-attr]
        part = TaskRange(origin, 0, first, 400, 401)
        for low in range(401, 601, 20):
            journal.append([Record(STREAM, 0, n, START, b"%100d" % n) for n in range(low, low + 20)])
            journal.commit()
        journal.trim()
        cached_reader(origin).refresh()
        kept = cached_reader(origin).bounds(0).first  # type: ignore[union-attr]
        assert first < kept
        with pytest.raises(NotInJournal, match="no longer kept"):
            list(read_range(part, RECORD))
        rows = [row for batch in read_range(part, RECORD, fail_on_data_loss=False) for row in batch.to_pylist()]
        assert [row["sequence"] for row in rows] == list(range(first, 401))
        assert numbers(rows, "lost") == list(range(first, min(kept, 401)))


def test_records_beyond_the_watermark_are_not_read(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2, 3, 5, 6])
    assert numbers(whole(path), "ok") == [1, 2, 3]
    (origin,) = locations_in_path(str(path))
    with pytest.raises(JournalError, match="is to be read up to 5 of epoch 0"):
        list(read_range(TaskRange(origin, 0, 1, 5, 6), RECORD))


def test_a_task_reads_several_epochs(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2], epoch=3)
    write_journal([7, 8], epoch=4, path=path, begin=7)
    assert [(row["epoch"], row["sequence"]) for row in whole(path)] == [(3, 1), (3, 2), (4, 7), (4, 8)]


def test_a_task_without_its_journal_directory_is_an_error(write_journal: WriteJournal, tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"no directory .* on this machine"):
        JournalLocation("x", STREAM, str(tmp_path / "gone")).open()


def test_a_task_reads_during_compaction_by_the_writer(tmp_path: Path) -> None:
    """A writer appends, rolls and compacts segments while ranges are read."""
    with _opened(tmp_path, segment_bytes=8_192) as journal:
        seen: list[int] = []
        for low in range(1, 2_001, 100):
            journal.append([Record(STREAM, 0, n, START, b"%100d" % n) for n in range(low, low + 100)])
            journal.commit()
            (origin,) = locations_in_path(str(tmp_path))
            reader = cached_reader(origin)
            reader.refresh()
            bounds = reader.bounds(0)
            assert bounds is not None
            part = TaskRange(origin, 0, low, bounds.next - 1, bounds.next)
            seen += [row["sequence"] for batch in read_range(part, RECORD) for row in batch.to_pylist()]
    assert seen == list(range(1, 2_001))


def _wrapping(path: Path) -> None:
    with closing(Journal(LocalDirectory(path), STREAM, wrap=100)) as journal:
        journal.begin(0, 90)
        numbers = [n % 100 for n in range(90, 110) if n not in (97, 98, 105)]
        journal.append([Record(STREAM, 0, n, START, b"message %d" % n) for n in numbers])
        journal.lose(0, 97, 98)
        journal.lose(0, 5, 5)
        journal.commit()


def test_rows_stay_in_order_where_numbers_wrap(tmp_path: Path) -> None:
    _wrapping(tmp_path)
    for size in (3, 100):
        rows = whole(tmp_path, size)
        assert [row["sequence"] for row in rows] == [n % 100 for n in range(90, 110)]
        assert numbers(rows, "lost") == [97, 98, 5]
        assert all(row["payload"] in (None, b"message %d" % row["sequence"]) for row in rows)


def test_pushed_filters_find_numbers_that_have_wrapped(tmp_path: Path) -> None:
    _wrapping(tmp_path)
    reader = PushdownReader(read_options({"path": str(tmp_path)}, streaming=False), RECORD)
    reader.pushFilters([EqualTo(("sequence",), 3)])
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["payload"] for row in rows if row["sequence"] == 3] == [b"message 3"]


def test_pushed_filters_limit_the_ranges_read(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 101))
    reader = PushdownReader(read_options({"path": str(path)}, streaming=False), RECORD)
    reader.pushFilters([GreaterThan(("sequence",), 40), LessThanOrEqual(("sequence",), 60)])
    (part,) = reader.partitions()
    assert [(one.first, one.last) for one in part.value] == [(41, 60)]


def test_small_journals_share_tasks(tmp_path: Path, write_journal: WriteJournal) -> None:
    for number in range(50):
        write_journal(range(1, 21), stream=f"fyrehose://small-{number}")
    reader = FyrehoseReader(read_options({"path": str(tmp_path / "journal-*")}, streaming=False), RECORD)
    (part,) = reader.partitions()
    assert len(part.value) == 50
    assert sum(batch.num_rows for batch in reader.read(part)) == 1_000


def test_small_ranges_are_grouped_into_tasks(write_journal: WriteJournal) -> None:
    (origin,) = locations_in_path(str(write_journal([1])))

    def sizes(*counts: int, size: int = 1_000_000) -> list[list[int]]:
        found = [TaskRange(origin, 0, 1, count, count + 1) for count in counts]
        return [[one.last for one in some] for some in pack_ranges(found, size)]

    assert sizes() == []
    assert sizes(10, 10, 10) == [[10, 10, 10]]
    assert sizes(1_000_000, 1_000_000) == [[1_000_000], [1_000_000]]
    assert sizes(MIN_TASK_NUMBERS - 1, 1, 1) == [[MIN_TASK_NUMBERS - 1, 1], [1]]
    assert sizes(*[40] * 4, size=100) == [[40, 40], [40, 40]]
    assert sizes(2**40, 1, size=100) == [[2**40], [1]]
    many = sizes(*[MIN_TASK_NUMBERS] * 10 * TARGET_TASKS)
    assert len(many) == TARGET_TASKS
    assert {len(some) for some in many} == {10}


@pytest.mark.parametrize("columns", [("sequence",), ("status", "journal"), ("sequence", "received_at"), RECORD])
@pytest.mark.parametrize("gaps", [False, True])
def test_only_requested_columns_are_read(
    write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch, columns: tuple[str, ...], gaps: bool
) -> None:
    path = write_journal([(n, b"x" * 100) for n in range(1, 10_001) if not gaps or n % 50], group=2_000)
    with closing(Journal(LocalDirectory(path), STREAM)) as journal:
        if gaps:
            for number in range(50, 10_001, 50):
                journal.lose(0, number, number)
    seal(LocalDirectory(path), STREAM, 0)
    wanted = [{name: row[name] for name in columns} for row in whole(path, columns=(*RECORD, "journal"))]
    read: list[int] = []
    original = LocalFile.read

    def counting(self: LocalFile, offset: int, length: int) -> bytes:
        read.append(length)
        return original(self, offset, length)

    cached_reader(locations_in_path(str(path))[0])
    monkeypatch.setattr(LocalFile, "read", counting)
    assert whole(path, columns=columns) == wanted
    size = 10_000 * (100 if "payload" in columns else 16 if "received_at" in columns else 16 if gaps else 0)
    assert sum(read) < size * 1.5 + 1_000
    assert sum(read) >= size * 0.5


@pytest.mark.parametrize("size", [1, 5, 1_000])
def test_columns_without_sequence_numbers_keep_the_order(write_journal: WriteJournal, size: int) -> None:
    path = write_journal([n for n in range(1, 101) if n % 4], lost=[(n, n) for n in range(4, 101, 4)], begin=1)
    rows = whole(path, size, columns=("status", "payload"))
    assert [(row["status"], row["payload"]) for row in rows] == [
        ("ok", b"message %d" % n) if n % 4 else ("lost", None) for n in range(1, 101)
    ]


def test_a_long_range_missing_in_the_journal_has_two_rows(write_journal: WriteJournal) -> None:
    path = write_journal([2**40, 2**40 + 1], begin=2**40)
    options = read_options({"path": str(path), "startingOffsets": "7", "failOnDataLoss": "false"}, streaming=False)
    parts = [part for lane in planning.epoch_ranges(options) for part in task_ranges(lane, 1_000)]
    rows = [
        (row["sequence"], row["status"])
        for part in parts
        for batch in read_range(part, RECORD, fail_on_data_loss=False)
        for row in batch.to_pylist()
    ]
    assert rows == [(7, "lost"), (2**40 - 1, "lost"), (2**40, "ok"), (2**40 + 1, "ok")]


def test_files_removed_during_a_read_are_raised_or_read_as_lost(tmp_path: Path) -> None:
    with _opened(tmp_path, segment_bytes=4_096) as journal:
        for low in range(1, 401, 20):
            journal.append([Record(STREAM, 0, n, START, b"%100d" % n) for n in range(low, low + 20)])
            journal.commit()
    (origin,) = locations_in_path(str(tmp_path))
    part = TaskRange(origin, 0, 1, 400, 401)
    assert sum(map(len, read_range(part, RECORD))) == 400
    sorted(tmp_path.glob("*.log"))[3].unlink()
    with pytest.raises(JournalError, match=r"now lacks 40 of the records 1 to 400 of epoch 0"):
        list(read_range(part, RECORD))
    rows = [row for batch in read_range(part, RECORD, fail_on_data_loss=False) for row in batch.to_pylist()]
    assert len(numbers(rows, "lost")) == 40


def test_damage_that_holds_back_the_watermark_is_raised(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 61), group=20)
    write_journal(range(61, 81), path=path)
    seal(LocalDirectory(path), STREAM, 0)
    write_journal(range(81, 91), path=path)
    file = next(path.glob("*.seg"))
    data = bytearray(file.read_bytes())
    data[data.find(b"message 25")] ^= 1
    file.write_bytes(data)
    file.with_suffix(".idx").unlink()
    options = {"path": str(path)}
    with pytest.raises(JournalDamaged, match=f"{path}/0000000001.seg"):
        planning.epoch_ranges(read_options(options, streaming=False))
    planning.epoch_ranges(read_options({**options, "endingOffsets": "1"}, streaming=False))
    planning.epoch_ranges(read_options({**options, "failOnDataLoss": "false"}, streaming=False))


def test_a_gap_above_the_watermark_is_no_damage(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2, 3, 5, 6])
    (lane,) = planning.epoch_ranges(read_options({"path": str(path)}, streaming=False))
    assert (lane.first, lane.next) == (1, 4)


def test_no_files_stay_open_after_a_range_was_read(tmp_path: Path) -> None:
    with _opened(tmp_path, segment_bytes=4_096) as journal:
        for low in range(1, 401, 20):
            journal.append([Record(STREAM, 0, n, START, b"%100d" % n) for n in range(low, low + 20)])
            journal.commit()
    (origin,) = locations_in_path(str(tmp_path))
    assert sum(map(len, read_range(TaskRange(origin, 0, 1, 400, 401), RECORD))) == 400
    open_here = [os.readlink(file) for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
    assert not [name for name in open_here if name.startswith(str(tmp_path))]


def test_a_worker_refreshes_the_end_of_a_journal(write_journal: WriteJournal) -> None:
    path = write_journal([1, 2])
    (origin,) = locations_in_path(str(path))
    write_journal([3, 4], path=path)
    assert sum(map(len, read_range(TaskRange(origin, 0, 1, 4, 5), RECORD))) == 4


def test_a_forked_worker_opens_its_own_readers(write_journal: WriteJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    (origin,) = locations_in_path(str(write_journal([1])))
    with closing(cached_reader(origin)) as before:
        assert cached_reader(origin) is before
        monkeypatch.setattr(os, "getpid", lambda: 1)
        assert cached_reader(origin) is not before
    assert len(journal_locations._readers) == 1


def test_a_batch_is_limited_to_the_bounds_of_the_journal(write_journal: WriteJournal) -> None:
    path = write_journal(range(50, 61), begin=50)
    (lane,) = planning.epoch_ranges(read_options({"path": str(path), "endingOffsets": "1000"}, streaming=False))
    assert (lane.first, lane.next) == (50, 61)
    with pytest.raises(NotInJournal, match=r"begins at 50 of epoch 0 .* numbers from 7 on"):
        planning.epoch_ranges(read_options({"path": str(path), "startingOffsets": "7"}, streaming=False))


def test_a_start_at_a_time_includes_later_repaired_records(tmp_path: Path) -> None:
    with _opened(tmp_path) as journal:
        times = {n: START + n * 1_000 for n in range(1, 101)} | {40: START + 80_500}
        for n in [*(n for n in times if n != 40), 40]:
            journal.append([Record(STREAM, 0, n, times[n], b"")])
            journal.commit()
    given = {"path": str(tmp_path), "startingTimestamp": "2023-11-14T22:13:20.080Z"}
    (lane,) = planning.epoch_ranges(read_options(given, streaming=False))
    assert lane.first == 40


def test_damage_passed_by_the_watermark_does_not_fail_a_read(write_journal: WriteJournal) -> None:
    path = write_journal(range(1, 61), group=20)
    file = next(path.glob("*.log"))
    data = bytearray(file.read_bytes())
    data[data.find(b"message 25")] ^= 1
    file.write_bytes(data)
    write_journal([*range(21, 41), 70], path=path)
    (lane,) = planning.epoch_ranges(read_options({"path": str(path)}, streaming=False))
    assert lane.next == 61
    assert cached_reader(lane.location).damages  # type: ignore[union-attr]
