"""Lines from IRC, as they pass through a node (document 002, RECV)."""

from __future__ import annotations

from fyrehose_twisted.hydra.events import Missed
from fyrehose_twisted.hydra.node.context import Standing
from fyrehose_twisted.hydra.node.link_table import Tie
from fyrehose_twisted.hydra.wire.messages import Recv


class Hearing:
    """Finds gaps, relays, delivers.

    A RECV has no term. What comes over a link is of the term of the last PING that came over it; what is of another
    term than the node's is dropped.

    :ivar expected: number of the next line; ``None`` where any will do.
    """

    def __init__(self, standing: Standing) -> None:
        self.expected: int | None = None
        self._standing = standing

    def begin_term(self, *, whole: bool) -> None:
        """Another term begins.

        :param whole: whether the node was there before: then what it did not hear it missed.
        """
        self.expected = 0 if whole else None

    def recv_received(self, message: Recv, tie: Tie, now: float) -> bool:
        """A line came; return whether it is new."""
        standing = self._standing
        term = standing.vow.term
        if tie.term != term or not standing.in_term:
            standing.counts["recv_of_another_term"] += 1
            return False
        if standing.leader == standing.id:
            standing.counts["recv_from_others"] += 1
            return False
        idx, expected = message.idx, self.expected
        if expected is not None and idx != expected:
            if idx < expected:
                return False
            standing.counts["recv_missed"] += idx - expected
            standing.out.tell(Missed(term, expected, idx - 1))
        self.expected = idx + 1
        standing.flood_line(message, now, tie)
        standing.out.deliver(term, idx, message.line)
        return True

    def originate(self, line: bytes, now: float) -> None:
        """The leader heard a line."""
        standing = self._standing
        idx = self.expected or 0
        self.expected = idx + 1
        standing.flood_line(Recv(idx, line), now)
        standing.out.deliver(standing.vow.term, idx, line)
