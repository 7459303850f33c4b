"""What becomes of entries once they are final: events get their numbers, and are handed on without holes (P1)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from fyrehose_twisted.errors import EventsNotHeld
from fyrehose_twisted.interfaces import IEventHistory
from fyrehose_twisted.parcels.events import Delivered, Skipped, Told
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.ordering.backfill import Backfill
from fyrehose_twisted.parcels.node.ordering.event_numbering import Replica, Result
from fyrehose_twisted.parcels.node.ordering.history import Events, Stretch
from fyrehose_twisted.parcels.wire.messages import Entry, Event, Fetch, Fetched, Member

FETCH_BYTES = 49_152
"""Bytes of events in one answer to a Fetch."""
FETCH_EVENTS = 4_096
"""Events in one, at most."""
CATCH_UP = 100_000
"""How many events back a node without memory asks for when it joins."""


class Delivery:
    """Hands events on.

    :param history: where they are kept; its last is the last that was handed on before.
    :param told: where to put what the application is told.
    :param ask: sends a request to a member.
    :ivar replica: what the entries came to.
    :ivar last: number of the last event that was handed on.
    :ivar backfill: events that have to be fetched before others can be handed on.
    """

    def __init__(
        self,
        history: IEventHistory,
        counters: Counters,
        told: list[Told],
        ask: Callable[[Member, Fetch], object],
    ) -> None:
        self.replica = Replica()
        self.history = history
        self.last: int = history.last
        self.backfill: Backfill | None = None
        self._counters = counters
        self._told = told
        self._ask = ask
        self._began = self.last > 0
        self._joined = self._began

    @property
    def deadline(self) -> float:
        """When :meth:`fill` is to be called."""
        return inf if self.backfill is None else self.backfill.deadline

    def begin(self, sequence: int) -> None:
        """The order begins after this number."""
        self._joined = True
        self.replica.sequence = self.last = max(sequence, self.last)
        self.history.clear(self.last)

    def install(self, replica: Replica) -> None:
        """The order is further on than what is here. A node that is new to it begins a little before."""
        replica.repeats = self.replica.repeats
        self.replica = replica
        if not self._joined:
            self._joined = True
            self.last = max(0, replica.sequence - CATCH_UP)
            self.history.clear(self.last)

    def take(self, entry: Entry) -> list[Result]:
        """Take the next entry of the log."""
        results, stretches = self.replica.take(entry)
        if stretches and self.backfill is None and stretches[0].first <= self.last + 1:
            self._hand_on(stretches)
        return results

    def _hand_on(self, stretches: list[Stretch]) -> None:
        wanted = [one for one in stretches if one.end > self.last + 1]
        if not wanted:
            return
        one = wanted[0]
        skip = self.last + 1 - one.first
        if skip:
            # A journal had the first of them.
            wanted[0] = Stretch(one.first + skip, one.publisher, one.epoch, one.number + skip, one.data[skip:])
        self.history.put(wanted)
        events = Events(wanted)
        self._counters.delivered += len(events)
        self.last = events.last
        self._told.append(Delivered(events))

    # What is missing

    def fill(self, members: list[Member], now: float) -> None:
        """Fetch what is missing before the next event, as long as something is.

        :param members: who can be asked, the best first.
        """
        while self.last < self.replica.sequence:
            backfill = self.backfill
            if backfill is None:
                backfill = self.backfill = Backfill(self.last + 1, self.replica.sequence)
            # What becomes final meanwhile is fetched too: then nothing has to be held back here.
            backfill.last = self.replica.sequence
            question = backfill.ask(members, now)
            if question is not None:
                self._ask(*question)
                return
            reached = backfill.skip(members)
            if reached is None:
                return
            if self._began or self._counters.delivered:
                self._counters.skipped += reached - self.last
                self._told.append(Skipped(self.last + 1, reached))
            self.last = reached
            self.history.clear(reached)
        self.backfill = None

    def fetched(self, message: Fetched, sender: Member) -> None:
        """Somebody gave events that were missing, or has none."""
        stretches = [] if self.backfill is None else self.backfill.fetched(message, sender)
        if stretches:
            self._counters.fetched += len(message.events)
            self._hand_on(stretches)

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

    def give(self, message: Fetch) -> Fetched:
        """Return what somebody else is missing."""
        first, last = max(message.first, self.history.oldest), min(message.last, self.last)
        events: list[Event] = self.history.read(first, last, FETCH_EVENTS) if first <= last else []
        given: list[tuple[str, int, int, bytes]] = []
        size = 0
        for event in events:
            size += len(event.data) + len(event.publisher.encode()) + 30
            if size > FETCH_BYTES and given:
                break
            given.append((event.publisher, event.epoch, event.number, event.data))
        return Fetched(first, given)
