"""Twisted protocol of a backbone."""

from __future__ import annotations

from random import SystemRandom
from typing import Any

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import SequenceExhausted, StreamAlreadyNumbered
from fyrehose_twisted.fyrehose.config import BackboneConfig
from fyrehose_twisted.fyrehose.events import (
    ClientExpired,
    ClientJoined,
    ExistingStreamDetected,
    NumbersExhausted,
    PacketDropped,
    StreamClaimRejected,
)
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME, Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import BackboneStart, SequenceCheckpoint, VolatileSequenceStore
from fyrehose_twisted.fyrehose.protocol.drops import _log_drop
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS
from fyrehose_twisted.host_addresses import address_fields, format_address, is_loopback
from fyrehose_twisted.interfaces import IClientMemory, IDatagramNode, IForwardPolicy, ISequenceStore
from fyrehose_twisted.net.datagram_protocol import DatagramNodeProtocol
from fyrehose_twisted.net.udp import ANY_HOST, source_address_for


class BackboneProtocol(DatagramNodeProtocol):
    """Backbone on a UDP port. Subclasses can handle :meth:`client_joined` and :meth:`client_expired`.

    :param state: sequence store, such as a :class:`~fyrehose_twisted.fyrehose.service.state_file.SequenceFile`. By
        default numbers are not stored, so the next start counts from 1 again. May be replaced until the port is bound.
    :param policy: choice of the clients that receive FORWARDs; by default random.
    :param settle_time: seconds to listen for clients before the first message is numbered; 0 to start at once. Clients
        are queried for messages if ``state`` has no record of the stream. The backbone does not wait if ``state``
        contains all its clients.
    """

    def __init__(
        self,
        config: BackboneConfig | None = None,
        policy: IForwardPolicy | None = None,
        *,
        state: ISequenceStore | None = None,
        settle_time: float = SETTLE_TIME,
        reactor: Any = None,
    ) -> None:
        super().__init__(reactor)
        self.config = BackboneConfig() if config is None else config
        self.state: ISequenceStore = VolatileSequenceStore() if state is None else state
        self._policy = RandomForward(SystemRandom()) if policy is None else policy
        self._settle_time = settle_time

    def client_joined(self, address: Address) -> None:
        """Called when a client is admitted, or was restored from the state of the previous process."""

    def client_expired(self, address: Address) -> None:
        """Called when a client has sent no KEEPALIVE for 5 s."""

    def reconfigure(self, config: BackboneConfig) -> None:
        """Apply new limits; see :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.reconfigure`."""
        self.config = config
        if self.node is not None:
            self.node.reconfigure(config)

    @property
    def node(self) -> Backbone | None:
        """The node, once the port is bound."""
        node: Any = None if self.driver is None else self.driver.node
        return node if isinstance(node, Backbone) else None

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        start = self._make_start(now)
        return Backbone(self.config, self._policy, start, own_address=self._own_address, is_own=self._is_own, now=now)

    def _make_start(self, now: float) -> BackboneStart:
        state = self.state
        memory: Any = IClientMemory(state, None)
        table_complete = memory is not None and memory.complete and not state.fresh
        settle_time = 0.0 if table_complete else self._settle_time
        return BackboneStart(
            last=state.last,
            bound=state.bound,
            settle_until=now + settle_time if settle_time > 0 else None,
            query_clients=state.fresh,
            known_clients=() if memory is None else memory.clients,
        )

    def persist(self, checkpoint: SequenceCheckpoint) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.persist`."""
        self.state.persist(checkpoint)

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case ClientJoined(client, known):
                message = "client {place} restored" if known else "client {place} joined"
                self.log.info(message, **address_fields(client.address))
                self.client_joined(client.address)
            case ClientExpired(client):
                self.log.info("client {place} expired", **address_fields(client.address))
                self.client_expired(client.address)
            case PacketDropped():
                _log_drop(self.log, event)
            case ExistingStreamDetected(address, sequence):
                self.fail(
                    StreamAlreadyNumbered(
                        f"client {format_address(address)} holds message {sequence} of this stream, but the state file"
                        " contains no number. Restore the file, or start with --start-at N, where N is above every"
                        " number that any client or journal has seen"
                    )
                )
            case StreamClaimRejected(address, sequence, others):
                self.log.warn(
                    "client {place} claims to hold message {sequence} of this stream, but none of {others} other"
                    " clients holds a message: claim ignored, numbering starts at 1. If the claim is true, stop this"
                    " backbone and start it with --start-at N, where N is above every number that any client or journal"
                    " has seen",
                    **address_fields(address),
                    sequence=sequence,
                    others=others,
                )
            case NumbersExhausted():
                self.fail(SequenceExhausted("all 2**48 - 1 numbers are assigned; start a stream with another --name"))

    def _is_own(self, address: Address) -> bool:
        port: Any = self.transport
        host, bound = address[0], port.getHost()
        if address[1] != bound.port or bound.host not in (host, ANY_ADDRESS[0], ANY_HOST):
            return False
        try:
            return bound.host == host or is_loopback(host) or source_address_for(address) == host
        except OSError:
            return False

    def _own_address(self, peer: Address) -> Address:
        port: Any = self.transport
        bound = port.getHost()
        if bound.host not in (ANY_ADDRESS[0], ANY_HOST):
            return bound.host, bound.port
        try:
            return source_address_for(peer), bound.port
        except OSError:
            return ANY_ADDRESS  # There is no route to the client, so it will not answer.
