"""Tracking of published messages until enough durable journals have synced them."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from fyrehose_twisted.fyrehose.wire.packets import Holding, ranges_kept_by


class UndurableMessage(NamedTuple):
    """Published message that too few journals have synced in time."""

    ticket: int
    sequence: int
    had: int
    wanted: int


class DurabilityExpired(NamedTuple):
    """Event: messages were published, but too few journals have synced them in time."""

    messages: list[UndurableMessage]


class _PendingMessage(NamedTuple):
    sequence: int
    ticket: int
    required: int


class DurabilityTracker:
    """Messages that wait for journals, and the journal progress last reported by the backbone."""

    def __init__(self) -> None:
        self._required: dict[int, tuple[int, float]] = {}
        self._numbered: dict[int, _PendingMessage] = {}
        self._waiting: dict[int, list[_PendingMessage]] = {}  # By required count, sorted.
        self._expiry: deque[tuple[float, range]] = deque()
        self._holdings: Sequence[Holding] = ()

    def __len__(self) -> int:
        """Return the number of messages that wait for journals, including those without a sequence number."""
        return len(self._required)

    def __contains__(self, ticket: int) -> bool:
        """Return whether a message waits for journals."""
        return ticket in self._required

    def require(self, tickets: range, required: int, deadline: float) -> None:
        """Track messages until ``required`` journals have synced each of them."""
        self._required.update(dict.fromkeys(tickets, (required, deadline)))
        self._expiry.append((deadline, tickets))

    def published(self, messages: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Record numbered messages, as pairs of ticket and number.

        :return: those that are complete: no journal is required, or enough journals have synced them.
        """
        if not self._required:
            return messages
        done = []
        for ticket, sequence in messages:
            requirement = self._required.get(ticket)
            if requirement is None or self._count_durable(sequence) >= requirement[0]:
                self._required.pop(ticket, None)
                done.append((ticket, sequence))
            else:
                pending = self._numbered[ticket] = _PendingMessage(sequence, ticket, requirement[0])
                insort(self._waiting.setdefault(requirement[0], []), pending)
        return done

    def failed(self, tickets: Sequence[int]) -> None:
        """Stop tracking messages that were not published."""
        for ticket in tickets:
            self._required.pop(ticket, None)

    def holdings_received(self, holdings: Sequence[Holding]) -> list[tuple[int, int]]:
        """Record the progress of the journals. Return the messages that are complete, as pairs of ticket and number."""
        self._holdings = holdings
        done = []
        for required, waiting in self._waiting.items():
            for first, last in ranges_kept_by(required, holdings):
                start, end = bisect_left(waiting, (first,)), bisect_left(waiting, (last + 1,))
                done += [(pending.ticket, pending.sequence) for pending in waiting[start:end]]
                del waiting[start:end]
        for ticket, _ in done:
            del self._required[ticket], self._numbered[ticket]
        return done

    def take_expired(self, now: float) -> list[UndurableMessage]:
        """Remove and return the published messages whose deadline has passed."""
        late = []
        while self._expiry and (self._expiry[0][0] <= now or self._none_pending(self._expiry[0][1])):
            _, tickets = self._expiry.popleft()
            for ticket in tickets:
                if self._required.pop(ticket, None) is not None and (pending := self._numbered.pop(ticket, None)):
                    late.append(
                        UndurableMessage(
                            ticket, pending.sequence, self._count_durable(pending.sequence), pending.required
                        )
                    )
        if late:
            for waiting in self._waiting.values():
                waiting[:] = [pending for pending in waiting if pending.ticket in self._numbered]
        return late

    def next_deadline(self) -> float | None:
        """Return the time at which :meth:`take_expired` is due, ``None`` if no message is tracked."""
        return self._expiry[0][0] if self._expiry and self._required else None

    def _none_pending(self, tickets: range) -> bool:
        ends = tickets[0] in self._required or tickets[-1] in self._required
        return not ends and not any(ticket in self._required for ticket in tickets)

    def _count_durable(self, sequence: int) -> int:
        return sum(holding.keeps(sequence) for holding in self._holdings)
