"""Messages of a publisher that were sent once and have not come back: kept by ranges, as they leave and return."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class InFlight:
    """Tickets that are under way for the first time, each with when it was sent. They are sent in rising order."""

    def __init__(self) -> None:
        self._sent_at: dict[int, float] = {}
        self._batches: deque[tuple[float, range]] = deque()

    def __len__(self) -> int:
        return len(self._sent_at)

    def send(self, tickets: Iterable[int], span: range, now: float) -> None:
        """``tickets``, all that are left of ``span``, leave."""
        self._sent_at.update(dict.fromkeys(tickets, now))
        self._batches.append((now, span))

    def sent_times(self, tickets: range) -> list[float] | None:
        """Return when each of ``tickets`` was sent, ``None`` if one is not under way."""
        times = [sent_at for sent_at in map(self._sent_at.get, tickets) if sent_at is not None]
        return times if len(times) == len(tickets) else None

    def acknowledge(self, tickets: range) -> None:
        """All of ``tickets``, which are under way, are back."""
        for ticket in tickets:
            del self._sent_at[ticket]

    def pop(self, ticket: int) -> float | None:
        """Take a ticket out and return when it was sent, ``None`` if it is not under way."""
        return self._sent_at.pop(ticket, None)

    def take_overtaken(self, ticket: int, sent_at: float) -> list[tuple[int, float]]:
        """Take out and return what is below ``ticket`` and was sent at ``sent_at`` or before, with when that was."""
        lost = []
        while self._batches and self._batches[0][0] <= sent_at:
            at, span = self._batches.popleft()
            lost += self._take(range(span.start, min(ticket, span.stop)))
            if ticket < span.stop:
                self._batches.appendleft((at, range(max(ticket, span.start), span.stop)))
                break
        return lost

    def take_timed_out(self, now: float, timeout: float) -> list[tuple[int, float]]:
        """Take out and return what has been under way for ``timeout`` seconds, with when it was sent."""
        lost = []
        while self._batches:
            at, span = self._batches[0]
            first = next((ticket for ticket in span if ticket in self._sent_at), None)
            if first is not None and at + timeout > now:
                self._batches[0] = at, range(first, span.stop)
                break
            self._batches.popleft()
            lost += self._take(span)
        return lost

    @property
    def earliest_sent_at(self) -> float | None:
        """When the first of them was sent, or one before it that is back."""
        return self._batches[0][0] if self._batches else None

    def clear(self) -> None:
        """Nothing is under way any more."""
        self._sent_at.clear()
        self._batches.clear()

    def _take(self, tickets: range) -> list[tuple[int, float]]:
        return [(ticket, self._sent_at.pop(ticket)) for ticket in tickets if ticket in self._sent_at]
