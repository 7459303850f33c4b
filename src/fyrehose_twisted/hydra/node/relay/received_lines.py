"""Relay and delivery of lines from IRC (document 002, RECV)."""

from __future__ import annotations

from fyrehose_twisted.hydra.events import LinesMissed
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.wire.messages import Recv


class RecvRelay:
    """Deduplication, gap detection, relay and delivery of RECVs by one node.

    A RECV carries no term. It belongs to the term of the last PING over the same link, and is dropped if that is not
    the node's term.

    :ivar expected: sequence number of the next line; ``None`` if any number is accepted.
    """

    def __init__(self, context: NodeContext) -> None:
        self.expected: int | None = None
        self._context = context

    def begin_term(self, *, was_member: bool) -> None:
        """Start a term.

        :param was_member: whether the node was a member before. If so, the term starts at line 0; otherwise at the
            first line received.
        """
        self.expected = 0 if was_member else None

    def recv_received(self, message: Recv, link: PeerLink, now: float) -> bool:
        """Handle a RECV; return whether it is new."""
        context = self._context
        term = context.durable.term
        if link.term != term or not context.in_term:
            context.counters["recv_of_another_term"] += 1
            return False
        if context.leader == context.id:
            context.counters["recv_from_others"] += 1
            return False
        idx, expected = message.idx, self.expected
        if expected is not None and idx != expected:
            if idx < expected:
                return False
            context.counters["recv_missed"] += idx - expected
            context.output.emit(LinesMissed(term, expected, idx - 1))
        self.expected = idx + 1
        context.flood_line(message, now, link)
        context.output.emit_line(term, idx, message.line)
        return True

    def originate(self, line: bytes, now: float) -> None:
        """Number and relay a line that the leader read from IRC."""
        context = self._context
        idx = self.expected or 0
        self.expected = idx + 1
        context.flood_line(Recv(idx, line), now)
        context.output.emit_line(context.durable.term, idx, line)
