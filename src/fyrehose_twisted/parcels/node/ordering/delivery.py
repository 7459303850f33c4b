"""Delivery of committed entries: events get sequence numbers and are delivered without gaps (P1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf

from fyrehose_twisted.consensus.messages import LogEntry, MemberId
from fyrehose_twisted.errors import EventsNotHeld
from fyrehose_twisted.interfaces import IEventHistory
from fyrehose_twisted.parcels.events import EventsDelivered, EventsSkipped, NodeEvent
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.ordering.backfill import EventBackfill
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering, RunResult
from fyrehose_twisted.parcels.node.ordering.history import EventBatch, SequencedRun
from fyrehose_twisted.parcels.wire.messages import Event, FetchEvents, FetchEventsReply

MAX_FETCH_BYTES = 49_152
"""Maximum bytes of events in one reply to a Fetch."""
MAX_FETCH_EVENTS = 4_096
"""Maximum number of events in one reply to a Fetch."""


class Delivery:
    """Numbers committed events and delivers them in order.

    :param history: store of delivered events; delivery continues after its last event.
    :param events: list to which events for the application are appended.
    :param send_request: sends a request to a member.
    :param join_events: events before its snapshot that a new node fetches when it joins.
    :ivar numbering: numbering state after the applied entries.
    :ivar last: sequence number of the last delivered event.
    :ivar on_delivered: called with delivered events, before others can take their place in the history.
    :ivar backfill: backfill that has to finish before newer events are delivered.
    """

    def __init__(
        self,
        history: IEventHistory,
        counters: Counters,
        events: list[NodeEvent],
        send_request: Callable[[MemberId, FetchEvents], object],
        join_events: int,
    ) -> None:
        self.numbering = EventNumbering()
        self.history = history
        self.last: int = history.last
        self.on_delivered: Callable[[EventBatch], None] | None = None
        self.backfill: EventBackfill | None = None
        self._counters = counters
        self._events = events
        self._send_request = send_request
        self._join_events = join_events
        self._has_history = self.last > 0
        self._joined = self._has_history

    @property
    def deadline(self) -> float:
        """Return the time at which :meth:`fetch_missing` is due."""
        return inf if self.backfill is None else self.backfill.deadline

    def start_after(self, sequence: int) -> None:
        """Start the total order after this sequence number."""
        self._joined = True
        self.numbering.sequence = self.last = max(sequence, self.last)
        self.history.clear(self.last)

    def install_numbering(self, numbering: EventNumbering) -> None:
        """Continue from a snapshot. A new node also fetches some events before it."""
        numbering.repeats = self.numbering.repeats
        self.numbering = numbering
        if not self._joined:
            self._joined = True
            self.last = max(0, numbering.sequence - self._join_events)
            self.history.clear(self.last)

    def apply(self, entry: LogEntry) -> list[RunResult]:
        """Apply the next committed entry."""
        results, stretches = self.numbering.apply(entry)
        if stretches and self.backfill is None and stretches[0].first <= self.last + 1:
            self._deliver(stretches)
        return results

    def _deliver(self, stretches: list[SequencedRun]) -> None:
        wanted = [one for one in stretches if one.end > self.last + 1]
        if not wanted:
            return
        one = wanted[0]
        skip = self.last + 1 - one.first
        if skip:
            # The journal already holds the first events.
            wanted[0] = SequencedRun(one.first + skip, one.publisher, one.epoch, one.number + skip, one.data[skip:])
        self.history.put(wanted)
        self._joined = True
        events = EventBatch(wanted)
        self._counters.delivered += len(events)
        self.last = events.last
        self._events.append(EventsDelivered(events))
        if self.on_delivered is not None:
            self.on_delivered(events)

    # Backfill

    def fetch_missing(self, sources: Sequence[MemberId], holders: Collection[MemberId], now: float) -> None:
        """Fetch the events missing before the next one, if any.

        :param sources: nodes to ask, in order of preference.
        :param holders: all nodes that may hold events, including those to which no requests can be sent now.
        """
        while self.last < self.numbering.sequence:
            backfill = self.backfill
            if backfill is None:
                backfill = self.backfill = EventBackfill(self.last + 1, self.numbering.sequence)
            # Events committed meanwhile are fetched as well, so none has to be buffered here.
            backfill.last = self.numbering.sequence
            question = backfill.next_request(sources, now)
            if question is not None:
                self._send_request(*question)
                return
            reached = backfill.skip_unavailable(holders)
            if reached is None:
                return
            if self._has_history or self._counters.delivered:
                self._counters.skipped += reached - self.last
                self._events.append(EventsSkipped(self.last + 1, reached))
            self.last = reached
            self.history.clear(reached)
        self.backfill = None

    def backfill_received(self, message: FetchEventsReply, sender: MemberId) -> None:
        """Process a reply to a backfill request."""
        stretches = [] if self.backfill is None else self.backfill.reply_received(message, sender)
        if stretches:
            self._counters.fetched += len(message.events)
            self._deliver(stretches)

    # Held events

    def read(self, first: int, last: int, limit: int) -> list[Event]:
        """Return delivered events from ``first`` to ``last``, at most ``limit``.

        :raises EventsNotHeld: if ``first`` is no longer held.
        """
        last = min(last, self.last)
        if last < first or limit < 1:
            return []
        found: list[Event] = self.history.read(first, last, limit)
        if not found:
            raise EventsNotHeld(first, self.history.oldest, self.last)
        return found

    def serve_fetch(self, message: FetchEvents) -> FetchEventsReply:
        """Return the reply to a backfill request of another node."""
        first, last = max(message.first, self.history.oldest), min(message.last, self.last)
        events: list[Event] = self.history.read(first, last, MAX_FETCH_EVENTS) if first <= last else []
        given: list[tuple[str, int, int, bytes]] = []
        size = 0
        for event in events:
            size += len(event.data) + len(event.publisher.encode()) + 30
            if size > MAX_FETCH_BYTES and given:
                break
            given.append((event.publisher, event.epoch, event.number, event.data))
        return FetchEventsReply(first, given)
