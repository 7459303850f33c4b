"""Runs on their way into the order, and who wants to know what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.node.raft.log import EVENT_OVERHEAD
from fyrehose_twisted.parcels.wire.messages import Run

Key = tuple[str, int, int, int]
"""Publisher, epoch, its first number, and how many events there are."""


def key_of(run: Run) -> Key:
    """Return what tells a run from others."""
    return run.publisher, run.epoch, run.first, len(run.events)


def run_size(run: Run) -> int:
    """Return how many bytes a run takes on the wire, at most."""
    return sum(map(len, run.events)) + 5 * len(run.events) + len(run.publisher) * 4 + 32


def same_events(one: Run, other: Run) -> bool:
    """Return whether two runs with the same key have the same events."""
    return one.events is other.events or list(one.events) == list(other.events)


class Waiting(NamedTuple):
    """A run that is not in the order yet, as far as this node knows."""

    run: Run
    asker: Peer | None
    """The connection on which it came; ``None`` if it is this node's own."""
    size: int


class Pending:
    """Runs in the order in which they came.

    :param limit: bytes that they may count for.
    :ivar size: bytes that they count for.
    """

    def __init__(self, limit: int) -> None:
        self.size = 0
        self._limit = limit
        self._waiting: dict[Key, Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, run: Run, asker: Peer | None) -> bool | None:
        """Take a run; ``False`` if there is no room, ``None`` if it waits already: then only who asks is new."""
        key = key_of(run)
        known = self._waiting.get(key)
        if known is not None:
            if asker is not None:
                self._waiting[key] = known._replace(asker=asker)
            return None
        size = sum(map(len, run.events)) + EVENT_OVERHEAD * len(run.events)
        if self.size + size > self._limit and asker is not None:
            return False
        self._waiting[key] = Waiting(run, asker, size)
        self.size += size
        return True

    def get(self, key: Key) -> Waiting | None:
        """Return a run that waits."""
        return self._waiting.get(key)

    def pop(self, key: Key) -> Waiting | None:
        """Take a run out."""
        waiting = self._waiting.pop(key, None)
        if waiting is not None:
            self.size -= waiting.size
        return waiting

    def runs(self) -> Iterator[Run]:
        """Yield all of them, in the order in which they came."""
        return (waiting.run for waiting in self._waiting.values())

    def clear(self) -> list[Waiting]:
        """Take all of them out."""
        waiting, self._waiting, self.size = list(self._waiting.values()), {}, 0
        return waiting
