"""The connection to IRC, and what the leader says there (document 002, "Leaders are the nodes responsible for
maintaining the Active Connection to IRC"; rule S5 of its reading).

A line is said once IRC has answered a PING that went behind it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from typing import NamedTuple

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.config import Long
from fyrehose_twisted.hydra.events import AskIrc, CloseIrc, OpenIrc, ToIrc
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.relay.pending_replies import Answers, Handed
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits, fit
from fyrehose_twisted.hydra.wire.lines import command_of, may_be_said, part_of, untag
from fyrehose_twisted.hydra.wire.messages import Send
from fyrehose_twisted.lru_set import Seen

MAX_TRIES = 3
"""Connections in a row that may fail; then somebody else shall try."""
_AGAIN = 1.0
"""Seconds between two of them."""
_ENOUGH = 0.999
"""What counts as credit for a line: clocks are not exact."""
MAX_SAID = 4_096
"""Lines of which it is known that they were said."""
MAX_UNANSWERED = 64
"""Lines that IRC may have without having answered for them, however many it takes a second."""
_USUAL = 3
"""The same with an ordinary server. Many read one line a second from those who are fast, so more would make a server
look silent that is not."""
_ASK_WITHIN = 2.0
"""Seconds after a line was handed over until IRC is asked whether it has it, while there is more to say."""
_SLOW = 1.0
"""Seconds to answer for a line. A server that takes more holds back what comes."""
_FEW = 2
"""Lines that such a server may have."""
_LATE = 0.5
"""Seconds. If somebody looks so late at whether IRC answered, this process stood still, and has not read for as long:
it is looked at once more after as long."""


class _Line(NamedTuple):
    name: str | None
    line: bytes
    since: float


class Speaking:
    """The leader's mouth.

    :ivar state: ``closed``, ``opening``, ``open`` or ``closing``.
    :ivar prefix: who the leader is on IRC, ``nick!user@host``.
    :ivar limits: what the server takes.
    :ivar answers: lines that IRC has not answered for.
    """

    def __init__(self, standing: Standing) -> None:
        self.state = "closed"
        self.prefix = b""
        self.limits = IrcLimits()
        self.answers = Answers()
        self._standing = standing
        self._queues: OrderedDict[int, deque[_Line]] = OrderedDict()
        self._size = 0
        self._parts: deque[_Line] = deque()
        """What is left of a message that is said in several lines."""
        self._said = Seen(MAX_SAID)
        self._wanted = False
        self._tries = 0
        self._open_at = inf
        self._credit = float(standing.config.irc_burst)
        self._credited = 0.0
        self._is_silent = False
        self._look_at = -inf
        # What whoever runs it says that the server takes in 50 ms.
        self._usual = max(_USUAL, min(MAX_UNANSWERED, int(standing.config.irc_rate / 20)))
        self._most = self._usual
        self.lost: str | None = None
        """Why the connection is gone, or cannot be had; whoever sees it makes the node resign."""
        self.unreachable = False
        """Whether it could not be had: others may be luckier."""

    def __len__(self) -> int:
        """Return how many lines wait."""
        return self._size + len(self._parts)

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
        if len(self):
            self._standing.counts["not_said"] += len(self)
            self._queues.clear()
            self._parts.clear()
            self._size = 0
        if self.state in ("opening", "open"):
            if self._is_silent:
                self._standing.counts["irc_silent"] += 1
            elif len(self.answers):
                # It may still answer before it reads the goodbye.
                self._standing.out.tell(AskIrc(self.answers.ask()))
            self.state = "closing"
            self._standing.out.tell(CloseIrc(reason, polite=not self._is_silent))

    def opened(self, prefix: bytes, limits: IrcLimits, now: float) -> None:
        """It is registered, and in the channels."""
        if self.state == "opening":
            self.state, self.prefix, self.limits, self._tries = "open", prefix, limits, 0
            self._credit, self._credited = float(self._standing.config.irc_burst), now
            self._most = self._usual

    def closed(self, reason: str, now: float) -> None:
        """Its transport is closed."""
        before, self.state = self.state, "closed"
        self._standing.counts["irc_unanswered"] += self.answers.clear()
        self._is_silent, self._look_at = False, -inf
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

    def take(self, now: float, until: float) -> list[Handed]:
        """Let the application hand over what IRC may have now, each node's lines in turn, and ask whether IRC has it;
        return what is refused because IRC would cut it."""
        refused: list[Handed] = []
        if self.state != "open" or now >= until:
            return refused
        config = self._standing.config
        self._credit = min(float(config.irc_burst), self._credit + max(0.0, now - self._credited) * config.irc_rate)
        self._credited = now
        while len(self) and self._credit >= _ENOUGH and self._may_say(now):
            entry = self._next_line(now, refused)
            if entry is not None:
                self._credit -= 1.0
                number = self.answers.add(entry.name, entry.line, now)
                self._standing.out.tell(ToIrc(entry.line, until, entry.name, number))
        if len(self.answers) and self.answers.asked is None:
            has_time = now < self.answers.oldest + _ASK_WITHIN
            if not has_time or (self._credit >= _ENOUGH and self._ends_a_batch):
                self._credit -= 1.0
                self._standing.out.tell(AskIrc(self.answers.ask()))
        return refused

    def answered(self, number: int, now: float) -> list[Handed]:
        """IRC has had all lines up to a number; return those."""
        self._look_at = -inf
        self._most = _FEW if self.answers.oldest + _SLOW < now else self._usual
        return self.answers.answered(number)

    def tick(self, now: float) -> None:
        """Connect again, if that is due; see whether IRC is silent."""
        if self._open_at <= now and self._wanted and self.state == "closed":
            self._open()
        due = self._silent_at
        if due > now:
            return
        if now > due + _LATE and self._look_at < due:
            self._look_at = now + _LATE
            return
        self._is_silent = self.unreachable = True
        self.lost = f"IRC does not answer for what was said {now - self.answers.oldest:.1f} s ago"

    def next_deadline(self) -> float:
        """Return when something is due."""
        if self.state != "open":
            return self._open_at if self._wanted and self.state == "closed" else inf
        due = self._silent_at
        credit_at = self._credited + max(0.0, 1.0 - self._credit) / self._standing.config.irc_rate
        if len(self) and self._may_say(self._credited):
            due = min(due, credit_at)
        if len(self.answers) and self.answers.asked is None:
            due = min(due, self.answers.oldest + _ASK_WITHIN, credit_at if self._ends_a_batch else inf)
        return due

    # Within

    @property
    def _ends_a_batch(self) -> bool:
        """Whether nothing more is said before IRC has answered."""
        return not len(self) or len(self.answers) >= self._most

    @property
    def _silent_at(self) -> float:
        """When IRC is silent, unless it answers before."""
        if self.state != "open" or self._is_silent or not len(self.answers):
            return inf
        return max(self.answers.oldest + self._standing.config.irc_patience, self._look_at)

    def _may_say(self, now: float) -> bool:
        """Return whether IRC has answered for enough to be given more."""
        answers = self.answers
        return len(answers) < self._most and (answers.asked is None or now < answers.oldest + _ASK_WITHIN)

    def _next_line(self, now: float, refused: list[Handed]) -> _Line | None:
        if self._parts:
            return self._parts.popleft()
        config, counts = self._standing.config, self._standing.counts
        node, queue = self._queues.popitem(last=False)
        entry = queue.popleft()
        self._size -= 1
        if queue:
            self._queues[node] = queue
        if entry.since + config.max_wait <= now:
            counts["not_said"] += 1
            return None
        try:
            lines = fit(entry.line, self.prefix, self.limits, split=config.irc_long is Long.SPLIT)
        except UnencodableMessage as error:
            nick, text = self.prefix.partition(b"!")[0], str(error).encode()
            numeric = b":hydra 417 %s %s :%s" % (nick or b"*", command_of(entry.line), text)
            refused.append(Handed(0, entry.name, entry.line, now, set(), [numeric]))
            return None
        if len(lines) > 1:
            counts["irc_split"] += 1
            for number, line in enumerate(lines, 1):
                name = entry.name
                if name is not None and number < len(lines):
                    name = part_of(name, number)
                self._parts.append(_Line(name, line, now))
            return self._parts.popleft()
        return entry

    def _open(self) -> None:
        self.state, self._open_at = "opening", inf
        self._standing.out.tell(OpenIrc(self._standing.vow.term))
