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
    HEADER,
    ID_SIZE,
    INIT,
    INIT_SIZE,
    OPEN,
    OPEN_BODY,
    PAYLOAD,
    REFUSE,
    WINDOW,
    RandomBytes,
    SessionKeys,
    sign,
    verify,
)

MAX_QUEUED = 16 * 2**20
"""Bytes that may wait to be sent; with more, the session ends."""
MIN_RTO, MAX_RTO = 0.2, 2.0
"""Seconds until something is sent again: at first, doubled each time, and at most."""
ACK_DELAY = 0.02
"""Seconds that an acknowledgement may wait for something to travel with."""
LINGER = 1.0
"""Seconds that the end of the stream may take to be acknowledged."""
OPEN_TIMEOUT = 3.0
"""Seconds that an accepted session may take to open."""
PROBE_TIMEOUT = 0.5
"""Seconds that a session is given to show that it lives after somebody said that nobody knows it."""
_INITIAL_WINDOW, _MIN_WINDOW = 32, 4
_REORDER_THRESHOLD = 3
"""A datagram counts as lost once one has arrived that was sent so many after it."""


class CloseReason(Enum):
    """Why a session is over."""

    CLOSED = "closed"
    ABORTED = "aborted here"
    SILENT = "silent"
    RESET = "cut off by the other side, or unknown there"
    RESTARTED = "the other side was started anew"
    REFUSED = "refused"
    QUEUE_FULL = "too much waited to be sent"


class SessionOutput(NamedTuple):
    """What has become of a session since the last time."""

    datagrams: list[bytes]
    """To be sent, in order."""
    data: bytes
    """Received, in order; all of it before the end."""
    close_reason: CloseReason | None
    """Why it is over, if it is."""


@dataclass(slots=True)
class StreamSegment:
    """A part of the stream that is not known to have arrived.

    :ivar number: of the datagram that carried it last.
    :ivar first_sent_at: when it was sent first.
    """

    sequence: int
    kind: int
    payload: bytes
    number: int
    sent_at: float
    first_sent_at: float
    transmissions: int = 1


