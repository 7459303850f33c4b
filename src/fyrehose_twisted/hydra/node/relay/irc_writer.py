"""IRC connection of the leader and its queue of lines (document 002, "Leaders are the nodes responsible for
maintaining the Active Connection to IRC"; rule S5 of its reading).

A line counts as said once the IRC server has answered a PING that was sent after it.
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
"""Number of consecutive failed connects after which the leader resigns."""
_RECONNECT_DELAY = 1.0
"""Seconds between connects."""
_LINE_CREDIT = 0.999
"""Credit that suffices for a line, slightly below 1 to allow for clock rounding."""
MAX_SEEN_LINE_IDS = 4_096
"""Number of line ids kept for deduplication."""
MAX_UNANSWERED = 64
"""Largest number of unacknowledged lines, whatever the configured rate."""
_NORMAL_UNANSWERED = 3
"""Largest number of unacknowledged lines for an ordinary server.

Many servers throttle fast clients to one line per second, so with more lines they would seem unresponsive.
"""
_MAX_ASK_DELAY = 2.0
"""Longest delay, in seconds, between a line and the PING that asks for its acknowledgement."""
_SLOW_REPLY = 1.0
"""Reply time in seconds above which a server is assumed to throttle."""
_SLOW_UNANSWERED = 2
"""Largest number of unacknowledged lines for a server that throttles."""
_STALL_GRACE = 0.5
"""Delay, in seconds, of a timeout check that indicates that this process was suspended.

Replies may then be unread, so the check is repeated after the same time.
"""


class _QueuedLine(NamedTuple):
    line_id: str | None
    line: bytes
    queued_at: float


class IrcWriter:
    """IRC output of one node while it leads.

    :ivar state: ``closed``, ``opening``, ``open`` or ``closing``.
    :ivar prefix: ``nick!user@host`` of the leader.
    :ivar limits: limits of the server.
    :ivar pending_replies: lines that the server has not acknowledged.
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
        """Remaining lines of a split message."""
        self._seen_line_ids = LruSet(MAX_SEEN_LINE_IDS)
        self._should_be_open = False
        self._failed_connects = 0
        self._open_at = inf
        self._credit = float(context.config.irc_burst)
        self._credited = 0.0
        self._is_silent = False
        self._recheck_at = -inf
        # The number of lines per 50 ms at the configured rate.
        self._normal_limit = max(_NORMAL_UNANSWERED, min(MAX_UNANSWERED, int(context.config.irc_rate / 20)))
        self._unanswered_limit = self._normal_limit
        self.loss_reason: str | None = None
        """Reason why the connection is lost or cannot be established; the node then resigns."""
        self.unreachable = False
        """Whether the server could not be reached; another node may succeed."""

    def __len__(self) -> int:
        """Return the number of queued lines."""
        return self._size + len(self._split_lines)

    # Connection

    def open(self, now: float) -> None:
        """Connect to IRC under a lease."""
        if not self._should_be_open:
            self._should_be_open, self._failed_connects, self.loss_reason, self.unreachable = True, 0, None, False
            if self.state == "closed":
                self._request_connection()

    def close(self, reason: str) -> None:
        """Close the connection at the end of the lease, and discard the queue."""
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
                # The server may still answer before it reads the QUIT.
                self._context.output.emit(AskIrc(self.pending_replies.ask()))
            self.state = "closing"
            self._context.output.emit(CloseIrc(reason, graceful=not self._is_silent))

    def opened(self, prefix: bytes, limits: IrcLimits, now: float) -> None:
        """Handle a connection that is registered and has joined its channels."""
        if self.state == "opening":
            self.state, self.prefix, self.limits, self._failed_connects = "open", prefix, limits, 0
            self._credit, self._credited = float(self._context.config.irc_burst), now
            self._unanswered_limit = self._normal_limit

    def closed(self, reason: str, now: float) -> None:
        """Handle the close of the transport."""
        before, self.state = self.state, "closed"
        self._context.counters["irc_unanswered"] += self.pending_replies.clear()
        self._is_silent, self._recheck_at = False, -inf
        if not self._should_be_open:
            return
        if before == "open":
            self.loss_reason = f"the connection to IRC is lost: {reason}"
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
        """Record a relayed line for deduplication; return its token, ``None`` if untagged."""
        name, _ = untag(line)
        if name is not None:
            self._seen_line_ids.add(name)
        return name

    def enqueue(self, message: Send, now: float) -> str | None:
        """Queue the line of a node; return the reason if it is refused."""
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
        """Emit the lines that may be written now, round-robin by node, and a PING for their acknowledgement.

        :param until: end of the lease.
        :returns: lines that are refused because the server would truncate them.
        """
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
        """Acknowledge all lines up to a number and return them."""
        self._recheck_at = -inf
        self._unanswered_limit = (
            _SLOW_UNANSWERED if self.pending_replies.oldest_sent_at + _SLOW_REPLY < now else self._normal_limit
        )
        return self.pending_replies.acknowledge(number)

    def tick(self, now: float) -> None:
        """Reconnect, and detect an unresponsive server, if due."""
        if self._open_at <= now and self._should_be_open and self.state == "closed":
            self._request_connection()
        due = self._silent_at
        if due > now:
            return
        if now > due + _STALL_GRACE and self._recheck_at < due:
            self._recheck_at = now + _STALL_GRACE
            return
        self._is_silent = self.unreachable = True
        self.loss_reason = f"IRC has not answered for lines sent {now - self.pending_replies.oldest_sent_at:.1f} s ago"

    def next_deadline(self) -> float:
        """Return the time of the next :meth:`tick` or :meth:`send_due`."""
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

    # Helpers

    @property
    def _ends_a_batch(self) -> bool:
        """Whether no further line will be written before the next acknowledgement."""
        return not len(self) or len(self.pending_replies) >= self._unanswered_limit

    @property
    def _silent_at(self) -> float:
        """Time at which the server counts as unresponsive."""
        if self.state != "open" or self._is_silent or not len(self.pending_replies):
            return inf
        return max(self.pending_replies.oldest_sent_at + self._context.config.irc_patience, self._recheck_at)

    def _may_send(self, now: float) -> bool:
        """Return whether the limit of unacknowledged lines allows another line."""
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
