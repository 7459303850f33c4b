"""Bootstrap of a cluster by this node alone."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.effects import Address
from fyrehose_twisted.parcels.node.discovery.sequence_reports import SequenceReports
from fyrehose_twisted.parcels.node.entry_application import EntryApplication
from fyrehose_twisted.parcels.node.members.membership_changes import MembershipChanges
from fyrehose_twisted.parcels.node.ordering.application_state import ApplicationState
from fyrehose_twisted.parcels.node.ordering.cluster_state import ClusterState


class ClusterBootstrap:
    """Bootstrap of clusters by one node.

    :param own_address: address of the node.
    :param rng: source of cluster ids.
    """

    def __init__(
        self,
        own_address: Address,
        raft: RaftMember,
        state: ClusterState,
        reports: SequenceReports,
        application: EntryApplication,
        application_state: ApplicationState,
        membership_changes: MembershipChanges,
        rng: Random,
    ) -> None:
        self._application_state = application_state
        self._own_address = own_address
        self._raft = raft
        self._state = state
        self._reports = reports
        self._application = application
        self._membership_changes = membership_changes
        self._rng = rng

    def bootstrap(self, now: float) -> int:
        """Bootstrap a cluster with the log of this node; return its id."""
        raft, state = self._raft, self._state
        cluster_id = self._rng.getrandbits(63) or 1
        state.begin_cluster(cluster_id)
        if not raft.log.last_index:
            state.start_log(self._reports.document, self._own_address)
            self._application_state.start_after(self._reports.document)
            self._membership_changes.review_due = True
        raft.bootstrap(self._own_address, now, raft.term + 1)
        self._application.apply_committed(now)
        return cluster_id
