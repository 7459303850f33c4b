"""Publisher's send queue: numbers events, resends them after a lost connection, and processes acknowledgements."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.parcels.events import SequenceSpans
from fyrehose_twisted.parcels.node.log_entries import EVENT_OVERHEAD
from fyrehose_twisted.parcels.wire.messages import PublisherRun

MAX_RUN_BYTES = 49_152
"""Bytes of events in one run. A single event may be larger."""
UNANSWERED = 4_096
"""Maximum number of unacknowledged events of one publisher; see
:data:`~fyrehose_twisted.parcels.node.ordering.publisher_sessions.REMEMBERED`."""


class NumberedBatch(NamedTuple):
    """A batch whose events all have sequence numbers."""

    token: Any
    numbers: SequenceSpans


class RejectedBatch(NamedTuple):
    """A batch with events that have no sequence number."""

    token: Any
    numbers: SequenceSpans
    """Numbers of its leading events that do have one."""
    sent: bool
    """Whether the other events may have got one nevertheless."""


class _PublishBatch:
    """Events that were published together."""

    __slots__ = ("events", "numbered_count", "numbers", "sent", "token")

    def __init__(self, events: Sequence[bytes], token: Any) -> None:
        self.events = events
        self.token = token
        self.numbered_count = 0
        self.sent = False
        self.numbers: list[tuple[int, int]] = []

    def add_numbers(self, first: int, count: int) -> None:
        """Record the numbers of its next events."""
        if self.numbers and sum(self.numbers[-1]) == first:
            start, size = self.numbers[-1]
            self.numbers[-1] = (start, size + count)
        else:
            self.numbers.append((first, count))
        self.numbered_count += count


class PublisherQueue:
    """Unacknowledged events of one publisher.

    They are answered in the order in which they were published, for that is how they are ordered.

    :param publisher: unique name of the publisher.
    :param limit: maximum size of pending events in bytes.
    :ivar pending_events: number of pending events.
    :ivar pending_bytes: size of pending events in bytes.
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
        """Queue one or more events.

        :raises PublishQueueFull: if too many wait already.
        """
        size = sum(map(len, events)) + EVENT_OVERHEAD * len(events)
        if self.pending_bytes + size > self._limit and self.pending_bytes:
            raise PublishQueueFull(
                f"{self.pending_events:,} events are pending, {self.pending_bytes:,} bytes of at most "
                f"{self._limit:,};"
                " wait for some of them"
            )
        batch = _PublishBatch(events, token)
        self._batches.append(batch)
        self._queue.append((batch, 0))
        self.pending_events += len(events)
        self.pending_bytes += size

    def take_runs(self) -> list[PublisherRun]:
        """Return the runs to send now."""
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
        """Let :meth:`take_runs` return all unacknowledged events again, because the receiver is gone."""
        self._unsent = deque(self._runs)

    def acknowledge(self, epoch: int, first: int, numbers: SequenceSpans) -> Iterator[NumberedBatch]:
        """Record the numbers of events. Out-of-order acknowledgements are ignored, because those events are resent."""
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
        """Stop waiting and return unacknowledged batches.

        Events in flight may still be ordered, but never after events published later.
        """
        failed = [RejectedBatch(batch.token, tuple(batch.numbers), batch.sent) for batch in self._batches]
        for items in (self._batches, self._runs, self._unsent, self._queue):
            items.clear()
        if self._next_number > 1:
            self.epoch += 1
            self._next_number = 1
        self.pending_events = self.pending_bytes = self._in_flight = 0
        return failed

    def cancel(self, token: Any) -> RejectedBatch | None:
        """Cancel the batch published with ``token``, if it is pending.

        Unsent events are dropped. Events in flight keep their numbers, because later ones depend on them, and may still
        be ordered.
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
