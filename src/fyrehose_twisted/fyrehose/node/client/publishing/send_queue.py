"""What a publisher still has to get published: queued, under way, come back or timed out."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import repeat
from math import ceil

from fyrehose_twisted.errors import MessageTooLarge, PublishQueueFull
from fyrehose_twisted.fyrehose.config import OutboxConfig
from fyrehose_twisted.fyrehose.node.client.publishing.congestion import Window
from fyrehose_twisted.fyrehose.node.client.publishing.in_flight import Flights
from fyrehose_twisted.fyrehose.node.client.publishing.retransmissions import Retries
from fyrehose_twisted.fyrehose.wire.envelope import COUNTER_WINDOW, ENVELOPE_SIZE, MAX_ENVELOPED, wrap
from fyrehose_twisted.fyrehose.wire.packets import MAX_DELIVERABLE

REMEMBERED = 4_096
"""Messages that were sent again and came back, of which the first copy may come too."""

DATAGRAM_OVERHEAD = 512
"""Bytes that a datagram takes in a receive buffer beside its data, unless it lies in a burst."""

SAMPLED = 32
"""Of those that left together, the round trip of one in so many is measured; more would say nothing new (RFC 7323)."""


class Outbox:
    """Messages of one publisher. A ticket is the message's counter in the envelope.

    :param first: the first ticket.
    :param receive_buffer: bytes that the kernel keeps for our socket, and so probably for those of others: no more than
        they hold is under way. ``None`` for no such limit.
    :ivar next_ticket: that of the message to be queued next.
    :ivar retransmissions: PUSHes that were sent again.
    :ivar again: how many of those that :meth:`due` returned last were sent before.
    :ivar window: congestion window and timer.
    """

    def __init__(
        self, config: OutboxConfig, publisher: bytes, *, receive_buffer: int | None = None, first: int = 0
    ) -> None:
        self.config = config
        self._receive_buffer = receive_buffer
        self.publisher = publisher
        self.window = Window(config.window)
        self.retransmissions = 0
        self.again = 0
        self._lowest = self._unsent = self.next_ticket = first
        self._size = 0
        self._waiting: dict[int, bytes] = {}
        self._expiry: deque[tuple[float, range]] = deque()
        self._flights = Flights()
        self._retries = Retries()
        self._returned: dict[int, float] = {}
        self._delivered: list[int] = []
        self._may_come_twice: OrderedDict[int, None] = OrderedDict()
        self._by_data: dict[bytes, deque[int]] = {}
        self._sampled_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def fill(self) -> float:
        """How full the outbox is, from 0 to 1."""
        return max(len(self._waiting) / self.config.queue_messages, self._size / self.config.queue_bytes)

    def add(self, payloads: Sequence[bytes], now: float) -> range:
        """Queue messages, all or none, and return their tickets.

        :raises MessageTooLarge: if it does not fit a datagram.
        :raises PublishQueueFull: if too much waits already.
        """
        limit = MAX_DELIVERABLE if self.config.raw else MAX_ENVELOPED
        longest, size = max(map(len, payloads)), sum(map(len, payloads))
        if longest > limit:
            raise MessageTooLarge(longest, limit)
        if (
            len(self._waiting) + len(payloads) > self.config.queue_messages
            or self._size + size > self.config.queue_bytes
        ):
            raise PublishQueueFull(
                f"{len(self._waiting):,} messages of {self._size:,} bytes wait to be published;"
                " wait for some of them before publishing more"
            )
        tickets = range(self.next_ticket, self.next_ticket + len(payloads))
        self.next_ticket = tickets.stop
        if self.config.raw:
            messages = list(map(bytes, payloads))
            for ticket, data in zip(tickets, messages, strict=True):
                self._by_data.setdefault(data, deque()).append(ticket)
        else:
            messages = list(map(wrap, repeat(self.publisher), tickets, payloads))
            size += ENVELOPE_SIZE * len(payloads)
        self._waiting.update(zip(tickets, messages, strict=True))
        self._expiry.append((now + self.config.timeout, tickets))
        self._size += size
        return tickets

    def due(self, now: float) -> list[bytes]:
        """Return the DATA to be pushed now: :attr:`again` that got lost first, then what the window lets out."""
        room = ceil(self._allowed() - len(self._flights) - self._retries.under_way)
        ready: list[bytes] = []
        while len(ready) < room and (lost := self._retries.send_next(now)) is not None:
            ready.append(self._waiting[lost])
        self.again = len(ready)
        self.retransmissions += len(ready)
        self._settle_lowest()
        # A publisher's counters in flight span less than the window in which subscribers recognise repeats.
        end = min(self.next_ticket, self._lowest + COUNTER_WINDOW // 2)
        while self._unsent < end and len(ready) < room:
            span = range(self._unsent, min(self._unsent + room - len(ready), end))
            self._unsent = span.stop
            # Some may have been given up before they were sent.
            tickets = [ticket for ticket in span if ticket in self._waiting]
            self._flights.send(tickets, span, now)
            ready += [self._waiting[ticket] for ticket in tickets]
        return ready

    def sent_again(self, ticket: int) -> bool:
        """Say whether a message that has returned was sent more than once, so that it may have several numbers."""
        return ticket in self._may_come_twice

    def raw_returned(self, data: bytes, now: float) -> int | None:
        """A DELIVER came, and nothing says whose it is; return the ticket if it is the first return of one of ours."""
        ticket = next((ticket for ticket in self._by_data.get(data, ()) if ticket < self._unsent), None)
        return ticket if ticket is not None and self._one_returned(ticket, now) else None

    def returned(self, tickets: range, now: float) -> list[int]:
        """DELIVERs of ours came, one after the other; return the tickets of those that came for the first time."""
        if len(tickets) == 1:
            return list(tickets) if self._one_returned(tickets[0], now) else []
        times = self._flights.times(tickets)
        if times is None:
            return [ticket for ticket in tickets if self._one_returned(ticket, now)]
        self._flights.come_back(tickets)
        self._size -= sum(map(len, map(self._waiting.pop, tickets)))
        self._let_go()
        self._returned.update(zip(tickets, times, strict=True))
        counted = 0
        for row in self._samples(tickets, times):
            self.window.returned(None, row - counted)
            self.window.returned(now - times[row])
            counted = row + 1
        self.window.returned(None, len(tickets) - counted)
        return list(tickets)

    def _one_returned(self, ticket: int, now: float) -> bool:
        if ticket not in self._waiting or ticket >= self._unsent:
            if ticket in self._may_come_twice:
                del self._may_come_twice[ticket]
                self.window.spurious()
            return False
        sent_at = self._forget(ticket)
        if sent_at is not None:
            self._returned[ticket] = sent_at
            self.window.returned(now - sent_at if self._samples(range(ticket, ticket + 1), [sent_at]) else None)
        else:
            self.window.returned(None)
            self._may_come_twice[ticket] = None
            if len(self._may_come_twice) > REMEMBERED:
                self._may_come_twice.popitem(last=False)
        return True

    def _samples(self, tickets: range, times: list[float]) -> list[int]:
        """Return which of those that came back are measured: the first of all that left together, and some more."""
        if times[0] == times[-1] == self._sampled_at:
            return list(range(-tickets[0] % SAMPLED, len(tickets), SAMPLED))
        rows = []
        for row, sent_at in enumerate(times):
            if sent_at != self._sampled_at or (tickets[0] + row) % SAMPLED == 0:
                self._sampled_at = sent_at
                rows.append(row)
        return rows

    def delivered(self, ticket: int, count: int = 1) -> None:
        """The stream is complete up to our message ``ticket``, and to those that follow it up to ``count`` in all;
        :meth:`judge` says what that means for others."""
        self._delivered += [ticket for ticket in range(ticket, ticket + count) if ticket in self._returned]

    def judge(self) -> None:
        """Count as lost what was sent well before a message up to which the stream is complete, and did not come.

        This is the rule of RFC 8985: a message that was sent a reordering window later has arrived.
        """
        if not self._delivered:
            return
        # The latest of them says all that the others do.
        latest = max(self._delivered)
        sent_at = self._returned.get(latest)
        for ticket in self._delivered:
            self._returned.pop(ticket, None)
        self._delivered.clear()
        if sent_at is not None:
            self._lose(self._flights.overtaken(latest, sent_at - self.window.reordering))

    def expired(self, now: float) -> list[int]:
        """Give up and return the tickets of messages that did not come back in time."""
        given_up = []
        self._settle_lowest()
        while self._expiry and (self._expiry[0][0] <= now or self._expiry[0][1][-1] < self._lowest):
            _, tickets = self._expiry.popleft()
            for ticket in tickets:
                if ticket in self._waiting:
                    self._forget(ticket)
                    given_up.append(ticket)
        return given_up

    def next_expiry(self) -> float | None:
        """Return when a message is to be given up."""
        return self._expiry[0][0] if self._expiry else None

    def next_timeout(self) -> float | None:
        """Return when a message is to be sent again."""
        earliest = [at for at in (self._flights.earliest, self._retries.earliest) if at is not None]
        return min(earliest) + self.window.timeout if earliest else None

    def time_out(self, now: float) -> None:
        """Count as lost what has been under way for too long."""
        timeout = self.window.timeout
        late = self._flights.late(now, timeout)
        self._lose(late)
        again = self._retries.late(now, timeout)
        for _ in range(again):
            self.window.lost()
        if late or again:
            self.window.timed_out(now)

    def _allowed(self) -> float:
        """Return how many messages may be under way."""
        if self._receive_buffer is None or not self._waiting:
            return self.window.size
        cost = self._size / len(self._waiting) + DATAGRAM_OVERHEAD
        return min(self.window.size, max(1.0, self._receive_buffer / cost))

    def _settle_lowest(self) -> None:
        while self._lowest < self.next_ticket and self._lowest not in self._waiting:
            self._returned.pop(self._lowest, None)
            self._lowest += 1

    def _lose(self, lost: list[tuple[int, float]]) -> None:
        for ticket, sent_at in lost:
            self._retries.lose(ticket, sent_at)
            self.window.lost()

    def _forget(self, ticket: int) -> float | None:
        """Let go of a message; return when it was sent if that was once."""
        data = self._waiting.pop(ticket)
        self._size -= len(data)
        sent_at, retry = self._flights.pop(ticket), self._retries.pop(ticket)
        if retry is not None and retry.attempts == 1:
            sent_at = retry.sent_at  # It was given up too early, and not sent again yet.
        if self.config.raw:
            tickets = self._by_data[data]
            tickets.remove(ticket)
            if not tickets:
                del self._by_data[data]
        self._let_go()
        return sent_at

    def _let_go(self) -> None:
        """Keep nothing of messages that are done."""
        if not self._waiting:
            self._flights.clear()
            self._retries.clear()
