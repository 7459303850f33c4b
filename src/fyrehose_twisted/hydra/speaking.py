"""The connection to IRC, and what the leader says there (document 002, "Leaders are the nodes responsible for
maintaining the Active Connection to IRC"; rule S5 of its reading).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from typing import NamedTuple

from fyrehose_twisted.hydra.events import CloseIrc, OpenIrc, ToIrc
from fyrehose_twisted.hydra.lines import may_be_said, untag
from fyrehose_twisted.hydra.messages import Send
from fyrehose_twisted.hydra.seen import Seen
from fyrehose_twisted.hydra.standing import Standing

MAX_TRIES = 3
"""Connections in a row that may fail; then somebody else shall try."""
_AGAIN = 1.0
"""Seconds between two of them."""
_ENOUGH = 0.999
"""What counts as credit for a line: clocks are not exact."""
MAX_SAID = 4_096
"""Lines of which it is known that they were said."""


class _Line(NamedTuple):
    name: str | None
    line: bytes
    since: float


class Speaking:
    """The leader's mouth.

    :ivar state: ``closed``, ``opening``, ``open`` or ``closing``.
    :ivar prefix: who the leader is on IRC, ``nick!user@host``.
    """

    def __init__(self, standing: Standing) -> None:
        self.state = "closed"
        self.prefix = b""
        self._standing = standing
        self._queues: OrderedDict[int, deque[_Line]] = OrderedDict()
        self._size = 0
        self._said = Seen(MAX_SAID)
        self._wanted = False
        self._tries = 0
        self._open_at = inf
        self._credit = float(standing.config.irc_burst)
        self._credited = 0.0
        self.lost: str | None = None
        """Why the connection is gone, or cannot be had; whoever sees it makes the node resign."""
        self.unreachable = False
        """Whether it could not be had: others may be luckier."""

    def __len__(self) -> int:
        return self._size

    # The connection

    def want(self, now: float) -> None:
        """There is a lease: connect."""
        if not self._wanted:
            self._wanted, self._tries, self.lost, self.unreachable = True, 0, None, False
            if self.state == "closed":
                self._open()

    def give_up(self, reason: str) -> None:
        """There is no lease any more: close it, and forget what was to be said."""
        self._wanted, self.lost, self._open_at = False, None, inf
        if self._size:
            self._standing.counts["not_said"] += self._size
            self._queues.clear()
            self._size = 0
        if self.state in ("opening", "open"):
            self.state = "closing"
            self._standing.out.tell(CloseIrc(reason))

    def opened(self, prefix: bytes, now: float) -> None:
        """It is registered, and in the channels."""
        if self.state == "opening":
            self.state, self.prefix, self._tries = "open", prefix, 0
            self._credit, self._credited = float(self._standing.config.irc_burst), now

    def closed(self, reason: str, now: float) -> None:
        """Its transport is closed."""
        before, self.state = self.state, "closed"
        if not self._wanted:
            return
        if before == "open":
            self.lost = f"the connection to IRC is gone: {reason}"
            return
        if before == "closing":
            self._open()
            return
        self._tries += 1
        self._standing.counts["irc_failed"] += 1
        if self._tries >= MAX_TRIES:
            self.lost, self.unreachable = f"IRC cannot be reached: {reason}", True
        else:
            self._open_at = now + _AGAIN * self._standing.timers.scale

    # Lines

    def heard(self, line: bytes) -> str | None:
        """A line was relayed; return its token, if it is one that was said."""
        name, _ = untag(line)
        if name is not None:
            self._said.add(name)
        return name

    def put(self, message: Send, now: float) -> str | None:
        """Somebody wants a line said; return why not, if it will not be."""
        counts = self._standing.counts
        name, line = untag(message.line)
        if not may_be_said(line):
            counts["send_refused"] += 1
            return "not-allowed"
        if name is not None and not self._said.add(name):
            counts["send_repeated"] += 1
            return None
        queue = self._queues.get(message.id)
        limit = self._standing.config.max_queue
        if self._size >= limit or (queue is not None and len(queue) > limit // 2):
            counts["send_flooded"] += 1
            if name is not None:
                self._said.discard(name)
            return "queue-full"
        if queue is None:
            queue = self._queues[message.id] = deque()
        queue.append(_Line(name, line, now))
        self._size += 1
        return None

    def take(self, now: float, until: float) -> None:
        """Let the application hand over what IRC may have now, each node's lines in turn."""
        if self.state != "open" or not self._size or now >= until:
            return
        config = self._standing.config
        self._credit = min(float(config.irc_burst), self._credit + max(0.0, now - self._credited) * config.irc_rate)
        self._credited = now
        while self._size and self._credit >= _ENOUGH:
            node, queue = self._queues.popitem(last=False)
            entry = queue.popleft()
            self._size -= 1
            if queue:
                self._queues[node] = queue
            if entry.since + config.max_wait <= now:
                self._standing.counts["not_said"] += 1
                continue
            self._credit -= 1.0
            self._standing.out.tell(ToIrc(entry.line, until, entry.name))

    def tick(self, now: float) -> None:
        """Connect again, if that is due."""
        if self._open_at <= now and self._wanted and self.state == "closed":
            self._open()

    def next_deadline(self) -> float:
        """Return when something is due."""
        due = self._open_at if self._wanted and self.state == "closed" else inf
        if self.state == "open" and self._size:
            due = min(due, self._credited + max(0.0, 1.0 - self._credit) / self._standing.config.irc_rate)
        return due

    def _open(self) -> None:
        self.state, self._open_at = "opening", inf
        self._standing.out.tell(OpenIrc(self._standing.vow.term))
