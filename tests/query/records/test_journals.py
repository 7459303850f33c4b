"""Journals read by the query service."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from fyrehose_twisted.framing import Unframed
from fyrehose_twisted.journal.store import Journal, open_journal
from fyrehose_twisted.query.records.journals import JournalDirectory, JournalSource
from fyrehose_twisted.record import Record

STREAM = "fyrehose://ticks"


def append(journal: Journal, numbers: range) -> None:
    journal.append([Record(STREAM, 0, number, 1, b"message %d" % number) for number in numbers])
    journal.commit()


def spoil(root: Path, what: bytes) -> None:
    (file,) = root.glob("*/*.log")
    data = bytearray(file.read_bytes())
    data[data.find(what)] ^= 1
    file.write_bytes(data)


def test_damage_at_the_end_of_a_journal_is_counted_once(tmp_path: Path) -> None:
    with closing(open_journal(tmp_path, STREAM)) as journal:
        append(journal, range(1, 11))
        append(journal, range(11, 21))
        spoil(tmp_path, b"message 15")
        sources = JournalDirectory(tmp_path, lambda stream, payloads: Unframed(payloads))
        sources.refresh_all()
        (source,) = sources
        assert isinstance(source, JournalSource)
        for _ in range(3):
            assert source.damages == 1
            source.refresh()
        append(journal, range(21, 31))
        spoil(tmp_path, b"message 25")
        for _ in range(3):
            source.refresh()
            assert source.damages == 2
        source.close()
