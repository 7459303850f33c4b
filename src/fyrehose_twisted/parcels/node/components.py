"""Components of a node, and their dependencies."""

from __future__ import annotations

from random import Random

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.interfaces import IEventHistory, IReplicatedState
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.bootstrapping import ClusterBootstrap
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.discovery.admission import NeighbourAdmission
from fyrehose_twisted.parcels.node.discovery.dialler import Dialler
from fyrehose_twisted.parcels.node.discovery.discovery import Discovery
from fyrehose_twisted.parcels.node.discovery.heartbeats import Heartbeats
from fyrehose_twisted.parcels.node.discovery.inbound import InboundHandshake
from fyrehose_twisted.parcels.node.discovery.links import MAX_TARGETS, LinkTable
from fyrehose_twisted.parcels.node.discovery.local_node import LocalNode
from fyrehose_twisted.parcels.node.discovery.neighbours import Neighbours
from fyrehose_twisted.parcels.node.discovery.outbound import OutboundHandshake
from fyrehose_twisted.parcels.node.discovery.sequence_reports import SequenceReports
from fyrehose_twisted.parcels.node.entry_application import EntryApplication
from fyrehose_twisted.parcels.node.lifecycle import Lifecycle
from fyrehose_twisted.parcels.node.log_entries import entry_size
from fyrehose_twisted.parcels.node.members.event_transfer import EventTransfer
from fyrehose_twisted.parcels.node.members.exchange import MemberExchange
from fyrehose_twisted.parcels.node.members.handover import Handover
from fyrehose_twisted.parcels.node.members.membership_changes import MembershipChanges
from fyrehose_twisted.parcels.node.members.state_transfer import StateTransfer
from fyrehose_twisted.parcels.node.mode_policy import ModePolicy
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.ordering.application_state import ApplicationState
from fyrehose_twisted.parcels.node.ordering.cluster_state import ClusterState
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.ordering.publish_tracker import PublishTracker
from fyrehose_twisted.parcels.node.ordering.state_recorder import StateRecorder
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.node.peer_faults import PeerFaults
from fyrehose_twisted.parcels.node.publishing import Publishing


class NodeComponents:
    """The components of one node. Each knows only those made before it.

    :param member: member id of the node.
    :param tracker: publish requests in progress.
    :param durable: whether the node persists its state.
    :param application: the application's state, if this node holds it.
    :param application_sequence: number of the last event that it contains.
    """

    def __init__(
        self,
        config: NodeConfig,
        member: MemberId,
        history: IEventHistory,
        tracker: PublishTracker,
        rng: Random,
        now: float,
        *,
        durable: bool,
        application: IReplicatedState | None = None,
        application_sequence: int = 0,
    ) -> None:
        self.output = output = NodeOutput()
        self.counters = Counters()
        self.faults = faults = PeerFaults(output, MAX_TARGETS * config.max_neighbours, now)
        self.modes = modes = ModeMachine()
        modes.since = now
        self.raft = raft = RaftMember(member, rng, now, RaftLog(entry_size), lambda: self.state.snapshot())
        self.links = links = LinkTable(config, output, raft.replication.follower_disconnected, now)

        self.tracker = tracker
        self.delivery = delivery = Delivery(history, self.counters, output.events, links.request, config.join_events)
        self.application_state = application_state = ApplicationState(
            application, application_sequence, delivery, output.events
        )
        self.recorder = StateRecorder(durable=durable)
        self.state = state = ClusterState(raft, delivery, self.recorder, self.counters, output.events)
        local = LocalNode(config, state, application_state, modes)
        reports = SequenceReports()
        secret = config.secret is not None
        self.neighbours = neighbours = Neighbours(local.info, config.max_neighbours, secret=secret)
        self.handover = Handover(raft, neighbours)
        self.publishing = Publishing(
            config.max_event,
            tracker,
            raft,
            links,
            modes,
            self.counters,
            output,
            self._lowest_version,
            lambda: self.handover.is_pending,
        )
        self.membership_changes = MembershipChanges(raft, links, neighbours, delivery)
        self.exchange = MemberExchange(
            raft, state, links, neighbours, self.membership_changes, self.publishing, output, faults
        )
        heartbeats = Heartbeats(local, links, output, now)
        self.transfer = EventTransfer(raft, delivery, links, heartbeats, output)
        self.state_transfer = StateTransfer(
            raft, application_state, delivery, links, self.neighbours, self.counters, output
        )

        admission = NeighbourAdmission(neighbours, links, output, self.exchange, faults)
        self.discovery = Discovery(
            modes,
            links,
            InboundHandshake(local, links, neighbours, admission, output, faults, rng),
            OutboundHandshake(local, links, neighbours, admission, reports, output, faults, self.exchange, rng),
            Dialler(local, state, links, neighbours, admission, output),
            admission,
            heartbeats,
            faults,
        )

        self.application = EntryApplication(
            config.window_bytes, raft, state, delivery, tracker, self.transfer, self.membership_changes
        )
        cluster_bootstrap = ClusterBootstrap(
            config.advertise, raft, state, reports, self.application, application_state, self.membership_changes, rng
        )
        policy = ModePolicy(config, raft, links, reports, delivery, modes)
        self.lifecycle = Lifecycle(modes, policy, cluster_bootstrap, raft, tracker, links, heartbeats, output.events)

    def _lowest_version(self) -> int | None:
        return self.neighbours.lowest_version(self.raft.members)
