"""State of the cluster on one node: the result of the applied log entries, which snapshots hold."""

from __future__ import annotations

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import InstallSnapshot, MemberId, Membership, Snapshot
from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.events import MembershipChanged, NodeEvent
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering
from fyrehose_twisted.parcels.node.ordering.state_recorder import SnapshotReceiver, StateRecorder
from fyrehose_twisted.parcels.node.persistent_state import PersistentState, StateChange


class ClusterState:
    """State after the applied entries: numbering and membership.

    :param events: list to which events for the application are appended.
    :ivar raft: Raft state of this node.
    :ivar applied_index: index of the last applied entry.
    """

    def __init__(
        self,
        raft: RaftMember,
        delivery: Delivery,
        recorder: StateRecorder,
        counters: Counters,
        events: list[NodeEvent],
    ) -> None:
        self.raft = raft
        self.applied_index = 0
        self._delivery = delivery
        self._recorder = recorder
        self._counters = counters
        self._events = events
        self._snapshot_receiver = SnapshotReceiver()
        self._membership: Membership | None = None

    @property
    def cluster_id(self) -> int:
        """Id of the cluster that this node is in; 0 for none, even if it knows of a cluster."""
        return 0 if self.raft.membership is None else self._delivery.numbering.cluster_id

    @property
    def sequence(self) -> int:
        """Sequence number of the last delivered event."""
        return self._delivery.last

    def adopt_cluster_id(self, cluster_id: int) -> None:
        """Record the cluster that a peer belongs to, if this node is in none."""
        if self.raft.membership is None and cluster_id != self._delivery.numbering.cluster_id:
            self._delivery.numbering.cluster_id = cluster_id
            self._recorder.dirty = True

    def is_member_address(self, address: Address) -> bool:
        """Return whether a member listens at ``address``."""
        membership = self.raft.membership
        return membership is not None and any(address == known for _, known in membership.members)

    def note_membership(self) -> bool:
        """Report the committed membership to the application if it changed; return whether it did."""
        membership = self.raft.membership
        if membership is None or membership is self._membership:
            return False
        changed = membership != self._membership
        if changed:
            self._events.append(MembershipChanged(membership))
        self._membership = membership
        return changed

    # Start

    def begin_cluster(self, cluster_id: int) -> None:
        """Record that this node bootstraps a cluster."""
        self._snapshot_receiver.reset()
        self._delivery.numbering.cluster_id = cluster_id

    def start_log(self, sequence: int, address: Address) -> None:
        """Start the log of a new cluster of this node alone, with a snapshot.

        Joining nodes install that snapshot, which tells them where numbering starts.

        :param sequence: sequence number before the first event.
        :param address: address of this node.
        """
        self._delivery.start_after(sequence)
        self.raft.install_snapshot(1, 0, Membership(((self.raft.me, address),)))
        self.applied_index = 1
        self.note_membership()
        self._recorder.snapshot = self.snapshot()

    def restore(self, persistent_state: PersistentState, now: float) -> None:
        """Restore the state of an earlier run."""
        raft = self.raft
        numbering, state = EventNumbering(), persistent_state.snapshot
        if state is not None:
            membership = numbering.load(state.data)
            raft.install_snapshot(state.index, state.term, membership)
            self.applied_index = state.index
        numbering.cluster_id = persistent_state.cluster_id
        self._delivery.numbering = numbering
        raft.log.append(persistent_state.entries)
        raft.term, raft.voted_for = persistent_state.term, persistent_state.voted_for
        raft.restore(persistent_state.commit_index)
        if raft.members == {raft.me}:
            raft.leader_lost(now)  # The only member need not wait for a leader.

    # Snapshots

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the applied state."""
        membership = self._membership if self._membership is not None else Membership(())
        term = self.raft.log.term_at(self.applied_index) or 0
        return Snapshot(self.applied_index, term, self._delivery.numbering.dump(membership))

    def snapshot_received(self, chunk: InstallSnapshot, leader: MemberId) -> int:
        """Add a chunk of the leader's snapshot, and install the snapshot once it is complete and newer.

        :return: the number of bytes received.
        :raises InvalidSnapshot: if the snapshot is malformed.
        """
        size, received = self._snapshot_receiver.add_chunk(chunk, leader)
        if received is not None and chunk.index > self.raft.commit_index:
            state = received.snapshot
            self._recorder.snapshot = state
            self._delivery.install_numbering(received.numbering)
            self.raft.install_snapshot(state.index, state.term, received.membership)
            self.applied_index = state.index
            self._counters.states_taken += 1
        return size

    # Persistence

    def compact(self) -> None:
        """Replace the persisted entries by a snapshot if they take too much room."""
        if self._recorder.needs_compaction and self.applied_index > self.raft.log.snapshot_index:
            self._recorder.compact(self.raft, self.snapshot())

    @property
    def followers_may_go_first(self) -> bool:
        """See :class:`~fyrehose_twisted.parcels.node.ordering.state_recorder.StateRecorder`."""
        return self._recorder.followers_may_go_first

    def take_change(self) -> StateChange | None:
        """Return the change to persist now, or ``None``."""
        return self._recorder.take_change(self.raft, self._delivery.numbering.cluster_id)
