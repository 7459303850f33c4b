"""In-memory window of recent events."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from zope.interface import classImplements

from fyrehose_twisted.interfaces import IEventHistory
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.wire.messages import Event

RUN_OVERHEAD = 400
"""Bytes that a run counts for in addition to its events."""


class SequencedRun(NamedTuple):
    """Consecutive events of one publisher, with consecutive sequence numbers."""

    first: int
    """Sequence number of the first event."""
    publisher: str
    epoch: int
    number: int
    """Publisher's number of the first event."""
    data: Sequence[bytes]

    @property
    def end(self) -> int:
        """Sequence number after the last event."""
        return self.first + len(self.data)

    def events_between(self, first: int, last: int) -> Iterator[Event]:
        """Yield the events with sequence numbers from ``first`` to ``last``."""
        start, number = self.first, self.number
        for offset in range(max(first - start, 0), min(last - start + 1, len(self.data))):
            yield Event(start + offset, self.publisher, self.epoch, number + offset, self.data[offset])


class EventBatch(Sequence[Event]):
    """Contiguous events, materialized on first access."""

    __slots__ = ("_events", "runs")

    def __init__(self, runs: Sequence[SequencedRun]) -> None:
        self.runs = runs
        self._events: list[Event] | None = None

    def _materialize(self) -> list[Event]:
        if self._events is None:
            self._events = [event for run in self.runs for event in run.events_between(run.first, run.end)]
        return self._events

    @property
    def first(self) -> int:
        """Sequence number of the first event."""
        return self.runs[0].first

    @property
    def last(self) -> int:
        """Sequence number of the last event."""
        return self.runs[-1].end - 1

    def __len__(self) -> int:
        return self.last - self.first + 1

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> list[Event]: ...
    def __getitem__(self, index: int | slice) -> Event | list[Event]:
        return self._materialize()[index]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._materialize())

    def __repr__(self) -> str:
        return f"<events {self.first} to {self.last}>"


class EventWindow:
    """Window of the most recent events.

    :param limit: maximum size in bytes.
    :param last: sequence number of the event before the window.
    """

    def __init__(self, limit: int, last: int = 0) -> None:
        self._limit = limit
        self._runs: list[SequencedRun] = []
        self._firsts: list[int] = []
        self._dropped = 0
        self.size = 0
        self.last = last

    @property
    def oldest(self) -> int:
        """See :class:`~fyrehose_twisted.interfaces.IEventHistory`."""
        return self._firsts[self._dropped] if self._dropped < len(self._firsts) else self.last + 1

    def put(self, runs: Sequence[SequencedRun]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventHistory`."""
        for stretch in runs:
            if stretch.first != self.last + 1:
                self.clear(stretch.first - 1)
            self._runs.append(stretch)
            self._firsts.append(stretch.first)
            self.last = stretch.end - 1
            self.size += _run_size(stretch)
        dropped = self._dropped
        while self.size > self._limit and dropped < len(self._runs) - 1:
            self.size -= _run_size(self._runs[dropped])
            dropped += 1
        self._dropped = dropped
        if dropped > 1_024 and 2 * dropped > len(self._runs):
            del self._runs[:dropped], self._firsts[:dropped]
            self._dropped = 0

    def clear(self, last: int) -> None:
        """Clear the window; the next event follows ``last``."""
        self._runs, self._firsts, self._dropped, self.size, self.last = [], [], 0, 0, last

    def read(self, first: int, last: int, limit: int) -> list[Event]:
        """See :class:`~fyrehose_twisted.interfaces.IEventHistory`."""
        if first < self.oldest or first > self.last:
            return []
        last = min(last, self.last, first + limit - 1)
        found: list[Event] = []
        at = bisect_right(self._firsts, first, self._dropped) - 1
        while at < len(self._runs) and self._firsts[at] <= last:
            found.extend(self._runs[at].events_between(first, last))
            at += 1
        return found


classImplements(EventWindow, IEventHistory)


def _run_size(stretch: SequencedRun) -> int:
    return RUN_OVERHEAD + sum(map(len, stretch.data)) + EVENT_OVERHEAD * len(stretch.data)
