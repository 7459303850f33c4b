"""Delivery of events to one callback, one at a time and in order."""

from __future__ import annotations

from random import Random
from typing import Any, Protocol

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.defer import TimeoutError as DeferredTimeout
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.web.client import ResponseFailed

from fyrehose_twisted.errors import EventsNotHeld, FyrehoseError
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.webhooks.callback import Callback, DeadLetter, WebhookSender, event_headers
from fyrehose_twisted.parcels.wire.messages import Event

READ_BATCH = 32
"""Events to read at once."""


class CourierRegistry(Protocol):
    """Registry interface that a delivery uses.

    :ivar node: provider of :class:`~fyrehose_twisted.interfaces.IOrderedEvents`.
    :ivar cluster: name of the cluster.
    :ivar failed_attempts: number of failed attempts of all callbacks.
    """

    node: Any
    sender: WebhookSender
    config: WebConfig
    reactor: Any
    cluster: str
    failed_attempts: int

    def now(self) -> float:
        """Return UTC seconds since 1970."""

    def position_advanced(self, callback: Callback) -> None:
        """Record that a callback has finished an event."""

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Record events that are not retried any more."""


class WebhookDelivery:
    """Delivery loop of one callback, independent of others. It runs until it is stopped or its callback suspended."""

    log = Logger()

    def __init__(self, callback: Callback, registry: CourierRegistry, rng: Random) -> None:
        self.callback = callback
        self._registry = registry
        self._rng = rng
        self._read_ahead: list[Event] = []
        self._new_events: Deferred[None] | None = None
        self._stopped = False
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Start, unless the callback is suspended."""
        if not self.callback.suspended:
            self._running = Deferred.fromCoroutine(self._run())
            self._running.addErrback(self._ended)

    def stop(self) -> None:
        """Stop at once. An unacknowledged event is delivered again after a restart."""
        self._stopped = True
        if self._running is not None:
            self._running.cancel()

    def wake(self) -> None:
        """Wake up for new events."""
        arrival, self._new_events = self._new_events, None
        if arrival is not None:
            arrival.callback(None)

    def _ended(self, failure: Any) -> None:
        if failure.check(CancelledError) is None:
            self.callback.suspended = True
            self.callback.last_error = "internal error of this node; see its log"
            self.log.failure("callback {id} stopped", failure=failure, id=self.callback.id)

    async def _run(self) -> None:
        while not self.callback.suspended:
            try:
                event = self._next()
            except FyrehoseError as error:  # For example, a journal that cannot be read now.
                self.callback.last_error = str(error)[:200]
                self.log.warn("events for callback {id} cannot be read: {error}", id=self.callback.id, error=error)
                await self._back_off(self._registry.config.callback_attempts)
                continue
            if event is None:
                self._new_events = Deferred()
                await self._new_events
            else:
                await self._deliver(event)

    def _next(self) -> Event | None:
        callback, node = self.callback, self._registry.node
        while callback.next <= node.last:
            if self._read_ahead:
                event = self._read_ahead.pop(0)
                if event.sequence > callback.next:
                    self._skip(event.sequence - 1)
                return event
            try:
                self._read_ahead = node.events(callback.next, node.last, READ_BATCH)
            except EventsNotHeld as error:
                if error.oldest <= callback.next:
                    return None
                self._skip(error.oldest - 1)
                continue
            if not self._read_ahead:
                return None
        return None

    def _skip(self, last: int) -> None:
        first = self.callback.next
        self.callback.skipped += last - first + 1
        self.callback.next = last + 1
        self._registry.add_dead_letter(self._dead_letter(first, last, "no longer held by this node", 0, None))

    def _dead_letter(self, first: int, last: int, reason: str, attempts: int, event: Event | None) -> DeadLetter:
        callback = self.callback
        return DeadLetter(callback.id, callback.url, first, last, reason, attempts, self._registry.now(), event)

    async def _deliver(self, event: Event) -> None:
        callback, office, config = self.callback, self._registry, self._registry.config
        for attempt in range(1, config.callback_attempts + 1):
            callback.attempts = attempt
            reason = await self._attempt(event)
            if reason is None:
                callback.last_error = None
                callback.delivered += 1
                callback.consecutive_dead_letters = 0
                break
            callback.last_error = reason
            office.failed_attempts += 1
            if attempt < config.callback_attempts:
                await self._back_off(attempt)
        else:
            callback.dead += 1
            callback.consecutive_dead_letters += 1
            reason = callback.last_error or ""
            office.add_dead_letter(self._dead_letter(event.sequence, event.sequence, reason, callback.attempts, event))
            callback.suspended = callback.consecutive_dead_letters >= config.suspend_after
        callback.attempts = 0
        callback.next = event.sequence + 1
        office.position_advanced(callback)

    async def _back_off(self, attempt: int) -> None:
        first, most = self._registry.config.callback_backoff
        # Jitter of up to half of the delay spreads the retries of callbacks that failed together.
        seconds = min(most, first * 2.0 ** min(attempt - 1, 30)) * self._rng.uniform(0.5, 1.0)
        await deferLater(self._registry.reactor, seconds, lambda: None)

    async def _attempt(self, event: Event) -> str | None:
        """Attempt a delivery; return the reason of its failure, or ``None``."""
        callback, office = self.callback, self._registry
        headers = event_headers(event, office.cluster, office.node.cluster_id, callback.secret, office.now())
        try:
            status = await office.sender.post(callback.url, headers, event.data)
        except DeferredTimeout:
            return "no answer in time"
        except Exception as error:
            if self._stopped:
                raise CancelledError from None
            if isinstance(error, ResponseFailed) and error.reasons:
                error = error.reasons[0].value
            return f"{type(error).__name__}: {error}"[:200]
        if 200 <= status < 300:
            return None
        return f"status {status}"
