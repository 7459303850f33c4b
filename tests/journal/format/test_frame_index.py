from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.format.frame_index import FrameIndex
from fyrehose_twisted.journal.format.frames import DENSE, FrameHeader, FrameKind
from fyrehose_twisted.ranges import RangeSet

positions_of_frames = st.lists(st.sets(st.integers(0, 60), min_size=1, max_size=10).map(sorted), max_size=12)


def header(positions: list[int], offset: int) -> FrameHeader:
    span = positions[-1] - positions[0]
    flags = DENSE if span == len(positions) - 1 else 0
    return FrameHeader(FrameKind.RECORDS, flags, len(positions), 8, positions[0], 0, span, 1, offset, 0, 0, 0)


def filled(frames: list[list[int]]) -> FrameIndex:
    shelf = FrameIndex()
    for offset, positions in enumerate(frames):
        shelf.add(header(positions, offset), np.array(positions, np.uint64))
    return shelf


@given(positions_of_frames, st.integers(-1, 61), st.integers(0, 61))
def test_covering_finds_the_frames_that_overlap_a_range(frames: list[list[int]], first: int, length: int) -> None:
    shelf, last = filled(frames), first + length
    expected = {offset for offset, some in enumerate(frames) if some[0] <= last and some[-1] >= first}
    found = shelf.covering(first, last)
    assert {one.offset for one in found} == expected
    assert [one.base for one in found] == sorted(one.base for one in found)


@given(positions_of_frames)
def test_index_knows_the_positions_that_it_holds(frames: list[list[int]]) -> None:
    shelf = filled(frames)
    assert shelf.held == RangeSet((number, number) for some in frames for number in some)
    assert len(shelf) == len(frames)
    assert shelf.records == sum(map(len, frames))
    if frames:
        assert (shelf.first, shelf.last) == (min(some[0] for some in frames), max(some[-1] for some in frames))


@given(positions_of_frames)
def test_index_can_be_restored_from_its_headers(frames: list[list[int]]) -> None:
    shelf, other = filled(frames), FrameIndex()
    other.restore(list(shelf), shelf.held)
    assert list(other) == list(shelf)
    assert other.held == shelf.held
    assert [other.covering(number, number) for number in range(62)] == [
        shelf.covering(number, number) for number in range(62)
    ]


def test_frames_with_equal_base_keep_their_order() -> None:
    shelf = filled([[5, 9], [1, 2], [5, 6], [5]])
    assert [one.offset for one in shelf] == [1, 0, 2, 3]


def test_dense_frame_needs_no_positions() -> None:
    shelf = FrameIndex()
    shelf.add(header([3, 4, 5], 0))
    assert list(shelf.held) == [(3, 5)]
