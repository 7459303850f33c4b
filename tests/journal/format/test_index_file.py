from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.format.disk import LocalDirectory
from fyrehose_twisted.journal.format.index_file import encode, restore
from fyrehose_twisted.journal.format.segment import Segment
from fyrehose_twisted.journal.segment_loader import OpenSegment, load_segment, open_segment
from fyrehose_twisted.journal.store import Journal, JournalConfig
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"

NewPath = Callable[[], Path]


def written(path: Path, rng: Random, tag: int = 5, groups: int = 8) -> LocalDirectory:
    """Return a journal whose first segment is compacted and has frames of every kind."""
    directory = LocalDirectory(path)
    journal = Journal(directory, STREAM, tag=tag, config=JournalConfig(frame_records=4), clock=lambda: 9.0)
    journal.begin(0, 0)
    for _ in range(groups):
        epoch, low = rng.randrange(3), rng.randrange(5_000)
        numbers = rng.sample(range(low, low + 20), rng.randrange(1, 9))
        journal.append([Record(STREAM, epoch, number, rng.randrange(10**9), bytes(number % 7)) for number in numbers])
        if rng.random() < 0.4:
            journal.lose(epoch, low + 30, low + 30 + rng.randrange(4))
        journal.commit()
    journal.roll()
    journal.compact()
    journal.close()
    return directory


def opened(directory: LocalDirectory) -> OpenSegment:
    one = open_segment(directory, 1, ".seg")
    assert isinstance(one, OpenSegment)
    return one


def loaded(directory: LocalDirectory, *, keep_index: bool = False) -> Segment:
    one = opened(directory)
    load_segment(one, keep_index=keep_index)
    return one.segment


def knowledge(segment: Segment) -> dict[str, Any]:
    return {
        "frames": {epoch: list(shelf) for epoch, shelf in segment.frame_indexes.items()},
        "held": {epoch: list(shelf.held) for epoch, shelf in segment.frame_indexes.items()},
        "reach": {epoch: shelf.covering(0, 3_000) for epoch, shelf in segment.frame_indexes.items()},
        "lost": {epoch: list(lost) for epoch, lost in segment.lost.items()},
        "starts": segment.starts,
        "end": segment.end,
        "newest": segment.newest,
        "count": segment.frames,
        "last": segment.last,
        "records": segment.records,
        "damages": segment.damages,
    }


@given(seed=st.integers(0, 2**32))
def test_an_index_file_equals_a_scan_of_its_segment(new_path: NewPath, seed: int) -> None:
    directory = written(new_path(), Random(seed))
    walked = opened(directory).segment
    walked.read_appended(directory.open("0000000001.seg"), directory.open("0000000001.seg").size())
    restored = opened(directory).segment
    data = (directory.path / "0000000001.idx").read_bytes()
    assert restore(restored, data)
    assert knowledge(restored) == knowledge(walked)
    assert encode(walked) == data


@pytest.fixture
def directory(tmp_path: Path) -> LocalDirectory:
    return written(tmp_path, Random(1))


def test_an_index_file_replaces_the_scan_of_its_segment(directory: LocalDirectory) -> None:
    before = knowledge(loaded(directory))
    path = directory.path / "0000000001.seg"
    data = bytearray(path.read_bytes())
    data[80] ^= 1
    path.write_bytes(data)
    assert knowledge(loaded(directory)) == before
    (directory.path / "0000000001.idx").unlink()
    assert loaded(directory).damages


def test_a_missing_index_file_is_rebuilt_on_request(directory: LocalDirectory) -> None:
    path = directory.path / "0000000001.idx"
    data = path.read_bytes()
    path.unlink()
    before = knowledge(loaded(directory))
    assert not path.exists()
    assert knowledge(loaded(directory, keep_index=True)) == before
    assert path.read_bytes() == data


def test_every_damage_of_an_index_file_is_detected(directory: LocalDirectory) -> None:
    path = directory.path / "0000000001.idx"
    data, right = path.read_bytes(), knowledge(loaded(directory))
    for index in range(len(data)):
        path.write_bytes(data[:index] + bytes([data[index] ^ 0x20]) + data[index + 1 :])
        assert not restore(opened(directory).segment, path.read_bytes())
        path.write_bytes(data[:index])
        assert not restore(opened(directory).segment, path.read_bytes())
    for wrong in (b"", data[:20], data + b"\0", bytes(len(data)), data[:-1] + bytes([data[-1] ^ 1])):
        path.write_bytes(wrong)
        assert knowledge(loaded(directory, keep_index=True)) == right
        assert path.read_bytes() == data


def test_an_index_file_of_another_journal_is_ignored(directory: LocalDirectory, new_path: NewPath) -> None:
    right = knowledge(loaded(directory))
    other = written(new_path(), Random(1), tag=6)
    theirs = (other.path / "0000000001.idx").read_bytes()
    assert len(theirs) == (directory.path / "0000000001.idx").stat().st_size
    (directory.path / "0000000001.idx").write_bytes(theirs)
    assert knowledge(loaded(directory)) == right


def test_an_index_file_of_a_shorter_segment_is_ignored(directory: LocalDirectory, new_path: NewPath) -> None:
    right = knowledge(loaded(directory))
    other = written(new_path(), Random(1), groups=4)
    (directory.path / "0000000001.idx").write_bytes((other.path / "0000000001.idx").read_bytes())
    assert knowledge(loaded(directory)) == right


def test_no_index_file_is_written_for_a_damaged_segment(directory: LocalDirectory) -> None:
    (directory.path / "0000000001.idx").unlink()
    path = directory.path / "0000000001.seg"
    path.write_bytes(path.read_bytes()[:-8])
    assert loaded(directory, keep_index=True).damages
    assert not (directory.path / "0000000001.idx").exists()
