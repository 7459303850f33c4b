"""Application of committed log entries."""

from __future__ import annotations

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.parcels.node.members.event_transfer import EventTransfer
from fyrehose_twisted.parcels.node.members.membership_changes import MembershipChanges
from fyrehose_twisted.parcels.node.ordering.cluster_state import ClusterState
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.ordering.publish_tracker import PublishTracker


class EntryApplication:
    """Application of one node's committed entries: delivery of their events, and replies to their publishers.

    :param window_bytes: bytes of applied entries that the log keeps.
    """

    def __init__(
        self,
        window_bytes: int,
        raft: RaftMember,
        state: ClusterState,
        delivery: Delivery,
        tracker: PublishTracker,
        transfer: EventTransfer,
        membership_changes: MembershipChanges,
    ) -> None:
        self._window_bytes = window_bytes
        self._raft = raft
        self._state = state
        self._delivery = delivery
        self._tracker = tracker
        self._transfer = transfer
        self._membership_changes = membership_changes

    def apply_committed(self, now: float) -> None:
        """Apply committed entries and deliver their events."""
        raft, state, delivery, tracker = self._raft, self._state, self._delivery, self._tracker
        if raft.committed:
            ready, raft.committed = raft.committed, []
            for index, entry in ready:
                results = delivery.apply(entry)
                state.applied_index = index
                for run, placed in results:
                    tracker.run_applied(run, placed, delivery.last)
            raft.log.compact(self._window_bytes, state.applied_index)
        if delivery.last < delivery.numbering.sequence or delivery.backfill is not None:
            self._transfer.fetch_missing(now)
        tracker.events_delivered(delivery.last)
        if state.note_membership():
            self._membership_changes.review_due = True
