"""Messages of a publisher that counted as lost, and are sent again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Retransmission:
    """A message that counted as lost once at least.

    :ivar sent_at: when it was sent last.
    :ivar attempts: how often it was sent.
    :ivar is_lost: it waits to be sent again.
    """

    sent_at: float
    attempts: int = 1
    is_lost: bool = True


class RetransmitQueue:
    """Tickets that got lost: some wait to be sent again, in the order in which they got lost, others are under way.

    :ivar in_flight: how many were sent again and have neither come back nor got lost once more.
    """

    def __init__(self) -> None:
        self.in_flight = 0
        self._retransmissions: dict[int, Retransmission] = {}
        self._lost: deque[int] = deque()
        self._sent: deque[tuple[float, int]] = deque()

    def mark_lost(self, ticket: int, sent_at: float) -> None:
        """``ticket``, which was sent once, is lost."""
        self._retransmissions[ticket] = Retransmission(sent_at)
        self._lost.append(ticket)

    def send_next(self, now: float) -> int | None:
        """Return the ticket that is to be sent again now, ``None`` if there is none."""
        while self._lost:
            ticket = self._lost.popleft()
            retry = self._retransmissions.get(ticket)
            if retry is not None:
                retry.sent_at, retry.attempts, retry.is_lost = now, retry.attempts + 1, False
                self._sent.append((now, ticket))
                self.in_flight += 1
                return ticket
        return None

    def mark_timed_out(self, now: float, timeout: float) -> int:
        """Lose once more what has been under way for ``timeout`` seconds; return how many those are."""
        lost = 0
        while self._sent:
            at, ticket = self._sent[0]
            retry = self._retransmissions.get(ticket)
            under_way = retry is not None and not retry.is_lost and retry.sent_at == at
            if under_way and at + timeout > now:
                break
            self._sent.popleft()
            if retry is not None and under_way:
                retry.is_lost = True
                self.in_flight -= 1
                self._lost.append(ticket)
                lost += 1
        return lost

    def pop(self, ticket: int) -> Retransmission | None:
        """Take a ticket out and return what is known of it."""
        retry = self._retransmissions.pop(ticket, None)
        if retry is not None and not retry.is_lost:
            self.in_flight -= 1
        return retry

    @property
    def earliest_sent_at(self) -> float | None:
        """When the first of them was sent again, or one before it that is back."""
        return self._sent[0][0] if self._sent else None

    def clear(self) -> None:
        """All are done."""
        self._retransmissions.clear()
        self._lost.clear()
        self._sent.clear()
        self.in_flight = 0
