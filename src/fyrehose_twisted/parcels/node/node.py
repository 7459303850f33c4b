"""Parcels node without I/O (document 004 and its extensions).

:class:`ClusterNode` combines discovery (:mod:`~fyrehose_twisted.parcels.node.discovery`), consensus on the log
(:mod:`~fyrehose_twisted.consensus.member`) and delivery of committed events.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from random import Random
from typing import Any

from zope.interface import classImplements

from fyrehose_twisted._native import mypyc_attr
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
from fyrehose_twisted.effects import Address, Effect, Peer, Write
from fyrehose_twisted.errors import NoSuchMember, NotLeader
from fyrehose_twisted.interfaces import ConcurrentPersist, IEventHistory, ILinkNode, IReplicatedState, Outputs
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.events import Removed
from fyrehose_twisted.parcels.node.components import NodeComponents
from fyrehose_twisted.parcels.node.discovery.dial_target import DialState
from fyrehose_twisted.parcels.node.discovery.links import InboundPeer
from fyrehose_twisted.parcels.node.ordering.history import EventWindow
from fyrehose_twisted.parcels.node.ordering.publish_tracker import PublishTracker
from fyrehose_twisted.parcels.node.persistent_state import PersistentState
from fyrehose_twisted.parcels.node.snapshot import snapshot
from fyrehose_twisted.parcels.node.status import NodeStatus
from fyrehose_twisted.parcels.wire.messages import (
    HEARTBEAT_INTERVAL,
    Dismissal,
    Event,
    FetchEvents,
    FetchEventsReply,
    FetchState,
    FetchStateReply,
    Heartbeat,
    Hello,
    Message,
    Mode,
    Parcel,
    Proof,
    Publish,
    PublisherRun,
    PublishNack,
    Refused,
    Welcome,
)
from fyrehose_twisted.parcels.wire.payload import WIRE_NAMES


@mypyc_attr(allow_interpreted_subclasses=True)
class ClusterNode:
    """One node of a cluster.

    :param rng: source of incarnations, nonces and timeouts.
    :param persistent_state: state of earlier runs; changes to it are outputs of :meth:`drain`. ``None``: each start is
        a new incarnation.
    :param history: store of delivered events; delivery continues after its last event. By default, a window in memory.
    :param application: the application's state, if this node holds it.
    :param application_sequence: number of the last event that it contains.
    :ivar me: member id of the node.
    :ivar components: its components, for inspection by the simulator.
    """

    def __init__(
        self,
        config: NodeConfig,
        rng: Random,
        now: float,
        *,
        persistent_state: PersistentState | None = None,
        history: IEventHistory | None = None,
        application: IReplicatedState | None = None,
        application_sequence: int = 0,
    ) -> None:
        self.config = config
        member = None if persistent_state is None else persistent_state.member
        if member is None or member.name != config.name:
            member = MemberId(config.name, rng.getrandbits(63) or 1)
        self.me = member
        starts = 1
        if persistent_state is not None:
            persistent_state.record_start(member)
            starts = persistent_state.starts
        publisher = f"{config.name}#{member.incarnation:016x}"
        self.components = components = NodeComponents(
            config,
            member,
            EventWindow(config.window_bytes) if history is None else history,
            PublishTracker(publisher, config.pending_bytes, starts << 32),
            rng,
            now,
            durable=persistent_state is not None,
            application=application,
            application_sequence=application_sequence,
        )
        # No other node and no other start puts marks of this name and epoch into the log.
        self._first_mark = PublisherRun(f"{publisher}/marks", starts << 32, 1, ())
        self._marks = 0
        self.counters = components.counters
        self._raft = components.raft
        self._links = components.links
        self._discovery = components.discovery
        self._delivery = components.delivery
        self._publishing = components.publishing
        self._lifecycle = components.lifecycle
        exchange, transfer = components.exchange, components.transfer
        self._request_handlers: dict[type, Callable[[Any, InboundPeer, float], None]] = {
            AppendEntries: exchange.append_entries_received,
            Publish: self._publishing.publish_received,
            RequestVote: exchange.request_vote_received,
            ForcedRequestVote: exchange.request_vote_received,
            StartElection: exchange.start_election_received,
            Heartbeat: exchange.heartbeat_received,
            FetchEvents: transfer.fetch_received,
            FetchState: components.state_transfer.fetch_received,
            Dismissal: self._dismissed,
            InstallSnapshot: exchange.install_snapshot_received,
        }
        self._reply_handlers: dict[type, Callable[[Any, MemberId, float], bool]] = {
            AppendEntriesReply: exchange.append_entries_reply_received,
            PublishNack: self._publishing.publish_nack_received,
            RequestVoteReply: exchange.request_vote_reply_received,
            InstallSnapshotReply: exchange.install_snapshot_reply_received,
            FetchEventsReply: transfer.fetch_reply_received,
            FetchStateReply: components.state_transfer.reply_received,
        }
        self._check_at = now + HEARTBEAT_INTERVAL
        self._now = now
        self._drain_needed = True
        if persistent_state is not None and persistent_state.cluster_id:
            components.state.restore(persistent_state, now)
        elif not config.neighbours:
            self._lifecycle.bootstrap_if_alone(now)

    # State

    @property
    def mode(self) -> Mode:
        """Mode of the node."""
        return self.components.modes.mode

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
        return self.components.state.cluster_id

    @property
    def oldest(self) -> int:
        """Lowest sequence number that is held."""
        return int(self._delivery.history.oldest)

    @property
    def drops(self) -> Counter[str]:
        """Dropped messages and refused peers, by reason."""
        return self.components.faults.counts

    @property
    def has_stopped(self) -> bool:
        """Whether the node has stopped and has nothing more to send."""
        return self._lifecycle.has_stopped

    def read(self, first: int, last: int, limit: int) -> list[Event]:
        """Return delivered events from ``first`` to ``last``, at most ``limit``.

        :raises EventsNotHeld: if ``first`` is no longer held.
        """
        return self._delivery.read(first, last, limit)

    def next_deadline(self) -> float | None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if self._lifecycle.has_stopped:
            return None
        return min(
            self._raft.next_deadline(),
            self._discovery.next_deadline(),
            self._delivery.deadline,
            self.components.state_transfer.deadline,
            self._check_at,
            self._publishing.resend_at,
            self._lifecycle.leave_deadline,
            self.components.handover.deadline,
        )

    def state(self, now: float) -> NodeStatus:
        """Return the status of the node and of the cluster as it sees it."""
        components = self.components
        self.counters.repeats, self.counters.elections = self._delivery.numbering.repeats, self._raft.elections
        counters = asdict(self.counters)
        for reason, count in self.drops.items():
            counters[f"dropped_{reason.replace('-', '_')}"] = count
        held = (self.oldest, self.sequence)
        return snapshot(
            self.config.cluster,
            self.cluster_id,
            self._raft,
            components.neighbours,
            components.modes,
            held,
            counters,
            now,
        )

    # Commands

    def publish(self, events: Sequence[bytes], token: Any, now: float) -> None:
        """Publish events of this node, in order. Their result is reported with ``token``.

        :raises MessageTooLarge: if an event is too large.
        :raises PublishQueueFull: if too many events are pending.
        :raises NotOrdered: if this node has no quorum.
        """
        self._drain_needed = True
        self._now = now
        self._publishing.publish(events, token)

    def publish_as(self, run: PublisherRun, token: Any, now: float) -> None:
        """Publish events that the application numbered itself, so that it can safely repeat them.

        :raises MessageTooLarge: if an event is too large.
        :raises NotOrdered: if this node has no quorum, or others are pending that were numbered alike.
        :raises PublishQueueFull: if too many events are pending.
        :raises LocalError: if the publisher's name is too long or this node's own, or if there are no events.
        """
        self._drain_needed = True
        self._now = now
        self._publishing.publish_as(run, token)

    def mark(self, token: Any, now: float) -> None:
        """Put a mark into the log. Once it is applied here, this node has delivered all that was acknowledged before.

        :class:`~fyrehose_twisted.parcels.events.PublishConfirmed` then has the next number, with a count of 0.

        :raises NotOrdered: if this node has no quorum, or a member runs a version that refuses marks.
        :raises PublishQueueFull: if too many events are pending.
        """
        self._drain_needed = True
        self._now = now
        self._marks += 1
        self._publishing.mark(self._first_mark._replace(first=self._marks), token)

    def leave(self, now: float) -> None:
        """Leave the cluster and stop."""
        self._drain_needed = True
        self._now = now
        self._lifecycle.leave(now)

    def panic(self, reason: str, now: float) -> None:
        """Stop at once, because the state cannot be persisted any more."""
        self._drain_needed = True
        self._now = now
        self._lifecycle.panic(reason, now)

    def reform(self, now: float) -> None:
        """Found a new cluster with this node alone and its log. Nodes of the old cluster are refused from then on.

        :raises LocalError: if the node has a quorum or has stopped.
        """
        self._drain_needed = True
        self._now = now
        self._lifecycle.reform(now)

    def remove(self, name: str, now: float) -> None:
        """Remove a member, which leaves and stops if it can be reached.

        :raises NotLeader: if this node does not lead.
        :raises NoSuchMember: if it is no other member.
        """
        self._drain_needed = True
        self._now = now
        raft = self._raft
        if not raft.is_leader:
            raise NotLeader(None if raft.leader is None else raft.leader.name)
        if name == self.me.name:
            raise NoSuchMember(f"{name} leads: transfer the leadership first")
        member = next((one for one in raft.members if one.name == name), None)
        if member is None:
            others = sorted(one.name for one in raft.members if one != self.me)
            raise NoSuchMember(f"{name!r} is no other member; they are {', '.join(others) or 'none'}")
        if self.components.neighbours.knows_conditions(member):
            self._links.request(member, Dismissal(raft.term))
        self.components.membership_changes.member_leaving(member)

    def _dismissed(self, message: Dismissal, caller: InboundPeer, now: float) -> None:
        if caller.member is not None and caller.member == self._raft.leader and message.term == self._raft.term:
            self.components.output.events.append(Removed())
            self._lifecycle.leave(now, "the operator removed it")

    def transfer_leadership(self, name: str | None, now: float) -> str:
        """Order a member to take over the leadership from this node; return its name.

        :param name: the member; ``None`` for the one with the longest log.
        :raises NotLeader: if this node does not lead.
        :raises NoSuccessor: if that is no other member, or one that cannot take over.
        """
        self._drain_needed = True
        self._now = now
        return self.components.handover.order(name, now)

    # Inputs

    def connected(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._drain_needed = True
        self._now = now
        if self._lifecycle.has_stopped:
            self._links.close(peer)
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
        self.components.exchange.set_blocked(peer, True)

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        self._drain_needed = True
        self._now = now
        self.components.exchange.set_blocked(peer, False)

    def receive(self, message: Message, peer: Peer, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.ILinkNode`."""
        if self._lifecycle.has_stopped:
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
        caller = self._links.inbound.get(peer.number)
        if caller is None:
            return
        handshake = self._discovery.inbound
        accept = self._request_handlers.get(type(message))
        if accept is not None and caller.authenticated and (caller.member is not None or type(message) is Publish):
            handshake.request_received(caller, now)
            accept(message, caller, now)
        elif isinstance(message, Parcel):
            handshake.parcel_received(message, caller, now)
        elif isinstance(message, Hello):
            handshake.hello_received(message, caller, now)
        elif isinstance(message, Proof):
            handshake.proof_received(message, caller, now)
        else:
            handshake.refuse_request(caller, WIRE_NAMES[type(message)])

    def _receive_reply(self, message: Message, peer: Peer, now: float) -> None:
        target = self._links.dialled_target(peer)
        if target is None:
            return
        handshake = self._discovery.outbound
        if target.state is DialState.READY and target.member is not None:
            answer = self._reply_handlers.get(type(message))
            if answer is not None or isinstance(message, Parcel):
                self.components.neighbours.heard(target.member, now)
            if answer is not None:
                if answer(message, target.member, now):
                    self._drain_needed = True
                return
        if isinstance(message, Parcel):
            handshake.parcel_received(message, target, now)
        elif isinstance(message, Welcome):
            handshake.welcome_received(message, target, now)
        elif isinstance(message, Refused):
            handshake.refusal_received(message, target, now)
        else:
            self.components.faults.count("out-of-place")

    # Time

    def tick(self, now: float) -> None:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        self._drain_needed = True
        if self._lifecycle.has_stopped:
            return
        self._now = now
        if self._lifecycle.tick(now):
            return
        self._raft.tick(now)
        self._discovery.tick(now)
        self._publishing.tick(now)
        if now >= self._check_at:
            self._check_at = now + HEARTBEAT_INTERVAL
            self._lifecycle.check(now)
            self.components.exchange.dial_members(now)
            self.components.membership_changes.prune()

    # Outputs

    def drain(self) -> Outputs:
        """See :class:`~fyrehose_twisted.interfaces.INode`."""
        if not self._drain_needed:
            return Outputs(None, [], [])
        self._drain_needed = False
        now, raft, components = self._now, self._raft, self.components
        membership_changes = components.membership_changes
        components.state.compact()
        if components.handover.proceed(now):
            self._publishing.resend_all()
        self._publishing.forward()
        while True:
            raft.flush(now)
            components.application.apply_committed(now)
            if not (membership_changes.review_due and membership_changes.propose_change(now)):
                break
        components.state_transfer.fetch_if_needed(now)
        self._lifecycle.follow_policy(now)
        persist = components.state.take_change()
        self._publishing.send_replies()
        components.exchange.send_pending()
        reported, published = components.output.events, components.tracker.events
        events = [*reported, *published]
        reported.clear()
        published.clear()
        effects = components.output.drain_effects()
        if persist is not None and components.state.followers_may_go_first and _are_entries(effects):
            return Outputs(ConcurrentPersist(effects, persist), [], events)
        return Outputs(persist, effects, events)


classImplements(ClusterNode, ILinkNode)


def _are_entries(effects: list[Effect]) -> bool:
    """Return whether there is something to send, and nothing but entries to followers."""
    return bool(effects) and all(
        isinstance(effect, Write) and all(type(message) is AppendEntries for message in effect.messages)
        for effect in effects
    )
