"""Twisted protocols of a relay, one for each of its sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import SystemRandom
from typing import Any

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import NumbersGivenUp
from fyrehose_twisted.fyrehose.node.relay.downstream import RelayDownstream
from fyrehose_twisted.fyrehose.node.relay.other_side import OtherSideReady
from fyrehose_twisted.fyrehose.node.relay.upstream import RelayUpstream
from fyrehose_twisted.fyrehose.protocol.backbone import BackboneProtocol
from fyrehose_twisted.fyrehose.protocol.client import ClientProtocol
from fyrehose_twisted.host_addresses import address_fields
from fyrehose_twisted.interfaces import IDatagramNode, IForwardPolicy
from fyrehose_twisted.net.udp import UNTUNED_BUFFER


class RelayProtocol(BackboneProtocol):
    """Relay on a UDP port for its clients. :attr:`upstream` is its protocol on the port towards its parent.

    Subclasses can handle what a backbone's can, and :meth:`parent_changed`.

    :param client_config: settings of the relay as a client of its parent, such as the secret there.
    :param answer_repairs: fetch what a journal among the clients holds, instead of having it sent from client to
        client.
    """

    def __init__(
        self,
        config: BackboneConfig | None = None,
        client_config: ClientConfig | None = None,
        policy: IForwardPolicy | None = None,
        *,
        answer_repairs: bool = False,
        reactor: Any = None,
    ) -> None:
        super().__init__(config, policy, settle_time=0.0, reactor=reactor)
        self._answer_repairs = answer_repairs
        client_config = ClientConfig() if client_config is None else client_config
        self.upstream = RelayUpstreamProtocol(self, replace(client_config, raw=True), reactor=reactor)

    def parent_changed(self, parent: Address) -> None:
        """Called when a parent answers, at first and whenever another one takes its place."""

    @property
    def node(self) -> RelayDownstream | None:
        """The node on this side, once the port is bound."""
        node: Any = None if self.driver is None else self.driver.node
        return node if isinstance(node, RelayDownstream) else None

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        return RelayDownstream(
            self.config,
            self._policy,
            answer_repairs=self._answer_repairs,
            own_address=self._own_address,
            is_own=self._is_own,
            now=now,
        )

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        if not isinstance(event, OtherSideReady):
            super().event_received(event)
        elif self.upstream.driver is not None:
            self.upstream.driver.flush()


class RelayUpstreamProtocol(ClientProtocol):
    """Relay on a UDP port towards its parent.

    :param relay: the other side, which must be bound before.
    """

    def __init__(self, relay: RelayProtocol, config: ClientConfig, *, reactor: Any = None) -> None:
        super().__init__(config, reactor=reactor)
        self.relay = relay

    @property
    def node(self) -> RelayUpstream | None:
        """The node on this side, once the port is bound."""
        node: Any = None if self.driver is None else self.driver.node
        return node if isinstance(node, RelayUpstream) else None

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`.

        :raises RuntimeError: if the relay's port for its clients is not bound.
        """
        downstream = self.relay.node
        if downstream is None:
            raise RuntimeError("bind the RelayProtocol to its port before its upstream protocol")
        parents: Address | Sequence[Address] = self.backbones or self.backbone
        size: int = getattr(self.transport, "receive_buffer", UNTUNED_BUFFER)
        return RelayUpstream(parents, self.config, downstream, SystemRandom(), now, receive_buffer=size)

    def backbone_connected(self) -> None:
        """See :meth:`~fyrehose_twisted.fyrehose.protocol.client.ClientProtocol.backbone_connected`."""
        node = self.node
        if node is not None:
            self.backbone = node.backbone
        self.log.info("following parent {place}", **address_fields(self.backbone))
        self.relay.parent_changed(self.backbone)

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case OtherSideReady():
                if self.relay.driver is not None:
                    self.relay.driver.flush()
            case NumbersGivenUp(first, last):
                self.log.warn(
                    "{first} to {last} are lost to this relay: no parent that was asked holds them",
                    first=first,
                    last=last,
                )
            case _:
                super().event_received(event)
