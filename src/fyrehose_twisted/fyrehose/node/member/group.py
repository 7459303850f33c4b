"""The members of a group: how it is bootstrapped, and who joins and leaves."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import EntryKind, LogEntry, MemberId, Membership
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.node.backbone.authority import NumberingAuthority
from fyrehose_twisted.fyrehose.node.member.config import MAX_MEMBERS, MemberConfig
from fyrehose_twisted.fyrehose.node.member.peers import PeerLinks
from fyrehose_twisted.fyrehose.wire.member_messages import MemberHello, NumberBounds


class Group:
    """Membership of one group, as one member sees and changes it.

    :ivar stream_bound: highest number that this member may have given before there was a group.
    :ivar has_state: whether this member has belonged to the group.
    """

    def __init__(
        self,
        config: MemberConfig,
        raft: RaftMember,
        authority: NumberingAuthority,
        *,
        stream_bound: int,
        has_state: bool,
    ) -> None:
        self.has_state = has_state
        self._config = config
        self._raft = raft
        self._authority = authority
        self.stream_bound = stream_bound
        self._removals: set[str] = set()
        self._followed: tuple[int, MemberId | None, Membership | None] | None = None

    def follow(self) -> None:
        """Note who leads which members, to tell the clients."""
        raft, authority = self._raft, self._authority
        followed = raft.term, raft.leader, raft.membership
        if followed == self._followed:
            return
        self._followed = followed
        authority.term = raft.term
        members = () if raft.membership is None else raft.membership.members
        authority.members = tuple(data.client_address for _, data in members if not data.witness)
        data = None if raft.leader is None else dict(members).get(raft.leader)
        # A witness leads only to hand over, and numbers nothing.
        authority.leader = None if data is None or data.witness else data.client_address
        self.has_state |= bool(members)

    def bootstrap(self, hello: Callable[[], MemberHello], links: PeerLinks, now: float) -> None:
        """Bootstrap the group, if this member is the one to do so.

        All members have to be connected and new: a member that is away might belong to a group already.

        :param hello: returns what this member says of itself.
        """
        config, raft = self._config, self._raft
        if not config.bootstrap or config.witness or self.has_state:
            return
        others = list(links.connected.values())
        if len({one.data.peer_address for one in others}) < len(config.peers):
            return
        if any(one.has_state for one in others):
            return
        names = [config.name, *(one.member.name for one in others)]
        if len(set(names)) < len(names):
            return  # Each of two members with one name would take itself for the first.
        if min(one.member.name for one in [hello(), *others] if one.bootstrap) != config.name:
            return
        self.has_state = True
        raft.bootstrap(config.data, now)
        # Whoever leads next must know the numbers that were given without a group.
        bound = max(self.stream_bound, *(one.stream_bound for one in others))
        raft.propose(LogEntry(raft.term, EntryKind.DATA, NumberBounds(bound, 0, bound)))

    def remove(self, name: str, links: PeerLinks) -> None:
        """Remove a member that is gone for good.

        :raises OperationalError: if this member does not lead, or there is no such member, or it is connected.
        """
        raft = self._raft
        if not raft.is_leader:
            raise OperationalError(f"{self._config.name} does not lead, so it cannot remove {name}")
        found = [member for member in raft.members if member.name == name]
        if not found or name == self._config.name:
            raise OperationalError(f"{name} cannot be removed: it is not another member of the group")
        if any(member in links.connected for member in found):
            raise OperationalError(f"{name} is connected; stop it before it is removed")
        self._removals.add(name)

    def change(self, links: PeerLinks) -> None:
        """Propose the next change of the membership on the leader, if one is due."""
        raft, membership = self._raft, self._raft.membership
        if membership is None or not raft.has_committed_in_term or raft.membership_change_pending:
            return
        connected, voters = links.connected, dict(membership.members)
        for member, hello in sorted(connected.items()):
            if member not in voters and len(voters) < MAX_MEMBERS:
                self._removals.discard(member.name)
                raft.propose_membership(Membership((*membership.members, (member, hello.data))))
                return
        names = [member.name for member in voters]
        for member in voters:
            if member in connected or member == raft.me:
                continue
            # A member that lost its state comes back as another incarnation.
            if names.count(member.name) > 1 or member.name in self._removals:
                self._removals.discard(member.name)
                raft.propose_membership(Membership(tuple(one for one in membership.members if one[0] != member)))
                return
