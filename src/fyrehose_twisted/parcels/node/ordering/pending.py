"""Runs that are not ordered yet, with the connections that wait for their results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.wire.messages import PublisherRun

RunKey = tuple[str, int, int, int]
"""Publisher, epoch, first number and number of events."""


def run_key(run: PublisherRun) -> RunKey:
    """Return the key that identifies a run."""
    return run.publisher, run.epoch, run.first, len(run.events)


def run_size(run: PublisherRun) -> int:
    """Return the maximum encoded size of a run in bytes."""
    return sum(map(len, run.events)) + 5 * len(run.events) + len(run.publisher) * 4 + 41


def same_events(one: PublisherRun, other: PublisherRun) -> bool:
    """Return whether two runs with the same key have the same events, and the same condition."""
    return one.expect == other.expect and (one.events is other.events or list(one.events) == list(other.events))


class PendingRun(NamedTuple):
    """A run that is not known to be ordered."""

    run: PublisherRun
    requester: Peer | None
    """Connection on which it arrived; ``None`` for a run of this node."""
    size: int


class PendingRuns:
    """Pending runs in order of arrival.

    :param limit: maximum size of all runs in bytes.
    :ivar size: size of all runs in bytes.
    """

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._pending: dict[RunKey, PendingRun] = {}

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, run: PublisherRun, requester: Peer | None) -> bool | None:
        """Add a run; return ``False`` if there is no room, and ``None`` if it was pending already.

        In the latter case only its requester is replaced.
        """
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
        """Return a pending run."""
        return self._pending.get(key)

    def pop(self, key: RunKey) -> PendingRun | None:
        """Remove and return a run."""
        waiting = self._pending.pop(key, None)
        if waiting is not None:
            self.size -= waiting.size
        return waiting

    def runs(self) -> Iterator[PublisherRun]:
        """Yield all runs in order of arrival."""
        return (waiting.run for waiting in self._pending.values())

    def clear(self) -> list[PendingRun]:
        """Remove and return all runs."""
        waiting, self._pending, self.size = list(self._pending.values()), {}, 0
        return waiting
