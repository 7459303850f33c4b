"""The leader's lease: how long it may write to IRC (rule S5 of the reading of document 002)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fyrehose_twisted.hydra.config import Timers

KEPT = 16
"""PINGs that are remembered."""


@dataclass(slots=True)
class _Sent:
    val: str
    index: int
    at: float
    answered: set[int] = field(default_factory=set)


class Lease:
    """What a leader's PINGs and their answers are worth.

    :ivar until: when the lease ends; ``None`` before there was one.
    :ivar began: when the first PING was sent.
    """

    def __init__(self, timers: Timers, now: float) -> None:
        self.until: float | None = None
        self.began = now
        self._timers = timers
        self._sent: deque[_Sent] = deque(maxlen=KEPT)
        self._latest: dict[int, int] = {}
        self._index = 0

    def holds(self, now: float) -> bool:
        """Return whether there is one."""
        return self.until is not None and now < self.until

    def pinged(self, val: str, now: float) -> None:
        """A PING was sent."""
        self._index += 1
        self._sent.append(_Sent(val, self._index, now))

    def ponged(self, val: str, node: int, since: float, quorum: int) -> None:
        """An answer came, from a node that is registered.

        :param since: when it was: what was sent before says nothing about it, for it may have had another id then.
        """
        for sent in self._sent:
            if sent.val != val or sent.at < since:
                continue
            self._latest[node] = max(self._latest.get(node, 0), sent.index)
            sent.answered.add(node)
            if len(sent.answered) >= quorum:
                self.until = max(self.until or 0.0, sent.at + self._timers.lease)

    def forget(self, node: int) -> None:
        """A node is no longer registered."""
        self._latest.pop(node, None)
        for sent in self._sent:
            sent.answered.discard(node)

    def is_overdue(self, node: int, since: float, now: float) -> bool:
        """Return whether a node, registered since then, owes an answer for MAX_PING."""
        owed = [sent for sent in self._sent if sent.at + self._timers.max_ping <= now and sent.at >= since]
        return bool(owed) and self._latest.get(node, 0) < owed[-1].index

    def next_deadline(self, now: float) -> float:
        """Return when the next answer is due."""
        due = [sent.at + self._timers.max_ping for sent in self._sent if sent.at + self._timers.max_ping > now]
        return min(due, default=now + self._timers.max_ping)
