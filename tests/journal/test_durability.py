"""Durability: missing durable records are always reported, and their numbers never reused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from fyrehose_twisted.journal.cli.cat import RecordPrinter
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError, JournalReplaced
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.watermark import POSITION_NAME
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.record_columns import RecordColumns
from fyrehose_twisted.journal.store import Journal, JournalConfig, open_journal
from fyrehose_twisted.journal.upkeep.check import check
from fyrehose_twisted.journal.upkeep.check_report import find_missing_ranges
from fyrehose_twisted.journal.upkeep.repair import repair
from fyrehose_twisted.journal.upkeep.seal import seal
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk

STREAM = "fyrehose://promises"
LOG = "0000000001.log"

Run = Callable[..., tuple[int, str, str]]


def records(numbers: range, word: bytes = b"first", epoch: int = 3) -> list[Record]:
    return [Record(STREAM, epoch, number, 1_000 + number, b"%s %d" % (word, number)) for number in numbers]


def write(root: Path, commits: int = 10, each: int = 1_000) -> Path:
    journal = open_journal(root, STREAM)
    for low in range(0, commits * each, each):
        journal.append(records(range(low, low + each)))
        journal.commit()
    journal.close()
    return root / "fyrehose-promises"


def flip(file: Path, offset: int, mask: int = 4) -> None:
    data = bytearray(file.read_bytes())
    data[offset] ^= mask
    file.write_bytes(data)


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Return a journal of ten commits of a thousand records, with a flipped bit in the last."""
    path = write(tmp_path)
    flip(path / LOG, -500)
    return path


def held(reader: JournalReader | Journal, epoch: int = 3) -> list[int]:
    bounds = reader.bounds(epoch)
    if bounds is None:
        return []
    blocks = reader.read(epoch, bounds.first, bounds.last, [].append)
    return [position for block in blocks for position in block.positions.tolist()]


