"""Messages between this node and the other members of the cluster."""

from __future__ import annotations

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    MemberId,
    RequestVote,
    RequestVoteReply,
    StartElection,
)
from fyrehose_twisted.effects import Peer
from fyrehose_twisted.parcels.node.discovery.links import InboundPeer, LinkTable
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.members.membership_changes import MembershipChanges
from fyrehose_twisted.parcels.node.ordering.cluster_state import ClusterState
from fyrehose_twisted.parcels.node.ordering.event_numbering import InvalidSnapshot
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.node.peer_faults import PeerFaults
from fyrehose_twisted.parcels.node.publishing import Publishing
from fyrehose_twisted.parcels.wire.messages import Heartbeat, Mode

_RAFT_REPLIES = (AppendEntriesReply, RequestVoteReply)


class MemberExchange:
    """Raft messages and heartbeats of one node, and its reaction when members can or cannot be reached.

    :ivar reply_peers: connections on which members expect replies to their last requests.
    """

    def __init__(
        self,
        raft: RaftMember,
        state: ClusterState,
        links: LinkTable,
        neighbours: Neighbours,
        membership_changes: MembershipChanges,
        publishing: Publishing,
        output: NodeOutput,
        faults: PeerFaults,
    ) -> None:
        self.reply_peers: dict[MemberId, Peer] = {}
        self._raft = raft
        self._state = state
        self._links = links
        self._neighbours = neighbours
        self._membership_changes = membership_changes
        self._publishing = publishing
        self._output = output
        self._faults = faults

    # Requests

    def append_entries_received(self, message: AppendEntries, caller: InboundPeer, now: float) -> None:
        """Process log entries of the leader."""
        if caller.member is not None and self._is_same_cluster(caller):
            self.reply_peers[caller.member] = caller.peer
            self._raft.append_entries_received(message, caller.member, now)

    def start_election_received(self, message: StartElection, caller: InboundPeer, now: float) -> None:
        """Process the order of the leader to take over."""
        if caller.member is not None and self._is_same_cluster(caller):
            self._raft.start_election_received(message, caller.member, now)

    def request_vote_received(self, message: RequestVote | ForcedRequestVote, caller: InboundPeer, now: float) -> None:
        """Process a vote request."""
        if caller.member is not None and self._is_same_cluster(caller):
            self.reply_peers[caller.member] = caller.peer
            self._raft.request_vote_received(message, caller.member, now)

    def install_snapshot_received(self, message: InstallSnapshot, caller: InboundPeer, now: float) -> None:
        """Process a chunk of the leader's snapshot."""
        leader = caller.member
        if leader is None or not self._is_same_cluster(caller):
            return
        if not self._raft.install_snapshot_received(message.term, leader, now):
            return
        try:
            size = self._state.snapshot_received(message, leader)
        except InvalidSnapshot as error:
            self._faults.count("bad-state")
            self._output.warn(str(error))
            return
        self._output.write(caller.peer, InstallSnapshotReply(self._raft.term, message.index, size))

    def heartbeat_received(self, message: Heartbeat, caller: InboundPeer, now: float) -> None:
        """Process a heartbeat."""
        member = caller.member
        if member is None:
            return
        self._neighbours.heartbeat_received(message, member)
        if member not in self._raft.members:
            self._membership_changes.review_due = True
        if message.mode is Mode.SHUTDOWN:
            self._membership_changes.member_leaving(member)
            if member == self._raft.leader:
                self._raft.leader_lost(now)

    def _is_same_cluster(self, caller: InboundPeer) -> bool:
        """Return whether a peer is in this node's cluster; close its connection if not.

        Its Hello may predate its, or this node's, membership. Then its cluster id is adopted.
        """
        state = self._state
        if self._raft.membership is None and caller.cluster_id:
            state.adopt_cluster_id(caller.cluster_id)
            return True
        if not caller.cluster_id and caller.member in self._raft.members:
            caller.cluster_id = state.cluster_id  # It has joined since, as the membership says.
        if state.cluster_id and caller.cluster_id == state.cluster_id:
            return True
        # It is in no cluster, or in another one. Only a new Hello, on a new connection, can change that.
        self._faults.count("other-founding")
        self._links.close(caller.peer)
        return False

    # Replies. They return whether there is anything new to send or apply.

    def append_entries_reply_received(self, message: AppendEntriesReply, member: MemberId, now: float) -> bool:
        """Process a follower's reply to log entries."""
        news = self._raft.append_entries_reply_received(message, member, now)
        if member not in self._raft.members:
            self._membership_changes.review_due = True
            return True
        return news

    def request_vote_reply_received(self, message: RequestVoteReply, member: MemberId, now: float) -> bool:
        """Process a vote."""
        self._raft.request_vote_reply_received(message, member, now)
        return True

    def install_snapshot_reply_received(self, message: InstallSnapshotReply, member: MemberId, now: float) -> bool:
        """Process a follower's reply to a snapshot chunk."""
        self._raft.install_snapshot_reply_received(message, member, now)
        return True

    # Connections

    def member_ready(self, member: MemberId) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.listener.MemberListener`."""
        self._membership_changes.member_connected(member)
        self._raft.replication.follower_connected(member)
        if member == self._raft.leader:
            self._publishing.resend_all()

    def member_suspected(self, member: MemberId, now: float) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.listener.MemberListener`."""
        if member == self._raft.leader:
            self._raft.leader_lost(now)
        self.reply_peers.pop(member, None)
        self._membership_changes.member_suspected(member)

    def set_blocked(self, peer: Peer, blocked: bool) -> None:
        """Stop or resume sending log entries on a connection."""
        target = self._links.dialled_target(peer)
        if target is not None and target.member is not None:
            self._raft.replication.set_blocked(target.member, blocked)

    def dial_members(self, now: float) -> None:
        """Dial the members that are not known yet."""
        membership = self._raft.membership
        if membership is not None:
            me = self._raft.me
            self._links.add_addresses((address for member, address in membership.members if member != me), now)

    # Outputs

    def send_pending(self) -> None:
        """Queue outgoing Raft messages on their connections."""
        links, write = self._links, self._output.write
        for member, message in self._raft.outbox:
            if isinstance(message, _RAFT_REPLIES):
                asked = self.reply_peers.get(member)
                if asked is not None and asked.number in links.inbound:
                    write(asked, message)
            elif not isinstance(message, (ForcedRequestVote, StartElection)) or self._neighbours.knows_conditions(
                member
            ):
                links.request(member, message)
        self._raft.outbox.clear()
