"""A publisher's side: it numbers its events, sends them again when a connection was lost, and takes answers in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.parcels.events import SequenceSpans
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.wire.messages import PublisherRun

MAX_RUN_BYTES = 49_152
"""Bytes of events in one run, unless it is a single one."""
UNANSWERED = 4_096
"""Events of a publisher that wait for an answer at once; see
:data:`~fyrehose_twisted.parcels.node.ordering.publisher_sessions.REMEMBERED`."""


class NumberedBatch(NamedTuple):
    """What was published together has its numbers."""

    token: Any
    numbers: SequenceSpans


class RejectedBatch(NamedTuple):
    """What was published together does not, all of it."""

    token: Any
    numbers: SequenceSpans
    """Those of the first of them, which do."""
    sent: bool
    """Whether others may have been given one all the same."""


class _PublishBatch:
    """What was published together."""

    __slots__ = ("events", "numbered_count", "numbers", "sent", "token")

    def __init__(self, events: Sequence[bytes], token: Any) -> None:
        self.events = events
        self.token = token
        self.numbered_count = 0
        self.sent = False
        self.numbers: list[tuple[int, int]] = []

    def add_numbers(self, first: int, count: int) -> None:
        """The next of its events have their numbers."""
        if self.numbers and sum(self.numbers[-1]) == first:
            start, size = self.numbers[-1]
            self.numbers[-1] = (start, size + count)
        else:
            self.numbers.append((first, count))
        self.numbered_count += count


class PublisherQueue:
    """Events of one publisher that are on their way into the order.

    They are answered in the order in which they were published, for that is how they are ordered.

    :param publisher: unlike that of everybody else.
    :param limit: bytes of events that may wait.
    :ivar pending_events: how many events wait for their number.
    :ivar pending_bytes: for how many bytes they count.
    """

    def __init__(self, publisher: str, limit: int, epoch: int = 1) -> None:
        self.publisher = publisher
        self.epoch = epoch
        self.pending_events = 0
        self.pending_bytes = 0
        self._limit = limit
        self._batches: deque[_PublishBatch] = deque()
        self._runs: deque[PublisherRun] = deque()
        self._unsent: deque[PublisherRun] = deque()
        self._queue: deque[tuple[_PublishBatch, int]] = deque()
        self._next_number = 1
        self._in_flight = 0

    def publish(self, events: Sequence[bytes], token: Any) -> None:
        """Take events, at least one.

        :raises PublishQueueFull: if too many wait already.
        """
        size = sum(map(len, events)) + EVENT_OVERHEAD * len(events)
        if self.pending_bytes + size > self._limit and self.pending_bytes:
            raise PublishQueueFull(
                f"{self.pending_events:,} events wait to be ordered, {self.pending_bytes:,} bytes of at most "
                f"{self._limit:,};"
                " wait for some of them"
            )
        batch = _PublishBatch(events, token)
        self._batches.append(batch)
        self._queue.append((batch, 0))
        self.pending_events += len(events)
        self.pending_bytes += size

    def take_runs(self) -> list[PublisherRun]:
        """Return what is to be sent now."""
        runs = list(self._unsent)
        self._unsent.clear()
        while self._queue and self._in_flight < UNANSWERED:
            run = self._make_run()
            self._runs.append(run)
            runs.append(run)
        return runs

    def _make_run(self) -> PublisherRun:
        events: list[bytes] = []
        size, room = 0, UNANSWERED - self._in_flight
        while self._queue and len(events) < room:
            batch, start = self._queue[0]
            batch.sent = True
            stop = start
            while stop < len(batch.events) and len(events) + stop - start < room:
                size += len(batch.events[stop]) + 8
                if size > MAX_RUN_BYTES and (events or stop > start):
                    break
                stop += 1
            events.extend(batch.events[start:stop])
            if stop == len(batch.events):
                self._queue.popleft()
                continue
            self._queue[0] = (batch, stop)
            break
        run = PublisherRun(self.publisher, self.epoch, self._next_number, events)
        self._next_number += len(events)
        self._in_flight += len(events)
        return run

    def resend_all(self) -> None:
        """Whoever had what was sent is gone: let :meth:`take_runs` return all of it once more."""
        self._unsent = deque(self._runs)

    def acknowledge(self, epoch: int, first: int, numbers: SequenceSpans) -> Iterator[NumberedBatch]:
        """Events have their numbers; what is not the next in turn is left for later, when it is sent again."""
        if not self._runs or epoch != self.epoch or first != self._runs[0].first:
            return
        run = self._runs[0]
        if sum(count for _, count in numbers) != len(run.events):
            return
        self._runs.popleft()
        if self._unsent and self._unsent[0] is run:
            self._unsent.popleft()
        self._in_flight -= len(run.events)
        self.pending_events -= len(run.events)
        for start, count in numbers:
            yield from self._assign(start, count)

    def _assign(self, start: int, count: int) -> Iterator[NumberedBatch]:
        while count:
            batch = self._batches[0]
            taken = min(count, len(batch.events) - batch.numbered_count)
            at = batch.numbered_count
            batch.add_numbers(start, taken)
            self.pending_bytes -= sum(map(len, batch.events[at : at + taken])) + EVENT_OVERHEAD * taken
            start, count = start + taken, count - taken
            if batch.numbered_count == len(batch.events):
                self._batches.popleft()
                yield NumberedBatch(batch.token, tuple(batch.numbers))

    def abandon_all(self) -> list[RejectedBatch]:
        """Expect no more answers; return what has none. What was sent may be ordered all the same, but nothing that is
        published from now on comes before it."""
        failed = [RejectedBatch(batch.token, tuple(batch.numbers), batch.sent) for batch in self._batches]
        for waiting in (self._batches, self._runs, self._unsent, self._queue):
            waiting.clear()
        if self._next_number > 1:
            self.epoch += 1
            self._next_number = 1
        self.pending_events = self.pending_bytes = self._in_flight = 0
        return failed

    def cancel(self, token: Any) -> RejectedBatch | None:
        """Expect no answer for what was published with ``token``, if it waits.

        What is not sent yet is not sent any more. What is keeps its place, for what comes after it counts on that, and
        may be ordered.
        """
        for batch in self._batches:
            if batch.token is not token:
                continue
            if batch.sent:
                batch.token = None
                return RejectedBatch(token, tuple(batch.numbers), True)
            self._batches.remove(batch)
            self._queue = deque(pair for pair in self._queue if pair[0] is not batch)
            self.pending_events -= len(batch.events)
            self.pending_bytes -= sum(map(len, batch.events)) + EVENT_OVERHEAD * len(batch.events)
            return RejectedBatch(token, (), False)
        return None
