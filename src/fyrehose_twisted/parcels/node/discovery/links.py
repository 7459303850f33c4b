"""Table of the connections of a node: inbound peers, and addresses to dial."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fyrehose_twisted.consensus.messages import MemberId
from fyrehose_twisted.effects import Address, Peer
from fyrehose_twisted.parcels.config import NodeConfig
from fyrehose_twisted.parcels.node.discovery.dial_target import DialResult, DialState, DialTarget
from fyrehose_twisted.parcels.node.discovery.table_shares import TableEntry, TableQuota
from fyrehose_twisted.parcels.node.output import NodeOutput
from fyrehose_twisted.parcels.wire.messages import Message, NodeInfo

MAX_TARGETS = 4
"""Addresses to dial per permitted neighbour."""


class InboundPeer:
    """A peer that dialled this node.

    :ivar info: its node information, if it sent a DscReq.
    :ivar member: its member id; ``None`` for a client that only publishes.
    :ivar expected_proof: proof that it has to send; ``None`` before its Hello.
    :ivar authenticated: whether it sent that proof.
    """

    __slots__ = ("authenticated", "cluster_id", "expected_proof", "heard_at", "info", "member", "peer")

    def __init__(self, peer: Peer, now: float) -> None:
        self.peer = peer
        self.heard_at = now
        self.info: NodeInfo | None = None
        self.member: MemberId | None = None
        self.expected_proof: bytes | None = None
        self.authenticated = False
        self.cluster_id = 0


class LinkTable:
    """Connections of one node.

    :param member_lost: called when requests can no longer be sent to a member.
    :ivar inbound: peers that dialled this node, by connection number.
    :ivar targets: addresses to dial.
    :ivar ready_targets: dialled peers to which requests can be sent.
    """

    def __init__(
        self, config: NodeConfig, output: NodeOutput, member_lost: Callable[[MemberId], object], now: float
    ) -> None:
        self.inbound: dict[int, InboundPeer] = {}
        self.targets: dict[Address, DialTarget] = {}
        self.ready_targets: dict[MemberId, DialTarget] = {}
        self._own_address = config.advertise
        self._max_inbound = config.max_links
        self._output = output
        self._member_lost = member_lost
        self._dialled: dict[int, DialTarget] = {}
        self._quota = TableQuota(MAX_TARGETS * config.max_neighbours, secret=config.secret is not None)
        for address in config.neighbours:
            if address != config.advertise:
                self.targets.setdefault(address, DialTarget(address, now, configured=True))

    @property
    def configured(self) -> list[DialTarget]:
        """Addresses configured by the operator, except this node's own."""
        return [one for one in self.targets.values() if one.configured and one.result is not DialResult.SELF]

    @property
    def has_room(self) -> bool:
        """Whether another inbound connection is within the limit."""
        return len(self.inbound) < self._max_inbound

    def dialled_target(self, peer: Peer) -> DialTarget | None:
        """Return the target of an outbound connection."""
        return self._dialled.get(peer.number)

    def request(self, member: MemberId, message: Message) -> bool:
        """Queue a request to ``member``; return whether it is connected."""
        target = self.ready_targets.get(member)
        if target is None or target.peer is None:
            return False
        self._output.write(target.peer, message)
        return True

    def add_addresses(
        self, addresses: Iterable[Address], now: float, *, dial_now: bool = False, trusted: bool = False
    ) -> None:
        """Add addresses to dial.

        :param trusted: whether they come from a node that proved the secret.
        """
        for address in addresses:
            target = self.targets.get(address)
            if target is None:
                taken = [TableEntry(one.address[0], one.trusted or one.configured) for one in self.targets.values()]
                if address != self._own_address and self._quota.has_room(taken, TableEntry(address[0], trusted)):
                    self.targets[address] = DialTarget(address, now, configured=False, trusted=trusted)
                continue
            target.trusted = target.trusted or trusted
            if dial_now and target.state is DialState.IDLE and target.result is not DialResult.SELF:
                target.next_at = min(target.next_at, now)

    def target_connected(self, target: DialTarget, peer: Peer) -> None:
        """Record the connection to a dialled target."""
        target.state, target.peer = DialState.DISCOVERING, peer
        self._dialled[peer.number] = target

    def target_disconnected(self, peer: Peer) -> DialTarget | None:
        """Record the end of an outbound connection; return its target, unless this node closed it before."""
        target = self._dialled.pop(peer.number, None)
        return target if target is not None and target.peer == peer else None

    def target_ready(self, target: DialTarget, member: MemberId) -> None:
        """Record that requests can be sent to ``member``."""
        target.state = DialState.READY
        self.ready_targets[member] = target

    def close(self, peer: Peer) -> None:
        """Close a connection after its queued messages are sent."""
        self._output.close(peer)
        self.inbound.pop(peer.number, None)
        target = self._dialled.pop(peer.number, None)
        if target is not None and target.peer is not None and target.peer.number == peer.number:
            target.peer = None

    def close_target(self, target: DialTarget, now: float, *, immediately: bool) -> None:
        """Close the connection to a target, if any, and schedule the next attempt, with backoff unless
        ``immediately``."""
        if target.peer is not None:
            self.close(target.peer)
        self.release(target, now, immediately=immediately)

    def release(self, target: DialTarget, now: float, *, immediately: bool) -> None:
        """Record that the connection to a target is closed, and schedule the next attempt, with backoff unless
        ``immediately``."""
        member = target.member
        if member is not None and self.ready_targets.get(member) is target:
            del self.ready_targets[member]
            self._member_lost(member)
        target.connection_closed(now, immediately=immediately)

    def close_all(self, now: float) -> None:
        """Close all connections."""
        for target in self.targets.values():
            if target.peer is not None:
                self.close_target(target, now, immediately=True)
        for caller in list(self.inbound.values()):
            self.close(caller.peer)