class UdpSession:
    """One end of a stream.

    :param address: the other end.
    :param max_ping: seconds without anything new, after which it is lost.
    :param instance: tells this process from one that has the same address later.
    :param opening: id and instance of the other end, if that dialled.
    :param token: where random bytes come from.
    :ivar opened: whether both sides know of it.
    :ivar close_reason: why it is over.
    :ivar timer_at: for :class:`Station`.
    """

    def __init__(
        self,
        address: Address,
        now: float,
        *,
        keys: SessionKeys,
        max_ping: float,
        instance: bytes,
        opening: tuple[bytes, bytes] | None = None,
        token: RandomBytes = os.urandom,
        counters: Counter[str] | None = None,
    ) -> None:
        self.address = address
        self.local = token(ID_SIZE)
        self.remote, self.instance = (b"", b"") if opening is None else opening
        self.dialled = opening is None
        self.opened = False
        self.close_reason: CloseReason | None = None
        self.timer_at: float | None = None
        self.counters: Counter[str] = Counter() if counters is None else counters
        self._keys = keys
        self._own_instance = instance
        self._max_ping = max_ping
        self._now = self._last_received_at = self._last_sent_at = now
        self._out: list[bytes] = []
        self._data: list[bytes] = []
        self._handshake = b""
        self._handshake_tries = 0
        self._handshake_at: float | None = None
        self._send_key: bytes | None = None
        self._receive_key: bytes | None = None

        self._number = self._highest_received = 0
        """Of the last datagram that was sent, and of the newest that came."""
        self._unsent = bytearray()
        self._next = 1
        self._outstanding: dict[int, StreamSegment] = {}
        """What is not known to have arrived, in order of the stream."""
        self._in_flight: dict[int, StreamSegment] = {}
        """What of that may still arrive, in the order in which it was sent."""
        self._lost: dict[int, StreamSegment] = {}
        """What of it is to be sent again."""
        self._bytes_outstanding = 0
        self._cwnd: float = _INITIAL_WINDOW
        self._ssthresh: float = WINDOW
        self._recovery_point = 0
        self._srtt = 0.0
        self._backoff = 0
        self._must_send = False
        self._closing = self._fin_sent = False
        self._fin_at: float | None = None
        self._probe_deadline: float | None = None

        self._expected = 1
        self._reorder_buffer: dict[int, tuple[int, bytes]] = {}
        self._mask = 0
        """Bit n stands for the part ``_expected + 1 + n``."""
        self._unacked_received = 0
        self._ack_at: float | None = None
        self._ack_now = False

        if opening is None:
            self._start_handshake(bytes((INIT,)) + self.local + bytes(INIT_SIZE - 1 - ID_SIZE))
        else:
            self._receive_key, self._send_key = keys.session_keys(self.remote, self.local)
            self.accept_again()

    @property
    def waiting(self) -> int:
        """Bytes that were written and are not known to have arrived."""
        return len(self._unsent) + self._bytes_outstanding

    # What goes in

    def write(self, data: bytes, now: float) -> None:
        """Send bytes; what is written after :meth:`close` is not sent."""
        self._now = now
        if self.close_reason is None and not self._closing:
            self._unsent += data
            if self.waiting > MAX_QUEUED:
                self._end(CloseReason.QUEUE_FULL, notify_peer=True)

    def close(self, now: float) -> None:
        """End it once everything that was written has arrived."""
        self._now = now
        if self.close_reason is None and not self.opened:
            self._end(CloseReason.ABORTED, notify_peer=True)
        self._closing = True

    def end(self, reason: CloseReason, now: float) -> None:
        """End it at once; the other side is told, unless it is that which ended it."""
        self._now = now
        if self.close_reason is None:
            self._end(reason, notify_peer=reason is CloseReason.ABORTED)

    def probe(self, now: float) -> None:
        """Somebody says that the other side does not know it."""
        self._now = now
        if self.opened and self.close_reason is None and self._probe_deadline is None:
            self._probe_deadline = now + max(PROBE_TIMEOUT, 3 * self._srtt)
            self._must_send = not self._fin_sent

    def accept_again(self) -> None:
        """The other side has asked (again) for the session."""
        if not self.opened:
            accept = ACCEPT_BODY.pack(ACCEPT, self.remote, self.local, self._own_instance)
            self._out.append(sign(accept, self._keys.shared_key))

    def receive(self, datagram: bytes, now: float) -> None:
        """A datagram for this session came."""
        self._now = now
        if self.close_reason is not None:
            return
        kind = datagram[0]
        if kind in (DATA, FIN, ABORT):
            if self.remote:
                self._receive_segment(datagram)
            else:
                self.counters["malformed"] += 1
            return
        body = verify(datagram, self._keys.shared_key)
        if body is None:
            self.counters["unproved"] += 1
        elif not self.dialled or self.opened:
            self.counters["late"] += 1
        elif kind == COOKIE and len(body) == 1 + ID_SIZE + 16:
            # The first counts; another one may be old.
            if self._handshake[0] == INIT:
                self._start_handshake(OPEN_BODY.pack(OPEN, self.local, body[1 + ID_SIZE :], self._own_instance))
        elif kind == ACCEPT and len(body) == ACCEPT_BODY.size and self._handshake[0] == OPEN:
            _, _, self.remote, self.instance = ACCEPT_BODY.unpack(body)
            self._send_key, self._receive_key = self._keys.session_keys(self.local, self.remote)
            self._handshake_at = None
            self._last_received_at = now
            self.opened = self._must_send = True
        elif kind == REFUSE and len(body) == 1 + ID_SIZE:
            self._end(CloseReason.REFUSED)
        else:
            self.counters["malformed"] += 1

    def tick(self, now: float) -> None:
        """Do what is due."""
        self._now = now
        if self.close_reason is not None:
            return
        if not self.dialled and not self.opened:
            if now >= self._last_received_at + OPEN_TIMEOUT:
                self._end(CloseReason.SILENT)
            return
        oldest = next(iter(self._outstanding.values()), None)
        if now >= self._last_received_at + self._max_ping or (
            # The other side lives, but what is sent there does not arrive: large datagrams may be lost on the way.
            oldest is not None and now >= oldest.first_sent_at + 3 * self._max_ping
        ):
            self._end(CloseReason.SILENT, notify_peer=True)
            return
        if self._fin_at is not None and now >= self._fin_at:
            self._end(CloseReason.CLOSED, notify_peer=True)
            return
        if self._probe_deadline is not None and now >= self._probe_deadline:
            self._end(CloseReason.CLOSED if self._fin_sent else CloseReason.RESET)
            return
        if self._handshake_at is not None and now >= self._handshake_at:
            if self._handshake[0] == OPEN and self._handshake_tries >= 4:  # The other side may have been started anew.
                self._start_handshake(bytes((INIT,)) + self.local + bytes(INIT_SIZE - 1 - ID_SIZE))
            else:
                self._retry_handshake()
        if not self.opened:
            return
        if self._ack_at is not None and now >= self._ack_at:
            self._ack_now = True
        if now >= self._last_sent_at + self._max_ping / 4:
            # An empty part as a sign of life: it is repeated if it is lost, and answered with another sign.
            if self._outstanding:
                self._ack_now = True
            else:
                self._must_send = True
        after, flying = self._rto, self._in_flight
        if flying and next(iter(flying.values())).sent_at + after <= now:
            while flying and (flight := next(iter(flying.values()))).sent_at + after <= now:
                self._mark_lost(flight)
            self._backoff += 1
            self._reduce_window()

    def next_deadline(self) -> float | None:
        """When :meth:`tick` wants to be called."""
        if self.close_reason is not None:
            return None
        if not self.dialled and not self.opened:
            return self._last_received_at + OPEN_TIMEOUT
        deadlines = [self._last_received_at + self._max_ping]
        if self._handshake_at is not None:
            deadlines.append(self._handshake_at)
        if self.opened:
            deadlines.append(self._last_sent_at + self._max_ping / 4)
            if self._ack_at is not None:
                deadlines.append(self._ack_at)
            deadlines += [when for when in (self._fin_at, self._probe_deadline) if when is not None]
            for flight in self._in_flight.values():
                deadlines.append(flight.sent_at + self._rto)
                break
        return min(deadlines)

    def drain(self) -> SessionOutput:
        """Return what there is to do."""
        if self.opened and self.close_reason is None:
            self._send_segments()
        drained = SessionOutput(self._out, b"".join(self._data), self.close_reason)
        self._out, self._data = [], []
        return drained

    # Greeting

    def _start_handshake(self, body: bytes) -> None:
        self._handshake = sign(body, self._keys.shared_key)
        self._handshake_tries = 0
        self._retry_handshake()

    def _retry_handshake(self) -> None:
        self._handshake_at = self._now + min(MIN_RTO * 2**self._handshake_tries, MAX_RTO)
        self._handshake_tries += 1
        self._out.append(self._handshake)

    # Out

    @property
    def _rto(self) -> float:
        first = max(MIN_RTO, 2 * self._srtt + ACK_DELAY)
        return min(first * (1 << min(self._backoff, 8)), max(MAX_RTO, first))

    def _send_segments(self) -> None:
        flights, unsent = self._outstanding, self._unsent
        room = int(self._cwnd) - len(self._in_flight)
        while self._lost and room > 0:
            flight = self._lost.pop(next(iter(self._lost)))
            flight.transmissions += 1
            self.counters["sent_again"] += 1
            self._transmit(flight)
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
            flight = flights[self._next] = StreamSegment(self._next, kind, payload, 0, 0.0, self._now)
            self._next += 1
            self._bytes_outstanding += len(payload)
            self._transmit(flight)
            room -= 1
        if self._ack_now:
            self._ack_now = False
            self._out.append(self._datagram(DATA, 0, b""))

    def _transmit(self, segment: StreamSegment) -> None:
        self._out.append(self._datagram(segment.kind, segment.sequence, segment.payload))
        segment.number, segment.sent_at = self._number, self._now
        self._in_flight[segment.sequence] = segment

    def _datagram(self, kind: int, sequence: int, payload: bytes) -> bytes:
        self._number += 1
        self._last_sent_at = self._now
        self._unacked_received, self._ack_at, self._ack_now = 0, None, False
        mask = self._mask.to_bytes((self._mask.bit_length() + 7) // 8, "little")
        head = HEADER.pack(kind, self.remote, self._number, sequence, self._expected - 1, len(mask))
        return sign(head + mask + payload, self._send_key)

    def _mark_lost(self, segment: StreamSegment) -> None:
        del self._in_flight[segment.sequence]
        self._lost[segment.sequence] = segment
        if segment.number > self._recovery_point:
            self._reduce_window()

    def _reduce_window(self) -> None:
        """Have less on the way, once for all that was lost together."""
        self._recovery_point = self._number
        self._cwnd = self._ssthresh = max(_MIN_WINDOW, self._cwnd / 2)

    def _segment_acked(self, segment: StreamSegment) -> None:
        del self._outstanding[segment.sequence]
        if self._in_flight.pop(segment.sequence, None) is None:
            del self._lost[segment.sequence]
        self._bytes_outstanding -= len(segment.payload)
        self._cwnd = min(WINDOW, self._cwnd + (1 if self._cwnd < self._ssthresh else 1 / self._cwnd))
        if segment.transmissions == 1:
            taken = self._now - segment.sent_at
            self._srtt = taken if not self._srtt else (7 * self._srtt + taken) / 8

    def _ack_received(self, up_to: int, mask: int) -> None:
        flights, newest = self._outstanding, 0
        before = len(flights)
        while flights and (flight := next(iter(flights.values()))).sequence <= up_to:
            self._segment_acked(flight)
            # Of what was sent again it is not known which one has arrived.
            newest = max(newest, flight.number if flight.transmissions == 1 else 0)
        if mask:
            for sequence in tuple(flights):
                bit = sequence - up_to - 2
                if bit >= 0 and mask >> bit & 1:
                    flight = flights[sequence]
                    self._segment_acked(flight)
                    newest = max(newest, flight.number if flight.transmissions == 1 else 0)
        if len(flights) < before:
            self._backoff = 0
            if self._fin_at is not None:
                self._fin_at = self._now + LINGER
        flying = self._in_flight
        while flying and (flight := next(iter(flying.values()))).number <= newest - _REORDER_THRESHOLD:
            self._mark_lost(flight)
        if self._fin_sent and not flights:
            self._end(CloseReason.CLOSED)

    # In

    def _receive_segment(self, datagram: bytes) -> None:
        body = verify(datagram, self._receive_key)
        if body is None or len(body) < HEADER.size:
            self.counters["unproved" if body is None else "malformed"] += 1
            return
        kind, _, number, sequence, up_to, length = HEADER.unpack_from(body)
        payload = body[HEADER.size + length :]
        if len(body) < HEADER.size + length or up_to >= self._next or (kind == FIN and not sequence):
            self.counters["malformed"] += 1
            return
        if number > self._highest_received:
            self._highest_received, self._last_received_at, self._probe_deadline = number, self._now, None
            self.opened = True
            if kind == ABORT:
                self._end(CloseReason.CLOSED if self._fin_sent else CloseReason.RESET)
                return
        mask = int.from_bytes(body[HEADER.size : HEADER.size + length], "little")
        self._ack_received(up_to, mask)
        if sequence == 0:
            return
        if sequence == self._expected:
            more = self._deliver(kind, payload)
            while more:
                more = self._deliver(*self._reorder_buffer.pop(self._expected))
            self._unacked_received += 1
            if self._mask or self._unacked_received >= 2:
                self._ack_now = True
            elif self._ack_at is None:
                self._ack_at = self._now + ACK_DELAY
        elif self._expected < sequence < self._expected + WINDOW:
            self._ack_now = True
            if sequence in self._reorder_buffer:
                self.counters["repeated"] += 1
            else:
                self._reorder_buffer[sequence] = kind, payload
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
        elif self.close_reason is None:
            self._out.append(self._datagram(DATA, 0, b""))
            self._end(CloseReason.CLOSED)
        return more and self.close_reason is None

    def _end(self, reason: CloseReason, *, notify_peer: bool = False) -> None:
        if self.close_reason is not None:
            return
        self.close_reason = reason
        if notify_peer and self.opened:
            self._out.append(self._datagram(ABORT, 0, b""))
        self._unsent.clear()
        for kept in self._outstanding, self._in_flight, self._lost, self._reorder_buffer:
            kept.clear()
        self._bytes_outstanding = 0
