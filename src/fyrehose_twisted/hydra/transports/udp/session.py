"""A reliable stream between two UDP addresses, without I/O; its datagrams are of
:mod:`~fyrehose_twisted.hydra.transports.udp.datagrams`.

An open session ends when the other side closes it, cuts it off or has been started anew, or when nothing new has come
for ``max_ping``. A RESET says that nobody knows a session; anybody with the secret can be made to say so of any
session, so it only makes this side ask, and be content with a short time for the answer.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from fyrehose_twisted.effects import Address
from fyrehose_twisted.hydra.transports.udp.datagrams import (
    ABORT,
    ACCEPT,
    ACCEPT_BODY,
    COOKIE,
    DATA,
    FIN,
    HEAD,
    ID_SIZE,
    INIT,
    INIT_SIZE,
    OPEN,
    OPEN_BODY,
    PAYLOAD,
    REFUSE,
    WINDOW,
    Keys,
    Token,
    seal,
    unseal,
)

WAITING = 16 * 2**20
"""Bytes that may wait to be sent; with more, the session ends."""
RETRY, LONGEST_RETRY = 0.2, 2.0
"""Seconds until something is sent again: at first, doubled each time, and at most."""
ACK_DELAY = 0.02
"""Seconds that an acknowledgement may wait for something to travel with."""
LINGER = 1.0
"""Seconds that the end of the stream may take to be acknowledged."""
PENDING = 3.0
"""Seconds that an accepted session may take to open."""
DOUBT = 0.5
"""Seconds that a session is given to show that it lives after somebody said that nobody knows it."""
_FIRST_WINDOW, _LEAST_WINDOW = 32, 4
_REORDERED = 3
"""A datagram counts as lost once one has arrived that was sent so many after it."""


class Ending(Enum):
    """Why a session is over."""

    CLOSED = "closed"
    ABORTED = "aborted here"
    SILENT = "silent"
    RESET = "cut off by the other side, or unknown there"
    RESTARTED = "the other side was started anew"
    REFUSED = "refused"
    UNREAD = "too much waited to be sent"


class Drained(NamedTuple):
    """What has become of a session since the last time."""

    datagrams: list[bytes]
    """To be sent, in order."""
    data: bytes
    """Received, in order; all of it before the end."""
    ended: Ending | None
    """Why it is over, if it is."""


@dataclass(slots=True)
class Flight:
    """A part of the stream that is not known to have arrived.

    :ivar number: of the datagram that carried it last.
    :ivar since: when it was sent first.
    """

    sequence: int
    kind: int
    payload: bytes
    number: int
    sent: float
    since: float
    tries: int = 1


class Session:
    """One end of a stream.

    :param address: the other end.
    :param max_ping: seconds without anything new, after which it is lost.
    :param instance: tells this process from one that has the same address later.
    :param opening: id and instance of the other end, if that dialled.
    :param token: where random bytes come from.
    :ivar opened: whether both sides know of it.
    :ivar ended: why it is over.
    :ivar armed: for :class:`Station`.
    """

    def __init__(
        self,
        address: Address,
        now: float,
        *,
        keys: Keys,
        max_ping: float,
        instance: bytes,
        opening: tuple[bytes, bytes] | None = None,
        token: Token = os.urandom,
        counters: Counter[str] | None = None,
    ) -> None:
        self.address = address
        self.local = token(ID_SIZE)
        self.remote, self.instance = (b"", b"") if opening is None else opening
        self.dialled = opening is None
        self.opened = False
        self.ended: Ending | None = None
        self.armed: float | None = None
        self.counters: Counter[str] = Counter() if counters is None else counters
        self._keys = keys
        self._own_instance = instance
        self._max_ping = max_ping
        self._now = self._heard = self._sent = now
        self._out: list[bytes] = []
        self._data: list[bytes] = []
        self._greeting = b""
        self._greetings = 0
        self._greet_at: float | None = None
        self._send_key: bytes | None = None
        self._receive_key: bytes | None = None

        self._number = self._highest = 0
        """Of the last datagram that was sent, and of the newest that came."""
        self._unsent = bytearray()
        self._next = 1
        self._flights: dict[int, Flight] = {}
        """What is not known to have arrived, in order of the stream."""
        self._flying: dict[int, Flight] = {}
        """What of that may still arrive, in the order in which it was sent."""
        self._missing: dict[int, Flight] = {}
        """What of it is to be sent again."""
        self._on_way = 0
        self._room: float = _FIRST_WINDOW
        self._slow_from: float = WINDOW
        self._recover = 0
        self._round_trip = 0.0
        self._backoff = 0
        self._must_send = False
        self._closing = self._fin_sent = False
        self._fin_at: float | None = None
        self._doubt_at: float | None = None

        self._expected = 1
        self._early: dict[int, tuple[int, bytes]] = {}
        self._mask = 0
        """Bit n stands for the part ``_expected + 1 + n``."""
        self._unacked = 0
        self._ack_at: float | None = None
        self._ack_now = False

        if opening is None:
            self._greet(bytes((INIT,)) + self.local + bytes(INIT_SIZE - 1 - ID_SIZE))
        else:
            self._receive_key, self._send_key = keys.between(self.remote, self.local)
            self.accept_again()

    @property
    def waiting(self) -> int:
        """Bytes that were written and are not known to have arrived."""
        return len(self._unsent) + self._on_way

    # What goes in

    def write(self, data: bytes, now: float) -> None:
        """Send bytes; what is written after :meth:`close` is not sent."""
        self._now = now
        if self.ended is None and not self._closing:
            self._unsent += data
            if self.waiting > WAITING:
                self._end(Ending.UNREAD, tell=True)

    def close(self, now: float) -> None:
        """End it once everything that was written has arrived."""
        self._now = now
        if self.ended is None and not self.opened:
            self._end(Ending.ABORTED, tell=True)
        self._closing = True

    def end(self, reason: Ending, now: float) -> None:
        """End it at once; the other side is told, unless it is that which ended it."""
        self._now = now
        if self.ended is None:
            self._end(reason, tell=reason is Ending.ABORTED)

    def doubt(self, now: float) -> None:
        """Somebody says that the other side does not know it."""
        self._now = now
        if self.opened and self.ended is None and self._doubt_at is None:
            self._doubt_at = now + max(DOUBT, 3 * self._round_trip)
            self._must_send = not self._fin_sent

    def accept_again(self) -> None:
        """The other side has asked (again) for the session."""
        if not self.opened:
            accept = ACCEPT_BODY.pack(ACCEPT, self.remote, self.local, self._own_instance)
            self._out.append(seal(accept, self._keys.common))

    def receive(self, datagram: bytes, now: float) -> None:
        """A datagram for this session came."""
        self._now = now
        if self.ended is not None:
            return
        kind = datagram[0]
        if kind in (DATA, FIN, ABORT):
            if self.remote:
                self._receive_part(datagram)
            else:
                self.counters["malformed"] += 1
            return
        body = unseal(datagram, self._keys.common)
        if body is None:
            self.counters["unproved"] += 1
        elif not self.dialled or self.opened:
            self.counters["late"] += 1
        elif kind == COOKIE and len(body) == 1 + ID_SIZE + 16:
            # The first counts; another one may be old.
            if self._greeting[0] == INIT:
                self._greet(OPEN_BODY.pack(OPEN, self.local, body[1 + ID_SIZE :], self._own_instance))
        elif kind == ACCEPT and len(body) == ACCEPT_BODY.size and self._greeting[0] == OPEN:
            _, _, self.remote, self.instance = ACCEPT_BODY.unpack(body)
            self._send_key, self._receive_key = self._keys.between(self.local, self.remote)
            self._greet_at = None
            self._heard = now
            self.opened = self._must_send = True
        elif kind == REFUSE and len(body) == 1 + ID_SIZE:
            self._end(Ending.REFUSED)
        else:
            self.counters["malformed"] += 1

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._now = now
        if self.ended is not None:
            return
        if not self.dialled and not self.opened:
            if now >= self._heard + PENDING:
                self._end(Ending.SILENT)
            return
        oldest = next(iter(self._flights.values()), None)
        if now >= self._heard + self._max_ping or (
            # The other side lives, but what is sent there does not arrive: large datagrams may be lost on the way.
            oldest is not None and now >= oldest.since + 3 * self._max_ping
        ):
            self._end(Ending.SILENT, tell=True)
            return
        if self._fin_at is not None and now >= self._fin_at:
            self._end(Ending.CLOSED, tell=True)
            return
        if self._doubt_at is not None and now >= self._doubt_at:
            self._end(Ending.CLOSED if self._fin_sent else Ending.RESET)
            return
        if self._greet_at is not None and now >= self._greet_at:
            if self._greeting[0] == OPEN and self._greetings >= 4:  # The other side may have been started anew.
                self._greet(bytes((INIT,)) + self.local + bytes(INIT_SIZE - 1 - ID_SIZE))
            else:
                self._repeat_greeting()
        if not self.opened:
            return
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_now = True
        if now >= self._sent + self._max_ping / 4:
            # An empty part as a sign of life: it is repeated if it is lost, and answered with another sign.
            if self._flights:
                self._ack_now = True
            else:
                self._must_send = True
        after, flying = self._retry_after, self._flying
        if flying and next(iter(flying.values())).sent + after <= now:
            while flying and (flight := next(iter(flying.values()))).sent + after <= now:
                self._miss(flight)
            self._backoff += 1
            self._narrow()

    def next_deadline(self) -> float | None:
        """When :meth:`tick` wants to be called."""
        if self.ended is not None:
            return None
        if not self.dialled and not self.opened:
            return self._heard + PENDING
        deadlines = [self._heard + self._max_ping]
        if self._greet_at is not None:
            deadlines.append(self._greet_at)
        if self.opened:
            deadlines.append(self._sent + self._max_ping / 4)
            if self._ack_at is not None:
                deadlines.append(self._ack_at)
            deadlines += [when for when in (self._fin_at, self._doubt_at) if when is not None]
            for flight in self._flying.values():
                deadlines.append(flight.sent + self._retry_after)
                break
        return min(deadlines)

    def drain(self) -> Drained:
        """Return what there is to do."""
        if self.opened and self.ended is None:
            self._send_parts()
        drained = Drained(self._out, b"".join(self._data), self.ended)
        self._out, self._data = [], []
        return drained

    # Greeting

    def _greet(self, body: bytes) -> None:
        self._greeting = seal(body, self._keys.common)
        self._greetings = 0
        self._repeat_greeting()

    def _repeat_greeting(self) -> None:
        self._greet_at = self._now + min(RETRY * 2**self._greetings, LONGEST_RETRY)
        self._greetings += 1
        self._out.append(self._greeting)

    # Out

    @property
    def _retry_after(self) -> float:
        first = max(RETRY, 2 * self._round_trip + ACK_DELAY)
        return min(first * (1 << min(self._backoff, 8)), max(LONGEST_RETRY, first))

    def _send_parts(self) -> None:
        flights, unsent = self._flights, self._unsent
        room = int(self._room) - len(self._flying)
        while self._missing and room > 0:
            flight = self._missing.pop(next(iter(self._missing)))
            flight.tries += 1
            self.counters["sent_again"] += 1
            self._fly(flight)
            room -= 1
        lowest = next(iter(flights), self._next)
        while room > 0 and self._next - lowest < WINDOW:
            if unsent or self._must_send:
                payload, kind = bytes(unsent[:PAYLOAD]), DATA
                del unsent[:PAYLOAD]
                self._must_send = False
            elif self._closing and not self._fin_sent:
                payload, kind = b"", FIN
                self._fin_sent = True
                self._fin_at = self._now + LINGER
            else:
                break
            flight = flights[self._next] = Flight(self._next, kind, payload, 0, 0.0, self._now)
            self._next += 1
            self._on_way += len(payload)
            self._fly(flight)
            room -= 1
        if self._ack_now:
            self._ack_now = False
            self._out.append(self._datagram(DATA, 0, b""))

    def _fly(self, flight: Flight) -> None:
        self._out.append(self._datagram(flight.kind, flight.sequence, flight.payload))
        flight.number, flight.sent = self._number, self._now
        self._flying[flight.sequence] = flight

    def _datagram(self, kind: int, sequence: int, payload: bytes) -> bytes:
        self._number += 1
        self._sent = self._now
        self._unacked, self._ack_at, self._ack_now = 0, None, False
        mask = self._mask.to_bytes((self._mask.bit_length() + 7) // 8, "little")
        head = HEAD.pack(kind, self.remote, self._number, sequence, self._expected - 1, len(mask))
        return seal(head + mask + payload, self._send_key)

    def _miss(self, flight: Flight) -> None:
        del self._flying[flight.sequence]
        self._missing[flight.sequence] = flight
        if flight.number > self._recover:
            self._narrow()

    def _narrow(self) -> None:
        """Have less on the way, once for all that was lost together."""
        self._recover = self._number
        self._room = self._slow_from = max(_LEAST_WINDOW, self._room / 2)

    def _arrived(self, flight: Flight) -> None:
        del self._flights[flight.sequence]
        if self._flying.pop(flight.sequence, None) is None:
            del self._missing[flight.sequence]
        self._on_way -= len(flight.payload)
        self._room = min(WINDOW, self._room + (1 if self._room < self._slow_from else 1 / self._room))
        if flight.tries == 1:
            taken = self._now - flight.sent
            self._round_trip = taken if not self._round_trip else (7 * self._round_trip + taken) / 8

    def _acknowledged(self, up_to: int, mask: int) -> None:
        flights, newest = self._flights, 0
        before = len(flights)
        while flights and (flight := next(iter(flights.values()))).sequence <= up_to:
            self._arrived(flight)
            # Of what was sent again it is not known which one has arrived.
            newest = max(newest, flight.number if flight.tries == 1 else 0)
        if mask:
            for sequence in tuple(flights):
                bit = sequence - up_to - 2
                if bit >= 0 and mask >> bit & 1:
                    flight = flights[sequence]
                    self._arrived(flight)
                    newest = max(newest, flight.number if flight.tries == 1 else 0)
        if len(flights) < before:
            self._backoff = 0
            if self._fin_at is not None:
                self._fin_at = self._now + LINGER
        flying = self._flying
        while flying and (flight := next(iter(flying.values()))).number <= newest - _REORDERED:
            self._miss(flight)
        if self._fin_sent and not flights:
            self._end(Ending.CLOSED)

    # In

    def _receive_part(self, datagram: bytes) -> None:
        body = unseal(datagram, self._receive_key)
        if body is None or len(body) < HEAD.size:
            self.counters["unproved" if body is None else "malformed"] += 1
            return
        kind, _, number, sequence, up_to, length = HEAD.unpack_from(body)
        payload = body[HEAD.size + length :]
        if len(body) < HEAD.size + length or up_to >= self._next or (kind == FIN and not sequence):
            self.counters["malformed"] += 1
            return
        if number > self._highest:
            self._highest, self._heard, self._doubt_at = number, self._now, None
            self.opened = True
            if kind == ABORT:
                self._end(Ending.CLOSED if self._fin_sent else Ending.RESET)
                return
        mask = int.from_bytes(body[HEAD.size : HEAD.size + length], "little")
        self._acknowledged(up_to, mask)
        if sequence == 0:
            return
        if sequence == self._expected:
            more = self._deliver(kind, payload)
            while more:
                more = self._deliver(*self._early.pop(self._expected))
            self._unacked += 1
            if self._mask or self._unacked >= 2:
                self._ack_now = True
            elif self._ack_at is None:
                self._ack_at = self._now + ACK_DELAY
        elif self._expected < sequence < self._expected + WINDOW:
            self._ack_now = True
            if sequence in self._early:
                self.counters["repeated"] += 1
            else:
                self._early[sequence] = kind, payload
                self._mask |= 1 << (sequence - self._expected - 1)
        else:
            self.counters["repeated"] += 1
            self._ack_now = True

    def _deliver(self, kind: int, payload: bytes) -> bool:
        """Take the part that was expected; return whether the next one is there as well."""
        more = bool(self._mask & 1)
        self._expected += 1
        self._mask >>= 1
        if kind == DATA:
            self._data.append(payload)
        elif self.ended is None:
            self._out.append(self._datagram(DATA, 0, b""))
            self._end(Ending.CLOSED)
        return more and self.ended is None

    def _end(self, reason: Ending, *, tell: bool = False) -> None:
        if self.ended is not None:
            return
        self.ended = reason
        if tell and self.opened:
            self._out.append(self._datagram(ABORT, 0, b""))
        self._unsent.clear()
        for kept in self._flights, self._flying, self._missing, self._early:
            kept.clear()
        self._on_way = 0
