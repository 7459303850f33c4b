"""Messages that have a number and wait until enough durable journals have them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from fyrehose_twisted.fyrehose.wire.packets import Holding


class Unkept(NamedTuple):
    """A message that was published, and that too few journals have made durable in time."""

    ticket: int
    sequence: int
    had: int
    wanted: int


class NotKept(NamedTuple):
    """Event: messages were published, and not kept as wanted in time."""

    messages: list[Unkept]


class _Waiting(NamedTuple):
    sequence: int
    ticket: int
    wanted: int


class Keeping:
    """Tells when a message is kept, going by what the backbone says of the journals."""

    def __init__(self) -> None:
        self._wanted: dict[int, tuple[int, float]] = {}
        self._numbered: dict[int, _Waiting] = {}
        self._heaps: dict[int, list[_Waiting]] = {}
        self._expiry: deque[tuple[float, range]] = deque()
        self._holdings: Sequence[Holding] = ()

    def __len__(self) -> int:
        """Return how many messages wait to be kept, those without a number included."""
        return len(self._wanted)

    def __contains__(self, ticket: int) -> bool:
        """Say whether a message waits to be kept."""
        return ticket in self._wanted

    def want(self, tickets: range, wanted: int, deadline: float) -> None:
        """Wait for ``wanted`` journals to keep each of these messages."""
        self._wanted.update(dict.fromkeys(tickets, (wanted, deadline)))
        self._expiry.append((deadline, tickets))

    def published(self, messages: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take in what was numbered, as pairs of ticket and number; return what is done with that: no journal was
        asked for, or enough have it."""
        if not self._wanted:
            return messages
        done = []
        for ticket, sequence in messages:
            wanted = self._wanted.get(ticket)
            if wanted is None or self._count(sequence) >= wanted[0]:
                self._wanted.pop(ticket, None)
                done.append((ticket, sequence))
            else:
                waiting = self._numbered[ticket] = _Waiting(sequence, ticket, wanted[0])
                heapq.heappush(self._heaps.setdefault(wanted[0], []), waiting)
        return done

    def failed(self, tickets: Sequence[int]) -> None:
        """These messages were not published, so they are not waited for."""
        for ticket in tickets:
            self._wanted.pop(ticket, None)

    def heard(self, holdings: Sequence[Holding]) -> list[tuple[int, int]]:
        """The journals have this now: return the messages that are kept, as pairs of ticket and number."""
        self._holdings = holdings
        done = []
        for wanted, heap in self._heaps.items():
            if len(holdings) < wanted:
                continue
            reached = sorted((holding.durable for holding in holdings), reverse=True)[wanted - 1]
            while heap and heap[0].sequence <= reached:
                waiting = heapq.heappop(heap)
                # One that some journals lost waits for its deadline, outside of the heap.
                if waiting.ticket in self._wanted and self._count(waiting.sequence) >= wanted:
                    del self._wanted[waiting.ticket], self._numbered[waiting.ticket]
                    done.append((waiting.ticket, waiting.sequence))
        return done

    def expired(self, now: float) -> list[Unkept]:
        """Give up and return the messages that have a number and were not kept in time."""
        late = []
        while self._expiry and (self._expiry[0][0] <= now or self._is_done(self._expiry[0][1])):
            _, tickets = self._expiry.popleft()
            for ticket in tickets:
                if self._wanted.pop(ticket, None) is not None and (waiting := self._numbered.pop(ticket, None)):
                    late.append(Unkept(ticket, waiting.sequence, self._count(waiting.sequence), waiting.wanted))
        if late:
            for heap in self._heaps.values():
                heap[:] = sorted(waiting for waiting in heap if waiting.ticket in self._numbered)
        return late

    def next_deadline(self) -> float | None:
        """Return when :meth:`expired` has something to give up."""
        return self._expiry[0][0] if self._expiry and self._wanted else None

    def _is_done(self, tickets: range) -> bool:
        ends = tickets[0] in self._wanted or tickets[-1] in self._wanted
        return not ends and not any(ticket in self._wanted for ticket in tickets)

    def _count(self, sequence: int) -> int:
        return sum(holding.keeps(sequence) for holding in self._holdings)
