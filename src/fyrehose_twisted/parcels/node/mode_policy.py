"""Rules that decide when a node changes mode."""

from __future__ import annotations

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.host_addresses import format_address
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.discovery.dial_target import DialResult
from fyrehose_twisted.parcels.node.discovery.links import LinkTable
from fyrehose_twisted.parcels.node.discovery.sequence_reports import SequenceReports
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.wire.messages import NEIGHBOUR_TIMEOUT, Mode

_RESULT_TEXTS = {
    DialResult.CONNECTION_REFUSED: "refuses connections",
    DialResult.NO_CLUSTER: "is in no cluster",
    DialResult.REJECTED: "refuses this node",
}


class ModePolicy:
    """Mode rules of one node, evaluated on the state of its parts."""

    def __init__(
        self,
        config: NodeConfig,
        raft: RaftMember,
        links: LinkTable,
        reports: SequenceReports,
        delivery: Delivery,
        modes: ModeMachine,
    ) -> None:
        self._config = config
        self._raft = raft
        self._links = links
        self._reports = reports
        self._delivery = delivery
        self._modes = modes

    def may_bootstrap(self) -> bool:
        """Return whether to bootstrap a cluster: every configured node answered, and none is in a cluster."""
        targets = self._links.configured
        results = {target.result for target in targets}
        if self._delivery.numbering.cluster_id or not results <= {
            DialResult.CONNECTION_REFUSED,
            DialResult.DOCUMENT_ONLY,
            DialResult.NO_CLUSTER,
        }:
            return False
        if any(target.queries_sequence for target in targets) or self._delivery.last:
            return False  # A node with events was in a cluster before and lost its state.
        return self._config.bootstrap or not targets or results == {DialResult.DOCUMENT_ONLY}

    def waiting_reason(self) -> str:
        """Describe what the node waits for before it has a cluster."""
        if self._delivery.last and self._config.bootstrap:
            return (
                f"it has events up to {self._delivery.last:,} but no state, so it was in a cluster before;"
                " let it join that cluster, or reform that cluster"
            )
        waits = [
            f"{format_address(target.address)} {_RESULT_TEXTS.get(target.result, 'does not answer')}"
            for target in self._links.configured
            if target.result not in (DialResult.DOCUMENT_ONLY, DialResult.IN_CLUSTER)
        ]
        return f"it is searching for a cluster: {', '.join(waits[:8])}" if waits else "it is searching for a cluster"

    def quorum_loss_reason(self, now: float) -> str | None:
        """Describe the lost quorum; return ``None`` while the node is in contact with a quorum."""
        if self._modes.mode not in (Mode.WRK, Mode.SEQ_RECOVERY):
            return None
        if min(self._raft.seconds_since_leader(now), now - self._modes.since) <= NEIGHBOUR_TIMEOUT:
            return None
        membership = self._raft.membership
        quorum = (
            "a quorum" if membership is None else f"a quorum ({membership.quorum} of {len(membership.members)} members)"
        )
        return f"it cannot reach {quorum}"

    def next_event(self) -> tuple[str, str] | None:
        """Return the next input of :class:`~fyrehose_twisted.parcels.node.modes.ModeInputs` and its reason, or
        ``None``."""
        raft, delivery, mode = self._raft, self._delivery, self._modes.mode
        if mode is Mode.WRK:
            if not raft.is_voter or delivery.backfill is not None:
                return "fell_behind", "the cluster continued without it"
        elif mode is Mode.SEQ_RECOVERY:
            leads = raft.has_committed_in_term if raft.is_leader else raft.leader is not None
            if (
                raft.is_voter
                and leads
                and delivery.backfill is None
                and delivery.numbering.sequence >= self._reports.cluster
            ):
                return "caught_up", "it has all events"
        elif mode is Mode.DSC:
            if delivery.numbering.cluster_id:
                return "answered", "a node of the cluster answered, or its state names a cluster"
        elif mode is Mode.ERR and raft.leader is not None:
            return "answered", "it can reach a quorum again"
        return None
