"""Transfer of the leadership to another member (Ongaro's thesis, section 3.10)."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.consensus.messages import MemberId, RaftMessage, StartElection
from fyrehose_twisted.consensus.replication import LogReplication
from fyrehose_twisted.consensus.state import RaftState


class LeadershipTransfer:
    """Orders of one leader that another member take over.

    :param patience: seconds to wait for the successor's election.
    :ivar successor: the member that was ordered last in this term, if any.
    :ivar deadline: time at which the transfer has failed; infinity if there is none.
    """

    def __init__(
        self,
        state: RaftState,
        replication: LogReplication,
        outbox: list[tuple[MemberId, RaftMessage]],
        patience: float,
    ) -> None:
        self.successor: MemberId | None = None
        self.deadline = inf
        self._state = state
        self._replication = replication
        self._outbox = outbox
        self._patience = patience

    def is_possible(self, target: MemberId) -> bool:
        """Return whether another voter is connected and has the leader's whole log."""
        state, progress = self._state, self._replication.progress.get(target)
        return (
            progress is not None
            and progress.connected
            and progress.match_index == state.log.last_index
            and target in state.members
        )

    def order(self, target: MemberId, now: float) -> bool:
        """Order ``target`` to take over, unless it is ordered to already; return whether it is."""
        if not self.is_possible(target):
            return False
        if self.successor != target:
            self.successor, self.deadline = target, now + self._patience
            self._outbox.append((target, StartElection(self._state.term)))
        return True

    def order_next(self, now: float) -> None:
        """Order any member to take over, or the next one if the last one failed to."""
        last = self.successor
        if last is not None and now < self.deadline:
            return
        able = [member for member in self._state.peers if self.is_possible(member)]
        if able:
            self.successor = None
            self.order(min(able, key=lambda member: (last is not None and member <= last, member)), now)

    def end(self) -> None:
        """Forget the orders, because the leader's term is over."""
        self.successor, self.deadline = None, inf
