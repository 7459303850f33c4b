"""Reception of the stream by a client: from DELIVERs to what is delivered to the application."""

from __future__ import annotations

from collections.abc import Callable

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.events import ClientCounters
from fyrehose_twisted.fyrehose.node.client.delivery_queue import DeliveryQueue
from fyrehose_twisted.fyrehose.node.client.publishing.session import PublishingSession
from fyrehose_twisted.fyrehose.node.client.reorder_buffer import ReorderBuffer
from fyrehose_twisted.fyrehose.node.client.subscription import Subscription
from fyrehose_twisted.fyrehose.node.client.takeover.connection import Connection
from fyrehose_twisted.fyrehose.node.drop_log import DropLog
from fyrehose_twisted.fyrehose.wire.run_codec import DeliverRun


class Reception:
    """Reception of the stream by one client, which may be one that publishes only.

    :param subscription: takes the messages; ``None`` if the client publishes only.
    :param delivery_queue: takes what is ready to be delivered.
    :param publishing: publishing side, which recognizes own messages.
    :param drop: drops a packet: reason, source, detail and time.
    """

    def __init__(
        self,
        subscription: Subscription | None,
        delivery_queue: DeliveryQueue,
        connection: Connection,
        publishing: PublishingSession,
        counters: ClientCounters,
        drops: DropLog,
        drop: Callable[[str, Address, str, float], None],
    ) -> None:
        self._subscription = subscription
        self._delivery_queue = delivery_queue
        self._connection = connection
        self._publishing = publishing
        self._counters = counters
        self._drops = drops
        self._drop = drop
        self._highest_seen = 0

    @property
    def reorder_buffer(self) -> ReorderBuffer | None:
        """Buffer of the stream; ``None`` while joining, and without a subscription."""
        return None if self._subscription is None else self._subscription.reorder_buffer

    @property
    def highest_held(self) -> int:
        """Highest number that was received, or that the store held at the start; 0 if there is none."""
        return self._highest_seen if self._subscription is None else self._subscription.highest_held

    def run_received(self, run: DeliverRun, now: float, *, live: bool) -> None:
        """Handle consecutive messages. ``live`` means that they came from the address of the backbone."""
        (peer, first, data), subscription, row = run, self._subscription, 0
        end = first + len(data)
        if subscription is not None and subscription.run_received(first, data, now, live=live):
            self._counters.received += len(data)
            return
        while first < end:
            count = end - first if subscription is None else subscription.uniform_count(first, end - first)
            part = data if count == len(data) else data[row : row + count]
            if subscription is not None and subscription.run_received(first, part, now, live=live):
                self._counters.received += count
            else:
                for sequence, message in enumerate(part, first):
                    self.message_received(sequence, message, peer, now, live=live)
            first, row = first + count, row + count

    def message_received(self, sequence: int, data: bytes, peer: Address, now: float, *, live: bool) -> None:
        """Handle a message from the backbone or a repair (000, client rules 2 and 3)."""
        self._counters.received += 1
        subscription = self._subscription
        if subscription is None:
            if live:
                self._highest_seen = max(self._highest_seen, sequence)
                self._publishing.messages_seen(sequence, (data,), now)
            else:
                self._connection.drop_unasked(sequence, peer, now)
        elif subscription.arrival.failure is not None:
            self._drops.counts["stopped"] += 1
        elif not subscription.accepts(sequence, data, now, live=live):
            self._connection.drop_unasked(sequence, peer, now)
        elif sequence < 1 or (live and not subscription.is_plausible(sequence, data)):
            detail = f"DELIVER {sequence} while the stream is at {subscription.stream_head.highest}"
            self._drop("implausible", peer, detail, now)
            if sequence > 0:
                subscription.hold_suspect(sequence, data, now)
        else:
            subscription.received(sequence, data, now, live=live)

    def pause(self) -> None:
        """Stop delivering. Messages that exceed the buffer are requested again later."""
        self._delivery_queue.paused = True
        if self._subscription is not None:
            self._subscription.arrival.paused = True

    def resume(self) -> bool:
        """Take more messages after a pause, unless earlier ones are still to be delivered. Return whether it begins.

        Otherwise these would grow beyond the limit of the reorder buffer.
        """
        subscription, waiting = self._subscription, self._delivery_queue
        if subscription is None or not subscription.arrival.paused or waiting.paused or len(waiting):
            return False
        subscription.arrival.paused = False
        return True

    def advance(self, now: float) -> list[tuple[int, int]]:
        """Pass on what is ready to be delivered. Return the ranges to request."""
        subscription = self._subscription
        if subscription is None:
            return []
        subscription.advance(now)
        for item in subscription.arrival.take_ready():
            self._delivery_queue.add(item)
        if subscription.arrival.failure is not None:
            self._delivery_queue.fail(subscription.arrival.failure)
        if len(self._publishing.unconfirmed_numbers):
            self._publishing.stream_advanced(subscription.complete_up_to, now)
        requests, subscription.requests = subscription.requests, []
        return requests
