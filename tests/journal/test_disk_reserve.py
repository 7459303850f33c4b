from __future__ import annotations

from random import Random

import pytest

from fyrehose_twisted.journal.errors import JournalFull
from fyrehose_twisted.journal.format.disk_reserve import RESERVE_NAME
from fyrehose_twisted.journal.retention import Retention
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk

STREAM = "fyrehose://full"


def start(disk: Disk, keep: int | None = None) -> Journal:
    return Journal(disk, STREAM, config=JournalConfig(segment_bytes=2_000, retention=Retention(size=keep)))


def append(journal: Journal, number: int) -> None:
    journal.append([Record(STREAM, 0, number, number, bytes(500))])
    journal.commit()


@pytest.fixture
def full() -> Disk:
    """Return a disk filled completely by a journal of ten segments."""
    disk = Disk(Random(1))
    journal = start(disk)
    for number in range(40):
        append(journal, number)
    disk.fill()
    with pytest.raises(JournalFull):
        append(journal, 40)
    disk.process_killed()
    return disk


def test_retention_runs_on_a_completely_full_disk(full: Disk) -> None:
    journal = start(full, keep=10_000)
    with pytest.raises(JournalFull):
        append(journal, 40)
    assert journal.trim() > 0
    journal.commit()
    bounds = journal.bounds(0)
    assert bounds is not None
    assert (bounds.first > 20, bounds.next) == (True, 41)
    assert RESERVE_NAME in full.names()
    journal.close()


def test_retention_without_a_reserve_fails_harmlessly_on_a_full_disk(full: Disk) -> None:
    full.remove(RESERVE_NAME)
    full.fill()
    journal = start(full, keep=10_000)
    with pytest.raises(JournalFull):
        journal.trim()
    bounds = journal.bounds(0)
    assert bounds is not None
    assert (bounds.first, bounds.next) == (0, 40)
    blocks = journal.read(0, 0, 39)
    assert [record.sequence for block in blocks for record in block.records()] == list(range(40))
