from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fyrehose_twisted.sealing import replay
from fyrehose_twisted.sealing.replay import REPLAY_WINDOW, ReplayTable

PUBLISHERS = [bytes([number]) * 16 for number in range(4)]
ANNA, BEN, CLEO, _ = PUBLISHERS

arrivals = st.lists(
    st.tuples(st.sampled_from(PUBLISHERS), st.integers(0, 40), st.integers(0, 3)), min_size=1, max_size=80
)


@given(arrivals, st.integers(1, 4), st.integers(1, 4))
def test_nothing_is_admitted_twice_however_little_is_remembered(
    given_: list[tuple[bytes, int, int]], windows: int, gaps: int
) -> None:
    table = ReplayTable(windows, gaps)
    # The time of a message is authenticated, so each has one.
    times: dict[tuple[bytes, int], int] = {}
    admitted = set()
    for publisher, counter, at in given_:
        key = publisher, counter
        if table.admit(publisher, counter, times.setdefault(key, at)):
            assert key not in admitted
            admitted.add(key)
        assert len(table) <= windows


@given(st.permutations(range(40)))
def test_all_messages_in_the_window_are_admitted_in_any_order(order: list[int]) -> None:
    table = ReplayTable()
    assert all(table.admit(ANNA, counter, 1) for counter in order)
    assert not any(table.admit(ANNA, counter, 1) for counter in order)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=60), st.integers(0, 60))
def test_a_restored_table_decides_alike(counters: list[int], cut: int) -> None:
    whole, before, after = ReplayTable(), ReplayTable(), ReplayTable()
    first = [before.admit(ANNA, counter, 1) for counter in counters[:cut]]
    for window in before.state():
        after.restore(window)
    rest = [after.admit(ANNA, counter, 1) for counter in counters[cut:]]
    assert [whole.admit(ANNA, counter, 1) for counter in counters] == first + rest


def test_messages_before_the_window_are_not_admitted() -> None:
    table = ReplayTable()
    assert table.admit(ANNA, REPLAY_WINDOW + 10, 1)
    assert not table.admit(ANNA, 9, 1)
    assert table.admit(ANNA, 10, 1)
    assert table.admit(ANNA, 2 * REPLAY_WINDOW + 10, 1)
    assert not table.admit(ANNA, REPLAY_WINDOW + 9, 1)
    assert table.admit(ANNA, REPLAY_WINDOW + 11, 1)


def test_a_jump_beyond_the_window_takes_no_memory() -> None:
    table = ReplayTable()
    assert table.admit(ANNA, 0, 1)
    assert table.admit(ANNA, 2**64 - 1, 1)
    [state] = table.state()
    assert state.missing == ((2**64 - 1 - REPLAY_WINDOW, 2**64 - 2),)


def test_an_evicted_publisher_goes_on_with_newer_messages() -> None:
    table = ReplayTable(max_windows=2)
    assert table.admit(ANNA, 0, 10)
    assert table.admit(BEN, 0, 20)
    assert table.admit(CLEO, 0, 30)
    assert ANNA not in table
    assert table.floor == 10
    assert not table.admit(ANNA, 0, 10)
    assert not table.admit(ANNA, 1, 10)
    assert table.admit(ANNA, 2, 11)


def test_the_publisher_heard_last_is_kept() -> None:
    table = ReplayTable(max_windows=2)
    for publisher, counter in ((ANNA, 0), (BEN, 0), (ANNA, 1), (CLEO, 0)):
        assert table.admit(publisher, counter, 10)
    assert ANNA in table
    assert BEN not in table


def test_the_gaps_of_all_publishers_are_bounded() -> None:
    table = ReplayTable(max_gaps=10)
    for publisher in (ANNA, BEN):
        for counter in range(0, 200, 2):
            table.admit(publisher, counter, 1)
    assert sum(len(state.missing) for state in table.state()) <= 10
    [state] = table.state()
    assert state.missing[-1] == (197, 197)


def test_a_publisher_may_have_no_more_in_flight_than_half_a_window() -> None:
    from fyrehose_twisted.fyrehose.wire.envelope import COUNTER_WINDOW

    assert COUNTER_WINDOW // 2 < replay.REPLAY_WINDOW


@pytest.mark.parametrize("counter", [0, 1, REPLAY_WINDOW])
def test_a_subscriber_that_joins_late_admits_what_is_in_flight(counter: int) -> None:
    table = ReplayTable()
    assert table.admit(ANNA, counter, 1)
    assert all(table.admit(ANNA, number, 1) for number in range(counter - min(counter, 5), counter))
