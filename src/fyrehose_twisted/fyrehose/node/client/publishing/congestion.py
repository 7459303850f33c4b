"""Congestion window and retransmission timer of a publisher."""

from __future__ import annotations

from math import ceil

from fyrehose_twisted.fyrehose.config import WindowConfig


class CongestionWindow:
    """Congestion window of one publisher, adjusted once per round trip, with the timer of RFC 6298.

    :ivar size: maximum number of messages in flight.
    """

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        self.size = float(config.initial)
        self._minimum_timeout = self._floor = config.minimum_timeout
        self.smoothed_rtt: float | None = None
        self._rtt_variation = 0.0
        self._min_rtt = float("inf")
        self._acked = self._settled = self._lost = 0
        self._slow_start = True
        self._reordering_factor = 1.0
        self._backoff = 1.0
        self._backed_off_until = 0.0

    @property
    def timeout(self) -> float:
        """Retransmission timeout in seconds (RFC 6298, sections 2 and 5)."""
        wait = 1.0 if self.smoothed_rtt is None else self.smoothed_rtt + max(4 * self._rtt_variation, 0.001)
        return min(max(wait, self._minimum_timeout) * self._backoff, self.config.maximum_timeout)

    @property
    def reordering_window(self) -> float:
        """Seconds by which a message may overtake another before the other counts as lost (RFC 8985)."""
        return self._reordering_factor * (0.01 if self.smoothed_rtt is None else max(0.005, self.smoothed_rtt / 2))

    def acknowledged(self, round_trip: float | None, count: int = 1) -> None:
        """Record acknowledged messages.

        :param round_trip: round trip time of the first in seconds; ``None`` if it was not measured, or is ambiguous
            because the message was sent more than once.
        """
        if round_trip is not None:
            self._backoff = 1.0
            self._measure(max(round_trip, 0.0))
        while count:
            left = max(1, ceil(self.size) - self._acked)
            self._acked += min(count, left)
            count -= min(count, left)
            if self._acked >= self.size:
                self._end_round()

    def settled(self, lost: int, count: int) -> None:
        """Record that of ``count`` messages that were sent one after the other, ``lost`` are lost.

        Losses show long after the messages around them were acknowledged, many at once. Counted among those
        acknowledged meanwhile, they would pass for congestion.
        """
        self._lost += lost
        self._settled += count
        if self._settled < self.size:
            return
        if self._lost > self.config.congested_loss * self._settled:
            self._resize(0.5)
            self._slow_start = False
            self._acked = 0
        self._lost = self._settled = 0

    def timed_out(self, now: float) -> None:
        """Double the timeout until a message that was sent once is acknowledged."""
        if now >= self._backed_off_until:
            self._backoff = min(self._backoff * 2, 64.0)
            self._backed_off_until = now + self.timeout

    def restart_timer(self) -> None:
        """Forget doubled timeouts, because they say nothing about another backbone."""
        self._backoff, self._backed_off_until = 1.0, 0.0

    def retransmissions_recognised(self) -> None:
        """Use a shorter timer, because the backbone recognises retransmissions."""
        if self._floor > self.config.marked_timeout:
            self._minimum_timeout = self._floor = self.config.marked_timeout

    def retransmitted_early(self) -> None:
        """Use a longer timer for a while, because the backbone had the message that was retransmitted."""
        self._minimum_timeout = min(self._minimum_timeout * 1.01, self.config.minimum_timeout)

    def spurious_retransmission(self) -> None:
        """Record a message that was retransmitted too early."""
        self._reordering_factor = min(self._reordering_factor * 1.5, 32.0)

    def _measure(self, round_trip: float) -> None:
        self._min_rtt = min(self._min_rtt, round_trip)
        if self.smoothed_rtt is None:
            self.smoothed_rtt, self._rtt_variation = round_trip, round_trip / 2
            return
        self._rtt_variation += (abs(self.smoothed_rtt - round_trip) - self._rtt_variation) / 4
        self.smoothed_rtt += (round_trip - self.smoothed_rtt) / 8

    def _end_round(self) -> None:
        if self.smoothed_rtt is not None and self.smoothed_rtt < 4 * self._min_rtt + 0.02:
            self._resize(2.0 if self._slow_start else 1.125)
        else:
            self._resize(0.9)
            self._slow_start = False
        self._acked = 0
        self._reordering_factor = max(1.0, self._reordering_factor * 0.98)
        self._minimum_timeout = max(self._floor, self._minimum_timeout * 0.95)

    def _resize(self, factor: float) -> None:
        self.size = min(max(self.size * factor, self.config.minimum), self.config.maximum)
