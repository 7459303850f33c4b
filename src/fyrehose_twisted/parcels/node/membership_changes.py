"""What the leader does about who votes: one change at a time (document 004, "Work phase"; Raft, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import MemberId, Membership
from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.node.discovery import Discovery
from fyrehose_twisted.parcels.node.neighbours import Neighbour
from fyrehose_twisted.parcels.wire.messages import NEIGHBOUR_TIMEOUT, Mode

MAX_VOTERS = 31
"""How many can vote; others follow without a vote."""


class MembershipChanges:
    """What the leader does about who votes.

    :param order: this node's part in the order.
    :param discovery: whom it knows.
    :param sequence: returns the number of the last event.
    :ivar review_due: whether something happened that may matter.
    """

    def __init__(self, raft: RaftMember, discovery: Discovery, sequence: Callable[[], int]) -> None:
        self.review_due = False
        self._sequence = sequence
        self._required_sequences: dict[MemberId, int] = {}
        self._raft = raft
        self._discovery = discovery
        self._leaving: set[MemberId] = set()
        self._suspects: set[MemberId] = set()

    def __len__(self) -> int:
        return len(self._leaving | self._suspects)

    def member_connected(self, member: MemberId) -> None:
        """Requests can be sent to somebody."""
        self._leaving.discard(member)
        self._suspects.discard(member)
        self.review_due = True

    def member_leaving(self, member: MemberId) -> None:
        """Somebody said that it stops."""
        self._leaving.add(member)
        self.review_due = True

    def member_suspected(self, member: MemberId) -> None:
        """Somebody is gone, as far as anybody can know."""
        if member in self._raft.members:
            self._suspects.add(member)
        else:
            self._raft.replication.progress.pop(member, None)
        self.review_due = True

    def prune(self) -> None:
        """Forget those who do not matter any more."""
        self._leaving &= self._raft.members
        self._suspects &= self._raft.members
        for member in [one for one in self._required_sequences if one not in self._raft.replication.progress]:
            del self._required_sequences[member]
        self.review_due = True

    def propose_change(self, now: float) -> bool:
        """See whether somebody is to vote, or to vote no more; returns whether that is on its way."""
        self.review_due = False
        order, discovery = self._raft, self._discovery
        if not order.is_leader:
            return False
        joining = [
            one
            for one in discovery.neighbours
            if one.member is not None
            and one.member not in order.members
            and one.member in discovery.ready_targets
            and one.is_alive(now)
            and one.mode is not Mode.SHUTDOWN
        ]
        order.replication.add_followers((one.member for one in joining if one.member is not None), now)
        ready = [(one.member, one.info.host) for one in joining if one.member is not None and self._is_caught_up(one)]
        view = next_membership(order, ready, lambda member: self.is_responsive(member, now), self._leaving)
        if view is None:
            return False
        order.propose_membership(view)
        return True

    def _is_caught_up(self, joining: Neighbour) -> bool:
        """Whether somebody who is to vote has the events that there were when it was up to date.

        What a quorum of the old view has, one of the new view has to have, too (P3); and state brings no events.
        """
        member = joining.member
        progress = None if member is None else self._raft.replication.progress.get(member)
        if member is None or progress is None or progress.match_index < self._raft.commit_index:
            return member in self._required_sequences and joining.sequence >= self._required_sequences[member]
        return joining.sequence >= self._required_sequences.setdefault(member, self._sequence())

    def is_responsive(self, member: MemberId, now: float) -> bool:
        """Whether a member is to be counted on."""
        if member == self._raft.me:
            return True
        if member in self._suspects:
            return False
        progress = self._raft.replication.progress.get(member)
        return self._discovery.is_alive(member, now) or (
            progress is not None and now - progress.heard_at <= NEIGHBOUR_TIMEOUT
        )


def next_membership(
    raft: RaftMember,
    joining: Iterable[tuple[MemberId, Address]],
    is_alive: Callable[[MemberId], bool],
    leaving: Iterable[MemberId],
) -> Membership | None:
    """Return the view that a leader wants next, ``None`` if it is content or cannot have it.

    :param joining: who wants to vote and does not yet, and where it listens.
    :param is_alive: whether somebody counts.
    :param leaving: who said that it stops.
    """
    view = raft.membership
    if view is None or not raft.has_committed_in_term or raft.membership_change_pending:
        return None
    members = view.members
    in_touch = sum(is_alive(one) for one, _ in members)
    if in_touch < view.quorum:
        return None
    joining = sorted(joining)
    back = {member.name: member for member, _ in joining}
    gone = set(leaving)
    for one, _ in members:
        if one == raft.me:
            continue
        # Who is back without memory is somebody else; its former life cannot come back.
        replaced = one.name in back and back[one.name] != one
        if one in gone or replaced or not is_alive(one):
            return Membership(tuple(pair for pair in members if pair[0] != one))
    if len(members) < MAX_VOTERS:
        for member, address in joining:
            progress = raft.replication.progress.get(member)
            if progress is not None and progress.match_index >= raft.commit_index and not progress.probing:
                return Membership(tuple(sorted((*members, (member, address)))))
    return None
