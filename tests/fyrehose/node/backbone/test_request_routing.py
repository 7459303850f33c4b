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


def report_holding(clients: ClientTable, number: int, oldest: int, durable: int) -> None:
    client = clients.get(address_of(number))
    assert client is not None
    client.holds = Holds(TOKEN, oldest, Holding(oldest, durable))


def attempts_until(route: RepairRouter, holder: Address, first: int, last: int, most: int = 64) -> int:
    """Return the attempt at which a client is asked."""
    for attempt in range(most):
        if holder in route.route(REQUESTER, first, last, START + attempt * LATER).journals:
            return attempt + 1
    pytest.fail(f"{holder} was not asked in {most} attempts")


@given(
    bystanders=st.sampled_from([0, 1, 12, 200, 1_000]),
    journals=st.integers(1, 16),
    holder=st.integers(0, 15),
    reports_holding=st.booleans(),
    seed=st.integers(0, 2**32),
    robin=st.booleans(),
)
@settings(max_examples=50)
def test_the_durable_journal_holding_a_message_is_asked_within_three_attempts(
    bystanders: int, journals: int, holder: int, reports_holding: bool, seed: int, robin: bool
) -> None:
    clients = served(bystanders, joined=5_000)
    add(clients, range(2_000, 2_000 + journals), joined=5_000, flags=Flags.DURABLE)
    holder_number = 2_000 + holder % journals
    if reports_holding:
        for number in range(2_000, 2_000 + journals):
            report_holding(clients, number, 1 if number == holder_number else 5_001, 6_000)
    route = RepairRouter(policies(seed)[robin], clients)
    attempts = attempts_until(route, address_of(holder_number), 17, 20)
    assert attempts == 1 if reports_holding else attempts <= 3


@given(
    count=st.sampled_from([1, 2, 3, 12, 200, 1_000]),
    holder=st.integers(0, 999),
    seed=st.integers(0, 2**32),
    robin=st.booleans(),
)
@settings(max_examples=50)
def test_a_client_holding_a_message_in_memory_is_asked_after_logarithmic_attempts(
    count: int, holder: int, seed: int, robin: bool
) -> None:
    route = RepairRouter(policies(seed)[robin], served(count))
    assert attempts_until(route, address_of(holder % count), 17, 20) <= ceil(log2(count + 1)) + 1


def test_clients_that_joined_before_a_number_was_assigned_are_asked_first() -> None:
    clients = served(500, joined=900)
    add(clients, [501], joined=100)
    route = RepairRouter(RandomForward(Random(1)), clients)
    assert route.route(REQUESTER, 101, 200, START).journals == [address_of(501)]
    route = RepairRouter(RandomForward(Random(1)), clients)
    assert route.route(REQUESTER, 100, 200, START).journals != [address_of(501)]


@pytest.mark.parametrize("count", [1, 5, 40, 1_000])
def test_every_client_is_asked_once_per_cycle_and_the_rest_is_reported(count: int) -> None:
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


def test_a_journal_holding_a_message_is_asked_on_every_attempt() -> None:
    clients = served(1_000)
    add(clients, [2_000], flags=Flags.DURABLE)
    report_holding(clients, 2_000, 1, 5_000)
    route = RepairRouter(RandomForward(Random(1)), clients)
    asked = [route.route(REQUESTER, 7, 7, START + n * LATER).journals.count(address_of(2_000)) for n in range(14)]
    assert asked[:3] == [1, 0, 0]
    assert asked[3:] == [1] * 11


def test_after_three_cycles_only_journals_known_to_hold_a_message_are_asked() -> None:
    clients = served(3, flags=Flags.DURABLE)
    report_holding(clients, 0, 1, 5_000)
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
    report_holding(clients, 0, 1, 5)
    journals, left, _ = route.route(REQUESTER, 7, 7, START + 40 * LATER)
    assert (address_of(0) in journals, left) == (True, 0)


def test_a_request_is_never_routed_to_its_requester() -> None:
    clients = served(3)
    route = RepairRouter(RandomForward(Random(1)), clients)
    asked = {journal for n in range(20) for journal in route.route(REQUESTER, 7, 7, START + n * LATER).journals}
    assert asked == set(map(address_of, range(3)))


def test_a_request_is_routed_to_no_client_if_none_keeps_messages() -> None:
    clients = served(3, flags=Flags.NOJOURNAL)
    assert RepairRouter(RoundRobinForward(), clients).route(REQUESTER, 1, 1, START) == ([], 0, False)


def test_no_client_is_skipped_when_another_leaves_during_a_search() -> None:
    clients = served(100)
    route = RepairRouter(RoundRobinForward(), clients)
    (gone,) = route.route(REQUESTER, 7, 7, START).journals
    clients.renew(Keepalive(flags=Flags.NOJOURNAL | Flags.NOSUBSCRIBE), gone, gone, START)
    asked = [route.route(REQUESTER, 7, 7, START + attempt * LATER).journals for attempt in range(1, 7)]
    assert set[Address]().union(*asked) == set(map(address_of, range(100))) - {gone}


def test_extra_forwards_per_requester_are_rate_limited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_routing, "FAN_OUT_RATE", 10.0)
    monkeypatch.setattr(request_routing, "FAN_OUT_BURST", 20.0)
    route = RepairRouter(RandomForward(Random(1)), served(1_000))
    counts = [len(route.route(REQUESTER, 7, 7, START).journals) for _ in range(10)]
    assert counts == [1, 2, 4, 8, 10, 1, 1, 1, 1, 1]
    assert len(route.route(REQUESTER, 7, 7, START + 1).journals) == 11


class TestSearches:
    def test_a_search_for_part_of_a_range_continues_the_search_of_the_whole(self) -> None:
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
    def test_a_search_is_found_at_the_last_recorded_position_of_its_numbers(
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

    def test_searches_expire_and_are_limited_in_number(self) -> None:
        searches = RequesterSearches()
        searches.record(1, 1, RangeSearch(last_request_at=START), 2)
        assert searches.find(1, 1, START + SEARCH_LIFETIME) is None
        for number in (3, 5):
            searches.record(number, number, RangeSearch(last_request_at=START), 2)
        assert [searches.find(number, number, START) is None for number in (1, 3, 5)] == [True, False, False]
        assert len(searches) == 2
