"""Send queue for lines of this node's application (document 002, SEND).

Delivery is at-most-once by default: a line in flight when the leader changes is reported as uncertain. The leader
relays each line that the IRC server has as a RECV with the same tag, which acknowledges it. A refused line returns the
same way as the server's error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

from fyrehose_twisted.errors import PublishQueueFull
from fyrehose_twisted.hydra.events import LineOutcome, Outcome
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.wire.lines import add_tag, check_sendable, server_error_text
from fyrehose_twisted.hydra.wire.messages import Send


@dataclass(slots=True)
class _PendingLine:
    line_id: str
    line: bytes
    token: Hashable
    queued_at: float
    retry: bool
    sent: bool = False


class LineSendQueue:
    """Queued lines, and lines in flight to the leader."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self._nonce = f"{context.rng.getrandbits(48):x}"
        self._number = 0
        self._waiting: deque[_PendingLine] = deque()
        self._in_flight: dict[str, _PendingLine] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    @property
    def has_waiting(self) -> bool:
        """Whether a line is queued for lack of a leader or of acknowledgements."""
        return bool(self._waiting)

    def enqueue(self, line: bytes, token: Hashable, now: float, *, retry: bool) -> None:
        """Queue a line.

        :raises UnencodableMessage: if nodes may not submit it.
        :raises PublishQueueFull: if the queue is full.
        """
        check_sendable(line)
        limit = self._context.config.max_queue
        if len(self) >= limit:
            raise PublishQueueFull(f"the send queue is full ({limit:,} lines); wait for some outcomes")
        self._number += 1
        self._waiting.append(_PendingLine(f"{self._nonce}.{self._number}", line, token, now, retry))

    def take_sendable(self, now: float) -> list[tuple[str, Send]]:
        """Return the lines that may be sent now, each with its id."""
        context = self._context
        me = context.id
        if me is None or not context.in_term or not self._waiting:
            return []
        going = []
        # The leader queues at most this many lines of each node.
        nodes = context.config.network_size or len(context.registry)
        room = max(1, context.config.max_queue // max(2, nodes))
        while self._waiting and len(self._in_flight) < room:
            wish = self._waiting.popleft()
            wish.sent = True
            self._in_flight[wish.line_id] = wish
            going.append((wish.line_id, Send(me, add_tag(wish.line_id, wish.line))))
        return going

    def line_relayed(self, line_id: str, line: bytes) -> None:
        """Handle the leader's relay of a line, which acknowledges it or reports an error of the server.

        :param line: line without tag.
        """
        why = server_error_text(line)
        if why is not None:
            self.line_refused(line_id, why)
            return
        wish = self._pop(line_id)
        if wish is not None:
            self._context.output.emit(LineOutcome(wish.token, Outcome.SAID, ""))

    def line_refused(self, line_id: str, reason: str) -> None:
        """Report a line, or one part of a split message, as refused."""
        wish = self._pop(line_id.partition("/")[0])
        if wish is not None:
            self._context.output.emit(LineOutcome(wish.token, Outcome.REFUSED, reason))

    def _pop(self, line_id: str) -> _PendingLine | None:
        wish = self._in_flight.pop(line_id, None)
        if wish is None:
            # It was sent before and has been requeued for a resend.
            wish = next((one for one in self._waiting if one.line_id == line_id), None)
            if wish is not None:
                self._waiting.remove(wish)
        return wish

    def leader_changed(self) -> None:
        """Requeue or report as uncertain the lines in flight to the previous leader."""
        again = []
        for wish in self._in_flight.values():
            if wish.retry:
                again.append(wish)
            else:
                self._context.counters["uncertain"] += 1
                self._context.output.emit(LineOutcome(wish.token, Outcome.UNCERTAIN, "leader-changed"))
        self._in_flight.clear()
        self._waiting.extendleft(reversed(again))

    def close(self) -> None:
        """Report all lines, as the node stops."""
        self.leader_changed()
        for wish in self._waiting:
            outcome = Outcome.UNCERTAIN if wish.sent else Outcome.REFUSED
            self._context.output.emit(LineOutcome(wish.token, outcome, "stopped"))
        self._waiting.clear()

    def tick(self, now: float) -> None:
        """Give up lines that have been queued for too long."""
        wait = self._context.config.max_wait
        out = self._context.output
        for wish in [wish for wish in self._waiting if wish.queued_at + wait <= now]:
            self._waiting.remove(wish)
            out.emit(LineOutcome(wish.token, Outcome.UNCERTAIN if wish.sent else Outcome.REFUSED, "no-leader"))
        for wish in [wish for wish in self._in_flight.values() if wish.queued_at + wait <= now]:
            del self._in_flight[wish.line_id]
            out.emit(LineOutcome(wish.token, Outcome.UNCERTAIN, "no-answer"))

    def next_deadline(self) -> float:
        """Return the time of the next :meth:`tick`."""
        oldest = min((wish.queued_at for wish in (*self._waiting, *self._in_flight.values())), default=inf)
        return oldest + self._context.config.max_wait
