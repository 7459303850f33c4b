"""Messages and losses that a client has yet to deliver to the application."""

from __future__ import annotations

from collections import deque

from fyrehose_twisted.errors import SequenceRegressed
from fyrehose_twisted.fyrehose.events import (
    ClientCounters,
    ClientFailed,
    MessagesDelivered,
    MessagesLost,
    NumbersSkipped,
    TermStarted,
)
from fyrehose_twisted.fyrehose.node.client.deduplication import Deduplicator
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import Deliverable, MessageRun
from fyrehose_twisted.fyrehose.wire.term_start import decode_term_start, may_start_terms

_Delivery = MessagesDelivered | MessagesLost | NumbersSkipped | TermStarted


class DeliveryQueue:
    """Deliveries of one client, in the order of the stream, and the failure that ends them.

    :ivar paused: whether the application has paused delivery.
    :ivar has_terms: whether backbones take over from one another, so that messages that start terms are not delivered.
    """

    def __init__(self, deduplicator: Deduplicator, counters: ClientCounters) -> None:
        self.paused = False
        self.has_terms = False
        self._deduplicator = deduplicator
        self._counters = counters
        self._pending: deque[_Delivery] = deque()
        self._failure: ClientFailed | None = None
        self._has_failed = False

    def __len__(self) -> int:
        return len(self._pending)

    def add(self, item: Deliverable) -> None:
        """Add messages, without repeats and starts of terms, or numbers that have none."""
        match item:
            case MessagesLost(first, last):
                self._counters.lost += last - first + 1
                self._pending.append(item)
            case NumbersSkipped(first, last):
                self._counters.skipped += last - first + 1
                self._pending.append(item)
            case _ if self.has_terms and may_start_terms(item.messages):
                self._add_terms(item)
            case _:
                self._add_messages(item)

    def _add_terms(self, run: MessageRun) -> None:
        """Add messages, some of which may start terms."""
        row = 0
        for end, data in enumerate(run.messages):
            start = decode_term_start(run.first + end, data)
            if start is not None:
                self._add_messages(_part(run, row, end))
                self._pending.append(TermStarted(*start))
                row = end + 1
        self._add_messages(_part(run, row, len(run.messages)))

    def _add_messages(self, run: MessageRun) -> None:
        if not run.messages:
            return
        messages = self._deduplicator.deliverable(run)
        self._counters.delivered += len(messages)
        if len(messages):
            self._pending.append(MessagesDelivered(messages))

    def fail(self, error: SequenceRegressed) -> None:
        """Report the first failure after the pending deliveries."""
        if not self._has_failed:
            self._has_failed = True
            self._failure = ClientFailed(error)

    def take(self) -> _Delivery | ClientFailed | None:
        """Return the next event; ``None`` if there is none or delivery is paused."""
        if self._pending and not self.paused:
            return self._pending.popleft()
        # After earlier deliveries, because the application stops upon it; but a pause does not delay it.
        failure, self._failure = self._failure, None
        return failure


def _part(run: MessageRun, start: int, end: int) -> MessageRun:
    return MessageRun(run.first + start, run.messages[start:end], run.times[start:end])
