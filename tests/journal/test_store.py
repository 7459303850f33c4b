"""Behaviour of journals on disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from zope.interface import implementer

from fyrehose_twisted.interfaces import IDirectory
from fyrehose_twisted.journal import catalog as catalog_module
from fyrehose_twisted.journal import commit_group as group_module
from fyrehose_twisted.journal.compaction import compact
from fyrehose_twisted.journal.coverage import Bounds
from fyrehose_twisted.journal.errors import (
    Damage,
    JournalBroken,
    JournalDamaged,
    JournalError,
    JournalFull,
    NotInJournal,
)
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"
LAST = 2**64 - 1


def record(sequence: int, payload: bytes | None = None, *, epoch: int = 0, at: int = 7) -> Record:
    return Record(STREAM, epoch, sequence, at, b"%d" % sequence if payload is None else payload)


def start(path: Path | Any, *, wrap: int = 0, clock: Callable[[], float] = lambda: 100.0, **config: Any) -> Journal:
    directory = LocalDirectory(path) if isinstance(path, Path) else path
    return Journal(directory, STREAM, wrap=wrap, config=JournalConfig(**config), tag=5, clock=clock)


def kept(journal: Any, epoch: int = 0, first: int | None = None, last: int = LAST) -> dict[int, bytes]:
    bounds = journal.bounds(epoch)
    if bounds is None:
        return {}
    blocks = list(journal.read(epoch, bounds.first if first is None else first, last))
    positions = [position for block in blocks for position in block.positions.tolist()]
    assert all(one < other for one, other in pairwise(positions))
    return dict(zip(positions, (payload for block in blocks for payload in block.payloads()), strict=True))


def fill(journal: Journal, numbers: range, size: int = 50) -> None:
    """Commit each number separately."""
    for number in numbers:
        journal.append([record(number, b"%d" % number + bytes(size))])
        journal.commit()


class TestSegments:
    def test_a_new_segment_begins_when_the_last_is_full(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=500)
        fill(journal, range(12))
        sizes = [one.end for one in journal.catalog.segments.values()]
        assert list(journal.catalog.segments) == [1, 2, 3, 4, 5]
        assert all(500 <= size < 700 for size in sizes[:-1])
        assert [(tmp_path / f"{number:010d}.log").stat().st_size for number in range(1, 6)] == sizes
        assert len(kept(journal)) == 12
        journal.close()

    def test_a_new_segment_begins_after_many_frames(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_frames=4)
        fill(journal, range(7))
        assert [one.records for one in journal.catalog.segments.values()] == [2, 3, 2]
        journal.close()

    def test_compaction_sorts_full_segments(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=500)
        journal.begin(0, 0)
        fill(journal, range(11, -1, -1))
        before = kept(journal)
        assert [one.number for one in journal.sealed_segments()] == [1, 2, 3, 4]
        assert journal.compact() == []
        assert journal.sealed_segments() == []
        assert kept(journal) == before
        names = [f"{number:010d}{suffix}" for number in range(1, 5) for suffix in (".idx", ".seg")]
        assert journal.directory.names() == [*names, "0000000005.log", "durable", "reserve"]
        assert all(len(one.frame_indexes[0]) == 1 for one in list(journal.catalog.segments.values())[:4])
        assert {number: journal.get(0, number) for number in before} == {
            number: record(number, payload) for number, payload in before.items()
        }
        journal.close()
        again = start(tmp_path)
        assert kept(again) == before
        assert again.recovery.messages() == []
        again.close()

    def test_a_running_read_continues_during_compaction(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=500)
        fill(journal, range(12))
        blocks = journal.read(0, 2, LAST)
        found = next(blocks).positions.tolist()
        journal.compact()
        found += [position for block in blocks for position in block.positions.tolist()]
        assert found == list(range(2, 12))
        journal.close()

    def test_a_record_in_a_later_segment_replaces_an_earlier_one(self, tmp_path: Path) -> None:
        journal = start(tmp_path)
        journal.begin(0, 1)
        for payload in (b"first", b"second", b"third"):
            journal.append([record(2, payload), record(3)])
            journal.commit()
            journal.roll()
        for _ in range(2):
            assert kept(journal) == {2: b"third", 3: b"3"}
            assert journal.get(0, 2) == record(2, b"third")
            journal.compact()
        journal.close()

    @pytest.mark.parametrize("at_once", [1, 4, 65_536])
    def test_the_latest_of_overlapping_frames_is_read(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
    ) -> None:
        monkeypatch.setattr(catalog_module, "MERGED_RECORDS", at_once)
        journal = start(tmp_path, segment_bytes=900)
        journal.begin(0, 0)
        expected: Payloads = {}
        for index, low in enumerate([5, 3, 9, 1, 12, 2, 7, 4, 14, 6]):
            group = {number: b"%d of %d" % (number, index) for number in range(low, low + 6)}
            expected |= group
            journal.append([record(number, payload) for number, payload in group.items()])
            journal.commit()
        for _ in range(2):
            assert kept(journal) == dict(sorted(expected.items()))
            assert kept(journal, first=4, last=9) == {number: expected[number] for number in range(4, 10)}
            journal.compact()
        journal.close()

    def test_records_before_the_beginning_after_retention_are_not_held(self, tmp_path: Path) -> None:
        """The repairing frame is in a kept segment, the repaired one in a dropped segment."""
        journal = start(tmp_path, retention=Retention(size=1_000))
        journal.append([record(0, bytes(900)), record(2)])
        journal.commit()
        journal.roll()
        journal.append([record(1), record(3)])
        journal.commit()
        assert journal.trim() > 0
        assert journal.bounds(0) == Bounds(3, 4, 3)
        assert list(journal.held(0, 0, 9)) == [(3, 3)]
        assert journal.get(0, 1) is None
        journal.close()

    def test_replaced_segment_files_are_closed(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=500)
        fill(journal, range(12))
        assert len(kept(journal)) == 12
        journal.compact()
        open_files = [os.readlink(link) for link in Path("/proc/self/fd").iterdir() if os.path.lexists(link)]
        assert [name for name in open_files if str(tmp_path) in name and "deleted" in name] == []
        journal.close()

    def test_a_compacted_segment_dropped_by_retention_is_not_installed(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=500, retention=Retention(size=600))
        fill(journal, range(12))
        ordered = compact(journal.directory, journal.sealed_segments()[0])
        assert journal.trim() > 0
        journal.install_compacted(ordered)
        assert [name for name in journal.directory.names() if "0001" in name] == []
        journal.close()

    def test_a_damaged_segment_is_not_compacted(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=500)
        fill(journal, range(9))
        hurt = next(iter(journal.catalog.segments[1].frame_indexes[0]))
        flip(tmp_path / "0000000001.log", hurt.offset + 80)
        before = (tmp_path / "0000000001.log").read_bytes()
        damages = journal.compact()
        assert [(one.name, one.first, one.last) for one in damages] == [("0000000001.log", hurt.base, hurt.last)]
        assert (tmp_path / "0000000001.log").read_bytes() == before
        assert [name for name in journal.directory.names() if "01." in name] == ["0000000001.log"]
        assert journal.sealed_segments() == []
        found = [block.positions.tolist() for block in journal.read(0, 0, 99, damages.append)]
        assert [position for some in found for position in some] == [
            number for number in range(9) if number != hurt.base
        ]
        journal.close()


def flip(path: Path, offset: int, mask: int = 1) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ mask]))


class TestWatermark:
    def replaced_while_it_is_not_durable(self, journal: Journal) -> None:
        journal.append([record(1, b"first")])
        journal.commit(sync=False)
        assert journal.append([record(1, b"second")]) == 1

    @pytest.mark.parametrize("pass_it", [Journal.sync, Journal.roll], ids=["sync", "roll"])
    def test_a_pending_record_does_not_replace_one_passed_by_the_watermark(
        self, tmp_path: Path, pass_it: Callable[[Journal], None]
    ) -> None:
        journal = start(tmp_path)
        self.replaced_while_it_is_not_durable(journal)
        pass_it(journal)
        reader = JournalReader(LocalDirectory(tmp_path))
        assert kept(reader) == {1: b"first"}
        journal.commit()
        reader.refresh()
        assert kept(reader) == kept(journal) == {1: b"first"}
        assert (journal.counters.taken, journal.counters.replaced, journal.counters.conflicts) == (1, 0, 1)
        reader.close()
        journal.close()

    def test_a_pending_record_does_not_replace_a_passed_one_after_a_full_disk(self, tmp_path: Path) -> None:
        disk = FaultyDirectory(tmp_path)
        journal = start(disk)
        self.replaced_while_it_is_not_durable(journal)
        disk.room = 50
        with pytest.raises(JournalFull):
            journal.commit()
        disk.room = None
        journal.sync()
        journal.commit()
        assert kept(journal) == {1: b"first"}
        journal.close()

    def test_a_pending_record_does_not_replace_a_passed_one_in_a_new_segment(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=200)
        self.replaced_while_it_is_not_durable(journal)
        journal.append([record(2)])
        journal.commit()
        assert list(journal.catalog.segments) == [1, 2]
        assert kept(journal) == {1: b"first", 2: b"2"}
        journal.close()


class TestDamage:
    @pytest.fixture
    def journal(self, tmp_path: Path) -> Iterator[Journal]:
        journal = start(tmp_path)
        fill(journal, range(5))
        for header in list(journal.catalog.segments[1].frame_indexes[0])[1:4:2]:
            flip(tmp_path / "0000000001.log", header.offset + 100)
        yield journal
        journal.close()

    def test_damage_is_raised_when_it_is_read(self, journal: Journal) -> None:
        blocks = journal.read(0, 0, 9)
        with pytest.raises(JournalDamaged, match=r"numbers 1 to 1 of epoch 0.*`fyrehose journal repair`") as raised:
            list(blocks)
        assert raised.value.damage.first == 1
        with pytest.raises(JournalDamaged):
            journal.get(0, 3)

    def test_damage_is_reported_and_skipped_with_a_callback(self, journal: Journal) -> None:
        damages: list[Damage] = []
        blocks = list(journal.read(0, 0, 9, damages.append))
        assert [position for block in blocks for position in block.positions.tolist()] == [0, 2, 4]
        assert [(one.first, one.last) for one in damages] == [(1, 1), (3, 3)]

    def test_an_authoritative_record_replaces_a_damaged_one(self, journal: Journal) -> None:
        assert journal.append([record(1, b"other")]) == 0
        assert journal.counters.spent == 1
        assert journal.append([record(1, b"again"), record(0, b"other")], authoritative=True) == 1
        journal.commit()
        record_again = journal.get(0, 1)
        assert record_again is not None
        assert record_again.payload == b"again"
        assert journal.counters.conflicts == 1

    def test_a_truncated_frame_is_damage_when_it_is_read(self, journal: Journal, tmp_path: Path) -> None:
        last = list(journal.catalog.segments[1].frame_indexes[0])[-1]
        with (tmp_path / "0000000001.log").open("r+b") as file:
            file.truncate(last.offset + 75)
        with pytest.raises(JournalDamaged, match="the body is truncated to 3 of 72 bytes"):
            journal.get(0, 4)


class TestOpening:
    def test_a_reopened_journal_has_all_records_losses_and_epochs(self, tmp_path: Path) -> None:
        journal = start(tmp_path, wrap=16)
        journal.append([record(14), record(1), record(0, epoch=3)])
        journal.lose(0, 15, 0)
        journal.close()
        again = start(tmp_path, wrap=16)
        assert again.epochs() == [0, 3]
        assert kept(again) == {14: b"14", 17: b"1"}
        assert again.bounds(0) == Bounds(14, 18, 17)
        assert again.losses(0, 0, 99) == [(15, 16)]
        assert again.recovery.messages() == []
        assert again.append([record(2), record(1)]) == 1
        again.commit()
        assert kept(again)[18] == b"2"
        again.close()

    def test_a_reopened_journal_continues_in_the_same_segment(self, tmp_path: Path) -> None:
        for number in range(3):
            journal = start(tmp_path)
            fill(journal, range(number, number + 1))
            journal.close()
        assert list(journal.catalog.segments) == [1]
        assert journal.catalog.segments[1].records == 3

    def test_a_reopened_journal_keeps_its_tag(self, tmp_path: Path) -> None:
        start(tmp_path).close()
        journal = Journal(LocalDirectory(tmp_path), STREAM, tag=6)
        assert journal.catalog.tag == 5
        journal.close()

    def test_each_journal_has_its_own_tag(self, tmp_path: Path) -> None:
        tags = set()
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            journal = Journal(LocalDirectory(tmp_path / name), STREAM)
            tags.add(journal.catalog.tag)
            journal.close()
        assert len(tags) == 2

    def test_reopening_a_journal_with_another_wrap_is_refused(self, tmp_path: Path) -> None:
        start(tmp_path, wrap=16).close()
        with pytest.raises(JournalError, match="has sequence numbers that wrap at 16, not at 0"):
            start(tmp_path)
        start(tmp_path, wrap=16).close()

    def test_a_large_group_is_written_before_the_commit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(group_module, "GROUP_BYTES", 1_000)
        journal = start(tmp_path)
        journal.append([record(1, bytes(1_000))])
        assert journal.bounds(0) == Bounds(1, 1, 0)
        journal.append([record(2, b"x")])
        assert journal.bounds(0) == Bounds(1, 1, 2)
        assert list(kept(journal)) == [1, 2]
        journal.append([record(3, b"x")])
        assert list(kept(journal)) == [1, 2]
        journal.commit()
        assert journal.bounds(0) == Bounds(1, 4, 3)
        journal.close()

    def test_a_group_with_a_large_gap_is_written_as_several_frames(self, tmp_path: Path) -> None:
        journal = start(tmp_path)
        journal.append([record(number) for number in (1, 2, 10_000, 10_001, 2**40)])
        journal.commit()
        assert [(one.base, one.last) for one in journal.catalog.segments[1].frame_indexes[0]] == [
            (1, 2),
            (10_000, 10_001),
            (2**40, 2**40),
        ]
        journal.close()


class TestRetention:
    def test_later_segments_record_where_epochs_begin(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=500, retention=Retention(size=1_200))
        fill(journal, range(20))
        journal.trim()
        bounds = journal.bounds(0)
        assert bounds is not None
        assert bounds.first > 0
        journal.close()
        again = start(tmp_path)
        assert again.bounds(0) == bounds
        assert list(kept(again)) == list(range(bounds.first, 20))
        again.close()

    def test_a_segment_open_for_long_is_rolled_for_retention(self, tmp_path: Path) -> None:
        now = [0.0]
        journal = start(tmp_path, clock=lambda: now[0], retention=Retention(100.0))
        journal.append([record(1, at=0)])
        journal.commit()
        now[0] = 26.0
        journal.trim()
        assert list(journal.catalog.segments) == [1, 2]
        now[0] = 100.5
        assert journal.trim() > 0
        assert kept(journal) == {}
        assert journal.bounds(0) == Bounds(2, 2, 1)
        journal.close()

    def test_retention_drops_repaired_records_of_an_ended_epoch(self, tmp_path: Path) -> None:
        """A late record of the first epoch is in a segment kept for the second."""
        journal = start(tmp_path, segment_bytes=400, retention=Retention(size=1_700))
        journal.begin(0, 0)
        journal.append([record(0), record(1), record(3)])
        journal.commit()
        journal.append([record(number, bytes(200), epoch=1) for number in range(2)])
        journal.commit()
        journal.append([record(2, bytes(200)), record(2, bytes(200), epoch=1), record(3, bytes(200), epoch=1)])
        journal.commit()
        journal.append([record(4, bytes(200), epoch=1)])
        journal.commit()
        assert journal.bounds(0) == Bounds(0, 4, 3)
        assert journal.trim() > 0
        for _ in range(2):
            assert journal.epochs() == [1]
            assert journal.bounds(1) == Bounds(2, 5, 4)
            journal.close()
            journal = start(tmp_path, segment_bytes=400, retention=Retention(size=1_700))
        journal.roll()
        assert journal.epochs() == [1]
        journal.close()

    def test_retention_may_drop_everything_but_the_open_segment(self, tmp_path: Path) -> None:
        journal = start(tmp_path, segment_bytes=400, retention=Retention(size=1))
        fill(journal, range(20))
        journal.trim()
        journal.trim()
        assert journal.bounds(0).next == 20  # type: ignore[union-attr]
        assert len(journal.catalog.segments) <= 2
        fill(journal, range(20, 22))
        assert list(kept(journal))[-2:] == [20, 21]
        journal.close()


@implementer(IDirectory)
class FaultyDirectory:
    """A directory with errors on demand.

    :ivar errors: error number by what fails: ``write``, ``sync``, ``truncate``, ``create``, ``rename``, ``names``.
    :ivar room: bytes that can still be written.
    """

    def __init__(self, path: Path) -> None:
        self.real = LocalDirectory(path)
        self.errors: dict[str, int] = {}
        self.room: int | None = None

    def fail(self, what: str) -> None:
        if what in self.errors:
            raise OSError(self.errors[what], "it was to fail")

    def names(self) -> list[str]:
        self.fail("names")
        return self.real.names()

    def open(self, name: str, *, writable: bool = False, create: bool = False) -> Any:
        self.fail("create" if create else "open")
        return FaultyFile(self, self.real.open(name, writable=writable, create=create))

    def rename(self, old: str, new: str) -> None:
        self.fail("rename")
        self.real.rename(old, new)

    def remove(self, name: str) -> None:
        self.real.remove(name)

    def sync(self) -> None:
        self.fail("sync")
        self.real.sync()

    def lock(self) -> Any:
        self.fail("lock")
        return self.real.lock()

    def __str__(self) -> str:
        return "troubled"


class FaultyFile:
    def __init__(self, directory: FaultyDirectory, real: Any) -> None:
        self._directory = directory
        self._real = real
        self.size, self.close = real.size, real.close

    def read(self, offset: int, length: int) -> bytes:
        self._directory.fail("read")
        found: bytes = self._real.read(offset, length)
        return found

    def write(self, offset: int, data: bytes) -> None:
        self._directory.fail("write")
        room = self._directory.room
        if room is not None:
            if room < len(data):
                self._real.write(offset, data[:room])
                raise OSError(errno.ENOSPC, "No space left on device")
            self._directory.room = room - len(data)
        self._real.write(offset, data)

    def truncate(self, size: int) -> None:
        self._directory.fail("truncate")
        self._real.truncate(size)

    def sync(self) -> None:
        self._directory.fail("sync")
        self._real.sync()


class TestDiskErrors:
    @pytest.fixture
    def disk(self, tmp_path: Path) -> FaultyDirectory:
        return FaultyDirectory(tmp_path)

    @pytest.mark.parametrize("room", [0, 1, 71, 72, 100, 200])
    def test_records_that_do_not_fit_a_full_disk_stay_pending(self, disk: FaultyDirectory, room: int) -> None:
        journal = start(disk)
        fill(journal, range(2))
        size = disk.open("0000000001.log").size()
        disk.room = room
        journal.append([record(2, bytes(300)), record(4)])
        for _ in range(2):
            with pytest.raises(JournalFull, match="troubled cannot be written: No space left on device"):
                journal.commit()
            disk.room = room
        assert disk.open("0000000001.log").size() == size
        assert journal.bounds(0) == Bounds(0, 2, 1)
        assert journal.append([record(3)]) == 1
        disk.room = None
        journal.commit()
        assert list(kept(journal)) == [0, 1, 2, 3, 4]
        journal.close()
        again = start(disk)
        assert list(kept(again)) == [0, 1, 2, 3, 4]
        assert again.recovery.messages() == []
        again.close()

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
    def test_records_stay_pending_if_a_new_segment_cannot_be_created(self, disk: FaultyDirectory, code: int) -> None:
        journal = start(disk, segment_bytes=200)
        fill(journal, range(2))
        disk.errors["create"] = code
        journal.append([record(2)])
        with pytest.raises(JournalFull):
            journal.commit()
        disk.errors.clear()
        disk.room = 50
        with pytest.raises(JournalFull):
            journal.commit()
        assert disk.names() == ["0000000001.log", "0000000002.log", "durable", "reserve"]
        disk.room = None
        journal.commit()
        assert list(kept(journal)) == [0, 1, 2]
        assert list(journal.catalog.segments) == [1, 2, 3]
        journal.close()

    @pytest.mark.parametrize("what", ["write", "sync"])
    def test_a_disk_that_fails_breaks_the_journal(self, disk: FaultyDirectory, what: str) -> None:
        journal = start(disk)
        fill(journal, range(2))
        journal.append([record(2)])
        disk.errors[what] = errno.EIO
        with pytest.raises(JournalBroken, match="troubled cannot be written: it was to fail; reopen it"):
            journal.commit()
        disk.errors.clear()
        for use in (
            journal.commit,
            journal.write,
            journal.sync,
            journal.roll,
            journal.trim,
            lambda: journal.append([record(3)]),
            lambda: journal.begin(1, 1),
            lambda: journal.lose(0, 5, 5),
        ):
            with pytest.raises(JournalBroken):
                use()
        assert journal.bounds(0).next == 2  # type: ignore[union-attr]
        journal.close()
        again = start(disk)
        assert list(kept(again)) in ([0, 1], [0, 1, 2])
        again.close()

    def test_a_failed_truncation_after_a_full_disk_breaks_the_journal(self, disk: FaultyDirectory) -> None:
        journal = start(disk)
        fill(journal, range(2))
        journal.append([record(2)])
        disk.room = 10
        disk.errors["truncate"] = errno.EIO
        with pytest.raises(JournalBroken):
            journal.commit()
        journal.close()
        disk.errors.clear()
        disk.room = None
        again = start(disk)
        assert list(kept(again)) == [0, 1]
        assert again.recovery.truncated_bytes == 10
        again.close()

    def test_readers_do_not_see_records_of_a_failed_sync(self, disk: FaultyDirectory, tmp_path: Path) -> None:
        journal = start(disk)
        fill(journal, range(2))
        reader = JournalReader(LocalDirectory(tmp_path))
        journal.append([record(2)])
        disk.errors["sync"] = errno.EIO
        with pytest.raises(JournalBroken):
            journal.commit()
        reader.refresh()
        assert list(kept(reader)) == [0, 1]
        reader.close()
        journal.close()

    @pytest.mark.parametrize(("code", "kind"), [(errno.ENOSPC, JournalFull), (errno.EIO, JournalBroken)])
    @pytest.mark.parametrize("what", ["create", "write", "sync", "rename"])
    def test_a_segment_whose_compaction_fails_is_kept(
        self, disk: FaultyDirectory, what: str, code: int, kind: type[JournalError]
    ) -> None:
        journal = start(disk, segment_bytes=300)
        fill(journal, range(6))
        before = kept(journal)
        disk.errors[what] = code
        with pytest.raises(kind):
            journal.compact()
        disk.errors.clear()
        assert kept(journal) == before
        journal.close()
        again = start(disk, segment_bytes=300)
        assert kept(again) == before
        assert not [name for name in disk.names() if name.endswith(".tmp")]
        again.compact()
        assert kept(again) == before
        again.close()

    @pytest.mark.parametrize("what", ["lock", "names", "create", "write", "sync"])
    def test_a_journal_that_cannot_be_opened_is_unlocked(self, disk: FaultyDirectory, what: str) -> None:
        disk.errors[what] = errno.EACCES
        with pytest.raises(JournalError, match="troubled cannot be"):
            start(disk)
        disk.errors.clear()
        start(disk).close()

    def test_a_full_disk_is_reported_at_opening(self, disk: FaultyDirectory) -> None:
        disk.room = 10
        with pytest.raises(JournalFull):
            start(disk)

    @pytest.mark.parametrize("what", ["open", "read"])
    def test_read_errors_prevent_the_opening_of_a_journal(self, disk: FaultyDirectory, what: str) -> None:
        start(disk).close()
        disk.errors[what] = errno.EIO
        with pytest.raises(JournalError, match=r"cannot be .*it was to fail"):
            start(disk)
        disk.errors.clear()
        start(disk).close()

    def test_read_errors_of_frames_are_reported_as_damage(self, disk: FaultyDirectory) -> None:
        journal = start(disk)
        fill(journal, range(2))
        disk.errors["read"] = errno.EIO
        with pytest.raises(JournalDamaged, match="it cannot be read: it was to fail"):
            journal.get(0, 1)
        disk.errors.clear()
        assert journal.get(0, 1) is not None
        journal.close()


Payloads = dict[int, bytes]


class Epoch:
    """Model of one epoch, in plain dicts and sets."""

    def __init__(self, first: int) -> None:
        self.first = self.next = first
        self.held: Payloads = {}
        self.waiting: Payloads = {}
        self.lost: set[int] = set()
        self.losing: set[int] = set()

    def take(self, position: int, payload: bytes) -> bool:
        before = self.waiting.get(position, self.held.get(position))
        if position < self.first or position in self.lost | self.losing or before == payload:
            return False
        if before is not None and position < self.next:
            return False
        self.waiting[position] = payload
        return True

    def lose(self, first: int, last: int) -> None:
        here = self.held.keys() | self.waiting.keys()
        self.losing |= {position for position in range(max(first, self.first), last + 1) if position not in here}

    def commit(self) -> None:
        self.held |= self.waiting
        self.lost |= self.losing
        self.waiting, self.losing = {}, set()

    def settle(self) -> None:
        while self.next in self.held or self.next in self.lost:
            self.next += 1
        # Records below the watermark are never replaced.
        for position in [position for position in self.waiting if position < self.next and position in self.held]:
            del self.waiting[position]

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.first, self.next, max([self.first - 1, *self.held, *self.lost]))

    def begin_at(self, first: int) -> None:
        self.first, self.next = first, max(first, self.next)
        self.held = {position: payload for position, payload in self.held.items() if position >= first}
        self.lost = {position for position in self.lost if position >= first}


class JournalMachine(RuleBasedStateMachine):
    """A journal compared with a model, and readers that must never see other records."""

    wrap, base, many = 0, 10, 3
    retention = Retention(size=2_500)

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(prefix="journal-")
        self.path = Path(self.directory.name)
        self.epochs: dict[int, Epoch] = {}
        self.dropped = -1
        self.promised: dict[tuple[int, int], bytes | None] = {}
        self.reading: list[tuple[int, Iterator[Any], list[int]]] = []
        self.journal = self.opened()
        self.reader = JournalReader(LocalDirectory(self.path))

    def opened(self) -> Journal:
        return start(self.path, wrap=self.wrap, segment_bytes=300, frame_records=3, retention=self.retention)

    def teardown(self) -> None:
        self.reading.clear()
        self.journal.close()
        self.reader.close()
        self.directory.cleanup()

    def number(self, place: int) -> int:
        return (self.base + place) % self.wrap if self.wrap else self.base + place

    @initialize()
    def begin(self) -> None:
        self.journal.begin(0, self.number(0))
        self.epochs[0] = Epoch(self.base)

    @rule(
        batch=st.lists(
            st.tuples(st.integers(0, 2), st.integers(-2, 25), st.sampled_from([b"", b"a", b"bb" * 20])), max_size=6
        )
    )
    def append(self, batch: list[tuple[int, int, bytes]]) -> None:
        batch = [given for given in batch if self.dropped < given[0] < self.many]
        taken = 0
        for epoch in sorted({epoch for epoch, _, _ in batch}):
            places = [(place, payload) for of_epoch, place, payload in batch if of_epoch == epoch]
            if epoch not in self.epochs:
                self.epochs[epoch] = Epoch(self.base + min(place for place, _ in places))
            taken += sum(self.epochs[epoch].take(self.base + place, payload) for place, payload in places)
        records = [record(self.number(place), payload, epoch=epoch) for epoch, place, payload in batch]
        assert self.journal.append(records) == taken

    @rule(epoch=st.integers(0, 2), first=st.integers(-2, 25), length=st.integers(0, 5))
    def lose(self, epoch: int, first: int, length: int) -> None:
        if not self.dropped < epoch < self.many:
            return
        self.journal.lose(epoch, self.number(first), self.number(first + length))
        known = self.epochs.setdefault(epoch, Epoch(self.base + first))
        known.lose(self.base + first, self.base + first + length)

    @rule(sync=st.booleans())
    def commit(self, sync: bool) -> None:
        last = max(self.journal.catalog.segments)
        self.journal.commit(sync)
        for epoch, known in self.epochs.items():
            if max(self.journal.catalog.segments) > last:
                known.settle()  # A new segment has begun, which syncs everything before it.
            known.commit()
            if sync:
                known.settle()
            bounds = self.journal.bounds(epoch)
            if bounds is None:
                assert not known.held | dict.fromkeys(known.lost)  # The epoch has begun without records.
                continue
            assert bounds == known.bounds
        self.promise()

    def promise(self) -> None:
        for epoch, known in self.epochs.items():
            for position in range(known.first, known.next):
                payload = known.held.get(position)
                assert self.promised.setdefault((epoch, position), payload) == payload

    @rule()
    def compact(self) -> None:
        self.journal.compact()

    @rule()
    def trim(self) -> None:
        self.commit(True)
        self.journal.trim()
        for epoch, known in sorted(self.epochs.items()):
            bounds = self.journal.bounds(epoch)
            if bounds is None:
                assert epoch < max(self.epochs)
                self.dropped = max(self.dropped, epoch)
                del self.epochs[epoch]
            else:
                assert bounds.first >= known.first
                known.begin_at(bounds.first)
                known.settle()  # All records are synced, so only a gap held the watermark back.
                assert bounds == known.bounds

    @rule()
    def reopen(self) -> None:
        self.commit(True)
        self.journal.close()
        self.journal = self.opened()
        assert self.journal.recovery.messages() == []

    @rule()
    def refresh(self) -> None:
        self.reader.refresh()
        for epoch in self.reader.epochs():
            ours, theirs = self.journal.bounds(epoch), self.reader.bounds(epoch)
            assert ours is not None
            assert theirs is not None
            assert (theirs.first, theirs.next) == (ours.first, ours.next)

    @rule()
    def open_anew_to_read(self) -> None:
        self.reading.clear()
        self.reader.close()
        self.reader = JournalReader(LocalDirectory(self.path))
        self.refresh()

    @rule(epoch=st.integers(0, 2))
    def begin_to_read(self, epoch: int) -> None:
        bounds = self.reader.bounds(epoch)
        if bounds is not None:
            self.reading.append((epoch, self.reader.read(epoch, bounds.first, LAST), []))

    @rule()
    def continue_reading(self) -> None:
        for reading in list(self.reading):
            epoch, blocks, before = reading
            try:
                block = next(blocks)
            except (StopIteration, NotInJournal):
                self.reading.remove(reading)
                continue
            for position, payload in zip(block.positions.tolist(), block.payloads(), strict=True):
                assert position not in before
                assert self.promised[epoch, position] == payload
            assert not before or before[-1] < block.first
            before += block.positions.tolist()

    @invariant()
    def holds_what_plain_dicts_hold(self) -> None:
        for epoch, known in self.epochs.items():
            if known.held or known.lost:
                assert kept(self.journal, epoch) == dict(sorted(known.held.items()))
                lost = self.journal.losses(epoch, 0, LAST)
                assert {number for first, last in lost for number in range(first, last + 1)} == known.lost

    @invariant()
    def finds_each_record(self) -> None:
        for epoch, known in self.epochs.items():
            for position in range(self.base - 2, self.base + 32):
                found = self.journal.get(epoch, position)
                assert (None if found is None else found.payload) == known.held.get(position)

    @invariant()
    def readers_see_what_was_promised(self) -> None:
        for epoch in self.reader.epochs():
            bounds = self.reader.bounds(epoch)
            assert bounds is not None
            try:
                found = kept(self.reader, epoch)
            except NotInJournal:
                continue  # Dropped by retention.
            bounds = self.reader.bounds(epoch)
            if bounds is None:
                continue
            for position in range(bounds.first, bounds.next):
                assert (epoch, position) in self.promised
                assert found.get(position) == self.promised[epoch, position]
            assert all(bounds.first <= position < bounds.next for position in found)


class WrappingMachine(JournalMachine):
    """The same with numbers that wrap after the twelfth."""

    wrap, base, many = 2**63, 2**63 - 12, 1


MACHINE_SETTINGS = settings(stateful_step_count=25)
TestAgainstDicts = JournalMachine.TestCase
TestAgainstDicts.settings = MACHINE_SETTINGS
TestAgainstDictsAcrossTheWrap = WrappingMachine.TestCase
TestAgainstDictsAcrossTheWrap.settings = MACHINE_SETTINGS
