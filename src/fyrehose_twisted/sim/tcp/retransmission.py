"""Retransmission in one direction of a stream connection."""

from __future__ import annotations

from math import ceil
from typing import Protocol

from fyrehose_twisted.sim.host import Host
from fyrehose_twisted.sim.tcp.route import RouteStreams, StreamRoute
from fyrehose_twisted.sim.tcp.segments import StreamLimits, TcpSegment

INITIAL_RETRANSMIT_TIMEOUT = 0.2
"""Initial retransmission timeout in seconds; doubled after each failed attempt."""

MAX_RETRANSMIT_TIMEOUT = 10.0


class WireEnd(Protocol):
    """Sender or receiver of a reliable route."""

    host: Host

    @property
    def is_gone(self) -> bool:
        """Whether the kernel has dropped the connection."""

    def buffered_bytes_changed(self, size: int) -> None:
        """Handle a change of the number of queued bytes."""

    def accepts_segments(self) -> bool:
        """Return whether arriving segments are accepted."""

    def arrived(self, segments: list[TcpSegment]) -> None:
        """Process arrived segments."""

    def terminate(self, reason: str) -> None:
        """Handle the end of the connection."""


class ReliableRoute(StreamRoute):
    """Reliable route that delivers each segment once and in order.

    A lost segment is retransmitted and delays the following ones. Without an acknowledgement the sender times out.
    """

    __slots__ = (
        "_arriving",
        "_busy_until",
        "_in_flight",
        "_last_progress",
        "_limits",
        "_lost_count",
        "_retransmit_at",
        "_retransmit_timeout",
        "_scheduler",
        "_unacknowledged",
        "receiver",
        "sender",
    )

    def __init__(self, streams: RouteStreams, sender: WireEnd, receiver: WireEnd, limits: StreamLimits) -> None:
        super().__init__(streams, sender.host, receiver.host.address)
        self.sender = sender
        self.receiver = receiver
        self._limits = limits
        self._scheduler = self.network.scheduler
        self._in_flight: list[TcpSegment] = []
        self._lost_count = 0  # of the segments in flight
        self._unacknowledged = False  # whether an arrival is not yet acknowledged
        self._arriving = False
        self._busy_until = 0.0
        self._last_progress = 0.0
        self._retransmit_timeout = INITIAL_RETRANSMIT_TIMEOUT
        self._retransmit_at: float | None = None

    # Transmission

    def _transmit(self, segment: TcpSegment) -> None:
        self._in_flight.append(segment)
        self._attempt(segment)
        if not self._arriving:
            self._schedule_arrival()

    def _attempt(self, segment: TcpSegment) -> None:
        leaves = self._scheduler.now
        if self._version == self.network.link_version and self._is_delay_only:
            segment.due = leaves + self._forward_link.delay
            return
        if self.is_lost():
            self._lost_count += 1
            self._arm()
            return
        if self.link.bandwidth is not None:
            leaves = self._busy_until = max(leaves, self._busy_until) + segment.size / self.link.bandwidth
        segment.due = leaves + self.latency()

    def _schedule_arrival(self) -> None:
        if self._arriving or not self._in_flight or (due := self._in_flight[0].due) is None:
            return
        moment = self.network.moment
        self._arriving = True
        self._scheduler.call_at(max(ceil(due / moment) * moment, due) if moment else due, self._arrive)

    def _arrive(self) -> None:
        self._arriving = False
        if not self._in_flight:
            return
        if not self.receiver.accepts_segments():
            for segment in self._in_flight:
                segment.due = None
            self._lost_count = len(self._in_flight)
            self._arm()
            return
        flying, count = self._in_flight, 1
        while count < len(flying) and (due := flying[count].due) is not None and due <= self._scheduler.now:
            count += 1
        arrived, self._in_flight = flying[:count], flying[count:]
        if self.is_acknowledged():
            self._retransmit_timeout = INITIAL_RETRANSMIT_TIMEOUT
            self._acknowledged()
        else:
            self._unacknowledged = True
            self._arm()
        if self._in_flight:
            self._schedule_arrival()
        self.receiver.arrived(arrived)

    # Acknowledgements

    def _acknowledged(self) -> None:
        """Handle an acknowledgement: the sender learns the state of the receiver."""
        self._unacknowledged = False
        self._last_progress = self._scheduler.now

    @property
    def _awaits_acknowledgement(self) -> bool:
        """Whether the sender awaits an acknowledgement, which may never arrive."""
        return self._lost_count > 0 or self._unacknowledged

    def _arm(self) -> None:
        now = self._scheduler.now
        when = max(now, min(now + self._retransmit_timeout, self._last_progress + self._limits.timeout))
        if self._retransmit_at is None or when < self._retransmit_at:
            self._retransmit_at = when
            self._scheduler.call_at(when, self._retransmit_due)

    def _retransmit_due(self) -> None:
        # A call superseded by an earlier one does nothing.
        if self._retransmit_at is None or self._scheduler.now < self._retransmit_at:
            return
        self._retransmit_at = None
        if self.sender.is_gone or not self._awaits_acknowledgement:
            return
        if self._scheduler.now >= self._last_progress + self._limits.timeout:
            self.sender.terminate("timed out")
            return
        self._retransmit_timeout = min(2 * self._retransmit_timeout, MAX_RETRANSMIT_TIMEOUT)
        if self._lost_count:
            self._lost_count = 0
            for segment in self._in_flight:
                if segment.due is None:
                    self._attempt(segment)
            self._schedule_arrival()
        elif not self._in_flight and not self.is_lost() and self.receiver.accepts_segments() and self.is_acknowledged():
            self._acknowledged()
        if self._awaits_acknowledgement:
            self._arm()
