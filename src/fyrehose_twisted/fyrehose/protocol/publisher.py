"""Twisted protocol of a publisher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError, MessageNotKept, NotConnected, PublishTimeout, StateFileError
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import MessagesExpired, MessagesPublished
from fyrehose_twisted.fyrehose.node.client.publishing.durability import DurabilityExpired
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import max_payload
from fyrehose_twisted.fyrehose.protocol.client import SubscriberProtocol
from fyrehose_twisted.fyrehose.protocol.linger import Linger
from fyrehose_twisted.fyrehose.protocol.publisher_file import PublisherState
from fyrehose_twisted.fyrehose.wire.message_key import add_key
from fyrehose_twisted.interfaces import IMessageStore, IPublisher


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
        self._pending_publishes: dict[int, _PendingBatch | _PendingMessages] = {}
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
    def max_message(self) -> int:
        """Maximum size of a message in bytes."""
        return max_payload(self.config.outbox, self.sealer)

    @property
    def pending(self) -> int:
        """Number of messages that are not acknowledged yet."""
        return len(self._pending_publishes)

    def publish(self, data: bytes, *, kept: int = 0, key: bytes | None = None) -> Deferred[int]:
        """Publish a message.

        :param key: key of the message, 1 to 255 bytes, by which subscribers and readers of the journal select and
            compact messages. It needs 5 bytes besides its own of :attr:`max_message`.
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
        :raises ConfigurationError: if the key is empty or too long, or the publisher sends no envelopes.
        """
        if key is not None:
            data = add_key(data, key)
        published: Deferred[int] = Deferred()
        batch = _PendingBatch(1, lambda sequences: published.callback(sequences[0]), published.errback)
        self._publish((data,), kept, (batch,))
        return published

    def publish_many(self, messages: Sequence[bytes], *, kept: int = 0) -> Deferred[list[int]]:
        """Publish a batch of messages, which costs less than :meth:`publish` for each. If this raises, none is queued.

        :param messages: data of the messages. Those with a key are results of
            :func:`~fyrehose_twisted.fyrehose.wire.message_key.add_key`.
        :param kept: see :meth:`publish`.
        :return: Deferred of their sequence numbers, in the same order and not necessarily consecutive. It fails as soon
            as one message fails; the others may still be published. For the errors, see :meth:`publish`.
        """
        if not messages:
            return succeed([])
        published: Deferred[list[int]] = Deferred()
        self._publish(messages, kept, (_PendingBatch(len(messages), published.callback, published.errback),))
        return published

    def publish_batches(self, batches: Sequence[tuple[Sequence[bytes], Deferred[list[int]]]]) -> None:
        """Publish batches at once, each as with :meth:`publish_many`. If this raises, none is queued.

        :param batches: messages, at least one for each batch, and the Deferred of their numbers.
        """
        pending = [_PendingBatch(len(batch), published.callback, published.errback) for batch, published in batches]
        self._publish([message for batch, _ in batches for message in batch], 0, pending)

    def publish_each(
        self,
        messages: Sequence[bytes],
        published: Callable[[int, int], object],
        failed: Callable[[int, Exception], object],
        *,
        kept: int = 0,
    ) -> None:
        """Publish a batch of messages like :meth:`publish_many`, and report the outcome of each.

        :param published: called with the index of a message in the batch, and its sequence number.
        :param failed: called with the index of a message in the batch, and its error.
        """
        if messages:
            self._publish(messages, kept, (_PendingMessages(len(messages), published, failed),))

    def _publish(
        self, messages: Sequence[bytes], kept: int, batches: Sequence[_PendingBatch | _PendingMessages]
    ) -> None:
        node, driver = self.node, self.driver
        if node is None or driver is None or self.transport is None:
            raise NotConnected("the publisher is not running; join() a backbone before publish()")
        if self.state is not None:
            self.state.check()
        tickets = node.publish_many(messages, driver.now(), kept=kept)
        if self.state is not None:
            self.state.sent(messages)
        start = 0
        for pending in batches:
            own = tickets[start : start + pending.size]
            start += pending.size
            pending.first_ticket = own.start
            self._pending_publishes.update(dict.fromkeys(own, pending))
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
                    late = PublishTimeout(f"the backbone did not confirm the message within {seconds:g} s")
                    self._pending_publishes.pop(ticket).fail(ticket, late)
            case DurabilityExpired(unkept):
                seconds = self.config.outbox.timeout
                if self.state is not None:
                    self.state.failed(min(message.ticket for message in unkept))
                for ticket, sequence, had, wanted in unkept:
                    self._pending_publishes.pop(ticket).fail(ticket, MessageNotKept(sequence, had, wanted, seconds))
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
            f"the publisher stopped before the message was confirmed{'' if self._error is None else f': {self._error}'}"
        )
        for ticket, unpublished in publishing.items():
            unpublished.fail(ticket, error)
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


class _PendingBatch:
    """Batch of messages with one outcome."""

    __slots__ = ("_is_done", "_on_done", "_on_failure", "_remaining", "_sequences", "first_ticket", "size")

    def __init__(self, size: int, done: Callable[[list[int]], None], failed: Callable[[Exception], None]) -> None:
        self.first_ticket = 0
        self.size = size
        self._remaining = size
        self._sequences = [0] * size
        self._on_done = done
        self._on_failure = failed
        self._is_done = False

    def acknowledge(self, ticket: int, sequence: int) -> None:
        """Record that one message was acknowledged."""
        self._sequences[ticket - self.first_ticket] = sequence
        self._remaining -= 1
        if not self._remaining and not self._is_done:
            self._on_done(self._sequences)

    def fail(self, ticket: int, error: Exception) -> None:
        """Record that one message, or all remaining messages, failed."""
        self._remaining -= 1
        if not self._is_done:
            self._is_done = True
            self._on_failure(error)


class _PendingMessages:
    """Batch of messages with an outcome each."""

    __slots__ = ("_on_failure", "_on_published", "first_ticket", "size")

    def __init__(
        self, size: int, published: Callable[[int, int], object], failed: Callable[[int, Exception], object]
    ) -> None:
        self.first_ticket = 0
        self.size = size
        self._on_published = published
        self._on_failure = failed

    def acknowledge(self, ticket: int, sequence: int) -> None:
        """Report that a message was acknowledged."""
        self._on_published(ticket - self.first_ticket, sequence)

    def fail(self, ticket: int, error: Exception) -> None:
        """Report that a message failed."""
        self._on_failure(ticket - self.first_ticket, error)
