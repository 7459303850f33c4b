"""What becomes of entries once they are final: events get their numbers, and are handed on without holes (P1)."""

from __future__ import annotations

from collections.abc import Callable
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
"""Bytes of events in one answer to a Fetch."""
MAX_FETCH_EVENTS = 4_096
"""Events in one, at most."""
MAX_JOIN_BACKFILL = 100_000
"""How many events back a node without memory asks for when it joins."""


class Delivery:
    """Hands events on.

    :param history: where they are kept; its last is the last that was handed on before.
    :param told: where to put what the application is told.
    :param ask: sends a request to a member.
    :ivar numbering: what the entries came to.
    :ivar last: number of the last event that was handed on.
    :ivar backfill: events that have to be fetched before others can be handed on.
    """

    def __init__(
        self,
        history: IEventHistory,
        counters: Counters,
        events: list[NodeEvent],
        send_request: Callable[[MemberId, FetchEvents], object],
    ) -> None:
        self.numbering = EventNumbering()
        self.history = history
        self.last: int = history.last
        self.backfill: EventBackfill | None = None
        self._counters = counters
        self._events = events
        self._send_request = send_request
        self._has_history = self.last > 0
        self._joined = self._has_history

    @property
    def deadline(self) -> float:
        """When :meth:`fetch_missing` is to be called."""
        return inf if self.backfill is None else self.backfill.deadline

    def start_after(self, sequence: int) -> None:
        """The order begins after this number."""
        self._joined = True
        self.numbering.sequence = self.last = max(sequence, self.last)
        self.history.clear(self.last)

    def install_numbering(self, numbering: EventNumbering) -> None:
        """The order is further on than what is here. A node that is new to it begins a little before."""
        numbering.repeats = self.numbering.repeats
        self.numbering = numbering
        if not self._joined:
            self._joined = True
            self.last = max(0, numbering.sequence - MAX_JOIN_BACKFILL)
            self.history.clear(self.last)

    def apply(self, entry: LogEntry) -> list[RunResult]:
        """Take the next entry of the log."""
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
            # A journal had the first of them.
            wanted[0] = SequencedRun(one.first + skip, one.publisher, one.epoch, one.number + skip, one.data[skip:])
        self.history.put(wanted)
        events = EventBatch(wanted)
        self._counters.delivered += len(events)
        self.last = events.last
        self._events.append(EventsDelivered(events))

    # What is missing

    def fetch_missing(self, sources: list[MemberId], now: float) -> None:
        """Fetch what is missing before the next event, as long as something is.

        :param sources: who can be asked, the best first.
        """
        while self.last < self.numbering.sequence:
            backfill = self.backfill
            if backfill is None:
                backfill = self.backfill = EventBackfill(self.last + 1, self.numbering.sequence)
            # What becomes final meanwhile is fetched too: then nothing has to be held back here.
            backfill.last = self.numbering.sequence
            question = backfill.next_request(sources, now)
            if question is not None:
                self._send_request(*question)
                return
            reached = backfill.skip_unavailable(sources)
            if reached is None:
                return
            if self._has_history or self._counters.delivered:
                self._counters.skipped += reached - self.last
                self._events.append(EventsSkipped(self.last + 1, reached))
            self.last = reached
            self.history.clear(reached)
        self.backfill = None

    def backfill_received(self, message: FetchEventsReply, sender: MemberId) -> None:
        """Somebody gave events that were missing, or has none."""
        stretches = [] if self.backfill is None else self.backfill.reply_received(message, sender)
        if stretches:
            self._counters.fetched += len(message.events)
            self._deliver(stretches)

    # What is held

    def read(self, first: int, last: int, limit: int) -> list[Event]:
        """Return events ``first`` to ``last`` as far as they were handed on, at most ``limit``.

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
        """Return what somebody else is missing."""
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
