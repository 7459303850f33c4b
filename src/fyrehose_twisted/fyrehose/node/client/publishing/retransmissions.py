"""Retransmission of lost messages of a publisher."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf


@dataclass(slots=True)
class Retransmission:
    """Message that counted as lost at least once.

    :ivar sent_at: time at which it was sent last.
    :ivar attempts: number of times that it was sent.
    :ivar is_lost: whether it waits to be retransmitted.
    """

    sent_at: float
    attempts: int = 1
    is_lost: bool = True


class RetransmitQueue:
    """Lost tickets, which wait for retransmission in the order of their loss, or are in flight again.

    :ivar in_flight: number of retransmitted tickets that are neither acknowledged nor lost again.
    :ivar settled: number of retransmissions that turned out to be acknowledged or lost.
    """

    def __init__(self) -> None:
        self.settled = 0
        self.in_flight = 0
        self._retransmissions: dict[int, Retransmission] = {}
        self._lost: deque[int] = deque()
        self._sent: deque[tuple[float, int]] = deque()

    def mark_lost(self, ticket: int, sent_at: float) -> None:
        """Add a ticket that was sent once and is lost."""
        self._retransmissions[ticket] = Retransmission(sent_at)
        self._lost.append(ticket)

    def send_next(self, now: float) -> int | None:
        """Return the next ticket to retransmit, or ``None``."""
        while self._lost:
            ticket = self._lost.popleft()
            retry = self._retransmissions.get(ticket)
            if retry is not None:
                retry.sent_at, retry.attempts, retry.is_lost = now, retry.attempts + 1, False
                self._sent.append((now, ticket))
                self.in_flight += 1
                return ticket
        return None

    def mark_overtaken(self, sent_at: float) -> int:
        """Mark the tickets in flight that were sent at ``sent_at`` or before as lost again. Return their number."""
        return self.mark_timed_out(sent_at, 0.0)

    def mark_timed_out(self, now: float, timeout: float) -> int:
        """Mark the tickets in flight for ``timeout`` seconds as lost again. Return their number."""
        lost = 0
        while self._sent:
            at, ticket = self._sent[0]
            retry = self._retransmissions.get(ticket)
            is_in_flight = retry is not None and not retry.is_lost and retry.sent_at == at
            if is_in_flight and at + timeout > now:
                break
            self._sent.popleft()
            self.settled += 1
            if retry is not None and is_in_flight:
                retry.is_lost = True
                self.in_flight -= 1
                self._lost.append(ticket)
                lost += 1
        return lost

    def mark_all_lost(self) -> None:
        """Mark all tickets in flight as lost again, and retransmit the lost ones in rising order."""
        self.mark_timed_out(inf, 0.0)
        self._lost = deque(sorted(ticket for ticket in self._lost if ticket in self._retransmissions))

    def pop(self, ticket: int) -> Retransmission | None:
        """Remove a ticket and return its state, or ``None``."""
        retry = self._retransmissions.pop(ticket, None)
        if retry is not None and not retry.is_lost:
            self.in_flight -= 1
        return retry

    @property
    def earliest_sent_at(self) -> float | None:
        """Time of the first retransmission in flight, or of an acknowledged one before it; ``None`` for none."""
        return self._sent[0][0] if self._sent else None

    def clear(self) -> None:
        """Remove all tickets."""
        self._retransmissions.clear()
        self._lost.clear()
        self._sent.clear()
        self.in_flight = 0
