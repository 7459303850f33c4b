"""Member of a group of backbones: a backbone that numbers messages while its group lets it.

The group keeps a bound by consensus. A leader gives only numbers that do not exceed the bound that a majority has made
durable in its term, and a new leader starts above it, so no number is given twice. docs/explanation/one-number argues
why, and what the lease adds.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from random import Random
from typing import Any

from zope.interface import classImplements

from fyrehose_twisted.consensus.member import RaftMember
from fyrehose_twisted.consensus.messages import (
    AppendEntries,
    AppendEntriesReply,
    EntryKind,
    ForcedRequestVote,
    InstallSnapshot,
    InstallSnapshotReply,
    MemberId,
    RequestVote,
    RequestVoteReply,
    Snapshot,
    StartElection,
)
from fyrehose_twisted.datagrams import Batch
from fyrehose_twisted.effects import Address, Close, Dial, Peer, Send, Write
from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import LeadershipChanged, MembersChanged
from fyrehose_twisted.fyrehose.node.backbone.authority import NumberingAuthority
from fyrehose_twisted.fyrehose.node.backbone.group_backbone import GroupBackbone
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.node.member.group import Group
from fyrehose_twisted.fyrehose.node.member.leadership import KEPT_INTERVAL, Leadership
from fyrehose_twisted.fyrehose.node.member.peers import PeerLinks
from fyrehose_twisted.fyrehose.node.member.persistent_state import (
    EMPTY_GROUP,
    MAX_LOG_ENTRIES,
    GroupState,
    MemberCheckpoint,
    MemberState,
    decode_group,
    encode_group,
    restore_log,
)
from fyrehose_twisted.fyrehose.node.member.status import MemberStatus, OtherMember
from fyrehose_twisted.fyrehose.wire.member_messages import (
    LeaseReply,
    LeaseRound,
    MemberHello,
    MemberMessage,
)
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS
from fyrehose_twisted.interfaces import IDatagramNode, IForwardPolicy, ILinkNode, Outputs

PERSIST_RATIO = 4.0
"""Seconds between two extensions of the number up to which messages are kept, for each second that one takes."""
MAX_KEPT_INTERVAL = 0.1
"""Maximum number of seconds between two such extensions."""
REPAIR_TIME = 0.5
"""Seconds for which a member that handed over stays, because only it may hold its last messages."""


class BackboneMember:
    """Node of one member: its backbone, and its part in the consensus of the group.

    :param config: configuration of the backbone.
    :param start: what is known of the stream and its clients; ``bound`` counts if this member bootstraps the group.
    :param member: configuration of the member.
    :param state: state of the previous process; ``None`` for a new member.
    :param to_utc: converts a time of the node's clock, which must not be set, to UTC seconds since 1970.
    :ivar backbone: the backbone.
    :ivar authority: what the group has granted to it.
    """

    def __init__(
        self,
        config: BackboneConfig,
        policy: IForwardPolicy,
        start: BackboneStart,
        member: MemberConfig,
        state: MemberState | None,
        rng: Random,
        *,
        own_address: Callable[[Address], Address] = lambda peer: ANY_ADDRESS,
        is_own: Callable[[Address], bool] = lambda address: False,
        now: float = 0.0,
        to_utc: Callable[[float], float] = lambda now: now,
    ) -> None:
        self.config = member
        self.authority = NumberingAuthority()
        self.backbone = GroupBackbone(
            config, policy, self.authority, start, own_address=own_address, is_own=is_own, now=now, to_utc=to_utc
        )
        me = MemberId(member.name, rng.getrandbits(63)) if state is None else state.member
        self._process_number = rng.getrandbits(63)
        log = restore_log(state)
        group = EMPTY_GROUP if state is None or not state.snapshot.index else decode_group(state.snapshot.data)
        self._snapshot_data = encode_group(group)
        self.raft = RaftMember(
            me,
            rng,
            now,
            log,
            self._make_snapshot,
            term=0 if state is None else state.term,
            timers=member.timers,
            may_lead=not member.witness,
            quiet_until=-inf if state is None else now + member.timers.stickiness,
        )
        if state is not None:
            self.raft.voted_for = state.voted_for
            if group.membership is not None:
                self.raft.membership = group.membership
            self.raft.restore(state.commit_index)
            self.raft.dirty, self.raft.first_unpersisted = False, 0
        self.links = PeerLinks(
            member.stream,
            member.peers,
            now,
            hello=self._hello,
            on_connected=self._peer_connected,
            on_disconnected=self.raft.replication.follower_disconnected,
            on_dead=self._peer_dead,
        )
        self.leadership = Leadership(member, self.raft, self.links, self.backbone, self.authority, group.bounds, now)
        stream_bound = max(start.last, start.bound)
        # A member that was restarted before there was a group knows nothing that a new one does not.
        has_state = state is not None and bool(state.term or state.snapshot.index or state.entries)
        self._group = Group(member, self.raft, self.authority, stream_bound=stream_bound, has_state=has_state)
        self._now = now
        self._events: list[object] = []
        self._state_changed = state is None
        self._group_deadline = now
        self._numbered = 0
        self._send_before = inf
        self._idle = False
        """Whether nothing but datagrams of clients has arrived since the consequences were drawn."""
        self._reported: LeadershipChanged | None = None
        self._reported_names: tuple[str, ...] = ()
        self._process(now)

    # Commands

    @property
    def name(self) -> str:
        """Name of this member."""
        return self.config.name

    @property
    def leads(self) -> bool:
        """Whether this member leads its group."""
        return self.raft.is_leader

    @property
    def may_stop(self) -> bool:
        """Whether this member may stop without a pause for the clients that is longer than needed."""
        if self.raft.is_leader:
            return len(self.raft.members) < 2
        return self._now >= self.leadership.handed_over_at + REPAIR_TIME

    def may_send(self, now: float) -> bool:
        """Return whether messages numbered by this member may be sent.

        Asked right before each system call: the process may have been stopped since the node decided to send.
        """
        return now < self._send_before

    def state_persisted(self, seconds: float) -> None:
        """Note how long it took to make the state durable, so that a slow disk does not keep the member from its work.

        A member that leads persists each extension of the number up to which messages are kept, and waits for it.
        """
        self.leadership.kept_interval = min(MAX_KEPT_INTERVAL, max(KEPT_INTERVAL, PERSIST_RATIO * seconds))

    def count_withheld(self) -> None:
        """Count what was not sent, because :meth:`may_send` refused it."""
        self.backbone.drops.counts["lease_over"] += 1

    def status(self, now: float) -> MemberStatus:
        """Return the status of this member."""
        raft, membership, connected = self.raft, self.raft.membership, self.links.connected
        known = dict(() if membership is None else membership.members)
        seen = {**{member: hello.data for member, hello in connected.items()}, **known}
        return MemberStatus(
            name=self.config.name,
            stream=self.config.stream,
            state="witness" if self.config.witness else self.backbone.state.name.lower(),
            term=raft.term,
            leader=None if raft.leader is None else raft.leader.name,
            leads=raft.is_leader,
            lease_left=max(0.0, self.authority.lease_until - now) if raft.is_leader else 0.0,
            last=self.backbone.last_given,
            bound=self.leadership.bounds.bound,
            kept=self.leadership.bounds.kept,
            quorum=0 if membership is None else membership.quorum,
            witness=self.config.witness,
            members=tuple(
                OtherMember(
                    member.name,
                    data.client_address,
                    data.peer_address,
                    data.witness,
                    member == raft.me or member in connected,
                    member in known,
                )
                for member, data in sorted(seen.items())
            ),
            counters={**self.links.counters, "elections": raft.elections},
        )

    def transfer(self, name: str | None, now: float) -> str:
        """Hand over the leadership to another member; return its name.

        :param name: the next leader; by default the one whose log is most complete.
        :raises OperationalError: if this member does not lead, or the other one cannot.
        """
        target = self.leadership.transfer(name, now)
        self._process(now)
        return target

    def remove(self, name: str, now: float) -> None:
        """Remove a member that is gone for good from the group.

        :raises OperationalError: if this member does not lead, or there is no such member, or it is connected.
        """
        self._group.remove(name, self.links)
        self._process(now)

    def prepare_to_stop(self, now: float) -> None:
        """Hand over the leadership, if this member leads and another one can."""
        try:
            self.transfer(None, now)
        except OperationalError:
            return

    # Input of clients

    def receive_batch(self, batch: Batch, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IDatagramNode.receive_batch`."""
        self._now = now
        self.backbone.receive_batch(batch, now)

    # Input of members

    def connected(self, peer: Peer, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkNode.connected`."""
        self.links.connected_to(peer, now)
        self._process(now)

    def dial_failed(self, address: Address, reason: str, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkNode.dial_failed`."""
        self.links.dial_failed(address, reason, now)
        self._process(now)

    def disconnected(self, peer: Peer, reason: str, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkNode.disconnected`."""
        self.links.disconnected(peer, now)
        self._process(now)

    def blocked(self, peer: Peer, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkNode.blocked`; a group sends too little to overload a link."""

    def unblocked(self, peer: Peer, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkNode.unblocked`."""

    def receive(self, message: Any, peer: Peer, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ILinkNode.receive`."""
        sender = self.links.received(message, peer, now)
        if sender is not None:
            self._group_message(message, sender, now)
        self._process(now)

    def _group_message(self, message: MemberMessage, sender: MemberId, now: float) -> None:
        raft = self.raft
        match message:
            case AppendEntries():
                raft.append_entries_received(message, sender, now)
            case AppendEntriesReply():
                raft.append_entries_reply_received(message, sender, now)
            case RequestVote() | ForcedRequestVote():
                raft.request_vote_received(message, sender, now)
            case RequestVoteReply():
                raft.request_vote_reply_received(message, sender, now)
            case InstallSnapshot():
                self._snapshot_received(message, sender, now)
            case InstallSnapshotReply():
                raft.install_snapshot_reply_received(message, sender, now)
            case StartElection():
                raft.start_election_received(message, sender, now)
            case LeaseRound(term, number, last):
                if raft.lease_round_received(term, sender, now):
                    self.leadership.leader_heard()
                    self.backbone.follow_stream(last)
                    self.links.send(sender, LeaseReply(term, number))
            case LeaseReply(term, number):
                if raft.is_leader and term == raft.term:
                    self.leadership.lease.round_answered(sender, number)

    def _snapshot_received(self, message: InstallSnapshot, sender: MemberId, now: float) -> None:
        raft = self.raft
        if not raft.install_snapshot_received(message.term, sender, now):
            return
        if message.index > raft.commit_index and not message.offset and len(message.data) == message.total:
            group = decode_group(message.data)
            self.leadership.bounds, self._snapshot_data = group.bounds, message.data
            raft.install_snapshot(message.index, message.index_term, group.membership)
            self._state_changed = True
        self.links.send(sender, InstallSnapshotReply(raft.term, message.index, len(message.data)))

    # Time and output

    def tick(self, now: float) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.tick`."""
        self._now = now
        self.raft.tick(now)
        self.links.tick(now)
        self.backbone.tick(now)
        self._process(now)

    def next_deadline(self) -> float | None:
        """See :meth:`~fyrehose_twisted.interfaces.INode.next_deadline`."""
        deadline = self.backbone.next_deadline()
        return self._group_deadline if deadline is None else min(deadline, self._group_deadline)

    def drain(self) -> Outputs:
        """See :meth:`~fyrehose_twisted.interfaces.INode.drain`; ``persist`` is a :class:`MemberCheckpoint`."""
        if not self._idle or self.leadership.is_extension_due:
            self._process(self._now)
        numbered, self._numbered = self._numbered, self.backbone.counters.published
        self._send_before = self.authority.lease_until if self._numbered != numbered else inf
        sequence, sends, events = self.backbone.drain()
        state = self._take_state()
        effects: list[Send | Dial | Write | Close] = [*sends, *self.links.take_effects()]
        events, self._events = [*self._events, *events], []
        persist = None if sequence is None and state is None else MemberCheckpoint(sequence, state)
        return Outputs(persist, effects, events)

    def _take_state(self) -> MemberState | None:
        raft = self.raft
        if not (raft.dirty or raft.first_unpersisted or self._state_changed):
            return None
        raft.dirty, raft.first_unpersisted, self._state_changed = False, 0, False
        log = raft.log
        entries = tuple(log.entries_from(log.snapshot_index + 1))
        snapshot = Snapshot(log.snapshot_index, log.snapshot_term, self._snapshot_data)
        return MemberState(raft.me, raft.term, raft.voted_for, raft.commit_index, snapshot, entries)

    # Consensus

    def _process(self, now: float) -> None:
        """Let every input have its consequences, until none is left."""
        self._idle = True
        self._now = max(self._now, now)
        raft = self.raft
        self._group.bootstrap(self._hello, self.links, now)
        while True:
            self._apply_committed(now)
            self._group.follow()
            self.leadership.update(now)
            if raft.is_leader:
                self._group.change(self.links)
            raft.flush(now)
            if not raft.committed:
                break
        for member, message in raft.outbox:
            self.links.send(member, message)
        raft.outbox.clear()
        self.leadership.start_round(now)  # After the messages by which the others learn who leads.
        self._report()
        self.backbone.has_progress = False
        self._group_deadline = min(
            self.raft.next_deadline(), self.links.next_deadline(), self.leadership.next_deadline()
        )

    def _apply_committed(self, now: float) -> None:
        raft = self.raft
        committed, raft.committed[:] = list(raft.committed), []
        for _, entry in committed:
            if entry.kind is EntryKind.DATA:
                self.leadership.committed(entry, now)
            elif entry.kind is EntryKind.MEMBERSHIP:
                others = {data.peer_address for _, data in entry.content.members} - {self.config.peer_address}
                self.links.learn(sorted(others), now)
        if raft.log.size > MAX_LOG_ENTRIES and raft.commit_index > raft.log.snapshot_index:
            raft.log.compact(0, raft.commit_index)
            self._snapshot_data = encode_group(GroupState(self.leadership.bounds, raft.membership))
            self._state_changed = True

    # Members

    def _hello(self) -> MemberHello:
        config = self.config
        group = self._group
        return MemberHello(
            config.stream,
            self.raft.me,
            config.data,
            config.bootstrap,
            group.has_state,
            group.stream_bound,
            self._process_number,
        )

    def _peer_connected(self, hello: MemberHello, now: float) -> None:
        self.raft.replication.follower_connected(hello.member)

    def _peer_dead(self, member: MemberId, now: float) -> None:
        if member == self.raft.leader:
            self.leadership.leader_died()
            self.raft.leader_lost(now)

    def _make_snapshot(self) -> Snapshot:
        log = self.raft.log
        return Snapshot(log.snapshot_index, log.snapshot_term, self._snapshot_data)

    def _report(self) -> None:
        raft = self.raft
        leader = None if raft.leader is None else raft.leader.name
        report = LeadershipChanged(raft.term, leader, raft.is_leader)
        if report != self._reported and (leader is not None or self._reported is not None):
            self._reported = report
            self._events.append(report)
        names = tuple(sorted(member.name for member in raft.members))
        if names != self._reported_names:
            self._reported_names = names
            self._events.append(MembersChanged(names))


classImplements(BackboneMember, IDatagramNode, ILinkNode)
