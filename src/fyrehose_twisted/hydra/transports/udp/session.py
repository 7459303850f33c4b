"""Reliable stream between two UDP addresses, without I/O.

Its datagrams are those of :mod:`~fyrehose_twisted.hydra.transports.udp.datagrams`. An open session ends when the peer
closes, aborts or restarts, or when nothing new arrives for ``max_ping``. A RESET says that the peer does not know the
session. Any holder of the secret can provoke a RESET for any session, so it only starts a probe with a short timeout.
"""

from __future__ import annotations

import os
from collections import Counter
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
    REFUSE,
    RandomBytes,
    SessionKeys,
    sign,
    verify,
)
from fyrehose_twisted.hydra.transports.udp.receive_buffer import ReceiveBuffer
from fyrehose_twisted.hydra.transports.udp.send_buffer import MAX_RTO, MIN_RTO, SendBuffer

MAX_QUEUED = 16 * 2**20
"""Bytes that may wait to be acknowledged; with more, the session ends."""
LINGER = 1.0
"""Seconds without progress after which an unacknowledged end of the stream is given up."""
OPEN_TIMEOUT = 3.0
"""Seconds that an accepted session may take to open."""
PROBE_TIMEOUT = 0.5
"""Shortest time, in seconds, in which a peer must answer the probe after a RESET."""


class CloseReason(Enum):
    """Reason for the end of a session."""

    CLOSED = "closed"
    ABORTED = "aborted here"
    SILENT = "silent"
    RESET = "closed by the peer, or unknown there"
    RESTARTED = "the peer restarted"
    REFUSED = "refused"
    QUEUE_FULL = "too much unsent data"


class SessionOutput(NamedTuple):
    """Output of a session since the previous one."""

    datagrams: list[bytes]
    """Datagrams to send, in order."""
    data: bytes
    """Received bytes of the stream, in order; complete before the end of the session."""
    close_reason: CloseReason | None
    """Reason for the end of the session; ``None`` while it is open."""


class Handshake:
    """Repeated handshake datagram of a dialling session.

    :ivar retry_at: time of the next repetition, ``None`` once the handshake is complete.
    """

    def __init__(self) -> None:
        self.retry_at: float | None = None
        self.tries = 0
        self._datagram = b""

    @property
    def kind(self) -> int:
        """Kind of the current datagram."""
        return self._datagram[0]

    def start(self, datagram: bytes, now: float) -> bytes:
        """Replace the datagram and return it for its first transmission."""
        self._datagram, self.tries = datagram, 0
        return self.retry(now)

    def retry(self, now: float) -> bytes:
        """Schedule the next repetition, with exponential backoff, and return the datagram."""
        self.retry_at = now + min(MIN_RTO * 2**self.tries, MAX_RTO)
        self.tries += 1
        return self._datagram


