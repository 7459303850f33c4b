from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.journal.block import (
    Block,
    integer_limits,
    integer_ranges,
    join_blocks,
    merge_blocks,
    position_ranges,
)
from fyrehose_twisted.record import Record

STREAM = "fyrehose://test"
positions_of_a_block = st.sets(st.integers(0, 40), min_size=1).map(sorted)


def block(positions: Sequence[int], payloads: Sequence[bytes] | None = None, *, time: int = 0, wrap: int = 0) -> Block:
    """Return records with their numbers as payloads, received at ``time`` + n."""
    if payloads is None:
        payloads = [b"%d" % position for position in positions]
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.uint32)
    times = np.array([time + position % 2**32 for position in positions], np.int64)
    return Block(
        STREAM, 3, np.array(positions, np.uint64), times, offsets, memoryview(b"".join(payloads) + b"more"), wrap
    )


def contents(one: Block) -> dict[int, tuple[int, bytes]]:
    return dict(zip(one.positions.tolist(), zip(one.times.tolist(), one.payloads(), strict=True), strict=True))


def test_records_returns_each_record_of_a_block() -> None:
    one = block([4, 7], [b"", b"seven"])
    assert list(one.records()) == [Record(STREAM, 3, 4, 4, b""), Record(STREAM, 3, 7, 7, b"seven")]
    assert (len(one), one.first, one.last) == (2, 4, 7)


def test_record_columns_are_the_records_of_a_block() -> None:
    one = block([2**63 - 1, 2**63, 2**63 + 5], wrap=2**63)
    assert one.record_columns() == list(one.records())


@pytest.mark.parametrize("count", [1, 3, 100])
def test_integer_limits_are_the_lowest_and_the_highest_number(count: int) -> None:
    numbers = [(7 * n + 5) % 101 for n in range(count)]
    expected = min(numbers), max(numbers)
    assert integer_limits(numbers) == integer_limits(array("q", numbers)) == expected
    assert integer_limits(range(4, 4 + count)) == (4, 3 + count)


def test_sequences_wrap_but_positions_do_not() -> None:
    one = block([2**63 - 1, 2**63, 2**63 + 5], wrap=2**63)
    assert one.sequences.tolist() == [2**63 - 1, 0, 5]
    assert one.positions.tolist() == [2**63 - 1, 2**63, 2**63 + 5]
    assert [record.sequence for record in one.records()] == [2**63 - 1, 0, 5]
    assert [record.sequence for record in one.rows(1, 2).records()] == [0]
    assert block([5, 9]).sequences.tolist() == [5, 9]


@given(positions_of_a_block, st.integers(-3, 45), st.integers(-3, 45))
def test_within_returns_the_records_of_a_range(positions: list[int], first: int, last: int) -> None:
    first, last = max(first, 0), max(last, 0)
    part = block(positions).within(first, last)
    expected = [position for position in positions if first <= position <= last]
    assert list(contents(part)) == expected
    assert part.payloads() == [b"%d" % position for position in expected]


def test_within_returns_the_block_itself_for_its_whole_range() -> None:
    one = block([4, 7])
    assert one.within(4, 7) is one
    assert one.within(0, 2**64) is one


@given(positions_of_a_block, st.integers(0, 45))
def test_row_of_finds_the_row_of_a_position(positions: list[int], position: int) -> None:
    row = block(positions).row_of(position)
    assert row == (positions.index(position) if position in positions else None)


@given(st.lists(positions_of_a_block, min_size=1, max_size=5))
def test_merge_prefers_the_record_of_the_latest_block(lists: list[list[int]]) -> None:
    blocks = [
        block(positions, [b"%d of %d" % (position, index) * (position % 3) for position in positions], time=100 * index)
        for index, positions in enumerate(lists)
    ]
    expected: dict[int, tuple[int, bytes]] = {}
    for one in blocks:
        expected.update(contents(one))
    whole = merge_blocks(blocks)
    assert contents(whole) == expected
    assert whole.positions.tolist() == sorted(expected)
    assert (whole.stream, whole.epoch) == (STREAM, 3)
    assert (whole.offsets[0], whole.offsets[-1]) == (0, len(whole.payload))


def test_merge_accepts_slices_of_blocks() -> None:
    one, other = block([1, 2, 3, 4]).rows(1, 3), block([2, 5, 6], [b"two", b"", b"six"]).rows(0, 2)
    assert contents(merge_blocks([one, other])) == {2: (2, b"two"), 3: (3, b"3"), 5: (5, b"")}


def test_join_concatenates_consecutive_blocks() -> None:
    parts = [block([1, 2, 3, 4]).rows(1, 3), block([7], [b"seven"]), block([8, 9], [b"", b"nine"], wrap=9)]
    whole = join_blocks(parts)
    assert contents(whole) == {2: (2, b"2"), 3: (3, b"3"), 7: (7, b"seven"), 8: (8, b""), 9: (9, b"nine")}
    assert (whole.stream, whole.epoch) == (STREAM, 3)
    assert join_blocks(parts[1:2]) is parts[1]
    bare = join_blocks(parts, payload=False)
    assert contents(bare) == {2: (2, b""), 3: (3, b""), 7: (7, b""), 8: (8, b""), 9: (9, b"")}
    assert join_blocks([block([5], wrap=6), block([6], wrap=6)]).sequences.tolist() == [5, 0]


def test_merge_keeps_the_wrap() -> None:
    assert merge_blocks([block([5], wrap=6), block([6], wrap=6)]).sequences.tolist() == [5, 0]


@given(st.sets(st.one_of(st.integers(0, 30), st.integers(2**64 - 20, 2**64 - 1)), min_size=1).map(sorted))
def test_position_ranges_returns_consecutive_runs(positions: list[int]) -> None:
    runs = position_ranges(np.array(positions, np.uint64))
    assert [number for first, last in runs for number in range(first, last + 1)] == positions
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(runs))
    assert integer_ranges(positions) == runs


@pytest.mark.parametrize(("positions", "runs"), [([], []), ([5], [(5, 5)]), ([5, 6, 7], [(5, 7)])])
def test_integer_ranges_of_few_positions(positions: list[int], runs: list[tuple[int, int]]) -> None:
    assert integer_ranges(positions) == runs
