"""Receive buffer of a UDP session: reordering, deduplication and acknowledgements."""

from __future__ import annotations

from fyrehose_twisted.hydra.transports.udp.datagrams import WINDOW
from fyrehose_twisted.hydra.transports.udp.send_buffer import ACK_DELAY


class ReceiveBuffer:
    """Incoming half of one session.

    :ivar expected: sequence number of the next segment in order.
    :ivar mask: acknowledgement mask; bit n stands for segment ``expected + 1 + n``.
    :ivar ack_at: time at which a delayed acknowledgement is due, ``None`` without one.
    :ivar ack_now: whether an acknowledgement is to be sent at once.
    """

    def __init__(self) -> None:
        self.expected = 1
        self.mask = 0
        self.ack_at: float | None = None
        self.ack_now = False
        self._reorder_buffer: dict[int, tuple[int, bytes]] = {}
        self._unacked = 0

    @property
    def encoded_mask(self) -> bytes:
        """Acknowledgement mask in wire format."""
        return self.mask.to_bytes((self.mask.bit_length() + 7) // 8, "little")

    def advance(self) -> bool:
        """Move past the expected segment; return whether the next one is buffered."""
        has_next = bool(self.mask & 1)
        self.expected += 1
        self.mask >>= 1
        return has_next

    def pop_expected(self) -> tuple[int, bytes]:
        """Remove the expected segment from the buffer; return its kind and payload."""
        return self._reorder_buffer.pop(self.expected)

    def buffer(self, sequence: int, kind: int, payload: bytes) -> bool:
        """Keep a segment that is not the expected one; return whether it is new and within the window."""
        self.ack_now = True
        if not self.expected < sequence < self.expected + WINDOW or sequence in self._reorder_buffer:
            return False
        self._reorder_buffer[sequence] = kind, payload
        self.mask |= 1 << (sequence - self.expected - 1)
        return True

    def schedule_ack(self, now: float) -> None:
        """Acknowledge segments received in order: at once if there is a gap or two are unacknowledged, else delayed."""
        self._unacked += 1
        if self.mask or self._unacked >= 2:
            self.ack_now = True
        elif self.ack_at is None:
            self.ack_at = now + ACK_DELAY

    def ack_sent(self) -> None:
        """Record that a datagram with an acknowledgement was sent."""
        self._unacked, self.ack_at, self.ack_now = 0, None, False

    def clear(self) -> None:
        """Discard buffered segments."""
        self._reorder_buffer.clear()
