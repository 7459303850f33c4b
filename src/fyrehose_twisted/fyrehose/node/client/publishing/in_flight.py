"""Messages in flight of a publisher, sent once and not acknowledged."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class InFlight:
    """Tickets in flight for the first time, with their send times. They are sent in rising order.

    :ivar settled: number of tickets that turned out to be acknowledged or lost.
    """

    def __init__(self) -> None:
        self.settled = 0
        self._sent_at: dict[int, float] = {}
        self._batches: deque[tuple[float, range]] = deque()

    def __len__(self) -> int:
        return len(self._sent_at)

    def send(self, tickets: Iterable[int], span: range, now: float) -> None:
        """Record that ``tickets``, the remaining ones of ``span``, are sent."""
        self._sent_at.update(dict.fromkeys(tickets, now))
        self._batches.append((now, span))

    def sent_times(self, tickets: range) -> list[float] | None:
        """Return the send times of ``tickets``, or ``None`` if one is not in flight."""
        times = [sent_at for sent_at in map(self._sent_at.get, tickets) if sent_at is not None]
        return times if len(times) == len(tickets) else None

    def acknowledge(self, tickets: range) -> None:
        """Remove ``tickets``, which must be in flight."""
        for ticket in tickets:
            del self._sent_at[ticket]

    def pop(self, ticket: int) -> float | None:
        """Remove a ticket and return its send time, or ``None`` if it is not in flight."""
        return self._sent_at.pop(ticket, None)

    def take_overtaken(self, ticket: int, sent_at: float) -> list[tuple[int, float]]:
        """Remove and return the tickets below ``ticket`` sent at ``sent_at`` or before, with their send times."""
        lost = []
        while self._batches and self._batches[0][0] <= sent_at:
            at, span = self._batches.popleft()
            lost += self._take(range(span.start, min(ticket, span.stop)))
            if ticket < span.stop:
                self._batches.appendleft((at, range(max(ticket, span.start), span.stop)))
                break
        return lost

    def take_timed_out(self, now: float, timeout: float) -> list[tuple[int, float]]:
        """Remove and return the tickets in flight for ``timeout`` seconds, with their send times."""
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
        """Send time of the first ticket, or of an acknowledged one before it; ``None`` if there is none."""
        return self._batches[0][0] if self._batches else None

    def clear(self) -> None:
        """Remove all tickets."""
        self._sent_at.clear()
        self._batches.clear()

    def _take(self, tickets: range) -> list[tuple[int, float]]:
        self.settled += len(tickets)
        return [(ticket, self._sent_at.pop(ticket)) for ticket in tickets if ticket in self._sent_at]