class UdpSession:
    """One end of a stream.

    :param address: address of the peer.
    :param max_ping: seconds without a new datagram after which the session ends.
    :param instance: random id of this process, which reveals a restart to peers.
    :param opening: session id and instance of the peer, if it dialled.
    :param token: source of random bytes.
    :ivar opened: whether both ends know of the session.
    :ivar close_reason: reason for the end of the session.
    :ivar timer_at: deadline under which :class:`~fyrehose_twisted.hydra.transports.udp.demux.SessionDemux` holds the
        session.
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
        self._handshake = Handshake()
        self._send_key: bytes | None = None
        self._receive_key: bytes | None = None
        self._number = self._highest_received = 0
        """Numbers of the last datagram sent and of the newest one received."""
        self._send_buffer = SendBuffer()
        self._receive_buffer = ReceiveBuffer()
        self._fin_at: float | None = None
        """Time at which the end of the stream is given up, once it was sent."""
        self._probe_deadline: float | None = None
        if opening is None:
            self._dial()
        else:
            self._receive_key, self._send_key = keys.session_keys(self.remote, self.local)
            self.accept_again()

    @property
    def waiting(self) -> int:
        """Bytes that were written and are not acknowledged."""
        return self._send_buffer.waiting

    # Inputs

    def write(self, data: bytes, now: float) -> None:
        """Send bytes; ignored after :meth:`close`."""
        self._now = now
        if self.close_reason is None and not self._send_buffer.closing:
            self._send_buffer.write(data)
            if self.waiting > MAX_QUEUED:
                self._end(CloseReason.QUEUE_FULL, notify_peer=True)

    def close(self, now: float) -> None:
        """End the session once everything written is acknowledged."""
        self._now = now
        if self.close_reason is None and not self.opened:
            self._end(CloseReason.ABORTED, notify_peer=True)
        self._send_buffer.closing = True

    def end(self, reason: CloseReason, now: float) -> None:
        """End the session at once. The peer is notified if the reason is :attr:`CloseReason.ABORTED`."""
        self._now = now
        if self.close_reason is None:
            self._end(reason, notify_peer=reason is CloseReason.ABORTED)

    def probe(self, now: float) -> None:
        """Probe the peer after a RESET, with a short timeout."""
        self._now = now
        if self.opened and self.close_reason is None and self._probe_deadline is None:
            self._probe_deadline = now + max(PROBE_TIMEOUT, 3 * self._send_buffer.window.srtt)
            self._send_buffer.must_send = not self._send_buffer.fin_sent

    def accept_again(self) -> None:
        """Answer a first or repeated OPEN of the peer."""
        if not self.opened:
            accept = ACCEPT_BODY.pack(ACCEPT, self.remote, self.local, self._own_instance)
            self._out.append(sign(accept, self._keys.shared_key))

    def receive(self, datagram: bytes, now: float) -> None:
        """Handle a datagram for this session."""
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
            # Only the first cookie counts; a later one may be old.
            if self._handshake.kind == INIT:
                self._start_handshake(OPEN_BODY.pack(OPEN, self.local, body[1 + ID_SIZE :], self._own_instance))
        elif kind == ACCEPT and len(body) == ACCEPT_BODY.size and self._handshake.kind == OPEN:
            _, _, self.remote, self.instance = ACCEPT_BODY.unpack(body)
            self._send_key, self._receive_key = self._keys.session_keys(self.local, self.remote)
            self._handshake.retry_at = None
            self._last_received_at = now
            self.opened = self._send_buffer.must_send = True
        elif kind == REFUSE and len(body) == 1 + ID_SIZE:
            self._end(CloseReason.REFUSED)
        else:
            self.counters["malformed"] += 1

    def tick(self, now: float) -> None:
        """Handle timeouts that are due."""
        self._now = now
        if self.close_reason is None:
            self._check_end(now)
        if self.close_reason is not None or (not self.dialled and not self.opened):
            return
        if self._handshake.retry_at is not None and now >= self._handshake.retry_at:
            if self._handshake.kind == OPEN and self._handshake.tries >= 4:
                self._dial()  # The peer may have restarted.
            else:
                self._out.append(self._handshake.retry(now))
        if self.opened:
            self._tick_open(now)

    def next_deadline(self) -> float | None:
        """Return the time of the next :meth:`tick`, ``None`` after the end."""
        if self.close_reason is not None:
            return None
        if not self.dialled and not self.opened:
            return self._last_received_at + OPEN_TIMEOUT
        deadlines = [self._last_received_at + self._max_ping]
        if self._handshake.retry_at is not None:
            deadlines.append(self._handshake.retry_at)
        if self.opened:
            deadlines.append(self._last_sent_at + self._max_ping / 4)
            optional = (
                self._receive_buffer.ack_at,
                self._fin_at,
                self._probe_deadline,
                self._send_buffer.next_timeout(),
            )
            deadlines += [deadline for deadline in optional if deadline is not None]
        return min(deadlines)

    def drain(self) -> SessionOutput:
        """Remove and return the output."""
        if self.opened and self.close_reason is None:
            self._send_segments()
        output = SessionOutput(self._out, b"".join(self._data), self.close_reason)
        self._out, self._data = [], []
        return output

    # Handshake

    def _dial(self) -> None:
        self._start_handshake(bytes((INIT,)) + self.local + bytes(INIT_SIZE - 1 - ID_SIZE))

    def _start_handshake(self, body: bytes) -> None:
        self._out.append(self._handshake.start(sign(body, self._keys.shared_key), self._now))

    # Timeouts

    def _check_end(self, now: float) -> None:
        """End the session if a timeout of the session itself has passed."""
        if not self.dialled and not self.opened:
            if now >= self._last_received_at + OPEN_TIMEOUT:
                self._end(CloseReason.SILENT)
            return
        oldest = self._send_buffer.oldest
        if now >= self._last_received_at + self._max_ping or (
            # The peer is alive, but no segment reaches it: the path may drop large datagrams.
            oldest is not None and now >= oldest.first_sent_at + 3 * self._max_ping
        ):
            self._end(CloseReason.SILENT, notify_peer=True)
        elif self._fin_at is not None and now >= self._fin_at:
            self._end(CloseReason.CLOSED, notify_peer=True)
        elif self._probe_deadline is not None and now >= self._probe_deadline:
            self._end(CloseReason.CLOSED if self._send_buffer.fin_sent else CloseReason.RESET)

    def _tick_open(self, now: float) -> None:
        """Handle acknowledgement, keepalive and retransmission timers."""
        received = self._receive_buffer
        if received.ack_at is not None and now >= received.ack_at:
            received.ack_now = True
        if now >= self._last_sent_at + self._max_ping / 4:
            # The keepalive is an empty segment, which is retransmitted if lost and answered by the peer.
            if self._send_buffer.oldest is not None:
                received.ack_now = True
            else:
                self._send_buffer.must_send = True
        self._send_buffer.expire(self._number, now)

    # Sending

    def _send_segments(self) -> None:
        while (segment := self._send_buffer.next_segment(self._now)) is not None:
            if segment.transmissions > 1:
                self.counters["sent_again"] += 1
            elif segment.kind == FIN:
                self._fin_at = self._now + LINGER
            self._out.append(self._datagram(segment.kind, segment.sequence, segment.payload))
            self._send_buffer.transmitted(segment, self._number, self._now)
        if self._receive_buffer.ack_now:
            self._out.append(self._datagram(DATA, 0, b""))

    def _datagram(self, kind: int, sequence: int, payload: bytes) -> bytes:
        self._number += 1
        self._last_sent_at = self._now
        self._receive_buffer.ack_sent()
        mask = self._receive_buffer.encoded_mask
        head = HEADER.pack(kind, self.remote, self._number, sequence, self._receive_buffer.expected - 1, len(mask))
        return sign(head + mask + payload, self._send_key)

    # Receiving

    def _receive_segment(self, datagram: bytes) -> None:
        body = verify(datagram, self._receive_key)
        if body is None or len(body) < HEADER.size:
            self.counters["unproved" if body is None else "malformed"] += 1
            return
        kind, _, number, sequence, up_to, length = HEADER.unpack_from(body)
        payload = body[HEADER.size + length :]
        is_truncated = len(body) < HEADER.size + length
        if is_truncated or up_to >= self._send_buffer.next_sequence or (kind == FIN and not sequence):
            self.counters["malformed"] += 1
            return
        if number > self._highest_received:
            self._highest_received, self._last_received_at, self._probe_deadline = number, self._now, None
            self.opened = True
            if kind == ABORT:
                self._end(CloseReason.CLOSED if self._send_buffer.fin_sent else CloseReason.RESET)
                return
        self._ack_received(up_to, int.from_bytes(body[HEADER.size : HEADER.size + length], "little"))
        received = self._receive_buffer
        if sequence == 0:
            return
        if sequence == received.expected:
            has_next = self._deliver(kind, payload)
            while has_next:
                has_next = self._deliver(*received.pop_expected())
            received.schedule_ack(self._now)
        elif not received.buffer(sequence, kind, payload):
            self.counters["repeated"] += 1

    def _ack_received(self, up_to: int, mask: int) -> None:
        progressed = self._send_buffer.acknowledge(up_to, mask, self._number, self._now)
        if progressed and self._fin_at is not None:
            self._fin_at = self._now + LINGER
        if self._send_buffer.is_finished:
            self._end(CloseReason.CLOSED)

    def _deliver(self, kind: int, payload: bytes) -> bool:
        """Deliver the expected segment; return whether the next one is buffered and the session still open."""
        has_next = self._receive_buffer.advance()
        if kind == DATA:
            self._data.append(payload)
        elif self.close_reason is None:
            self._out.append(self._datagram(DATA, 0, b""))
            self._end(CloseReason.CLOSED)
        return has_next and self.close_reason is None

    def _end(self, reason: CloseReason, *, notify_peer: bool = False) -> None:
        if self.close_reason is not None:
            return
        self.close_reason = reason
        if notify_peer and self.opened:
            self._out.append(self._datagram(ABORT, 0, b""))
        self._send_buffer.clear()
        self._receive_buffer.clear()
