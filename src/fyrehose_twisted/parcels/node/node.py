"""Parcels node without I/O (document 004 and its extensions).

:class:`ClusterNode` combines discovery (:mod:`~fyrehose_twisted.parcels.node.discovery`), consensus on the log
(:mod:`~fyrehose_twisted.consensus.member`) and delivery of committed events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import inf
from random import Random
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.consensus.log import RaftLog
from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    InstallSnapshot,
    InstallSnapshotReply,
    LogEntry,
    MemberId,
    Membership,
    RequestVote,
    RequestVoteReply,
    Snapshot,
)
from fyrehose_twisted.consensus.replication import MAX_APPEND_BYTES
from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.errors import LocalError, MessageTooLarge, NotOrdered
from fyrehose_twisted.interfaces import IEventHistory, ILinkNode, Outputs
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import (
    MembershipChanged,
    ModeChanged,
    NeighbourAdded,
    NeighbourRemoved,
    NodeEvent,
    OperatorWarning,
)
from fyrehose_twisted.parcels.node.counters import Counters
from fyrehose_twisted.parcels.node.discovery import Discovery
from fyrehose_twisted.parcels.node.log_entries import entry_size
from fyrehose_twisted.parcels.node.membership_changes import MembershipChanges
from fyrehose_twisted.parcels.node.mode_policy import ModePolicy
from fyrehose_twisted.parcels.node.modes import ModeMachine
from fyrehose_twisted.parcels.node.neighbours import DialState, DialTarget, InboundPeer, Neighbour
from fyrehose_twisted.parcels.node.ordering.delivery import Delivery
from fyrehose_twisted.parcels.node.ordering.event_numbering import EventNumbering, InvalidSnapshot
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.ordering.pending import run_size
from fyrehose_twisted.parcels.node.ordering.publish_tracker import NOT_LEADER, PublishTracker
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.node.snapshot import snapshot
from fyrehose_twisted.parcels.node.state_recorder import ReceivedSnapshot, SnapshotReceiver, StateRecorder
from fyrehose_twisted.parcels.node.status import NodeStatus
from fyrehose_twisted.parcels.wire.messages import (
    HEARTBEAT_INTERVAL,
    MAX_PUBLISHER,
    Event,
    FetchEvents,
    FetchEventsReply,
    Heartbeat,
    Hello,
    Message,
    Mode,
    Parcel,
    Proof,
    Publish,
    PublishAck,
    PublisherRun,
    PublishNack,
    RefusalReason,
    Refused,
    Welcome,
)
from fyrehose_twisted.parcels.wire.payload import WIRE_NAMES

MAX_ENCODED_RUN = 60_000
"""Maximum encoded size of one run in bytes."""
RESEND_DELAY = 0.2
"""Seconds after which runs refused by the leader are resent."""
LEAVE_TIMEOUT = 1.0
"""Seconds that a leaving node waits for the others to remove it."""


@implementer(ILinkNode)
class ClusterNode:
    """One node of a cluster.

    :param rng: source of incarnations, nonces and timeouts.
    :param persistent_state: state of earlier runs; changes to it are outputs of :meth:`drain`. ``None``: each start is
        a new incarnation.
    :param history: store of delivered events; delivery continues after its last event. By default, a window in memory.
    """

    def __init__(
        self,
        config: NodeConfig,
        rng: Random,
        now: float,
        *,
        persistent_state: PersistentState | None = None,
        history: IEventHistory | None = None,
    ) -> None:
        self.config = config
        self.counters = Counters()
        self.drops: Counter[str] = Counter()
        self._rng = rng
        member = None if persistent_state is None else persistent_state.member
        if member is None or member.name != config.name:
            member = MemberId(config.name, rng.getrandbits(63) or 1)
        self.me = member
        starts = 1
        if persistent_state is not None:
            persistent_state.record_start(member)
            starts = persistent_state.starts
        self._raft = RaftMember(member, rng, now, RaftLog(entry_size), self._snapshot)
        self._events: list[NodeEvent] = []
        if history is None:
            history = EventWindow(config.window_bytes)
        self._delivery = Delivery(history, self.counters, self._events, self._request_events)
        self._state_recorder = StateRecorder(durable=persistent_state is not None)
        self._snapshot_receiver = SnapshotReceiver()
        publisher = f"{config.name}#{member.incarnation:016x}"
        self._publish_tracker = PublishTracker(publisher, config.pending_bytes, starts << 32)
        self._modes = ModeMachine()
        self._modes.since = now
        self._discovery = Discovery(config, member, self, rng, now)
        self._membership_changes = MembershipChanges(self._raft, self._discovery, lambda: self.sequence)
        self._mode_policy = ModePolicy(config, self._raft, self._discovery, self._delivery, self._modes)
        self._request_handlers: dict[type, Callable[[Any, InboundPeer, float], None]] = {
            AppendEntries: self._append_entries_received,
            Publish: self._publish_received,
            RequestVote: self._request_vote_received,
            Heartbeat: self._heartbeat_received,
            FetchEvents: self._fetch_received,
            InstallSnapshot: self._install_snapshot_received,
        }
        self._reply_handlers: dict[type, Callable[[Any, DialTarget, MemberId, float], None]] = {
            AppendEntriesReply: self._append_entries_reply_received,
            PublishNack: self._publish_nack_received,
            RequestVoteReply: self._request_vote_reply_received,
            InstallSnapshotReply: self._install_snapshot_reply_received,
            FetchEventsReply: self._fetch_reply_received,
        }
        self._unsent_runs: list[PublisherRun] = []
        self._known_leader: MemberId | None = None
        self._resend_at = inf
        self._check_at = now + HEARTBEAT_INTERVAL
        self._leave_deadline = inf
        self._known_membership: Membership | None = None
        self._reply_peers: dict[MemberId, Peer] = {}
        self._applied_index = 0
        self._now = now
        self._drain_needed = True
        if persistent_state is not None and persistent_state.cluster_id:
            self._restore(persistent_state, now)
        elif not config.neighbours and self._mode_policy.may_bootstrap():
            self._bootstrap(now)

    # State

    @property
    def mode(self) -> Mode:
        """Mode of the node."""
        return self._modes.mode

    @property
    def sequence(self) -> int:
        """Sequence number of the last delivered event."""
        return self._delivery.last

    @property
    def term(self) -> int:
        """Current Raft term."""
        return self._raft.term

    @property
    def cluster_id(self) -> int:
        """Id of the cluster that this node is in; 0 for none, even if it knows of a cluster."""
        return 0 if self._raft.membership is None else self._delivery.numbering.cluster_id

    @property
    def oldest(self) -> int:
        """Lowest sequence number that is held."""
        return int(self._delivery.history.oldest)

    def read(self, first: int, last: int, limit: int) -> list[Event]:
        """Return delivered events from ``first`` to ``last``, at most ``limit``.

        :raises EventsNotHeld: if ``first`` is no longer held.
        """
        return self._delivery.read(first, last, limit)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if self.has_stopped:
            return None
        return min(
            self._raft.next_deadline(),
            self._discovery.next_deadline(),
            self._delivery.deadline,
            self._check_at,
            self._resend_at,
            self._leave_deadline,
        )

    def state(self, now: float) -> NodeStatus:
        """Return the status of the node and of the cluster as it sees it."""
        self.counters.repeats, self.counters.elections = self._delivery.numbering.repeats, self._raft.elections
        counters = asdict(self.counters)
        for reason, count in (self.drops + self._discovery.drops).items():
            counters[f"dropped_{reason.replace('-', '_')}"] = count
        held = (self.oldest, self.sequence)
        discovery = self._discovery
        return snapshot(self.config.cluster, self.cluster_id, self._raft, discovery, self._modes, held, counters, now)

    # Commands

    def publish(self, events: Sequence[bytes], token: Any, now: float) -> None:
        """Publish events of this node, in order. Their result is reported with ``token``.

        :raises MessageTooLarge: if an event is too large.
        :raises PublishQueueFull: if too many events are pending.
        :raises NotOrdered: if this node has no quorum.
        """
        self._drain_needed = True
        self._now = now
        self._check_publish(events)
        if events:
            self._publish_tracker.publish(events, token)

    def publish_as(self, run: PublisherRun, token: Any, now: float) -> None:
        """Publish events that the application numbered itself, so that it can safely repeat them.

        :raises MessageTooLarge: if an event is too large.
        :raises NotOrdered: if this node has no quorum.
        :raises PublishQueueFull: if too many events are pending.
        :raises LocalError: if the publisher's name is too long or this node's own, or if there are no events.
        """
        self._drain_needed = True
        self._now = now
        self._check_publish(run.events)
        if not run.events or run.first < 1:
            raise LocalError("a run needs at least one event, with numbers from 1 on")
        if not 1 <= len(run.publisher.encode()) <= MAX_PUBLISHER:
            raise LocalError(f"publisher {run.publisher[:40]!r}…: use 1 to {MAX_PUBLISHER} bytes")
        self._publish_tracker.publish_as(run, token)
        self._unsent_runs.append(run)

    def _check_publish(self, events: Sequence[bytes]) -> None:
        limit = self.config.max_event
        for event in events:
            if len(event) > limit:
                raise MessageTooLarge(len(event), limit)
        if self.mode is not Mode.WRK:
            self.counters.refused += len(events)
            raise NotOrdered("no-quorum", f"this node cannot order events: {self._modes.reason}", unknown=False)
        self.counters.published += len(events)

    def leave(self, now: float) -> None:
        """Leave the cluster and stop."""
        self._drain_needed = True
        self._now = now
        if self._leave_deadline < inf or self.mode in (Mode.SHUTDOWN, Mode.PANIC):
            return
        self._fire_mode_input("left", "it was asked to stop", now)
        self._publish_tracker.abandon_all("this node stops")
        self._discovery.announce_shutdown()
        self._raft.step_down(now)
        self._leave_deadline = now + LEAVE_TIMEOUT if self._discovery.ready_targets else now

    @property
    def has_stopped(self) -> bool:
        """Whether the node has stopped and has nothing more to send."""
        return self.mode in (Mode.SHUTDOWN, Mode.PANIC) and self._leave_deadline == inf

    def panic(self, reason: str, now: float) -> None:
        """Stop at once, because the state cannot be persisted any more."""
        self._drain_needed = True
        self._now = now
        self._fire_mode_input("broke", reason, now)
        self._publish_tracker.abandon_all(reason)

    def reform(self, now: float) -> None:
        """Found a new cluster with this node alone and its log. Nodes of the old cluster are refused from then on.

        :raises LocalError: if the node has a quorum or has stopped.
        """
        self._drain_needed = True
        self._now = now
        if self.mode in (Mode.WRK, Mode.SHUTDOWN, Mode.PANIC):
            raise LocalError(f"node {self.me.name!r} is in mode {self.mode.value}: it has a quorum, or has stopped")
        self._snapshot_receiver.reset()
        self._discovery.close_all(now)
        self._bootstrap(now, reason="the operator forced a new cluster,")

    # Inputs

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._drain_needed = True
        self._now = now
        if self.has_stopped:
            self._discovery.close_connection(peer)
        else:
            self._discovery.connected(peer, now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._drain_needed = True
        self._now = now
        self._discovery.dial_failed(address, reason, now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._drain_needed = True
        self._now = now
        self._discovery.disconnected(peer, reason, now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._drain_needed = True
        self._now = now
        target = self._discovery.dialled_target(peer)
        if target is not None and target.member is not None:
            self._raft.replication.set_blocked(target.member, True)

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._drain_needed = True
        self._now = now
        target = self._discovery.dialled_target(peer)
        if target is not None and target.member is not None:
            self._raft.replication.set_blocked(target.member, False)

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if self.has_stopped:
            return
        self._now = now
        if peer.dialled:
            if type(message) is not AppendEntriesReply:
                self._drain_needed = True
            self._receive_reply(message, peer, now)
        else:
            self._drain_needed = True
            self._receive_request(message, peer, now)

    def _receive_request(self, message: Message, peer: Peer, now: float) -> None:
        discovery = self._discovery
        caller = discovery.inbound.get(peer.number)
        if caller is None:
            return
        accept = self._request_handlers.get(type(message))
        if accept is not None and caller.authenticated and (caller.member is not None or type(message) is Publish):
            discovery.request_received(caller, now)
            accept(message, caller, now)
        elif isinstance(message, Parcel):
            discovery.parcel_from_inbound(message, caller, now)
        elif isinstance(message, Hello):
            discovery.hello_received(message, caller, now)
        elif isinstance(message, Proof):
            discovery.proof_received(message, caller, now)
        else:
            self.drops["out-of-place"] += 1
            text = f"a {WIRE_NAMES[type(message)]} is not expected before Hello"
            discovery.write(peer, Refused(RefusalReason.WRONG_SECRET, text))
            discovery.close_connection(peer)

    def _receive_reply(self, message: Message, peer: Peer, now: float) -> None:
        discovery = self._discovery
        target = discovery.dialled_target(peer)
        if target is None:
            return
        answer = self._reply_handlers.get(type(message))
        if answer is not None and target.state is DialState.READY and target.member is not None:
            discovery.reply_received(target.member, now)
            answer(message, target, target.member, now)
        elif isinstance(message, Parcel):
            if target.member is not None and target.state is DialState.READY:
                discovery.reply_received(target.member, now)
            discovery.parcel_from_target(message, target, now)
        elif isinstance(message, Welcome):
            discovery.welcome_received(message, target, now)
        elif isinstance(message, Refused):
            discovery.refusal_received(message, target, now)
        else:
            self.drops["out-of-place"] += 1

    # Requests

    def _append_entries_received(self, message: AppendEntries, caller: InboundPeer, now: float) -> None:
        if caller.member is not None and self._same_cluster(caller):
            self._reply_peers[caller.member] = caller.peer
            self._raft.append_entries_received(message, caller.member, now)

    def _request_vote_received(self, message: RequestVote, caller: InboundPeer, now: float) -> None:
        if caller.member is not None and self._same_cluster(caller):
            self._reply_peers[caller.member] = caller.peer
            self._raft.request_vote_received(message, caller.member, now)

    def _same_cluster(self, caller: InboundPeer) -> bool:
        """A caller may have said hello before it, or this node, was in a cluster: whom it belongs to it said then."""
        if self._raft.membership is None and caller.cluster_id:
            self.adopt_cluster_id(caller.cluster_id)
            return True
        if self.cluster_id and caller.cluster_id == self.cluster_id:
            return True
        # It is in no cluster, or in another one: both can only be told anew on a new connection.
        self.drops["other-founding"] += 1
        self._discovery.close_connection(caller.peer)
        return False

    def _heartbeat_received(self, message: Heartbeat, caller: InboundPeer, now: float) -> None:
        self._discovery.heartbeat_received(message, caller)
        if caller.member not in self._raft.members:
            self._membership_changes.review_due = True
        if message.mode is Mode.SHUTDOWN and caller.member is not None:
            self._membership_changes.member_leaving(caller.member)
            if caller.member == self._raft.leader:
                self._raft.leader_lost(now)

    def _publish_received(self, message: Publish, caller: InboundPeer, now: float) -> None:
        run = message.run
        publishing = self._publish_tracker
        if not run.events or not run.first >= 1:
            publishing.refuse(
                caller.peer, run, RefusalReason.OUT_OF_ORDER, "a run needs at least one event, with numbers from 1 on"
            )
        elif run_size(run) > MAX_ENCODED_RUN or any(len(event) > self.config.max_event for event in run.events):
            text = (
                f"an event has more than {self.config.max_event:,} bytes, or all together more than {MAX_ENCODED_RUN:,}"
            )
            publishing.refuse(caller.peer, run, RefusalReason.OVERSIZE, text)
        elif self.mode is not Mode.WRK or (caller.member is not None and not self._raft.is_leader):
            text = NOT_LEADER if self.mode is Mode.WRK else f"this node cannot order events: {self._modes.reason}"
            publishing.refuse(caller.peer, run, RefusalReason.NO_QUORUM, text)
        else:
            self.counters.published += len(run.events)
            # A pending run may have been lost with its leader. Repeating it is harmless.
            if publishing.publish_requested(run, caller.peer):
                self._unsent_runs.append(run)

    def _fetch_received(self, message: FetchEvents, caller: InboundPeer, now: float) -> None:
        self._discovery.write(caller.peer, self._delivery.serve_fetch(message))

    def _install_snapshot_received(self, message: InstallSnapshot, caller: InboundPeer, now: float) -> None:
        leader = caller.member
        if leader is None or not self._same_cluster(caller):
            return
        if not self._raft.install_snapshot_received(message.term, leader, now):
            return
        try:
            size, arrived = self._snapshot_receiver.add_chunk(message, leader)
        except InvalidSnapshot as error:
            self.drops["bad-state"] += 1
            self.warn(str(error))
            return
        if arrived is not None and message.index > self._raft.commit_index:
            self._install_snapshot(arrived)
        self._discovery.write(caller.peer, InstallSnapshotReply(self._raft.term, message.index, size))

    def _install_snapshot(self, arrived: ReceivedSnapshot) -> None:
        state = arrived.snapshot
        self._state_recorder.snapshot = state
        self._delivery.install_numbering(arrived.numbering)
        self._raft.install_snapshot(state.index, state.term, arrived.membership)
        self._applied_index = state.index
        self.counters.states_taken += 1

    # Replies

    def _append_entries_reply_received(
        self, message: AppendEntriesReply, target: DialTarget, member: MemberId, now: float
    ) -> None:
        if self._raft.append_entries_reply_received(message, member, now):
            self._drain_needed = True
        if member not in self._raft.members:
            self._membership_changes.review_due = self._drain_needed = True

    def _request_vote_reply_received(
        self, message: RequestVoteReply, target: DialTarget, member: MemberId, now: float
    ) -> None:
        self._raft.request_vote_reply_received(message, member, now)

    def _install_snapshot_reply_received(
        self, message: InstallSnapshotReply, target: DialTarget, member: MemberId, now: float
    ) -> None:
        self._raft.install_snapshot_reply_received(message, member, now)

    def _publish_nack_received(self, message: PublishNack, target: DialTarget, member: MemberId, now: float) -> None:
        self._publish_tracker.publish_rejected(message)
        self._resend_at = min(self._resend_at, now + RESEND_DELAY)

    def _fetch_reply_received(
        self, message: FetchEventsReply, target: DialTarget, member: MemberId, now: float
    ) -> None:
        self._delivery.backfill_received(message, member)

    # Callbacks of discovery

    def adopt_cluster_id(self, cluster_id: int) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        if self._raft.membership is None and cluster_id != self._delivery.numbering.cluster_id:
            self._delivery.numbering.cluster_id = cluster_id
            self._state_recorder.dirty = True

    def peer_ready(self, member: MemberId, now: float) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        self._membership_changes.member_connected(member)
        self._raft.replication.follower_connected(member)
        if member == self._raft.leader:
            self._resend_all()

    def peer_lost(self, member: MemberId) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        self._raft.replication.follower_disconnected(member)

    def peer_suspected(self, member: MemberId, now: float) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        if member == self._raft.leader:
            self._raft.leader_lost(now)
        self._reply_peers.pop(member, None)
        self._membership_changes.member_suspected(member)

    def neighbour_added(self, neighbour: Neighbour) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        self._events.append(NeighbourAdded(neighbour.info.name, neighbour.info.host))

    def neighbour_removed(self, neighbour: Neighbour, reason: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        self._events.append(NeighbourRemoved(neighbour.info.name, neighbour.info.host, reason))

    def sequence_reported(self, sequence: int, ours: bool) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        self._mode_policy.sequence_reported(sequence, ours)

    def warn(self, text: str) -> None:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        self._events.append(OperatorWarning(text))

    def keep_dialling(self, address: Address) -> bool:
        """See :class:`~fyrehose_twisted.parcels.node.discovery.DiscoveryListener`."""
        membership = self._raft.membership
        return membership is not None and any(address == known for _, known in membership.members)

    # Time

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._drain_needed = True
        if self.has_stopped:
            return
        self._now = now
        if now >= self._leave_deadline:
            self._leave_deadline = inf
            self._discovery.close_all(now)
            return
        self._raft.tick(now)
        self._discovery.tick(now)
        if now >= self._resend_at:
            self._resend_all()
        if now >= self._check_at:
            self._check_at = now + HEARTBEAT_INTERVAL
            self._check_cluster(now)

    def _check_cluster(self, now: float) -> None:
        """Check for a quorum, for a cluster to found, and for members to dial."""
        if self.mode is Mode.DSC:
            if self._mode_policy.may_bootstrap():
                self._bootstrap(now)
            else:
                self._modes.reason = self._mode_policy.waiting_reason()
        lost = self._mode_policy.quorum_loss_reason(now)
        if lost is not None:
            self._fire_mode_input("lost_quorum", lost, now)
            self._publish_tracker.abandon_all(lost)
        membership = self._raft.membership
        if membership is not None:
            self._discovery.add_addresses((address for member, address in membership.members if member != self.me), now)
        self._membership_changes.prune()

    def _bootstrap(self, now: float, reason: str = "it bootstrapped the cluster") -> None:
        raft, delivery = self._raft, self._delivery
        cluster_id = delivery.numbering.cluster_id = self._rng.getrandbits(63) or 1
        if not raft.log.last_index:
            # Joining nodes install a snapshot, which tells them where numbering starts.
            delivery.start_after(self._mode_policy.largest_document_sequence)
            raft.install_snapshot(1, 0, Membership(((self.me, self.config.advertise),)))
            self._applied_index = 1
            self._note_membership()
            self._state_recorder.snapshot = self._snapshot()
        raft.bootstrap(self.config.advertise, now, raft.term + 1)
        self._apply_committed()
        self._fire_mode_input("founded", f"{reason} {cluster_id:016x}", now)

    def _restore(self, persistent_state: PersistentState, now: float) -> None:
        """Restore the state of an earlier run."""
        raft, delivery = self._raft, self._delivery
        numbering, state = EventNumbering(), persistent_state.snapshot
        if state is not None:
            membership = numbering.load(state.data)
            raft.install_snapshot(state.index, state.term, membership)
            self._applied_index = state.index
        numbering.cluster_id = persistent_state.cluster_id
        delivery.numbering = numbering
        raft.log.append(persistent_state.entries)
        raft.term, raft.voted_for = persistent_state.term, persistent_state.voted_for
        raft.restore(persistent_state.commit_index)
        if raft.members == {self.me}:
            raft.leader_lost(now)  # The only member need not wait for a leader.

    def _fire_mode_input(self, input_name: str, reason: str, now: float) -> None:
        if self._modes.fire(input_name, reason, now):
            self._discovery.mode = self.mode
            self._events.append(ModeChanged(self.mode, reason))
            self._discovery.send_heartbeats()

    # Outputs

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if not self._drain_needed:
            return Outputs(None, [], [])
        self._drain_needed = False
        now, raft = self._now, self._raft
        if self._state_recorder.needs_compaction and self._applied_index > raft.log.snapshot_index:
            self._state_recorder.compact(raft, self._snapshot())
        self._forward_runs()
        while True:
            raft.flush(now)
            self._apply_committed()
            if not (self._membership_changes.review_due and self._membership_changes.propose_change(now)):
                break
        news = self._mode_policy.next_event()
        if news is not None:
            self._fire_mode_input(*news, now)
            if news[0] == "fell_behind":
                self._publish_tracker.abandon_all(f"this node fell behind: {news[1]}")
        persist = self._state_recorder.take_change(raft, self._delivery.numbering.cluster_id)
        self._route_messages()
        events = [*self._events, *self._publish_tracker.events]
        self._events.clear()
        self._publish_tracker.events.clear()
        return Outputs(persist, self._discovery.drain(), events)

    def _forward_runs(self) -> None:
        """Forward new runs to the leader, or all pending runs to a new leader."""
        raft, publishing = self._raft, self._publish_tracker
        leader = raft.leader
        if leader != self._known_leader:
            self._known_leader = leader
            self._resend_all()
        requests, self._unsent_runs = self._unsent_runs, []
        if publishing.queue.pending_events:
            requests.extend(publishing.take_runs())
        if not requests or leader is None or self._resend_at < inf:
            return  # They stay pending, behind the runs that the leader refused.
        if raft.is_leader:
            self._propose(requests)
            return
        for run in requests:
            self._discovery.request(leader, Publish(run))

    def _resend_all(self) -> None:
        self._resend_at = inf
        self._unsent_runs = list(self._publish_tracker.runs())

    def _propose(self, runs: list[PublisherRun]) -> None:
        """Append runs to the log, as many as fit per entry."""
        raft = self._raft
        batch: list[PublisherRun] = []
        size = 0
        for run in runs:
            added = run_size(run)
            if batch and size + added > MAX_APPEND_BYTES:
                raft.propose(LogEntry(raft.term, EntryKind.DATA, tuple(batch)))
                batch, size = [], 0
            batch.append(run)
            size += added
        raft.propose(LogEntry(raft.term, EntryKind.DATA, tuple(batch)))

    def _apply_committed(self) -> None:
        """Apply committed entries and deliver their events."""
        raft, delivery, publishing = self._raft, self._delivery, self._publish_tracker
        if raft.committed:
            ready, raft.committed = raft.committed, []
            for index, entry in ready:
                results = delivery.apply(entry)
                self._applied_index = index
                for run, placed in results:
                    publishing.run_applied(run, placed, delivery.last)
            raft.log.compact(self.config.window_bytes, self._applied_index)
        if delivery.last < delivery.numbering.sequence or delivery.backfill is not None:
            delivery.fetch_missing(self._backfill_sources(), self._now)
            if delivery.backfill is None:
                self._discovery.send_heartbeats()  # The leader waits for this before it makes the node a voter.
        publishing.events_delivered(delivery.last)
        self._note_membership()

    def _note_membership(self) -> None:
        membership = self._raft.membership
        if membership is not None and membership is not self._known_membership:
            if membership != self._known_membership:
                self._events.append(MembershipChanged(membership))
                self._membership_changes.review_due = True
            self._known_membership = membership

    def _request_events(self, member: MemberId, request: FetchEvents) -> None:
        self._discovery.request(member, request)

    def _backfill_sources(self) -> list[MemberId]:
        lines = sorted(self._discovery.ready_targets)
        leader = self._raft.leader
        if leader in lines:
            lines.remove(leader)
            lines.insert(0, leader)
        return lines

    def _route_messages(self) -> None:
        """Queue outgoing messages on their connections."""
        raft, discovery = self._raft, self._discovery
        callers = discovery.inbound
        for peer, message in self._publish_tracker.replies:
            caller = callers.get(peer.number)
            if caller is None:
                continue
            if caller.member is not None and type(message) is PublishAck:
                raft.replication.send_commit(caller.member)
            else:
                discovery.write(peer, message)
        self._publish_tracker.replies.clear()
        for member, message in raft.outbox:
            if type(message) in _RAFT_REPLIES:
                asked = self._reply_peers.get(member)
                if asked is not None and asked.number in callers:
                    discovery.write(asked, message)
            else:
                discovery.request(member, message)
        raft.outbox.clear()

    def _snapshot(self) -> Snapshot:
        """Return a snapshot of the applied state."""
        membership = self._known_membership if self._known_membership is not None else Membership(())
        term = self._raft.log.term_at(self._applied_index) or 0
        return Snapshot(self._applied_index, term, self._delivery.numbering.dump(membership))


_RAFT_REPLIES = frozenset((AppendEntriesReply, RequestVoteReply))
