"""Assignment of consecutive sequence numbers, of which none is assigned twice, also after a crash."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE, Dialect
from fyrehose_twisted.interfaces import ISequenceStore

MINIMUM_RESERVE = 1_024
MAXIMUM_RESERVE = 10_000_000
MEMBER_RESERVE = 16_384
"""Minimum reserve of a member of a group, whose bound is extended while it goes on."""


class KnownClient(NamedTuple):
    """Stored state of a client, restored when the backbone restarts."""

    address: Address
    source: Address
    """Source of its latest KEEPALIVE."""
    flags: int
    dialect: Dialect
    joined_sequence: int
    """Last number assigned before it joined."""
    heard_at: float
    """Time of its latest KEEPALIVE, UTC seconds since 1970."""


class SequenceCheckpoint(NamedTuple):
    """State that a backbone must store before it sends a DELIVER."""

    last: int
    """Last assigned number; must survive the death of the process."""
    bound: int
    """Upper bound of all assigned numbers; must survive a power failure."""
    clients: tuple[tuple[Address, KnownClient | None], ...] = ()
    """Clients changed since the previous checkpoint, ``None`` if expired; must survive the death of the process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackboneStart:
    """Knowledge of a backbone about its stream at the start.

    :ivar last: last assigned number, 0 for none.
    :ivar bound: highest number that needs no new :class:`SequenceCheckpoint`.
    :ivar settle_until: time before which no message is numbered. PUSHes wait until then.
    :ivar query_clients: query clients for messages of the stream while settling, and refuse to number if they hold
        some. With a secret one answer suffices, without one two are needed, or one if only one client was queried.
    :ivar known_clients: clients of the previous backbone process, which are served at once.
    """

    last: int = 0
    bound: int = 0
    settle_until: float | None = None
    query_clients: bool = False
    known_clients: Iterable[KnownClient] = ()


@mypyc_attr(allow_interpreted_subclasses=True)
class VolatileSequenceStore:
    """Sequence store in memory, for tests and for streams that end with the process."""

    def __init__(self, last: int = 0) -> None:
        self.last = last
        self.bound = last
        self.fresh = False
        self.hole: tuple[int, int] | None = None

    def persist(self, checkpoint: SequenceCheckpoint) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ISequenceStore.persist`."""
        self.last, self.bound = checkpoint.last, checkpoint.bound

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ISequenceStore.close`."""


classImplements(VolatileSequenceStore, ISequenceStore)


class Sequencer:
    """Source of sequence numbers that keeps the durable bound about one second of traffic ahead of them.

    :param last: last assigned number, 0 for none.
    :param bound: highest number that may be assigned before a higher bound is durable.
    :param minimum_reserve: least count of numbers by which the bound is kept ahead.
    """

    def __init__(self, last: int, bound: int, minimum_reserve: int | None = None) -> None:
        self.last = last
        self.bound = max(last, bound)
        self._minimum_reserve = MINIMUM_RESERVE if minimum_reserve is None else minimum_reserve
        self._reserve = self._minimum_reserve
        self._extended_at: float | None = None
        self._extended_from = last

    def take(self, count: int, now: float) -> int:
        """Assign ``count`` numbers and return the first. Persist :attr:`checkpoint` before the numbers are used."""
        first = number = self.last + 1
        self.last += count
        while self.bound < MAX_SEQUENCE:
            # Extend the bound as if the numbers were assigned one by one.
            number = max(number, self.bound - self._reserve // 2 + 1)
            if number > self.last:
                break
            self._extend_bound(number, now)
            number += 1
        return first

    @property
    def remaining(self) -> int:
        """Count of numbers that are not assigned yet."""
        return MAX_SEQUENCE - self.last

    @property
    def checkpoint(self) -> tuple[int, int]:
        """Last assigned number and bound, which must be durable now."""
        return self.last, self.bound

    def _extend_bound(self, last: int, now: float) -> None:
        if self._extended_at is not None and now > self._extended_at:
            rate = int((last - self._extended_from) / (now - self._extended_at))
            self._reserve = min(max(2 * rate, self._minimum_reserve), MAXIMUM_RESERVE)
        self._extended_at, self._extended_from = now, last
        # The durable bound never decreases, although the reserve may shrink.
        self.bound = max(self.bound, min(last + self._reserve, MAX_SEQUENCE))
