"""Publish queue of the frontend, in which clients take turns and the publisher exerts backpressure."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from fyrehose_twisted.errors import MessageTooLarge, NotConnected, OperationalError, PublishTimeout
from fyrehose_twisted.fyrehose.frontend.config import FrontendConfig
from fyrehose_twisted.fyrehose.frontend.journals import JournalProgress
from fyrehose_twisted.fyrehose.frontend.rates import ClientRateLimiter
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.wording import pluralize

TURN_MESSAGES, TURN_BYTES = 256, 256 * 2**10
"""Messages, and approximate bytes, that are sent in one turn of a client."""

SWEEP_INTERVAL = 1.0
"""Seconds between two checks for timed-out batches."""

MESSAGE_OVERHEAD = 64
"""Bytes of memory per message in addition to its data."""


class BatchFailed(OperationalError):
    """A batch of messages was not published, or its outcome is unknown.

    :ivar reason: short stable name of the reason.
    :ivar unknown: whether some of the messages may be published.
    """

    def __init__(self, reason: str, detail: str, *, unknown: bool) -> None:
        super().__init__(detail)
        self.reason = reason
        self.unknown = unknown


class QueueFull(OperationalError):
    """The publish queue is full.

    :ivar is_client_limit: whether the limit of the client was reached, not that of all clients.
    """

    def __init__(self, detail: str, *, is_client_limit: bool) -> None:
        super().__init__(detail)
        self.is_client_limit = is_client_limit


class _Batch:
    __slots__ = ("client", "done", "is_done", "messages", "queued_at", "remaining", "sent", "sequences", "size")

    def __init__(
        self, client: str, messages: Sequence[bytes], size: int, queued_at: float, done: Deferred[Any]
    ) -> None:
        self.client = client
        self.messages = messages
        self.size = size
        self.queued_at = queued_at
        self.done = done
        self.sequences: list[int] = [0] * len(messages)
        self.sent = 0
        self.remaining = len(messages)
        self.is_done = False


class PublishQueue:
    """Queue of batches of all clients.

    :param publisher: publisher that sends the messages to the backbone.
    :param kept: number of durable journals that must sync a message before it is acknowledged. Requests may ask for
        more.
    :param max_message: maximum size of a message in bytes.
    :ivar rate_limiter: rate limits per client.
    :ivar published: number of published messages.
    :ivar published_bytes: bytes of published messages.
    :ivar failed: number of failed messages by reason.
    :ivar waiting_bytes: bytes in the queue.
    :ivar journals: progress of durable journals.
    """

    def __init__(
        self,
        publisher: Any,
        config: FrontendConfig,
        reactor: Any,
        kept: int = 0,
        max_message: int = MAX_ENVELOPED,
    ) -> None:
        self.config = config
        self.kept = kept
        self.max_message = max_message
        self.rate_limiter = ClientRateLimiter(config, reactor)
        self.published = 0
        self.published_bytes = 0
        self.failed: Counter[str] = Counter()
        self.waiting_bytes = 0
        self.journals = JournalProgress(config, reactor, self._pump, max(1, kept))
        self.is_connected = False
        self._publisher = publisher
        self._reactor = reactor
        self._batches_by_client: OrderedDict[str, deque[_Batch]] = OrderedDict()
        self._waiting_bytes_by_client: Counter[str] = Counter()
        self._room: Deferred[None] | None = None
        self._pumping = False
        self._in_flight_bytes = 0
        self._open_batches: set[_Batch] = set()
        self._sweep_call: Any = None
        self._idle_waiters: list[Deferred[None]] = []

    def __len__(self) -> int:
        return len(self._open_batches) + len(self.journals)

    def reconfigure(self, config: FrontendConfig) -> None:
        """Apply new limits."""
        self.config = self.rate_limiter.config = self.journals.config = config

    def submit(self, client: str, messages: Sequence[bytes]) -> Deferred[Sequence[int]]:
        """Queue a batch of messages, which are published in order.

        :return: Deferred of their numbers. It fails with :class:`BatchFailed`. Cancelling it removes the messages that
            were not sent yet.
        :raises MessageTooLarge: if a message does not fit a datagram. No message is queued then.
        :raises QueueFull: if the queue is full.
        """
        longest = max(map(len, messages))
        if longest > self.max_message:
            raise MessageTooLarge(longest, self.max_message)
        size = sum(map(len, messages)) + MESSAGE_OVERHEAD * len(messages)
        config = self.config
        if (
            self._waiting_bytes_by_client[client]
            and self._waiting_bytes_by_client[client] + size > config.waiting_bytes_per_client
        ):
            raise QueueFull(
                f"this client has {pluralize(self._waiting_bytes_by_client[client], 'byte')} waiting to be published",
                is_client_limit=True,
            )
        # A client may use at most as much as is left, so that some room is always left for another one.
        if (
            self.waiting_bytes
            and self._waiting_bytes_by_client[client] + size > config.waiting_bytes - self.waiting_bytes
        ):
            raise QueueFull(f"{self.waiting_bytes:,} bytes wait to be published", is_client_limit=False)
        self.rate_limiter.charge(client, len(messages), size)
        done: Deferred[Sequence[int]] = Deferred(lambda _: self._cancel(batch))
        batch = _Batch(client, messages, size, self._reactor.seconds(), done)
        self._open_batches.add(batch)
        self._waiting_bytes_by_client[client] += size
        self.waiting_bytes += size
        self._batches_by_client.setdefault(client, deque()).append(batch)
        self._schedule_sweep()
        self._pump()
        return done

    def when_kept(self, sequences: Sequence[int], kept: int) -> Deferred[Sequence[int]]:
        """Wait until durable journals have synced messages; see :meth:`.JournalProgress.when_kept`."""
        waiting = self.journals.when_kept(sequences, kept)
        self._schedule_sweep()
        return waiting.addBoth(self._durability_resolved)

    def _durability_resolved(self, result: Any) -> Any:
        self._notify_idle()
        return result

    def connection_changed(self, is_connected: bool) -> None:
        """Record whether the backbone answers."""
        self.is_connected = is_connected
        self._pump()

    def when_idle(self) -> Deferred[None]:
        """Return a Deferred that fires when no batch is pending."""
        idle: Deferred[None] = Deferred()
        self._idle_waiters.append(idle)
        self._notify_idle()
        return idle

    def stop(self) -> None:
        """Fail all pending batches."""
        for batch in list(self._open_batches):
            self._fail(batch, "stopping", "the service stops")
        self.journals.stop()
        if self._sweep_call is not None:
            self._sweep_call.cancel()
            self._sweep_call = None

    def _pump(self) -> None:
        if self._pumping:
            return  # Called again by a batch that failed at once; the outer call continues.
        self._pumping = True
        try:
            self._send_turns()
        finally:
            self._pumping = False

    def _send_turns(self) -> None:
        while (
            self._batches_by_client
            and self.is_connected
            and self._room is None
            and self.journals.allowance(self._in_flight_bytes) > 0
        ):
            try:
                room = self._publisher.when_room()
            except NotConnected:
                return
            if not room.called:
                self._room = room
                room.addCallbacks(self._has_room, self._room_failed)
                return
            room.addErrback(lambda failure: None)
            client, batches = next(iter(self._batches_by_client.items()))
            self._batches_by_client.move_to_end(client)
            self._send(batches[0])

    def _has_room(self, result: object) -> None:
        self._room = None
        self._pump()

    def _room_failed(self, failure: Failure) -> None:
        failure.trap(NotConnected)
        self._room = None

    def _send(self, batch: _Batch) -> None:
        first = batch.sent
        messages = batch.messages[first : first + TURN_MESSAGES]
        size = sum(map(len, messages)) + MESSAGE_OVERHEAD * len(messages)
        if size > TURN_BYTES:
            ends = accumulate(len(message) + MESSAGE_OVERHEAD for message in messages)
            messages = messages[: max(1, sum(end <= TURN_BYTES for end in ends))]
            size = sum(map(len, messages)) + MESSAGE_OVERHEAD * len(messages)
        try:
            published = self._publisher.publish_many(messages)
        except NotConnected as error:
            self._fail(batch, "not-connected", str(error))
            return
        batch.sent += len(messages)
        self._in_flight_bytes += size
        self._release_bytes(batch, size)
        published.addCallbacks(
            self._batch_acknowledged, self._publish_failed, (batch, first, size), errbackArgs=(batch, size)
        )

    def _release_bytes(self, batch: _Batch, size: int) -> None:
        client = batch.client
        self.waiting_bytes -= size
        self._waiting_bytes_by_client[client] -= size
        if not self._waiting_bytes_by_client[client]:
            del self._waiting_bytes_by_client[client]
        batch.size -= size
        if not batch.size:
            batches = self._batches_by_client[client]
            batches.remove(batch)
            if not batches:
                del self._batches_by_client[client]

    def _batch_acknowledged(self, sequences: list[int], batch: _Batch, first: int, size: int) -> None:
        self._in_flight_bytes -= size
        self.journals.published(max(sequences), size)
        batch.sequences[first : first + len(sequences)] = sequences
        batch.remaining -= len(sequences)
        self.published += len(sequences)
        self.published_bytes += size - MESSAGE_OVERHEAD * len(sequences)
        if not batch.remaining and not batch.is_done:
            self._end(batch)
            batch.done.callback(batch.sequences)
        self._pump()

    def _publish_failed(self, failure: Failure, batch: _Batch, size: int) -> None:
        failure.trap(NotConnected, PublishTimeout)
        self._in_flight_bytes -= size
        late = failure.check(PublishTimeout) is not None
        self._fail(batch, "timeout" if late else "not-connected", str(failure.value))
        self._pump()

    def _fail(self, batch: _Batch, reason: str, detail: str) -> None:
        if batch.is_done:
            return
        self.failed[reason] += batch.remaining
        self._end(batch)
        batch.done.errback(BatchFailed(reason, detail, unknown=batch.sent > 0))

    def _cancel(self, batch: _Batch) -> None:
        self.failed["abandoned"] += len(batch.messages) - batch.sent
        self._end(batch)

    def _end(self, batch: _Batch) -> None:
        batch.is_done = True
        self._open_batches.discard(batch)
        if batch.size:
            self._release_bytes(batch, batch.size)
        self._notify_idle()

    def _notify_idle(self) -> None:
        if not len(self):
            idle, self._idle_waiters = self._idle_waiters, []
            for waiter in idle:
                waiter.callback(None)

    def _schedule_sweep(self) -> None:
        if self._sweep_call is None and len(self):
            self._sweep_call = self._reactor.callLater(SWEEP_INTERVAL, self._run_sweep)

    def _run_sweep(self) -> None:
        self._sweep_call = None
        try:
            self._fail_timed_out()
            self.journals.tick(SWEEP_INTERVAL)
        finally:
            self._schedule_sweep()

    def _fail_timed_out(self) -> None:
        now, timeout = self._reactor.seconds(), self.config.publish_timeout
        for batches in list(self._batches_by_client.values()):
            for batch in [batch for batch in batches if now - batch.queued_at >= timeout]:
                away = "" if self.is_connected else "; the backbone does not answer"
                self._fail(batch, "timeout", f"the queue was full for {timeout:g} s{away}")
