"""Messages and losses that a client has yet to deliver to the application."""

from __future__ import annotations

from collections import deque

from fyrehose_twisted.errors import SequenceRegressed
from fyrehose_twisted.fyrehose.events import ClientCounters, ClientFailed, MessagesDelivered, MessagesLost
from fyrehose_twisted.fyrehose.node.client.deduplication import Deduplicator
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import MessageRun


class DeliveryQueue:
    """Deliveries of one client, in the order of the stream, and the failure that ends them.

    :ivar paused: whether the application has paused delivery.
    """

    def __init__(self, deduplicator: Deduplicator, counters: ClientCounters) -> None:
        self.paused = False
        self._deduplicator = deduplicator
        self._counters = counters
        self._pending: deque[MessagesLost | MessagesDelivered] = deque()
        self._failure: ClientFailed | None = None
        self._has_failed = False

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, item: MessageRun | MessagesLost) -> None:
        """Add messages, without repeats, or a loss."""
        if isinstance(item, MessagesLost):
            self._counters.lost += item.last - item.first + 1
            self._pending.append(item)
            return
        messages = self._deduplicator.deliverable(item)
        self._counters.delivered += len(messages)
        if len(messages):
            self._pending.append(MessagesDelivered(messages))

    def fail(self, error: SequenceRegressed) -> None:
        """Report the first failure after the pending deliveries."""
        if not self._has_failed:
            self._has_failed = True
            self._failure = ClientFailed(error)

    def take(self) -> MessagesLost | MessagesDelivered | ClientFailed | None:
        """Return the next event; ``None`` if there is none or delivery is paused."""
        if self._pending and not self.paused:
            return self._pending.popleft()
        # After earlier deliveries, because the application stops upon it; but a pause does not delay it.
        failure, self._failure = self._failure, None
        return failure
