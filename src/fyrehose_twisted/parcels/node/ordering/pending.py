"""Runs on their way into the order, and who wants to know what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.wire.messages import PublisherRun

RunKey = tuple[str, int, int, int]
"""Publisher, epoch, its first number, and how many events there are."""


def run_key(run: PublisherRun) -> RunKey:
    """Return what tells a run from others."""
    return run.publisher, run.epoch, run.first, len(run.events)


def run_size(run: PublisherRun) -> int:
    """Return how many bytes a run takes on the wire, at most."""
    return sum(map(len, run.events)) + 5 * len(run.events) + len(run.publisher) * 4 + 32


def same_events(one: PublisherRun, other: PublisherRun) -> bool:
    """Return whether two runs with the same key have the same events."""
    return one.events is other.events or list(one.events) == list(other.events)


class PendingRun(NamedTuple):
    """A run that is not in the order yet, as far as this node knows."""

    run: PublisherRun
    requester: Peer | None
    """The connection on which it came; ``None`` if it is this node's own."""
    size: int


class PendingRuns:
    """Runs in the order in which they came.

    :param limit: bytes that they may count for.
    :ivar size: bytes that they count for.
    """

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._pending: dict[RunKey, PendingRun] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, run: PublisherRun, requester: Peer | None) -> bool | None:
        """Take a run; ``False`` if there is no room, ``None`` if it waits already: then only who asks is new."""
        key = run_key(run)
        known = self._pending.get(key)
        if known is not None:
            if requester is not None:
                self._pending[key] = known._replace(requester=requester)
            return None
        size = sum(map(len, run.events)) + EVENT_OVERHEAD * len(run.events)
        if self.size + size > self._limit and requester is not None:
            return False
        self._pending[key] = PendingRun(run, requester, size)
        self.size += size
        return True

    def get(self, key: RunKey) -> PendingRun | None:
        """Return a run that waits."""
        return self._pending.get(key)

    def pop(self, key: RunKey) -> PendingRun | None:
        """Take a run out."""
        waiting = self._pending.pop(key, None)
        if waiting is not None:
            self.size -= waiting.size
        return waiting

    def runs(self) -> Iterator[PublisherRun]:
        """Yield all of them, in the order in which they came."""
        return (waiting.run for waiting in self._pending.values())

    def clear(self) -> list[PendingRun]:
        """Take all of them out."""
        waiting, self._pending, self.size = list(self._pending.values()), {}, 0
        return waiting
