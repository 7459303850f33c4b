"""Send queue of a publisher: queued and in-flight messages, acknowledgement and loss detection."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence, Set
from itertools import repeat
from math import ceil, inf
from operator import add
from typing import NamedTuple

from fyrehose_twisted.errors import MessageTooLarge, PublishQueueFull
from fyrehose_twisted.fyrehose.config import OutboxConfig
from fyrehose_twisted.fyrehose.node.client.publishing.congestion import CongestionWindow
from fyrehose_twisted.fyrehose.node.client.publishing.in_flight import InFlight
from fyrehose_twisted.fyrehose.node.client.publishing.retransmissions import RetransmitQueue
from fyrehose_twisted.fyrehose.wire.envelope import (
    COUNTER_WINDOW,
    MAX_ENVELOPED,
    Envelope,
    encode_envelope,
    unwrap,
    wrap,
)
from fyrehose_twisted.fyrehose.wire.message_key import check_unkeyed, escape_payloads
from fyrehose_twisted.fyrehose.wire.packets import MAX_DELIVERABLE
from fyrehose_twisted.interfaces import IPayloadSealer

REMEMBERED_RETRANSMISSIONS = 4_096
"""Maximum number of acknowledged retransmissions to remember, because their first copy may arrive too."""

DATAGRAM_OVERHEAD = 512
"""Bytes of a receive buffer per datagram in addition to its data, unless it is part of a burst."""

RTT_SAMPLE_STRIDE = 32
"""Of messages that are sent together, one in so many is a round trip sample; more samples add nothing (RFC 7323)."""


class _Evidence(NamedTuple):
    """The latest message up to which the stream is complete: messages sent before it are lost, or late."""

    ticket: int
    sent_at: float


def max_payload(config: OutboxConfig, sealer: IPayloadSealer | None) -> int:
    """Return the maximum size of a payload in bytes, for which the envelope and the seal leave room."""
    limit = MAX_DELIVERABLE if config.raw else MAX_ENVELOPED
    return limit if sealer is None else limit - int(sealer.overhead)


class SendQueue:
    """Send queue of one publisher. A ticket is the counter of the message in its envelope.

    :param first: first ticket.
    :param sealer: seals the payloads; ``None`` to publish them as they are.
    :param receive_buffer: size in bytes of the receive buffer of this socket, which is assumed for the other sockets
        too. It limits the messages in flight; ``None`` for no such limit.
    :ivar next_ticket: ticket of the next message to be queued.
    :ivar retransmissions: number of retransmitted PUSHes.
    :ivar leading_retransmissions: number of retransmissions at the start of the last result of :meth:`take_due`.
    :ivar window: congestion window and timer.
    """

    def __init__(
        self,
        config: OutboxConfig,
        publisher: bytes,
        *,
        receive_buffer: int | None = None,
        first: int = 0,
        sealer: IPayloadSealer | None = None,
    ) -> None:
        self.config = config
        self._receive_buffer = receive_buffer
        self._sealer = sealer
        self.publisher = publisher
        self.window = CongestionWindow(config.window)
        self.retransmissions = 0
        self.leading_retransmissions = 0
        self._lowest_pending = self._next_unsent = self.next_ticket = first
        self._size = 0
        self._pending: dict[int, bytes] = {}
        self._expiry: deque[tuple[float, range]] = deque()
        self._in_flight = InFlight()
        self._retransmit_queue = RetransmitQueue()
        self._acked_sent_at: dict[int, float] = {}
        self._completed: list[int] = []
        self._acked_retransmissions: OrderedDict[int, None] = OrderedDict()
        self._by_data: dict[bytes, deque[int]] = {}
        self._sampled_at = 0.0
        self._evidence: _Evidence | None = None
        self._overtaken: tuple[float, _Evidence] | None = None

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def fill_ratio(self) -> float:
        """Fill ratio of the queue, from 0 to 1."""
        return max(len(self._pending) / self.config.queue_messages, self._size / self.config.queue_bytes)

    @property
    def max_payload(self) -> int:
        """Maximum size of a payload in bytes."""
        return max_payload(self.config, self._sealer)

    def add(self, payloads: Sequence[bytes], now: float) -> range:
        """Queue messages, all or none, and return their tickets.

        :raises MessageTooLarge: if a message does not fit a datagram.
        :raises PublishQueueFull: if the queue has no room for all messages.
        :raises ConfigurationError: if a message with a key is to be published without an envelope.
        """
        limit = self.max_payload
        if self.config.raw:
            check_unkeyed(payloads)
        else:
            payloads = escape_payloads(payloads)
        sizes = list(map(len, payloads))
        longest, size = max(sizes), sum(sizes)
        if longest > limit:
            raise MessageTooLarge(longest, limit)
        if (
            len(self._pending) + len(payloads) > self.config.queue_messages
            or self._size + size > self.config.queue_bytes
        ):
            raise PublishQueueFull(
                f"{len(self._pending):,} messages of {self._size:,} bytes wait to be published;"
                " wait for some of them before publishing more"
            )
        tickets = range(self.next_ticket, self.next_ticket + len(payloads))
        messages = self._sealed(payloads, tickets, now) if self._sealer else self._plain(payloads, tickets)
        self.next_ticket = tickets.stop
        if self.config.raw:
            for ticket, data in zip(tickets, messages, strict=True):
                self._by_data.setdefault(data, deque()).append(ticket)
        self._pending.update(zip(tickets, messages, strict=True))
        self._expiry.append((now + self.config.timeout, tickets))
        self._size += sum(map(len, messages))
        return tickets

    def _plain(self, payloads: Sequence[bytes], tickets: range) -> list[bytes]:
        if self.config.raw:
            return list(map(bytes, payloads))
        return list(map(wrap, repeat(self.publisher), tickets, payloads))

    def _sealed(self, payloads: Sequence[bytes], tickets: range, now: float) -> list[bytes]:
        assert self._sealer is not None
        if self.config.raw:
            return self._sealer.seal(payloads, [b""] * len(payloads), now)
        envelopes = list(map(encode_envelope, repeat(self.publisher), tickets))
        return list(map(add, envelopes, self._sealer.seal(payloads, envelopes, now)))

    def take_due(self, now: float) -> list[bytes]:
        """Return the DATA to push now: :attr:`leading_retransmissions` lost ones, then new ones within the window."""
        room = ceil(self._window_limit() - len(self._in_flight) - self._retransmit_queue.in_flight)
        ready: list[bytes] = []
        while len(ready) < room and (lost := self._retransmit_queue.send_next(now)) is not None:
            ready.append(self._pending[lost])
        self.leading_retransmissions = len(ready)
        self.retransmissions += len(ready)
        self._advance_lowest()
        # A publisher's counters in flight span less than the window in which subscribers recognise repeats.
        end = min(self.next_ticket, self._lowest_pending + COUNTER_WINDOW // 2)
        while self._next_unsent < end and len(ready) < room:
            span = range(self._next_unsent, min(self._next_unsent + room - len(ready), end))
            self._next_unsent = span.stop
            # Messages may have expired before they were sent.
            tickets = [ticket for ticket in span if ticket in self._pending]
            self._in_flight.send(tickets, span, now)
            ready += [self._pending[ticket] for ticket in tickets]
        return ready

    @property
    def retransmitted(self) -> Set[int]:
        """Acknowledged messages that were sent more than once, so that they may have several numbers."""
        return self._acked_retransmissions.keys()

    def pending_run(self, messages: Sequence[bytes]) -> Envelope | None:
        """Return the envelope of the first of ``messages`` if they are consecutive own messages in this queue."""
        first = unwrap(messages[0])
        if first is None or first.publisher != self.publisher:
            return None
        tickets = range(first.counter, first.counter + len(messages))
        return first if list(map(self._pending.get, tickets)) == list(messages) else None

    @property
    def is_sealed(self) -> bool:
        """Whether payloads are sealed."""
        return self._sealer is not None

    def genuine(self, first: int, messages: Sequence[bytes]) -> list[int]:
        """Return the tickets of messages, which are consecutive by their envelopes, without those that are forged.

        Of messages that were acknowledged before, only the envelope is known.

        :param first: ticket of the first message.
        """
        tickets = range(first, first + len(messages))
        return [
            ticket for ticket, data in zip(tickets, messages, strict=True) if self._pending.get(ticket, data) == data
        ]

    def was_retransmitted(self, ticket: int) -> bool:
        """Return whether an acknowledged message was sent more than once, so that it may have several numbers."""
        return ticket in self._acked_retransmissions

    def acknowledge_raw(self, data: bytes, now: float) -> int | None:
        """Handle a DELIVER without an envelope. Return the ticket if this acknowledges a message of the queue."""
        ticket = next((ticket for ticket in self._by_data.get(data, ()) if ticket < self._next_unsent), None)
        return ticket if ticket is not None and self._acknowledge_one(ticket, now) else None

    def acknowledge(self, tickets: range, now: float) -> list[int]:
        """Handle consecutive DELIVERs of own messages. Return the tickets that are acknowledged for the first time."""
        if len(tickets) == 1:
            return list(tickets) if self._acknowledge_one(tickets[0], now) else []
        times = self._in_flight.sent_times(tickets)
        if times is None:
            return [ticket for ticket in tickets if self._acknowledge_one(ticket, now)]
        self._in_flight.acknowledge(tickets)
        self._size -= sum(map(len, map(self._pending.pop, tickets)))
        self._clear_if_idle()
        self._acked_sent_at.update(zip(tickets, times, strict=True))
        counted = 0
        for row in self._rtt_samples(tickets, times):
            self.window.acknowledged(None, row - counted)
            self.window.acknowledged(now - times[row])
            counted = row + 1
        self.window.acknowledged(None, len(tickets) - counted)
        return list(tickets)

    def _acknowledge_one(self, ticket: int, now: float) -> bool:
        if ticket not in self._pending or ticket >= self._next_unsent:
            if ticket in self._acked_retransmissions:
                del self._acked_retransmissions[ticket]
                self.window.spurious_retransmission()
            return False
        sent_at = self._remove(ticket)
        if sent_at is not None:
            self._acked_sent_at[ticket] = sent_at
            is_sample = sent_at != self._sampled_at or ticket % RTT_SAMPLE_STRIDE == 0
            self._sampled_at = sent_at
            self.window.acknowledged(now - sent_at if is_sample else None)
        else:
            self.window.acknowledged(None)
            self._acked_retransmissions[ticket] = None
            if len(self._acked_retransmissions) > REMEMBERED_RETRANSMISSIONS:
                self._acked_retransmissions.popitem(last=False)
        return True

    def _rtt_samples(self, tickets: range, times: list[float]) -> list[int]:
        """Return the rows that are round trip samples: the first of the messages sent together, and some more."""
        if times[0] == times[-1] == self._sampled_at:
            return list(range(-tickets[0] % RTT_SAMPLE_STRIDE, len(tickets), RTT_SAMPLE_STRIDE))
        rows = []
        for row, sent_at in enumerate(times):
            if sent_at != self._sampled_at or (tickets[0] + row) % RTT_SAMPLE_STRIDE == 0:
                self._sampled_at = sent_at
                rows.append(row)
        return rows

    def stream_completed(self, ticket: int, count: int = 1) -> None:
        """Record that the stream is complete up to ``count`` own messages from ``ticket`` on, for
        :meth:`detect_losses`."""
        self._completed += [ticket for ticket in range(ticket, ticket + count) if ticket in self._acked_sent_at]

    def nothing_can_be_lost(self) -> None:
        """Forget what :meth:`detect_losses` would need, because no message is in flight."""
        self._completed.clear()

    def detect_losses(self, now: float) -> None:
        """Mark messages as lost that were sent a reordering window before one up to which the stream is complete.

        This is the rule of RFC 8985. It applies to retransmissions, too. :meth:`detect_timeouts` marks the messages
        sent just before that one after the reordering window, because a burst is sent at one time.
        """
        if not self._completed:
            return
        # The latest one implies the others.
        latest = max(self._completed)
        sent_at = self._acked_sent_at.get(latest)
        for ticket in self._completed:
            self._acked_sent_at.pop(ticket, None)
        self._completed.clear()
        if sent_at is not None:
            self._mark_overtaken(latest, sent_at - self.window.reordering_window)
            self._evidence = _Evidence(latest, sent_at)
            self._await_late_messages(now)

    def _await_late_messages(self, now: float) -> None:
        if self._overtaken is None and self._evidence is not None:
            self._overtaken = now + self.window.reordering_window, self._evidence
            self._evidence = None

    def _mark_overtaken(self, ticket: int, sent_at: float) -> None:
        late = self._in_flight.take_overtaken(ticket, sent_at)
        self._mark_lost(late, self._retransmit_queue.mark_overtaken(sent_at))

    def take_expired(self, now: float) -> list[int]:
        """Remove and return the tickets of messages that were not acknowledged in time."""
        expired = []
        self._advance_lowest()
        while self._expiry and (self._expiry[0][0] <= now or self._expiry[0][1][-1] < self._lowest_pending):
            _, tickets = self._expiry.popleft()
            for ticket in tickets:
                if ticket in self._pending:
                    self._remove(ticket)
                    expired.append(ticket)
        return expired

    def next_expiry(self) -> float | None:
        """Return the time at which a message expires, or ``None``."""
        return self._expiry[0][0] if self._expiry else None

    def next_timeout(self) -> float | None:
        """Return the time at which the retransmission timer fires, or ``None``."""
        first, again = self._in_flight.earliest_sent_at, self._retransmit_queue.earliest_sent_at
        if first is None or (again is not None and again < first):
            first = again
        if first is None:
            return None
        timeout = first + self.window.timeout
        return timeout if self._overtaken is None else min(timeout, self._overtaken[0])

    def detect_timeouts(self, now: float) -> None:
        """Mark messages as lost that were overtaken, or have been in flight for longer than the timeout."""
        if self._overtaken is not None and now >= self._overtaken[0]:
            self._mark_overtaken(*self._overtaken[1])
            self._overtaken = None
            self._await_late_messages(now)
        timeout = self.window.timeout
        late = self._in_flight.take_timed_out(now, timeout)
        again = self._retransmit_queue.mark_timed_out(now, timeout)
        self._mark_lost(late, again)
        if late or again:
            self.window.timed_out(now)

    def resend_all(self) -> None:
        """Send all messages in flight again, in order. The backbone that they were sent to does not answer any more."""
        for ticket, sent_at in self._in_flight.take_timed_out(inf, 0.0):
            self._retransmit_queue.mark_lost(ticket, sent_at)
        self._retransmit_queue.mark_all_lost()
        self.window.restart_timer()

    def _window_limit(self) -> float:
        """Return the maximum number of messages in flight."""
        if self._receive_buffer is None or not self._pending:
            return self.window.size
        cost = self._size / len(self._pending) + DATAGRAM_OVERHEAD
        return min(self.window.size, max(1.0, self._receive_buffer / cost))

    def _advance_lowest(self) -> None:
        while self._lowest_pending < self.next_ticket and self._lowest_pending not in self._pending:
            self._acked_sent_at.pop(self._lowest_pending, None)
            self._lowest_pending += 1

    def _mark_lost(self, lost: list[tuple[int, float]], again: int) -> None:
        """Queue messages that were lost for the first time; ``again`` retransmissions are lost, too."""
        for ticket, sent_at in lost:
            self._retransmit_queue.mark_lost(ticket, sent_at)
        self.window.settled(len(lost) + again, self._in_flight.settled + self._retransmit_queue.settled)
        self._in_flight.settled = self._retransmit_queue.settled = 0

    def _remove(self, ticket: int) -> float | None:
        """Remove a message. Return its send time if it was sent once, else ``None``."""
        data = self._pending.pop(ticket)
        self._size -= len(data)
        sent_at, retry = self._in_flight.pop(ticket), self._retransmit_queue.pop(ticket)
        if retry is not None and retry.attempts == 1:
            sent_at = retry.sent_at  # It was marked as lost too early, and not retransmitted yet.
        if self.config.raw:
            tickets = self._by_data[data]
            tickets.remove(ticket)
            if not tickets:
                del self._by_data[data]
        self._clear_if_idle()
        return sent_at

    def _clear_if_idle(self) -> None:
        """Discard the state of completed messages if the queue is empty."""
        if not self._pending:
            self._in_flight.clear()
            self._retransmit_queue.clear()
            self._evidence = self._overtaken = None
