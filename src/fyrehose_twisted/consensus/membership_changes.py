"""Membership changes by the leader, one at a time (Raft, section 6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import MemberId, Membership

MAX_VOTERS = 31
"""Maximum number of voters. Further nodes follow without a vote."""


def next_membership(
    raft: RaftMember,
    joining: Iterable[tuple[MemberId, Any]],
    is_alive: Callable[[MemberId], bool],
    leaving: Iterable[MemberId],
    max_voters: int = MAX_VOTERS,
) -> Membership | None:
    """Return the next membership to propose; ``None`` if no change is needed or possible.

    :param joining: nodes that are not voters yet, each with its data.
    :param is_alive: returns whether a member is alive.
    :param leaving: members that announced their shutdown.
    :param max_voters: maximum number of voters.
    """
    membership = raft.membership
    if membership is None or not raft.has_committed_in_term or raft.membership_change_pending:
        return None
    members = membership.members
    in_touch = sum(is_alive(one) for one, _ in members)
    if in_touch < membership.quorum:
        return None
    joining = sorted(joining, key=lambda pair: pair[0])
    back = {member.name: member for member, _ in joining}
    gone = set(leaving)
    for one, _ in members:
        if one == raft.me:
            continue
        # A node that restarted without state has a new incarnation. The former one never returns.
        replaced = one.name in back and back[one.name] != one
        if one in gone or replaced or not is_alive(one):
            return Membership(tuple(pair for pair in members if pair[0] != one))
    if len(members) < max_voters:
        for member, data in joining:
            progress = raft.replication.progress.get(member)
            if progress is not None and progress.match_index >= raft.commit_index and not progress.probing:
                return Membership(tuple(sorted((*members, (member, data)), key=lambda pair: pair[0])))
    return None
