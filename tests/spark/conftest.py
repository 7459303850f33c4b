"""Fixtures of journals for tests of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from suite.journals import WriteJournal

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.layout import make_directory
from fyrehose_twisted.journal.remote.client import RemoteReader
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record
from fyrehose_twisted.spark.source import journal_locations

if TYPE_CHECKING:
    pass

STREAM = "fyrehose://test"
START = 1_700_000_000_000_000
"""Receive time of the first record, in microseconds since 1970."""


@pytest.fixture(autouse=True)
def forget_readers() -> Iterator[None]:
    """Close the readers that this process caches for later tasks, like a Spark worker."""
    yield
    from fyrehose_twisted.spark.verify import replica

    for kept in (journal_locations._readers, journal_locations._remotes, replica._past_damage):
        for one in kept.values():
            if not isinstance(one, RemoteReader):  # A RemoteReader uses the connection of its RemoteJournal.
                one.close()
        kept.clear()


@pytest.fixture
def write_journal(tmp_path: Path) -> WriteJournal:
    """Return a function that writes a journal and returns the directory of its stream.

    ``write_journal(records, lost=[(first, last)], stream=..., epoch=0, begin=1, segment_bytes=...)``, where records
    are numbers, or pairs of number and payload, or :class:`Record` objects; ``path`` adds to one that is there.
    """
    names = count(1)

    def write(
        records: Sequence[Any],
        *,
        lost: Sequence[tuple[int, int]] = (),
        stream: str = STREAM,
        epoch: int = 0,
        begin: int | None = None,
        group: int = 1_000,
        path: Path | None = None,
        segment_bytes: int = 64 * 2**20,
    ) -> Path:
        if path is None:
            root = tmp_path / f"journal-{next(names)}"
            root.mkdir()
            path = make_directory(root, stream)
        config = JournalConfig(segment_bytes=segment_bytes)
        with closing(Journal(LocalDirectory(path), stream, config=config)) as journal:
            if begin is not None:
                journal.begin(epoch, begin)
            made = [_record(one, stream, epoch) for one in records]
            for low in range(0, len(made), group):
                journal.append(made[low : low + group], authoritative=True)
                journal.commit()
            for first, last in lost:
                journal.lose(epoch, first, last)
            journal.commit()
        return path

    return write


def _record(one: Any, stream: str, epoch: int) -> Record:
    if isinstance(one, Record):
        return one
    number, payload = one if isinstance(one, tuple) else (one, b"message %d" % one)
    return Record(stream, epoch, number, START + number * 1_000, payload)
