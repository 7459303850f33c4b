"""Twisted protocols of clients and subscribers."""

from __future__ import annotations

from collections.abc import Sequence
from random import SystemRandom
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import NotConnected
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import (
    ClientFailed,
    Connected,
    Disconnected,
    GroupAbandoned,
    GroupAnnounced,
    GroupHeard,
    GroupSilent,
    JournalsSynced,
    KeepaliveAcked,
    LeaderChanged,
    MacsAgreed,
    MacsNotOffered,
    Message,
    MessagesDelivered,
    MessagesLost,
    NumbersSkipped,
    PacketDropped,
    TermStarted,
)
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.protocol.drops import _log_drop
from fyrehose_twisted.fyrehose.wire.packets import Holding
from fyrehose_twisted.host_addresses import address_fields
from fyrehose_twisted.interfaces import (
    IDatagramNode,
    IMessageStore,
    IPayloadOpener,
    IPayloadSealer,
    ISeamListener,
    ISubscriber,
)
from fyrehose_twisted.net.datagram_protocol import DatagramNodeProtocol
from fyrehose_twisted.net.multicast import listen_to_group
from fyrehose_twisted.net.udp import UNTUNED_BUFFER, DatagramPort, source_address_for


class ClientProtocol(DatagramNodeProtocol):
    """Base of subscribers and publishers: a client of the backbone at :attr:`backbone`, or of :attr:`backbones`.

    :param store: message store for repairs; by default in memory.
    :ivar sealer: seals the payloads that are published, and :attr:`opener` opens those that are received; ``None`` for
        payloads that are not sealed. Set them before the port is bound.
    :ivar backbone: IP address and port, set by :func:`~fyrehose_twisted.fyrehose.service.connect.join`; of the one
        that leads, if backbones take over from one another.
    :ivar backbones: addresses of the backbones, if they take over from one another.
    :ivar connected_first: Deferred that fires when the backbone answers for the first time.
    """

    def __init__(
        self, config: ClientConfig | None = None, *, store: IMessageStore | None = None, reactor: Any = None
    ) -> None:
        super().__init__(reactor)
        self.config = ClientConfig() if config is None else config
        self.backbone: Address = ("127.0.0.1", 2323)
        self.backbones: Sequence[Address] = ()
        self.connected_first: Deferred[None] = Deferred()
        self.sealer: IPayloadSealer | None = None
        self.opener: IPayloadOpener | None = None
        self._store = store
        self._group_port: DatagramPort | None = None

    def backbone_connected(self) -> None:
        """Called when the backbone answers for the first time, or again after a disconnection."""

    def backbone_disconnected(self) -> None:
        """Called when the backbone has not answered for 5 s. The client continues to send KEEPALIVEs."""

    def acknowledged(self, round_trip: float) -> None:
        """Called when the backbone answers a KEEPALIVE, after ``round_trip`` seconds."""

    def leader_changed(self, backbone: Address, term: int) -> None:
        """Called when a member of a group of backbones leads, at first and whenever one has taken over."""

    def journals_synced(self, holdings: Sequence[Holding]) -> None:
        """Called with the progress of durable journals if the client is configured to ``watch`` them."""

    def group_heard(self, group: Address) -> None:
        """Called when this client hears the multicast group of its backbone, and is served by it."""

    def group_silent(self, group: Address) -> None:
        """Called when the group brings nothing, or no more, so that the backbone sends to this client alone."""

    @property
    def node(self) -> Client | None:
        """The node, once the port is bound."""
        node: Any = None if self.driver is None else self.driver.node
        return node if isinstance(node, Client) else None

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        # Twisted's own port does not report its buffer size, so assume the default of Linux.
        size: int = getattr(self.transport, "receive_buffer", UNTUNED_BUFFER)
        rng, publisher = SystemRandom(), self._publisher_identity()
        return Client(
            self.backbones or self.backbone,
            self.config,
            rng,
            now,
            store=self._store,
            receive_buffer=size,
            publisher=publisher,
            sealer=self.sealer,
            opener=self.opener,
        )

    def _publisher_identity(self) -> tuple[bytes, int] | None:
        """Return the id and first counter of a resumed publisher."""
        return None

    def stopProtocol(self) -> None:
        """Twisted: the port is gone."""
        super().stopProtocol()
        self._leave_group()
        if not self.connected_first.called:
            self.connected_first.errback(NotConnected("the protocol stopped before the backbone answered"))
            self.connected_first.addErrback(lambda failure: None)  # Earlier callbacks have handled it.

    def leave(self, *, at_once: bool = False) -> Deferred[None]:
        """Send a last KEEPALIVE and close the port. The Deferred fires when the port is closed.

        :param at_once: do not stay to answer repair requests.
        """
        node, driver = self.node, self.driver
        if node is not None and driver is not None and self._closing is None:
            node.leave(driver.now())
            driver.flush()
        return self.close()

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case KeepaliveAcked(round_trip):
                self.acknowledged(round_trip)
            case JournalsSynced(holdings):
                self.journals_synced(holdings)
            case Connected():
                if not self.connected_first.called:
                    self.connected_first.callback(None)
                self.backbone_connected()
            case LeaderChanged(term, leader):
                self.backbone = leader
                self.log.info("backbone {place} leads in term {term}", **address_fields(leader), term=term)
                self.leader_changed(leader, term)
            case MacsAgreed(backbone):
                self.log.info("every message of backbone {place} must have its MAC", **address_fields(backbone))
            case MacsNotOffered(backbone):
                self.log.warn(
                    "backbone {place} has a secret, but makes no MACs: forged messages would be accepted; update it, or"
                    " pass --require-mac to do without it",
                    **address_fields(backbone),
                )
            case GroupAnnounced(group, backbone):
                self._listen_to_group(group, backbone)
            case GroupAbandoned():
                self._leave_group()
            case GroupHeard(group):
                self.log.info("hearing multicast group {place}", **address_fields(group))
                self.group_heard(group)
            case GroupSilent(group, was_heard):
                self.log.warn(
                    "multicast group {place} brings nothing{more}, so the backbone sends to this client alone; does the"
                    " network forward it?",
                    **address_fields(group),
                    more=" any more" if was_heard else "",
                )
                self.group_silent(group)
            case Disconnected():
                self.log.warn("backbone {place} has not answered for 5 s", **address_fields(self.backbone))
                self.backbone_disconnected()
            case PacketDropped():
                _log_drop(self.log, event)
            case ClientFailed(error):
                self.fail(error)

    def _listen_to_group(self, group: Address, backbone: Address) -> None:
        self._leave_group()
        try:
            interface = source_address_for(backbone)
            self._group_port = listen_to_group(self.reactor, group, backbone[0], interface, self.batch_received)
        except OSError as error:
            self.log.warn(
                "cannot listen to multicast group {place}, so the backbone sends to this client alone: {error}",
                **address_fields(group),
                error=error.strerror,
            )

    def _leave_group(self) -> None:
        port, self._group_port = self._group_port, None
        if port is not None:
            port.stopListening()


