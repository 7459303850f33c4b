"""Publishing side of a client: sending of messages, and reports of those that were published."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import ConfigurationError, PublishQueueFull
from fyrehose_twisted.fyrehose.config import ClientConfig
from fyrehose_twisted.fyrehose.events import ClientCounters, MessagesExpired, MessagesPublished
from fyrehose_twisted.fyrehose.node.base import NodeOutput
from fyrehose_twisted.fyrehose.node.client.keepalive import KeepaliveSession
from fyrehose_twisted.fyrehose.node.client.publishing.duplicate_numbers import UnconfirmedNumbers
from fyrehose_twisted.fyrehose.node.client.publishing.durability import DurabilityExpired, DurabilityTracker
from fyrehose_twisted.fyrehose.node.client.publishing.linger import LingerState
from fyrehose_twisted.fyrehose.node.client.publishing.send_queue import SendQueue
from fyrehose_twisted.fyrehose.wire.envelope import envelope_runs
from fyrehose_twisted.fyrehose.wire.packets import MAX_HOLDINGS, Dialect, Holding
from fyrehose_twisted.fyrehose.wire.run_codec import encode_pushes

GATHER_TIME = 0.0002
"""Seconds after a message within which the next ones wait for the end of the reactor's turn, to leave in bursts."""

MAX_UNSETTLED = 65_536
"""Maximum number of retransmitted messages that wait until their lowest number is certain."""


