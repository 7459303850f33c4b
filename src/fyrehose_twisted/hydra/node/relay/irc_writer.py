"""The connection to IRC, and what the leader says there (document 002, "Leaders are the nodes responsible for
maintaining the Active Connection to IRC"; rule S5 of its reading).

A line is said once IRC has answered a PING that went behind it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from math import inf
from typing import NamedTuple

from fyrehose_twisted.errors import UnencodableMessage
from fyrehose_twisted.hydra.config import OverlongPolicy
from fyrehose_twisted.hydra.events import AskIrc, CloseIrc, OpenIrc, ToIrc
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.relay.pending_replies import PendingReplies, SentLine
from fyrehose_twisted.hydra.wire.line_splitting import IrcLimits, split_to_fit
from fyrehose_twisted.hydra.wire.lines import command_of, is_sendable, part_token, untag
from fyrehose_twisted.hydra.wire.messages import Send
from fyrehose_twisted.lru_set import LruSet

MAX_FAILED_CONNECTS = 3
"""Connections in a row that may fail; then somebody else shall try."""
_RECONNECT_DELAY = 1.0
"""Seconds between two of them."""
_LINE_CREDIT = 0.999
"""What counts as credit for a line: clocks are not exact."""
MAX_SEEN_LINE_IDS = 4_096
"""Lines of which it is known that they were said."""
MAX_UNANSWERED = 64
"""Lines that IRC may have without having answered for them, however many it takes a second."""
_NORMAL_UNANSWERED = 3
"""The same with an ordinary server. Many read one line a second from those who are fast, so more would make a server
look silent that is not."""
_MAX_ASK_DELAY = 2.0
"""Seconds after a line was handed over until IRC is asked whether it has it, while there is more to say."""
_SLOW_REPLY = 1.0
"""Seconds to answer for a line. A server that takes more holds back what comes."""
_SLOW_UNANSWERED = 2
"""Lines that such a server may have."""
_STALL_GRACE = 0.5
"""Seconds. If somebody looks so late at whether IRC answered, this process stood still, and has not read for as long:
it is looked at once more after as long."""


class _QueuedLine(NamedTuple):
    line_id: str | None
    line: bytes
    queued_at: float


class IrcWriter:
    """The leader's mouth.

    :ivar state: ``closed``, ``opening``, ``open`` or ``closing``.
    :ivar prefix: who the leader is on IRC, ``nick!user@host``.
    :ivar limits: what the server takes.
    :ivar pending_replies: lines that IRC has not answered for.
    """

    def __init__(self, context: NodeContext) -> None:
        self.state = "closed"
        self.prefix = b""
        self.limits = IrcLimits()
        self.pending_replies = PendingReplies()
        self._context = context
        self._queues: OrderedDict[int, deque[_QueuedLine]] = OrderedDict()
        self._size = 0
        self._split_lines: deque[_QueuedLine] = deque()
        """What is left of a message that is said in several lines."""
        self._seen_line_ids = LruSet(MAX_SEEN_LINE_IDS)
        self._should_be_open = False
        self._failed_connects = 0
        self._open_at = inf
        self._credit = float(context.config.irc_burst)
        self._credited = 0.0
        self._is_silent = False
        self._recheck_at = -inf
        # What whoever runs it says that the server takes in 50 ms.
        self._normal_limit = max(_NORMAL_UNANSWERED, min(MAX_UNANSWERED, int(context.config.irc_rate / 20)))
        self._unanswered_limit = self._normal_limit
        self.loss_reason: str | None = None
        """Why the connection is gone, or cannot be had; whoever sees it makes the node resign."""
        self.unreachable = False
        """Whether it could not be had: others may be luckier."""

    def __len__(self) -> int:
        """Return how many lines wait."""
        return self._size + len(self._split_lines)

    # The connection

    def open(self, now: float) -> None:
        """There is a lease: connect."""
        if not self._should_be_open:
            self._should_be_open, self._failed_connects, self.loss_reason, self.unreachable = True, 0, None, False
            if self.state == "closed":
                self._request_connection()

    def close(self, reason: str) -> None:
        """There is no lease any more: close it, and forget what was to be said."""
        self._should_be_open, self.loss_reason, self._open_at = False, None, inf
        if len(self):
            self._context.counters["not_said"] += len(self)
            self._queues.clear()
            self._split_lines.clear()
            self._size = 0
        if self.state in ("opening", "open"):
            if self._is_silent:
                self._context.counters["irc_silent"] += 1
            elif len(self.pending_replies):
                # It may still answer before it reads the goodbye.
                self._context.output.emit(AskIrc(self.pending_replies.ask()))
            self.state = "closing"
            self._context.output.emit(CloseIrc(reason, graceful=not self._is_silent))

    def opened(self, prefix: bytes, limits: IrcLimits, now: float) -> None:
        """It is registered, and in the channels."""
        if self.state == "opening":
            self.state, self.prefix, self.limits, self._failed_connects = "open", prefix, limits, 0
            self._credit, self._credited = float(self._context.config.irc_burst), now
            self._unanswered_limit = self._normal_limit

    def closed(self, reason: str, now: float) -> None:
        """Its transport is closed."""
        before, self.state = self.state, "closed"
        self._context.counters["irc_unanswered"] += self.pending_replies.clear()
        self._is_silent, self._recheck_at = False, -inf
        if not self._should_be_open:
            return
        if before == "open":
            self.loss_reason = f"the connection to IRC is gone: {reason}"
            return
        if before == "closing":
            self._request_connection()
            return
        self._failed_connects += 1
        self._context.counters["irc_failed"] += 1
        if self._failed_connects >= MAX_FAILED_CONNECTS:
            self.loss_reason, self.unreachable = f"IRC cannot be reached: {reason}", True
        else:
            self._open_at = now + _RECONNECT_DELAY * self._context.timers.scale

    # Lines

    def line_relayed(self, line: bytes) -> str | None:
        """A line was relayed; return its token, if it is one that was said."""
        name, _ = untag(line)
        if name is not None:
            self._seen_line_ids.add(name)
        return name

    def enqueue(self, message: Send, now: float) -> str | None:
        """Somebody wants a line said; return why not, if it will not be."""
        counts = self._context.counters
        name, line = untag(message.line)
        if not is_sendable(line):
            counts["send_refused"] += 1
            return "not-allowed"
        if name is not None and not self._seen_line_ids.add(name):
            counts["send_repeated"] += 1
            return None
        queue = self._queues.get(message.id)
        limit = self._context.config.max_queue
        if self._size >= limit or (queue is not None and len(queue) > limit // 2):
            counts["send_flooded"] += 1
            if name is not None:
                self._seen_line_ids.discard(name)
            return "queue-full"
        if queue is None:
            queue = self._queues[message.id] = deque()
        queue.append(_QueuedLine(name, line, now))
        self._size += 1
        return None

    def send_due(self, now: float, until: float) -> list[SentLine]:
        """Let the application hand over what IRC may have now, each node's lines in turn, and ask whether IRC has it;
        return what is refused because IRC would cut it."""
        refused: list[SentLine] = []
        if self.state != "open" or now >= until:
            return refused
        config = self._context.config
        self._credit = min(float(config.irc_burst), self._credit + max(0.0, now - self._credited) * config.irc_rate)
        self._credited = now
        while len(self) and self._credit >= _LINE_CREDIT and self._may_send(now):
            entry = self._next_line(now, refused)
            if entry is not None:
                self._credit -= 1.0
                number = self.pending_replies.add(entry.line_id, entry.line, now)
                self._context.output.emit(ToIrc(entry.line, until, entry.line_id, number))
        if len(self.pending_replies) and self.pending_replies.asked_number is None:
            has_time = now < self.pending_replies.oldest_sent_at + _MAX_ASK_DELAY
            if not has_time or (self._credit >= _LINE_CREDIT and self._ends_a_batch):
                self._credit -= 1.0
                self._context.output.emit(AskIrc(self.pending_replies.ask()))
        return refused

    def answered(self, number: int, now: float) -> list[SentLine]:
        """IRC has had all lines up to a number; return those."""
        self._recheck_at = -inf
        self._unanswered_limit = (
            _SLOW_UNANSWERED if self.pending_replies.oldest_sent_at + _SLOW_REPLY < now else self._normal_limit
        )
        return self.pending_replies.acknowledge(number)

    def tick(self, now: float) -> None:
        """Connect again, if that is due; see whether IRC is silent."""
        if self._open_at <= now and self._should_be_open and self.state == "closed":
            self._request_connection()
        due = self._silent_at
        if due > now:
            return
        if now > due + _STALL_GRACE and self._recheck_at < due:
            self._recheck_at = now + _STALL_GRACE
            return
        self._is_silent = self.unreachable = True
        self.loss_reason = (
            f"IRC does not answer for what was said {now - self.pending_replies.oldest_sent_at:.1f} s ago"
        )

    def next_deadline(self) -> float:
        """Return when something is due."""
        if self.state != "open":
            return self._open_at if self._should_be_open and self.state == "closed" else inf
        due = self._silent_at
        credit_at = self._credited + max(0.0, 1.0 - self._credit) / self._context.config.irc_rate
        if len(self) and self._may_send(self._credited):
            due = min(due, credit_at)
        if len(self.pending_replies) and self.pending_replies.asked_number is None:
            due = min(
                due, self.pending_replies.oldest_sent_at + _MAX_ASK_DELAY, credit_at if self._ends_a_batch else inf
            )
        return due

    # Within

    @property
    def _ends_a_batch(self) -> bool:
        """Whether nothing more is said before IRC has answered."""
        return not len(self) or len(self.pending_replies) >= self._unanswered_limit

    @property
    def _silent_at(self) -> float:
        """When IRC is silent, unless it answers before."""
        if self.state != "open" or self._is_silent or not len(self.pending_replies):
            return inf
        return max(self.pending_replies.oldest_sent_at + self._context.config.irc_patience, self._recheck_at)

    def _may_send(self, now: float) -> bool:
        """Return whether IRC has answered for enough to be given more."""
        answers = self.pending_replies
        return len(answers) < self._unanswered_limit and (
            answers.asked_number is None or now < answers.oldest_sent_at + _MAX_ASK_DELAY
        )

    def _next_line(self, now: float, refused: list[SentLine]) -> _QueuedLine | None:
        if self._split_lines:
            return self._split_lines.popleft()
        config, counts = self._context.config, self._context.counters
        node, queue = self._queues.popitem(last=False)
        entry = queue.popleft()
        self._size -= 1
        if queue:
            self._queues[node] = queue
        if entry.queued_at + config.max_wait <= now:
            counts["not_said"] += 1
            return None
        try:
            lines = split_to_fit(entry.line, self.prefix, self.limits, split=config.irc_long is OverlongPolicy.SPLIT)
        except UnencodableMessage as error:
            nick, text = self.prefix.partition(b"!")[0], str(error).encode()
            numeric = b":hydra 417 %s %s :%s" % (nick or b"*", command_of(entry.line), text)
            refused.append(SentLine(0, entry.line_id, entry.line, now, set(), [numeric]))
            return None
        if len(lines) > 1:
            counts["irc_split"] += 1
            for number, line in enumerate(lines, 1):
                name = entry.line_id
                if name is not None and number < len(lines):
                    name = part_token(name, number)
                self._split_lines.append(_QueuedLine(name, line, now))
            return self._split_lines.popleft()
        return entry

    def _request_connection(self) -> None:
        self.state, self._open_at = "opening", inf
        self._context.output.emit(OpenIrc(self._context.durable.term))
