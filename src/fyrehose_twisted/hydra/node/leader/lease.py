"""Lease of the leader to write to IRC (rule S5 of the reading of document 002)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fyrehose_twisted.hydra.config import Timers
from fyrehose_twisted.hydra.wire.ping_val import claimed_lease

MAX_TRACKED_PINGS = 16
"""Number of PINGs that are remembered."""


@dataclass(slots=True)
class _SentPing:
    val: str
    index: int
    sent_at: float
    lease: float
    answered: set[int] = field(default_factory=set)


class Lease:
    """Lease computed from a leader's PINGs and their answers.

    :ivar until: end of the lease; ``None`` before the first one.
    :ivar began_at: time of the first PING.
    """

    def __init__(self, timers: Timers, now: float) -> None:
        self.until: float | None = None
        self.began_at = now
        self._timers = timers
        self._sent_pings: deque[_SentPing] = deque(maxlen=MAX_TRACKED_PINGS)
        self._latest_answered: dict[int, int] = {}
        self._index = 0

    def is_valid(self, now: float) -> bool:
        """Return whether the lease is valid."""
        return self.until is not None and now < self.until

    def ping_sent(self, val: str, now: float) -> None:
        """Record a sent PING, whose val may claim a lease."""
        self._index += 1
        claimed = claimed_lease(val)
        self._sent_pings.append(_SentPing(val, self._index, now, self._timers.lease if claimed is None else claimed))

    def ponged(self, val: str, node: int, since: float, quorum: int) -> float | None:
        """Record the answer of a registered node.

        :param since: time of its registration. Earlier PINGs do not count, as it may have had another id then.
        :returns: time at which the last PING was sent, if this answer makes its quorum; else ``None``.
        """
        completed = None
        for sent in self._sent_pings:
            if sent.val != val or sent.sent_at < since:
                continue
            self._latest_answered[node] = max(self._latest_answered.get(node, 0), sent.index)
            sent.answered.add(node)
            if len(sent.answered) >= quorum:
                self.until = max(self.until or 0.0, sent.sent_at + sent.lease)
                if sent.index == self._index and len(sent.answered) == quorum:
                    completed = sent.sent_at
        return completed

    def forget(self, node: int) -> None:
        """Forget the answers of a dropped node."""
        self._latest_answered.pop(node, None)
        for sent in self._sent_pings:
            sent.answered.discard(node)

    def is_overdue(self, node: int, since: float, now: float) -> bool:
        """Return whether a node has left PINGs unanswered for MAX_PING.

        :param since: time of its registration.
        """
        owed = [
            sent for sent in self._sent_pings if sent.sent_at + self._timers.max_ping <= now and sent.sent_at >= since
        ]
        return bool(owed) and self._latest_answered.get(node, 0) < owed[-1].index

    def next_deadline(self, now: float) -> float:
        """Return the time at which the next answer is overdue."""
        due = [
            sent.sent_at + self._timers.max_ping
            for sent in self._sent_pings
            if sent.sent_at + self._timers.max_ping > now
        ]
        return min(due, default=now + self._timers.max_ping)
