"""How many messages a publisher may have under way, and how long it waits for one to come back."""

from __future__ import annotations

from math import ceil

from fyrehose_twisted.fyrehose.config import WindowConfig


class Window:
    """Grows while messages return in time and shrinks when they do not, once a round trip; times out by RFC 6298.

    :ivar size: messages that may be under way.
    """

    def __init__(self, config: WindowConfig) -> None:
        self.config = config
        self.size = float(config.initial)
        self.smoothed: float | None = None
        self._variation = 0.0
        self._fastest = float("inf")
        self._returned = 0
        self._lost = 0
        self._slow_start = True
        self._patience = 1.0
        self._backoff = 1.0
        self._backed_off_until = 0.0

    @property
    def timeout(self) -> float:
        """Seconds to wait for a message before it is sent again (RFC 6298, sections 2 and 5)."""
        wait = 1.0 if self.smoothed is None else self.smoothed + max(4 * self._variation, 0.001)
        return min(max(wait, self.config.minimum_timeout) * self._backoff, self.config.maximum_timeout)

    @property
    def reordering(self) -> float:
        """Seconds by which one message may overtake another without the other counting as lost (RFC 8985)."""
        return self._patience * (0.01 if self.smoothed is None else max(0.005, self.smoothed / 2))

    def returned(self, round_trip: float | None, count: int = 1) -> None:
        """Messages came back.

        :param round_trip: seconds it took the first; ``None`` if it was not measured, or was sent more than once, for
            then nobody can tell.
        """
        if round_trip is not None:
            self._backoff = 1.0
            self._measure(max(round_trip, 0.0))
        while count:
            left = max(1, ceil(self.size) - self._returned - self._lost)
            self._returned += min(count, left)
            count -= min(count, left)
            if self._returned + self._lost >= self.size:
                self._end_round()

    def lost(self) -> None:
        """A message has to be sent again."""
        self._lost += 1
        if self._returned + self._lost >= self.size:
            self._end_round()

    def timed_out(self, now: float) -> None:
        """Messages were not seen in time: wait twice as long from now on, until one comes back that was sent once."""
        if now >= self._backed_off_until:
            self._backoff = min(self._backoff * 2, 64.0)
            self._backed_off_until = now + self.timeout

    def spurious(self) -> None:
        """A message came back that had been sent again too early."""
        self._patience = min(self._patience * 1.5, 32.0)

    def _measure(self, round_trip: float) -> None:
        self._fastest = min(self._fastest, round_trip)
        if self.smoothed is None:
            self.smoothed, self._variation = round_trip, round_trip / 2
            return
        self._variation += (abs(self.smoothed - round_trip) - self._variation) / 4
        self.smoothed += (round_trip - self.smoothed) / 8

    def _end_round(self) -> None:
        share = self._lost / (self._returned + self._lost)
        in_time = self.smoothed is not None and self.smoothed < 4 * self._fastest + 0.02
        if share > self.config.congested_loss:
            self.size *= 0.5
            self._slow_start = False
        elif not in_time:
            self.size *= 0.9
            self._slow_start = False
        else:
            self.size *= 2.0 if self._slow_start else 1.125
        self.size = min(max(self.size, self.config.minimum), self.config.maximum)
        self._returned = self._lost = 0
        self._patience = max(1.0, self._patience * 0.98)
