"""Messages of a publisher that counted as lost, and are sent again."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(slots=True)
class Retry:
    """A message that counted as lost once at least.

    :ivar sent_at: when it was sent last.
    :ivar attempts: how often it was sent.
    :ivar lost: it waits to be sent again.
    """

    sent_at: float
    attempts: int = 1
    lost: bool = True


class Retries:
    """Tickets that got lost: some wait to be sent again, in the order in which they got lost, others are under way.

    :ivar under_way: how many were sent again and have neither come back nor got lost once more.
    """

    def __init__(self) -> None:
        self.under_way = 0
        self._retries: dict[int, Retry] = {}
        self._lost: deque[int] = deque()
        self._sent: deque[tuple[float, int]] = deque()

    def lose(self, ticket: int, sent_at: float) -> None:
        """``ticket``, which was sent once, is lost."""
        self._retries[ticket] = Retry(sent_at)
        self._lost.append(ticket)

    def send_next(self, now: float) -> int | None:
        """Return the ticket that is to be sent again now, ``None`` if there is none."""
        while self._lost:
            ticket = self._lost.popleft()
            retry = self._retries.get(ticket)
            if retry is not None:
                retry.sent_at, retry.attempts, retry.lost = now, retry.attempts + 1, False
                self._sent.append((now, ticket))
                self.under_way += 1
                return ticket
        return None

    def late(self, now: float, timeout: float) -> int:
        """Lose once more what has been under way for ``timeout`` seconds; return how many those are."""
        lost = 0
        while self._sent:
            at, ticket = self._sent[0]
            retry = self._retries.get(ticket)
            under_way = retry is not None and not retry.lost and retry.sent_at == at
            if under_way and at + timeout > now:
                break
            self._sent.popleft()
            if retry is not None and under_way:
                retry.lost = True
                self.under_way -= 1
                self._lost.append(ticket)
                lost += 1
        return lost

    def pop(self, ticket: int) -> Retry | None:
        """Take a ticket out and return what is known of it."""
        retry = self._retries.pop(ticket, None)
        if retry is not None and not retry.lost:
            self.under_way -= 1
        return retry

    @property
    def earliest(self) -> float | None:
        """When the first of them was sent again, or one before it that is back."""
        return self._sent[0][0] if self._sent else None

    def clear(self) -> None:
        """All are done."""
        self._retries.clear()
        self._lost.clear()
        self._sent.clear()
        self.under_way = 0
