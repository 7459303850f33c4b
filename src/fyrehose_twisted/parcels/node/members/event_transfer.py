"""Transfer of delivered events between nodes, for nodes that missed some."""

from __future__ import annotations

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.parcels.node.discovery.heartbeats import Heartbeats
from fyrehose_twisted.parcels.node.discovery.links import InboundPeer, LinkTable
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.wire.messages import FetchEvents, FetchEventsReply


class EventTransfer:
    """Backfill of one node from others, and of others from it."""

    def __init__(
        self, raft: RaftMember, delivery: Delivery, links: LinkTable, heartbeats: Heartbeats, output: NodeOutput
    ) -> None:
        self._raft = raft
        self._delivery = delivery
        self._links = links
        self._heartbeats = heartbeats
        self._output = output

    def fetch_missing(self, now: float) -> None:
        """Fetch the events missing before the next one."""
        sources = self._sources()
        # A link to a member may not be ready yet. If the member is dead, the others remove it.
        holders = {*self._raft.peers, *sources}
        self._delivery.fetch_missing(sources, holders, now)
        if self._delivery.backfill is None:
            self._heartbeats.send()  # The leader waits for this before it makes the node a voter.

    def _sources(self) -> list[MemberId]:
        members = sorted(self._links.ready_targets)
        leader = self._raft.leader
        if leader in members:
            members.remove(leader)
            members.insert(0, leader)
        return members

    def fetch_received(self, message: FetchEvents, caller: InboundPeer, now: float) -> None:
        """Process a backfill request of another node."""
        self._output.write(caller.peer, self._delivery.serve_fetch(message))

    def fetch_reply_received(self, message: FetchEventsReply, member: MemberId, now: float) -> bool:
        """Process a reply to a backfill request; return whether there is anything new."""
        self._delivery.backfill_received(message, member)
        return True
