"""What a publisher still has to get published: queued, under way, come back or timed out."""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import NamedTuple

from fyrehose_twisted.errors import MessageTooLarge, PublishQueueFull
from fyrehose_twisted.fyrehose.envelope import COUNTER_WINDOW, MAX_ENVELOPED, Envelope, wrap
from fyrehose_twisted.fyrehose.messages import MAX_DELIVERABLE
from fyrehose_twisted.fyrehose.window import Window, WindowConfig

REMEMBERED = 4_096
"""Messages that were sent again and came back, of which the first copy may come too."""


@dataclass(frozen=True, slots=True)
class OutboxConfig:
    """Limits of a publisher.

    :ivar raw: send payloads bare, without an envelope; then equal payloads acknowledge each other, and a
        message may be published more than once.
    :ivar queue_messages: messages that may wait, those under way included.
    :ivar queue_bytes: bytes that may wait.
    :ivar timeout: seconds after which a message that did not come back fails.
    """

    raw: bool = False
    queue_messages: int = 65_536
    queue_bytes: int = 64 * 2**20
    timeout: float = 30.0
    window: WindowConfig = field(default_factory=WindowConfig)


class Published(NamedTuple):
    """Event: messages came back. Pairs of the ticket that ``publish`` returned and the sequence number."""

    messages: list[tuple[int, int]]


class PublishFailed(NamedTuple):
    """Event: messages did not come back in time."""

    tickets: list[int]


@dataclass(slots=True)
class Outgoing:
    """A message on its way."""

    ticket: int
    data: bytes
    sent_at: float = 0.0
    attempts: int = 0
    lost: bool = False


