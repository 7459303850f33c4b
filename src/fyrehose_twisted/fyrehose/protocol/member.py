"""Twisted protocol of a member of a group of backbones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from random import Random, SystemRandom
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.effects import Send
from fyrehose_twisted.errors import NotConnected
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import LeadershipChanged, MembersChanged, TakenOver
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME, Backbone
from fyrehose_twisted.fyrehose.node.backbone.sequencer import KnownClient
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.node.member.member import BackboneMember
from fyrehose_twisted.fyrehose.node.member.persistent_state import MemberCheckpoint, MemberState
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.wire.member_codec import MemberCodec
from fyrehose_twisted.interfaces import IForwardPolicy, IMemberStore, ISequenceStore
from fyrehose_twisted.net.addresses import tcp_endpoint
from fyrehose_twisted.net.boottime import BoottimeReactor
from fyrehose_twisted.net.connection import ConnectionLimits, NodeConnection
from fyrehose_twisted.net.connector import EndpointFactory
from fyrehose_twisted.net.stream_driver import StreamDriver
from fyrehose_twisted.net.udp import DatagramPort

PEER_LIMITS = ConnectionLimits(
    max_accepted=64, max_per_source=32, first_message_timeout=10.0, idle_timeout=10.0, close_timeout=1.0
)
"""Limits of connections between members, which ask each other every second whether they are alive."""


@implementer(IMemberStore)
class VolatileMemberStore:
    """Store of a member's state in memory, for tests: with it, a member that restarts is a new one."""

    def __init__(self, state: MemberState | None = None) -> None:
        self.state = state

    def persist(self, state: MemberState) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMemberStore.persist`."""
        self.state = state

    def close(self) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.IMemberStore.close`."""


class MemberProtocol(BackboneProtocol):
    """Member of a group of backbones, on a UDP port and on connections to the other members.

    Subclasses can also handle :meth:`leadership_changed`. Once the port is bound, pass ``protocol.links.factory`` to
    the server endpoint for the other members.

    :param member: configuration of the member. May be replaced until the port is bound, as ``member_state``.
    :param member_state: store of the member's state. By default in memory, so that a member that restarts is a new one.
    :param endpoint_factory: returns the client endpoint of another member's address.
    :param reactor: reactor; its clock is replaced by CLOCK_BOOTTIME, as leases must not depend on the time of day.
    :ivar links: connections to the other members, once the port is bound.
    :ivar on_leadership: called with each :class:`~fyrehose_twisted.fyrehose.events.LeadershipChanged`; for a service.
    :ivar takeovers: number of terms in which this member numbered messages.
    :ivar skipped: number of sequence numbers that these left unused.
    :ivar takeover_seconds: time for which the latest of them waited for answers of clients.
    """

    def __init__(
        self,
        member: MemberConfig | None = None,
        config: BackboneConfig | None = None,
        policy: IForwardPolicy | None = None,
        *,
        state: ISequenceStore | None = None,
        member_state: IMemberStore | None = None,
        settle_time: float = SETTLE_TIME,
        endpoint_factory: EndpointFactory = tcp_endpoint,
        limits: ConnectionLimits = PEER_LIMITS,
        rng: Random | None = None,
        reactor: Any = None,
        time_of_day: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(config, policy, state=state, settle_time=settle_time, reactor=reactor)
        if not isinstance(self.reactor, BoottimeReactor):
            self.reactor = BoottimeReactor(self.reactor)
        self.member = member
        self.member_state: IMemberStore = VolatileMemberStore() if member_state is None else member_state
        self.endpoint_factory = endpoint_factory
        self.limits = limits
        self.links: StreamDriver | None = None
        self.on_leadership: Callable[[LeadershipChanged], object] = lambda event: None
        self.takeovers = self.skipped = 0
        self.takeover_seconds: float | None = None
        self._rng = SystemRandom() if rng is None else rng
        self._time_of_day = time_of_day
        self._codec = MemberCodec()

    def leadership_changed(self, leader: str | None, leads: bool) -> None:
        """Called when another member leads, or none is known to.

        :param leader: name of the leader; ``None`` if none is known.
        :param leads: whether this member leads.
        """

    def members_changed(self, names: tuple[str, ...]) -> None:
        """Called when the members of the group have changed."""

    @property
    def node(self) -> Backbone | None:
        """The node of the backbone, once the port is bound."""
        return None if self.member_node is None else self.member_node.backbone

    @property
    def member_node(self) -> BackboneMember | None:
        """The node, once the port is bound."""
        node: Any = None if self.driver is None else self.driver.node
        return node if isinstance(node, BackboneMember) else None

    @property
    def running(self) -> tuple[BackboneMember, StreamDriver]:
        """The node and its connections.

        :raises NotConnected: if the port is not bound, is closed, or the protocol has failed.
        """
        port: object = self.transport
        if self.member_node is None or self.links is None or port is None or self._error is not None:
            raise NotConnected("this member does not run")
        return self.member_node, self.links

    def transfer(self, name: str | None = None) -> str:
        """Hand over the leadership; return the name of the next leader.

        :param name: the next leader; by default the member whose log is most complete.
        :raises OperationalError: if this member does not lead, or the other one cannot.
        """
        node, links = self.running
        target = node.transfer(name, links.now())
        links.flush()
        return target

    def remove(self, name: str) -> None:
        """Remove a member that is gone for good.

        :raises OperationalError: if this member does not lead, or there is no such member, or it is connected.
        """
        node, links = self.running
        node.remove(name, links.now())
        links.flush()

    # Node

    def make_node(self, now: float) -> BackboneMember:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        if self.member is None:
            raise NotConnected("the protocol has no configuration of the member")
        start = self._make_start(now)
        return BackboneMember(
            self.config,
            self._policy,
            replace(start, known_clients=[_shift(client, -self._ahead) for client in start.known_clients]),
            self.member,
            self.member_state.state,
            self._rng,
            own_address=self._own_address,
            is_own=self._is_own,
            now=now,
            to_utc=lambda now: now + self._ahead,
        )

    def startProtocol(self) -> None:
        """Twisted: start the node; the port is bound."""
        node = self.make_node(float(self.reactor.seconds()))
        self.links = StreamDriver(
            node,
            self._make_connection,
            self.reactor,
            on_event=self.event_received,
            persist=self.persist,
            on_failure=self.fail,
            endpoint_factory=lambda reactor, address: self.endpoint_factory(reactor, address),
            limits=self.limits,
            perform_other=self._send,
        )
        self.driver = self.links.driver
        port: object = self.transport
        if isinstance(port, DatagramPort):
            port.guard(self._may_send)
        self.links.flush()

    def stopProtocol(self) -> None:
        """Twisted: stop the node; the port is closed."""
        if self.links is not None:
            self.links.stop()
        super().stopProtocol()

    def persist(self, checkpoint: MemberCheckpoint) -> None:  # type: ignore[override]
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.persist`."""
        sequence, member = checkpoint
        if member is not None:
            started = self.reactor.seconds()
            self.member_state.persist(member)
            if self.member_node is not None:
                self.member_node.state_persisted(self.reactor.seconds() - started)
        if sequence is not None:
            if sequence.clients:
                # The node's clock began with the machine; the file outlives it.
                ahead = self._ahead
                changes = [(address, client and _shift(client, ahead)) for address, client in sequence.clients]
                sequence = sequence._replace(clients=tuple(changes))
            self.state.persist(sequence)

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case LeadershipChanged(term, leader, leads):
                if leads:
                    message = "this member leads in term {term:,}"
                elif leader is None:
                    message = "no member leads"
                else:
                    message = "member {leader} leads in term {term:,}"
                self.log.info(message, term=term, leader=leader)
                self.on_leadership(event)
                self.leadership_changed(leader, leads)
            case MembersChanged(names):
                self.log.info("the members are {names}", names=", ".join(names))
                self.members_changed(names)
            case TakenOver():
                self.takeovers += 1
                self.takeover_seconds = event.seconds
                self.skipped += event.first - event.held_up_to - 1
                self.log.info(
                    "numbering from {first:,} in term {term:,}; clients hold messages up to {held_up_to:,}, of which"
                    " {answers} answered within {seconds:.3f} s",
                    first=event.first,
                    term=event.term,
                    held_up_to=event.held_up_to,
                    answers=event.answers,
                    seconds=event.seconds,
                )
            case _:
                super().event_received(event)

    @property
    def _ahead(self) -> float:
        """How far UTC is ahead of the node's clock. The time of day may be set at any time."""
        return self._time_of_day() - float(self.reactor.seconds())

    def _make_connection(self) -> NodeConnection:
        return NodeConnection(self._codec, self.limits)

    def _may_send(self) -> bool:
        node = self.member_node
        if node is None or node.may_send(float(self.reactor.seconds())):
            return True
        node.count_withheld()
        return False

    def _send(self, effect: Send) -> None:
        port: object = self.transport
        if isinstance(port, DatagramPort) or self._may_send():
            super()._send(effect)


def _shift(client: KnownClient, seconds: float) -> KnownClient:
    return client._replace(heard_at=client.heard_at + seconds)
