"""Twisted protocols of fyrehose backbones, subscribers and publishers, made to be subclassed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IPushProducer
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.effects import Address
from fyrehose_twisted.errors import (
    ConfigurationError,
    MessageNotKept,
    NotConnected,
    PublishTimeout,
    SequenceExhausted,
    StateFileError,
    StreamAlreadyNumbered,
)
from fyrehose_twisted.fyrehose.config import BackboneConfig, ClientConfig
from fyrehose_twisted.fyrehose.events import (
    ClientExpired,
    ClientFailed,
    ClientJoined,
    Connected,
    Disconnected,
    ExistingStreamDetected,
    JournalsSynced,
    KeepaliveAcked,
    Message,
    MessagesDelivered,
    MessagesExpired,
    MessagesLost,
    MessagesPublished,
    NumbersExhausted,
    PacketDropped,
    StreamClaimRejected,
)
from fyrehose_twisted.fyrehose.node.backbone.backbone import SETTLE_TIME, Backbone
from fyrehose_twisted.fyrehose.node.backbone.forwarding import RandomForward
from fyrehose_twisted.fyrehose.node.backbone.sequencer import SequenceCheckpoint, VolatileSequenceStore
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.fyrehose.node.client.publishing.durability import DurabilityExpired
from fyrehose_twisted.fyrehose.protocol.linger import Linger
from fyrehose_twisted.fyrehose.protocol.publisher_file import PublisherState
from fyrehose_twisted.fyrehose.wire.packets import ANY_ADDRESS, Holding
from fyrehose_twisted.interfaces import (
    IClientMemory,
    IDatagramNode,
    IForwardPolicy,
    IMessageStore,
    IPublisher,
    ISequenceStore,
    ISubscriber,
)
from fyrehose_twisted.net.datagram_protocol import DatagramNodeProtocol
from fyrehose_twisted.net.udp import UNTUNED_BUFFER, source_address_for


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
        state = self.state
        memory: Any = IClientMemory(state, None)
        table_complete = memory is not None and memory.complete and not state.fresh
        settle_time = 0.0 if table_complete else self._settle_time
        return Backbone(
            self.config,
            self._policy,
            last=state.last,
            bound=state.bound,
            settle_until=now + settle_time if settle_time > 0 else None,
            query_clients=state.fresh,
            known_clients=() if memory is None else memory.clients,
            own_address=self._own_address,
            is_own=self._is_own,
            now=now,
        )

    def persist(self, checkpoint: SequenceCheckpoint) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.persist`."""
        self.state.persist(checkpoint)

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case ClientJoined(client, known):
                host, port = client.address
                message = "client {host}:{port} restored" if known else "client {host}:{port} joined"
                self.log.info(message, host=host, port=port)
                self.client_joined(client.address)
            case ClientExpired(client):
                host, port = client.address
                self.log.info("client {host}:{port} expired", host=host, port=port)
                self.client_expired(client.address)
            case PacketDropped():
                _log_drop(self.log, event)
            case ExistingStreamDetected((host, port), sequence):
                self.fail(
                    StreamAlreadyNumbered(
                        f"client {host}:{port} holds message {sequence} of this stream, but the state file contains no"
                        " number. Restore the file, or start with --start-at N, where N is above every number that any"
                        " client or journal has seen"
                    )
                )
            case StreamClaimRejected((host, port), sequence, others):
                self.log.warn(
                    "client {host}:{port} claims to hold message {sequence} of this stream, but none of {others} other"
                    " clients holds a message: claim ignored, numbering starts at 1. If the claim is true, stop this"
                    " backbone and start it with --start-at N, where N is above every number that any client or journal"
                    " has seen",
                    host=host,
                    port=port,
                    sequence=sequence,
                    others=others,
                )
            case NumbersExhausted():
                self.fail(SequenceExhausted("all 2**48 - 1 numbers are assigned; start a stream with another --name"))

    def _is_own(self, address: Address) -> bool:
        port: Any = self.transport
        host, bound = address[0], port.getHost()
        if address[1] != bound.port or bound.host not in (host, ANY_ADDRESS[0]):
            return False
        try:
            return bound.host == host or host.startswith("127.") or source_address_for(address) == host
        except OSError:
            return False

    def _own_address(self, peer: Address) -> Address:
        port: Any = self.transport
        bound = port.getHost()
        if bound.host != ANY_ADDRESS[0]:
            return bound.host, bound.port
        try:
            return source_address_for(peer), bound.port
        except OSError:
            return ANY_ADDRESS  # There is no route to the client, so it will not answer.


