"""Routing of repair requests to clients that may hold the messages, the most likely ones first."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.backbone.client_table import ClientTable, Repairers
from fyrehose_twisted.interfaces import IForwardPolicy
from fyrehose_twisted.token_bucket import KeyedTokenBuckets

SEARCH_LIFETIME = 30.0
"""Seconds for which a search is remembered: longer than a requester waits between two attempts."""

MAX_SEARCHES, MAX_SEARCHES_EACH = 65_536, 4_096
"""Maximum number of remembered ranges, in total and per requester."""

FAN_OUT_RATE, FAN_OUT_BURST = 4_000.0, 16_000.0
"""Rate per second and burst of the FORWARDs for one requester, in addition to one per REQUEST."""

DURABLE_ROUND = 2
"""Round, counted from 0, that reaches all durable journals."""

MAX_CYCLES = 3
"""Number of times that all clients are asked, because a FORWARD or an answer may be lost twice."""

RETRY_FAN_OUT, RETRY_SHARE = 16, 4
"""Clients asked in each round after the first cycle: :data:`RETRY_FAN_OUT`, or one in :data:`RETRY_SHARE` if that is
more."""

MAX_DURABLE_ASKED = 16
"""Maximum number of durable journals asked at once."""


class RangeSearch(NamedTuple):
    """State of the search for a range of numbers.

    :ivar attempts: number of REQUESTs.
    :ivar position: number of clients asked in this cycle.
    :ivar rotation: start offset among clients of equal likelihood.
    :ivar departures: :attr:`~fyrehose_twisted.fyrehose.node.backbone.client_table.ClientTable.departures` at the last
        REQUEST.
    :ivar cycles: number of times that all clients were asked.
    :ivar last_request_at: time of the last REQUEST.
    """

    attempts: int = 0
    position: int = 0
    rotation: int = 0
    departures: int = 0
    cycles: int = 0
    last_request_at: float = 0.0


class RequestRoute(NamedTuple):
    """Clients to forward one REQUEST to."""

    journals: list[Address]
    remaining: int
    """Number of clients still to be asked, for the first time or again; 0 if further REQUESTs are pointless."""
    is_repeated: bool = False
    """True if the range was requested more often than a lost packet explains."""


class RepairRouter:
    """Router of repair requests to clients.

    Among clients of equal likelihood, those that can send to the requester come before those that can only send to
    the backbone. The first REQUEST for a range goes to one client, the second to two others, the next to four and
    so on; the third reaches all durable journals. Clients are asked in order of likelihood: durable journals that
    report to hold the first number, other durable journals, clients that joined before the number was assigned, all
    others. No client is asked twice before all were asked, except durable journals that hold the number: from the
    fourth attempt on, one of them is asked again each time, because only lost packets explain that the number is
    still missing. All clients are asked :data:`MAX_CYCLES` times. After that, only durable journals that certainly
    keep the number are asked, because they may be busy.

    :param policy: choice of the first among clients of equal likelihood.
    """

    def __init__(self, policy: IForwardPolicy, clients: ClientTable) -> None:
        self._policy = policy
        self._client_table = clients
        self._searches: OrderedDict[Address, RequesterSearches] = OrderedDict()
        self._range_count = 0
        self._fan_out_budgets: KeyedTokenBuckets[Address] = KeyedTokenBuckets(
            FAN_OUT_RATE, FAN_OUT_BURST, clients.config.max_clients
        )

    def __len__(self) -> int:
        """Return the number of remembered ranges."""
        return self._range_count

    def route(self, requester: Address, first: int, last: int, now: float) -> RequestRoute:
        """Choose the clients to ask for ``first`` to ``last``."""
        searches = self._searches.get(requester, RequesterSearches())
        direct, indirect = self._client_table.repairers(requester)
        # Each tier is followed by that of the clients that are as likely to hold the message.
        pairs = zip(_tiers(direct, first), _tiers(indirect, first), strict=True)
        tiers = [tier for pair in pairs for tier in pair]
        total = sum(map(len, tiers)) - self._client_table.has_journal_at(requester)
        if not total:
            return RequestRoute([], 0)
        departures = self._client_table.departures
        search = searches.find(first, last, now)
        if search is None:
            search = RangeSearch(rotation=self._rotation(tiers, requester), departures=departures)
        elif search.departures != departures:
            # Positions have shifted, so start again in order not to skip a client.
            search = search._replace(position=0, departures=departures)
        if search.cycles >= MAX_CYCLES and (confirmed := self._confirmed_holders(requester, first)):
            journal = confirmed[search.attempts % len(confirmed)]
            self._remember(
                requester, searches, first, last, search._replace(attempts=search.attempts + 1, last_request_at=now)
            )
            return RequestRoute([journal], len(confirmed), True)
        position, attempts = search.position, search.attempts
        if position >= total:
            position = 0
        wanted = max(RETRY_FAN_OUT, total // RETRY_SHARE) if search.cycles else 1 << min(attempts, 16)
        if attempts == DURABLE_ROUND:
            wanted = max(wanted, min(len(direct.durable) + len(indirect.durable), MAX_DURABLE_ASKED) - position)
        order = (journal for journal in _rotate_tiers(tiers, search.rotation) if journal != requester)
        journals = list(islice(order, position, position + self._grant_fan_out(requester, wanted, now)))
        position += len(journals)
        cycles = search.cycles + (position >= total)
        holders = tiers[0] or tiers[1]
        if attempts > DURABLE_ROUND and holders:
            again = holders[(search.rotation + attempts) % len(holders)]
            if again != requester and again not in journals:
                journals.append(again)
        search = search._replace(attempts=attempts + 1, position=position, cycles=cycles, last_request_at=now)
        self._remember(requester, searches, first, last, search)
        left = total - position % total if cycles < MAX_CYCLES else len(self._confirmed_holders(requester, first))
        return RequestRoute(journals, left, attempts > DURABLE_ROUND)

    def journals_to_survey(self, requester: Address) -> list[Address]:
        """Return the durable journals to ask for the oldest message, at most :data:`MAX_DURABLE_ASKED`."""
        durable = chain(*(part.durable for part in self._client_table.repairers(requester)))
        others = (client.address for client in durable if client.address != requester)
        return list(islice(others, MAX_DURABLE_ASKED))

    def forget(self, requester: Address) -> None:
        """Discard the searches of an expired client."""
        self._range_count -= len(self._searches.pop(requester, ()))
        self._fan_out_budgets.forget(requester)

    def _remember(
        self, requester: Address, searches: RequesterSearches, first: int, last: int, search: RangeSearch
    ) -> None:
        self._searches[requester] = searches
        self._searches.move_to_end(requester)
        self._range_count -= len(searches)
        searches.record(first, last, search, MAX_SEARCHES_EACH)
        self._range_count += len(searches)
        while self._range_count > MAX_SEARCHES:
            self._range_count -= len(self._searches.popitem(last=False)[1])

    def _confirmed_holders(self, requester: Address, sequence: int) -> list[Address]:
        """Return the durable journals that report to keep ``sequence`` for certain."""
        return [
            client.address
            for client in chain(*(part.durable for part in self._client_table.repairers(requester)))
            if client.address != requester and client.holds is not None and client.holds.holding.keeps(sequence)
        ]

    def _rotation(self, tiers: list[Sequence[Address]], requester: Address) -> int:
        for tier in tiers:
            chosen = self._policy.choose(tier, requester) if tier else None
            if chosen is not None:
                return tier.index(chosen)
        return 0

    def _grant_fan_out(self, requester: Address, wanted: int, now: float) -> int:
        budget = self._fan_out_budgets.bucket(requester, now)
        granted = max(0, min(wanted - 1, int(budget.available(now))))
        budget.spend(granted)
        return 1 + granted


class RequesterSearches:
    """Searches of one requester by range."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._segments: list[tuple[int, RangeSearch]] = []

    def __len__(self) -> int:
        return len(self._firsts)

    def find(self, first: int, last: int, now: float) -> RangeSearch | None:
        """Return the least advanced of the searches that cover ``first`` to ``last``.

        :return: ``None`` if they do not cover the whole range.
        """
        least: RangeSearch | None = None
        at, position = first, bisect_right(self._firsts, first) - 1
        while at <= last:
            if position < 0 or position == len(self._firsts) or self._firsts[position] > at:
                return None
            end, search = self._segments[position]
            if end < at or not 0 <= now - search.last_request_at < SEARCH_LIFETIME:
                return None
            if least is None or search.position < least.position:
                least = search
            at, position = end + 1, position + 1
        return least

    def record(self, first: int, last: int, search: RangeSearch, limit: int) -> None:
        """Store the search for ``first`` to ``last``. Above ``limit`` ranges, the lowest are discarded."""
        start = bisect_left(self._firsts, first)
        if start and self._segments[start - 1][0] >= first:
            start -= 1
        end = bisect_right(self._firsts, last)
        pieces = [(first, last, search)]
        if start < end:
            before, after = self._firsts[start], self._segments[end - 1]
            if before < first:
                pieces.insert(0, (before, first - 1, self._segments[start][1]))
            if after[0] > last:
                pieces.append((last + 1, *after))
        self._firsts[start:end] = [piece[0] for piece in pieces]
        self._segments[start:end] = [piece[1:] for piece in pieces]
        excess = len(self._firsts) - limit
        if excess > 0:
            del self._firsts[:excess], self._segments[:excess]


def _tiers(repairers: Repairers, first: int) -> list[Sequence[Address]]:
    """Return the clients by how likely they hold ``first``."""
    hold, may_hold, cannot = list[Address](), list[Address](), list[Address]()
    for client in repairers.durable:
        holds = client.holds
        if holds is None:
            may_hold.append(client.address)
        elif holds.oldest > first:
            cannot.append(client.address)
        else:
            (hold if first <= holds.holding.durable else may_hold).append(client.address)
    others, joined = repairers.memory, bisect_left(repairers.joined_sequences, first)
    return [hold, may_hold, others[:joined], others[joined:], cannot]


def _rotate_tiers(tiers: list[Sequence[Address]], rotation: int) -> Iterator[Address]:
    for tier in tiers:
        if tier:
            start = rotation % len(tier)
            yield from chain(islice(tier, start, None), islice(tier, start))