class PublishingSession:
    """Publishing side of a client.

    :param backbone: address of the backbone.
    :param keepalive: session with the backbone; messages are sent while it is connected.
    :param output: effects and events of the client.
    :ivar durability: published messages that wait for journals.
    :ivar unconfirmed_numbers: numbers of retransmitted messages for which a lower one is still possible.
    :ivar push_due_at: time of the next :meth:`tick`, if messages are to be sent.
    :ivar linger: activity of the client that subscribers may depend on.
    """

    def __init__(
        self,
        backbone: Address,
        config: ClientConfig,
        keepalive: KeepaliveSession,
        send_queue: SendQueue,
        counters: ClientCounters,
        output: NodeOutput,
    ) -> None:
        self.durability = DurabilityTracker()
        self.unconfirmed_numbers = UnconfirmedNumbers()
        self.linger = LingerState()
        self._backbone = backbone
        self._config = config
        self._keepalive = keepalive
        self._send_queue = send_queue
        self._counters = counters
        self._output = output
        self._linger_until_ticket: float = inf
        self.push_due_at: float | None = None
        self._gather_until = -inf

    def publish_many(self, payloads: Sequence[bytes], now: float, *, kept: int) -> range:
        """See :meth:`~fyrehose_twisted.fyrehose.node.client.client.Client.publish_many`."""
        if kept:
            self._check_durability(kept, len(payloads))
        tickets = self._send_queue.add(payloads, now)
        if kept:
            until = now + self._config.outbox.timeout
            self.durability.require(tickets, kept, until)
            self._keepalive.watch_journals(now, until)
        if self.push_due_at is None:
            if now < self._gather_until:
                self.push_due_at = now  # All that are published before the next tick leave together, in bursts.
            else:
                self._push(now)
            self._gather_until = now + GATHER_TIME
        return tickets

    def prepare_to_leave(self) -> None:
        """Let the client leave without regard to messages published from now on."""
        self._linger_until_ticket = float(self._send_queue.next_ticket)

    def messages_seen(self, first: int, messages: Sequence[bytes], now: float) -> None:
        """Acknowledge own messages among those that are received for the first time."""
        if not len(self._send_queue) and not len(self.unconfirmed_numbers):
            return
        found: list[tuple[int, int]] = []
        if self._config.outbox.raw:
            for sequence, data in enumerate(messages, first):
                ticket = self._send_queue.acknowledge_raw(data, now)
                if ticket is not None:
                    found.append((ticket, sequence))
        else:
            own = self._send_queue.pending_run(messages)
            row = 0
            for envelope, count in envelope_runs(messages) if own is None else [(own, len(messages))]:
                if envelope is not None and envelope.publisher == self._send_queue.publisher:
                    ahead = first + row - envelope.counter
                    if own is None and self._send_queue.is_sealed:
                        part = messages[row : row + count]
                        for ticket in self._send_queue.genuine(envelope.counter, part):
                            found += self._acknowledged(ticket, 1, ahead, now)
                    else:
                        found += self._acknowledged(envelope.counter, count, ahead, now)
                row += count
        self._numbers_assigned(found, now)

    def _acknowledged(self, counter: int, count: int, ahead: int, now: float) -> list[tuple[int, int]]:
        """Acknowledge own messages; return those whose numbers, ``ahead`` of their tickets, are certain."""
        queue = self._send_queue
        self.unconfirmed_numbers.lower(range(counter, counter + count), ahead)
        tickets = queue.acknowledge(range(counter, counter + count), now)
        if not queue.retransmitted.isdisjoint(tickets):
            tickets = [ticket for ticket in tickets if not self._await_lowest_number(ticket, ahead)]
        return [(ticket, ticket + ahead) for ticket in tickets]

    def stream_advanced(self, complete_up_to: int, now: float) -> None:
        """Settle the numbers of retransmitted messages in the complete part of the stream."""
        self._numbers_assigned(self.unconfirmed_numbers.take_confirmed(complete_up_to), now)

    def journals_synced(self, holdings: Sequence[Holding]) -> None:
        """Record the progress of the durable journals."""
        if len(self.durability):
            self._report_published(self.durability.holdings_received(holdings))

    def leader_changed(self, backbone: Address) -> None:
        """Send all messages that are not acknowledged to another backbone, or again to the one that lost the lead."""
        self._backbone = backbone
        self._send_queue.resend_all()

    def schedule_push(self, now: float) -> None:
        """Send due messages at the next tick.

        Loss detection and the window depend on all that was received, so they are left to the tick. If all messages
        are acknowledged, neither needs one.
        """
        if len(self._send_queue):
            self.push_due_at = now
        else:
            self._send_queue.nothing_can_be_lost()

    def expire(self, now: float) -> None:
        """Report messages that were not published, or not synced by enough journals, in time."""
        expired = self._send_queue.take_expired(now)
        if expired:
            self._counters.publish_failed += len(expired)
            self.durability.failed(expired)
            self._output.events.append(MessagesExpired(expired))
        unkept = self.durability.take_expired(now) if len(self.durability) else []
        if unkept:
            self._counters.unkept += len(unkept)
            self.linger.published(now)
            self._output.events.append(DurabilityExpired(unkept))

    def next_deadline(self) -> float:
        """Return the time at which a message is due to be sent or counts as lost; infinite if there is none."""
        due, timeout = self.push_due_at, self._send_queue.next_timeout()
        if timeout is None or not self._keepalive.connected:
            timeout = inf
        return timeout if due is None or due > timeout else due

    def tick(self, now: float) -> None:
        """Detect losses and send due messages."""
        self.push_due_at = None
        self._send_queue.detect_losses(now)
        self._push(now)

    def _check_durability(self, kept: int, count: int) -> None:
        if not 0 < kept <= MAX_HOLDINGS:
            raise ConfigurationError(f"kept={kept}: choose 1 to {MAX_HOLDINGS} journals")
        if self._config.dialect is Dialect.V1:
            raise ConfigurationError(f"kept={kept} needs dialect v2: version 1 does not report journals")
        if len(self.durability) + count > self._config.outbox.queue_messages:
            raise PublishQueueFull(
                f"{len(self.durability):,} messages wait for journals; wait for some of them before publishing more"
            )

    def _await_lowest_number(self, ticket: int, offset: int) -> bool:
        """Hold back the number of a retransmitted message while a lower one is possible. Return whether it is held."""
        if (
            not self._config.subscribe
            or not self._send_queue.was_retransmitted(ticket)
            or len(self.unconfirmed_numbers) >= MAX_UNSETTLED
        ):
            return False
        self.unconfirmed_numbers.add(ticket, ticket + offset)
        return True

    def _numbers_assigned(self, found: list[tuple[int, int]], now: float) -> None:
        """Handle messages whose numbers are certain."""
        if not found:
            return
        self._counters.published += len(found)
        if any(ticket < self._linger_until_ticket and ticket not in self.durability for ticket, _ in found):
            self.linger.published(now)
        self._report_published(self.durability.published(found))

    def _report_published(self, published: list[tuple[int, int]]) -> None:
        if not published:
            return
        events = self._output.events
        last = events[-1] if events else None
        if isinstance(last, MessagesPublished):
            last.messages.extend(published)
        else:
            events.append(MessagesPublished(published))

    def _push(self, now: float) -> None:
        if not self._keepalive.connected or not len(self._send_queue):
            return
        messages = self._send_queue.take_due(now)
        if messages:
            self._counters.pushes += len(messages)
            dialect, confirm = self._config.dialect, not self._config.subscribe
            again = self._send_queue.leading_retransmissions
            marked = self._keepalive.extensions_supported
            if marked and not self._config.outbox.raw:
                self._send_queue.window.retransmissions_recognised()
            pushes = encode_pushes(messages[:again], dialect, confirm, again=marked) if again else []
            pushes += encode_pushes(messages[again:], dialect, confirm)
            self._output.effects.append(Send(pushes, (self._backbone,)))