class ClientProtocol(DatagramNodeProtocol):
    """Base of subscribers and publishers: a client of the backbone at :attr:`backbone`.

    :param store: message store for repairs; by default in memory.
    :ivar backbone: IPv4 address and port, set by :func:`~fyrehose_twisted.fyrehose.service.join`.
    :ivar connected_first: Deferred that fires when the backbone answers for the first time.
    """

    def __init__(
        self, config: ClientConfig | None = None, *, store: IMessageStore | None = None, reactor: Any = None
    ) -> None:
        super().__init__(reactor)
        self.config = ClientConfig() if config is None else config
        self.backbone: Address = ("127.0.0.1", 2323)
        self.connected_first: Deferred[None] = Deferred()
        self._store = store

    def backbone_connected(self) -> None:
        """Called when the backbone answers for the first time, or again after a disconnection."""

    def backbone_disconnected(self) -> None:
        """Called when the backbone has not answered for 5 s. The client continues to send KEEPALIVEs."""

    def acknowledged(self, round_trip: float) -> None:
        """Called when the backbone answers a KEEPALIVE, after ``round_trip`` seconds."""

    def journals_synced(self, holdings: Sequence[Holding]) -> None:
        """Called with the progress of durable journals if the client is configured to ``watch`` them."""

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
        return Client(self.backbone, self.config, rng, now, store=self._store, receive_buffer=size, publisher=publisher)

    def _publisher_identity(self) -> tuple[bytes, int] | None:
        """Return the id and first counter of a resumed publisher."""
        return None

    def stopProtocol(self) -> None:
        """Twisted: the port is gone."""
        super().stopProtocol()
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
            case Disconnected():
                host, port = self.backbone
                self.log.warn("backbone {host}:{port} has not answered for 5 s", host=host, port=port)
                self.backbone_disconnected()
            case PacketDropped():
                _log_drop(self.log, event)
            case ClientFailed(error):
                self.fail(error)


@implementer(ISubscriber, IPushProducer)
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

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case MessagesDelivered(messages):
                self.messages_received(messages)
            case MessagesLost(first, last):
                self.messages_lost(first, last)
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


