from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.fyrehose.node.client.publishing.duplicate_numbers import UnconfirmedNumbers


def test_a_number_is_confirmed_once_no_gap_is_below_it() -> None:
    unconfirmed = UnconfirmedNumbers()
    unconfirmed.add(3, 17)
    assert unconfirmed.take_confirmed(16) == []
    assert unconfirmed.take_confirmed(17) == [(3, 17)]
    assert (len(unconfirmed), unconfirmed.take_confirmed(99)) == (0, [])


def test_a_lower_number_replaces_an_unconfirmed_one() -> None:
    unconfirmed = UnconfirmedNumbers()
    unconfirmed.add(3, 17)
    unconfirmed.lower(range(2, 5), 9)
    assert unconfirmed.take_confirmed(11) == []
    assert unconfirmed.take_confirmed(17) == [(3, 12)]


def test_a_higher_number_or_one_of_another_ticket_is_ignored() -> None:
    unconfirmed = UnconfirmedNumbers()
    unconfirmed.lower(range(10), 5)
    unconfirmed.add(3, 17)
    unconfirmed.lower(range(10), 50)
    assert unconfirmed.take_confirmed(100) == [(3, 17)]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(6, 40)), max_size=30))
def test_each_ticket_is_confirmed_once_with_its_lowest_number(arrivals: list[tuple[int, int]]) -> None:
    unconfirmed, lowest = UnconfirmedNumbers(), dict[int, int]()
    for ticket, sequence in arrivals:
        if ticket in lowest:
            unconfirmed.lower(range(ticket, ticket + 1), sequence - ticket)
        else:
            unconfirmed.add(ticket, sequence)
        lowest[ticket] = min(sequence, lowest.get(ticket, sequence))
    assert sorted(unconfirmed.take_confirmed(40)) == sorted(lowest.items())
