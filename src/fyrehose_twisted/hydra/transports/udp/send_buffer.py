"""Send buffer of a UDP session: segmentation, retransmission, and congestion control."""

from __future__ import annotations

from dataclasses import dataclass

from fyrehose_twisted.hydra.transports.udp.datagrams import DATA, FIN, PAYLOAD, WINDOW

MIN_RTO, MAX_RTO = 0.2, 2.0
"""Smallest and largest retransmission timeout, in seconds. It doubles with each timeout."""
ACK_DELAY = 0.02
"""Seconds that an acknowledgement may be delayed."""
_INITIAL_WINDOW, _MIN_WINDOW = 32, 4
_REORDER_THRESHOLD = 3
"""A segment counts as lost once a datagram sent this many numbers later was acknowledged."""


@dataclass(slots=True)
class StreamSegment:
    """A segment of the stream that is not acknowledged.

    :ivar number: number of the datagram that carried it last.
    :ivar first_sent_at: time of its first transmission.
    """

    sequence: int
    kind: int
    payload: bytes
    number: int
    sent_at: float
    first_sent_at: float
    transmissions: int = 1


class CongestionWindow:
    """Congestion window, round-trip time and retransmission timeout of one session.

    :ivar size: largest number of segments in flight.
    :ivar srtt: smoothed round-trip time in seconds, 0 before the first sample.
    """

    def __init__(self) -> None:
        self.size = float(_INITIAL_WINDOW)
        self.srtt = 0.0
        self._ssthresh = float(WINDOW)
        self._recovery_point = 0
        self._backoff = 0

    @property
    def rto(self) -> float:
        """Retransmission timeout in seconds."""
        first = max(MIN_RTO, 2 * self.srtt + ACK_DELAY)
        return min(first * (1 << min(self._backoff, 8)), max(MAX_RTO, first))

    def acknowledged(self, round_trip: float | None) -> None:
        """Widen the window for an acknowledged segment.

        :param round_trip: sample in seconds; ``None`` for a retransmitted segment.
        """
        self.size = min(WINDOW, self.size + (1 if self.size < self._ssthresh else 1 / self.size))
        if round_trip is not None:
            self.srtt = round_trip if not self.srtt else (7 * self.srtt + round_trip) / 8

    def progressed(self) -> None:
        """Reset the backoff of the timeout after an acknowledgement."""
        self._backoff = 0

    def lost(self, number: int, last_number: int) -> None:
        """Reduce the window for a lost datagram, once per round of losses.

        :param last_number: number of the last datagram sent.
        """
        if number > self._recovery_point:
            self._reduce(last_number)

    def timed_out(self, last_number: int) -> None:
        """Reduce the window and back off after a timeout."""
        self._backoff += 1
        self._reduce(last_number)

    def _reduce(self, last_number: int) -> None:
        self._recovery_point = last_number
        self.size = self._ssthresh = max(_MIN_WINDOW, self.size / 2)


