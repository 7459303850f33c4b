"""Registry of a node's callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random, SystemRandom
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from fyrehose_twisted.errors import EventsNotHeld, LocalError, OperationalError
from fyrehose_twisted.interfaces import IEventListener, IOrderedEvents
from fyrehose_twisted.parcels.web.config import WebConfig
from fyrehose_twisted.parcels.web.webhooks.callback import Callback, DeadLetter, OnDeadLetter, WebhookSender
from fyrehose_twisted.parcels.web.webhooks.delivery import WebhookDelivery
from fyrehose_twisted.parcels.web.webhooks.file import CallbackFile
from fyrehose_twisted.parcels.wire.messages import Event


class TooManyCallbacks(LocalError):
    """The maximum number of callbacks is reached."""


@implementer(IEventListener)
class Callbacks:
    """Callbacks of one node, and their running deliveries.

    Each gets the events in order, and every one at least once: what was delivered just before this node died is
    delivered again, under the same number. Callbacks are those of this node: while it is down, they get nothing.

    :param sender: request sender, such as :class:`~fyrehose_twisted.parcels.web.webhooks.http_sender.TreqSender`.
    :param file: storage across restarts.
    :param on_dead_letter: called with each event that was not delivered.
    :ivar cluster: name of the cluster.
    :ivar failed_attempts: number of failed attempts of all callbacks.
    :ivar delivered: number of events delivered to all callbacks.
    :ivar dead: number of events not delivered to a callback.
    """

    log = Logger()

    def __init__(
        self,
        node: IOrderedEvents,
        sender: WebhookSender,
        config: WebConfig,
        reactor: Any,
        *,
        file: CallbackFile | None = None,
        on_dead_letter: OnDeadLetter | None = None,
        rng: Random | None = None,
    ) -> None:
        self.node: Any = node
        self.sender = sender
        self.config = config
        self.reactor = reactor
        self.cluster = ""
        self.failed_attempts = 0
        self.delivered = 0
        self.dead = 0
        self._file = file
        self._on_dead_letter = on_dead_letter
        self._rng: Random = rng or SystemRandom()
        self._deliveries: dict[str, WebhookDelivery] = {}
        self._pending_additions = 0
        self._save_call: Any = None
        self._running = False

    def __len__(self) -> int:
        return len(self._deliveries)

    @property
    def suspended(self) -> int:
        """Number of suspended callbacks."""
        return sum(callback.suspended for callback in self.all())

    def now(self) -> float:
        """UTC seconds since 1970."""
        return float(self.reactor.seconds())

    def start(self) -> None:
        """Load the stored callbacks and start their deliveries.

        :raises StateFileError: if the file cannot be read.
        """
        callbacks = [] if self._file is None else self._file.load()
        self._running = True
        self.cluster = self.node.state().cluster
        self.node.listen(self)
        for callback in callbacks:
            self._start_delivery(callback)

    def stop(self) -> Deferred[None]:
        """Stop all deliveries and save their positions."""
        if not self._running:
            return succeed(None)
        self._running = False
        self.node.unlisten(self)
        for courier in self._deliveries.values():
            courier.stop()
        self._save()
        return self.sender.close()

    def add(self, url: str, first: int | None, secret: str | None) -> Deferred[Callback]:
        """Register a callback.

        :param first: sequence number of its first event; by default, that of the next ordered event.

        It fails with :class:`TooManyCallbacks`, :class:`~fyrehose_twisted.errors.EventsNotHeld`,
        :class:`~fyrehose_twisted.parcels.web.webhooks.ssrf.AddressNotAllowed`,
        :class:`~fyrehose_twisted.errors.StateFileError`.
        """
        return Deferred.fromCoroutine(self._add(url, first, secret))

    async def _add(self, url: str, first: int | None, secret: str | None) -> Callback:
        if len(self._deliveries) + self._pending_additions >= self.config.max_callbacks:
            raise TooManyCallbacks(f"the limit of {self.config.max_callbacks} callbacks is reached")
        node = self.node
        start = node.last + 1 if first is None else first
        if start < node.oldest:
            raise EventsNotHeld(start, node.oldest, node.last)
        self._pending_additions += 1
        try:
            await self.sender.check(url)
        finally:
            self._pending_additions -= 1
        if not self._running:
            raise OperationalError("this node is shutting down")
        callback = Callback(f"{self._rng.getrandbits(64):016x}", url, start, secret)
        if self._file is not None:
            self._file.save([*self.all(), callback])
        self._start_delivery(callback)
        return callback

    def _start_delivery(self, callback: Callback) -> None:
        courier = self._deliveries[callback.id] = WebhookDelivery(callback, self, self._rng)
        courier.start()

    def remove(self, id: str) -> bool:
        """Remove a callback; return whether it existed.

        :raises StateFileError: if the removal cannot be saved.
        """
        courier = self._deliveries.pop(id, None)
        if courier is None:
            return False
        courier.stop()
        if self._file is not None:
            self._file.save(self.all())
        return True

    def get(self, id: str) -> Callback | None:
        """Return a callback by id, or ``None``."""
        courier = self._deliveries.get(id)
        return None if courier is None else courier.callback

    def all(self) -> list[Callback]:
        """Return all callbacks in order of registration."""
        return [courier.callback for courier in self._deliveries.values()]

    def events_ordered(self, events: Sequence[Event]) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        for courier in list(self._deliveries.values()):
            courier.wake()

    def events_skipped(self, first: int, last: int) -> None:
        """See :class:`~fyrehose_twisted.interfaces.IEventListener`."""
        for courier in list(self._deliveries.values()):
            courier.wake()

    def position_advanced(self, callback: Callback) -> None:
        """See :class:`~fyrehose_twisted.parcels.web.webhooks.delivery.CourierRegistry`."""
        if callback.consecutive_dead_letters == 0:
            self.delivered += 1
        if callback.suspended:
            self.log.warn("callback {id} is suspended: {why}", id=callback.id, why=callback.last_error)
        if self._file is not None and self._save_call is None and self._running:
            self._save_call = self.reactor.callLater(self.config.save_interval, self._save)

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """See :class:`~fyrehose_twisted.parcels.web.webhooks.delivery.CourierRegistry`."""
        callback = self.get(letter.callback)
        if callback is not None:
            callback.dead_letters.append(letter)
            while len(callback.dead_letters) > self.config.dead_letters:
                callback.dead_letters.popleft()
        self.dead += letter.last - letter.first + 1
        if self._on_dead_letter is not None:
            self._on_dead_letter(letter)

    def _save(self) -> None:
        saving, self._save_call = self._save_call, None
        if saving is not None and saving.active():
            saving.cancel()
        if self._file is not None:
            try:
                self._file.save(self.all())
            except OperationalError as error:
                self.log.error("the positions of callbacks cannot be saved: {error}", error=error)
