"""Transfer of the leadership to another member, as the operator orders it (Raft thesis, section 3.10)."""

from __future__ import annotations

from math import inf

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.errors import NoSuccessor, NotLeader
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours

PATIENCE = 5.0
"""Seconds after which the leader gives up, and orders events again."""


class Handover:
    """The order that another member take over from this leader. Meanwhile it proposes nothing new.

    :ivar deadline: time at which the leader gives up; infinity without an order.
    """

    def __init__(self, raft: RaftMember, neighbours: Neighbours) -> None:
        self.deadline = inf
        self._raft = raft
        self._neighbours = neighbours
        self._successor: MemberId | None = None

    @property
    def is_pending(self) -> bool:
        """Whether this node leads, but another one is about to."""
        return self._successor is not None

    def order(self, name: str | None, now: float) -> str:
        """Order a member to take over, or the one with the longest log; return its name.

        :raises NotLeader: if this node does not lead.
        :raises NoSuccessor: if that is no other member, or one that cannot take over.
        """
        raft = self._raft
        if not raft.is_leader:
            raise NotLeader(None if raft.leader is None else raft.leader.name)
        others = {member.name: member for member in raft.members if member != raft.me}
        if name is not None and name not in others:
            raise NoSuccessor(f"{name!r} is no other member; they are {', '.join(sorted(others)) or 'none'}")
        able = [member for member in others.values() if self._is_able(member, now)]
        if name is not None:
            able = [member for member in able if member.name == name]
        if not able:
            who = "no other member" if name is None else f"{name} does not answer, or"
            raise NoSuccessor(f"{who} runs a version that can take over")
        progress = raft.replication.progress
        self._successor = max(able, key=lambda member: (progress[member].match_index, member.name))
        self.deadline = now + PATIENCE
        return self._successor.name

    def _is_able(self, member: MemberId, now: float) -> bool:
        neighbours, progress = self._neighbours, self._raft.replication.progress.get(member)
        reached = progress is not None and progress.connected and neighbours.is_alive(member, now)
        return reached and neighbours.knows_conditions(member)

    def proceed(self, now: float) -> bool:
        """Pass the leadership on once the successor has the whole log; return whether a pending order has ended."""
        raft, successor = self._raft, self._successor
        if successor is None:
            return False
        if not raft.is_leader or successor not in raft.members or now >= self.deadline:
            self._successor, self.deadline = None, inf
            return True
        raft.transfer(successor, now)
        return False