class TestEndOfOpenSegment:
    def test_a_reader_reports_damage_in_the_open_segment(self, damaged: Path) -> None:
        with closing(open_reader(damaged)) as reader:
            (told,) = reader.damages
            assert (told.name, told.epoch, told.first, told.last) == (LOG, 3, 9_000, 9_999)
            bounds = reader.bounds(3)
            assert bounds is not None
            assert (bounds.next, bounds.last) == (9_000, 9_999)

    @pytest.mark.parametrize("words", [("ls",), ("cat",), ("check",), ("seal",)])
    def test_commands_fail_on_damage_in_the_open_segment(self, damaged: Path, run: Run, words: tuple[str, ...]) -> None:
        before = (damaged / LOG).read_bytes()
        status, out, err = run(*words, damaged.parent)
        assert status == 1
        assert "numbers 9000 to 9999 of epoch 3: the checksum of the body is wrong" in out + err
        assert (damaged / LOG).read_bytes() == before

    def test_follower_reports_damage_once(self, damaged: Path) -> None:
        told: list[str] = []
        with closing(open_reader(damaged)) as reader:
            cat = RecordPrinter(reader, lambda data: None, told.append)
            for _ in range(3):
                assert cat.run()
                cat.report_damages()
        (line,) = told
        assert "numbers 9000 to 9999 of epoch 3: the checksum of the body is wrong; left out" in line
        assert cat.damaged == 1

    def test_range_is_printed_when_it_becomes_complete(self, damaged: Path, run: Run) -> None:
        status, out, err = run("cat", damaged.parent, "--to", "8999")
        assert (status, len(out.splitlines()), err) == (0, 9_000, "")

    def test_a_writer_keeps_damage_and_appends_after_it(self, damaged: Path) -> None:
        before = (damaged / LOG).read_bytes()
        with closing(open_journal(damaged.parent, STREAM)) as journal:
            assert [damage.first for damage in journal.recovery.damages] == [9_000]
            assert journal.recovery.truncated_bytes == 0
            bounds = journal.bounds(3)
            assert bounds is not None
            assert bounds.last == 9_999
            assert journal.append(records(range(10_000, 10_010))) == 10
        assert (damaged / LOG).read_bytes() == before
        with closing(open_reader(damaged)) as reader:
            assert len(reader.damages) == 1

    def test_number_below_the_watermark_is_not_reused(self, damaged: Path) -> None:
        with closing(open_journal(damaged.parent, STREAM)) as journal:
            assert journal.append(records(range(8_990, 10_001), b"other")) == 1
            assert (journal.counters.conflicts, journal.counters.spent) == (10, 1_000)
            journal.commit()
        with closing(open_reader(damaged)) as reader:
            bounds = reader.bounds(3)
            assert bounds is not None
            assert bounds.next == 9_000

    def test_spent_number_gets_no_record_after_restart_or_repair(self, damaged: Path) -> None:
        open_journal(damaged.parent, STREAM).close()
        repair(LocalDirectory(damaged), on_message=[].append)
        assert (damaged / f"{LOG}.damaged").exists()
        with closing(open_journal(damaged.parent, STREAM)) as journal:
            assert journal.append(records(range(9_000, 9_001), b"other")) == 0
            assert journal.counters.spent == 1

    def test_spent_number_gets_no_record_after_truncation(self, tmp_path: Path) -> None:
        path = write(tmp_path)
        data = (path / LOG).read_bytes()
        with closing(open_reader(path)) as reader:
            last = list(reader.segments[0].frame_indexes[3])[-1]
        (path / LOG).write_bytes(data[: last.offset])
        with closing(open_reader(path)) as reader:
            assert [(one.first, one.last) for one in reader.damages] == [(None, None), (9_000, 9_999)]
        with closing(open_journal(tmp_path, STREAM)) as journal:
            assert journal.append(records(range(9_000, 9_001), b"other")) == 0
            assert [damage.first for damage in journal.damages] == [None, 9_000]
            journal.append(records(range(9_000, 10_000)), authoritative=True)
            journal.commit()
            assert [damage.first for damage in journal.damages] == [None]

    @pytest.mark.parametrize("in_columns", [False, True])
    def test_authoritative_source_restores_missing_records(self, damaged: Path, in_columns: bool) -> None:
        restored = records(range(9_000, 10_000))
        _, (epoch, *_), *columns = zip(*restored, strict=True)
        with closing(open_journal(damaged.parent, STREAM)) as journal:
            given = RecordColumns(STREAM, epoch, *columns) if in_columns else restored
            assert journal.append(given, authoritative=True) == 1_000
            journal.commit()
            bounds = journal.bounds(3)
            assert bounds is not None
            assert bounds.next == 10_000
            assert [damage.name for damage in journal.damages] == [LOG]

    def test_unrecoverable_numbers_can_be_declared_lost(self, damaged: Path, run: Run) -> None:
        status, out, _ = run("repair", damaged.parent, "--declare-lost", "--dry-run")
        assert (status, "to do: declare lost in epoch 3, as no journal holds them: 9000 to 9999" in out) == (0, True)
        assert run("repair", damaged.parent)[0] == 0
        status, out, err = run("ls", damaged.parent)
        assert (status, "durable, numbers 9000 to 9999 of epoch 3: once durable" in err) == (1, True)
        status, out, _ = run("repair", damaged.parent, "--declare-lost")
        assert (status, "done: declare lost in epoch 3, as no journal holds them: 9000 to 9999" in out) == (0, True)
        with closing(open_reader(damaged)) as reader:
            assert reader.damages == []
            assert reader.bounds(3) == (0, 10_000, 9_999)
        assert run("seal", damaged.parent)[0] == 0

    def test_open_reader_notices_missing_records(self, tmp_path: Path) -> None:
        path = write(tmp_path)
        with closing(open_reader(path)) as reader, closing(open_journal(tmp_path, STREAM)) as journal:
            journal.append(records(range(10_000, 10_010)))
            journal.commit()
            flip(path / LOG, -200)
            assert reader.refresh()
            assert [(damage.first, damage.last) for damage in reader.damages] == [(10_000, 10_009)]
            journal.append(records(range(10_010, 10_020)))
            journal.commit()
            assert reader.refresh()
            assert [(damage.first, damage.last) for damage in reader.damages] == [(10_000, 10_009)]


