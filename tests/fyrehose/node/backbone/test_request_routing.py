from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.node.backbone import request_routing
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward, RoundRobinForward
from fyrehose_twisted.fyrehose.node.backbone.request_routing import (
    MAX_CYCLES,
    SEARCH_LIFETIME,
    RangeSearch,
    RepairRouter,
    RequesterSearches,
)
from fyrehose_twisted.fyrehose.wire.packets import Flags, Holding, Holds, Keepalive
from fyrehose_twisted.interfaces import IForwardPolicy

START = 1_700_000_000.0
TOKEN = bytes(16)
REQUESTER: Address = ("192.0.2.1", 1)
LATER = 0.5
"""Seconds between two attempts."""


def policies(seed: int) -> list[IForwardPolicy]:
    return [RandomForward(Random(seed)), RoundRobinForward()]


def address_of(number: int) -> Address:
    return f"10.0.{number // 250}.{number % 250}", 4_000


def served(count: int, *, joined: int = 0, first: int = 0, flags: int = Flags.NONE) -> ClientTable:
    clients = ClientTable(BackboneConfig(max_clients=10_000))
    clients.renew(Keepalive(), REQUESTER, REQUESTER, START, last=joined)
    add(clients, range(first, first + count), joined=joined, flags=flags)
    return clients


def add(clients: ClientTable, numbers: Sequence[int], *, joined: int = 0, flags: int = Flags.NONE) -> None:
    for number in numbers:
        clients.renew(Keepalive(flags=flags, token=TOKEN), address_of(number), address_of(number), START, last=joined)


def say(clients: ClientTable, number: int, oldest: int, durable: int) -> None:
    client = clients.get(address_of(number))
    assert client is not None
    client.holds = Holds(TOKEN, oldest, Holding(oldest, durable))


def attempts_until(route: RepairRouter, wanted: Address, first: int, last: int, most: int = 64) -> int:
    """Return with which attempt a client is asked."""
    for attempt in range(most):
        if wanted in route.route(REQUESTER, first, last, START + attempt * LATER).journals:
            return attempt + 1
    pytest.fail(f"{wanted} was not asked in {most} attempts")


@given(
    bystanders=st.sampled_from([0, 1, 12, 200, 1_000]),
    journals=st.integers(1, 16),
    holder=st.integers(0, 15),
    says=st.booleans(),
    seed=st.integers(0, 2**32),
    robin=st.booleans(),
)
@settings(max_examples=50)
def test_a_durable_journal_is_asked_within_three_attempts(
    bystanders: int, journals: int, holder: int, says: bool, seed: int, robin: bool
) -> None:
    clients = served(bystanders, joined=5_000)
    add(clients, range(2_000, 2_000 + journals), joined=5_000, flags=Flags.DURABLE)
    wanted = 2_000 + holder % journals
    if says:
        for number in range(2_000, 2_000 + journals):
            say(clients, number, 1 if number == wanted else 5_001, 6_000)
    route = RepairRouter(policies(seed)[robin], clients)
    attempts = attempts_until(route, address_of(wanted), 17, 20)
    assert attempts == 1 if says else attempts <= 3


@given(
    count=st.sampled_from([1, 2, 3, 12, 200, 1_000]),
    holder=st.integers(0, 999),
    seed=st.integers(0, 2**32),
    robin=st.booleans(),
)
@settings(max_examples=50)
def test_a_client_that_holds_it_in_memory_is_asked_after_as_many_attempts_as_doubling_takes(
    count: int, holder: int, seed: int, robin: bool
) -> None:
    route = RepairRouter(policies(seed)[robin], served(count))
    assert attempts_until(route, address_of(holder % count), 17, 20) <= ceil(log2(count + 1)) + 1


def test_clients_that_joined_before_the_number_was_given_are_asked_first() -> None:
    clients = served(500, joined=900)
    add(clients, [501], joined=100)
    route = RepairRouter(RandomForward(Random(1)), clients)
    assert route.route(REQUESTER, 101, 200, START).journals == [address_of(501)]
    route = RepairRouter(RandomForward(Random(1)), clients)
    assert route.route(REQUESTER, 100, 200, START).journals != [address_of(501)]


@pytest.mark.parametrize("count", [1, 5, 40, 1_000])
def test_no_client_is_asked_twice_before_all_were_and_what_is_left_is_told(count: int) -> None:
    route, asked, now, left = RepairRouter(RandomForward(Random(3)), served(count)), list[Address](), START, count
    while len(asked) < count:
        journals, left, _ = route.route(REQUESTER, 1, 1_000, now)
        asked += journals
        now += LATER
        assert left == (count - len(asked)) or len(asked) == count
    assert sorted(asked) == sorted(map(address_of, range(count)))
    again = 0
    while left:
        journals, left, _ = route.route(REQUESTER, 1, 1_000, now)
        again += len(journals)
        now += LATER
    assert again == (MAX_CYCLES - 1) * count


