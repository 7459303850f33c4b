from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.duplicate_numbers import UnconfirmedNumbers


def test_a_number_is_certain_once_there_is_no_gap_below_it() -> None:
    unsettled = UnconfirmedNumbers()
    unsettled.add(3, 17)
    assert unsettled.take_confirmed(16) == []
    assert unsettled.take_confirmed(17) == [(3, 17)]
    assert (len(unsettled), unsettled.take_confirmed(99)) == (0, [])


def test_a_lower_number_that_comes_later_takes_its_place() -> None:
    unsettled = UnconfirmedNumbers()
    unsettled.add(3, 17)
    unsettled.lower(range(2, 5), 9)
    assert unsettled.take_confirmed(11) == []
    assert unsettled.take_confirmed(17) == [(3, 12)]


def test_a_higher_one_does_not_and_others_are_not_noted() -> None:
    unsettled = UnconfirmedNumbers()
    unsettled.lower(range(10), 5)
    unsettled.add(3, 17)
    unsettled.lower(range(10), 50)
    assert unsettled.take_confirmed(100) == [(3, 17)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(6, 40)), max_size=30))
def test_each_is_settled_once_with_the_lowest_of_its_numbers(arrivals: list[tuple[int, int]]) -> None:
    unsettled, lowest = UnconfirmedNumbers(), dict[int, int]()
    for ticket, sequence in arrivals:
        if ticket in lowest:
            unsettled.lower(range(ticket, ticket + 1), sequence - ticket)
        else:
            unsettled.add(ticket, sequence)
        lowest[ticket] = min(sequence, lowest.get(ticket, sequence))
    assert sorted(unsettled.take_confirmed(40)) == sorted(lowest.items())
