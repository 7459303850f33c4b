"""Messages that have a number and wait until enough durable journals have them."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from fyrehose_twisted.fyrehose.wire.packets import Holding


class UndurableMessage(NamedTuple):
    """A message that was published, and that too few journals have made durable in time."""

    ticket: int
    sequence: int
    had: int
    wanted: int


class DurabilityExpired(NamedTuple):
    """Event: messages were published, and not kept as wanted in time."""

    messages: list[UndurableMessage]


class _PendingMessage(NamedTuple):
    sequence: int
    ticket: int
    required: int


class DurabilityTracker:
    """Tells when a message is kept, going by what the backbone says of the journals."""

    def __init__(self) -> None:
        self._required: dict[int, tuple[int, float]] = {}
        self._numbered: dict[int, _PendingMessage] = {}
        self._heaps: dict[int, list[_PendingMessage]] = {}
        self._expiry: deque[tuple[float, range]] = deque()
        self._holdings: Sequence[Holding] = ()

    def __len__(self) -> int:
        """Return how many messages wait to be kept, those without a number included."""
        return len(self._required)

    def __contains__(self, ticket: int) -> bool:
        """Say whether a message waits to be kept."""
        return ticket in self._required

    def require(self, tickets: range, required: int, deadline: float) -> None:
        """Wait for ``required`` journals to keep each of these messages."""
        self._required.update(dict.fromkeys(tickets, (required, deadline)))
        self._expiry.append((deadline, tickets))

    def published(self, messages: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Take in what was numbered, as pairs of ticket and number; return what is done with that: no journal was
        asked for, or enough have it."""
        if not self._required:
            return messages
        done = []
        for ticket, sequence in messages:
            wanted = self._required.get(ticket)
            if wanted is None or self._count_durable(sequence) >= wanted[0]:
                self._required.pop(ticket, None)
                done.append((ticket, sequence))
            else:
                waiting = self._numbered[ticket] = _PendingMessage(sequence, ticket, wanted[0])
                heapq.heappush(self._heaps.setdefault(wanted[0], []), waiting)
        return done

    def failed(self, tickets: Sequence[int]) -> None:
        """These messages were not published, so they are not waited for."""
        for ticket in tickets:
            self._required.pop(ticket, None)

    def holdings_received(self, holdings: Sequence[Holding]) -> list[tuple[int, int]]:
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
                if waiting.ticket in self._required and self._count_durable(waiting.sequence) >= wanted:
                    del self._required[waiting.ticket], self._numbered[waiting.ticket]
                    done.append((waiting.ticket, waiting.sequence))
        return done

    def take_expired(self, now: float) -> list[UndurableMessage]:
        """Give up and return the messages that have a number and were not kept in time."""
        late = []
        while self._expiry and (self._expiry[0][0] <= now or self._none_pending(self._expiry[0][1])):
            _, tickets = self._expiry.popleft()
            for ticket in tickets:
                if self._required.pop(ticket, None) is not None and (waiting := self._numbered.pop(ticket, None)):
                    late.append(
                        UndurableMessage(
                            ticket, waiting.sequence, self._count_durable(waiting.sequence), waiting.required
                        )
                    )
        if late:
            for heap in self._heaps.values():
                heap[:] = sorted(waiting for waiting in heap if waiting.ticket in self._numbered)
        return late

    def next_deadline(self) -> float | None:
        """Return when :meth:`take_expired` has something to give up."""
        return self._expiry[0][0] if self._expiry and self._required else None

    def _none_pending(self, tickets: range) -> bool:
        ends = tickets[0] in self._required or tickets[-1] in self._required
        return not ends and not any(ticket in self._required for ticket in tickets)

    def _count_durable(self, sequence: int) -> int:
        return sum(holding.keeps(sequence) for holding in self._holdings)
