"""Description that a node gives of itself to its peers."""

from __future__ import annotations

from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.ordering.application_state import ApplicationState
from fyrehose_twisted.parcels.node.ordering.cluster_state import ClusterState
from fyrehose_twisted.parcels.wire.messages import (
    Extension,
    Heartbeat,
    Mode,
    NodeInfo,
    Parcel,
    ParcelType,
    node_id,
)

EXTENSION_VERSION = 2


class LocalNode:
    """This node and its cluster, as peers see them.

    :ivar cluster: name of the cluster.
    :ivar secret: secret of the cluster, if any.
    :ivar member: member id of the node.
    :ivar extension: its identity in the parcels of this implementation.
    """

    def __init__(
        self, config: NodeConfig, state: ClusterState, application: ApplicationState, modes: ModeMachine
    ) -> None:
        member = state.raft.me
        self.cluster = config.cluster
        self.secret = config.secret
        self.member = member
        self.extension = Extension(EXTENSION_VERSION, member.incarnation, config.cluster_tag)
        self._state = state
        self._application = application
        self._modes = modes
        self._initial_info = NodeInfo(node_id(member.name), Mode.DSC, member.name, config.advertise, self.extension)
        self._id = self._initial_info.id

    @property
    def info(self) -> NodeInfo:
        """Information that this node sends about itself."""
        return self._initial_info._replace(mode=self._modes.mode)

    @property
    def cluster_id(self) -> int:
        """Id of the cluster that this node is in; 0 for none."""
        return self._state.cluster_id

    def adopt_cluster_id(self, cluster_id: int) -> None:
        """Record the cluster that a peer belongs to, if this node is in none."""
        self._state.adopt_cluster_id(cluster_id)

    def other_cluster(self, cluster_id: int) -> str | None:
        """Describe the conflict if a peer is in a cluster of the same name that was bootstrapped separately."""
        own = self.cluster_id
        if own and cluster_id and own != cluster_id:
            return (
                f"there are two clusters named {self.cluster!r}, created separately ({own:016x}, {cluster_id:016x});"
                " restart the nodes of one of them without their state"
            )
        return None

    # Messages

    def heartbeat(self) -> Heartbeat:
        """Return a heartbeat.

        The leader makes this node a member at a certain sequence number. So a node without the application's state
        reports what its state contains, because members that crash then may have been the only ones with it.
        """
        raft, sequence = self._state.raft, self._state.sequence
        if not raft.is_voter and self._application.is_awaited:
            sequence = min(sequence, self._application.sequence)
        return Heartbeat(self._modes.mode, raft.term, sequence)

    def discovery_request(self) -> Parcel:
        """Return a DscReq."""
        return Parcel(False, ParcelType.DSC_REQ, self._id, self.info)

    def discovery_response(self, nodes: tuple[NodeInfo, ...]) -> Parcel:
        """Return a DscRes that lists ``nodes``."""
        return Parcel(True, ParcelType.DSC_RES, self._id, nodes)

    def sequence_request(self) -> Parcel:
        """Return a SeqReq."""
        return Parcel(False, ParcelType.SEQ_REQ, self._id)

    def sequence_response(self) -> Parcel:
        """Return a SeqRes."""
        return Parcel(True, ParcelType.SEQ_RES, self._id, self._state.sequence)

    def protocol_error(self, text: str) -> Parcel:
        """Return a ProtoError."""
        return Parcel(True, ParcelType.PROTO_ERROR, self._id, None, text.encode())
