"""Journals as Arrow tables, without Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from suite.journals import JournalType

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.journal.arrow import batches
from fyrehose_twisted.journal.arrow.schema import COLUMNS, RECORD, arrow_schema
from fyrehose_twisted.journal.errors import JournalDamaged, NotInJournal
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.reader import JournalReader, open_reader
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.journal.upkeep.seal import seal
from fyrehose_twisted.record import Record

STREAM = "fyrehose://table"


def records(numbers: Any, epoch: int = 0) -> list[Record]:
    return [Record(STREAM, epoch, number, 1_000_000 + number, b"message %d" % number) for number in numbers]


def fill(journal: JournalType) -> None:
    journal.begin(0, 1)
    for low in range(1, 100, 10):
        journal.append(records(number for number in range(low, low + 10) if number != 42))
    journal.lose(0, 42, 42)
    journal.append(records(range(5, 8), epoch=1))
    journal.commit()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with closing(Journal(LocalDirectory(tmp_path), STREAM)) as journal:
        fill(journal)
    return tmp_path


@pytest.fixture
def reader(path: Path) -> Iterator[JournalReader]:
    with closing(open_reader(path)) as found:
        yield found


def pairs(found: Any) -> list[tuple[int, int]]:
    return [(row["epoch"], row["sequence"]) for row in found.read_all().to_pylist()]


WHOLE = [*((0, number) for number in range(1, 101)), (1, 5), (1, 6), (1, 7)]


def test_a_table_has_all_records_and_losses_in_order(reader: JournalReader) -> None:
    found = reader.to_arrow()
    assert isinstance(found, pyarrow.RecordBatchReader)
    assert found.schema == arrow_schema(RECORD)
    rows = found.read_all().to_pylist()
    assert [(row["epoch"], row["sequence"]) for row in rows] == WHOLE
    assert [row["sequence"] for row in rows if row["status"] == "lost"] == [42]
    assert rows[41] == dict.fromkeys(("received_at", "payload")) | {
        "stream": STREAM,
        "epoch": 0,
        "sequence": 42,
        "status": "lost",
    }
    assert rows[6]["payload"] == b"message 7"
    assert rows[6]["received_at"].timestamp() == 1.000007


@pytest.mark.parametrize("kind", ["writer", "memory"])
def test_journals_and_readers_provide_to_arrow(tmp_path: Path, kind: str) -> None:
    journal: JournalType = MemoryJournal(STREAM) if kind == "memory" else Journal(LocalDirectory(tmp_path), STREAM)
    fill(journal)
    assert pairs(journal.to_arrow()) == WHOLE
    journal.close()


def test_a_table_can_be_limited_to_an_epoch_a_range_and_columns(reader: JournalReader) -> None:
    assert pairs(reader.to_arrow(epoch=0, first=98)) == [(0, 98), (0, 99), (0, 100)]
    assert pairs(reader.to_arrow(epoch=0, first=3, last=4)) == [(0, 3), (0, 4)]
    assert pairs(reader.to_arrow(epoch=1, last=5)) == [(1, 5)]
    assert pairs(reader.to_arrow(epoch=7)) == []
    assert pairs(reader.to_arrow(epoch=1, first=8)) == []
    assert pairs(reader.to_arrow(epoch=1, last=2**62)) == [(1, 5), (1, 6), (1, 7)]
    assert reader.to_arrow(["payload", "status"]).read_next_batch().schema.names == ["payload", "status"]
    assert set(reader.to_arrow(tuple(COLUMNS)).read_all().to_pydict()) == set(COLUMNS)


def test_invalid_table_arguments_are_reported_at_once(reader: JournalReader) -> None:
    with pytest.raises(ConfigurationError, match="there is no column 'size'"):
        reader.to_arrow(["size"])
    with pytest.raises(ConfigurationError, match=f"{STREAM} has epochs 0, 1; select one"):
        reader.to_arrow(first=3)
    with pytest.raises(NotInJournal, match=f"0 of epoch 0 is no longer kept by {STREAM}"):
        reader.to_arrow(epoch=0, first=0).read_all()


def test_an_empty_journal_is_an_empty_table(tmp_path: Path) -> None:
    Journal(LocalDirectory(tmp_path), STREAM).close()
    with closing(open_reader(tmp_path)) as reader:
        assert reader.to_arrow().read_all().num_rows == 0


def test_the_reader_is_locked_while_a_table_is_read(reader: JournalReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database may read two tables of one journal in two threads."""
    held: list[bool] = []
    original = Segment.read

    def spying(self: Segment, *what: Any) -> Any:
        held.append(batches._lock_of(reader).locked())
        return original(self, *what)

    monkeypatch.setattr(Segment, "read", spying)
    tables = reader.to_arrow(), reader.to_arrow(epoch=1)
    assert [pairs(table) for table in tables] == [WHOLE, WHOLE[100:]]
    assert set(held) == {True}
    assert batches._lock_of(reader) is batches._lock_of(reader)
    assert not batches._lock_of(reader).locked()


