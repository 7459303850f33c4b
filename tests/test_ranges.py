from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, permutations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fyrehose_twisted.ranges import RangeSet

DOMAIN = range(-3, 30)
numbers = st.sampled_from(DOMAIN)
spans = st.tuples(numbers, numbers).map(lambda ends: (min(ends), max(ends)))


def members(ranges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the numbers in ``ranges`` in order, with repetitions."""
    return [number for first, last in ranges for number in range(first, last + 1)]


class RangeSetMachine(RuleBasedStateMachine):
    """A RangeSet compared with a plain set under the same commands."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges = RangeSet()
        self.plain: set[int] = set()

    @rule(span=spans)
    def add(self, span: tuple[int, int]) -> None:
        self.ranges.add(*span)
        self.plain.update(range(span[0], span[1] + 1))

    @rule(number=numbers)
    def add_one(self, number: int) -> None:
        self.ranges.add(number)
        self.plain.add(number)

    @rule(span=spans)
    def discard(self, span: tuple[int, int]) -> None:
        self.ranges.discard(*span)
        self.plain.difference_update(range(span[0], span[1] + 1))

    @rule(number=numbers)
    def discard_one(self, number: int) -> None:
        self.ranges.discard(number)
        self.plain.discard(number)

    @rule()
    def clear(self) -> None:
        self.ranges.clear()
        self.plain.clear()

    @rule(span=spans)
    def intersect(self, span: tuple[int, int]) -> None:
        wanted = range(span[0], span[1] + 1)
        assert members(self.ranges.intersection(*span)) == sorted(self.plain.intersection(wanted))

    @rule(span=spans)
    def find_gaps(self, span: tuple[int, int]) -> None:
        wanted = range(span[0], span[1] + 1)
        gaps = list(self.ranges.gaps(*span))
        assert members(gaps) == sorted(set(wanted) - self.plain)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(gaps))

    @invariant()
    def has_the_same_members(self) -> None:
        assert [number for number in DOMAIN if number in self.ranges] == sorted(self.plain)
        assert members(self.ranges) == sorted(self.plain)

    @invariant()
    def counts_numbers_and_ranges(self) -> None:
        assert self.ranges.count == len(self.plain)
        assert len(self.ranges) == len(list(self.ranges))

    @invariant()
    def is_sorted_disjoint_and_not_adjacent(self) -> None:
        ranges = list(self.ranges)
        assert all(first <= last for first, last in ranges)
        assert all(last + 1 < first for (_, last), (first, _) in pairwise(ranges))

    @invariant()
    def knows_its_ends(self) -> None:
        if self.plain:
            assert (self.ranges.first, self.ranges.last) == (min(self.plain), max(self.plain))

    @invariant()
    def equals_a_set_built_from_its_ranges_and_no_other(self) -> None:
        assert self.ranges == RangeSet(self.ranges)
        assert self.ranges != RangeSet([*self.ranges, (1_000, 1_000)])

    @invariant()
    def finds_the_range_of_each_member_and_none_elsewhere(self) -> None:
        found = [self.ranges.range_of(number) for number in DOMAIN]
        holders = {number: ends for ends in self.ranges for number in members([ends])}
        assert found == [holders.get(number) for number in DOMAIN]


TestRangeSet = RangeSetMachine.TestCase


@pytest.mark.parametrize("ranges", list(permutations([(1, 2), (3, 3), (5, 9), (7, 11)])))
def test_a_range_set_does_not_depend_on_the_order_of_additions(ranges: list[tuple[int, int]]) -> None:
    assert list(RangeSet(ranges)) == [(1, 3), (5, 11)]


def test_a_new_range_set_is_empty() -> None:
    ranges = RangeSet()
    assert (list(ranges), len(ranges), ranges.count) == ([], 0, 0)
    assert list(ranges.gaps(1, 3)) == [(1, 3)]


@pytest.mark.parametrize("end", ["first", "last"])
def test_an_empty_range_set_has_no_ends(end: str) -> None:
    with pytest.raises(IndexError):
        getattr(RangeSet(), end)


def test_adding_an_empty_range_is_an_error_without_effect() -> None:
    ranges = RangeSet([(1, 3)])
    with pytest.raises(ValueError, match=r"range 9\.\.8 is empty"):
        ranges.add(9, 8)
    assert (list(ranges), ranges.count) == ([(1, 3)], 3)


def test_a_range_set_cannot_contain_an_empty_range() -> None:
    with pytest.raises(ValueError, match=r"range 2\.\.1 is empty"):
        RangeSet([(2, 1)])


@pytest.mark.parametrize("other", [(1, 4), (2, 3), (1, 2)])
def test_range_sets_differ_if_either_end_differs(other: tuple[int, int]) -> None:
    assert RangeSet([(1, 3)]) != RangeSet([other])


def test_a_range_set_equals_no_other_type() -> None:
    assert RangeSet([(1, 1)]) != [(1, 1)]
    assert RangeSet() != set()


def test_a_range_set_is_not_hashable() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(RangeSet())


def test_the_repr_of_a_range_set_evaluates_to_it() -> None:
    ranges = RangeSet([(1, 3), (5, 5)])
    assert repr(ranges) == "RangeSet([(1, 3), (5, 5)])"


def test_a_huge_range_uses_no_more_memory_than_a_small_one() -> None:
    end = 2**48 - 1
    ranges = RangeSet([(0, end)])
    ranges.discard(2**40, 2**41 - 1)
    ranges.discard(5)
    assert ranges.count == 2**48 - 2**40 - 1
    assert list(ranges) == [(0, 4), (6, 2**40 - 1), (2**41, end)]
    assert list(ranges.gaps(0, end)) == [(5, 5), (2**40, 2**41 - 1)]
    ranges.add(0, end)
    assert (len(ranges), ranges.count) == (1, 2**48)
