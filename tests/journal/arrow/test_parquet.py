"""Parquet export: contents of files and continuation of earlier runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow import parquet
from fyrehose_twisted.journal.arrow.destinations import LocalDestination
from fyrehose_twisted.journal.arrow.manifest import MANIFEST_NAME, read_manifest
from fyrehose_twisted.journal.arrow.parquet import Halves, export, halves, split_block
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.errors import JournalDamaged, JournalError, JournalInUse
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.reader import JournalReader
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record

pq = pytest.importorskip("pyarrow.parquet")

STREAM = "fyrehose://test"
NAME = "fyrehose-test"


def records(sequences: Iterable[int], epoch: int = 0) -> list[Record]:
    return [Record(STREAM, epoch, one, 1_000_000 + one % 1_000, b"%d" % one) for one in sequences]


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[Journal]:
    (tmp_path / "journal").mkdir()
    with closing(Journal(LocalDirectory(tmp_path / "journal"), STREAM)) as journal:
        yield journal


class Exported:
    """Result of one export."""

    def __init__(self, journal: Journal, numbers: int = 100) -> None:
        journal.commit()
        self.told: list[str] = []
        directory = journal.directory
        assert isinstance(directory, LocalDirectory)
        self.out = directory.path.parent / "out"
        with closing(JournalReader(directory)) as reader:
            self.written = export(reader, self.out, numbers=numbers, on_message=self.told.append)

    @property
    def names(self) -> list[str]:
        apart = (".lock", MANIFEST_NAME)
        return sorted(file.name for file in (self.out / NAME).iterdir() if file.name not in apart)

    def rows(self, name: str) -> list[dict[str, Any]]:
        return pq.read_table(self.out / NAME / name).to_pylist()

    def numbers(self) -> list[int]:
        return sorted(row["sequence"] for name in self.names for row in self.rows(name))


def test_exported_columns_have_their_documented_types(journal: Journal) -> None:
    journal.append([Record(STREAM, 7, 1, 1_700_000_000_123_456, b"\x00\xff"), Record(STREAM, 7, 2, 5, b"")])
    journal.lose(7, 3, 4)
    exported = Exported(journal)
    assert exported.names == ["7-1-4.parquet"]
    schema = pq.read_metadata(exported.out / NAME / "7-1-4.parquet").schema
    kinds = {field.name: str(field.type) for field in schema.to_arrow_schema()}
    assert kinds == {
        "stream": "dictionary<values=string, indices=int8, ordered=0>",
        "epoch": "int64",
        "sequence": "int64",
        "received_at": "timestamp[us, tz=UTC]",
        "payload": "binary",
        "status": "string",
    }
    assert schema.column(2).physical_type == "INT64"
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in str(schema.column(3).logical_type)
    begin = datetime(1970, 1, 1, tzinfo=UTC)
    common = {"stream": STREAM, "epoch": 7}
    assert exported.rows("7-1-4.parquet") == [
        common
        | {"sequence": 1, "payload": b"\x00\xff", "status": "ok"}
        | {"received_at": begin + timedelta(microseconds=1_700_000_000_123_456)},
        common | {"sequence": 2, "payload": b"", "status": "ok", "received_at": begin + timedelta(microseconds=5)},
        *(common | {"sequence": one, "payload": None, "status": "lost", "received_at": None} for one in (3, 4)),
    ]


@pytest.mark.parametrize("in_order", [False, True])
def test_lost_numbers_are_exported_as_rows_in_order(journal: Journal, in_order: bool) -> None:
    lost = {*range(1, 4), 10, *range(20, 35), 50, 51, 99}
    journal.begin(0, 1)
    journal.append(records(one for one in range(1, 100) if one not in lost))
    journal.lose(0, 1, 99)
    journal.commit()
    if in_order:
        journal.roll()
        journal.compact()
    exported = Exported(journal)
    rows = exported.rows("0-1-99.parquet")
    assert [row["sequence"] for row in rows] == list(range(1, 100))
    for row in rows:
        one = row["sequence"]
        assert (row["payload"], row["status"]) == ((None, "lost") if one in lost else (b"%d" % one, "ok"))
        assert (row["received_at"] is None) == (one in lost)


def test_only_records_below_the_watermark_are_exported(journal: Journal) -> None:
    journal.append(records([1, 2, 4]))
    assert Exported(journal).numbers() == [1, 2]


def test_an_export_continues_after_its_last_complete_file(journal: Journal) -> None:
    journal.append(records(range(5, 260)))
    exported = Exported(journal)
    assert exported.names == ["0-105-204.parquet", "0-205-259.parquet", "0-5-104.parquet"]
    assert [(Path(name).name, rows) for name, rows in exported.written] == [
        ("0-5-104.parquet", 100),
        ("0-105-204.parquet", 100),
        ("0-205-259.parquet", 55),
    ]
    before = (exported.out / NAME / "0-5-104.parquet").stat().st_mtime_ns
    assert Exported(journal).written == []
    journal.append(records(range(260, 320)))
    exported = Exported(journal)
    assert exported.names == ["0-105-204.parquet", "0-205-304.parquet", "0-305-319.parquet", "0-5-104.parquet"]
    assert exported.numbers() == list(range(5, 320))
    assert (exported.out / NAME / "0-5-104.parquet").stat().st_mtime_ns == before


def test_epochs_and_wrapping_numbers_are_exported_by_position(tmp_path: Path) -> None:
    wrap = 2**63
    (tmp_path / "journal").mkdir()
    with closing(Journal(LocalDirectory(tmp_path / "journal"), STREAM, wrap=wrap)) as journal:
        journal.append(records([wrap - 2, wrap - 1, 0, 1], epoch=1))
        journal.append(records([5], epoch=2))
        exported = Exported(journal)
        assert exported.names == [f"1-{wrap - 2}-{wrap + 1}.parquet", "2-5-5.parquet"]
        assert [row["sequence"] for row in exported.rows(exported.names[0])] == [wrap - 2, wrap - 1, 0, 1]


def test_an_export_removes_shorter_files_left_by_a_crash(journal: Journal) -> None:
    journal.append(records(range(1, 50)))
    exported = Exported(journal)
    short = (exported.out / NAME / "0-1-49.parquet").read_bytes()
    journal.append(records(range(50, 80)))
    Exported(journal)
    (exported.out / NAME / "0-1-49.parquet").write_bytes(short)
    (exported.out / NAME / ".0-1-90.parquet.tmp").write_bytes(b"half")
    journal.append(records([80]))
    exported = Exported(journal)
    assert [name for name in exported.names if not name.startswith(".")] == ["0-1-80.parquet"]


def test_an_export_reports_records_removed_by_retention(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    config = JournalConfig(retention=Retention(size=1))
    with closing(Journal(LocalDirectory(tmp_path / "journal"), STREAM, config=config)) as journal:
        journal.append(records(range(1, 51)))
        Exported(journal)
        journal.append(records(range(51, 61)))
        journal.commit()
        journal.roll()
        journal.append(records(range(61, 71)))
        journal.trim()
        exported = Exported(journal)
        assert exported.told == ["removed by retention before export: 51 to 60 of epoch 0"]
        assert exported.names == ["0-1-50.parquet", "0-61-70.parquet"]


def test_a_large_gap_is_not_exported_number_by_number(journal: Journal) -> None:
    journal.append(records(range(1, 31)))
    journal.lose(0, 31, 2**60)
    journal.append(records([2**60 + 1]))
    exported = Exported(journal)
    assert len(exported.names) == 2
    assert exported.told == [f"lost in epoch 0: 101 to {2**60 - 2**60 % 100}; no file is written for them"]
    assert exported.numbers()[-1] == 2**60 + 1
    assert len(exported.numbers()) == 100 + (2**60 + 1) % 100


def test_a_damaged_journal_exports_no_incomplete_file(journal: Journal, tmp_path: Path) -> None:
    journal.append(records(range(1, 201)))
    journal.commit()
    journal.roll()
    journal.compact()
    segment = tmp_path / "journal" / "0000000001.seg"
    data = bytearray(segment.read_bytes())
    data[-20] ^= 1
    segment.write_bytes(data)
    with closing(JournalReader(LocalDirectory(tmp_path / "journal"))) as reader:
        out = tmp_path / "out"
        with pytest.raises(JournalDamaged):
            export(reader, out, numbers=150, on_message=print)
    assert not list((tmp_path / "out").rglob("*.parquet"))


def test_an_export_fails_if_the_index_lists_missing_records(
    journal: Journal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.append(records(range(1, 11)))
    journal.commit()
    monkeypatch.setattr(JournalReader, "read", lambda *_: iter(()))
    with pytest.raises(JournalDamaged, match="only 0 of 10 records are present"):
        Exported(journal)


def test_concurrent_exports_to_one_directory_are_refused(journal: Journal, tmp_path: Path) -> None:
    journal.append(records([1]))
    (tmp_path / "out" / NAME).mkdir(parents=True)
    busy = pytest.raises(JournalInUse, match="another process that writes Parquet")
    with LocalDestination(tmp_path / "out" / NAME).lock(), busy:
        Exported(journal)


def test_an_export_without_pyarrow_names_the_missing_extra(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'fyrehose_twisted\[parquet\]'"):
        Exported(journal)


def test_an_export_creates_no_object_per_record(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    journal.append(records(range(1, 101)))
    journal.commit()

    def never(*_: Any) -> Any:
        raise AssertionError

    make: Callable[..., Any] = never
    monkeypatch.setattr(Block, "payloads", make)
    monkeypatch.setattr(Block, "records", make)
    assert Exported(journal).numbers() == list(range(1, 101))


def test_a_block_is_split_by_payload_size() -> None:
    sizes = [3, 0, 4, 9, 1, 1]
    offsets = np.cumsum([5, *sizes]).astype(np.uint32)
    block = Block(STREAM, 0, np.arange(6, dtype=np.uint64), np.zeros(6, np.int64), offsets, memoryview(bytes(40)))
    assert [len(piece) for piece in split_block(block, 7)] == [3, 1, 2]
    assert [len(piece) for piece in split_block(block)] == [6]


def test_the_size_of_row_groups_is_limited(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_ROWS", 20)
    for low in range(1, 101, 10):
        journal.append(records(range(low, low + 10)))
        journal.commit()
    exported = Exported(journal)
    file = pq.ParquetFile(exported.out / NAME / "0-1-100.parquet")
    assert [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)] == [20] * 5


class TestManifest:
    """Consistency of the manifest with the files during an export."""

    def test_the_manifest_lists_files_and_which_are_final(self, journal: Journal) -> None:
        journal.append(records(range(1, 251)))
        exported = Exported(journal)
        manifest = read_manifest(exported.out / NAME)
        assert manifest is not None
        assert (manifest.stream, manifest.tag) == (STREAM, journal.tag)
        assert [(file.name, file.final) for file in manifest.files] == [
            ("0-1-100.parquet", True),
            ("0-101-200.parquet", True),
            ("0-201-250.parquet", False),
        ]
        assert [file.bytes for file in manifest.files] == [
            (exported.out / NAME / file.name).stat().st_size for file in manifest.files
        ]
        journal.append(records(range(251, 401)))
        manifest = read_manifest(Exported(journal).out / NAME)
        assert manifest is not None
        assert [(file.first, file.last, file.final) for file in manifest.files] == [
            *((first, first + 99, True) for first in range(1, 400, 100))
        ]

    def test_the_manifest_is_consistent_with_the_files_at_any_time(
        self, journal: Journal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Check after every change of the directory."""
        seen: list[bool] = []
        for name in ("rename", "unlink", "replace"):
            original = getattr(os, name)

            def spying(*what: Any, original: Any = original, **more: Any) -> None:
                look()
                original(*what, **more)
                look()

            monkeypatch.setattr(os, name, spying)
        out = Path(str(journal.directory)).parent / "out"

        def look() -> None:
            manifest = read_manifest(out / NAME) if (out / NAME).exists() else None
            if manifest is not None:
                seen.append(True)
                assert all((out / NAME / file.name).exists() for file in manifest.files)
                ends = [(file.first, file.last) for file in manifest.files]
                assert all(after[0] == before[1] + 1 for before, after in pairwise(ends))

        for low in range(1, 400, 70):
            journal.append(records(range(low, low + 70)))
            Exported(journal)
        assert len(seen) > 20

    def test_files_of_an_earlier_release_get_a_manifest(self, journal: Journal) -> None:
        journal.append(records(range(1, 251)))
        exported = Exported(journal)
        before = read_manifest(exported.out / NAME)
        for spoil in (lambda path: path.unlink(), lambda path: path.write_text("{")):
            spoil(exported.out / NAME / MANIFEST_NAME)
            assert Exported(journal).written == []
            assert read_manifest(exported.out / NAME) == before

    def test_an_export_of_another_journal_to_the_same_directory_is_refused(
        self, journal: Journal, tmp_path: Path
    ) -> None:
        journal.append(records(range(1, 251)))
        out = Exported(journal).out
        (tmp_path / "other").mkdir()
        with closing(Journal(LocalDirectory(tmp_path / "other"), STREAM)) as other:
            other.append(records(range(1, 301)))
            with pytest.raises(JournalError, match=f"has files of another journal of {STREAM}"):
                Exported(other)
        reader = JournalReader(LocalDirectory(tmp_path / "other"))
        with pytest.raises(JournalError, match=r"and unrelated numbers\. Read without these files"):
            halves(reader, out)
        reader.close()

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            ("[", "cannot be read"),
            ("{}", "is not a valid manifest; `fyrehose journal seal` rewrites it"),
            ('{"version": 2}', "has unsupported version 2; expected 1"),
            ('{"version": 1, "tag": null, "stream": "x", "files": [{}]}', "is not a valid manifest"),
        ],
    )
    def test_an_invalid_manifest_is_reported(self, tmp_path: Path, content: str, words: str) -> None:
        (tmp_path / MANIFEST_NAME).write_text(content)
        with pytest.raises(JournalError, match=words):
            read_manifest(tmp_path)