@implementer(ISubscriber, ISeamListener, IPushProducer)
class SubscriberProtocol(ClientProtocol):
    """Client that receives a stream in order. Override :meth:`messages_received` and :meth:`messages_lost`.

    It is a push producer that a slow consumer can pause. While it is paused, it delivers nothing. Messages that exceed
    ``buffer_bytes`` during the pause are requested again afterwards.
    """

    def messages_received(self, messages: Sequence[Message]) -> None:
        """Called with messages in order, each once, after gaps were repaired.

        :param messages: a :class:`~fyrehose_twisted.fyrehose.events.Messages`, which creates each message on access.
        """

    def messages_lost(self, first: int, last: int) -> None:
        """Called when ``first`` to ``last`` are lost: no queried client holds them, or they were never assigned."""

    def numbers_skipped(self, first: int, last: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ISeamListener.numbers_skipped`."""

    def term_started(self, term: int, held_up_to: int, first: int) -> None:
        """See :meth:`~fyrehose_twisted.interfaces.ISeamListener.term_started`."""

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case MessagesDelivered(messages):
                self.messages_received(messages)
            case MessagesLost(first, last):
                self.messages_lost(first, last)
            case NumbersSkipped(first, last):
                self.numbers_skipped(first, last)
            case TermStarted(term, held_up_to, first):
                self.term_started(term, held_up_to, first)
            case _:
                super().event_received(event)

    def pauseProducing(self) -> None:
        """Twisted: stop delivering messages."""
        if self.node is not None:
            self.node.pause()

    def resumeProducing(self) -> None:
        """Twisted: deliver messages again."""
        if self.node is not None and self.driver is not None:
            self.node.resume(self.driver.now())
            self.driver.flush()

    def stopProducing(self) -> None:
        """Twisted: the consumer is gone."""
        self.leave()