class Outbox:
    """Messages of one publisher. A ticket is the message's counter in the envelope.

    :ivar retransmissions: PUSHes that were sent again.
    :ivar window: congestion window and timer.
    """

    def __init__(self, config: OutboxConfig, publisher: bytes) -> None:
        self.config = config
        self.publisher = publisher
        self.window = Window(config.window)
        self.retransmissions = 0
        self._next_ticket = 0
        self._lowest = 0
        self._size = 0
        self._waiting: dict[int, Outgoing] = {}
        self._queue: deque[Outgoing] = deque()
        self._resend: deque[Outgoing] = deque()
        self._under_way = 0
        self._once: deque[Outgoing] = deque()
        self._again: deque[Outgoing] = deque()
        self._expiry: deque[tuple[float, int]] = deque()
        self._returned: dict[int, float] = {}
        self._delivered: list[int] = []
        self._sent_again: OrderedDict[int, None] = OrderedDict()
        self._by_data: dict[bytes, deque[int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def fill(self) -> float:
        """How full the outbox is, from 0 to 1."""
        return max(len(self._waiting) / self.config.queue_messages, self._size / self.config.queue_bytes)

    def add(self, payload: bytes, now: float) -> int:
        """Queue a message and return its ticket.

        :raises MessageTooLarge: if it does not fit a datagram.
        :raises PublishQueueFull: if too much waits already.
        """
        limit = MAX_DELIVERABLE if self.config.raw else MAX_ENVELOPED
        if len(payload) > limit:
            raise MessageTooLarge(len(payload), limit)
        if len(self._waiting) >= self.config.queue_messages or self._size + len(payload) > self.config.queue_bytes:
            raise PublishQueueFull(
                f"{len(self._waiting):,} messages of {self._size:,} bytes wait to be published;"
                " wait for some of them before publishing more"
            )
        ticket = self._next_ticket
        self._next_ticket += 1
        data = bytes(payload) if self.config.raw else wrap(self.publisher, ticket, payload)
        message = Outgoing(ticket, data)
        self._waiting[ticket] = message
        self._queue.append(message)
        self._expiry.append((now + self.config.timeout, ticket))
        self._size += len(data)
        if self.config.raw:
            self._by_data.setdefault(data, deque()).append(ticket)
        return ticket

    def due(self, now: float) -> list[bytes]:
        """Return the DATA to be pushed now: what got lost first, then what the window lets out."""
        ready: list[bytes] = []
        while self._resend and self._under_way < self.window.size:
            message = self._resend.popleft()
            if message.ticket in self._waiting:
                self._sent(message, now)
                self.retransmissions += 1
                ready.append(message.data)
        # A publisher's counters in flight span less than the window in which subscribers recognise repeats.
        while self._lowest < self._next_ticket and self._lowest not in self._waiting:
            self._returned.pop(self._lowest, None)
            self._lowest += 1
        horizon = self._lowest + COUNTER_WINDOW // 2
        while self._queue and self._under_way < self.window.size and self._queue[0].ticket < horizon:
            message = self._queue.popleft()
            if message.ticket in self._waiting:
                self._sent(message, now)
                ready.append(message.data)
        return ready

    def returned(self, data: bytes, envelope: Envelope | None, now: float) -> int | None:
        """Look at a DELIVER; return the ticket if it is the first return of one of ours."""
        if self.config.raw:
            tickets = self._by_data.get(data)
            ticket = next((t for t in tickets or () if self._waiting[t].attempts), None)
        elif envelope is not None and envelope.publisher == self.publisher:
            ticket = envelope.counter
        else:
            return None
        if ticket is None:
            return None
        message = self._waiting.get(ticket)
        if message is None or not message.attempts:
            if ticket in self._sent_again:
                del self._sent_again[ticket]
                self.window.spurious()
            return None
        self._forget(message)
        if message.attempts == 1:
            self._returned[ticket] = message.sent_at
            self.window.returned(now - message.sent_at)
        else:
            self.window.returned(None)
            self._sent_again[ticket] = None
            if len(self._sent_again) > REMEMBERED:
                self._sent_again.popitem(last=False)
        return ticket

    def delivered(self, ticket: int) -> None:
        """The stream is complete up to our message ``ticket``; :meth:`judge` says what that means for others."""
        if ticket in self._returned:
            self._delivered.append(ticket)

    def judge(self) -> None:
        """Count as lost what was sent well before a message up to which the stream is complete, and did not come.

        This is the rule of RFC 8985: a message that was sent a reordering window later has arrived.
        """
        delivered, self._delivered = self._delivered, []
        for ticket in delivered:
            self._judge_by(ticket)

    def _judge_by(self, ticket: int) -> None:
        sent_at = self._returned.pop(ticket, None)
        if sent_at is None:
            return
        sent_at -= self.window.reordering
        while self._once:
            message = self._once[0]
            if message.ticket in self._waiting and message.attempts == 1 and not message.lost:
                if message.ticket >= ticket or message.sent_at > sent_at:
                    return
                self._lose(message)
            self._once.popleft()

    def expired(self, now: float) -> list[int]:
        """Give up and return the tickets of messages that did not come back in time."""
        tickets = []
        while self._expiry and (self._expiry[0][0] <= now or self._expiry[0][1] not in self._waiting):
            _, ticket = self._expiry.popleft()
            message = self._waiting.get(ticket)
            if message is not None:
                self._forget(message)
                tickets.append(ticket)
        for waiting in (self._queue, self._resend):
            while waiting and waiting[0].ticket not in self._waiting:
                waiting.popleft()
        return tickets

    def next_expiry(self) -> float | None:
        """Return when a message is to be given up."""
        return self._expiry[0][0] if self._expiry else None

    def next_timeout(self) -> float | None:
        """Return when a message is to be sent again."""
        sent_at = [sent[0].sent_at for sent in (self._once, self._again) if sent]
        return min(sent_at) + self.window.timeout if sent_at else None

    def _sent(self, message: Outgoing, now: float) -> None:
        message.attempts += 1
        message.lost = False
        message.sent_at = now
        self._under_way += 1
        (self._once if message.attempts == 1 else self._again).append(message)

    def time_out(self, now: float) -> None:
        """Count as lost what has been under way for too long."""
        timeout = self.window.timeout
        timed_out = False
        for sent in (self._once, self._again):
            while sent and (sent[0].sent_at + timeout <= now or sent[0].lost or sent[0].ticket not in self._waiting):
                message = sent.popleft()
                if message.ticket in self._waiting and not message.lost:
                    self._lose(message)
                    timed_out = True
        if timed_out:
            self.window.timed_out(now)

    def _lose(self, message: Outgoing) -> None:
        message.lost = True
        self._under_way -= 1
        self._resend.append(message)
        self.window.lost()

    def _forget(self, message: Outgoing) -> None:
        del self._waiting[message.ticket]
        self._size -= len(message.data)
        if message.attempts and not message.lost:
            self._under_way -= 1
        if not self._waiting:
            self._once.clear()
            self._again.clear()
            self._resend.clear()
        if self.config.raw:
            tickets = self._by_data[message.data]
            tickets.remove(message.ticket)
            if not tickets:
                del self._by_data[message.data]
