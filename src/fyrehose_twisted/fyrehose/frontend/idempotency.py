"""Idempotency keys, with which repeated requests do not publish their messages again."""

from __future__ import annotations

from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from fyrehose_twisted.errors import OperationalError
from fyrehose_twisted.fyrehose.frontend.publish_queue import BatchFailed, PublishQueue, QueueFull
from fyrehose_twisted.wording import pluralize


class IdempotencyKeyReused(OperationalError):
    """The key was used before for other messages."""


class OutcomeUnknown(OperationalError):
    """The messages of the key may or may not be published, and their outcome stays unknown."""


ENTRY_BYTES, NUMBER_BYTES = 512, 8
"""Bytes of memory per remembered request, and per number in it."""


class _Entry:
    __slots__ = ("digest", "is_publishing", "sequences", "size", "waiters")

    def __init__(self, digest: bytes, size: int) -> None:
        self.digest = digest
        self.size = size
        self.is_publishing = True
        self.sequences: Sequence[int] | None = None
        self.waiters: list[Deferred[Sequence[int]]] = []


class IdempotencyKeys:
    """Requests with an idempotency key and their numbers, in memory.

    A request with a key continues after its client has disconnected, so that a repeated request gets its numbers.

    :ivar size: bytes in use. Above ``config.remembered_bytes``, the oldest requests are discarded.
    """

    def __init__(self, publish_queue: PublishQueue) -> None:
        self.size = 0
        self._publish_queue = publish_queue
        self._clients: OrderedDict[str, OrderedDict[str, _Entry]] = OrderedDict()
        self._sizes: Counter[str] = Counter()

    def __len__(self) -> int:
        return sum(map(len, self._clients.values()))

    def publish(self, client: str, key: str, digest: bytes, messages: Sequence[bytes]) -> Deferred[Sequence[int]]:
        """Publish messages, or return the numbers of an earlier request with this key.

        :param digest: digest of the request body.
        :return: Deferred of the numbers. It fails with :class:`~.publish_queue.BatchFailed`. A request that certainly
            was not published is discarded then.
        :raises IdempotencyKeyReused: if the body differs.
        :raises OutcomeUnknown: if the earlier messages may or may not be published.
        :raises MessageTooLarge: see :meth:`~.publish_queue.PublishQueue.submit`.
        :raises QueueFull: see there, and if all remembered requests are still pending.
        """
        own = self._clients.get(client)
        entry = None if own is None else own.get(key)
        if entry is None:
            size = ENTRY_BYTES + NUMBER_BYTES * len(messages)
            self._make_room(client, size)
            published = self._publish_queue.submit(client, messages)
            entry = _Entry(digest, size)
            self._clients.setdefault(client, OrderedDict())[key] = entry
            self._clients.move_to_end(client)
            self._sizes[client] += size
            self.size += size
            waiting = self._wait(entry)
            published.addCallbacks(self._published, self._failed, (entry,), errbackArgs=(client, key, entry))
            return waiting
        if entry.digest != digest:
            raise IdempotencyKeyReused("this Idempotency-Key was used before, with another body")
        if not entry.is_publishing and entry.sequences is None:
            raise OutcomeUnknown("the outcome of an earlier request with this Idempotency-Key is unknown")
        return self._wait(entry)

    def _wait(self, entry: _Entry) -> Deferred[Sequence[int]]:
        if entry.sequences is not None:
            return succeed(entry.sequences)
        waiting: Deferred[Sequence[int]] = Deferred(entry.waiters.remove)
        entry.waiters.append(waiting)
        return waiting

    def _published(self, sequences: Sequence[int], entry: _Entry) -> None:
        entry.is_publishing = False
        entry.sequences = array("Q", sequences)
        waiting, entry.waiters = entry.waiters, []
        for waiter in waiting:
            waiter.callback(entry.sequences)

    def _failed(self, failure: Failure, client: str, key: str, entry: _Entry) -> None:
        failure.trap(BatchFailed)
        error = failure.value
        assert isinstance(error, BatchFailed)
        entry.is_publishing = False
        if not error.unknown:
            self._forget(client, key)
        waiting, entry.waiters = entry.waiters, []
        for waiter in waiting:
            waiter.errback(BatchFailed(error.reason, str(error), unknown=error.unknown))

    def _make_room(self, client: str, size: int) -> None:
        """Discard the oldest requests: those of the client if it uses as much as is left for others, else any."""
        limit = self._publish_queue.config.remembered_bytes
        while self.size and self._sizes[client] + size > limit - self.size:
            own = self._sizes[client] > 0
            oldest = self._oldest(client) if own else next(filter(None, map(self._oldest, self._clients)), None)
            if oldest is None:
                raise QueueFull(f"{pluralize(len(self), 'request')} with a key are in progress", is_client_limit=own)
            self._forget(*oldest)

    def _oldest(self, client: str) -> tuple[str, str] | None:
        return next(((client, key) for key, entry in self._clients[client].items() if not entry.is_publishing), None)

    def _forget(self, client: str, key: str) -> None:
        entry = self._clients[client].pop(key)
        self.size -= entry.size
        self._sizes[client] -= entry.size
        if not self._clients[client]:
            del self._clients[client], self._sizes[client]
