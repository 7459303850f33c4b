"""Questions of a new leader to the clients: which numbers of the earlier terms are held."""

from __future__ import annotations

from collections.abc import Iterable

from fyrehose_twisted.effects import Address

REPEATS = (0.03, 0.06)
"""Seconds after which clients that have not answered are asked again."""

PATIENCE = 0.1
"""Seconds after which a new leader waits for no further answers."""


class Takeover:
    """Answers of the clients to one new leader.

    :param first: first number of the new term.
    :param now: time at which it took over.
    :param wait_until: time before which it must not start, because it does not know its clients yet.
    :param patience_until: time before which it starts only if all clients have answered.
    :ivar held_up_to: highest number below ``first`` that a client, or the group itself, is known to hold.
    :ivar claims: clients that claim to hold a number that was never given, with that number.
    """

    def __init__(
        self, first: int, kept: int, now: float, wait_until: float, patience_until: float | None = None
    ) -> None:
        self.first = first
        self.started_at = now
        self.held_up_to = min(kept, first - 1)
        self.claims: dict[Address, int] = {}
        self.answered: set[Address] = set()
        self._wait_until = wait_until
        self._asked: set[Address] = set()
        self._questions = [now, *(now + delay for delay in REPEATS)]
        self._ends_at = max(max(now, wait_until) + PATIENCE, now if patience_until is None else patience_until)

    def ask(self, client: Address) -> None:
        """Record that a client was asked."""
        self._asked.add(client)

    def head_received(self, client: Address, highest: int) -> None:
        """Record the answer of a client."""
        self.answered.add(client)
        if highest >= self.first:
            self.claims[client] = highest
        else:
            self.held_up_to = max(self.held_up_to, highest)

    def forget(self, client: Address) -> None:
        """Wait no longer for a client that left."""
        self._asked.discard(client)

    def due_questions(self, clients: Iterable[Address], now: float) -> list[Address]:
        """Return the clients to ask at ``now``."""
        if not self._questions or now < self._questions[0]:
            return []
        while self._questions and self._questions[0] <= now:
            del self._questions[0]
        due = [client for client in clients if client not in self.answered]
        self._asked.update(due)
        return due

    def is_over(self, now: float) -> bool:
        """Return whether numbering may begin."""
        return now >= self._ends_at or (now >= self._wait_until and self._asked <= self.answered)

    def next_deadline(self) -> float:
        """Return the time of the next question, or of the end."""
        ends_at = self._wait_until if self._asked <= self.answered else self._ends_at
        return min(self._questions[0], ends_at) if self._questions else ends_at
