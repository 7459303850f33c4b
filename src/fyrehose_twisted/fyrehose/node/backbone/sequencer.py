"""Continuous numbers that are never given twice, whatever is lost in a crash."""

from __future__ import annotations

from typing import NamedTuple

from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.wire.packets import MAX_SEQUENCE, Dialect
from fyrehose_twisted.interfaces import ISequenceStore

MINIMUM_RESERVE = 1_024
MAXIMUM_RESERVE = 10_000_000


class KnownClient(NamedTuple):
    """A client as a backbone remembers it when it starts again."""

    address: Address
    source: Address
    """Source of its latest KEEPALIVE."""
    flags: int
    dialect: Dialect
    joined_sequence: int
    """The last number that had been given when it joined."""
    heard_at: float
    """Time of its latest KEEPALIVE, UTC seconds since 1970."""


class SequenceCheckpoint(NamedTuple):
    """What a backbone must have stored before it sends a DELIVER."""

    last: int
    """The last number given; must survive the death of the process."""
    bound: int
    """No number above this was given; must survive a power failure."""
    clients: tuple[tuple[Address, KnownClient | None], ...] = ()
    """Clients heard of since the mark before, ``None`` for one that is gone; must survive the death of the process."""


@implementer(ISequenceStore)
class VolatileSequenceStore:
    """Numbers that are forgotten with the process: for tests, and for streams that nobody needs tomorrow."""

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


class Sequencer:
    """Gives numbers and keeps the durable bound about a second of traffic ahead of them.

    :param last: the last number that was given, 0 for none.
    :param bound: the highest number that may be given before a higher bound is durable.
    """

    def __init__(self, last: int, bound: int) -> None:
        self.last = last
        self.bound = max(last, bound)
        self._reserve = MINIMUM_RESERVE
        self._extended_at: float | None = None
        self._extended_from = last

    def take(self, count: int, now: float) -> int:
        """Give ``count`` numbers and return the first; :attr:`checkpoint` must be persisted before they are used."""
        first = number = self.last + 1
        self.last += count
        while self.bound < MAX_SEQUENCE:
            # The bound moves where it would if numbers were taken one by one.
            number = max(number, self.bound - self._reserve // 2 + 1)
            if number > self.last:
                break
            self._extend_bound(number, now)
            number += 1
        return first

    @property
    def remaining(self) -> int:
        """How many numbers there are before the stream is full."""
        return MAX_SEQUENCE - self.last

    @property
    def checkpoint(self) -> SequenceCheckpoint:
        """What must be durable now."""
        return SequenceCheckpoint(self.last, self.bound)

    def _extend_bound(self, last: int, now: float) -> None:
        if self._extended_at is not None and now > self._extended_at:
            a_second = int((last - self._extended_from) / (now - self._extended_at))
            self._reserve = min(max(2 * a_second, MINIMUM_RESERVE), MAXIMUM_RESERVE)
        self._extended_at, self._extended_from = now, last
        # What is durable stays so: where the reserve has shrunk, the old bound may be the higher one.
        self.bound = max(self.bound, min(last + self._reserve, MAX_SEQUENCE))
