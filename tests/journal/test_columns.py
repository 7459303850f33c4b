"""Records appended as columns."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.commit_group import RejectedRecord
from fyrehose_twisted.journal.memory import MemoryJournal
from fyrehose_twisted.journal.record_columns import RecordColumns
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.record import Record
from fyrehose_twisted.sim.disk.disk import Disk

STREAM = "fyrehose://test"
WRAP = 64


def shuffled(numbers: range) -> list[int]:
    """Return the numbers with the even ones first."""
    return [*numbers[::2], *numbers[1::2]]


rows = st.lists(st.tuples(st.integers(0, 2**63 - 1), st.binary(max_size=2)), min_size=1, max_size=5)
runs = st.tuples(
    st.integers(0, 1),
    st.none() | st.integers(0, 9),
    rows | rows.map(lambda few: 20 * few),
    st.sampled_from([iter, list, reversed, shuffled]),
)
steps = st.lists(runs | st.sampled_from(["commit", "commit unsynced"]), max_size=10)


class Script:
    """Runs of a test, of which some follow the last one."""

    def __init__(self, wrap: int) -> None:
        self.wrap = wrap
        self.following = 0

    def columns(self, epoch: int, first: int | None, rows: Any, order: Any) -> RecordColumns:
        if first is None:
            first = self.following
        numbers = range(first, min(first + len(rows), self.wrap or 2**63))
        self.following = numbers.stop % (self.wrap or 2**63)
        sequences = numbers if order is iter else list(order(numbers))
        times, payloads = zip(*rows[: len(numbers)], strict=True)
        return RecordColumns(STREAM, epoch, sequences, array("q", times), payloads)


def contents(journal: Any) -> list[Any]:
    found: list[Any] = []
    for epoch in journal.epochs():
        bounds = journal.bounds(epoch)
        blocks = journal.read(epoch, bounds.first, bounds.last)
        found += [bounds, *(record for block in blocks for record in block.records())]
    return found


@given(steps, st.sampled_from([0, WRAP]), st.booleans())
def test_columns_are_stored_with_the_same_bytes_as_records(what: list[Any], wrap: int, authoritative: bool) -> None:
    disks = [Disk(Random(1)) for _ in range(2)]
    stored = [Journal(disk, STREAM, wrap=wrap, tag=1, clock=lambda: 5.0) for disk in disks]
    in_memory = [MemoryJournal(STREAM, wrap=wrap) for _ in range(2)]
    script = Script(wrap)
    for step in what:
        given_columns = None if isinstance(step, str) else script.columns(*step)
        for one, other in (stored, in_memory):
            if given_columns is None:
                for each in (one, other):
                    each.commit(step == "commit")
            else:
                taken = one.append(given_columns, authoritative=authoritative)
                assert taken == other.append(list(given_columns), authoritative=authoritative)
            assert one.counters == other.counters
            assert contents(one) == contents(other)
    for journal in (*stored, *in_memory):
        journal.close()
    files = [{name: read(disk, name) for name in disk.names() if name != "lock"} for disk in disks]
    assert files[0] == files[1]


def read(disk: Disk, name: str) -> bytes:
    file = disk.open(name)
    try:
        return bytes(file.read(0, file.size()))
    finally:
        file.close()


@pytest.mark.parametrize(
    "rejected",
    [
        RecordColumns("fyrehose://other", 0, range(2), (1, 1), (b"", b"")),
        RecordColumns(STREAM, 0, range(-1, 1), (1, 1), (b"", b"")),
        RecordColumns(STREAM, 0, [2**63], (1,), (b"",)),
        RecordColumns(STREAM, 0, [1], (-1,), (b"",)),
        RecordColumns(STREAM, -1, [1], (1,), (b"",)),
    ],
)
def test_columns_out_of_range_are_rejected(rejected: RecordColumns) -> None:
    journal = MemoryJournal(STREAM)
    with pytest.raises(RejectedRecord):
        journal.append(rejected)
    assert journal.append(RecordColumns(STREAM, 0, range(0), (), ())) == 0
    assert journal.append([Record(STREAM, 0, 0, 1, b"")]) == 1