class SendBuffer:
    """Outgoing half of one session.

    :ivar window: congestion window.
    :ivar closing: whether the stream ends with the data written so far.
    :ivar fin_sent: whether the end of the stream was sent.
    :ivar must_send: whether a segment is to be sent even if it is empty.
    :ivar next_sequence: sequence number of the next new segment.
    """

    def __init__(self) -> None:
        self.window = CongestionWindow()
        self.closing = self.fin_sent = self.must_send = False
        self.next_sequence = 1
        self._unsent = bytearray()
        self._outstanding: dict[int, StreamSegment] = {}
        """Unacknowledged segments in stream order."""
        self._in_flight: dict[int, StreamSegment] = {}
        """Those that may still arrive, in order of transmission."""
        self._lost: dict[int, StreamSegment] = {}
        """Those to be retransmitted."""
        self._outstanding_bytes = 0

    @property
    def waiting(self) -> int:
        """Bytes that were written and are not acknowledged."""
        return len(self._unsent) + self._outstanding_bytes

    @property
    def oldest(self) -> StreamSegment | None:
        """First unacknowledged segment of the stream."""
        return next(iter(self._outstanding.values()), None)

    @property
    def is_finished(self) -> bool:
        """Whether the end of the stream was sent and everything is acknowledged."""
        return self.fin_sent and not self._outstanding

    def write(self, data: bytes) -> None:
        """Append bytes to the stream."""
        self._unsent += data

    def next_segment(self, now: float) -> StreamSegment | None:
        """Return the next segment to transmit, lost ones first; ``None`` if there is none or the window is full."""
        if len(self._in_flight) >= int(self.window.size):
            return None
        if self._lost:
            segment = self._lost.pop(next(iter(self._lost)))
            segment.transmissions += 1
            return segment
        if self.next_sequence - next(iter(self._outstanding), self.next_sequence) >= WINDOW:
            return None
        if self._unsent or self.must_send:
            payload, kind = bytes(self._unsent[:PAYLOAD]), DATA
            del self._unsent[:PAYLOAD]
            self.must_send = False
        elif self.closing and not self.fin_sent:
            payload, kind = b"", FIN
            self.fin_sent = True
        else:
            return None
        segment = self._outstanding[self.next_sequence] = StreamSegment(self.next_sequence, kind, payload, 0, 0.0, now)
        self.next_sequence += 1
        self._outstanding_bytes += len(payload)
        return segment

    def transmitted(self, segment: StreamSegment, number: int, now: float) -> None:
        """Record the transmission of a segment in a datagram."""
        segment.number, segment.sent_at = number, now
        self._in_flight[segment.sequence] = segment

    def acknowledge(self, up_to: int, mask: int, last_number: int, now: float) -> bool:
        """Handle an acknowledgement; return whether it covers any outstanding segment.

        :param up_to: last sequence number before the first gap.
        :param mask: bit n stands for segment ``up_to + 2 + n``.
        :param last_number: number of the last datagram sent.
        """
        outstanding, newest = self._outstanding, 0
        before = len(outstanding)
        while outstanding and (segment := next(iter(outstanding.values()))).sequence <= up_to:
            newest = max(newest, self._segment_acked(segment, now))
        if mask:
            for sequence in tuple(outstanding):
                bit = sequence - up_to - 2
                if bit >= 0 and mask >> bit & 1:
                    newest = max(newest, self._segment_acked(outstanding[sequence], now))
        progressed = len(outstanding) < before
        if progressed:
            self.window.progressed()
        in_flight = self._in_flight
        while in_flight and (segment := next(iter(in_flight.values()))).number <= newest - _REORDER_THRESHOLD:
            self._mark_lost(segment, last_number)
        return progressed

    def expire(self, last_number: int, now: float) -> None:
        """Mark segments as lost whose retransmission timeout has passed."""
        timeout, in_flight = self.window.rto, self._in_flight
        expired = False
        while in_flight and (segment := next(iter(in_flight.values()))).sent_at + timeout <= now:
            self._mark_lost(segment, last_number)
            expired = True
        if expired:
            self.window.timed_out(last_number)

    def next_timeout(self) -> float | None:
        """Return the time of the next retransmission timeout."""
        segment = next(iter(self._in_flight.values()), None)
        return None if segment is None else segment.sent_at + self.window.rto

    def clear(self) -> None:
        """Discard all data."""
        self._unsent.clear()
        for segments in self._outstanding, self._in_flight, self._lost:
            segments.clear()
        self._outstanding_bytes = 0

    def _mark_lost(self, segment: StreamSegment, last_number: int) -> None:
        del self._in_flight[segment.sequence]
        self._lost[segment.sequence] = segment
        self.window.lost(segment.number, last_number)

    def _segment_acked(self, segment: StreamSegment, now: float) -> int:
        """Remove an acknowledged segment; return its datagram number, 0 if it was retransmitted.

        The acknowledgement does not say which transmission of a segment arrived.
        """
        del self._outstanding[segment.sequence]
        if self._in_flight.pop(segment.sequence, None) is None:
            del self._lost[segment.sequence]
        self._outstanding_bytes -= len(segment.payload)
        is_first = segment.transmissions == 1
        self.window.acknowledged(now - segment.sent_at if is_first else None)
        return segment.number if is_first else 0
