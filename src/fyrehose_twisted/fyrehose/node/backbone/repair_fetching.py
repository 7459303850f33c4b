"""Repairs from clients that cannot send to the requester: the backbone fetches them and passes them on."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.node.backbone.retransmit_buffer import BYTE_BURST, BYTE_RATE, TOTAL_BURST, TOTAL_RATE
from fyrehose_twisted.fyrehose.wire.address import can_be_packed
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Deliver, Forward
from fyrehose_twisted.ranges import RangeSet
from fyrehose_twisted.token_bucket import KeyedTokenBuckets, TokenBucket

FETCH_TIME = 5.0
"""Seconds for which an answer is passed on, at least; twice as long at most."""

MAX_PEERS = 256
"""Maximum number of requesters that wait for answers, and of clients that were asked."""

MAX_RANGES = 1_024
"""Maximum number of ranges per requester, and per client that was asked, in :data:`FETCH_TIME`."""


class RepairFetcher:
    """Messages that this backbone asks clients for on behalf of others.

    It names itself in the FORWARD. An answer is accepted only from a client that was asked for the number, and goes to
    each requester once.

    :param own_address: returns the address at which a given client reaches this backbone.
    """

    def __init__(self, own_address: Callable[[Address], Address], now: float) -> None:
        self._own_address = own_address
        self._own_addresses: dict[Address, Address] = {}
        self._asked: OrderedDict[Address, _RecentRanges] = OrderedDict()
        self._wanted: OrderedDict[Address, _RecentRanges] = OrderedDict()
        self._budgets: KeyedTokenBuckets[Address] = KeyedTokenBuckets(BYTE_RATE, BYTE_BURST, MAX_PEERS)
        self._total_budget = TokenBucket(TOTAL_RATE, TOTAL_BURST, now)

    def __len__(self) -> int:
        """Return the number of remembered ranges."""
        return sum(len(ranges) for table in (self._asked, self._wanted) for ranges in table.values())

    def fetch(
        self, client: Address, requester: Address, first: int, last: int, now: float, *, with_macs: bool = False
    ) -> Forward | None:
        """Return the FORWARD that asks a client for ``first`` to ``last``, ``None`` if that is impossible.

        :param with_macs: whether the client can make MACs.
        """
        own = self._own_addresses.get(client)
        if own is None:
            own = self._own_address(client)
            if own[0] == ANY_ADDRESS[0] or not can_be_packed(own) or (":" in own[0]) != (":" in client[0]):
                return None
            self._own_addresses[client] = own
        asked, wanted = _ranges_of(self._asked, client, now), _ranges_of(self._wanted, requester, now)
        if asked is None or wanted is None or not (asked.has_room(now) and wanted.has_room(now)):
            return None
        asked.add(first, last, now)
        wanted.add(first, last, now)
        return Forward(own, first, last, with_macs)

    def received(
        self, client: Address, deliver: Deliver, now: float, wants_mac: Callable[[Address], bool] = lambda peer: False
    ) -> list[Address] | None:
        """Return the requesters to pass a message on to, ``None`` if the client was not asked for it.

        Requesters whose budget is used up request it again.

        :param wants_mac: returns whether to pass nothing on to a requester that came without a MAC.
        """
        asked, sequence = self._asked.get(client), deliver.sequence
        if asked is None or not asked.contains(sequence, now):
            return None
        requesters: list[Address] = []
        for requester, wanted in self._wanted.items():
            if not deliver.mac and wants_mac(requester):
                continue
            if wanted.contains(sequence, now) and self._may_send(requester, now):
                wanted.discard(sequence)
                self._budgets.bucket(requester, now).spend(len(deliver.data))
                self._total_budget.spend(len(deliver.data))
                requesters.append(requester)
        return requesters

    def forget(self, address: Address) -> None:
        """Discard the state of an expired client."""
        self._own_addresses.pop(address, None)
        self._asked.pop(address, None)
        self._wanted.pop(address, None)
        self._budgets.forget(address)

    def _may_send(self, requester: Address, now: float) -> bool:
        return self._budgets.bucket(requester, now).available(now) > 0 and self._total_budget.available(now) > 0


class _RecentRanges:
    """Ranges of numbers that are forgotten after a while."""

    __slots__ = ("_former", "_latest", "_since")

    def __init__(self, now: float) -> None:
        self._latest, self._former = RangeSet(), RangeSet()
        self._since = now

    def __len__(self) -> int:
        return len(self._latest) + len(self._former)

    def is_empty(self, now: float) -> bool:
        """Return whether all ranges are forgotten."""
        self._forget(now)
        return not len(self)

    def has_room(self, now: float) -> bool:
        """Return whether another range can be added."""
        self._forget(now)
        return len(self._latest) < MAX_RANGES

    def add(self, first: int, last: int, now: float) -> None:
        """Add ``first`` to ``last``."""
        self._forget(now)
        self._latest.add(first, last)

    def contains(self, sequence: int, now: float) -> bool:
        """Return whether a number was added lately, and not discarded."""
        self._forget(now)
        return sequence in self._latest or sequence in self._former

    def discard(self, sequence: int) -> None:
        """Remove a number."""
        for ranges in (self._latest, self._former):
            ranges.discard(sequence)
            if len(ranges) > 2 * MAX_RANGES:  # It has split one after the other.
                ranges.discard(*next(iter(ranges)))

    def _forget(self, now: float) -> None:
        elapsed = now - self._since
        if 0 <= elapsed < FETCH_TIME:
            return
        # After a jump of the clock, nothing is known of the age.
        is_recent = 0 <= elapsed < 2 * FETCH_TIME
        self._former = self._latest if is_recent else RangeSet()
        self._latest, self._since = RangeSet(), self._since + FETCH_TIME if is_recent else now


def _ranges_of(table: OrderedDict[Address, _RecentRanges], address: Address, now: float) -> _RecentRanges | None:
    """Return the ranges of an address, ``None`` if there are too many addresses that still have some."""
    ranges = table.get(address)
    if ranges is None:
        if len(table) >= MAX_PEERS:
            for other in [other for other, old in table.items() if old.is_empty(now)]:
                del table[other]
        if len(table) >= MAX_PEERS:
            return None
        ranges = table[address] = _RecentRanges(now)
    return ranges