class TestHalves:
    def numbers(self, found: Halves[Path]) -> list[int]:
        rows = [row for file in found.files for row in pq.read_table(file).to_pylist()]
        return [row["sequence"] for row in [*rows, *found.tail.read_all().to_pylist()]]

    def test_exported_files_and_later_records_make_the_whole_journal(self, journal: Journal) -> None:
        journal.append(records(range(1, 251)))
        out = Exported(journal).out
        journal.append(records(range(251, 301)))
        journal.commit()
        with closing(JournalReader(journal.directory)) as reader:
            found = halves(reader, out)
            assert [file.name for file in found.files] == ["0-1-100.parquet", "0-101-200.parquet"]
            assert self.numbers(found) == list(range(1, 301))
            found = halves(reader, out)
            journal.append(records(range(301, 501)))
            Exported(journal)  # It replaces the last file, and the earlier result still reads the same.
            assert self.numbers(found) == list(range(1, 301))

    def test_records_are_read_from_the_journal_before_any_export(self, journal: Journal, tmp_path: Path) -> None:
        journal.append(records(range(1, 11)))
        journal.commit()
        with closing(JournalReader(journal.directory)) as reader:
            found = halves(reader, tmp_path / "nowhere")
            assert (found.files, self.numbers(found)) == ([], list(range(1, 11)))

    def test_halves_selects_the_latest_epoch_or_a_given_one(self, journal: Journal) -> None:
        journal.append([*records(range(1, 151)), *records(range(5, 8), epoch=2)])
        out = Exported(journal).out
        with closing(JournalReader(journal.directory)) as reader:
            assert self.numbers(halves(reader, out)) == [5, 6, 7]
            assert self.numbers(halves(reader, out, epoch=0)) == list(range(1, 151))

    def test_records_removed_from_the_journal_are_read_from_the_last_file(self, tmp_path: Path) -> None:
        """Retention removes records before the next export."""
        (tmp_path / "journal").mkdir()
        config = JournalConfig(segment_bytes=500, retention=Retention(size=1_500))
        with closing(Journal(LocalDirectory(tmp_path / "journal"), STREAM, config=config)) as journal:
            for low in range(1, 151, 10):
                journal.append(records(range(low, low + 10)))
                journal.commit()
            out = Exported(journal).out
            for low in range(151, 301, 10):
                journal.append(records(range(low, low + 10)))
                journal.commit()
            assert journal.trim()
            bounds = journal.bounds(0)
            assert bounds is not None
            assert bounds.first > 150
            with closing(JournalReader(journal.directory)) as reader:
                assert [file.name for file in halves(reader, out).files] == ["0-1-100.parquet", "0-101-150.parquet"]