def test_a_journal_that_holds_it_is_asked_again_and_again() -> None:
    clients = served(1_000)
    add(clients, [2_000], flags=Flags.DURABLE)
    say(clients, 2_000, 1, 5_000)
    route = RepairRouter(RandomForward(Random(1)), clients)
    asked = [route.route(REQUESTER, 7, 7, START + n * LATER).journals.count(address_of(2_000)) for n in range(14)]
    assert asked[:3] == [1, 0, 0]
    assert asked[3:] == [1] * 11


def test_after_three_times_only_those_that_keep_it_for_certain_are_asked_on() -> None:
    clients = served(3, flags=Flags.DURABLE)
    say(clients, 0, 1, 5_000)
    unsure = clients.get(address_of(1))
    assert unsure is not None
    unsure.holds = Holds(TOKEN, 1, Holding(8, 5_000))  # It may have lost 7.
    clients.renew(Keepalive(flags=Flags.DURABLE), REQUESTER, REQUESTER, START)
    requester = clients.get(REQUESTER)
    assert requester is not None
    requester.holds = Holds(TOKEN, 1, Holding(1, 5_000))
    route = RepairRouter(RandomForward(Random(1)), clients)
    routes = [route.route(REQUESTER, 7, 7, START + n * LATER) for n in range(40)]
    assert all(one.remaining for one in routes)
    assert [(one.journals, one.remaining) for one in routes[20:]] == [([address_of(0)], 1)] * 20
    say(clients, 0, 1, 5)
    journals, left, _ = route.route(REQUESTER, 7, 7, START + 40 * LATER)
    assert (address_of(0) in journals, left) == (True, 0)


def test_the_requester_is_never_asked() -> None:
    clients = served(3)
    route = RepairRouter(RandomForward(Random(1)), clients)
    asked = {journal for n in range(20) for journal in route.route(REQUESTER, 7, 7, START + n * LATER).journals}
    assert asked == set(map(address_of, range(3)))


def test_where_no_other_client_keeps_messages_there_is_none_to_ask() -> None:
    clients = served(3, flags=Flags.NOJOURNAL)
    assert RepairRouter(RoundRobinForward(), clients).route(REQUESTER, 1, 1, START) == ([], 0, False)


def test_none_is_passed_over_when_a_client_leaves_meanwhile() -> None:
    clients = served(100)
    route = RepairRouter(RoundRobinForward(), clients)
    (gone,) = route.route(REQUESTER, 7, 7, START).journals
    clients.renew(Keepalive(flags=Flags.NOJOURNAL | Flags.NOSUBSCRIBE), gone, gone, START)
    asked = [route.route(REQUESTER, 7, 7, START + attempt * LATER).journals for attempt in range(1, 7)]
    assert set[Address]().union(*asked) == set(map(address_of, range(100))) - {gone}


def test_what_one_requester_may_cause_beyond_one_forward_for_each_request_is_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_routing, "FAN_OUT_RATE", 10.0)
    monkeypatch.setattr(request_routing, "FAN_OUT_BURST", 20.0)
    route = RepairRouter(RandomForward(Random(1)), served(1_000))
    counts = [len(route.route(REQUESTER, 7, 7, START).journals) for _ in range(10)]
    assert counts == [1, 2, 4, 8, 10, 1, 1, 1, 1, 1]
    assert len(route.route(REQUESTER, 7, 7, START + 1).journals) == 11


class TestSearches:
    def test_a_part_of_a_range_goes_on_where_the_whole_stopped(self) -> None:
        searches = RequesterSearches()
        searches.record(1, 100, RangeSearch(position=3, last_request_at=START), 100)
        searches.record(50, 60, RangeSearch(position=7, last_request_at=START), 100)
        found = [
            searches.find(*span, START) for span in ((1, 49), (55, 55), (40, 70), (61, 100), (90, 101), (200, 201))
        ]
        positions = [None if one is None else one.position for one in found]
        assert positions == [3, 7, 3, 3, None, None]

    @given(
        st.lists(st.tuples(st.integers(1, 10), st.integers(0, 6), st.integers(0, 9)), max_size=20),
        st.integers(1, 10),
        st.integers(0, 6),
    )
    def test_it_knows_of_each_number_what_was_noted_last(
        self, notes: list[tuple[int, int, int]], first: int, more: int
    ) -> None:
        searches, model = RequesterSearches(), dict[int, int]()
        for start, count, position in notes:
            searches.record(start, start + count, RangeSearch(position=position, last_request_at=START), 1_000)
            model |= dict.fromkeys(range(start, start + count + 1), position)
        found = searches.find(first, first + more, START)
        positions = [model.get(number) for number in range(first, first + more + 1)]
        if None in positions:
            assert found is None
        else:
            assert found is not None
            assert found.position == min(number for number in positions if number is not None)

    def test_it_forgets_after_a_while_and_when_there_are_too_many(self) -> None:
        searches = RequesterSearches()
        searches.record(1, 1, RangeSearch(last_request_at=START), 2)
        assert searches.find(1, 1, START + SEARCH_LIFETIME) is None
        for number in (3, 5):
            searches.record(number, number, RangeSearch(last_request_at=START), 2)
        assert [searches.find(number, number, START) is None for number in (1, 3, 5)] == [True, False, False]
        assert len(searches) == 2