def test_a_table_is_read_lazily_in_batches(tmp_path: Path) -> None:
    with closing(Journal(LocalDirectory(tmp_path), STREAM)) as journal:
        journal.append(records(range(200_000)))
    with closing(open_reader(tmp_path)) as reader:
        sizes = [batch.num_rows for batch in reader.to_arrow(["sequence", "payload"])]
    assert sum(sizes) == 200_000
    assert len(sizes) > 2


class TestDamage:
    def test_damage_in_the_middle_is_raised_or_marked_lost(self, path: Path) -> None:
        seal(LocalDirectory(path), STREAM, 0)
        (file,) = path.glob("*.seg")
        spoil(file, b"message 55")
        with closing(open_reader(path)) as reader:
            with pytest.raises(JournalDamaged, match="the checksum of the body is wrong"):
                reader.to_arrow().read_all()
            assert reader.to_arrow(["sequence"]).read_all().num_rows == len(WHOLE)
            assert {row["status"] for row in reader.to_arrow(fail_on_data_loss=False).read_all().to_pylist()} == {
                "ok",
                "lost",
            }

    def test_damage_at_the_end_is_raised_or_marked_lost(self, path: Path) -> None:
        with closing(Journal(LocalDirectory(path), STREAM)) as journal:
            journal.append(records(range(8, 20), epoch=1))
        (file,) = path.glob("*.log")
        spoil(file, b"message 13", last=True)
        with closing(open_reader(path)) as reader:
            with pytest.raises(JournalDamaged, match="numbers 8 to 19 of epoch 1"):
                reader.to_arrow()
            assert pairs(reader.to_arrow(epoch=0)) == WHOLE[:100]
            assert pairs(reader.to_arrow(epoch=1, last=7)) == WHOLE[100:]
            assert pairs(reader.to_arrow(fail_on_data_loss=False)) == WHOLE


def spoil(file: Path, what: bytes, *, last: bool = False) -> None:
    data = bytearray(file.read_bytes())
    data[data.rfind(what) if last else data.find(what)] ^= 1
    file.write_bytes(data)


@pytest.mark.extended
class TestOthers:
    """Reading a table in one line with other libraries."""

    def test_a_table_can_be_read_by_pandas(self, reader: JournalReader) -> None:
        frame = reader.to_arrow().read_pandas()
        assert list(zip(frame.epoch, frame.sequence, strict=True)) == WHOLE

    def test_a_table_can_be_read_by_polars(self, path: Path) -> None:
        """Run in a subprocess, since Polars keeps descriptors open."""
        code = """
import sys
from pathlib import Path
import polars
from fyrehose_twisted.journal.reader import open_reader
reader = open_reader(Path(sys.argv[1]))
print(polars.DataFrame(reader).select("epoch", "sequence").rows())
print(polars.from_arrow(reader.to_arrow(["sequence"], epoch=1))["sequence"].to_list())
"""
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
        assert (done.stderr, done.stdout) == ("", f"{WHOLE}\n[5, 6, 7]\n")

    def test_a_table_can_be_read_by_duckdb(self, reader: JournalReader) -> None:
        import duckdb

        found = duckdb.sql("select status, count(*) from reader group by all order by 1").fetchall()
        assert found == [("lost", 1), ("ok", 102)]
        numbers = reader.to_arrow(["sequence"])
        assert duckdb.sql("select max(sequence) from numbers").fetchall() == [(100,)]
        assert numbers is not None

    def test_two_tables_of_one_journal_in_threads(self, tmp_path: Path) -> None:
        import duckdb

        with closing(Journal(LocalDirectory(tmp_path), STREAM, config=JournalConfig(segment_bytes=20_000))) as journal:
            for low in range(0, 20_000, 500):
                journal.append(records(range(low, low + 500)))
                journal.commit()
        with closing(open_reader(tmp_path)) as reader:
            reader.limit_open_files(2)
            one, other = reader.to_arrow(), reader.to_arrow()
            query = "select count(*) from one join other using (sequence) where one.payload = other.payload"
            assert duckdb.sql(query).fetchall() == [(20_000,)]
            assert (one, other) != (None, None)