@implementer(IPublisher)
class PublisherProtocol(SubscriberProtocol):
    """Client that publishes messages. It also receives the stream and answers repair requests.

    :param state: state of a publisher that resumes after a restart. The application continues with message
        ``state.position``, counted from 0, publishes the same messages in the same order as before, and closes the
        state at the end. Once a message fails, :meth:`publish` raises
        :class:`~fyrehose_twisted.errors.StateFileError`.
    :raises ConfigurationError: if ``state`` is given and ``config.outbox.raw`` is set.
    """

    def __init__(
        self,
        config: ClientConfig | None = None,
        *,
        store: IMessageStore | None = None,
        state: PublisherState | None = None,
        reactor: Any = None,
    ) -> None:
        super().__init__(config, store=store, reactor=reactor)
        if state is not None and self.config.outbox.raw:
            raise ConfigurationError("a publisher with a state needs envelopes; remove OutboxConfig(raw=True)")
        self.state = state
        self._pending_publishes: dict[int, _PendingPublish] = {}
        self._room_waiters: list[Deferred[None]] = []
        self._linger: Linger | None = None

    def leave(self, *, at_once: bool = False) -> Deferred[None]:
        """Send a last KEEPALIVE and close the port. The Deferred fires when the port is closed.

        The last messages of a publisher may not have reached every subscriber. A publisher that answers repair requests
        therefore stays until, for 1.25 s, it was asked for no message and no message that it had published before this
        call was acknowledged, but at most 10 s. It does not stay if all its messages were to be kept by journals.

        :param at_once: close the port without delay, also during a delayed departure.
        """
        if self._linger is None:
            if at_once or self._closing is not None or not self._may_leave_at():
                return super().leave()
            if self.node is not None:
                self.node.prepare_to_leave()
            self._linger = Linger(self.reactor, self._may_leave_at, super().leave)
        if at_once:
            self._linger.end()
        return self._linger.when_left()

    def _may_leave_at(self) -> float:
        node = self.node
        return 0.0 if node is None or self.transport is None else node.may_leave_at

    @property
    def pending(self) -> int:
        """Number of messages that are not acknowledged yet."""
        return len(self._pending_publishes)

    def publish(self, data: bytes, *, kept: int = 0) -> Deferred[int]:
        """Publish a message.

        :param kept: number of durable journals that must have synced the message to disk before the Deferred fires.
            With 0, the Deferred fires when the message was numbered and sent to all subscribers, whether or not any of
            them received it.
        :return: Deferred of its sequence number. It fails with
            :class:`~fyrehose_twisted.errors.PublishTimeout` if the message is not acknowledged in time, with
            :class:`~fyrehose_twisted.errors.MessageNotKept` if too few journals sync it in time, and with
            :class:`~fyrehose_twisted.errors.NotConnected` if the protocol stops before.
        :raises MessageTooLarge: if it does not fit a datagram.
        :raises PublishQueueFull: if the send queue is full; see :meth:`when_room`.
        :raises NotConnected: if the protocol is not running.
        """
        published: Deferred[int] = Deferred()
        self._publish((data,), kept, lambda sequences: published.callback(sequences[0]), published.errback)
        return published

    def publish_many(self, messages: Sequence[bytes], *, kept: int = 0) -> Deferred[list[int]]:
        """Publish a batch of messages, which costs less than :meth:`publish` for each. If this raises, none is queued.

        :param kept: see :meth:`publish`.
        :return: Deferred of their sequence numbers, in the same order and not necessarily consecutive. It fails as soon
            as one message fails; the others may still be published. For the errors, see :meth:`publish`.
        """
        if not messages:
            return succeed([])
        published: Deferred[list[int]] = Deferred()
        self._publish(messages, kept, published.callback, published.errback)
        return published

    def _publish(
        self,
        messages: Sequence[bytes],
        kept: int,
        done: Callable[[list[int]], None],
        failed: Callable[[Exception], None],
    ) -> None:
        node, driver = self.node, self.driver
        if node is None or driver is None or self.transport is None:
            raise NotConnected("the publisher is not running; join() a backbone before publish()")
        if self.state is not None:
            self.state.check()
        tickets = node.publish_many(messages, driver.now(), kept=kept)
        if self.state is not None:
            self.state.sent(messages)
        publication = _PendingPublish(tickets, done, failed)
        self._pending_publishes.update(dict.fromkeys(tickets, publication))
        driver.flush()

    def when_room(self) -> Deferred[None]:
        """Return a Deferred that fires when the send queue is less than half full, or at once if it is now."""
        if self._has_room():
            return succeed(None)
        if self.transport is None or self.node is None:
            return fail(NotConnected("the publisher is not running; join() a backbone first"))
        room: Deferred[None] = Deferred()
        self._room_waiters.append(room)
        return room

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case MessagesPublished(messages):
                self._record_published([ticket for ticket, _ in messages])
                for ticket, sequence in messages:
                    self._pending_publishes.pop(ticket).acknowledge(ticket, sequence)
            case MessagesExpired(tickets):
                seconds = self.config.outbox.timeout
                if self.state is not None:
                    self.state.failed(min(tickets))
                for ticket in tickets:
                    late = PublishTimeout(f"message did not come back from the backbone within {seconds:g} s")
                    self._pending_publishes.pop(ticket).fail(late)
            case DurabilityExpired(unkept):
                seconds = self.config.outbox.timeout
                if self.state is not None:
                    self.state.failed(min(message.ticket for message in unkept))
                for ticket, sequence, had, wanted in unkept:
                    self._pending_publishes.pop(ticket).fail(MessageNotKept(sequence, had, wanted, seconds))
            case _:
                super().event_received(event)
                return
        if self._room_waiters and self._has_room():
            waiting, self._room_waiters = self._room_waiters, []
            for room in waiting:
                room.callback(None)

    def _publisher_identity(self) -> tuple[bytes, int] | None:
        return None if self.state is None else (self.state.publisher, self.state.position)

    def stopProtocol(self) -> None:
        """Twisted: the port is closed. Fail all pending messages."""
        super().stopProtocol()
        publishing, self._pending_publishes = self._pending_publishes, {}
        waiting, self._room_waiters = self._room_waiters, []
        error = NotConnected(
            f"the publisher stopped before the message came back{'' if self._error is None else f': {self._error}'}"
        )
        for unpublished in publishing.values():
            unpublished.fail(error)
        for room in waiting:
            room.errback(error)
        if self._linger is not None:
            self._linger.protocol_stopped()

    def _record_published(self, tickets: list[int]) -> None:
        if self.state is not None and self.driver is not None:
            try:
                self.state.published(tickets, self.driver.now())
            except StateFileError as error:
                self.fail(error)

    def _has_room(self) -> bool:
        node = self.node
        if node is None:
            return False
        return node.send_queue.fill_ratio < 0.5 and len(node.durability) < 0.5 * self.config.outbox.queue_messages


class _PendingPublish:
    """Batch of messages with the callbacks of its publisher."""

    __slots__ = ("_first", "_is_done", "_on_done", "_on_failure", "_remaining", "_sequences")

    def __init__(self, tickets: range, done: Callable[[list[int]], None], failed: Callable[[Exception], None]) -> None:
        self._first = tickets[0]
        self._remaining = len(tickets)
        self._sequences = [0] * len(tickets)
        self._on_done = done
        self._on_failure = failed
        self._is_done = False

    def acknowledge(self, ticket: int, sequence: int) -> None:
        """Record that one message was acknowledged."""
        self._sequences[ticket - self._first] = sequence
        self._remaining -= 1
        if not self._remaining and not self._is_done:
            self._on_done(self._sequences)

    def fail(self, error: Exception) -> None:
        """Record that one message, or all remaining messages, failed."""
        self._remaining -= 1
        if not self._is_done:
            self._is_done = True
            self._on_failure(error)


def _log_drop(log: Logger, drop: PacketDropped) -> None:
    host, port = drop.peer
    log.warn(
        "dropped ({reason}) from {host}:{port}: {detail}", reason=drop.reason, host=host, port=port, detail=drop.detail
    )
