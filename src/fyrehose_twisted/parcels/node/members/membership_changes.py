"""Membership changes by the leader, one at a time (document 004, "Work phase"; Raft, section 6)."""

from __future__ import annotations

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.membership_changes import next_membership
from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbour, Neighbours
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.wire.messages import NEIGHBOUR_TIMEOUT, Mode


class MembershipChanges:
    """Decides which nodes the leader adds to and removes from the voters.

    :param raft: Raft state of this node.
    :param delivery: delivered events.
    :ivar review_due: whether something changed that may require a membership change.
    """

    def __init__(self, raft: RaftMember, links: LinkTable, neighbours: Neighbours, delivery: Delivery) -> None:
        self.review_due = False
        self._raft = raft
        self._links = links
        self._neighbours = neighbours
        self._delivery = delivery
        self._required_sequences: dict[MemberId, int] = {}
        self._leaving: set[MemberId] = set()
        self._suspects: set[MemberId] = set()

    def __len__(self) -> int:
        return len(self._leaving | self._suspects)

    def member_connected(self, member: MemberId) -> None:
        """Record that requests can be sent to a member."""
        self._leaving.discard(member)
        self._suspects.discard(member)
        self.review_due = True

    def member_leaving(self, member: MemberId) -> None:
        """Record that a member announced its shutdown."""
        self._leaving.add(member)
        self.review_due = True

    def member_suspected(self, member: MemberId) -> None:
        """Record that a member is presumed dead."""
        if member in self._raft.members:
            self._suspects.add(member)
        else:
            self._raft.replication.progress.pop(member, None)
        self.review_due = True

    def prune(self) -> None:
        """Drop records of nodes that are no longer relevant."""
        self._leaving &= self._raft.members
        self._suspects &= self._raft.members
        for member in [one for one in self._required_sequences if one not in self._raft.replication.progress]:
            del self._required_sequences[member]
        self.review_due = True

    def propose_change(self, now: float) -> bool:
        """Propose the next membership change, if one is needed; return whether one was proposed."""
        self.review_due = False
        raft, ready_targets = self._raft, self._links.ready_targets
        if not raft.is_leader or raft.is_transferring:
            return False
        joining = [
            one
            for one in self._neighbours
            if one.member is not None
            and one.member not in raft.members
            and one.member in ready_targets
            and one.is_alive(now)
            and one.mode is not Mode.SHUTDOWN
        ]
        raft.replication.add_followers((one.member for one in joining if one.member is not None), now)
        ready = [(one.member, one.info.host) for one in joining if one.member is not None and self._is_caught_up(one)]
        membership = next_membership(raft, ready, lambda member: self.is_responsive(member, now), self._leaving)
        if membership is None:
            return False
        raft.propose_membership(membership)
        return True

    def _is_caught_up(self, joining: Neighbour) -> bool:
        """Return whether a joining node has all events that existed when its log caught up.

        Events that a quorum of the old members has must also be on a quorum of the new members (P3). A snapshot
        contains no events.
        """
        member = joining.member
        progress = None if member is None else self._raft.replication.progress.get(member)
        if member is None or progress is None or progress.match_index < self._raft.commit_index:
            return member in self._required_sequences and joining.sequence >= self._required_sequences[member]
        return joining.sequence >= self._required_sequences.setdefault(member, self._delivery.last)

    def is_responsive(self, member: MemberId, now: float) -> bool:
        """Return whether a member is alive."""
        if member == self._raft.me:
            return True
        if member in self._suspects:
            return False
        progress = self._raft.replication.progress.get(member)
        return self._neighbours.is_alive(member, now) or (
            progress is not None and now - progress.heard_at <= NEIGHBOUR_TIMEOUT
        )
