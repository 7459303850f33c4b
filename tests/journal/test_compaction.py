from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal import compaction as reorder_module
from fyrehose_twisted.journal.block import Block
from fyrehose_twisted.journal.catalog import Catalog
from fyrehose_twisted.journal.compaction import compact, repack, temporary_name
from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.store import Journal
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"

NewPath = Callable[[], Path]


def written(path: Path, rng: Random) -> Journal:
    """Return a journal with unordered, replaced and lost records."""
    journal = Journal(LocalDirectory(path), STREAM, tag=5, clock=lambda: 9.0)
    journal.begin(0, 0)
    journal.begin(1, 3)
    for _ in range(12):
        epoch, low = rng.randrange(2), rng.choice([5, 20, 10_000])
        numbers = rng.sample(range(low, low + 30), rng.randrange(1, 20))
        journal.append([Record(STREAM, epoch, number, rng.randrange(10**9), rng.randbytes(9)) for number in numbers])
        journal.lose(epoch, low + 40, low + 40 + rng.randrange(9))
        journal.commit()
    return journal


def contents(segment: Segment) -> dict[int, list[Record]]:
    catalog = Catalog(segment.directory, STREAM, 0, 5)
    catalog.segments[1] = segment
    found = {
        epoch: [record for block in catalog.read(epoch, 0, 2**63) for record in block.records()]
        for epoch in segment.frame_indexes
    }
    catalog.close()
    return found


def installed(directory: LocalDirectory, segment: Segment) -> Segment:
    directory.rename(temporary_name(segment.number), segment.name)
    return segment


@given(seed=st.integers(0, 2**32), frame_records=st.integers(1, 40))
def test_compaction_changes_only_the_order(new_path: NewPath, seed: int, frame_records: int) -> None:
    path = new_path()
    journal = written(path, Random(seed))
    journal.close()
    directory, old = LocalDirectory(path), journal.catalog.segments[1]
    new = installed(directory, compact(directory, old, frame_records))
    assert contents(new) == contents(old)
    assert (new.starts, new.lost, new.damages) == (old.starts, old.lost, [])
    assert new.newest == max(record.received_at for records in contents(old).values() for record in records)
    assert new.end == (path / new.name).stat().st_size
    for shelf in new.frame_indexes.values():
        frames = list(shelf)
        assert all(one.last < other.base for one, other in pairwise(frames))
        assert [one.offset for one in frames] == sorted(one.offset for one in frames)
        assert all(frame_records <= one.entries < 2 * frame_records for one in frames[:-1])
    walked = Segment(directory, new.header, ".seg")
    walked.read_appended(directory.open(new.name), new.end)
    assert [list(shelf) for shelf in walked.frame_indexes.values()] == [
        list(shelf) for shelf in new.frame_indexes.values()
    ]


def test_compaction_can_be_repeated(tmp_path: Path) -> None:
    journal = written(tmp_path, Random(3))
    journal.close()
    directory, old = LocalDirectory(tmp_path), journal.catalog.segments[1]
    compact(directory, old, 7)
    once = (tmp_path / temporary_name(1)).read_bytes()
    (tmp_path / temporary_name(1)).write_bytes(b"what a crash left")
    new = installed(directory, compact(directory, old, 7))
    assert (tmp_path / new.name).read_bytes() == once
    assert contents(compact(directory, new, 7)) == contents(old)


def test_compaction_writes_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = written(tmp_path, Random(3))
    journal.close()
    directory, old = LocalDirectory(tmp_path), journal.catalog.segments[1]
    compact(directory, old, 3)
    whole = (tmp_path / temporary_name(1)).read_bytes()
    monkeypatch.setattr(reorder_module, "WRITE_CHUNK", 100)
    compact(directory, old, 3)
    assert (tmp_path / temporary_name(1)).read_bytes() == whole


def block(positions: list[int], size: int = 0) -> Block:
    count = len(positions)
    offsets = np.arange(count + 1, dtype=np.uint32) * np.uint32(size)
    return Block(
        STREAM, 0, np.array(positions, np.uint64), np.zeros(count, np.int64), offsets, memoryview(bytes(count * size))
    )


def test_few_records_are_packed_into_one_frame() -> None:
    assert [one.positions.tolist() for one in repack([block([1]), block([3, 4])], 100)] == [[1, 3, 4]]
    assert list(repack([], 100)) == []


def test_large_blocks_are_split_into_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reorder_module, "FRAME_BYTES", 1_000)
    found = list(repack([block(list(range(16)), 500), block([20], 10_000), block([30], 1)], 4_096))
    assert [position for one in found for position in one.positions.tolist()] == [*range(16), 20, 30]
    assert all(len(one) * 500 <= 2_000 for one in found[:-2])


def test_distant_positions_are_split_into_frames() -> None:
    found = list(repack([block([0, 1]), block([2**32, 2**32 + 1, 2**33])], 100))
    assert [position for one in found for position in one.positions.tolist()] == [0, 1, 2**32, 2**32 + 1, 2**33]
    assert all(one.last - one.first < 2**32 for one in found)
