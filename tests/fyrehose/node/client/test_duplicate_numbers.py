from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.duplicate_numbers import Unsettled


def test_a_number_is_certain_once_there_is_no_gap_below_it() -> None:
    unsettled = Unsettled()
    unsettled.add(3, 17)
    assert unsettled.settled(16) == []
    assert unsettled.settled(17) == [(3, 17)]
    assert (len(unsettled), unsettled.settled(99)) == (0, [])


def test_a_lower_number_that_comes_later_takes_its_place() -> None:
    unsettled = Unsettled()
    unsettled.add(3, 17)
    unsettled.seen(range(2, 5), 9)
    assert unsettled.settled(11) == []
    assert unsettled.settled(17) == [(3, 12)]


def test_a_higher_one_does_not_and_others_are_not_noted() -> None:
    unsettled = Unsettled()
    unsettled.seen(range(10), 5)
    unsettled.add(3, 17)
    unsettled.seen(range(10), 50)
    assert unsettled.settled(100) == [(3, 17)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(6, 40)), max_size=30))
def test_each_is_settled_once_with_the_lowest_of_its_numbers(arrivals: list[tuple[int, int]]) -> None:
    unsettled, lowest = Unsettled(), dict[int, int]()
    for ticket, sequence in arrivals:
        if ticket in lowest:
            unsettled.seen(range(ticket, ticket + 1), sequence - ticket)
        else:
            unsettled.add(ticket, sequence)
        lowest[ticket] = min(sequence, lowest.get(ticket, sequence))
    assert sorted(unsettled.settled(40)) == sorted(lowest.items())