def test_missing_epoch_is_reported(tmp_path: Path) -> None:
    """Its segment and all later ones are missing."""
    journal = Journal(LocalDirectory(tmp_path), STREAM)
    journal.append(records(range(5)))
    journal.commit()
    journal.roll()
    journal.append(records(range(7), epoch=4))
    journal.close()
    (tmp_path / "0000000002.log").unlink()
    with closing(open_reader(tmp_path)) as reader:
        assert [str(damage).partition(": ")[0] for damage in reader.damages] == [
            f"0000000002.log, bytes 0 to {reader._durable_position.offset if reader._durable_position else 0:,}",
            "durable, numbers 0 to 6 of epoch 4",
        ]
    repair(LocalDirectory(tmp_path), declare_lost=True, on_message=[].append)
    with closing(open_reader(tmp_path)) as reader:
        assert reader.damages == []
    with closing(Journal(LocalDirectory(tmp_path), STREAM)) as journal:
        assert journal.append(records(range(6, 9), epoch=4)) == 2


def test_retention_is_not_reported_as_loss(tmp_path: Path) -> None:
    """The durable position that a reader has read is older than its directory listing."""
    config = JournalConfig(segment_bytes=400)
    journal = Journal(LocalDirectory(tmp_path), STREAM, config=config)
    for number in range(20):
        journal.append(records(range(number, number + 1)))
        journal.commit()

    class Late(LocalDirectory):
        trimmed = False

        def names(self) -> list[str]:
            if not self.trimmed:
                self.trimmed = True
                first = min(journal.catalog.segments)
                gone = journal.catalog.segments.pop(first)
                journal._write_starts({3: gone.frame_indexes[3].last + 1})
                (tmp_path / gone.name).unlink()
            return super().names()

    with closing(JournalReader(Late(tmp_path))) as reader:
        assert reader.damages == []
        bounds = reader.bounds(3)
        assert bounds is not None
        assert bounds.first > 0
    journal.close()


def test_published_watermarks_survive_later_starts(tmp_path: Path) -> None:
    journal = MemoryJournal(STREAM)
    assert journal.append(records(range(3)), authoritative=True) == 3
    assert journal.damages == []


