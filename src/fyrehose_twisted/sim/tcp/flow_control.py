"""Send buffer and flow control of one direction of a stream connection."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from fyrehose_twisted.sim.tcp.retransmission import ReliableRoute, WireEnd
from fyrehose_twisted.sim.tcp.route import RouteStreams
from fyrehose_twisted.sim.tcp.segments import ControlSegment, StreamLimits, TcpSegment


class SendBuffer(ReliableRoute):
    """Reliable route limited by the receive window.

    :ivar waiting_bytes: bytes queued at the sender.
    """

    __slots__ = ("_pumping", "_unreported_bytes", "_waiting", "_window_used", "waiting_bytes")

    def __init__(self, streams: RouteStreams, sender: WireEnd, receiver: WireEnd, limits: StreamLimits) -> None:
        super().__init__(streams, sender, receiver, limits)
        self.waiting_bytes = 0
        self._waiting: deque[TcpSegment] | None = (
            None  # Created on use: an empty deque takes more memory than the rest.
        )
        self._window_used = 0  # bytes of the window
        self._unreported_bytes = 0  # of these, bytes read by the receiver but not yet acknowledged
        self._pumping = False

    # Queue

    def send(self, segment: TcpSegment) -> None:
        """Send a segment in order."""
        if not (self._in_flight or self._waiting or self._unacknowledged):
            self._last_progress = self._scheduler.now
        if not self._waiting and self._has_room(segment):
            self._window_used += segment.size
            self._transmit(segment)
            return
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(segment)
        self.waiting_bytes += segment.size
        self._arm()
        self.sender.buffered_bytes_changed(self.waiting_bytes)

    def bytes_read(self, size: int) -> None:
        """Handle ``size`` bytes read by the receiver."""
        if self.is_acknowledged():
            self._window_used -= size
        else:
            self._unreported_bytes += size
        if self._waiting:
            self._schedule_pump()

    def _has_room(self, segment: TcpSegment) -> bool:
        return not self._window_used or self._window_used + segment.size <= self._limits.window

    def _schedule_pump(self) -> None:
        if not self.is_acknowledged():
            self._arm()
        elif not self._pumping:
            self._pumping = True
            self._scheduler.call_at(self._scheduler.now + self.ack_delay, self._pump)

    def _pump(self) -> None:
        self._pumping = False
        while self._waiting and self._has_room(self._waiting[0]):
            segment = self._waiting.popleft()
            self.waiting_bytes -= segment.size
            self._window_used += segment.size
            self._transmit(segment)
        if not self._waiting:
            self._waiting = None
        self.sender.buffered_bytes_changed(self.waiting_bytes)

    def _acknowledged(self) -> None:
        super()._acknowledged()
        if self._unreported_bytes:
            self._window_used -= self._unreported_bytes
            self._unreported_bytes = 0
            if self._waiting:
                self._schedule_pump()

    @property
    def _awaits_acknowledgement(self) -> bool:
        return self._lost_count > 0 or self._unacknowledged or self._waiting is not None

    # The end

    @property
    def idle(self) -> bool:
        """Whether everything written is acknowledged."""
        return not self._in_flight and not self._awaits_acknowledgement

    def sender_gone(self, reason: str) -> None:
        """Handle the end of the sender. Segments in flight still arrive, up to the first lost one."""
        self._drop(self._waiting or (), reason)
        self._waiting, self.waiting_bytes = None, 0
        whole = 0
        while not self.receiver.is_gone and whole < len(self._in_flight) and self._in_flight[whole].due is not None:
            whole += 1
        rest, self._in_flight, self._lost_count = self._in_flight[whole:], self._in_flight[:whole], 0
        self._drop(rest, reason)
        if any(segment.data is ControlSegment.HELLO for segment in rest):
            self.receiver.terminate(reason)

    def receiver_gone(self, reason: str) -> None:
        """Handle the end of the receiver. The sender, if it still exists, detects it on its next transmission."""
        if self.sender.is_gone:
            self._drop(self._in_flight, reason)
            self._in_flight = []

    def _drop(self, segments: Iterable[TcpSegment], reason: str) -> None:
        for segment in segments:
            for packet in segment.packets:
                self.network.drop(packet, reason)
