"""Twisted shells of the fyrehose nodes, made to be subclassed."""

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
    """A backbone on a UDP port. Subclass it to be told who comes and goes.

    :param state: where the numbers are kept, such as a
        :class:`~fyrehose_twisted.fyrehose.service.state_file.SequenceFile`; by default nowhere, so that the next start
        counts from 1 again. May be replaced until the port is bound.
    :param policy: who gets FORWARDs; by default a random client.
    :param settle_time: seconds to listen for clients before the first number is given, so that they get it; of a
        stream of which ``state`` knows nothing they are asked. None where ``state`` knows them all; 0 to start at once.
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
        """A client was admitted, or was served by the backbone that was here before."""

    def client_expired(self, address: Address) -> None:
        """A client has not been heard of for 5 s."""

    def reconfigure(self, config: BackboneConfig) -> None:
        """Go by other limits from now on; see
        :meth:`~fyrehose_twisted.fyrehose.node.backbone.backbone.Backbone.reconfigure`."""
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
        knows_all = memory is not None and memory.complete and not state.fresh
        settle_time = 0.0 if knows_all else self._settle_time
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

    def persist(self, mark: SequenceCheckpoint) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.persist`."""
        self.state.persist(mark)

    def event_received(self, event: Any) -> None:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.event_received`."""
        match event:
            case ClientJoined(client, known):
                host, port = client.address
                told = "client {host}:{port} is served as before" if known else "client {host}:{port} joined"
                self.log.info(told, host=host, port=port)
                self.client_joined(client.address)
            case ClientExpired(client):
                host, port = client.address
                self.log.info("client {host}:{port} is gone", host=host, port=port)
                self.client_expired(client.address)
            case PacketDropped():
                _log_drop(self.log, event)
            case ExistingStreamDetected((host, port), sequence):
                self.fail(
                    StreamAlreadyNumbered(
                        f"client {host}:{port} holds message {sequence} of this stream, but the state file says that no"
                        " number was ever given. Restore the file, or start with --start-at N, N above every number"
                        " that any client or journal has seen"
                    )
                )
            case StreamClaimRejected((host, port), sequence, others):
                self.log.warn(
                    "client {host}:{port} says that it holds message {sequence} of this stream, and none of {others}"
                    " others holds any: not believed, the first number is 1. If it is right, stop this backbone and"
                    " start it with --start-at N, N above every number that any client or journal has seen",
                    host=host,
                    port=port,
                    sequence=sequence,
                    others=others,
                )
            case NumbersExhausted():
                self.fail(SequenceExhausted("all 2**48 - 1 numbers are given; start a stream with another --name"))

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
            return ANY_ADDRESS  # There is no way to it, so no answer either.


class ClientProtocol(DatagramNodeProtocol):
    """What subscribers and publishers share: a client of the backbone at :attr:`backbone`.

    :param store: where messages are kept for others; by default in memory.
    :ivar backbone: IPv4 address and port; :func:`~fyrehose_twisted.fyrehose.service.join` sets it.
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
        """The backbone answers, for the first time or again."""

    def backbone_disconnected(self) -> None:
        """The backbone has not answered for 5 s; keepalives go on."""

    def acknowledged(self, round_trip: float) -> None:
        """The backbone answered a KEEPALIVE after ``round_trip`` seconds."""

    def journals_synced(self, holdings: Sequence[Holding]) -> None:
        """Durable journals have synced this much; told to clients that ``watch`` them."""

    @property
    def node(self) -> Client | None:
        """The node, once the port is bound."""
        node: Any = None if self.driver is None else self.driver.node
        return node if isinstance(node, Client) else None

    def make_node(self, now: float) -> IDatagramNode:
        """See :meth:`~fyrehose_twisted.net.datagram_protocol.DatagramNodeProtocol.make_node`."""
        # Twisted's own port does not say what it has; this is what Linux gives where nobody tuned it.
        room: int = getattr(self.transport, "receive_buffer", UNTUNED_BUFFER)
        rng, publisher = SystemRandom(), self._publisher_identity()
        return Client(self.backbone, self.config, rng, now, store=self._store, receive_buffer=room, publisher=publisher)

    def _publisher_identity(self) -> tuple[bytes, int] | None:
        """Return id and first counter of a publisher that was there before."""
        return None

    def stopProtocol(self) -> None:
        """Twisted: the port is gone."""
        super().stopProtocol()
        if not self.connected_first.called:
            self.connected_first.errback(NotConnected("the protocol stopped before the backbone answered"))
            self.connected_first.addErrback(lambda failure: None)  # Whoever waits has it by now.

    def leave(self, *, at_once: bool = False) -> Deferred[None]:
        """Say goodbye and close the port; the Deferred fires when that is done.

        :param at_once: do not stay for subscribers that may still need this client.
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
    """Receives a stream in order. Override :meth:`messages_received` and :meth:`messages_lost`.

    It is a push producer: a consumer that cannot keep up registers it and pauses it, and then it hands over nothing;
    what exceeds ``buffer_bytes`` meanwhile is asked for again afterwards.
    """

    def messages_received(self, messages: Sequence[Message]) -> None:
        """Messages in order, each once, gaps already repaired.

        :param messages: a :class:`~fyrehose_twisted.fyrehose.events.Messages`: each is made when it is looked at.
        """

    def messages_lost(self, first: int, last: int) -> None:
        """Nobody has ``first`` to ``last`` any more, or they were never given."""

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
        """Twisted: hand over nothing for now."""
        if self.node is not None:
            self.node.pause()

    def resumeProducing(self) -> None:
        """Twisted: hand over again."""
        if self.node is not None and self.driver is not None:
            self.node.resume(self.driver.now())
            self.driver.flush()

    def stopProducing(self) -> None:
        """Twisted: the consumer is gone."""
        self.leave()


@implementer(IPublisher)
class PublisherProtocol(SubscriberProtocol):
    """Publishes messages. It is a client like any other: it receives the stream and helps to repair it.

    :param state: makes it go on as the publisher that it was before it was restarted. The application goes on with
        message ``state.position``, counted from 0, publishes the same messages in the same order as before, and closes
        the state in the end. Once a message fails, :meth:`publish` raises
        :class:`~fyrehose_twisted.errors.StateFileError`.
    :raises ConfigurationError: if ``state`` is given, and the configuration is for messages without an envelope.
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
            raise ConfigurationError("a publisher with a state needs envelopes: leave out OutboxConfig(raw=True)")
        self.state = state
        self._pending_publishes: dict[int, _PendingPublish] = {}
        self._room_waiters: list[Deferred[None]] = []
        self._linger: Linger | None = None

    def leave(self, *, at_once: bool = False) -> Deferred[None]:
        """Say goodbye and close the port; the Deferred fires when that is done.

        A publisher that keeps messages for others stays until it was asked for none for 1.25 s, and none came back
        that it had published by now, 10 s at most: what it published last may not have reached every subscriber. Where
        journals were to keep all that it published it does not stay.

        :param at_once: do not stay, or no longer.
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
        """Messages that have not come back yet."""
        return len(self._pending_publishes)

    def publish(self, data: bytes, *, kept: int = 0) -> Deferred[int]:
        """Publish a message.

        :param kept: durable journals that must have synced the message to disk before the Deferred fires. Without it,
            published means numbered and sent to all subscribers, and nothing is said of who has it.
        :return: Deferred of its sequence number; fails with
            :class:`~fyrehose_twisted.errors.PublishTimeout` if it does not come back in time, with
            :class:`~fyrehose_twisted.errors.MessageNotKept` if it does and too few journals keep it in time, and with
            :class:`~fyrehose_twisted.errors.NotConnected` if the protocol stops before.
        :raises MessageTooLarge: if it does not fit a datagram.
        :raises PublishQueueFull: if too much waits already; see :meth:`when_room`.
        :raises NotConnected: if the protocol is not running.
        """
        published: Deferred[int] = Deferred()
        self._publish((data,), kept, lambda sequences: published.callback(sequences[0]), published.errback)
        return published

    def publish_many(self, messages: Sequence[bytes], *, kept: int = 0) -> Deferred[list[int]]:
        """Publish messages: all of them, or, if this raises, none. Cheaper for each than :meth:`publish`.

        :param kept: see :meth:`publish`.
        :return: Deferred of their sequence numbers, in the same order; others may have numbers between them. It
            fails if one of them does, whatever becomes of the rest. See :meth:`publish` for how, and what it raises.
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
            raise NotConnected("publish() on a publisher that is not running; join() a backbone first")
        if self.state is not None:
            self.state.check()
        tickets = node.publish_many(messages, driver.now(), kept=kept)
        if self.state is not None:
            self.state.sent(messages)
        publication = _PendingPublish(tickets, done, failed)
        self._pending_publishes.update(dict.fromkeys(tickets, publication))
        driver.flush()

    def when_room(self) -> Deferred[None]:
        """Return a Deferred that fires when the publisher is less than half full; at once if it is."""
        if self._has_room():
            return succeed(None)
        if self.transport is None or self.node is None:
            return fail(NotConnected("the publisher is not running"))
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
                    self.state.failed(min(one.ticket for one in unkept))
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
        """Twisted: the port is gone, and with it whatever was not published."""
        super().stopProtocol()
        publishing, self._pending_publishes = self._pending_publishes, {}
        waiting, self._room_waiters = self._room_waiters, []
        gone = NotConnected(
            f"the publisher stopped before the message came back{'' if self._error is None else f': {self._error}'}"
        )
        for unpublished in publishing.values():
            unpublished.fail(gone)
        for room in waiting:
            room.errback(gone)
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
    """Messages that were published together, and who waits for them."""

    __slots__ = ("_first", "_is_done", "_on_done", "_on_failure", "_remaining", "_sequences")

    def __init__(self, tickets: range, done: Callable[[list[int]], None], failed: Callable[[Exception], None]) -> None:
        self._first = tickets[0]
        self._remaining = len(tickets)
        self._sequences = [0] * len(tickets)
        self._on_done = done
        self._on_failure = failed
        self._is_done = False

    def acknowledge(self, ticket: int, sequence: int) -> None:
        """One of them came back."""
        self._sequences[ticket - self._first] = sequence
        self._remaining -= 1
        if not self._remaining and not self._is_done:
            self._on_done(self._sequences)

    def fail(self, error: Exception) -> None:
        """One of them, or all that are left, will not come back."""
        self._remaining -= 1
        if not self._is_done:
            self._is_done = True
            self._on_failure(error)


def _log_drop(log: Logger, drop: PacketDropped) -> None:
    host, port = drop.peer
    log.warn(
        "dropped ({reason}) from {host}:{port}: {detail}", reason=drop.reason, host=host, port=port, detail=drop.detail
    )