def spoilt(path: Path, random: Random, step: int) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Yield changed bytes and truncations of the files of a journal, with descriptions.

    :param step: one byte in so many is looked at.
    """
    for file in sorted(path.iterdir()):
        if file.name in ("lock", "reserve"):
            continue
        for offset in range(random.randrange(step), file.stat().st_size, step):
            mask = 1 << random.randrange(8)
            yield (
                f"byte {offset} of {file.name} by {mask}",
                lambda copy, name=file.name, offset=offset, mask=mask: flip(copy / name, offset, mask),
            )
            yield (
                f"{file.name} cut at {offset}",
                lambda copy, name=file.name, offset=offset: os.truncate(copy / name, offset),
            )
        yield f"no {file.name}", lambda copy, name=file.name: (copy / name).unlink()


def seen(path: Path) -> tuple[list[bytes], bool]:
    """Return the payloads that a reader finds, and whether it reported missing ones."""
    told: list[object] = []
    payloads: list[bytes] = []
    try:
        with closing(open_reader(path)) as reader:
            told += reader.damages
            for epoch in reader.epochs():
                bounds = reader.bounds(epoch)
                assert bounds is not None
                for block in reader.read(epoch, bounds.first, bounds.next - 1, told.append):
                    payloads += block.payloads()
    except JournalError as error:
        told.append(error)
    return payloads, bool(told)


@pytest.mark.parametrize("shape", ["open", "rolled", "sealed"])
@pytest.mark.parametrize("step", [16, pytest.param(1, marks=pytest.mark.extended)])
def test_all_damage_is_reported(tmp_path: Path, shape: str, step: int) -> None:
    """Change every byte and truncate to every length: damage is reported, and no durable number is reused."""
    path = tmp_path / "journal"
    path.mkdir()
    with closing(Journal(LocalDirectory(path), STREAM, tag=1)) as journal:
        for low in range(0, 12, 3):
            if low == 6 and shape != "open":
                journal.roll()
            journal.append(records(range(low, low + 3)))
            journal.commit()
    if shape == "sealed":
        seal(LocalDirectory(path), STREAM, 0)
    whole, told = seen(path)
    assert (len(whole), told) == (12, False)
    copy = tmp_path / "copy"
    for what, spoil in spoilt(path, Random(shape), step):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(path, copy)
        spoil(copy)
        payloads, told = seen(copy)
        assert told or payloads == whole, what
        assert payloads == [one for one in whole if one in payloads], what
        continue_on(copy, whole, what)


def continue_on(copy: Path, whole: list[bytes], what: str) -> None:
    """Append with a writer, which must not reuse the numbers."""
    try:
        journal = Journal(LocalDirectory(copy), STREAM)
    except JournalError:
        return
    with closing(journal):
        floors = dict(journal.catalog.published_watermarks)
        if floors.get(3, 0) >= 12:
            journal.append(records(range(12), b"other"))
            journal.commit()
            assert journal.counters.taken == 0, what
            blocks = journal.read(3, max(0, journal.catalog.starts[3]), 11, [].append)
            assert {payload for block in blocks for payload in block.payloads()} <= set(whole), what


def test_seal_does_not_change_a_damaged_journal(damaged: Path) -> None:
    before = {file.name: file.read_bytes() for file in damaged.iterdir() if file.suffix == ".log"}
    with pytest.raises(JournalDamaged, match="numbers 9000 to 9999"):
        seal(LocalDirectory(damaged), STREAM, 0)
    assert {name: (damaged / name).read_bytes() for name in before} == before


def test_seal_does_not_change_a_truncated_journal(damaged: Path) -> None:
    with closing(open_reader(damaged)) as reader:
        last = list(reader.segments[0].frame_indexes[3])[-1]
    os.truncate(damaged / LOG, last.offset + last.size)
    with pytest.raises(JournalDamaged, match="the file was truncated below its durable length"):
        seal(LocalDirectory(damaged), STREAM, 0)
    # Now another segment is the last, and only the durable position records the missing one.
    with pytest.raises(JournalDamaged, match="once durable"):
        seal(LocalDirectory(damaged), STREAM, 0)


class TestPower:
    """The durable position must survive a power failure after the close and after the opening."""

    def test_durable_position_is_synced_at_close(self) -> None:
        disk = Disk(Random(1))
        with closing(Journal(disk, STREAM)) as journal:
            journal.append(records(range(5)))
            journal.commit()
            assert disk.durable[POSITION_NAME] != read(disk, POSITION_NAME)
        assert disk.durable[POSITION_NAME] == read(disk, POSITION_NAME)

    @pytest.mark.parametrize("seed", range(20))
    def test_missing_durable_position_is_written_at_opening(self, seed: int) -> None:
        disk = Disk(Random(seed))
        Journal(disk, STREAM).close()
        disk.remove(POSITION_NAME)
        disk.sync()
        Journal(disk, STREAM)
        disk.power_lost()
        assert POSITION_NAME in disk.names()


def read(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    data = file.read(0, file.size())
    file.close()
    return data


def test_check_counts_missing_records(damaged: Path) -> None:
    checked = check(LocalDirectory(damaged))
    assert checked.damaged == 1
    assert find_missing_ranges(checked.catalog, 3) == [(9_000, 9_999)]


class TestAnotherJournalInItsPlace:
    def test_open_reader_reports_a_replaced_journal(self, tmp_path: Path) -> None:
        path = write(tmp_path, commits=2, each=5)
        with closing(open_reader(path)) as reader:
            before = held(reader)
            shutil.rmtree(path)
            with closing(open_journal(tmp_path, STREAM)) as journal:
                journal.append(records(range(20), b"other"))
            with pytest.raises(JournalReplaced, match="holds another journal now"):
                reader.refresh()
            assert held(reader) == before

    def test_replaced_journal_is_detected_with_equal_file_names_and_sizes(self, tmp_path: Path) -> None:
        path = write(tmp_path, commits=2, each=5)
        with closing(open_reader(path)) as reader:
            for file in path.iterdir():
                file.unlink()
            with closing(Journal(LocalDirectory(path), STREAM)) as journal:
                for low in (0, 5):
                    journal.append(records(range(low, low + 5), b"other"))
                    journal.commit()
            with pytest.raises(JournalReplaced):
                reader.refresh()
